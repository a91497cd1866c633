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

func mustGet(t testing.TB, w *ActualStateOfWorld, volume v1.UniqueVolumeName, node types.NodeName) AttachedVolume {
	t.Helper()
	a, ok := w.GetAttachedVolume(volume, node)
	require.True(t, ok)
	return a
}

func TestMarksRefuseBadInputAndChangeNothing(t *testing.T) {
	w, _ := newActual(t)
	var told recorder[Pair]
	w.Subscribe(told.add)
	for _, tc := range []struct {
		name   string
		volume v1.UniqueVolumeName
		spec   *VolumeSpec
		node   types.NodeName
		field  string
	}{
		{"no volume name", "", pvSpec("v1"), "a", "volume name"},
		{"no node name", "v", pvSpec("v1"), "", "node name"},
		{"bad spec", "v", &VolumeSpec{}, "a", "volume spec"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			requireInvalid(t, w.MarkVolumeAsAttached(tc.volume, tc.spec, tc.node, ""), tc.field)
			requireInvalid(t, w.MarkVolumeAsUncertain(tc.volume, tc.spec, tc.node), tc.field)
			if tc.volume != "" {
				_, err := w.AddVolumeNode(tc.spec, tc.node, "")
				requireInvalid(t, err, tc.field)
			}
		})
	}
	_, err := w.AddVolumeNode(nil, "a", "")
	requireInvalid(t, err, "volume spec")
	_, err = w.AddVolumeNode(inlineSpec("x"), "a", "")
	require.ErrorIs(t, err, ErrNoPlugin)
	require.False(t, w.MarkUncertainIfEpoch("", "a", 0))
	require.False(t, w.MarkUncertainIfEpoch("v", "", 0))
	w.SetVolumesMountedByNode([]v1.UniqueVolumeName{"v"}, "")
	w.SetNodeHealth("", NodeHealth{Ready: v1.ConditionTrue})
	w.DeleteNode("")
	require.Zero(t, w.Sizes())
	require.Empty(t, told.take())
}

func TestWhatIsNotThereIsNotAttached(t *testing.T) {
	w, _ := newActual(t)
	mustAttach(t, w, "v1", "b")
	v := volumeName("v1")
	require.ErrorIs(t, w.SetVolumeMountedByNode(v, "a", true), ErrNotAttached)
	require.ErrorIs(t, w.RemoveVolumeFromReportAsAttached(v, "a"), ErrNotAttached)
	_, err := w.SetDetachRequestTime(v, "a")
	require.ErrorIs(t, err, ErrNotAttached)
	require.EqualError(t, err, `set detach request time of volume "kubernetes.io/csi/disk.example.com^v1" on node "a": the actual world has no such attachment`)
	w.ResetDetachRequestTime(v, "a")
	w.AddVolumeToReportAsAttached(v, "a")
	w.DeleteVolumeNode(v, "a")
	require.Equal(t, Detached, w.GetAttachState(v, "a"))
	require.False(t, w.VolumeNodeExists(v, "a"))
	require.Zero(t, w.Epoch(v, "a"))
	require.Zero(t, w.VolumeEpoch("other"))
	require.Empty(t, w.GetAttachedVolumesForNode("a"))
	require.Empty(t, slices.Collect(w.AttachedVolumesForNode("a")))
	require.Empty(t, w.GetNodesForAttachedVolume("other"))
	require.Equal(t, ActualSizes{Volumes: 1, Nodes: 1, Pairs: 1, Dirty: 1}, w.Sizes())
}

