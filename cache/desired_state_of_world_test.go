package cache

import (
	"slices"
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
