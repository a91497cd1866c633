package lifecycle

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/stateofworld/stateofworld/lvm"
)

// Keys of the annotations by which Kubernetes says which driver is to provide for a claim.
const (
	annProvisioner     = "volume.kubernetes.io/storage-provisioner"
	annBetaProvisioner = "volume.beta.kubernetes.io/storage-provisioner"
)

// rules is what of the configuration decides about objects. It does not change.
type rules struct {
	node           node
	annotations    Annotations
	keys           annotationKeys
	drivers        []string
	attributes     map[string]string
	storageClasses []string
	volumeGroups   []string
	finalizer      string
	source         func(*v1.PersistentVolume) lvm.Name
}

// annotationKeys are put together once: they are looked up with every event.
type annotationKeys struct{ lifecycle, spec, failure, uid string }

func (a Annotations) keys() annotationKeys {
	return annotationKeys{lifecycle: a.Lifecycle(), spec: a.Spec(), failure: a.Error(), uid: a.UID()}
}

// claim is what matters of a PersistentVolumeClaim. It is a comparable value.
type claim struct {
	UID         types.UID
	Version     string
	Node        string
	Lifecycle   State
	Spec        string
	Failure     string
	RequestUID  types.UID // the UID annotation
	Terminating bool
	Driver      string
	Class       string
}

// claimOf reads an object.
func (r *rules) claimOf(obj *v1.PersistentVolumeClaim) claim {
	a := obj.Annotations
	c := claim{
		UID: obj.UID, Version: obj.ResourceVersion, Node: a[r.annotations.SelectedNode], Lifecycle: State(a[r.keys.lifecycle]),
		Spec: a[r.keys.spec], Failure: a[r.keys.failure], RequestUID: types.UID(a[r.keys.uid]),
		Terminating: obj.DeletionTimestamp != nil, Driver: a[annProvisioner],
	}
	if c.Driver == "" {
		c.Driver = a[annBetaProvisioner]
	}
	if obj.Spec.StorageClassName != nil {
		c.Class = *obj.Spec.StorageClassName
	}
	return c
}

// volume is what matters of a PersistentVolume. It is a comparable value.
type volume struct {
	UID         types.UID
	Version     string
	Foreign     bool // another driver's, or another kind of volume
	Placement   placement
	BadAffinity string
	MarkedNode  string // the selected-node annotation, with which an agent marks what it has begun; see Agent.mark
	Lifecycle   State
	Spec        string
	Failure     string
	RequestUID  types.UID
	Terminating bool
	Bound       bool
	Owner       types.UID // the UID of the claim it was made for
	Finalizer   bool
	// Source is the logical volume that the volume itself names, apart from annotations; parts may be empty.
	Source lvm.Name
}

// volumeOf reads an object.
func (r *rules) volumeOf(obj *v1.PersistentVolume) volume {
	a := obj.Annotations
	v := volume{
		UID: obj.UID, Version: obj.ResourceVersion, MarkedNode: a[r.annotations.SelectedNode], Lifecycle: State(a[r.keys.lifecycle]),
		Spec: a[r.keys.spec], Failure: a[r.keys.failure], RequestUID: types.UID(a[r.keys.uid]),
		Terminating: obj.DeletionTimestamp != nil, Bound: obj.Status.Phase == v1.VolumeBound,
		Finalizer: r.finalizer != "" && slices.Contains(obj.Finalizers, r.finalizer),
		Foreign:   r.foreign(obj), Source: r.source(obj),
	}
	if obj.Spec.ClaimRef != nil {
		v.Owner = obj.Spec.ClaimRef.UID
	}
	var err error
	if v.Placement, err = r.node.place(obj.Spec.NodeAffinity); err != nil {
		v.BadAffinity = printable(err.Error())
	}
	return v
}

// foreign reports whether the volume is none of the agent's, whatever node it is on.
func (r *rules) foreign(obj *v1.PersistentVolume) bool {
	csi := obj.Spec.CSI
	if csi == nil || !slices.Contains(r.drivers, csi.Driver) {
		return true
	}
	for key, want := range r.attributes {
		if have, ok := csi.VolumeAttributes[key]; ok && have != want {
			return true
		}
	}
	return false
}

// DefaultSource is how the Alibaba Cloud CSI driver names the logical volume in a volume: the group is the attribute "vgName", the name is the handle.
func DefaultSource(pv *v1.PersistentVolume) lvm.Name {
	if pv.Spec.CSI == nil {
		return lvm.Name{}
	}
	return lvm.Name{VG: pv.Spec.CSI.VolumeAttributes["vgName"], LV: pv.Spec.CSI.VolumeHandle}
}

// attempt is what is remembered of the attempts at one object. The zero value: none has failed.
type attempt struct {
	Now time.Time
	// Failed is why the last failed, or the zero value; it holds for the request that the object has now.
	Failed Failure
	// Until is until when it is not repeated.
	Until time.Time
	// Unreported is until when writing the failure down is not tried again.
	Unreported time.Time
	// Absent: the logical volume was looked for on this node and is not there.
	Absent bool
}
