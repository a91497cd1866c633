package main

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/stateofworld/stateofworld/cache/populator"
	"github.com/stateofworld/stateofworld/examples/internal/manifest"
)

// fieldError says which field of an object is wrong, and how.
type fieldError struct{ field, reason string }

func (e *fieldError) Error() string { return e.field + ": " + e.reason }

// migrated are the types that Kubernetes hands to a CSI driver behind the object's back: the names in the nodes' status
// are the driver's then, and cannot be told from the object.
var migrated = []string{"awsElasticBlockStore", "azureDisk", "cinder", "gcePersistentDisk", "portworxVolume", "rbd", "vsphereVolume"}

func (f *foreignSource) kind() string {
	v := reflect.ValueOf(f).Elem()
	for i := range v.NumField() {
		if !v.Field(i).IsNil() {
			return v.Type().Field(i).Tag.Get("json")
		}
	}
	return ""
}

// groups are the kinds that are read, and the API groups that they are of: others have kinds of these names too.
var groups = map[string]string{
	"Node": "", "Pod": "", "PersistentVolumeClaim": "", "PersistentVolume": "",
	"VolumeAttachment": "storage.k8s.io", "CSIDriver": "storage.k8s.io",
}

func groupOf(apiVersion string) string {
	if group, _, ok := strings.Cut(apiVersion, "/"); ok {
		return group
	}
	return ""
}

// isKnown says whether objects of this kind are read.
func isKnown(h head) bool {
	group, ok := groups[h.Kind]
	return ok && group == groupOf(h.APIVersion)
}

// keep puts an object into the dump; o is nil if its kind is not known. An error is a *fieldError.
func (d *dump) keep(h *head, o object) error {
	if h.Kind == "" {
		return &fieldError{"kind", "is missing"}
	}
	if _, ok := groups[h.Kind]; ok && h.APIVersion == "" {
		return &fieldError{"apiVersion", "is missing"}
	}
	if o == nil {
		d.skipped.add(fmt.Sprintf("objects of kind %s (%s)", manifest.Quoted(h.Kind), manifest.Quoted(h.APIVersion)), objectName(h.Metadata))
		return nil
	}
	if h.Metadata.Name == "" {
		return &fieldError{"metadata.name", "is missing"}
	}
	if namespaced := h.Kind == "Pod" || h.Kind == "PersistentVolumeClaim"; namespaced && h.Metadata.Namespace == "" {
		return &fieldError{"metadata.namespace", "is missing"}
	}
	return o.addTo(d)
}

func objectName(m metadata) string {
	if m.Namespace == "" {
		return m.Name
	}
	return m.Namespace + "/" + m.Name
}

func (m *metadata) key() types.NamespacedName {
	return types.NamespacedName{Namespace: m.Namespace, Name: m.Name}
}

// object makes the metadata that is kept.
func (m *metadata) object() (metav1.ObjectMeta, error) {
	meta := metav1.ObjectMeta{Name: m.Name, Namespace: m.Namespace, UID: types.UID(m.UID)}
	for _, owner := range m.OwnerReferences {
		if owner.Controller != nil && *owner.Controller {
			meta.OwnerReferences = []metav1.OwnerReference{{UID: types.UID(owner.UID), Controller: owner.Controller}}
		}
	}
	created, err := timestamp("metadata.creationTimestamp", m.CreationTimestamp)
	if err != nil {
		return meta, err
	}
	meta.CreationTimestamp = metav1.Time{Time: created}
	deleted, err := timestamp("metadata.deletionTimestamp", m.DeletionTimestamp)
	if err == nil && !deleted.IsZero() {
		meta.DeletionTimestamp = &metav1.Time{Time: deleted}
	}
	return meta, err
}

func timestamp(field, value string) (time.Time, error) {
	if value == "" {
		return time.Time{}, nil
	}
	t, err := time.Parse(time.RFC3339, value)
	if err != nil {
		return t, &fieldError{field, fmt.Sprintf("%q is not a time like 2026-01-31T12:00:00Z", value)}
	}
	return t, nil
}

