package main

import (
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/stateofworld/stateofworld/cache"
	"github.com/stateofworld/stateofworld/cache/populator"
	"github.com/stateofworld/stateofworld/executor"
)

// The built-in world: a small shop on three nodes. The storage refuses the first two tries to attach the volume of its
// reports; then the web server moves to another node, and so does the database, whose old node takes its time to unmount.
const (
	builtinDriver    = "disk.csi.example.com"
	builtinNamespace = "shop"
)

// step is something that happens in the built-in world: as soon as the one before has happened, when is true, and after
// has passed.
type step struct {
	when  func(*cache.ActualStateOfWorld) bool
	after time.Duration
	what  event
	do    func(*dump, *populator.Populator)
}

func builtinWorld() *dump {
	d := newDump()
	for _, name := range []string{"node-a", "node-b", "node-c"} {
		d.nodes[name] = builtinNode(name)
	}
	for _, v := range []struct {
		name string
		mode v1.PersistentVolumeAccessMode
	}{{"data-web-0", v1.ReadWriteOnce}, {"data-db-0", v1.ReadWriteOnce}, {"reports", v1.ReadWriteOnce}, {"images", v1.ReadWriteMany}} {
		claim, pv := builtinVolume(v.name, v.mode)
		d.claims[types.NamespacedName{Namespace: builtinNamespace, Name: v.name}] = claim
		d.volumes[pv.Name] = pv
	}
	for _, pod := range []*v1.Pod{
		builtinPod("web-0", 1, "node-a", "data-web-0", "images"),
		builtinPod("db-0", 1, "node-b", "data-db-0"),
		builtinPod("report-0", 1, "node-c", "reports", "images"),
	} {
		d.pods[types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}] = pod
	}
	return d
}

// planFailures makes the story's first attach of the reports fail twice.
func planFailures(b *backend) {
	b.failNext(executor.OpAttach, builtinName("reports"), "node-c", 2)
}

func builtinScript() []step {
	attached := func(claim string, node types.NodeName) func(*cache.ActualStateOfWorld) bool {
		return func(actual *cache.ActualStateOfWorld) bool {
			return actual.GetAttachState(builtinName(claim), node) == cache.Attached
		}
	}
	return []step{
		{
			when: attached("data-db-0", "node-b"), after: 50 * time.Millisecond,
			what: event{verb: "mount", volume: builtinName("data-db-0"), node: "node-b", text: "node-b says that it is in use"},
			do:   func(d *dump, p *populator.Populator) { setInUse(d, p, "node-b", builtinName("data-db-0")) },
		},
		{
			when: attached("data-web-0", "node-a"), after: 200 * time.Millisecond,
			what: event{verb: "pod", text: "shop/web-0 moves from node-a to node-b"},
			do: func(d *dump, p *populator.Populator) {
				movePod(d, p, builtinPod("web-0", 2, "node-b", "data-web-0", "images"))
			},
		},
		{
			after: 300 * time.Millisecond,
			what:  event{verb: "pod", text: "shop/db-0 moves from node-b to node-c"},
			do:    func(d *dump, p *populator.Populator) { movePod(d, p, builtinPod("db-0", 2, "node-c", "data-db-0")) },
		},
		{
			after: 1200 * time.Millisecond,
			what:  event{verb: "unmount", volume: builtinName("data-db-0"), node: "node-b", text: "node-b says that it is in use no more"},
			do:    func(d *dump, p *populator.Populator) { setInUse(d, p, "node-b") },
		},
	}
}

func builtinName(claim string) v1.UniqueVolumeName {
	return v1.UniqueVolumeName(fmt.Sprintf("kubernetes.io/csi/%s^vol-%s", builtinDriver, claim))
}

func builtinNode(name string) *v1.Node {
	return &v1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, UID: types.UID(name),
			Annotations: map[string]string{populator.ControllerManagedAttachAnnotation: "true"},
		},
		Status: v1.NodeStatus{Conditions: []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionTrue}}},
	}
}

func builtinVolume(name string, mode v1.PersistentVolumeAccessMode) (*v1.PersistentVolumeClaim, *v1.PersistentVolume) {
	modes := []v1.PersistentVolumeAccessMode{mode}
	claim := &v1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: builtinNamespace, Name: name, UID: types.UID("claim-" + name)},
		Spec:       v1.PersistentVolumeClaimSpec{AccessModes: modes, VolumeName: "pv-" + name},
		Status:     v1.PersistentVolumeClaimStatus{Phase: v1.ClaimBound},
	}
	pv := &v1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: "pv-" + name, UID: types.UID("pv-" + name)},
		Spec: v1.PersistentVolumeSpec{
			AccessModes: modes,
			ClaimRef:    &v1.ObjectReference{Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID},
			PersistentVolumeSource: v1.PersistentVolumeSource{
				CSI: &v1.CSIPersistentVolumeSource{Driver: builtinDriver, VolumeHandle: "vol-" + name},
			},
		},
	}
	return claim, pv
}

// builtinPod returns the pod's n-th life.
func builtinPod(name string, n int, node string, claims ...string) *v1.Pod {
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: builtinNamespace, Name: name, UID: types.UID(fmt.Sprint(name, "-", n))},
		Spec:       v1.PodSpec{NodeName: node},
	}
	for _, claim := range claims {
		pod.Spec.Volumes = append(pod.Spec.Volumes, v1.Volume{Name: claim, VolumeSource: v1.VolumeSource{
			PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: claim},
		}})
	}
	return pod
}

// movePod makes a pod take the place of the one of its name, as an informer tells it that missed the moment between.
func movePod(d *dump, p *populator.Populator, pod *v1.Pod) {
	key := types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}
	old := d.pods[key]
	d.pods[key] = pod
	p.Pods().OnUpdate(old, pod)
}

// setInUse makes a node say which volumes it has mounted.
func setInUse(d *dump, p *populator.Populator, name string, volumes ...v1.UniqueVolumeName) {
	old := d.nodes[name]
	node := old.DeepCopy()
	node.Status.VolumesInUse = volumes
	d.nodes[name] = node
	p.Nodes().OnUpdate(old, node)
}