// TestStateMachine walks every arrow of the drawing in the type's comment.
func TestStateMachine(t *testing.T) {
	const detached, uncertain, attached = Detached, Uncertain, Attached
	steps := map[string]func(t *testing.T, w *ActualStateOfWorld, v v1.UniqueVolumeName){
		"seen attached": func(t *testing.T, w *ActualStateOfWorld, v v1.UniqueVolumeName) {
			_, err := w.AddVolumeNode(pvSpec("v1"), "a", "/dev/x")
			require.NoError(t, err)
		},
		"attach succeeded": func(t *testing.T, w *ActualStateOfWorld, v v1.UniqueVolumeName) {
			require.NoError(t, w.MarkVolumeAsAttached(v, pvSpec("v1"), "a", "/dev/x"))
		},
		"outcome unknown": func(t *testing.T, w *ActualStateOfWorld, v v1.UniqueVolumeName) {
			require.NoError(t, w.MarkVolumeAsUncertain(v, pvSpec("v1"), "a"))
		},
		"outcome unknown, by epoch": func(t *testing.T, w *ActualStateOfWorld, v v1.UniqueVolumeName) {
			require.True(t, w.MarkUncertainIfEpoch(v, "a", w.Epoch(v, "a")))
		},
		"detach succeeded": func(t *testing.T, w *ActualStateOfWorld, v v1.UniqueVolumeName) { w.MarkVolumeAsDetached(v, "a") },
		"seen detached":    func(t *testing.T, w *ActualStateOfWorld, v v1.UniqueVolumeName) { w.DeleteVolumeNode(v, "a") },
		"detached, by epoch": func(t *testing.T, w *ActualStateOfWorld, v v1.UniqueVolumeName) {
			require.True(t, w.MarkDetachedIfEpoch(v, "a", w.Epoch(v, "a")))
		},
	}
	to := map[string]AttachState{
		"seen attached": attached, "attach succeeded": attached,
		"outcome unknown": uncertain, "outcome unknown, by epoch": uncertain,
		"detach succeeded": detached, "seen detached": detached, "detached, by epoch": detached,
	}
	into := map[AttachState]string{attached: "attach succeeded", uncertain: "outcome unknown", detached: "detach succeeded"}
	for from, first := range into {
		for name, step := range steps {
			t.Run(fmt.Sprintf("%v, %s", from, name), func(t *testing.T) {
				w, clock := newActual(t)
				v := volumeName("v1")
				steps[first](t, w, v)
				require.Equal(t, from, w.GetAttachState(v, "a"))
				before := w.Epoch(v, "a")
				clock.SetTime(t0.Add(time.Minute))
				step(t, w, v)
				require.Equal(t, to[name], w.GetAttachState(v, "a"))
				require.Equal(t, to[name] != Detached, w.VolumeNodeExists(v, "a"))
				require.Equal(t, to[name] == Attached, len(w.Report("a").Volumes) == 1)
				if from != to[name] {
					require.NotEqual(t, before, w.Epoch(v, "a"))
				}
				if a, ok := w.GetAttachedVolume(v, "a"); ok {
					require.Equal(t, from == to[name], a.Since.Equal(t0), "since is of the state")
				}
			})
		}
	}
}

func TestStatesHaveNames(t *testing.T) {
	require.Equal(t, "detached uncertain attached AttachState(9)", fmt.Sprint(Detached, " ", Uncertain, " ", Attached, " ", AttachState(9)))
	require.Equal(t, "unknown, not in use, mounted, InUse(9)", fmt.Sprintf("%v, %v, %v, %v", InUseUnknown, NotInUse, Mounted, InUse(9)))
}

// S1, kubernetes/kubernetes#34242
func TestSpecsUnknownAfterARestartAreFilledIn(t *testing.T) {
	w, _ := newActual(t)
	v := volumeName("v1")
	require.NoError(t, w.MarkVolumeAsAttached(v, nil, "a", "/dev/x"))
	a := mustGet(t, w, v, "a")
	require.Nil(t, a.VolumeSpec)
	require.Equal(t, []string{"v1"}, reportNames(w.Report("a").Volumes))

	spec := pvSpec("v1")
	_, err := w.AddVolumeNode(spec, "a", "")
	require.NoError(t, err)
	b := mustGet(t, w, v, "a")
	require.Same(t, spec, b.VolumeSpec)
	require.Equal(t, "/dev/x", b.DevicePath, "an unknown path does not replace a known one")
	require.NotEqual(t, a.Epoch, b.Epoch)

	require.NoError(t, w.MarkVolumeAsAttached(v, nil, "a", "/dev/x"))
	require.NoError(t, w.MarkVolumeAsUncertain(v, nil, "a"))
	require.Same(t, spec, mustGet(t, w, v, "a").VolumeSpec, "an unknown spec does not replace a known one")
}

