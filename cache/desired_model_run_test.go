package cache

import (
	"cmp"
	"slices"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
)

// desiredRun drives world and model side by side.
type desiredRun struct {
	world *DesiredStateOfWorld
	model *desiredModel
	clock *clocktesting.FakePassiveClock

	nodes   []types.NodeName
	handles []string
	pods    []UniquePodName

	told      recorder[Pair]
	toldNodes recorder[types.NodeName]
}

func newDesiredRun() *desiredRun {
	clock := clocktesting.NewFakePassiveClock(t0)
	r := &desiredRun{
		world: NewDesiredStateOfWorld(NewVolumePluginMgr(CSIPlugin{}), WithClock(clock)),
		model: newDesiredModel(),
		clock: clock,
		// More nodes than scanLimit, so that volumes grow out of their list.
		nodes:   []types.NodeName{"a", "b", "c", "d", "e", "f", "g", "h", "i", "j"},
		handles: []string{"v1", "v2"},
		pods:    []UniquePodName{"p1", "p2", "p3", "p4"},
	}
	r.world.Subscribe(r.told.add)
	r.world.SubscribeNodes(r.toldNodes.add)
	return r
}

// step does one thing to both, and compares everything, also what subscribers were told.
func (r *desiredRun) step(t require.TestingT, do func()) {
	before, nodesBefore := r.snapshot()
	do()
	r.compare(t)
	after, nodesAfter := r.snapshot()
	requireTold(t, r.told.take(), before, after)
	requireTold(t, r.toldNodes.take(), nodesBefore, nodesAfter)
}

// snapshot is what subscribers are told changes of.
func (r *desiredRun) snapshot() (map[Pair]Wish, map[types.NodeName][2]bool) {
	pairs, nodes := map[Pair]Wish{}, map[types.NodeName][2]bool{}
	for pair := range r.model.wishes {
		wish, _ := r.model.wish(pair)
		wish.NodeUnresolved = 0 // told by node
		pairs[pair] = wish
	}
	for _, node := range r.nodes {
		if state := [2]bool{r.model.known[node], len(r.model.unresolved(node)) > 0}; state != [2]bool{} {
			nodes[node] = state
		}
	}
	return pairs, nodes
}

// requireTold checks that every key whose value differs was told, and none twice.
func requireTold[K, V comparable](t require.TestingT, told []K, before, after map[K]V) {
	seen := map[K]bool{}
	for _, k := range told {
		require.False(t, seen[k], "told twice: %v", k)
		seen[k] = true
	}
	for _, side := range []map[K]V{before, after} {
		for k := range side {
			if before[k] != after[k] {
				require.True(t, seen[k], "not told: %v", k)
			}
		}
	}
}

func (r *desiredRun) compare(t require.TestingT) {
	w, m := r.world, r.model
	require.NoError(t, w.CheckInvariants())
	requireSame(t, m.sizes(), w.Sizes())

	var toAttach []VolumeToAttach
	var podsToAdd []PodToAdd
	for _, handle := range r.handles {
		volume := volumeName(handle)
		var wishes []Wish
		var objects []*v1.Pod
		for _, node := range r.nodes {
			pair := Pair{volume, node}
			wish, exists := m.wish(pair)
			got, ok := w.GetWish(volume, node)
			requireSame(t, exists, ok)
			requireSame(t, wish, got)
			requireSame(t, exists, w.VolumeExists(volume, node))
			pods := m.podsOf(pair)
			requireSame(t, pods, w.PodsOf(volume, node))
			if !exists {
				continue
			}
			wishes = append(wishes, wish)
			podsToAdd = append(podsToAdd, pods...)
			here := []*v1.Pod{}
			for _, p := range pods {
				here = append(here, p.Pod)
			}
			sortPods(here)
			objects = append(objects, here...)
			if m.known[node] {
				toAttach = append(toAttach, VolumeToAttach{
					VolumeName: volume, NodeName: node, VolumeSpec: wish.VolumeSpec,
					ScheduledPods: here, MultiAttachErrorReported: m.wishes[pair].multi,
				})
			}
		}
		slices.SortFunc(wishes, func(a, b Wish) int { return cmp.Compare(a.Order, b.Order) })
		requireSame(t, wishes, w.AppendWishes(nil, volume))
		sortPods(objects)
		requireSame(t, objects, w.GetVolumePodsOnNodes(r.nodes, volume))
	}
	slices.SortFunc(podsToAdd, comparePodToAdd)
	requireSame(t, podsToAdd, w.GetPodToAdd())
	pairs := make([]Pair, 0, len(m.wishes))
	for pair := range m.wishes {
		pairs = append(pairs, pair)
	}
	require.ElementsMatch(t, pairs, slices.Collect(w.Pairs()))
	got := w.GetVolumesToAttach()
	slices.SortFunc(got, func(a, b VolumeToAttach) int {
		return Pair{a.VolumeName, a.NodeName}.compare(Pair{b.VolumeName, b.NodeName})
	})
	require.ElementsMatch(t, toAttach, got)

	var known []types.NodeName
	for _, node := range r.nodes {
		requireSame(t, m.known[node], w.NodeExists(node))
		if m.known[node] {
			known = append(known, node)
		}
		requireSame(t, m.unresolved(node), w.UnresolvedPods(node))
		requireSame(t, len(m.unresolved(node)), w.NodeUnresolved(node))
	}
	requireSame(t, known, slices.Collect(w.Nodes()))
}

