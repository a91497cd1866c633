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

// The path of an attach that succeeded is what the driver says: the old one may belong to another disk by
// now.
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
