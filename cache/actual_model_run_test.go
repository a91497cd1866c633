package cache

import (
	"maps"
	"slices"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
)

// actualRun drives world and model side by side.
type actualRun struct {
	world *ActualStateOfWorld
	model *actualModel
	clock *clocktesting.FakePassiveClock

	nodes   []types.NodeName
	handles []string
	epochs  map[uint64]bool // all ever seen

	told        recorder[Pair]
	toldReports recorder[types.NodeName]
}

// actualSnapshot is what the rules about changes are about.
type actualSnapshot struct {
	pairs        map[Pair]AttachedVolume
	reports      map[types.NodeName][]v1.AttachedVolume
	exists       map[types.NodeName]bool
	versions     map[types.NodeName]uint64
	epochs       map[Pair]uint64
	volumeEpochs map[v1.UniqueVolumeName]uint64
}

func (r *actualRun) snapshot() actualSnapshot {
	s := actualSnapshot{
		pairs: map[Pair]AttachedVolume{}, reports: map[types.NodeName][]v1.AttachedVolume{}, exists: map[types.NodeName]bool{},
		versions: map[types.NodeName]uint64{}, epochs: map[Pair]uint64{}, volumeEpochs: map[v1.UniqueVolumeName]uint64{},
	}
	for pair := range r.model.pairs {
		s.pairs[pair], _ = r.model.get(pair)
	}
	for _, node := range r.nodes {
		s.reports[node], s.exists[node] = r.model.report(node), r.model.exists(node)
		s.versions[node] = r.world.ReportVersion(node)
		for _, handle := range r.handles {
			s.epochs[pairOf(handle, node)] = r.world.Epoch(volumeName(handle), node)
		}
	}
	for _, handle := range r.handles {
		s.volumeEpochs[volumeName(handle)] = r.world.VolumeEpoch(volumeName(handle))
	}
	return s
}

func newActualRun() *actualRun {
	clock := clocktesting.NewFakePassiveClock(t0)
	r := &actualRun{
		world: NewActualStateOfWorld(NewVolumePluginMgr(CSIPlugin{}), WithClock(clock)),
		model: newActualModel(),
		clock: clock,
		// More nodes than scanLimit, so that volumes grow out of their list.
		nodes:   []types.NodeName{"a", "b", "c", "d", "e", "f", "g", "h", "i", "j"},
		handles: []string{"v1", "v2"},
		epochs:  map[uint64]bool{0: true},
	}
	r.world.Subscribe(r.told.add)
	r.world.SubscribeReports(r.toldReports.add)
	return r
}

// step does one thing to both, compares everything, and checks the rules of epochs, versions and notices.
func (r *actualRun) step(t require.TestingT, do func()) {
	before := r.snapshot()
	r.model.forced = map[types.NodeName]bool{}
	do()
	after := r.snapshot()

	r.checkReports(t, before, after)
	r.model.forget(r.nodes)
	r.checkEpochs(t, before, after)
	r.checkTold(t, before, after)
	r.compare(t)
}

// checkReports: the version grows exactly when the list changed or a write is forced, and never goes back.
func (r *actualRun) checkReports(t require.TestingT, before, after actualSnapshot) {
	var bumped []types.NodeName
	for _, node := range r.nodes {
		changed := r.model.forced[node] || !slices.Equal(before.reports[node], after.reports[node])
		switch {
		case changed:
			require.Greater(t, after.versions[node], before.versions[node], node)
			bumped = append(bumped, node)
			if r.model.health[node].Deleted {
				continue
			}
			r.model.dirty[node] = true
		case before.exists[node] && after.exists[node]:
			require.Equal(t, before.versions[node], after.versions[node], node)
		default: // without an entry, the version is a lower bound for the next one
			require.GreaterOrEqual(t, after.versions[node], before.versions[node], node)
		}
	}
	require.Equal(t, bumped, slices.Sorted(slices.Values(r.toldReports.take())))
}

