package cache

import (
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

func TestAddPodRefusesBadInputAndChangesNothing(t *testing.T) {
	plugin := &testPlugin{name: "red", volumeName: "r"}
	w := NewDesiredStateOfWorld(NewVolumePluginMgr(CSIPlugin{}, plugin))
	w.AddNode("a")
	var told recorder[Pair]
	w.Subscribe(told.add)
	pod := testPod("p1")
	for _, tc := range []struct {
		name  string
		pod   UniquePodName
		obj   *v1.Pod
		spec  *VolumeSpec
		node  types.NodeName
		is    error
		field string
	}{
		{"no pod name", "", pod, pvSpec("v1"), "a", ErrInvalid, "pod name"},
		{"no node name", "p1", pod, pvSpec("v1"), "", ErrInvalid, "node name"},
		{"no pod", "p1", nil, pvSpec("v1"), "a", ErrInvalid, "pod"},
		{"no spec", "p1", pod, nil, "a", ErrInvalid, "volume spec"},
		{"no plugin", "p1", pod, inlineSpec("x"), "a", ErrNoPlugin, ""},
		{"not attachable", "p1", pod, inlineSpec("red-1"), "a", ErrNotAttachable, ""},
		{"unknown node", "p1", pod, pvSpec("v1"), "nowhere", ErrNodeUnknown, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			name, err := w.AddPod(tc.pod, tc.obj, tc.spec, tc.node)
			require.Empty(t, name)
			require.ErrorIs(t, err, tc.is)
			_, err2 := w.UpdatePod(PodUpdate{Name: tc.pod, Pod: tc.obj, Node: tc.node, Specs: []*VolumeSpec{pvSpec("v0"), tc.spec}})
			require.ErrorIs(t, err2, tc.is)
			if tc.field != "" {
				requireInvalid(t, err, tc.field)
				requireInvalid(t, err2, tc.field)
			}
			require.Equal(t, DesiredSizes{Nodes: 1}, w.Sizes())
			require.Empty(t, told.take())
		})
	}
	_, err := w.AddPod("p1", pod, pvSpec("v1"), "nowhere")
	require.EqualError(t, err, `add pod "p1" to node "nowhere": the node is unknown: add it first`)
}

func TestEmptyNamesAreIgnoredWhereNothingCanBeReturned(t *testing.T) {
	w := NewDesiredStateOfWorld(nil)
	w.AddNode("")
	w.SetPodUnresolved("", "a", true)
	w.SetPodUnresolved("p1", "", true)
	w.DeletePodFromAll("")
	require.NoError(t, w.DeleteNode(""))
	require.Zero(t, w.Sizes())
}

// Part 2 of the list of faults: "AddPod never refreshes spec or pod object".
func TestAddingAPodAgainRefreshesIt(t *testing.T) {
	w, clock := newDesired(t)
	v := mustAddPod(t, w, "p1", exclusiveSpec("v1"), "a")
	mustAddPod(t, w, "p2", exclusiveSpec("v2"), "a")
	before, _ := w.GetWish(v, "a")
	require.True(t, before.Exclusive)
	require.Equal(t, t0, before.Since)
	w.SetMultiAttachError(v, "a")

	clock.SetTime(t0.Add(time.Hour))
	newer, shared := testPod("p1"), pvSpec("v1", v1.ReadWriteMany)
	newer.ResourceVersion = "2"
	var told recorder[Pair]
	w.Subscribe(told.add)
	_, err := w.AddPod("p1", newer, shared, "a")
	require.NoError(t, err)

	after, _ := w.GetWish(v, "a")
	require.Equal(t, []Pair{pairOf("v1", "a")}, told.take())
	require.Same(t, shared, after.VolumeSpec)
	require.False(t, after.Exclusive)
	require.Equal(t, before.Order, after.Order)
	require.Equal(t, before.Since, after.Since)
	require.Equal(t, 1, after.Pods)
	require.Same(t, newer, w.PodsOf(v, "a")[0].Pod)
	require.True(t, slices.Collect(w.VolumesToAttach())[0].MultiAttachErrorReported || slices.Collect(w.VolumesToAttach())[1].MultiAttachErrorReported)

	newest := testPod("p1")
	_, err = w.AddPod("p1", newest, shared, "a")
	require.NoError(t, err)
	require.Same(t, newest, w.PodsOf(v, "a")[0].Pod)
	require.Empty(t, told.take(), "a new pod object alone is no change of the wish")
}

