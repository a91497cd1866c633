package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/stateofworld/stateofworld/cache"
	"github.com/stateofworld/stateofworld/cache/populator"
	"github.com/stateofworld/stateofworld/examples/internal/manifest"
)

// worlds are the two worlds and what feeds them.
type worlds struct {
	plugins   *cache.VolumePluginMgr
	desired   *cache.DesiredStateOfWorld
	actual    *cache.ActualStateOfWorld
	populator *populator.Populator
}

// seed fills new worlds with the dump, as informers would after a controller's start.
func seed(d *dump) (*worlds, error) {
	w := &worlds{plugins: d.plugins()}
	w.desired = cache.NewDesiredStateOfWorld(w.plugins)
	w.actual = cache.NewActualStateOfWorld(w.plugins)
	var err error
	w.populator, err = populator.New(populator.Config{
		Desired: w.desired, Actual: w.actual, Plugins: w.plugins,
		Claims: populator.ClaimGetterFunc(d.claim), Volumes: volumeLister{d},
		MaxProblems: max(1, 4*len(d.pods)+len(d.attachments)),
	})
	if err != nil {
		return nil, err
	}
	d.skipByDriver()
	d.skipUnmanaged()
	initial(w.populator.Volumes(), sorted(d.volumes, volumeName))
	initial(w.populator.Claims(), slices.Collect(maps.Values(d.claims)))
	initial(w.populator.Nodes(), sorted(d.nodes, nodeName))
	initial(w.populator.Attachments(), sorted(d.attachments, attachmentName))
	pods := d.runningPods()
	initial(w.populator.Pods(), pods)
	for _, pod := range pods {
		if d.usesMigrated(pod) {
			// Its volume may be attached under a name that nobody here can tell. To be careful: leave its node as it is.
			w.desired.SetPodUnresolved(uniquePodName(pod), types.NodeName(pod.Spec.NodeName), true)
		}
	}
	w.populator.MarkSynced()
	return w, nil
}

// initial hands objects to a handler as an informer does its initial list.
func initial[T any](h populator.Handler, objects []T) {
	for _, object := range objects {
		h.OnAdd(object, true)
	}
}

func nodeName(n *v1.Node) string                           { return n.Name }
func volumeName(pv *v1.PersistentVolume) string            { return pv.Name }
func attachmentName(va *storagev1.VolumeAttachment) string { return va.Name }

func sorted[K comparable, T any](objects map[K]T, name func(T) string) []T {
	return slices.SortedFunc(maps.Values(objects), func(a, b T) int { return cmp.Compare(name(a), name(b)) })
}

// skipByDriver notes the volumes whose drivers do not attach.
func (d *dump) skipByDriver() {
	if len(d.unattached) == 0 {
		return
	}
	for _, pv := range sorted(d.volumes, volumeName) {
		if csi := pv.Spec.CSI; csi != nil && d.unattached[csi.Driver] {
			d.skipped.add("persistent volumes whose CSI driver needs no attaching", pv.Name)
		}
	}
}

// skipUnmanaged notes the nodes whose volumes are not the controller's. The populator gets them all the same, to know whose
// volume attachments are not.
func (d *dump) skipUnmanaged() {
	for _, node := range sorted(d.nodes, nodeName) {
		if !populator.ManagedByAnnotation(node) {
			d.skipped.add("nodes without the annotation "+populator.ControllerManagedAttachAnnotation, node.Name)
		}
	}
}

// runningPods are the pods that use volumes, the oldest first: they compete for exclusive volumes.
func (d *dump) runningPods() []*v1.Pod {
	pods := slices.SortedFunc(maps.Values(d.pods), func(a, b *v1.Pod) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return slices.DeleteFunc(pods, func(pod *v1.Pod) bool {
		reason := d.whyNotRunning(pod)
		if reason != "" {
			d.skipped.add(reason, pod.Namespace+"/"+pod.Name)
		}
		return reason != ""
	})
}

func (d *dump) whyNotRunning(pod *v1.Pod) string {
	node, exists := d.nodes[pod.Spec.NodeName]
	switch {
	case pod.Spec.NodeName == "":
		return "pods that have no node yet"
	case pod.Status.Phase == v1.PodSucceeded || pod.Status.Phase == v1.PodFailed:
		return "pods that have ended"
	case pod.DeletionTimestamp != nil && !mayRun(pod):
		return "pods that are being deleted and run no more"
	case exists && !populator.ManagedByAnnotation(node):
		return "pods on nodes without the annotation"
	}
	return ""
}

func mayRun(pod *v1.Pod) bool {
	return slices.ContainsFunc(slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses, pod.Status.EphemeralContainerStatuses),
		func(c v1.ContainerStatus) bool { return c.State.Terminated == nil && c.State.Waiting == nil })
}

// uniquePodName is the populator's name of the pod in the desired world.
func uniquePodName(pod *v1.Pod) cache.UniquePodName {
	if pod.UID == "" {
		return cache.UniquePodName(pod.Namespace + "/" + pod.Name)
	}
	return cache.UniquePodName(pod.UID)
}

// usesMigrated says whether a pod uses a volume that Kubernetes attaches through a CSI driver although its object is of
// an older type.
func (d *dump) usesMigrated(pod *v1.Pod) bool {
	if d.migrated[types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}] {
		return true
	}
	for _, volume := range pod.Spec.Volumes {
		name := ""
		switch {
		case volume.PersistentVolumeClaim != nil:
			name = volume.PersistentVolumeClaim.ClaimName
		case volume.Ephemeral != nil:
			name = pod.Name + "-" + volume.Name
		}
		claim := d.claims[types.NamespacedName{Namespace: pod.Namespace, Name: name}]
		if claim != nil && slices.Contains(migrated, d.foreign[claim.Spec.VolumeName]) {
			return true
		}
	}
	return false
}

// unresolved counts the problems that the populator has met.
func (w *worlds) unresolved() []tallied {
	var t tally
	for _, problem := range w.populator.Problems() {
		name := problem.Pod.String()
		if problem.Attachment != "" {
			name = problem.Attachment
		}
		t.add(string(problem.Kind), fmt.Sprintf("%s: %v", manifest.Quoted(name), problem.Err))
	}
	return t.list()
}

// attachAsBefore gives the storage its truth: what the nodes' status and the VolumeAttachments call attached.
func (w *worlds) attachAsBefore(d *dump, b *backend) {
	for _, node := range d.nodes {
		for _, volume := range node.Status.VolumesAttached {
			b.setAttached(volume.Name, types.NodeName(node.Name), volume.DevicePath)
		}
	}
	for _, va := range d.attachments {
		if !va.Status.Attached {
			continue
		}
		if name, ok := w.attachmentVolume(d, va); ok {
			b.setAttached(name, types.NodeName(va.Spec.NodeName), "")
		}
	}
}

func (w *worlds) attachmentVolume(d *dump, va *storagev1.VolumeAttachment) (v1.UniqueVolumeName, bool) {
	pv := &v1.PersistentVolume{}
	switch source := va.Spec.Source; {
	case source.PersistentVolumeName != nil:
		if pv = d.volumes[*source.PersistentVolumeName]; pv == nil {
			return "", false
		}
	case source.InlineVolumeSpec != nil:
		pv.Spec = *source.InlineVolumeSpec
	}
	name, err := w.plugins.UniqueVolumeName(cache.NewSpecFromPersistentVolume(pv, false))
	return name, err == nil
}
