package cache_test

import (
	"errors"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/stateofworld/stateofworld/cache"
)

func csiVolume(handle string, mode v1.PersistentVolumeAccessMode) *cache.VolumeSpec {
	return cache.NewSpecFromPersistentVolume(&v1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: "pv-" + handle},
		Spec: v1.PersistentVolumeSpec{
			AccessModes:            []v1.PersistentVolumeAccessMode{mode},
			PersistentVolumeSource: v1.PersistentVolumeSource{CSI: &v1.CSIPersistentVolumeSource{Driver: "disk.example.com", VolumeHandle: handle}},
		},
	}, false)
}

func ExampleDesiredStateOfWorld() {
	desired := cache.NewDesiredStateOfWorld(cache.NewVolumePluginMgr(cache.CSIPlugin{}))
	cancel := desired.Subscribe(func(p cache.Pair) { fmt.Println("changed:", p.Volume, "on", p.Node) })
	defer cancel()

	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web-0", UID: "1234"}}
	_, err := desired.AddPod("1234", pod, csiVolume("vol-1", v1.ReadWriteOnce), "node-a")
	fmt.Println(err, errors.Is(err, cache.ErrNodeUnknown))

	desired.AddNode("node-a")
	volume, err := desired.AddPod("1234", pod, csiVolume("vol-1", v1.ReadWriteOnce), "node-a")
	fmt.Println(volume, err)
	wish, _ := desired.GetWish(volume, "node-a")
	fmt.Println("exclusive:", wish.Exclusive, "pods:", wish.Pods)

	desired.DeletePodFromAll("1234")
	fmt.Println("wanted:", desired.VolumeExists(volume, "node-a"))
	// Output:
	// add pod "1234" to node "node-a": the node is unknown: add it first true
	// changed: kubernetes.io/csi/disk.example.com^vol-1 on node-a
	// kubernetes.io/csi/disk.example.com^vol-1 <nil>
	// exclusive: true pods: 1
	// changed: kubernetes.io/csi/disk.example.com^vol-1 on node-a
	// wanted: false
}

// A pod that was deleted and created again under the same name often arrives as one update. UpdatePod makes
// it one step.
func ExampleDesiredStateOfWorld_UpdatePod() {
	desired := cache.NewDesiredStateOfWorld(cache.NewVolumePluginMgr(cache.CSIPlugin{}))
	desired.AddNode("node-a")
	desired.AddNode("node-b")
	volumes := []*cache.VolumeSpec{csiVolume("vol-1", v1.ReadWriteOnce), csiVolume("vol-2", v1.ReadWriteOnce)}
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web-0"}}
	_, _ = desired.UpdatePod(cache.PodUpdate{Name: "uid-1", Pod: pod, Node: "node-a", Specs: volumes})

	_, err := desired.UpdatePod(cache.PodUpdate{Old: "uid-1", Name: "uid-2", Pod: pod, Node: "node-b", Specs: volumes})
	fmt.Println(err)
	for _, p := range desired.GetPodToAdd() {
		fmt.Println(p.PodName, p.VolumeName, p.NodeName)
	}
	// Output:
	// <nil>
	// uid-2 kubernetes.io/csi/disk.example.com^vol-1 node-b
	// uid-2 kubernetes.io/csi/disk.example.com^vol-2 node-b
}

func ExampleActualStateOfWorld() {
	clock := clocktesting.NewFakePassiveClock(time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC))
	actual := cache.NewActualStateOfWorld(cache.NewVolumePluginMgr(cache.CSIPlugin{}), cache.WithClock(clock))

	volume, _ := actual.AddVolumeNode(csiVolume("vol-1", v1.ReadWriteOnce), "node-a", "/dev/vdb")
	actual.SetVolumesMountedByNode([]v1.UniqueVolumeName{volume}, "node-a")
	report := actual.Report("node-a")
	fmt.Println("report", report.Version, report.Volumes)

	// A detach is wanted; it takes the volume out of the report, and its outcome is unknown.
	_, _ = actual.SetDetachRequestTime(volume, "node-a")
	clock.SetTime(clock.Now().Add(2 * time.Minute))
	_ = actual.RemoveVolumeFromReportAsAttached(volume, "node-a")
	_ = actual.MarkVolumeAsUncertain(volume, nil, "node-a")

	a, _ := actual.GetAttachedVolume(volume, "node-a")
	waited, _ := actual.SetDetachRequestTime(volume, "node-a")
	fmt.Println(a.State, a.InUse, "reported:", a.Reported, "waited:", waited)
	fmt.Println(actual.GetNodesForAttachedVolume(volume), "may have it")

	actual.MarkVolumeAsDetached(volume, "node-a")
	fmt.Println(actual.GetAttachState(volume, "node-a"))
	// Output:
	// report 1 [{kubernetes.io/csi/disk.example.com^vol-1 /dev/vdb}]
	// uncertain mounted reported: false waited: 2m0s
	// [node-a] may have it
	// detached
}

