package cache

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

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
	for i := range 2 * chunkSize {
		mustAddPod(t, w, fmt.Sprintf("p%d", i), pvSpec(fmt.Sprintf("p%d", i)), "a")
	}
	kept := map[v1.UniqueVolumeName][]*v1.Pod{}
	for x := range w.VolumesToAttach() {
		kept[x.VolumeName] = append(x.ScheduledPods, nil) // must not write into another element's part
	}
	require.Len(t, kept, 2*chunkSize)
	for volume, pods := range kept { // and must not be written by a later element
		require.Equal(t, volume, volumeName(pods[0].Name))
	}
	for _, x := range w.GetVolumesToAttach() {
		require.Len(t, x.ScheduledPods, 1)
		require.Equal(t, x.VolumeName, volumeName(x.ScheduledPods[0].Name))
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
	for range w.Pairs() {
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
