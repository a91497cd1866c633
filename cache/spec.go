package cache

import (
	v1 "k8s.io/api/core/v1"
)

// UniquePodName names one pod for the desired world. Any non-empty name will do as long as two pods that
// exist at the same time never share it; the UID of the pod, or "namespace/name/uid", also keeps a re-created
// pod apart from its predecessor.
type UniquePodName string

// VolumeSpec is the description of a volume: an inline volume of a pod, or a persistent volume. Exactly one
// of the two is set.
//
// The worlds keep the pointer that they are given and hand it out again, so a spec and the objects in it must
// not be modified after it was handed over.
type VolumeSpec struct {
	// Volume is the volume as written in the pod, when it is not a claim.
	Volume *v1.Volume
	// PersistentVolume is the volume that the claim of the pod is bound to.
	PersistentVolume *v1.PersistentVolume
	// ReadOnly says that this use of the volume is read-only.
	ReadOnly bool
}

// NewSpecFromVolume returns the spec of an inline volume.
func NewSpecFromVolume(volume *v1.Volume) *VolumeSpec {
	return &VolumeSpec{Volume: volume}
}

// NewSpecFromPersistentVolume returns the spec of a persistent volume.
func NewSpecFromPersistentVolume(pv *v1.PersistentVolume, readOnly bool) *VolumeSpec {
	return &VolumeSpec{PersistentVolume: pv, ReadOnly: readOnly}
}

// Name returns the name of the object that the spec holds, for messages. It is empty for a nil or an empty
// spec.
func (s *VolumeSpec) Name() string {
	switch {
	case s == nil:
		return ""
	case s.Volume != nil:
		return s.Volume.Name
	case s.PersistentVolume != nil:
		return s.PersistentVolume.Name
	}
	return ""
}

// Validate returns an [*InvalidError] unless exactly one of Volume and PersistentVolume is set.
func (s *VolumeSpec) Validate() error {
	switch {
	case s == nil:
		return &InvalidError{Field: "volume spec", Reason: "must not be nil"}
	case s.Volume == nil && s.PersistentVolume == nil:
		return &InvalidError{Field: "volume spec", Reason: "must have a volume or a persistent volume"}
	case s.Volume != nil && s.PersistentVolume != nil:
		return &InvalidError{Field: "volume spec", Value: s.Name(), Reason: "must not have both a volume and a persistent volume"}
	}
	return nil
}

// same says whether both specs hold the same objects. It does not look into them: an object that was read
// anew from the API is another object.
func (s *VolumeSpec) same(other *VolumeSpec) bool {
	return s == other || s != nil && other != nil && *s == *other
}