func (f *nodeFields) addTo(d *dump) error {
	meta, err := f.Metadata.object()
	if err != nil {
		return err
	}
	if managed := f.Metadata.Annotations.Managed; managed != nil {
		meta.Annotations = map[string]string{populator.ControllerManagedAttachAnnotation: *managed}
	}
	node := &v1.Node{ObjectMeta: meta}
	node.Spec.Taints = f.Spec.Taints
	for _, c := range f.Status.Conditions {
		if c.Type == string(v1.NodeReady) {
			node.Status.Conditions = []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionStatus(c.Status)}}
		}
	}
	for i, attached := range f.Status.VolumesAttached {
		if attached.Name == "" {
			return &fieldError{fmt.Sprintf("status.volumesAttached[%d].name", i), "is missing"}
		}
		if !isCSIName(string(attached.Name)) {
			d.skipped.add("attached volumes of other plugins", string(attached.Name))
			continue
		}
		node.Status.VolumesAttached = append(node.Status.VolumesAttached, attached)
	}
	for i, name := range f.Status.VolumesInUse {
		if name == "" {
			return &fieldError{fmt.Sprintf("status.volumesInUse[%d]", i), "is empty"}
		}
		node.Status.VolumesInUse = append(node.Status.VolumesInUse, v1.UniqueVolumeName(name))
	}
	return add(d, "Node", d.nodes, meta.Name, node)
}

// isCSIName says whether a volume name in a node's status is of the plugin that is here. Others are attached by someone
// else, and must not be detached only because nobody here wishes them.
func isCSIName(name string) bool { return strings.HasPrefix(name, "kubernetes.io/csi/") }

func (f *podFields) addTo(d *dump) error {
	meta, err := f.Metadata.object()
	if err != nil {
		return err
	}
	pod := &v1.Pod{ObjectMeta: meta}
	pod.Spec.NodeName = f.Spec.NodeName
	pod.Status.Phase = v1.PodPhase(f.Status.Phase)
	for i := range f.Spec.Volumes {
		source := &f.Spec.Volumes[i]
		field := fmt.Sprintf("spec.volumes[%d]", i)
		if source.Name == "" {
			return &fieldError{field + ".name", "is missing"}
		}
		volume := v1.Volume{Name: source.Name}
		full := objectName(f.Metadata) + ":" + source.Name
		switch {
		case source.Claim != nil:
			if source.Claim.ClaimName == "" {
				return &fieldError{field + ".persistentVolumeClaim.claimName", "is missing"}
			}
			volume.PersistentVolumeClaim = source.Claim
		case source.Ephemeral != nil:
			volume.Ephemeral = &v1.EphemeralVolumeSource{}
		case source.CSI != nil:
			d.skipped.add("inline CSI volumes: they live in the pod and are not attached", full)
			continue
		default:
			kind := source.kind()
			if kind != "" && kind != "hostPath" {
				d.skipped.add("inline volumes of type "+kind+": no plugin here attaches them", full)
			}
			if slices.Contains(migrated, kind) {
				d.migrated[f.Metadata.key()] = true
			}
			continue
		}
		pod.Spec.Volumes = append(pod.Spec.Volumes, volume)
	}
	if meta.DeletionTimestamp != nil {
		pod.Status.InitContainerStatuses = containerStates(f.Status.Init)
		pod.Status.ContainerStatuses = containerStates(f.Status.Containers)
		pod.Status.EphemeralContainerStatuses = containerStates(f.Status.Ephemeral)
	}
	return add(d, "Pod", d.pods, f.Metadata.key(), pod)
}

// containerStates keeps only whether each container may be running.
func containerStates(statuses []containerStatus) []v1.ContainerStatus {
	states := make([]v1.ContainerStatus, len(statuses))
	for i, s := range statuses {
		if s.State.Waiting != nil {
			states[i].State.Waiting = &v1.ContainerStateWaiting{}
		}
		if s.State.Terminated != nil {
			states[i].State.Terminated = &v1.ContainerStateTerminated{}
		}
	}
	return states
}