func ExampleActualStateOfWorld_AttachedVolumes() {
	actual := cache.NewActualStateOfWorld(nil)
	_ = actual.MarkVolumeAsAttached("example/vol-1", nil, "node-a", "")
	_ = actual.MarkVolumeAsUncertain("example/vol-2", nil, "node-a")
	for a := range actual.AttachedVolumes() {
		if a.State == cache.Uncertain {
			actual.MarkDetachedIfEpoch(a.VolumeName, a.NodeName, a.Epoch) // the world may change while it is read
		}
	}
	fmt.Println(actual.GetAttachedVolumesForNode("node-a")[0].VolumeName, actual.Sizes().Pairs)
	// Output: example/vol-1 1
}

func ExampleWorld() {
	type claim struct {
		UID  types.UID
		Size int64
	}
	claims := cache.NewWorld(cache.WithEqual[string](func(a, b claim) bool { return a == b }))
	cancel := claims.Subscribe(func(key string) { fmt.Println("changed:", key) })
	defer cancel()

	claims.Add("default/data", claim{"uid-2", 1 << 30})
	claims.Add("default/data", claim{"uid-2", 1 << 30}) // no news
	gone := claim{UID: "uid-1"}                         // its predecessor, which is deleted only now
	fmt.Println("removed:", claims.RemoveIf("default/data", func(c claim) bool { return c.UID == gone.UID }))
	for key, c := range claims.All() {
		fmt.Println(key, c.UID, c.Size)
	}
	// Output:
	// changed: default/data
	// removed: false
	// default/data uid-2 1073741824
}

// nfsPlugin is a plugin for the inline NFS volumes of pods, which may be used on any number of nodes.
type nfsPlugin struct{}

func (nfsPlugin) GetPluginName() string { return "example.com/nfs" }

func (nfsPlugin) CanSupport(spec *cache.VolumeSpec) bool {
	return spec.Volume != nil && spec.Volume.NFS != nil
}

func (nfsPlugin) GetVolumeName(spec *cache.VolumeSpec) (string, error) {
	return spec.Volume.NFS.Server + ":" + spec.Volume.NFS.Path, nil
}

func (nfsPlugin) CanAttach(*cache.VolumeSpec) (bool, error)  { return true, nil }
func (nfsPlugin) CanMultiAttach(spec *cache.VolumeSpec) bool { return true }

func ExampleVolumePluginMgr() {
	plugins := cache.NewVolumePluginMgr(cache.CSIPlugin{}, nfsPlugin{})
	fmt.Println(plugins.Validate())

	export := &v1.Volume{Name: "data", VolumeSource: v1.VolumeSource{NFS: &v1.NFSVolumeSource{Server: "10.0.0.1", Path: "/srv"}}}
	fmt.Println(plugins.UniqueVolumeName(cache.NewSpecFromVolume(export)))
	fmt.Println(plugins.UniqueVolumeName(csiVolume("vol-1", v1.ReadWriteOnce)))
	_, err := plugins.UniqueVolumeName(cache.NewSpecFromVolume(&v1.Volume{Name: "scratch"}))
	fmt.Println(err)
	// Output:
	// <nil>
	// example.com/nfs/10.0.0.1:/srv <nil>
	// kubernetes.io/csi/disk.example.com^vol-1 <nil>
	// volume "scratch": no volume plugin supports it: register one with NewVolumePluginMgr
}
