package reconciler_test

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"github.com/stateofworld/stateofworld/cache"
	"github.com/stateofworld/stateofworld/fake"
	"github.com/stateofworld/stateofworld/reconciler"
)

// What does not depend on the machine: how often is decided, and how much is allocated.

// attachMany returns a world in which n volumes are attached, thirty a node.
func attachMany(t *testing.T, n int) *fake.World {
	w := fake.NewWorld(t, fake.WithConfig(func(c *reconciler.Config) { c.Notices = nil }))
	for i := range n {
		node := types.NodeName(fmt.Sprint("node-", i/perNode))
		if i%perNode == 0 {
			w.Node(node)
		}
		w.Pod(fmt.Sprint("pod-", i), fmt.Sprint("vol-", i), node)
	}
	w.WaitIdle()
	require.Equal(t, n, w.Actual.Sizes().Pairs)
	return w
}

// P1 and P3, kubernetes/kubernetes#84169: a pass in which nothing changed.
func TestAnIdleReconcilerDoesNothing(t *testing.T) {
	w := attachMany(t, 3000)
	before := w.Reconciler.Stats().Evaluations
	require.Zero(t, testing.AllocsPerRun(100, func() { w.Reconciler.Step(t.Context()) }))
	require.Equal(t, before, w.Reconciler.Stats().Evaluations)
}

// P1, kubernetes/kubernetes#101229: a changed pod costs its own pairs, however many others there are.
func TestAChangeCostsItsOwnPairsOnly(t *testing.T) {
	cost := func(n int) (evaluations uint64) {
		w := attachMany(t, n)
		before := w.Reconciler.Stats().Evaluations
		w.RemovePod("pod-7")
		w.WaitIdle()
		w.Pod("pod-7", "vol-7", "node-0")
		w.WaitIdle()
		return w.Reconciler.Stats().Evaluations - before
	}
	small, large := cost(30), cost(6000)
	require.Equal(t, small, large)
	require.LessOrEqual(t, large, uint64(6), "a detach and an attach: each decided on, and looked at once more")
}

// One evaluation decides on an attach, one sees that it is done.
func TestAnAttachIsDecidedOnTwice(t *testing.T) {
	w := attachMany(t, 3000)
	require.LessOrEqual(t, w.Reconciler.Stats().Evaluations, uint64(2*3000))
}

// The report of a node that says the same as before costs no decision.
func TestAnUnchangedInUseListCostsNothing(t *testing.T) {
	w := attachMany(t, 60)
	w.InUse("node-0", "vol-1", "vol-2")
	w.WaitIdle()
	before := w.Reconciler.Stats().Evaluations
	w.InUse("node-0", "vol-2", "vol-1")
	w.Health("node-0", w.Actual.GetNodeFacts("node-0").NodeHealth)
	w.WaitIdle()
	require.Equal(t, before, w.Reconciler.Stats().Evaluations)
	require.Equal(t, cache.Attached, w.State("vol-1", "node-0"))
}

// What is allocated for an attach, and what both worlds, their indexes and the reconciler keep for it. Pods and specs are the
// caller's. Kubernetes v1.37.2 keeps about 1,500 bytes in its two caches alone.
func TestAnAttachmentTakesLittleMemory(t *testing.T) {
	const n = 10_000
	f := newFleet(n)
	var before, wished, converged runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	c := prepare(t, func(c *reconciler.Config) { c.Attacher, c.VerifyPeriod, c.AuditPeriod = instantDriver{}, -1, -1 })
	f.addNodes(c)
	for i := range n {
		f.addPod(t, c, i)
	}
	c.rc.MarkSynced()
	runtime.ReadMemStats(&wished)
	for c.rc.Step(t.Context()) > 0 {
		require.NoError(t, c.rc.Operations().Wait(t.Context()))
	}
	runtime.ReadMemStats(&converged)
	require.LessOrEqual(t, float64(converged.Mallocs-wished.Mallocs)/n, 20.0, "allocations of an attach")
	require.Equal(t, n, c.actual.Sizes().Pairs)

	runtime.GC()
	runtime.ReadMemStats(&converged)
	require.LessOrEqual(t, (float64(converged.HeapAlloc)-float64(before.HeapAlloc))/n, 750.0, "bytes kept")
	require.NoError(t, c.rc.Stop(t.Context()))
	runtime.KeepAlive(f)
}
