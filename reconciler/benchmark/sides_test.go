package benchmark

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	adcache "k8s.io/kubernetes/pkg/controller/volume/attachdetach/cache"

	"github.com/stateofworld/stateofworld/cache"
	"github.com/stateofworld/stateofworld/executor"
	"github.com/stateofworld/stateofworld/reconciler/benchmark/internal/fleet"
)

// What is compared has to be the same work: these tests hold that the sides do it.

const few = 95 // the last of four nodes is not full

func comparePairs(a, b cache.Pair) int {
	if a.Volume != b.Volume {
		return slices.Compare([]byte(a.Volume), []byte(b.Volume))
	}
	return slices.Compare([]byte(a.Node), []byte(b.Node))
}

func pairsOf(f *fleet.Fleet) (pairs []cache.Pair) {
	for _, a := range f.Attachments {
		pairs = append(pairs, cache.Pair{Volume: a.Volume, Node: a.Node})
	}
	return pairs
}

func TestSidesHoldTheSame(t *testing.T) {
	f := newFleet(few)
	o, k, s := newOurs(t), newKube(t, nil, false), newStateDB(t, false)
	o.fill(t, f)
	k.fill(t, f)
	s.insert(t, f.Attachments)

	held := map[string][]cache.Pair{}
	add := func(what string, volume v1.UniqueVolumeName, node types.NodeName) {
		held[what] = append(held[what], cache.Pair{Volume: volume, Node: node})
	}
	for a := range o.actual.AttachedVolumes() {
		add("ours attached", a.VolumeName, a.NodeName)
	}
	for v := range o.desired.VolumesToAttach() {
		add("ours wished", v.VolumeName, v.NodeName)
	}
	for _, a := range k.actual.GetAttachedVolumes() {
		add("kubernetes attached", a.VolumeName, a.NodeName)
	}
	for _, v := range k.desired.GetVolumesToAttach() {
		add("kubernetes wished", v.VolumeName, v.NodeName)
	}
	for r := range s.table.All(s.db.ReadTxn()) {
		add("statedb", r.volume, r.node)
	}
	for p := range newFloor(f).pairs {
		add("floor", p.Volume, p.Node)
	}
	want := pairsOf(f)
	require.Len(t, held, 6)
	for what, pairs := range held {
		slices.SortFunc(pairs, comparePairs)
		require.Equal(t, want, pairs, what)
	}
	for _, a := range f.Attachments {
		require.Equal(t, cache.Attached, o.actual.GetAttachState(a.Volume, a.Node))
		require.Equal(t, adcache.AttachStateAttached, k.actual.GetAttachState(a.Volume, a.Node))
		_, _, ok := s.table.Get(s.db.ReadTxn(), pairIndex.Query(cache.Pair{Volume: a.Volume, Node: a.Node}))
		require.True(t, ok)
	}
	for _, node := range f.Nodes {
		require.Len(t, k.actual.GetAttachedVolumesForNode(node), len(o.actual.GetAttachedVolumesForNode(node)))
		require.Len(t, statedbNode(s, node), len(o.actual.GetAttachedVolumesForNode(node)))
	}
}

func statedbNode(s *stateDB, node types.NodeName) (rows []*row) {
	for r := range s.table.List(s.db.ReadTxn(), nodeIndex.Query(node)) {
		rows = append(rows, r)
	}
	return rows
}

func TestSidesReportTheSame(t *testing.T) {
	f := newFleet(few)
	o, k := newOurs(t), newKube(t, nil, false)
	o.fill(t, f)
	k.fill(t, f)
	mine, theirs := o.actual.GetVolumesToReportAttached(), k.actual.GetVolumesToReportAttached(noLog)
	require.Len(t, mine, len(f.Nodes))
	require.Len(t, theirs, len(f.Nodes))
	for node := range mine {
		require.ElementsMatch(t, mine[node], theirs[node])
	}
	require.Empty(t, o.actual.GetVolumesToReportAttached())
	require.Empty(t, k.actual.GetVolumesToReportAttached(noLog))
}

