package cache

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// U5, kubernetes/kubernetes#117042
func TestInUseIsWhatTheNodeSaid(t *testing.T) {
	w, _ := newActual(t)
	v1Name, v2Name := volumeName("v1"), volumeName("v2")
	mustAttach(t, w, "v1", "a")
	inUse := func(volume v1.UniqueVolumeName) InUse { return mustGet(t, w, volume, "a").InUse }
	require.Equal(t, InUseUnknown, inUse(v1Name), "the node has said nothing")
	require.False(t, w.GetNodeFacts("a").InUseKnown)

	w.SetVolumesMountedByNode(nil, "a")
	require.Equal(t, NotInUse, inUse(v1Name))
	require.True(t, w.GetNodeFacts("a").InUseKnown)
	w.DeleteVolumeNode(v1Name, "a")
	mustAttach(t, w, "v1", "a")
	require.Equal(t, NotInUse, inUse(v1Name), "that the list was empty is remembered")

	w.SetVolumesMountedByNode([]v1.UniqueVolumeName{v2Name, v1Name, v2Name}, "a")
	require.Equal(t, Mounted, inUse(v1Name))
	require.Equal(t, 1, w.Sizes().InUse)
	require.NoError(t, w.MarkVolumeAsUncertain(v2Name, nil, "a"))
	require.Equal(t, Mounted, inUse(v2Name), "remembered from before it had an entry")
	require.Zero(t, w.Sizes().InUse)
	w.DeleteVolumeNode(v2Name, "a")
	require.Equal(t, 1, w.Sizes().InUse, "the node still says so")

	require.NoError(t, w.SetVolumeMountedByNode(v1Name, "a", false))
	require.Equal(t, NotInUse, inUse(v1Name))
	w.SetVolumesMountedByNode([]v1.UniqueVolumeName{v1Name, v2Name}, "a")
	require.Equal(t, Mounted, inUse(v1Name))

	w.DeleteNode("a")
	require.Equal(t, InUseUnknown, inUse(v1Name))
	require.Zero(t, w.Sizes().InUse)
}

func TestInUseOfOnePairIsForgottenWithIt(t *testing.T) {
	w, _ := newActual(t)
	v := mustAttach(t, w, "v1", "a")
	require.NoError(t, w.SetVolumeMountedByNode(v, "a", true))
	w.DeleteVolumeNode(v, "a")
	require.Equal(t, ActualSizes{Dirty: 1}, w.Sizes())
	mustAttach(t, w, "v1", "a")
	require.Equal(t, InUseUnknown, mustGet(t, w, v, "a").InUse, "the node's list was never known")
}

// P1, kubernetes/kubernetes#101229: what is said again changes nothing and tells nobody, in whatever way the
// list is written.
func TestSameInUseListIsNoChange(t *testing.T) {
	a, b, c, foreign, alien := volumeName("v1"), volumeName("v2"), volumeName("v3"), v1.UniqueVolumeName("a/foreign"), v1.UniqueVolumeName("z/alien")
	list := []v1.UniqueVolumeName{a, b, foreign, alien}
	for _, tc := range []struct {
		name   string
		list   []v1.UniqueVolumeName
		same   bool
		expect map[v1.UniqueVolumeName]InUse
	}{
		{"sorted", []v1.UniqueVolumeName{foreign, a, b, alien}, true, nil},
		{"in another order", []v1.UniqueVolumeName{alien, b, foreign, a}, true, nil},
		{"with repetitions", []v1.UniqueVolumeName{foreign, foreign, a, a, b, b, alien}, true, nil},
		{"one replaced by a repetition", []v1.UniqueVolumeName{foreign, a, a, alien}, false, map[v1.UniqueVolumeName]InUse{a: Mounted, b: NotInUse, c: NotInUse}},
		{"one without entry replaced by a repetition", []v1.UniqueVolumeName{foreign, foreign, a, b}, true, nil},
		{"one more", []v1.UniqueVolumeName{foreign, a, b, c, alien}, false, map[v1.UniqueVolumeName]InUse{a: Mounted, b: Mounted, c: Mounted}},
		{"another one", []v1.UniqueVolumeName{foreign, a, c, alien}, false, map[v1.UniqueVolumeName]InUse{a: Mounted, b: NotInUse, c: Mounted}},
		{"none", nil, false, map[v1.UniqueVolumeName]InUse{a: NotInUse, b: NotInUse, c: NotInUse}},
		{"an empty name", []v1.UniqueVolumeName{"", foreign, a, b, alien}, true, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w, _ := newActual(t)
			for _, handle := range []string{"v3", "v1", "v2"} {
				mustAttach(t, w, handle, "a")
			}
			w.SetVolumesMountedByNode(list, "a")
			var told recorder[Pair]
			w.Subscribe(told.add)
			for range 2 {
				w.SetVolumesMountedByNode(tc.list, "a")
			}
			if tc.same {
				require.Empty(t, told.take())
				tc.expect = map[v1.UniqueVolumeName]InUse{a: Mounted, b: Mounted, c: NotInUse}
			}
			for volume, inUse := range tc.expect {
				require.Equal(t, inUse, mustGet(t, w, volume, "a").InUse, volume)
			}
			withoutEntry := 0
			for _, name := range []v1.UniqueVolumeName{foreign, alien} {
				if slices.Contains(tc.list, name) {
					withoutEntry++
				}
			}
			require.Equal(t, withoutEntry, w.Sizes().InUse)
		})
	}
}