// S2, kubernetes/kubernetes#44858
func TestSeededUncertainIsNotReportedUntilAttached(t *testing.T) {
	w, _ := newActual(t)
	v := volumeName("v1")
	require.NoError(t, w.MarkVolumeAsUncertain(v, nil, "a"))
	require.Empty(t, w.Report("a").Volumes)
	require.Zero(t, w.ReportVersion("a"))
	require.Equal(t, []types.NodeName{"a"}, w.GetNodesForAttachedVolume(v), "it may be attached, so it counts")
	require.Empty(t, w.GetAttachedVolumesPerNode())
	require.NoError(t, w.MarkVolumeAsAttached(v, pvSpec("v1"), "a", ""))
	require.Equal(t, []string{"v1"}, reportNames(w.Report("a").Volumes))
	require.Len(t, w.GetAttachedVolumesPerNode()["a"], 1)
}

// The path of an attach that succeeded is what the driver says: the old one may belong to another disk by now.
func TestAttachReplacesTheDevicePath(t *testing.T) {
	w, _ := newActual(t)
	v := mustAttach(t, w, "v1", "a")
	require.NoError(t, w.MarkVolumeAsUncertain(v, nil, "a"))
	require.Equal(t, "/dev/v1", mustGet(t, w, v, "a").DevicePath)
	require.NoError(t, w.MarkVolumeAsAttached(v, nil, "a", ""))
	require.Empty(t, mustGet(t, w, v, "a").DevicePath)
	require.Equal(t, []v1.AttachedVolume{{Name: v}}, w.Report("a").Volumes)
}

func TestEpochChangesWithStateSpecAndPathOnly(t *testing.T) {
	w, clock := newActual(t)
	v := mustAttach(t, w, "v1", "a")
	mustAttach(t, w, "v1", "b")
	other := mustAttach(t, w, "v2", "a")
	epoch, otherEpoch := w.Epoch(v, "a"), w.VolumeEpoch(other)
	spec := mustGet(t, w, v, "a").VolumeSpec

	unchanged := func() {
		t.Helper()
		require.Equal(t, epoch, w.Epoch(v, "a"))
	}
	_, err := w.SetDetachRequestTime(v, "a")
	require.NoError(t, err)
	w.SetVolumesMountedByNode([]v1.UniqueVolumeName{v}, "a")
	require.NoError(t, w.SetVolumeMountedByNode(v, "a", false))
	require.NoError(t, w.RemoveVolumeFromReportAsAttached(v, "a"))
	w.AddVolumeToReportAsAttached(v, "a")
	w.ResetDetachRequestTime(v, "a")
	clock.SetTime(t0.Add(time.Hour))
	require.NoError(t, w.MarkVolumeAsAttached(v, spec, "a", "/dev/v1"))
	require.NoError(t, w.MarkVolumeAsAttached(v, NewSpecFromPersistentVolume(spec.PersistentVolume, false), "a", "/dev/v1"))
	unchanged()
	require.Equal(t, t0, mustGet(t, w, v, "a").Since)

	volumeEpoch := w.VolumeEpoch(v)
	changed := func() {
		t.Helper()
		require.Greater(t, w.Epoch(v, "a"), epoch)
		require.Greater(t, w.VolumeEpoch(v), volumeEpoch)
		epoch, volumeEpoch = w.Epoch(v, "a"), w.VolumeEpoch(v)
	}
	require.NoError(t, w.MarkVolumeAsAttached(v, NewSpecFromPersistentVolume(spec.PersistentVolume, true), "a", "/dev/v1"))
	changed()
	require.NoError(t, w.MarkVolumeAsAttached(v, nil, "a", "/dev/y"))
	changed()
	require.NoError(t, w.MarkVolumeAsUncertain(v, nil, "a"))
	changed()
	w.DeleteVolumeNode(v, "a")
	mustAttach(t, w, "v1", "a")
	changed()
	w.DeleteVolumeNode(v, "b")
	require.Greater(t, w.VolumeEpoch(v), volumeEpoch, "an attachment less is a change of the volume")
	unchanged()
	require.Equal(t, otherEpoch, w.VolumeEpoch(other))
}

