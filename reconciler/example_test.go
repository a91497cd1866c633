package reconciler_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/stateofworld/stateofworld/cache"
	"github.com/stateofworld/stateofworld/executor"
	"github.com/stateofworld/stateofworld/reconciler"
)

// printingDriver is the only thing that a user must write: it calls the storage.
type printingDriver struct{}

func (printingDriver) Attach(_ context.Context, v cache.VolumeToAttach) (string, error) {
	fmt.Println("attach", v.VolumeName, "to", v.NodeName)
	return "/dev/sdb", nil
}

func (printingDriver) Detach(_ context.Context, v cache.AttachedVolume) error {
	fmt.Println("detach", v.VolumeName, "from", v.NodeName)
	return nil
}

func (printingDriver) VerifyAttached(context.Context, types.NodeName, []cache.AttachedVolume) (map[v1.UniqueVolumeName]executor.Verification, error) {
	return nil, errors.New("this storage cannot be asked") // nothing is known, so nothing is changed
}

func csiVolume(handle string) *cache.VolumeSpec {
	return cache.NewSpecFromPersistentVolume(&v1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: "pv-" + handle},
		Spec: v1.PersistentVolumeSpec{
			AccessModes: []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce},
			PersistentVolumeSource: v1.PersistentVolumeSource{
				CSI: &v1.CSIPersistentVolumeSource{Driver: "disk.example.com", VolumeHandle: handle},
			},
		},
	}, false)
}

func pod(name string) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
}

// The whole of it: two worlds, a driver, a reconciler. A program calls Run once; this example steps by hand.
func Example() {
	clock := clocktesting.NewFakeClock(time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC))
	plugins := cache.NewVolumePluginMgr(cache.CSIPlugin{})
	desired := cache.NewDesiredStateOfWorld(plugins, cache.WithClock(clock))
	actual := cache.NewActualStateOfWorld(plugins, cache.WithClock(clock))
	rc, err := reconciler.New(reconciler.Config{
		Desired: desired, Actual: actual, Attacher: printingDriver{}, Clock: clock,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	defer func() { _ = rc.Stop(ctx) }()
	reconcile := func() {
		for rc.Step(ctx) > 0 {
			_ = rc.Operations().Wait(ctx)
		}
	}

	desired.AddNode("node-a")
	desired.AddNode("node-b")
	volume, err := desired.AddPod("default/web-0", pod("web-0"), csiVolume("vol-1"), "node-a")
	if err != nil {
		fmt.Println(err)
		return
	}
	rc.MarkSynced() // the desired world is complete: detaching may begin
	reconcile()

	actual.SetVolumesMountedByNode([]v1.UniqueVolumeName{volume}, "node-a") // the node uses it
	if _, err := desired.AddPod("default/web-1", pod("web-1"), csiVolume("vol-1"), "node-b"); err != nil {
		fmt.Println(err)
		return
	}
	desired.DeletePodFromAll("default/web-0")
	clock.Step(67 * time.Second)
	reconcile()
	fmt.Println(rc.Explain(volume, "node-b"))

	actual.SetVolumesMountedByNode(nil, "node-a") // the node has unmounted it
	reconcile()
	fmt.Println(rc.Explain(volume, "node-b"))
	// Output:
	// attach kubernetes.io/csi/disk.example.com^vol-1 to node-a
	// waiting: attached to node "node-a" since 12:00:00; there: waiting: in use on the node since 12:01:07
	// detach kubernetes.io/csi/disk.example.com^vol-1 from node-a
	// attach kubernetes.io/csi/disk.example.com^vol-1 to node-b
	// attached, as wished by default/web-1
}

// A policy that never waits for a node whose machine is known to be switched off.
func ExamplePolicy() {
	fenced := map[types.NodeName]bool{"node-a": true}
	p := reconciler.Policy{
		UnmountWait:  10 * time.Minute,
		DeletedNodes: reconciler.NeverDetach,
		UnmountWaitFor: func(_ v1.UniqueVolumeName, node types.NodeName) time.Duration {
			if fenced[node] {
				return 0
			}
			return 10 * time.Minute
		},
	}
	fmt.Println(p.UnmountWaitFor("vol-1", "node-a"), p.UnmountWaitFor("vol-1", "node-b"), p.DeletedNodes)
	// Output: 0s 10m0s Never
}