func TestNodeHealthKeepsItsSinceWhileNothingChanges(t *testing.T) {
	w, clock := newActual(t)
	var told recorder[types.NodeName]
	w.SubscribeNodes(told.add)
	ready := NodeHealth{Ready: v1.ConditionTrue}
	require.Zero(t, w.GetNodeFacts("a"))
	w.SetNodeHealth("a", NodeHealth{}) // nothing is known, so nothing is kept
	require.Zero(t, w.Sizes())

	w.SetNodeHealth("a", ready)
	clock.SetTime(t0.Add(time.Minute))
	w.SetNodeHealth("a", ready)
	require.Equal(t, NodeFacts{NodeHealth: ready, Since: t0}, w.GetNodeFacts("a"))
	require.Equal(t, []types.NodeName{"a"}, told.take())

	down := NodeHealth{Ready: v1.ConditionUnknown, OutOfService: true}
	w.SetNodeHealth("a", down)
	require.Equal(t, NodeFacts{NodeHealth: down, Since: t0.Add(time.Minute)}, w.GetNodeFacts("a"))
	require.Equal(t, []types.NodeName{"a"}, told.take())
	require.Equal(t, []types.NodeName{"a"}, slices.Collect(w.Nodes()))

	w.SetNodeHealth("a", NodeHealth{})
	require.Equal(t, []types.NodeName{"a"}, told.take())
	require.Zero(t, w.Sizes())
}

// N2, kubernetes/kubernetes#31014
func TestDeletedNodeGoesWithItsLastAttachment(t *testing.T) {
	w, clock := newActual(t)
	v := mustAttach(t, w, "v1", "a")
	w.SetNodeHealth("a", NodeHealth{Ready: v1.ConditionTrue})
	w.SetVolumesMountedByNode([]v1.UniqueVolumeName{v}, "a")
	var told recorder[types.NodeName]
	var toldPairs recorder[Pair]
	w.SubscribeNodes(told.add)
	w.Subscribe(toldPairs.add)
	clock.SetTime(t0.Add(time.Minute))

	w.DeleteNode("a")
	require.Equal(t, NodeFacts{NodeHealth: NodeHealth{Deleted: true}, Since: t0.Add(time.Minute)}, w.GetNodeFacts("a"))
	require.Equal(t, []types.NodeName{"a"}, told.take())
	require.Equal(t, []Pair{pairOf("v1", "a")}, toldPairs.take())
	w.DeleteNode("a")
	require.Empty(t, told.take())
	require.Equal(t, Attached, w.GetAttachState(v, "a"))
	require.Zero(t, w.Sizes().Dirty, "nobody could read the report")

	w.DeleteVolumeNode(v, "a")
	require.Zero(t, w.Sizes())
	require.Zero(t, w.GetNodeFacts("a"))

	w.SetNodeHealth("b", NodeHealth{Ready: v1.ConditionTrue})
	told.take()
	w.SetNodeHealth("b", NodeHealth{Deleted: true}) // the same as DeleteNode
	require.Equal(t, []types.NodeName{"b"}, told.take())
	require.Zero(t, w.Sizes())
}

// N1, kubernetes/kubernetes#50721
func TestNodeThatComesBackGetsItsReportAnew(t *testing.T) {
	revivals := map[string]func(w *ActualStateOfWorld){
		"health": func(w *ActualStateOfWorld) { w.SetNodeHealth("a", NodeHealth{Ready: v1.ConditionTrue}) },
		"in use": func(w *ActualStateOfWorld) { w.SetVolumesMountedByNode(nil, "a") },
	}
	for name, revive := range revivals {
		t.Run(name, func(t *testing.T) {
			w, _ := newActual(t)
			v := mustAttach(t, w, "v1", "a")
			w.GetVolumesToReportAttached()
			w.DeleteNode("a")
			version := w.ReportVersion("a")
			require.Empty(t, w.GetVolumesToReportAttached())
			revive(w)
			require.False(t, w.GetNodeFacts("a").Deleted)
			require.Greater(t, w.ReportVersion("a"), version)
			require.Equal(t, map[types.NodeName][]v1.AttachedVolume{"a": {{Name: v, DevicePath: "/dev/v1"}}}, w.GetVolumesToReportAttached())
		})
		t.Run(name+", with nothing to report", func(t *testing.T) {
			w, _ := newActual(t)
			require.NoError(t, w.MarkVolumeAsUncertain("v", nil, "a"))
			w.DeleteNode("a")
			revive(w)
			revive(w)
			require.Empty(t, w.GetVolumesToReportAttached())
			require.Zero(t, w.ReportVersion("a"))
		})
	}
}

// N2, kubernetes/kubernetes#31014
func TestSizesReturnToZero(t *testing.T) {
	actual, _ := newActual(t)
	desired, _ := newDesired(t)
	for i := range 10_000 {
		node, handle := types.NodeName(fmt.Sprintf("node-%d", i)), fmt.Sprintf("v%d", i%13)
		desired.AddNode(node)
		v := mustAddPod(t, desired, fmt.Sprintf("p%d", i), pvSpec(handle), node)
		mustAttach(t, actual, handle, node)
		actual.SetVolumesMountedByNode([]v1.UniqueVolumeName{v, "other"}, node)
		actual.SetNodeHealth(node, NodeHealth{Ready: v1.ConditionTrue})
		if i%2 == 0 {
			require.Error(t, desired.DeleteNode(node))
			actual.DeleteNode(node)
		}
		desired.DeletePodFromAll(UniquePodName(fmt.Sprintf("p%d", i)))
		actual.DeleteVolumeNode(v, node)
		if i%2 != 0 {
			require.NoError(t, desired.DeleteNode(node))
			actual.DeleteNode(node)
		}
	}
	require.Zero(t, actual.Sizes())
	require.Equal(t, DesiredSizes{Nodes: 2}, desired.Sizes())
	require.Empty(t, actual.index.nodes)
	require.Nil(t, actual.index.volumes.shards[0].slots)
}