func TestWishBeginsWithItsFirstPodAndEndsWithItsLast(t *testing.T) {
	w, clock := newDesired(t)
	v := mustAddPod(t, w, "p1", pvSpec("v1"), "a")
	clock.SetTime(t0.Add(time.Minute))
	mustAddPod(t, w, "p2", pvSpec("v1"), "a")
	mustAddPod(t, w, "p3", pvSpec("v1"), "b")
	wishes := w.AppendWishes(nil, v)
	require.Len(t, wishes, 2)
	require.Equal(t, types.NodeName("a"), wishes[0].NodeName)
	require.Equal(t, t0, wishes[0].Since)
	require.Equal(t, 2, wishes[0].Pods)
	require.Equal(t, t0.Add(time.Minute), wishes[1].Since)
	require.Less(t, wishes[0].Order, wishes[1].Order)

	w.DeletePod("p1", v, "a")
	require.True(t, w.VolumeExists(v, "a"))
	w.DeletePod("p2", v, "b") // p2 does not use it there
	require.True(t, w.VolumeExists(v, "a"))
	w.DeletePod("p2", v, "a")
	require.False(t, w.VolumeExists(v, "a"))

	mustAddPod(t, w, "p1", pvSpec("v1"), "a")
	again, _ := w.GetWish(v, "a")
	require.Greater(t, again.Order, wishes[1].Order, "a new wish is younger than all before")
	require.Equal(t, t0.Add(time.Minute), again.Since)
}

func TestVolumeIsExclusiveWhileAnyCurrentUserIs(t *testing.T) {
	w, _ := newDesired(t)
	v := mustAddPod(t, w, "shares", pvSpec("v1"), "a")
	exclusive := func() bool {
		wish, ok := w.GetWish(v, "a")
		require.True(t, ok)
		return wish.Exclusive
	}
	require.False(t, exclusive())

	var told recorder[Pair]
	w.Subscribe(told.add)
	mustAddPod(t, w, "owns", exclusiveSpec("v1"), "b")
	require.True(t, exclusive())
	require.ElementsMatch(t, []Pair{pairOf("v1", "a"), pairOf("v1", "b")}, told.take(), "that is a change of both wishes")

	mustAddPod(t, w, "owns too", exclusiveSpec("v1"), "b")
	require.Equal(t, []Pair{pairOf("v1", "b")}, told.take())
	w.DeletePodFromAll("owns")
	require.True(t, exclusive())
	w.DeletePodFromAll("owns too")
	require.False(t, exclusive())
}

// N2, kubernetes/kubernetes#31014
func TestDeletedNodeTakesNoPodsAndGoesWithItsLastOne(t *testing.T) {
	w, _ := newDesired(t)
	v := mustAddPod(t, w, "p1", pvSpec("v1"), "a")
	var toldNodes recorder[types.NodeName]
	var told recorder[Pair]
	w.SubscribeNodes(toldNodes.add)
	w.Subscribe(told.add)

	err := w.DeleteNode("a")
	require.ErrorIs(t, err, ErrNodeHasVolumes)
	require.Equal(t, []types.NodeName{"a"}, toldNodes.take())
	require.Equal(t, []Pair{pairOf("v1", "a")}, told.take())
	require.False(t, w.NodeExists("a"))
	require.Equal(t, []types.NodeName{"b"}, slices.Collect(w.Nodes()))
	wish, ok := w.GetWish(v, "a")
	require.True(t, ok)
	require.True(t, wish.NodeDeleted)
	require.Empty(t, w.GetVolumesToAttach())
	_, err = w.AddPod("p2", testPod("p2"), pvSpec("v2"), "a")
	require.ErrorIs(t, err, ErrNodeUnknown)
	require.ErrorIs(t, w.DeleteNode("a"), ErrNodeHasVolumes, "the wishes are still there")
	require.Empty(t, toldNodes.take())

	w.AddNode("a") // revived
	wish, _ = w.GetWish(v, "a")
	require.False(t, wish.NodeDeleted)
	require.Len(t, w.GetVolumesToAttach(), 1)

	require.Error(t, w.DeleteNode("a"))
	w.DeletePodFromAll("p1")
	require.Equal(t, DesiredSizes{Nodes: 1}, w.Sizes())
	require.NoError(t, w.DeleteNode("a"))
}

