package cache

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	stressWorkers = 8
	stressSteps   = 1500
	stressNodes   = 12
	stressVolumes = 20
)

// mirror follows a world through its notices only. It reads within its lock, so that the last to be told of a
// key also reads the last state.
type mirror[K comparable, V any] struct {
	mu     sync.Mutex
	values map[K]V
	read   func(K) (V, bool)
}

func newMirror[K comparable, V any](read func(K) (V, bool)) *mirror[K, V] {
	return &mirror[K, V]{values: map[K]V{}, read: read}
}

func (m *mirror[K, V]) changed(key K) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if value, ok := m.read(key); ok {
		m.values[key] = value
	} else {
		delete(m.values, key)
	}
}

// stress runs steps of random operations in several goroutines at once.
func stress(step func(r *rand.Rand)) {
	var wg sync.WaitGroup
	for worker := range stressWorkers {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(worker), 42))
			for range stressSteps {
				step(r)
			}
		})
	}
	wg.Wait()
}

func stressNode(r *rand.Rand) types.NodeName {
	return types.NodeName(fmt.Sprintf("node-%d", r.IntN(stressNodes)))
}
func stressHandle(r *rand.Rand) string     { return fmt.Sprintf("v%d", r.IntN(stressVolumes)) }
func stressPod(r *rand.Rand) UniquePodName { return UniquePodName(fmt.Sprintf("p%d", r.IntN(30))) }

// TestDesiredStateOfWorldUnderStress changes and reads the world from all sides. In the end nothing
// contradicts, no notice was lost, and nothing is left after everything was removed.
func TestDesiredStateOfWorldUnderStress(t *testing.T) {
	w := NewDesiredStateOfWorld(NewVolumePluginMgr(CSIPlugin{}))
	wishes := newMirror(func(p Pair) (Wish, bool) {
		wish, ok := w.GetWish(p.Volume, p.Node)
		wish.NodeUnresolved = 0 // told by node
		return wish, ok
	})
	nodes := newMirror(func(n types.NodeName) (bool, bool) {
		return w.NodeUnresolved(n) > 0, w.NodeExists(n) || w.NodeUnresolved(n) > 0
	})
	w.Subscribe(wishes.changed)
	w.SubscribeNodes(nodes.changed)

	stress(func(r *rand.Rand) {
		node, handle, pod := stressNode(r), stressHandle(r), stressPod(r)
		spec := modelSpec(handle, r.IntN(2) == 0)
		switch r.IntN(14) {
		case 0, 1:
			w.AddNode(node)
		case 2:
			_ = w.DeleteNode(node)
		case 3, 4, 5:
			_, _ = w.AddPod(pod, testPod(string(pod)), spec, node)
		case 6:
			w.DeletePod(pod, volumeName(handle), node)
		case 7:
			w.DeletePodFromAll(pod)
		case 8:
			_, _ = w.UpdatePod(PodUpdate{Old: stressPod(r), Name: pod, Pod: testPod(string(pod)), Node: node, Specs: []*VolumeSpec{spec, pvSpec("v0")}, Unresolved: r.IntN(4) == 0})
		case 9:
			w.SetPodUnresolved(pod, node, r.IntN(2) == 0)
		case 10:
			w.SetMultiAttachError(volumeName(handle), node)
			w.GetVolumePodsOnNodes([]types.NodeName{node}, volumeName(handle))
		case 11:
			for x := range w.VolumesToAttach() {
				if len(x.ScheduledPods) == 0 {
					t.Error("a wish without pods was seen")
				}
			}
		case 12:
			wishes := w.AppendWishes(nil, volumeName(handle))
			for _, x := range wishes {
				if x.Exclusive != wishes[0].Exclusive {
					t.Error("a volume was seen exclusive and shared at once")
				}
			}
		case 13:
			cancel := w.Subscribe(func(Pair) {})
			w.GetPodToAdd()
			w.UnresolvedPods(node)
			cancel()
		}
	})
	require.NoError(t, w.CheckInvariants())
	want := map[Pair]Wish{}
	for _, p := range w.GetPodToAdd() {
		wish, _ := w.GetWish(p.VolumeName, p.NodeName)
		wish.NodeUnresolved = 0
		want[Pair{p.VolumeName, p.NodeName}] = wish
	}
	require.Equal(t, want, wishes.values)
	wantNodes := map[types.NodeName]bool{}
	for i := range stressNodes {
		node := types.NodeName(fmt.Sprintf("node-%d", i))
		if w.NodeExists(node) || w.NodeUnresolved(node) > 0 {
			wantNodes[node] = w.NodeUnresolved(node) > 0
		}
	}
	require.Equal(t, wantNodes, nodes.values)

	for i := range 30 {
		w.DeletePodFromAll(UniquePodName(fmt.Sprintf("p%d", i)))
	}
	for node := range w.Nodes() {
		require.NoError(t, w.DeleteNode(node))
	}
	require.Zero(t, w.Sizes())
	require.NoError(t, w.CheckInvariants())
}

