package cache

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

func TestAttachmentsOfAVolumeAreListedByNode(t *testing.T) {
	w, _ := newActual(t)
	var nodes []types.NodeName
	for i := range 3 * scanLimit {
		node := types.NodeName(fmt.Sprintf("node-%02d", 3*scanLimit-i))
		nodes = append(nodes, node)
		mustAttach(t, w, "shared", node)
	}
	slices.Sort(nodes)
	require.Equal(t, nodes, w.GetNodesForAttachedVolume(volumeName("shared")))
	prefix := []AttachedVolume{{NodeName: "z"}}
	all := w.AppendAttachments(prefix, volumeName("shared"))
	require.Equal(t, prefix[0], all[0])
	for i, a := range all[1:] {
		require.Equal(t, nodes[i], a.NodeName)
	}
	require.Len(t, all, 1+len(nodes))
}

// While iterating the lock is not held; else these would never return.
func TestActualIteratorsLetTheWorldChange(t *testing.T) {
	w, _ := newActual(t)
	const n = 3*chunkSize + sortLimit // more than are sorted under the lock
	for i := range n {
		mustAttach(t, w, fmt.Sprintf("v%04d", n-1-i), "a")
	}
	sorted := w.GetAttachedVolumesForNode("a")
	require.Len(t, sorted, n)
	require.True(t, slices.IsSortedFunc(sorted, compareAttachedVolume))
	report := w.Report("a").Volumes
	require.Len(t, report, n)
	require.Equal(t, "v0000", reportNames(report)[0])
	require.Equal(t, fmt.Sprintf("v%04d", n-1), reportNames(report)[n-1])
	require.Len(t, w.GetAttachedVolumes(), n)

	seen := map[v1.UniqueVolumeName]bool{}
	for a := range w.AttachedVolumesForNode("a") {
		require.False(t, seen[a.VolumeName])
		seen[a.VolumeName] = true
		require.NoError(t, w.MarkVolumeAsUncertain(a.VolumeName, nil, "a"))
	}
	require.Len(t, seen, n)
	yielded := 0
	for first := range w.AttachedVolumesForNode("a") {
		if yielded++; yielded == 1 {
			for volume := range seen {
				if volume != first.VolumeName {
					w.DeleteVolumeNode(volume, "a")
				}
			}
		}
	}
	require.LessOrEqual(t, yielded, chunkSize, "what is gone is not yielded, but for the chunk that was copied before")
	require.Equal(t, 1, w.Sizes().Pairs)
	for a := range w.AttachedVolumes() {
		w.DeleteVolumeNode(a.VolumeName, "a")
	}
	require.Zero(t, w.Sizes().Pairs)
	for range w.AttachedVolumesForNode("a") {
		t.Fatal("nothing is attached")
	}
	mustAttach(t, w, "v1", "b")
	mustAttach(t, w, "v1", "c")
	for range w.AttachedVolumes() {
		break
	}
	for range w.AttachedVolumesForNode("b") {
		break
	}
	for node := range w.Nodes() {
		w.DeleteNode(node)
	}
}

func TestCheckInvariantsFindsContradictionsOfTheActualWorld(t *testing.T) {
	pair := func(w *ActualStateOfWorld) *attachmentState { return &w.index.pair(volumeName("v1"), "a").data }
	node := func(w *ActualStateOfWorld, name types.NodeName) *actualNode { return &w.index.nodes[name].data }
	for name, breakIt := range map[string]func(w *ActualStateOfWorld){
		"state":          func(w *ActualStateOfWorld) { pair(w).state = Detached },
		"withdrawn":      func(w *ActualStateOfWorld) { pair(w).state, pair(w).withdrawn = Uncertain, true },
		"epoch":          func(w *ActualStateOfWorld) { pair(w).epoch = w.epoch + 1 },
		"epoch twice":    func(w *ActualStateOfWorld) { w.index.pair(volumeName("v2"), "a").data.epoch = pair(w).epoch },
		"scratch":        func(w *ActualStateOfWorld) { pair(w).listed = true },
		"in use":         func(w *ActualStateOfWorld) { pair(w).inUse = InUseUnknown },
		"request":        func(w *ActualStateOfWorld) { pair(w).detachRequested = 1 },
		"mounted":        func(w *ActualStateOfWorld) { node(w, "a").mounted++ },
		"remembered":     func(w *ActualStateOfWorld) { w.remembered++ },
		"remembered too": func(w *ActualStateOfWorld) { node(w, "a").inUse[volumeName("v1")] = false },
		"useless node":   func(w *ActualStateOfWorld) { node(w, "b").health = NodeHealth{} },
		"dirty":          func(w *ActualStateOfWorld) { node(w, "a").health.Deleted = true },
		"unknown list":   func(w *ActualStateOfWorld) { node(w, "b").inUse = map[v1.UniqueVolumeName]bool{"x": false} },
		"sorted":         func(w *ActualStateOfWorld) { w.index.nodes["a"].pairs = w.index.nodes["a"].pairs[:1] },
	} {
		t.Run(name, func(t *testing.T) {
			w := NewActualStateOfWorld(NewVolumePluginMgr(CSIPlugin{}))
			mustAttach(t, w, "v1", "a")
			mustAttach(t, w, "v2", "a")
			w.SetVolumesMountedByNode([]v1.UniqueVolumeName{volumeName("v1"), "other"}, "a")
			w.SetNodeHealth("b", NodeHealth{Ready: v1.ConditionTrue})
			require.NoError(t, w.CheckInvariants())
			breakIt(w)
			require.Error(t, w.CheckInvariants())
		})
	}
}