// R4, kubernetes/kubernetes#111327
func TestReplacedPodOnTheSameNodeLeavesNoMomentWithoutAUser(t *testing.T) {
	w, _ := newDesired(t)
	v := mustAddPod(t, w, "uid-0", exclusiveSpec("v1"), "a")
	before, _ := w.GetWish(v, "a")

	var missing atomic.Int64
	stop := make(chan struct{})
	var readers sync.WaitGroup
	for range 2 {
		readers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if !w.VolumeExists(v, "a") {
					missing.Add(1)
				}
				if len(w.PodsOf(v, "a")) != 1 {
					missing.Add(1)
				}
			}
		})
	}
	old := UniquePodName("uid-0")
	for i := range 2000 {
		name := UniquePodName("uid-" + string(rune('a'+i%7)))
		_, err := w.UpdatePod(PodUpdate{Old: old, Name: name, Pod: testPod("web"), Node: "a", Specs: []*VolumeSpec{exclusiveSpec("v1")}})
		require.NoError(t, err)
		old = name
	}
	close(stop)
	readers.Wait()
	require.Zero(t, missing.Load())
	after, _ := w.GetWish(v, "a")
	require.Equal(t, before.Order, after.Order)
	require.Equal(t, DesiredSizes{Nodes: 2, Volumes: 1, Pairs: 1, Pods: 1}, w.Sizes())
}

// R4, kubernetes/kubernetes#111327
func TestReplacedPodOnAnotherNodeMovesInOneStep(t *testing.T) {
	w, _ := newDesired(t)
	v := mustAddPod(t, w, "uid1", exclusiveSpec("v1"), "a")
	w.Subscribe(func(Pair) { // whoever looks now sees all of it
		require.False(t, w.VolumeExists(v, "a"))
		require.True(t, w.VolumeExists(v, "b"))
	})
	names, err := w.UpdatePod(PodUpdate{Old: "uid1", Name: "uid2", Pod: testPod("web"), Node: "b", Specs: []*VolumeSpec{exclusiveSpec("v1"), exclusiveSpec("v2")}})
	require.NoError(t, err)
	require.Equal(t, []v1.UniqueVolumeName{v, volumeName("v2")}, names)
	require.False(t, w.VolumeExists(v, "a"))
	require.True(t, w.VolumeExists(v, "b"))
}

func TestUpdatePodMakesTheWholeWishTrue(t *testing.T) {
	w, _ := newDesired(t)
	mustAddPod(t, w, "p1", pvSpec("v1"), "a")
	mustAddPod(t, w, "p1", pvSpec("v2"), "a")
	mustAddPod(t, w, "p1", pvSpec("v1"), "b")
	has := func() (pairs []string) {
		for _, p := range w.GetPodToAdd() {
			pairs = append(pairs, string(p.PodName)+" "+reportNames([]v1.AttachedVolume{{Name: p.VolumeName}})[0]+" "+string(p.NodeName))
		}
		return pairs
	}

	_, err := w.UpdatePod(PodUpdate{Name: "p1", Pod: testPod("p1"), Node: "a", Specs: []*VolumeSpec{pvSpec("v3")}, Unresolved: true})
	require.NoError(t, err)
	require.Equal(t, []string{"p1 v1 a", "p1 v1 b", "p1 v2 a", "p1 v3 a"}, has(), "what is not resolved may still be wanted")
	require.Equal(t, []UniquePodName{"p1"}, w.UnresolvedPods("a"))

	_, err = w.UpdatePod(PodUpdate{Name: "p1", Pod: testPod("p1"), Node: "a", Specs: []*VolumeSpec{pvSpec("v2"), pvSpec("v3")}})
	require.NoError(t, err)
	require.Equal(t, []string{"p1 v2 a", "p1 v3 a"}, has())
	require.Zero(t, w.NodeUnresolved("a"))

	_, err = w.UpdatePod(PodUpdate{Name: "p1"}) // nothing at all, as for a pod that has ended
	require.NoError(t, err)
	require.Empty(t, has())
	require.Equal(t, DesiredSizes{Nodes: 2}, w.Sizes())
}

