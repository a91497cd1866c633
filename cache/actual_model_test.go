package cache

import (
	"cmp"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"pgregory.net/rapid"
)

// actualModel is the actual world written down in the most obvious way. Epochs and versions are not in it: they are checked by their rules.
type actualModel struct {
	pairs  map[Pair]AttachedVolume                         // with Epoch 0, and InUse only as long as the node's list is unknown
	inUse  map[types.NodeName]map[v1.UniqueVolumeName]bool // the lists of the nodes that reported one
	health map[types.NodeName]NodeFacts                    // NodeHealth and Since
	dirty  map[types.NodeName]bool
	forced map[types.NodeName]bool // reports that this step forces to be written
	now    time.Time
}

func newActualModel() *actualModel {
	return &actualModel{
		pairs:  map[Pair]AttachedVolume{},
		inUse:  map[types.NodeName]map[v1.UniqueVolumeName]bool{},
		health: map[types.NodeName]NodeFacts{},
		dirty:  map[types.NodeName]bool{},
		now:    t0,
	}
}

// get returns the pair as the world should.
func (m *actualModel) get(pair Pair) (AttachedVolume, bool) {
	a, ok := m.pairs[pair]
	if list := m.inUse[pair.Node]; ok && list != nil {
		a.InUse = NotInUse
		if list[pair.Volume] {
			a.InUse = Mounted
		}
	}
	return a, ok
}

func (m *actualModel) report(node types.NodeName) []v1.AttachedVolume {
	report := []v1.AttachedVolume{}
	for pair, a := range m.pairs {
		if pair.Node == node && a.Reported {
			report = append(report, v1.AttachedVolume{Name: pair.Volume, DevicePath: a.DevicePath})
		}
	}
	slices.SortFunc(report, func(a, b v1.AttachedVolume) int { return cmp.Compare(a.Name, b.Name) })
	return report
}

func (m *actualModel) exists(node types.NodeName) bool {
	for pair := range m.pairs {
		if pair.Node == node {
			return true
		}
	}
	h := m.health[node].NodeHealth
	return m.inUse[node] != nil || h != NodeHealth{} && !h.Deleted
}

// set changes the pair to the state, or only its spec and path when it is in it.
func (m *actualModel) set(pair Pair, state AttachState, spec *VolumeSpec, path string) {
	a := m.pairs[pair]
	if a.State != state {
		a.State, a.Since, a.Reported = state, m.now, state == Attached
		if state == Attached {
			a.DetachRequestedTime = time.Time{}
		}
	}
	a.VolumeName, a.NodeName, a.DevicePath = pair.Volume, pair.Node, path
	if spec != nil {
		a.VolumeSpec = spec
	}
	m.pairs[pair] = a
}

func (m *actualModel) setHealth(node types.NodeName, health NodeHealth) {
	if old := m.health[node].NodeHealth; old != health {
		if old.Deleted && len(m.report(node)) > 0 {
			m.forced[node] = true
		}
		m.health[node] = NodeFacts{NodeHealth: health, Since: m.now}
	}
}

// forget drops what is known of nodes that have no reason to be kept.
func (m *actualModel) forget(nodes []types.NodeName) {
	for _, node := range nodes {
		if !m.exists(node) {
			delete(m.health, node)
		}
	}
}

func (m *actualModel) sizes(nodes []types.NodeName) ActualSizes {
	volumes := map[v1.UniqueVolumeName]bool{}
	for pair := range m.pairs {
		volumes[pair.Volume] = true
	}
	s := ActualSizes{Volumes: len(volumes), Pairs: len(m.pairs), Dirty: len(m.dirty)}
	for _, node := range nodes {
		if m.exists(node) {
			s.Nodes++
		}
		for volume := range m.inUse[node] {
			if _, attached := m.pairs[Pair{volume, node}]; !attached {
				s.InUse++
			}
		}
	}
	return s
}

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
	requireSame(t, nodes, slices.Sorted(w.Nodes()))
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

