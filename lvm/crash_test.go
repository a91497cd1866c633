package lvm_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stateofworld/stateofworld/fake"
	"github.com/stateofworld/stateofworld/lvm"
)

// crashCase is one operation that is cut off at every command.
type crashCase struct {
	name    string
	prepare func(t *testing.T, l *fake.LVM)
	run     func(t *testing.T, l *fake.LVM) error
	check   func(t *testing.T, l *fake.LVM)
}

const secret = "data of the tenant before"

// TestOperationsThatAreCutOffAnywhereAreFinishedByTheNextAttempt stops the process before, during and after every
// command of an operation, restarts it (or the machine), tries again, and finds what there would be without all that:
// one volume, nothing leaked, nothing foreign touched.
func TestOperationsThatAreCutOffAnywhereAreFinishedByTheNextAttempt(t *testing.T) {
	create := func(change func(*lvm.CreateOptions)) func(t *testing.T, l *fake.LVM) error {
		return func(t *testing.T, l *fake.LVM) error {
			o := lvm.CreateOptions{VG: "vg0", Name: "a", Size: 8 << 20, Tags: []string{"owner"}}
			if change != nil {
				change(&o)
			}
			lv, err := l.Create(t.Context(), o)
			if err == nil {
				require.Equal(t, lvm.StageReady, lv.Stage)
			}
			return err
		}
	}
	ready := func(names ...string) func(t *testing.T, l *fake.LVM) {
		return func(t *testing.T, l *fake.LVM) {
			lvs, err := l.List(t.Context(), "vg0")
			require.NoError(t, err)
			var got []string
			for _, lv := range lvs {
				require.Equal(t, lvm.StageReady, lv.Stage)
				got = append(got, lv.LV)
			}
			slices.Sort(names)
			require.Equal(t, names, got)
			if slices.Contains(names, "a") {
				lv, err := l.Get(t.Context(), vg0a)
				require.NoError(t, err)
				require.Equal(t, []string{"owner"}, lv.Tags)
			}
		}
	}
	// dirty leaves the signature of a filesystem in all free extents.
	dirty := func(t *testing.T, l *fake.LVM) {
		all := lvm.CreateOptions{VG: "vg0", Name: "before", Size: 1}
		for range 6 {
			lv, err := l.Create(t.Context(), all)
			require.NoError(t, err)
			require.NoError(t, l.Write(lv.Name, "", "ext4"))
			all.Name += "x"
		}
		lvs, err := l.List(t.Context(), "vg0")
		require.NoError(t, err)
		for _, lv := range lvs {
			if lv.LV != "other" {
				require.NoError(t, l.Remove(t.Context(), lv.Name, lvm.RemoveOptions{}))
			}
		}
	}
	with := func(names ...string) func(t *testing.T, l *fake.LVM) {
		return func(t *testing.T, l *fake.LVM) {
			for _, name := range names {
				switch name {
				case "s":
					require.NoError(t, l.Write(vg0a, secret, ""))
					_, err := l.Snapshot(t.Context(), lvm.SnapshotOptions{VG: "vg0", Name: "s", Origin: "a", Size: 8 << 20})
					require.NoError(t, err)
					require.NoError(t, l.Write(vg0a, secret+" 2", "ext4"))
				case "pool":
					_, err := l.Create(t.Context(), lvm.CreateOptions{VG: "vg0", Name: "pool", Size: 8 << 20, Layout: lvm.ThinPool})
					require.NoError(t, err)
				default:
					require.NoError(t, create(nil)(t, l))
					require.NoError(t, l.Write(vg0a, secret, "ext4"))
				}
			}
		}
	}
	remove := func(o lvm.RemoveOptions) func(t *testing.T, l *fake.LVM) error {
		return func(t *testing.T, l *fake.LVM) error { return l.Remove(t.Context(), vg0a, o) }
	}
	clean := func(t *testing.T, l *fake.LVM) {
		ready("other")(t, l)
		group, err := l.VolumeGroup(t.Context(), "vg0")
		require.NoError(t, err)
		all, err := l.Create(t.Context(), lvm.CreateOptions{VG: "vg0", Name: "all", Size: group.Free})
		require.NoError(t, err)
		contents, err := l.Read(all.Name)
		require.NoError(t, err)
		require.Empty(t, contents)
	}
	cases := []crashCase{
		{"create linear", dirty, create(func(o *lvm.CreateOptions) { o.Size = 4 << 20 }), func(t *testing.T, l *fake.LVM) {
			ready("a", "other")(t, l)
			contents, err := l.Read(vg0a)
			require.NoError(t, err)
			require.Empty(t, contents, "what was found half made and not wiped must not be handed out")
		}},
		{"create striped", nil, create(func(o *lvm.CreateOptions) { o.Layout = lvm.Striped }), ready("a", "other")},
		{"create raid1", nil, create(func(o *lvm.CreateOptions) { o.Layout = lvm.RAID1 }), ready("a", "other")},
		{"create thin pool", nil, create(func(o *lvm.CreateOptions) { o.Layout = lvm.ThinPool }), ready("a", "other")},
		{"create thin", with("pool"), create(func(o *lvm.CreateOptions) { o.Layout, o.ThinPool = lvm.Thin, "pool" }), ready("a", "other", "pool")},
		{"snapshot", with("a"), func(t *testing.T, l *fake.LVM) error {
			_, err := l.Snapshot(t.Context(), lvm.SnapshotOptions{VG: "vg0", Name: "s", Origin: "a", Size: 8 << 20})
			return err
		}, ready("a", "other", "s")},
		{"grow", with("a"), func(t *testing.T, l *fake.LVM) error {
			lv, err := l.Grow(t.Context(), vg0a, 16<<20)
			if err == nil {
				require.EqualValues(t, 16<<20, lv.Size)
			}
			return err
		}, ready("a", "other")},
		{"rename", with("a"), func(t *testing.T, l *fake.LVM) error {
			_, err := l.Rename(t.Context(), vg0a, "b")
			return err
		}, ready("b", "other")},
		{"remove", with("a"), remove(lvm.RemoveOptions{}), ready("other")},
		{"remove with snapshots", with("a", "s"), remove(lvm.RemoveOptions{Cascade: true}), ready("other")},
		{"remove and zero", with("a"), remove(lvm.RemoveOptions{Wipe: lvm.WipeZero}), clean},
		{"remove and discard", with("a"), remove(lvm.RemoveOptions{Wipe: lvm.WipeDiscard}), clean},
		{"remove and wipe signatures", with("a"), remove(lvm.RemoveOptions{Wipe: lvm.WipeSignatures}), ready("other")},
		{"remove with snapshots and zero", with("a", "s"), remove(lvm.RemoveOptions{Wipe: lvm.WipeZero, Cascade: true}), clean},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			steps := 0
			for _, restart := range []string{"process", "machine"} {
				for _, when := range []fake.StopWhen{fake.StopBefore, fake.StopDuring, fake.StopAfter} {
					for n := 1; tc.cutOff(t, n, when, restart); n++ {
						steps++
					}
				}
			}
			require.GreaterOrEqual(t, steps, 10, "the operation has more commands than that")
		})
	}
}