func TestUpdatePodChecksWhatItNeeds(t *testing.T) {
	w, _ := newDesired(t)
	_, err := w.UpdatePod(PodUpdate{Node: "a"})
	requireInvalid(t, err, "pod name")
	_, err = w.UpdatePod(PodUpdate{Name: "p1", Unresolved: true})
	requireInvalid(t, err, "node name")
	_, err = w.UpdatePod(PodUpdate{Name: "p1", Node: "nowhere", Unresolved: true})
	require.NoError(t, err, "a pod may be seen before its node")
	require.Equal(t, 1, w.NodeUnresolved("nowhere"))
	w.DeletePodFromAll("p1")
}

func TestVolumeNamedTwiceByAPodIsExclusiveIfEitherUseIs(t *testing.T) {
	for _, specs := range [][]*VolumeSpec{{exclusiveSpec("v1"), pvSpec("v1")}, {pvSpec("v1"), exclusiveSpec("v1")}} {
		w, _ := newDesired(t)
		names, err := w.UpdatePod(PodUpdate{Name: "p1", Pod: testPod("p1"), Node: "a", Specs: specs})
		require.NoError(t, err)
		require.Len(t, names, 2)
		wish, _ := w.GetWish(names[0], "a")
		require.True(t, wish.Exclusive)
		require.Equal(t, 1, wish.Pods)
	}
}

// S4, kubernetes/kubernetes#120741
func TestUnresolvedPodsCountForTheirNode(t *testing.T) {
	w, _ := newDesired(t)
	v := mustAddPod(t, w, "p1", pvSpec("v1"), "a")
	var told recorder[types.NodeName]
	w.SubscribeNodes(told.add)

	w.SetPodUnresolved("p2", "a", true)
	require.Equal(t, []types.NodeName{"a"}, told.take())
	w.SetPodUnresolved("p3", "a", true)
	w.SetPodUnresolved("p3", "a", true)
	require.Empty(t, told.take(), "the node was unresolved before")
	require.Equal(t, []UniquePodName{"p2", "p3"}, w.UnresolvedPods("a"))
	wish, _ := w.GetWish(v, "a")
	require.Equal(t, 2, wish.NodeUnresolved)
	require.Equal(t, 2, w.NodeUnresolved("a"))
	require.Equal(t, 2, w.Sizes().Unresolved)

	w.SetPodUnresolved("p2", "b", false) // not there
	w.SetPodUnresolved("p2", "a", false)
	require.Empty(t, told.take())
	w.DeletePodFromAll("p3")
	require.Equal(t, []types.NodeName{"a"}, told.take())
	require.Zero(t, w.NodeUnresolved("a"))
}

// S4, kubernetes/kubernetes#120741
func TestUnresolvedMarkOutlivesTheDeletionOfItsNode(t *testing.T) {
	w, _ := newDesired(t)
	w.SetPodUnresolved("p1", "a", true)
	require.NoError(t, w.DeleteNode("a"))
	require.Equal(t, 1, w.NodeUnresolved("a"))
	w.SetPodUnresolved("p1", "a", false)
	require.Equal(t, DesiredSizes{Nodes: 1}, w.Sizes())
}