// checkEpochs: they change exactly with state, spec and path, and are never used twice.
func (r *actualRun) checkEpochs(t require.TestingT, before, after actualSnapshot) {
	changedVolumes := map[v1.UniqueVolumeName]bool{}
	for pair, epoch := range after.epochs {
		a, exists := after.pairs[pair]
		b, existed := before.pairs[pair]
		same := exists == existed && a.State == b.State && a.VolumeSpec == b.VolumeSpec && a.DevicePath == b.DevicePath
		if same {
			require.Equal(t, before.epochs[pair], epoch)
			continue
		}
		changedVolumes[pair.Volume] = true
		if !exists {
			require.Zero(t, epoch)
			continue
		}
		require.False(t, r.epochs[epoch], "epoch %d is used again", epoch)
		r.epochs[epoch] = true
	}
	for volume, epoch := range after.volumeEpochs {
		if !changedVolumes[volume] {
			require.Equal(t, before.volumeEpochs[volume], epoch)
			continue
		}
		if epoch != 0 { // the volume still has an entry
			require.Greater(t, epoch, before.volumeEpochs[volume])
		}
	}
}

// checkTold: exactly the pairs with a change other than of the report.
func (r *actualRun) checkTold(t require.TestingT, before, after actualSnapshot) {
	var changed []Pair
	for pair := range after.epochs {
		a, b := after.pairs[pair], before.pairs[pair]
		a.Reported, b.Reported = false, false
		if a != b {
			changed = append(changed, pair)
		}
	}
	slices.SortFunc(changed, Pair.compare)
	told := r.told.take()
	slices.SortFunc(told, Pair.compare)
	require.Equal(t, changed, told)
}

func (r *actualRun) compare(t require.TestingT) {
	w, m := r.world, r.model
	require.NoError(t, w.CheckInvariants())
	requireSame(t, m.sizes(r.nodes), w.Sizes())

	var all []AttachedVolume
	perNode := map[types.NodeName][]AttachedVolume{}
	for _, handle := range r.handles {
		var ofVolume []AttachedVolume
		var nodes []types.NodeName
		for _, node := range r.nodes {
			want, exists := m.get(pairOf(handle, node))
			got, ok := w.GetAttachedVolume(volumeName(handle), node)
			requireSame(t, exists, ok)
			requireSame(t, got.Epoch, w.Epoch(volumeName(handle), node))
			want.Epoch = got.Epoch
			requireSame(t, want, got)
			requireSame(t, want.State, w.GetAttachState(volumeName(handle), node))
			requireSame(t, exists, w.VolumeNodeExists(volumeName(handle), node))
			if exists {
				all = append(all, want)
				ofVolume = append(ofVolume, want)
				nodes = append(nodes, node)
				perNode[node] = append(perNode[node], want)
			}
		}
		requireSame(t, ofVolume, w.AppendAttachments(nil, volumeName(handle)))
		requireSame(t, nodes, w.GetNodesForAttachedVolume(volumeName(handle)))
	}
	requireSame(t, all, slices.SortedFunc(w.AttachedVolumes(), compareAttachedVolume))
	require.ElementsMatch(t, all, w.GetAttachedVolumes())
	pairs := make([]Pair, 0, len(all))
	for _, av := range all {
		pairs = append(pairs, Pair{av.VolumeName, av.NodeName})
	}
	require.ElementsMatch(t, pairs, slices.Collect(w.Pairs()))

	attached := map[types.NodeName][]AttachedVolume{}
	var nodes []types.NodeName
	for _, node := range r.nodes {
		requireSame(t, perNode[node], w.GetAttachedVolumesForNode(node))
		requireSame(t, perNode[node], slices.SortedFunc(w.AttachedVolumesForNode(node), compareAttachedVolume))
		requireSame(t, NodeReport{node, w.ReportVersion(node), m.report(node)}, w.Report(node))
		facts := m.health[node]
		facts.InUseKnown = m.inUse[node] != nil
		requireSame(t, facts, w.GetNodeFacts(node))
		if m.exists(node) {
			nodes = append(nodes, node)
		}
		for _, a := range perNode[node] {
			if a.State == Attached {
				attached[node] = append(attached[node], a)
			}
		}
	}
	requireSame(t, nodes, slices.Collect(w.Nodes()))
	requireSame(t, attached, w.GetAttachedVolumesPerNode())
}

