package cache

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// U3, kubernetes/kubernetes#109951
func TestReportHoldsOnlyWhatIsAttached(t *testing.T) {
	w, _ := newActual(t)
	v := mustAttach(t, w, "v1", "a")
	reported := func() []string { return reportNames(w.Report("a").Volumes) }
	require.Equal(t, []string{"v1"}, reported())

	require.NoError(t, w.MarkVolumeAsUncertain(v, nil, "a"))
	require.Empty(t, reported(), "it leaves the report in the same step")
	w.AddVolumeToReportAsAttached(v, "a") // what every error path of a detach does
	require.Empty(t, reported())
	require.NoError(t, w.RemoveVolumeFromReportAsAttached(v, "a"))
	w.AddVolumeToReportAsAttached(v, "a")
	require.Empty(t, reported())

	require.NoError(t, w.MarkVolumeAsAttached(v, nil, "a", "/dev/v1"))
	require.Equal(t, []string{"v1"}, reported())
	require.True(t, mustGet(t, w, v, "a").Reported)
}

// R2, kubernetes/kubernetes#27836
func TestWithdrawnVolumeComesBackOnlyWhenAskedOrAttachedAnew(t *testing.T) {
	w, _ := newActual(t)
	v := mustAttach(t, w, "v1", "a")
	mustAttach(t, w, "v2", "a")
	reported := func() []string { return reportNames(w.Report("a").Volumes) }

	require.NoError(t, w.RemoveVolumeFromReportAsAttached(v, "a"))
	require.Equal(t, []string{"v2"}, reported())
	require.False(t, mustGet(t, w, v, "a").Reported)
	require.Equal(t, Attached, w.GetAttachState(v, "a"))
	version := w.ReportVersion("a")
	require.NoError(t, w.RemoveVolumeFromReportAsAttached(v, "a"), "already out")
	mustAttach(t, w, "v1", "a") // somebody sees that it is attached, as it is until the detach is done
	require.Equal(t, []string{"v2"}, reported())
	require.Equal(t, version, w.ReportVersion("a"))

	w.AddVolumeToReportAsAttached(v, "a") // the detach did not take place
	require.Equal(t, []string{"v1", "v2"}, reported())
	require.NoError(t, w.RemoveVolumeFromReportAsAttached(v, "a"))
	require.NoError(t, w.MarkVolumeAsAttached(v, nil, "a", "/dev/v1"))
	require.Equal(t, []string{"v1", "v2"}, reported())

	require.NoError(t, w.RemoveVolumeFromReportAsAttached(v, "a"))
	require.NoError(t, w.MarkVolumeAsUncertain(v, nil, "a")) // the detach is over, with an unknown outcome
	mustAttach(t, w, "v1", "a")
	require.Equal(t, []string{"v1", "v2"}, reported())
}

// T3, kubernetes/kubernetes#88565
func TestSameSetInAnotherOrderIsTheSameReport(t *testing.T) {
	w, _ := newActual(t)
	var lists [][]v1.AttachedVolume
	for _, node := range []types.NodeName{"a", "b"} {
		handles := []string{"v3", "v1", "v2"}
		if node == "b" {
			handles = []string{"v2", "v3", "v1"}
		}
		for _, handle := range handles {
			mustAttach(t, w, handle, node)
		}
		lists = append(lists, w.Report(node).Volumes)
	}
	require.Equal(t, []string{"v1", "v2", "v3"}, reportNames(lists[0]))
	require.Equal(t, lists[0], lists[1])

	w.GetVolumesToReportAttached()
	version := w.ReportVersion("a")
	for _, handle := range []string{"v2", "v1", "v3"} {
		mustAttach(t, w, handle, "a")
		require.NoError(t, w.MarkVolumeAsAttached(volumeName(handle), pvSpec(handle), "a", "/dev/"+handle))
	}
	require.Equal(t, version, w.ReportVersion("a"))
	require.Empty(t, w.GetVolumesToReportAttached())
}

func TestReportVersionGrowsWithEveryChange(t *testing.T) {
	w, _ := newActual(t)
	var told recorder[types.NodeName]
	w.SubscribeReports(told.add)
	require.Zero(t, w.ReportVersion("a"))
	require.Equal(t, NodeReport{Node: "a", Volumes: []v1.AttachedVolume{}}, w.Report("a"))
	v := volumeName("v1")
	for i, step := range []func(){
		func() { mustAttach(t, w, "v1", "a") },
		func() { mustAttach(t, w, "v2", "a") },
		func() { require.NoError(t, w.MarkVolumeAsAttached(v, nil, "a", "/dev/other")) },
		func() { require.NoError(t, w.RemoveVolumeFromReportAsAttached(v, "a")) },
		func() { w.AddVolumeToReportAsAttached(v, "a") },
		func() { require.NoError(t, w.MarkVolumeAsUncertain(v, nil, "a")) },
		func() { w.DeleteVolumeNode(volumeName("v2"), "a") },
		func() { w.SetNodeStatusUpdateNeeded("a") },
	} {
		step()
		require.Equal(t, uint64(i+1), w.ReportVersion("a"))
		require.Equal(t, w.ReportVersion("a"), w.Report("a").Version)
		require.Equal(t, []types.NodeName{"a"}, told.take())
	}
	w.SetVolumesMountedByNode([]v1.UniqueVolumeName{v}, "a")
	w.DeleteVolumeNode(v, "a") // was Uncertain, so not in the report
	require.Equal(t, uint64(8), w.ReportVersion("a"))
	require.Empty(t, told.take())
}

