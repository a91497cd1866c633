// Command minimal wires both worlds, a driver and the reconciler: the program of the README.
package main

import (
	"context"
	"errors"
	"fmt"
	"os/signal"
	"syscall"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/stateofworld/stateofworld/cache"
	"github.com/stateofworld/stateofworld/executor"
	"github.com/stateofworld/stateofworld/reconciler"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, stop); err != nil && !errors.Is(err, context.Canceled) {
		fmt.Println(err)
	}
}

func run(ctx context.Context, stop func()) error {
	plugins := cache.NewVolumePluginMgr(cache.CSIPlugin{})
	desired := cache.NewDesiredStateOfWorld(plugins)
	actual := cache.NewActualStateOfWorld(plugins)
	rc, err := reconciler.New(reconciler.Config{Desired: desired, Actual: actual, Attacher: driver{done: stop}})
	if err != nil {
		return err
	}

	desired.AddNode("node-a") // in a controller, package cache/populator does this from informers
	if _, err := desired.AddPod("default/web-0", pod("web-0"), disk("vol-1"), "node-a"); err != nil {
		return err
	}
	rc.MarkSynced()    // the desired world is complete: detaching may begin
	return rc.Run(ctx) // until ctx ends and every operation has returned
}

type driver struct{ done func() } // the only thing that you must write: what calls your storage

func (d driver) Attach(_ context.Context, v cache.VolumeToAttach) (string, error) {
	fmt.Println("attach", v.VolumeName, "to", v.NodeName)
	d.done() // this example has seen enough
	return "/dev/sdb", nil
}

func (driver) Detach(context.Context, cache.AttachedVolume) error { return nil }

func (driver) VerifyAttached(context.Context, types.NodeName, []cache.AttachedVolume) (map[v1.UniqueVolumeName]executor.Verification, error) {
	return nil, errors.New("cannot be asked") // so nothing is known, and nothing changed
}

func pod(name string) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
}

func disk(handle string) *cache.VolumeSpec {
	source := &v1.CSIPersistentVolumeSource{Driver: "disk.example.com", VolumeHandle: handle}
	return cache.NewSpecFromPersistentVolume(&v1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: "pv-1"},
		Spec:       v1.PersistentVolumeSpec{PersistentVolumeSource: v1.PersistentVolumeSource{CSI: source}},
	}, false)
}