// Part 2 of the list of faults: "GetPodToAdd is keyed by pod: a pod with 5 volumes yields 1 entry".
func TestPodWithSeveralVolumesIsListedWithEach(t *testing.T) {
	w, _ := newDesired(t)
	for _, handle := range []string{"v3", "v1", "v5", "v2", "v4"} {
		mustAddPod(t, w, "p1", pvSpec(handle), "a")
	}
	pods := w.GetPodToAdd()
	require.Len(t, pods, 5)
	for i, p := range pods {
		require.Equal(t, UniquePodName("p1"), p.PodName)
		require.Equal(t, volumeName([]string{"v1", "v2", "v3", "v4", "v5"}[i]), p.VolumeName)
	}
	w.DeletePodFromAll("p1") // no claim has to be resolved for that
	require.Equal(t, DesiredSizes{Nodes: 2}, w.Sizes())
}

// M1, kubernetes/kubernetes#53214
func TestMultiAttachErrorIsForgottenWithTheWish(t *testing.T) {
	w, _ := newDesired(t)
	v := mustAddPod(t, w, "p1", exclusiveSpec("v1"), "a")
	reported := func() bool { return w.GetVolumesToAttach()[0].MultiAttachErrorReported }
	w.SetMultiAttachError(v, "b") // no such wish
	require.False(t, reported())
	w.SetMultiAttachError(v, "a")
	require.True(t, reported())
	w.ResetMultiAttachError(v, "a")
	require.False(t, reported())
	w.SetMultiAttachError(v, "a")
	w.DeletePodFromAll("p1")
	mustAddPod(t, w, "p2", exclusiveSpec("v1"), "a")
	require.False(t, reported())
}

func TestPodsAreListedByNode(t *testing.T) {
	w, _ := newDesired(t)
	v := mustAddPod(t, w, "p2", pvSpec("v1"), "a")
	mustAddPod(t, w, "p1", pvSpec("v1"), "a")
	mustAddPod(t, w, "p3", pvSpec("v1"), "b")
	names := func(pods []*v1.Pod) (names []string) {
		for _, p := range pods {
			names = append(names, p.Name)
		}
		return names
	}
	require.Equal(t, []string{"p1", "p2"}, names(w.GetVolumePodsOnNodes([]types.NodeName{"a", "nowhere"}, v)))
	require.Equal(t, []string{"p1", "p2", "p3"}, names(w.GetVolumePodsOnNodes([]types.NodeName{"b", "a"}, v)))
	require.Empty(t, w.GetVolumePodsOnNodes([]types.NodeName{"a"}, "other"))
	require.Empty(t, w.GetVolumePodsOnNodes(nil, v))
	for x := range w.VolumesToAttach() {
		if x.NodeName == "a" {
			require.Equal(t, []string{"p1", "p2"}, names(x.ScheduledPods))
		}
	}
	pods := w.PodsOf(v, "a")
	require.Equal(t, []UniquePodName{"p1", "p2"}, []UniquePodName{pods[0].PodName, pods[1].PodName})
}

func TestScheduledPodsAreTheCallers(t *testing.T) {
	w, _ := newDesired(t)
	mustAddPod(t, w, "p1", pvSpec("v1"), "a")
	mustAddPod(t, w, "p2", pvSpec("v2"), "a")
	var kept []VolumeToAttach
	for x := range w.VolumesToAttach() {
		x.ScheduledPods = append(x.ScheduledPods, nil) // must not write into another element's part
		kept = append(kept, x)
	}
	for _, x := range kept {
		require.Len(t, x.ScheduledPods, 2)
		require.NotNil(t, x.ScheduledPods[0])
	}
	for _, x := range w.GetVolumesToAttach() {
		require.Len(t, x.ScheduledPods, 1)
	}
}