// S6, kubernetes/kubernetes#117091: an answer about an older state does no harm.
func TestMarksByEpochDoNothingAfterAChange(t *testing.T) {
	w, _ := newActual(t)
	v := mustAttach(t, w, "v1", "a")
	old := w.Epoch(v, "a")
	w.DeleteVolumeNode(v, "a")
	mustAttach(t, w, "v1", "a")
	require.False(t, w.MarkDetachedIfEpoch(v, "a", old))
	require.False(t, w.MarkUncertainIfEpoch(v, "a", old))
	require.False(t, w.MarkUncertainIfEpoch(v, "a", 0), "0 is for pairs without an entry")
	require.Equal(t, Attached, w.GetAttachState(v, "a"))

	require.True(t, w.MarkUncertainIfEpoch(v, "b", 0), "a dangling attachment was found there")
	require.Equal(t, Uncertain, w.GetAttachState(v, "b"))
	require.True(t, w.MarkDetachedIfEpoch(v, "b", w.Epoch(v, "b")))
	require.True(t, w.MarkDetachedIfEpoch(v, "b", 0), "it is detached")
}

// F2, kubernetes/kubernetes#65392
func TestDetachRequestKeepsItsFirstTimeUntilReset(t *testing.T) {
	for _, state := range []AttachState{Attached, Uncertain} {
		t.Run(state.String(), func(t *testing.T) {
			w, clock := newActual(t)
			v := mustAttach(t, w, "v1", "a")
			after := func(minutes int) time.Duration {
				clock.SetTime(t0.Add(time.Duration(minutes) * time.Minute))
				elapsed, err := w.SetDetachRequestTime(v, "a")
				require.NoError(t, err)
				return elapsed
			}
			require.Zero(t, after(20))
			if state == Uncertain {
				require.NoError(t, w.MarkVolumeAsUncertain(v, nil, "a"))
			}
			require.Equal(t, 2*time.Minute, after(22))
			require.Equal(t, t0.Add(20*time.Minute), mustGet(t, w, v, "a").DetachRequestedTime)
			w.ResetDetachRequestTime(v, "a")
			require.Zero(t, mustGet(t, w, v, "a").DetachRequestedTime)
			require.Zero(t, after(24))
			require.Equal(t, 6*time.Minute, after(30))
		})
	}
}

// Part 2 of the list of faults: "detachRequestedTime is not cleared by MarkVolumeAsAttached".
func TestAttachingEndsADetachRequest(t *testing.T) {
	w, _ := newActual(t)
	v := mustAttach(t, w, "v1", "a")
	requested := func() bool { return !mustGet(t, w, v, "a").DetachRequestedTime.IsZero() }
	request := func() {
		_, err := w.SetDetachRequestTime(v, "a")
		require.NoError(t, err)
		require.True(t, requested())
	}
	request()
	require.NoError(t, w.MarkVolumeAsAttached(v, nil, "a", "/dev/v1"))
	require.False(t, requested())

	request()
	_, err := w.AddVolumeNode(pvSpec("v1"), "a", "/dev/v1")
	require.NoError(t, err)
	require.True(t, requested(), "seeing what is known is no reason to stop a detach")
	require.NoError(t, w.MarkVolumeAsUncertain(v, nil, "a"))
	require.True(t, requested())
	_, err = w.AddVolumeNode(pvSpec("v1"), "a", "/dev/v1")
	require.NoError(t, err)
	require.False(t, requested())
}

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

// P1, kubernetes/kubernetes#101229: what is said again changes nothing and tells nobody, in whatever way the list is written.
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
		t.Run(name+", without volumes", func(t *testing.T) {
			w, _ := newActual(t)
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
		mustAttach(t, w, fmt.Sprintf("v%04d", i), "a")
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
