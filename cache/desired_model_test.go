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

// desiredModel is the desired world written down in the most obvious way: three sets and a loop over everything for each question.
type desiredModel struct {
	known  map[types.NodeName]bool
	uses   map[modelUse]modelUseState
	wishes map[Pair]modelWish
	marks  map[modelMark]bool
	order  uint64
	now    time.Time
}

type modelUse struct {
	pod  UniquePodName
	pair Pair
}

type modelUseState struct {
	object    *v1.Pod
	exclusive bool
}

type modelWish struct {
	spec  *VolumeSpec
	order uint64
	since time.Time
	multi bool
}

type modelMark struct {
	pod  UniquePodName
	node types.NodeName
}

func newDesiredModel() *desiredModel {
	return &desiredModel{
		known:  map[types.NodeName]bool{},
		uses:   map[modelUse]modelUseState{},
		wishes: map[Pair]modelWish{},
		marks:  map[modelMark]bool{},
		now:    t0,
	}
}

func (m *desiredModel) addPod(pod UniquePodName, object *v1.Pod, spec *VolumeSpec, exclusive bool, pair Pair) {
	wish, exists := m.wishes[pair]
	if !exists {
		m.order++
		wish = modelWish{order: m.order, since: m.now}
	}
	wish.spec = spec
	m.wishes[pair] = wish
	m.uses[modelUse{pod, pair}] = modelUseState{object, exclusive}
}

func (m *desiredModel) removeUses(match func(modelUse) bool) {
	for use := range m.uses {
		if match(use) {
			delete(m.uses, use)
		}
	}
	for pair := range m.wishes {
		if len(m.podsOf(pair)) == 0 {
			delete(m.wishes, pair)
		}
	}
}

func (m *desiredModel) removeMarks(match func(modelMark) bool) {
	maps.DeleteFunc(m.marks, func(k modelMark, _ bool) bool { return match(k) })
}

func (m *desiredModel) removePod(pod UniquePodName) {
	m.removeUses(func(u modelUse) bool { return u.pod == pod })
	m.removeMarks(func(k modelMark) bool { return k.pod == pod })
}

func (m *desiredModel) podsOf(pair Pair) []PodToAdd {
	var pods []PodToAdd
	for use, state := range m.uses {
		if use.pair == pair {
			pods = append(pods, PodToAdd{PodName: use.pod, Pod: state.object, VolumeName: pair.Volume, NodeName: pair.Node})
		}
	}
	slices.SortFunc(pods, comparePodToAdd)
	return pods
}

func (m *desiredModel) unresolved(node types.NodeName) []UniquePodName {
	var pods []UniquePodName
	for k := range m.marks {
		if k.node == node {
			pods = append(pods, k.pod)
		}
	}
	slices.Sort(pods)
	return pods
}

func (m *desiredModel) wish(pair Pair) (Wish, bool) {
	wish, exists := m.wishes[pair]
	if !exists {
		return Wish{}, false
	}
	exclusive := false
	for use, state := range m.uses {
		exclusive = exclusive || use.pair.Volume == pair.Volume && state.exclusive
	}
	return Wish{
		VolumeName: pair.Volume, NodeName: pair.Node, VolumeSpec: wish.spec, Exclusive: exclusive,
		Order: wish.order, Since: wish.since, Pods: len(m.podsOf(pair)),
		NodeDeleted: !m.known[pair.Node], NodeUnresolved: len(m.unresolved(pair.Node)),
	}, true
}

func (m *desiredModel) sizes() DesiredSizes {
	nodes, volumes, pods := map[types.NodeName]bool{}, map[v1.UniqueVolumeName]bool{}, map[UniquePodName]bool{}
	for node := range m.known {
		nodes[node] = true
	}
	for use := range m.uses {
		nodes[use.pair.Node], volumes[use.pair.Volume], pods[use.pod] = true, true, true
	}
	for k := range m.marks {
		nodes[k.node] = true
	}
	return DesiredSizes{Nodes: len(nodes), Volumes: len(volumes), Pairs: len(m.wishes), Pods: len(pods), Unresolved: len(m.marks)}
}

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
	requireSame(t, known, slices.Sorted(w.Nodes()))
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

