package cache

import (
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

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
