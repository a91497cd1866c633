package cache

import (
	"runtime"
	"slices"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
)

// TestAllocationBudget holds what the hot paths may allocate.
func TestAllocationBudget(t *testing.T) {
	const n = 3000
	items := benchItems(n)
	desired, actual := benchDesired(t, items), benchActual(t, items)
	it := &items[n/2]
	nodes, lists := inUseLists(items)
	slices.Sort(lists[nodes[0]])
	unsorted := slices.Clone(lists[nodes[1]])
	slices.SortFunc(unsorted, func(a, b v1.UniqueVolumeName) int { return -Pair{Volume: a}.compare(Pair{Volume: b}) })
	for _, node := range nodes[:2] { // not it.node: a volume in use is remembered when it is detached
		require.NotEqual(t, it.node, node)
		actual.SetVolumesMountedByNode(lists[node], node)
		actual.GetAttachedVolumesForNode(node)
	}
	wishes, attachments := make([]Wish, 0, 8), make([]AttachedVolume, 0, 8)

	for _, tc := range []struct {
		name   string
		budget float64
		do     func()
	}{
		{"VolumeExists", 0, func() { desired.VolumeExists(it.volume, it.node) }},
		{"GetWish", 0, func() { desired.GetWish(it.volume, it.node) }},
		{"AppendWishes", 0, func() { wishes = desired.AppendWishes(wishes[:0], it.volume) }},
		{"NodeUnresolved", 0, func() { desired.NodeUnresolved(it.node) }},
		{"all wishes, per chunk", 2 * n / chunkSize, func() {
			for range desired.VolumesToAttach() {
			}
		}},
		{"GetAttachState", 0, func() { actual.GetAttachState(it.volume, it.node) }},
		{"GetAttachedVolume", 0, func() { actual.GetAttachedVolume(it.volume, it.node) }},
		{"Epoch", 0, func() { actual.Epoch(it.volume, it.node); actual.VolumeEpoch(it.volume) }},
		{"AppendAttachments", 0, func() { attachments = actual.AppendAttachments(attachments[:0], it.volume) }},
		{"GetNodeFacts", 0, func() { actual.GetNodeFacts(it.node) }},
		{"all attachments", 1, func() {
			for range actual.AttachedVolumes() {
			}
		}},
		{"attachments of a node", 1, func() { actual.GetAttachedVolumesForNode(it.node) }},
		{"report", 1, func() { actual.Report(it.node) }},
		{"same in-use list", 0, func() { actual.SetVolumesMountedByNode(lists[nodes[0]], nodes[0]) }},
		{"same in-use list, unsorted", 0, func() { actual.SetVolumesMountedByNode(unsorted, nodes[1]) }},
		{"same attachment", 0, func() { _ = actual.MarkVolumeAsAttached(it.volume, it.spec, it.node, "/dev/disk") }},
		{"uncertain and back", 0, func() {
			_ = actual.MarkVolumeAsUncertain(it.volume, it.spec, it.node)
			_ = actual.MarkVolumeAsAttached(it.volume, it.spec, it.node, "/dev/disk")
		}},
		{"detach request", 0, func() {
			_, _ = actual.SetDetachRequestTime(it.volume, it.node)
			actual.ResetDetachRequestTime(it.volume, it.node)
		}},
		{"node health", 0, func() {
			actual.SetNodeHealth(it.node, NodeHealth{Ready: v1.ConditionTrue})
			actual.SetNodeHealth(it.node, NodeHealth{Ready: v1.ConditionFalse})
		}},
		{"detached and attached", 1, func() { // the entry
			actual.DeleteVolumeNode(it.volume, it.node)
			_ = actual.MarkVolumeAsAttached(it.volume, it.spec, it.node, "/dev/disk")
		}},
		{"pod again", 2, func() { _, _ = desired.AddPod(it.name, it.pod, it.spec, it.node) }}, // its name, in two steps
	} {
		t.Run(tc.name, func(t *testing.T) {
			require.LessOrEqual(t, testing.AllocsPerRun(50, tc.do), tc.budget)
		})
	}
}

// TestMemoryBudget holds what both worlds keep for one attachment, with the name that they make of it;
// Kubernetes keeps about 1,500 bytes.
func TestMemoryBudget(t *testing.T) {
	const n, budget = 20_000, 560
	items := benchItems(n)
	before := heapBytes()
	desired := benchDesired(t, items)
	actual := NewActualStateOfWorld(nil)
	for v := range desired.VolumesToAttach() {
		require.NoError(t, actual.MarkVolumeAsAttached(v.VolumeName, v.VolumeSpec, v.NodeName, "/dev/disk"))
	}
	perAttachment := (heapBytes() - before) / n
	require.Less(t, perAttachment, float64(budget))
	require.Greater(t, perAttachment, 100.0, "this measures nothing")
	runtime.KeepAlive(items)
	runtime.KeepAlive(desired)
	runtime.KeepAlive(actual)
}

func heapBytes() float64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}

// TestNamesAreShared shows that a caller who remembers the names that it is given keeps no strings of its own.
func TestNamesAreShared(t *testing.T) {
	data := func(name v1.UniqueVolumeName) *byte { return unsafe.StringData(string(name)) }
	desired, _ := newDesired(t)
	actual, _ := newActual(t)
	first := mustAddPod(t, desired, "p1", pvSpec("v1"), "a")
	again, err := desired.UpdatePod(PodUpdate{Name: "p1", Pod: testPod("p1"), Node: "b", Specs: []*VolumeSpec{pvSpec("v1")}})
	require.NoError(t, err)
	require.Same(t, data(first), data(again[0]))
	require.Same(t, data(first), data(mustAddPod(t, desired, "p2", pvSpec("v1"), "a")))

	require.NoError(t, actual.MarkVolumeAsAttached(first, pvSpec("v1"), "a", "/dev/v1"))
	require.Same(t, data(first), data(mustAttach(t, actual, "v1", "a")))
	require.Same(t, data(first), data(mustAttach(t, actual, "v1", "b")))
}