func (f *claimFields) addTo(d *dump) error {
	meta, err := f.Metadata.object()
	if err != nil {
		return err
	}
	claim := &v1.PersistentVolumeClaim{ObjectMeta: meta}
	claim.Spec.VolumeName = f.Spec.VolumeName
	claim.Status.Phase = v1.PersistentVolumeClaimPhase(f.Status.Phase)
	return add(d, "PersistentVolumeClaim", d.claims, f.Metadata.key(), claim)
}

func (f *volumeFields) addTo(d *dump) error {
	meta, err := f.Metadata.object()
	if err != nil {
		return err
	}
	pv := &v1.PersistentVolume{ObjectMeta: meta}
	if pv.Spec, err = f.Spec.object("spec"); err != nil {
		return err
	}
	if pv.Spec.CSI == nil {
		kind := f.Spec.kind()
		if kind == "" {
			kind = "unknown"
		}
		d.foreign[meta.Name] = kind
		d.skipped.add("persistent volumes of type "+kind+": no plugin here attaches them", meta.Name)
	}
	return add(d, "PersistentVolume", d.volumes, meta.Name, pv)
}

var accessModes = []string{
	string(v1.ReadWriteOnce), string(v1.ReadOnlyMany), string(v1.ReadWriteMany), string(v1.ReadWriteOncePod),
}

func (s *volumeSpec) object(field string) (v1.PersistentVolumeSpec, error) {
	var spec v1.PersistentVolumeSpec
	for i, mode := range s.AccessModes {
		if !slices.Contains(accessModes, mode) {
			return spec, &fieldError{fmt.Sprintf("%s.accessModes[%d]", field, i), fmt.Sprintf("%q is none of %s", mode, strings.Join(accessModes, ", "))}
		}
		spec.AccessModes = append(spec.AccessModes, v1.PersistentVolumeAccessMode(mode))
	}
	if ref := s.ClaimRef; ref != nil {
		spec.ClaimRef = &v1.ObjectReference{Namespace: ref.Namespace, Name: ref.Name, UID: types.UID(ref.UID)}
	}
	if csi := s.CSI; csi != nil {
		if csi.Driver == "" {
			return spec, &fieldError{field + ".csi.driver", "is missing"}
		}
		if csi.VolumeHandle == "" {
			return spec, &fieldError{field + ".csi.volumeHandle", "is missing"}
		}
		spec.CSI = &v1.CSIPersistentVolumeSource{Driver: csi.Driver, VolumeHandle: csi.VolumeHandle}
	}
	return spec, nil
}

func (f *attachmentFields) addTo(d *dump) error {
	meta, err := f.Metadata.object()
	if err != nil {
		return err
	}
	if f.Spec.NodeName == "" {
		return &fieldError{"spec.nodeName", "is missing"}
	}
	va := &storagev1.VolumeAttachment{ObjectMeta: meta}
	va.Spec.Attacher, va.Spec.NodeName = f.Spec.Attacher, f.Spec.NodeName
	switch source := f.Spec.Source; {
	case source.PersistentVolumeName != "":
		va.Spec.Source.PersistentVolumeName = &source.PersistentVolumeName
	case source.InlineVolumeSpec != nil:
		spec, err := source.InlineVolumeSpec.object("spec.source.inlineVolumeSpec")
		if err != nil {
			return err
		}
		va.Spec.Source.InlineVolumeSpec = &spec
	default:
		return &fieldError{"spec.source", "names no volume"}
	}
	va.Status.Attached = f.Status.Attached
	return add(d, "VolumeAttachment", d.attachments, meta.Name, va)
}

func (f *driverFields) addTo(d *dump) error {
	if required := f.Spec.AttachRequired; required != nil && !*required {
		d.unattached[f.Metadata.Name] = true
	}
	return nil
}