// TestActualStateOfWorldUnderStress is the same for the actual world.
func TestActualStateOfWorldUnderStress(t *testing.T) {
	w := NewActualStateOfWorld(NewVolumePluginMgr(CSIPlugin{}))
	pairs := newMirror(func(p Pair) (AttachedVolume, bool) {
		a, ok := w.GetAttachedVolume(p.Volume, p.Node)
		a.Reported = false // told by report
		return a, ok
	})
	reports := newMirror(func(n types.NodeName) (NodeReport, bool) { return w.Report(n), true })
	w.Subscribe(pairs.changed)
	w.SubscribeReports(reports.changed)
	w.SubscribeNodes(func(n types.NodeName) { w.GetNodeFacts(n) })

	stress(func(r *rand.Rand) {
		node, handle := stressNode(r), stressHandle(r)
		volume := volumeName(handle)
		switch r.IntN(18) {
		case 0, 1, 2:
			_, _ = w.AddVolumeNode(pvSpec(handle), node, "/dev/x")
		case 3, 4:
			_ = w.MarkVolumeAsAttached(volume, nil, node, "/dev/y")
		case 5:
			_ = w.MarkVolumeAsUncertain(volume, pvSpec(handle), node)
		case 6:
			w.DeleteVolumeNode(volume, node)
		case 7:
			w.MarkDetachedIfEpoch(volume, node, w.Epoch(volume, node))
		case 8:
			w.MarkUncertainIfEpoch(volume, node, w.Epoch(volume, node))
		case 9:
			list := []v1.UniqueVolumeName{volume, volumeName(stressHandle(r)), volumeName(stressHandle(r))}
			slices.Sort(list)
			w.SetVolumesMountedByNode(list, node)
			w.SetVolumesMountedByNode(list, node)
		case 10:
			_ = w.SetVolumeMountedByNode(volume, node, r.IntN(2) == 0)
		case 11:
			w.SetNodeHealth(node, NodeHealth{Ready: v1.ConditionTrue, OutOfService: r.IntN(2) == 0})
		case 12:
			w.DeleteNode(node)
		case 13:
			_, _ = w.SetDetachRequestTime(volume, node)
			w.ResetDetachRequestTime(volume, node)
		case 14:
			_ = w.RemoveVolumeFromReportAsAttached(volume, node)
			w.AddVolumeToReportAsAttached(volume, node)
		case 15:
			w.SetNodeStatusUpdateNeeded(node)
			w.GetVolumesToReportAttached()
			w.GetVolumesToReportAttachedForNode(node)
		case 16:
			for a := range w.AttachedVolumes() {
				if a.Reported && a.State != Attached {
					t.Errorf("reported, but %v: %v", a.State, a.VolumeName)
				}
			}
			all := w.GetAttachedVolumesForNode(node)
			if !slices.IsSortedFunc(all, compareAttachedVolume) {
				t.Error("not sorted")
			}
		case 17:
			report := w.Report(node)
			if v := w.ReportVersion(node); v < report.Version {
				t.Errorf("version went back from %d to %d", report.Version, v)
			}
			w.AppendAttachments(nil, volume)
		}
	})
	require.NoError(t, w.CheckInvariants())
	want := map[Pair]AttachedVolume{}
	for a := range w.AttachedVolumes() {
		a.Reported = false
		want[Pair{a.VolumeName, a.NodeName}] = a
	}
	require.Equal(t, want, pairs.values)
	for node, report := range reports.values {
		now := w.Report(node)
		require.Equal(t, now.Volumes, report.Volumes)
	}

	for a := range want {
		w.DeleteVolumeNode(a.Volume, a.Node)
	}
	for i := range stressNodes {
		w.DeleteNode(types.NodeName(fmt.Sprintf("node-%d", i)))
	}
	require.Zero(t, w.Sizes())
	require.NoError(t, w.CheckInvariants())
}