func (r *desiredRun) addNode(node types.NodeName) {
	r.world.AddNode(node)
	r.model.known[node] = true
}

func (r *desiredRun) deleteNode(t require.TestingT, node types.NodeName) {
	used := false
	for pair := range r.model.wishes {
		used = used || pair.Node == node
	}
	err := r.world.DeleteNode(node)
	if used {
		require.ErrorIs(t, err, ErrNodeHasVolumes)
	} else {
		require.NoError(t, err)
	}
	delete(r.model.known, node)
}

func (r *desiredRun) addPod(t require.TestingT, pod UniquePodName, handle string, exclusive bool, node types.NodeName) {
	object, spec := testPod(string(pod)), modelSpec(handle, exclusive)
	name, err := r.world.AddPod(pod, object, spec, node)
	if !r.model.known[node] {
		require.ErrorIs(t, err, ErrNodeUnknown)
		return
	}
	require.NoError(t, err)
	require.Equal(t, volumeName(handle), name)
	r.model.addPod(pod, object, spec, exclusive, Pair{name, node})
}

func modelSpec(handle string, exclusive bool) *VolumeSpec {
	if exclusive {
		return exclusiveSpec(handle)
	}
	return pvSpec(handle)
}

func (r *desiredRun) updatePod(t require.TestingT, u PodUpdate, handles []string, exclusive bool) {
	m := r.model
	for _, handle := range handles {
		u.Specs = append(u.Specs, modelSpec(handle, exclusive))
	}
	names, err := r.world.UpdatePod(u)
	if len(handles) > 0 && !m.known[u.Node] {
		require.ErrorIs(t, err, ErrNodeUnknown)
		return
	}
	require.NoError(t, err)
	require.Len(t, names, len(handles))
	for i, handle := range handles {
		require.Equal(t, volumeName(handle), names[i])
		m.addPod(u.Name, u.Pod, u.Specs[i], exclusive, Pair{names[i], u.Node})
	}
	m.removeMarks(func(k modelMark) bool { return k.pod == u.Name })
	if u.Unresolved {
		m.marks[modelMark{u.Name, u.Node}] = true
	} else {
		m.removeUses(func(use modelUse) bool {
			return use.pod == u.Name && (use.pair.Node != u.Node || !slices.Contains(names, use.pair.Volume))
		})
	}
	if u.Old != u.Name {
		m.removePod(u.Old)
	}
}

// clear removes everything that is left.
func (r *desiredRun) clear() {
	for _, node := range r.nodes {
		_ = r.world.DeleteNode(node)
	}
	for _, pod := range r.pods {
		r.world.DeletePodFromAll(pod)
	}
	order := r.model.order
	r.model = newDesiredModel()
	r.model.order = order
	r.model.now = r.clock.Now()
	r.told.seen, r.toldNodes.seen = dedup(r.told.seen), dedup(r.toldNodes.seen)
}