// The lock is held neither while a plugin runs nor while a subscriber does; else these would never return.
func TestPluginsAndSubscribersMayUseTheWorlds(t *testing.T) {
	plugin := &testPlugin{name: "red", volumeName: "r", attachable: true}
	plugins := NewVolumePluginMgr(plugin)
	desired, actual := NewDesiredStateOfWorld(plugins), NewActualStateOfWorld(plugins)
	desired.AddNode("a")
	calls := 0
	use := func() {
		calls++
		desired.AddNode("b")
		desired.SetPodUnresolved("p9", "b", false)
		actual.SetNodeHealth("b", NodeHealth{Ready: v1.ConditionTrue})
	}
	plugin.called = use
	desired.Subscribe(func(Pair) { use() })
	actual.Subscribe(func(Pair) { use() })
	actual.SubscribeReports(func(types.NodeName) { use() })

	v, err := desired.AddPod("p1", testPod("p1"), inlineSpec("red"), "a")
	require.NoError(t, err)
	_, err = desired.UpdatePod(PodUpdate{Name: "p1", Pod: testPod("p1"), Node: "a", Specs: []*VolumeSpec{inlineSpec("red")}})
	require.NoError(t, err)
	_, err = actual.AddVolumeNode(inlineSpec("red"), "a", "")
	require.NoError(t, err)
	require.NoError(t, actual.MarkVolumeAsUncertain(v, nil, "a"))
	require.Greater(t, calls, 6)
}

// While iterating the lock is not held; else these would never return. What stays is yielded once.
func TestIteratorsLetTheWorldChange(t *testing.T) {
	w, _ := newDesired(t)
	for i := range 3 * chunkSize {
		mustAddPod(t, w, "p1", pvSpec(string(rune('A'+i))), "a")
	}
	seen := map[v1.UniqueVolumeName]int{}
	for x := range w.VolumesToAttach() {
		seen[x.VolumeName]++
		w.DeletePod("p1", x.VolumeName, "a")
		w.AddNode(types.NodeName("node of " + x.VolumeName))
	}
	require.Len(t, seen, 3*chunkSize)
	nodes := 0
	for node := range w.Nodes() {
		nodes++
		require.NoError(t, w.DeleteNode(node))
	}
	require.Equal(t, 3*chunkSize+2, nodes)
	require.Zero(t, w.Sizes())
}

func TestIteratorsStopWhenAsked(t *testing.T) {
	w, _ := newDesired(t)
	for i := range 3 * chunkSize {
		mustAddPod(t, w, "p1", pvSpec(string(rune('A'+i))), "a")
	}
	for range w.VolumesToAttach() {
		break
	}
	for range w.Nodes() {
		break
	}
	w.AddNode("c") // the lock is free
}

func TestCheckInvariantsFindsContradictions(t *testing.T) {
	for name, breakIt := range map[string]func(w *DesiredStateOfWorld){
		"lost user": func(w *DesiredStateOfWorld) {
			p := w.index.pair(volumeName("v1"), "a")
			p.data.users = p.data.users[:0]
		},
		"lost pod":  func(w *DesiredStateOfWorld) { delete(w.pods, "p1") },
		"lost use":  func(w *DesiredStateOfWorld) { w.pods["p1"].uses = nil },
		"exclusive": func(w *DesiredStateOfWorld) { w.index.volumes.get(volumeName("v1")).data.exclusive++ },
		"marks":     func(w *DesiredStateOfWorld) { w.marks++ },
		"mark of node": func(w *DesiredStateOfWorld) {
			w.index.nodes["a"].data.unresolved = map[UniquePodName]struct{}{"p1": {}}
		},
		"useless node":   func(w *DesiredStateOfWorld) { w.index.nodes["b"].data.known = false },
		"lost node":      func(w *DesiredStateOfWorld) { delete(w.index.nodes, "a") },
		"pairs":          func(w *DesiredStateOfWorld) { w.index.pairs++ },
		"pair of node":   func(w *DesiredStateOfWorld) { w.index.nodes["a"].pairs[0] = nil },
		"volume count":   func(w *DesiredStateOfWorld) { w.index.volumes.len++ },
		"order":          func(w *DesiredStateOfWorld) { w.order = 0 },
		"name of volume": func(w *DesiredStateOfWorld) { w.index.volumes.get(volumeName("v1")).name = "other" },
	} {
		t.Run(name, func(t *testing.T) {
			w := NewDesiredStateOfWorld(NewVolumePluginMgr(CSIPlugin{}))
			w.AddNode("a")
			w.AddNode("b")
			mustAddPod(t, w, "p1", exclusiveSpec("v1"), "a")
			require.NoError(t, w.CheckInvariants())
			breakIt(w)
			require.Error(t, w.CheckInvariants())
		})
	}
}