// TestActualStateOfWorldIsItsModel compares every answer with the obvious implementation, after each step of random histories. Among much else
// it shows that report(node) holds only what is Attached (U3, kubernetes/kubernetes#109951).
func TestActualStateOfWorldIsItsModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := newActualRun()
		node := func(t *rapid.T) types.NodeName { return rapid.SampledFrom(r.nodes).Draw(t, "node") }
		handle := func(t *rapid.T) string { return rapid.SampledFrom(r.handles).Draw(t, "volume") }
		pair := func(t *rapid.T) Pair { return pairOf(handle(t), node(t)) }
		path := func(t *rapid.T) string { return rapid.SampledFrom([]string{"", "/dev/x", "/dev/y"}).Draw(t, "path") }
		yes := func(t *rapid.T, what string) bool { return rapid.Bool().Draw(t, what) }
		epoch := func(t *rapid.T, p Pair) uint64 { // of the pair, or another one
			if yes(t, "current") {
				return r.world.Epoch(p.Volume, p.Node)
			}
			return rapid.Uint64Range(0, 50).Draw(t, "epoch")
		}
		addVolumeNode := func(t require.TestingT, handle string, node types.NodeName, path string) {
			spec, p := pvSpec(handle), pairOf(handle, node)
			name, err := r.world.AddVolumeNode(spec, node, path)
			require.NoError(t, err)
			require.Equal(t, p.Volume, name)
			if a := r.model.pairs[p]; a.State == Attached && path == "" {
				path = a.DevicePath
			}
			r.model.set(p, Attached, spec, path)
		}
		t.Repeat(map[string]func(*rapid.T){
			"AddVolumeNode": func(t *rapid.T) {
				h, n, path := handle(t), node(t), path(t)
				r.step(t, func() { addVolumeNode(t, h, n, path) })
			},
			"AddVolumeNode everywhere": func(t *rapid.T) {
				h, path := handle(t), path(t)
				r.step(t, func() {
					for _, n := range r.nodes {
						addVolumeNode(t, h, n, path)
					}
					r.told.seen, r.toldReports.seen = dedup(r.told.seen), dedup(r.toldReports.seen)
				})
			},
			"MarkVolumeAsAttached": func(t *rapid.T) {
				p, path := pair(t), path(t)
				var spec *VolumeSpec
				if yes(t, "with spec") {
					spec = pvSpec("v")
				}
				r.step(t, func() {
					require.NoError(t, r.world.MarkVolumeAsAttached(p.Volume, spec, p.Node, path))
					r.model.set(p, Attached, spec, path)
					a := r.model.pairs[p]
					a.DetachRequestedTime, a.Reported = time.Time{}, true
					r.model.pairs[p] = a
				})
			},
			"MarkVolumeAsUncertain": func(t *rapid.T) {
				p := pair(t)
				var spec *VolumeSpec
				if yes(t, "with spec") {
					spec = pvSpec("v")
				}
				r.step(t, func() {
					require.NoError(t, r.world.MarkVolumeAsUncertain(p.Volume, spec, p.Node))
					r.model.set(p, Uncertain, spec, r.model.pairs[p].DevicePath)
				})
			},
			"MarkUncertainIfEpoch": func(t *rapid.T) {
				p := pair(t)
				e := epoch(t, p)
				r.step(t, func() {
					same := e == r.world.Epoch(p.Volume, p.Node)
					require.Equal(t, same, r.world.MarkUncertainIfEpoch(p.Volume, p.Node, e))
					if same {
						r.model.set(p, Uncertain, nil, r.model.pairs[p].DevicePath)
					}
				})
			},
			"MarkDetachedIfEpoch": func(t *rapid.T) {
				p := pair(t)
				e := epoch(t, p)
				r.step(t, func() {
					same := e == r.world.Epoch(p.Volume, p.Node)
					require.Equal(t, same, r.world.MarkDetachedIfEpoch(p.Volume, p.Node, e))
					if same {
						delete(r.model.pairs, p)
					}
				})
			},
			"DeleteVolumeNode": func(t *rapid.T) {
				p := pair(t)
				r.step(t, func() { r.world.DeleteVolumeNode(p.Volume, p.Node); delete(r.model.pairs, p) })
			},
			"SetVolumesMountedByNode": func(t *rapid.T) {
				n := node(t)
				var volumes []v1.UniqueVolumeName
				for _, h := range rapid.SliceOfN(rapid.SampledFrom(r.handles), 0, 4).Draw(t, "volumes") {
					volumes = append(volumes, volumeName(h))
				}
				r.step(t, func() { r.setInUse(n, volumes) })
			},
			"SetVolumeMountedByNode": func(t *rapid.T) {
				p, mounted := pair(t), yes(t, "mounted")
				r.step(t, func() { r.setMounted(t, p, mounted) })
			},
			"SetNodeHealth": func(t *rapid.T) {
				n := node(t)
				health := NodeHealth{
					Ready:        rapid.SampledFrom([]v1.ConditionStatus{"", v1.ConditionTrue, v1.ConditionFalse}).Draw(t, "ready"),
					OutOfService: yes(t, "out of service"),
					Deleted:      rapid.IntRange(0, 4).Draw(t, "deleted") == 0,
				}
				r.step(t, func() { r.setHealth(n, health) })
			},
			"DeleteNode": func(t *rapid.T) { n := node(t); r.step(t, func() { r.deleteNode(n) }) },
			"SetDetachRequestTime": func(t *rapid.T) {
				p := pair(t)
				r.step(t, func() { r.setDetachRequest(t, p) })
			},
			"ResetDetachRequestTime": func(t *rapid.T) {
				p := pair(t)
				r.step(t, func() {
					r.world.ResetDetachRequestTime(p.Volume, p.Node)
					if a, ok := r.model.pairs[p]; ok {
						a.DetachRequestedTime = time.Time{}
						r.model.pairs[p] = a
					}
				})
			},
			"report membership": func(t *rapid.T) {
				p, reported := pair(t), yes(t, "reported")
				r.step(t, func() { r.setReported(t, p, reported) })
			},
			"hand out": func(t *rapid.T) {
				n := rapid.SampledFrom(append([]types.NodeName{""}, r.nodes...)).Draw(t, "node, or all")
				r.step(t, func() { r.handOut(t, n) })
			},
			"SetNodeStatusUpdateNeeded": func(t *rapid.T) {
				n := node(t)
				r.step(t, func() {
					r.world.SetNodeStatusUpdateNeeded(n)
					r.model.forced[n] = r.model.exists(n)
				})
			},
			"ResetNodeStatusUpdateNeeded": func(t *rapid.T) {
				n := node(t)
				r.step(t, func() {
					if err := r.world.ResetNodeStatusUpdateNeeded(n); r.model.exists(n) || r.model.dirty[n] {
						require.NoError(t, err)
					} else {
						require.ErrorIs(t, err, ErrNodeUnknown)
					}
					delete(r.model.dirty, n)
				})
			},
			"time passes": func(t *rapid.T) {
				r.model.now = r.model.now.Add(time.Duration(rapid.IntRange(1, 1000).Draw(t, "seconds")) * time.Second)
				r.clock.SetTime(r.model.now)
			},
		})
		r.removeEverything(t)
		require.Zero(t, r.world.Sizes())
	})
}