func (r *actualRun) setInUse(node types.NodeName, volumes []v1.UniqueVolumeName) {
	r.world.SetVolumesMountedByNode(volumes, node)
	if r.model.health[node].Deleted {
		r.model.setHealth(node, NodeHealth{})
	}
	r.model.inUse[node] = map[v1.UniqueVolumeName]bool{}
	for _, volume := range volumes {
		r.model.inUse[node][volume] = true
	}
}

func (r *actualRun) setMounted(t require.TestingT, pair Pair, mounted bool) {
	err := r.world.SetVolumeMountedByNode(pair.Volume, pair.Node, mounted)
	a, exists := r.model.pairs[pair]
	if !exists {
		require.ErrorIs(t, err, ErrNotAttached)
		return
	}
	require.NoError(t, err)
	if list := r.model.inUse[pair.Node]; list != nil {
		delete(list, pair.Volume)
		if mounted {
			list[pair.Volume] = true
		}
		return
	}
	a.InUse = NotInUse
	if mounted {
		a.InUse = Mounted
	}
	r.model.pairs[pair] = a
}

func (r *actualRun) deleteNode(node types.NodeName) {
	r.world.DeleteNode(node)
	delete(r.model.inUse, node)
	delete(r.model.dirty, node)
	if r.model.exists(node) {
		for pair, a := range r.model.pairs {
			if pair.Node == node {
				a.InUse = InUseUnknown
				r.model.pairs[pair] = a
			}
		}
		r.model.setHealth(node, NodeHealth{Deleted: true})
	}
}

func (r *actualRun) setHealth(node types.NodeName, health NodeHealth) {
	if health.Deleted {
		r.deleteNode(node)
		return
	}
	r.world.SetNodeHealth(node, health)
	r.model.setHealth(node, health)
}

func (r *actualRun) setDetachRequest(t require.TestingT, pair Pair) {
	elapsed, err := r.world.SetDetachRequestTime(pair.Volume, pair.Node)
	a, exists := r.model.pairs[pair]
	if !exists {
		require.ErrorIs(t, err, ErrNotAttached)
		return
	}
	require.NoError(t, err)
	if a.DetachRequestedTime.IsZero() {
		a.DetachRequestedTime = r.model.now
		r.model.pairs[pair] = a
	}
	require.Equal(t, r.model.now.Sub(a.DetachRequestedTime), elapsed)
}

func (r *actualRun) setReported(t require.TestingT, pair Pair, reported bool) {
	a, exists := r.model.pairs[pair]
	if reported {
		r.world.AddVolumeToReportAsAttached(pair.Volume, pair.Node)
	} else if err := r.world.RemoveVolumeFromReportAsAttached(pair.Volume, pair.Node); exists {
		require.NoError(t, err)
	} else {
		require.ErrorIs(t, err, ErrNotAttached)
	}
	if exists && a.State == Attached {
		a.Reported = reported
		r.model.pairs[pair] = a
	}
}

// handOut takes the reports of all nodes, or of one.
func (r *actualRun) handOut(t require.TestingT, node types.NodeName) {
	if node != "" {
		changed, report := r.world.GetVolumesToReportAttachedForNode(node)
		require.Equal(t, r.model.dirty[node], changed)
		if changed {
			require.Equal(t, r.model.report(node), report)
		}
		delete(r.model.dirty, node)
		return
	}
	want := map[types.NodeName][]v1.AttachedVolume{}
	for node := range r.model.dirty {
		want[node] = r.model.report(node)
	}
	require.Equal(t, want, r.world.GetVolumesToReportAttached())
	clear(r.model.dirty)
}

// removeEverything detaches all volumes and deletes all nodes.
func (r *actualRun) removeEverything(t require.TestingT) {
	for _, pair := range slices.Collect(maps.Keys(r.model.pairs)) {
		r.step(t, func() {
			r.world.MarkVolumeAsDetached(pair.Volume, pair.Node)
			delete(r.model.pairs, pair)
		})
	}
	for _, node := range r.nodes {
		r.step(t, func() { r.deleteNode(node) })
	}
}
