package benchmark

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/stateofworld/stateofworld/cache"
	"github.com/stateofworld/stateofworld/reconciler"
	"github.com/stateofworld/stateofworld/reconciler/benchmark/internal/fleet"
	"github.com/stateofworld/stateofworld/reconciler/nodestatus"
)

// ours is this library.
type ours struct {
	desired *cache.DesiredStateOfWorld
	actual  *cache.ActualStateOfWorld
	driver  *driver
	rc      *reconciler.Reconciler
	stop    func()
}

// newOurs returns empty worlds and a reconciler that does not run. Verification and audit are off, as their counterparts are on
// the other sides.
func newOurs(tb testing.TB, change ...func(*reconciler.Config)) *ours {
	tb.Helper()
	plugins := cache.NewVolumePluginMgr(cache.CSIPlugin{})
	o := &ours{
		desired: cache.NewDesiredStateOfWorld(plugins), actual: cache.NewActualStateOfWorld(plugins),
		driver: &driver{}, stop: func() {},
	}
	config := reconciler.Config{Desired: o.desired, Actual: o.actual, Attacher: o.driver, VerifyPeriod: -1, AuditPeriod: -1}
	for _, fn := range change {
		fn(&config)
	}
	rc, err := reconciler.New(config)
	if err != nil {
		tb.Fatal(err)
	}
	o.rc = rc
	return o
}

// run starts the reconciler; stop ends it.
func (o *ours) run(tb testing.TB) {
	o.rc.MarkSynced()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- o.rc.Run(ctx) }()
	o.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			tb.Errorf("Run returned %v", err)
		}
	})
	tb.Cleanup(o.stop)
}

// addNodes makes nodes known that are healthy and use no volume.
func (o *ours) addNodes(f *fleet.Fleet) {
	for _, n := range f.Nodes {
		o.desired.AddNode(n)
		o.actual.SetVolumesMountedByNode(nil, n)
		o.actual.SetNodeHealth(n, cache.NodeHealth{Ready: v1.ConditionTrue})
	}
}

func (o *ours) addPod(tb testing.TB, a *fleet.Attachment) {
	if _, err := o.desired.AddPod(cache.UniquePodName(a.PodName), a.Pod, a.Spec, a.Node); err != nil {
		tb.Fatal(err)
	}
}

func (o *ours) addPods(tb testing.TB, attachments []fleet.Attachment) {
	for i := range attachments {
		o.addPod(tb, &attachments[i])
	}
}

func (o *ours) deletePod(a *fleet.Attachment) {
	o.desired.DeletePod(cache.UniquePodName(a.PodName), a.Volume, a.Node)
}

func (o *ours) markAttached(tb testing.TB, a *fleet.Attachment) {
	if err := o.actual.MarkVolumeAsAttached(a.Volume, a.Spec, a.Node, fleet.DevicePath); err != nil {
		tb.Fatal(err)
	}
}

// fill makes everything wished and attached, without a reconciler.
func (o *ours) fill(tb testing.TB, f *fleet.Fleet) {
	o.addNodes(f)
	o.addPods(tb, f.Attachments)
	for i := range f.Attachments {
		o.markAttached(tb, &f.Attachments[i])
	}
}

// quiet says that n volumes are attached and there is nothing left to do.
func (o *ours) quiet(n int) bool {
	if o.actual.Sizes().Pairs != n {
		return false
	}
	s := o.rc.Stats()
	return s.Open+s.Queued+s.Pending == 0
}

// oursConverged returns a running reconciler that has attached everything.
func oursConverged(tb testing.TB, f *fleet.Fleet, n int, change ...func(*reconciler.Config)) *ours {
	o := newOurs(tb, change...)
	o.addNodes(f)
	o.addPods(tb, f.Attachments[:n])
	o.run(tb)
	waitFor(tb, time.Minute, func() bool { return o.quiet(n) })
	return o
}

// checks has our side ask the API server before each detach whether the volume is in use, as Kubernetes always does.
func checks(api *nodeAPI) func(*reconciler.Config) {
	return func(c *reconciler.Config) { c.LiveChecks = liveChecks{api} }
}

// reports has our side write the status of nodes.
func reports(api *nodeAPI) func(*reconciler.Config) {
	return func(c *reconciler.Config) { c.Reports = nodestatus.New(api) }
}

type liveChecks struct{ api *nodeAPI }

func (l liveChecks) VolumeInUse(ctx context.Context, volume v1.UniqueVolumeName, node types.NodeName) (bool, error) {
	n, err := l.api.node(node)
	if err != nil {
		return false, err
	}
	for _, v := range n.Status.VolumesInUse {
		if v == volume {
			return true, nil
		}
	}
	return false, nil
}

func (l liveChecks) NodeHealth(ctx context.Context, node types.NodeName) (cache.NodeHealth, error) {
	_, err := l.api.node(node)
	return cache.NodeHealth{Ready: v1.ConditionTrue}, err
}