func TestEverySideAttachesEachVolumeOnce(t *testing.T) {
	f := newFleet(few)
	o := oursConverged(t, f, few)
	require.EqualValues(t, few, o.driver.attached.Load())

	k := newKube(t, nil, false)
	k.addNodes(f)
	k.addPods(t, f.Attachments)
	k.run(t)
	waitFor(t, callLimit, func() bool { return k.actual.attached.Load() == few })
	require.EqualValues(t, few, k.driver.attached.Load())
	require.Len(t, k.actual.GetAttachedVolumes(), few)

	s := stateDBConverged(t, f, few)
	waitFor(t, callLimit, func() bool { return s.driver.attached.Load() == few })
	for r := range s.table.All(s.db.ReadTxn()) {
		require.Equal(t, fleet.DevicePath, r.devicePath)
	}
}

// A pass of Kubernetes' reconciler that was asked for is one, from beginning to end.
func TestAPassIsOnePass(t *testing.T) {
	f := newFleet(few)
	api := newNodeAPI(t, f)
	k := newKube(t, api, true)
	k.fill(t, f)
	k.pass()
	require.EqualValues(t, len(f.Nodes), api.writes.Load(), "the reports of all nodes, once")
	k.pass()
	require.EqualValues(t, len(f.Nodes), api.writes.Load())
	require.Zero(t, k.driver.attached.Load())
}

func TestBothSidesReportBeforeTheyDetach(t *testing.T) {
	f := newFleet(few)
	for name, detach := range map[string]func(t *testing.T, api *nodeAPI) *driver{
		"ours": func(t *testing.T, api *nodeAPI) *driver {
			o := oursConverged(t, f, few, checks(api), reports(api))
			waitFor(t, callLimit, o.rc.Reports().Idle)
			api.writes.Store(0)
			for i := range f.Attachments {
				o.deletePod(&f.Attachments[i])
			}
			waitFor(t, callLimit, func() bool { return o.actual.Sizes().Pairs == 0 })
			return o.driver
		},
		"kubernetes": func(t *testing.T, api *nodeAPI) *driver {
			k := newKube(t, api, true)
			k.fill(t, f)
			k.pass()
			k.addNodes(f)
			api.writes.Store(0)
			for i := range f.Attachments {
				k.deletePod(&f.Attachments[i])
			}
			k.run(t)
			waitFor(t, callLimit, func() bool { return k.actual.detached.Load() == few })
			return k.driver
		},
	} {
		t.Run(name, func(t *testing.T) {
			api := newNodeAPI(t, f)
			require.EqualValues(t, few, detach(t, api).detached.Load())
			require.GreaterOrEqual(t, api.writes.Load(), int64(len(f.Nodes)))
		})
	}
}

// The API is asked by both: what it says is in use is not detached.
func TestNeitherSideDetachesWhatTheNodeUses(t *testing.T) {
	f := newFleet(1)
	a := &f.Attachments[0]
	api := newNodeAPI(t, f)
	node, err := api.node(a.Node)
	require.NoError(t, err)
	node.Status.VolumesInUse = []v1.UniqueVolumeName{a.Volume}

	o := oursConverged(t, f, 1, checks(api))
	api.reads.Store(0)
	o.deletePod(a)
	waitFor(t, callLimit, func() bool { return api.reads.Load() > 0 && o.rc.Stats().Pending == 0 })
	require.Zero(t, o.driver.detached.Load())

	k := newKube(t, api, false)
	k.fill(t, f)
	k.addNodes(f)
	k.deletePod(a)
	k.pass()
	waitFor(t, callLimit, func() bool { return k.actual.GetAttachState(a.Volume, a.Node) == adcache.AttachStateUncertain })
	require.Zero(t, k.driver.detached.Load())
}

// Half of the operations that are known run, and the others are in back-off: the same answers on both sides.
func TestKnownOperationsAreTheSame(t *testing.T) {
	const m = 20
	o, known, unknown := knownOurs(t, m)
	k, _, _ := knownKube(t, m)
	for i := range m {
		key := executor.Key{Volume: known[i]}
		require.Equal(t, i%2 == 0, o.IsOperationPending(key))
		require.Equal(t, i%2 == 0, k.IsOperationPending(known[i], "", ""))
		require.False(t, o.IsOperationSafeToRetry(key, "volume_attach"))
		require.False(t, k.IsOperationSafeToRetry(known[i], "", "", "volume_attach"))
		require.True(t, o.IsOperationSafeToRetry(executor.Key{Volume: unknown[i]}, "volume_attach"))
		require.True(t, k.IsOperationSafeToRetry(unknown[i], "", "", "volume_attach"))
	}
}