// TestDesiredStateOfWorldIsItsModel compares every answer with the obvious implementation, after each step of random histories.
func TestDesiredStateOfWorldIsItsModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := newDesiredRun()
		node := func(t *rapid.T) types.NodeName { return rapid.SampledFrom(r.nodes).Draw(t, "node") }
		pod := func(t *rapid.T) UniquePodName { return rapid.SampledFrom(r.pods).Draw(t, "pod") }
		handle := func(t *rapid.T) string { return rapid.SampledFrom(r.handles).Draw(t, "volume") }
		yes := func(t *rapid.T, what string) bool { return rapid.Bool().Draw(t, what) }
		for _, n := range r.nodes[:rapid.IntRange(0, len(r.nodes)).Draw(t, "known nodes")] {
			r.step(t, func() { r.addNode(n) })
		}
		t.Repeat(map[string]func(*rapid.T){
			"AddNode":    func(t *rapid.T) { n := node(t); r.step(t, func() { r.addNode(n) }) },
			"DeleteNode": func(t *rapid.T) { n := node(t); r.step(t, func() { r.deleteNode(t, n) }) },
			"AddPod": func(t *rapid.T) {
				p, h, e, n := pod(t), handle(t), yes(t, "exclusive"), node(t)
				r.step(t, func() { r.addPod(t, p, h, e, n) })
			},
			"AddPod everywhere": func(t *rapid.T) {
				p, h, e := pod(t), handle(t), yes(t, "exclusive")
				for _, n := range r.nodes {
					r.step(t, func() { r.addPod(t, p, h, e, n) })
				}
			},
			"DeletePod": func(t *rapid.T) {
				p, h, n := pod(t), handle(t), node(t)
				r.step(t, func() {
					r.world.DeletePod(p, volumeName(h), n)
					r.model.removeUses(func(u modelUse) bool { return u == modelUse{p, pairOf(h, n)} })
				})
			},
			"DeletePodFromAll": func(t *rapid.T) {
				p := pod(t)
				r.step(t, func() { r.world.DeletePodFromAll(p); r.model.removePod(p) })
			},
			"UpdatePod": func(t *rapid.T) {
				u := PodUpdate{Name: pod(t), Node: node(t), Unresolved: yes(t, "unresolved")}
				if yes(t, "replaces") {
					u.Old = pod(t)
				}
				u.Pod = testPod(string(u.Name))
				handles := rapid.SliceOfN(rapid.SampledFrom(r.handles), 0, 3).Draw(t, "volumes")
				e := yes(t, "exclusive")
				r.step(t, func() { r.updatePod(t, u, handles, e) })
			},
			"SetPodUnresolved": func(t *rapid.T) {
				p, n, unresolved := pod(t), node(t), yes(t, "unresolved")
				r.step(t, func() {
					r.world.SetPodUnresolved(p, n, unresolved)
					if unresolved {
						r.model.marks[modelMark{p, n}] = true
					} else {
						delete(r.model.marks, modelMark{p, n})
					}
				})
			},
			"MultiAttachError": func(t *rapid.T) {
				h, n, set := handle(t), node(t), yes(t, "set")
				r.step(t, func() {
					if set {
						r.world.SetMultiAttachError(volumeName(h), n)
					} else {
						r.world.ResetMultiAttachError(volumeName(h), n)
					}
					if wish, ok := r.model.wishes[pairOf(h, n)]; ok {
						wish.multi = set
						r.model.wishes[pairOf(h, n)] = wish
					}
				})
			},
			"time passes": func(t *rapid.T) {
				r.model.now = r.model.now.Add(time.Duration(rapid.IntRange(1, 1000).Draw(t, "seconds")) * time.Second)
				r.clock.SetTime(r.model.now)
			},
		})
		r.step(t, r.clear)
		require.Zero(t, r.world.Sizes())
	})
}