// cutOff stops one run of the operation at the n-th command. It is false when the operation has fewer.
func (tc crashCase) cutOff(t *testing.T, n int, when fake.StopWhen, restart string) (cut bool) {
	where := fmt.Sprintf("%s command %d, %s restarted", when, n, restart)
	l := fake.NewLVM()
	l.AddVG("vg0", 4<<20, fake.Disk{Device: "/dev/sda", Size: 120 << 20}, fake.Disk{Device: "/dev/sdb", Size: 120 << 20})
	other, err := l.Create(t.Context(), lvm.CreateOptions{VG: "vg0", Name: "other", Size: 4 << 20})
	require.NoError(t, err)
	require.NoError(t, l.Write(other.Name, "foreign", "xfs"))
	if tc.prepare != nil {
		tc.prepare(t, l)
	}
	l.ForgetCalls()
	l.StopAt(n, when)
	err = tc.run(t, l)
	if cut = l.Stopped(); cut {
		require.ErrorIs(t, err, fake.ErrStopped, where)
	} else {
		require.NoError(t, err, where)
	}
	first := l.Calls()
	if restart == "machine" {
		l.Reboot()
	} else {
		l.Restart()
	}
	// What the agent does when it starts, and what the user's wish makes it do again.
	_, err = l.FinishRemovals(t.Context(), "vg0")
	require.NoError(t, err, "%s\n%q", where, first)
	require.NoError(t, tc.run(t, l), "%s\n%q", where, first)
	_, err = l.Activate(t.Context(), other.Name, lvm.ActivateOptions{})
	require.NoError(t, err)
	if _, err := l.Get(t.Context(), vg0a); err == nil {
		_, err := l.Activate(t.Context(), vg0a, lvm.ActivateOptions{})
		require.NoError(t, err)
	}
	if !t.Run(where, func(t *testing.T) { tc.check(t, l) }) {
		t.Logf("first run: %q", first)
	}
	require.NoError(t, l.Check(), where)
	same, err := l.Get(t.Context(), other.Name)
	require.NoError(t, err)
	require.Equal(t, other.UUID, same.UUID)
	contents, err := l.Read(other.Name)
	require.NoError(t, err)
	require.Equal(t, []string{"foreign", "xfs"}, contents, where)
	return cut
}