// A writer remembers which version of a node it has written. If versions began anew, it would take a changed
// list for a written one.
func TestReportVersionNeverGoesBackEvenIfTheNodeIsForgotten(t *testing.T) {
	w, _ := newActual(t)
	for range 5 {
		v := mustAttach(t, w, "v1", "a")
		w.DeleteVolumeNode(v, "a")
	}
	last := w.ReportVersion("a")
	require.Equal(t, uint64(10), last)
	require.Empty(t, w.Report("a").Volumes)
	require.Equal(t, last, w.Report("a").Version, "the empty list has a version too, for whoever waits for it")
	w.SetNodeHealth("a", NodeHealth{Ready: v1.ConditionTrue})
	require.Equal(t, last, w.ReportVersion("a"))
	mustAttach(t, w, "v1", "a")
	require.Greater(t, w.ReportVersion("a"), last)
}

func TestReportsAreHandedOutOnceForEachChange(t *testing.T) {
	w, _ := newActual(t)
	v := mustAttach(t, w, "v1", "a")
	mustAttach(t, w, "v2", "b")
	require.Equal(t, 2, w.Sizes().Dirty)
	require.Equal(t, map[types.NodeName][]v1.AttachedVolume{
		"a": {{Name: v, DevicePath: "/dev/v1"}},
		"b": {{Name: volumeName("v2"), DevicePath: "/dev/v2"}},
	}, w.GetVolumesToReportAttached())
	require.Empty(t, w.GetVolumesToReportAttached())

	w.SetNodeStatusUpdateNeeded("b") // the write failed
	require.Equal(t, []types.NodeName{"b"}, keys(w.GetVolumesToReportAttached()))

	require.NoError(t, w.MarkVolumeAsUncertain(v, nil, "a"))
	changed, list := w.GetVolumesToReportAttachedForNode("a")
	require.True(t, changed)
	require.Equal(t, []v1.AttachedVolume{}, list, "an empty list clears the status")
	changed, list = w.GetVolumesToReportAttachedForNode("a")
	require.False(t, changed)
	require.Nil(t, list)

	mustAttach(t, w, "v3", "b")
	require.NoError(t, w.ResetNodeStatusUpdateNeeded("b"))
	require.Empty(t, w.GetVolumesToReportAttached())

	w.DeleteVolumeNode(v, "a") // Uncertain, so no change
	w.DeleteVolumeNode(volumeName("v2"), "b")
	w.DeleteVolumeNode(volumeName("v3"), "b")
	require.Equal(t, map[types.NodeName][]v1.AttachedVolume{"b": {}}, w.GetVolumesToReportAttached(), "also when the node is forgotten")
	require.Zero(t, w.Sizes())
}

func keys(reports map[types.NodeName][]v1.AttachedVolume) (nodes []types.NodeName) {
	for node := range reports {
		nodes = append(nodes, node)
	}
	return nodes
}

// N1, kubernetes/kubernetes#49549
func TestNothingIsWrittenForNodesWithoutAnEntry(t *testing.T) {
	w, _ := newActual(t)
	w.SetNodeStatusUpdateNeeded("nowhere")
	require.Empty(t, w.GetVolumesToReportAttached())
	require.ErrorIs(t, w.ResetNodeStatusUpdateNeeded("nowhere"), ErrNodeUnknown)
	require.Zero(t, w.Sizes())
}

// Part 2 of the list of faults: "nodesToUpdateStatusFor never shrinks".
func TestManyChangedReportsAreHandedOutAndForgotten(t *testing.T) {
	w, _ := newActual(t)
	const nodes = 1000
	for i := range nodes {
		mustAttach(t, w, "v1", types.NodeName(fmt.Sprintf("node-%d", i)))
	}
	reports := w.GetVolumesToReportAttached()
	require.Len(t, reports, nodes)
	for _, report := range reports {
		require.Len(t, report, 1)
	}
	for i := range nodes {
		w.DeleteVolumeNode(volumeName("v1"), types.NodeName(fmt.Sprintf("node-%d", i)))
	}
	require.Equal(t, ActualSizes{Dirty: nodes}, w.Sizes())
	require.Len(t, w.GetVolumesToReportAttached(), nodes)
	require.Zero(t, w.Sizes())
}