// The commit point of a removal is the renaming: the name can be used again while the old data is still there, and that
// does not come back.
func TestNameIsFreeWhileTheOldVolumeIsStillWiped(t *testing.T) {
	l := fake.NewLVM()
	l.AddVG("vg0", 4<<20, fake.Disk{Device: "/dev/sda", Size: 120 << 20})
	ctx := t.Context()
	o := lvm.CreateOptions{VG: "vg0", Name: "a", Size: 8 << 20}
	old, err := l.Create(ctx, o)
	require.NoError(t, err)
	held := l.Hold("blkdiscard")
	removed := make(chan error, 1)
	go func() { removed <- l.Remove(ctx, vg0a, lvm.RemoveOptions{Wipe: lvm.WipeZero}) }()
	<-held.Started()

	fresh, err := l.Create(ctx, o)
	require.NoError(t, err, "the group is not locked while a volume is wiped")
	require.NotEqual(t, old.UUID, fresh.UUID)
	lvs, err := l.List(ctx, "vg0")
	require.NoError(t, err)
	require.Len(t, lvs, 2)
	require.Equal(t, lvm.StageRemoving, lvs[1].Stage)
	require.Equal(t, "a", lvs[1].Removed)
	require.Equal(t, old.UUID, lvs[1].UUID)
	held.Release()
	require.NoError(t, <-removed)
	left, err := l.Get(ctx, vg0a)
	require.NoError(t, err)
	require.Equal(t, fresh.UUID, left.UUID)
}

// A reply that is lost, at any command, is an error whose outcome is unknown, and the next attempt finishes.
func TestLostRepliesAreErrorsAndHealed(t *testing.T) {
	for _, program := range []string{"lvs", "lvcreate", "lvchange"} {
		l := fake.NewLVM()
		l.AddVG("vg0", 4<<20, fake.Disk{Device: "/dev/sda", Size: 120 << 20})
		o := lvm.CreateOptions{VG: "vg0", Name: "a", Size: 8 << 20}
		l.LoseReply(program)
		_, err := l.Create(t.Context(), o)
		require.Error(t, err, program)
		lv, err := l.Create(t.Context(), o)
		require.NoError(t, err, program)
		require.Equal(t, lvm.StageReady, lv.Stage)
		lvs, err := l.List(t.Context(), "vg0")
		require.NoError(t, err)
		require.Len(t, lvs, 1)
		require.NoError(t, l.Check())
	}
}
