package fake_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stateofworld/stateofworld/executor/command"
	"github.com/stateofworld/stateofworld/fake"
	"github.com/stateofworld/stateofworld/lvm"
	"github.com/stateofworld/stateofworld/lvm/lvmtest"
)

const mib = 1 << 20

// newLVM is a system with one group, "vg0", of three disks of 60 MiB.
func newLVM(t *testing.T, o lvm.Options) *fake.LVM {
	t.Helper()
	l := fake.NewLVMWithOptions(o)
	l.AddVG("vg0", 4*mib, fake.Disk{Device: "/dev/sda", Size: 60 * mib}, fake.Disk{Device: "/dev/sdb", Size: 60 * mib}, fake.Disk{Device: "/dev/sdc", Size: 60 * mib})
	t.Cleanup(func() { require.NoError(t, l.Check()) })
	return l
}

func TestLVMIsABackend(t *testing.T) {
	lvmtest.Run(t, func(t *testing.T) lvmtest.Setup {
		l := newLVM(t, lvm.Options{})
		return lvmtest.Setup{
			Backend: l, VG: "vg0", DeviceMapper: true,
			Hold: func(t *testing.T, name lvm.Name) func() {
				require.NoError(t, l.Mount(name))
				return func() { require.NoError(t, l.Close(name)) }
			},
			Write: func(t *testing.T, name lvm.Name, data string) { require.NoError(t, l.Write(name, data, "ext4")) },
			Contains: func(t *testing.T, name lvm.Name, data string) bool {
				contents, err := l.Read(name)
				require.NoError(t, err)
				return slices.Contains(contents, data)
			},
			Reboot: func(*testing.T) { l.Reboot() },
		}
	})
}

func TestLVMWithoutDeviceMapperIsABackend(t *testing.T) {
	lvmtest.Run(t, func(t *testing.T) lvmtest.Setup {
		return lvmtest.Setup{Backend: newLVM(t, lvm.Options{NoDeviceMapper: true}), VG: "vg0"}
	})
}

// L17: what is nearly full takes no new volumes, with or without a ratio.
func TestLVMFullPool(t *testing.T) {
	for _, full := range [][2]float64{{95, 0}, {0, 97}} {
		l, ctx := newLVM(t, lvm.Options{}), t.Context()
		pool, err := l.Create(ctx, lvm.CreateOptions{VG: "vg0", Name: "pool", Size: 20 * mib, Layout: lvm.ThinPool})
		require.NoError(t, err)
		thin := lvm.CreateOptions{VG: "vg0", Name: "a", Size: 8 * mib, Layout: lvm.Thin, ThinPool: "pool"}
		_, err = l.Create(ctx, thin)
		require.NoError(t, err)
		require.NoError(t, l.FillPool(pool.Name, full[0], full[1]))
		thin.Name = "b"
		_, err = l.Create(ctx, thin)
		require.ErrorIs(t, err, lvm.ErrNoSpace)
		_, err = l.Snapshot(ctx, lvm.SnapshotOptions{VG: "vg0", Name: "s", Origin: "a"})
		require.ErrorIs(t, err, lvm.ErrNoSpace)
		require.NoError(t, l.FillPool(pool.Name, 94, 94))
		_, err = l.Create(ctx, thin)
		require.NoError(t, err)
	}
}

func TestLVMDisksAndGroupsInTrouble(t *testing.T) {
	a := lvm.Name{VG: "vg0", LV: "a"}
	for what, tc := range map[string]struct {
		trouble      func(*fake.LVM, bool)
		create, look error
	}{
		"missing":   {func(l *fake.LVM, on bool) { l.SetMissing("/dev/sda", on) }, lvm.ErrPartialVG, nil},
		"duplicate": {func(l *fake.LVM, on bool) { l.SetDuplicate("/dev/sda", on) }, lvm.ErrDuplicatePV, nil},
		"exported":  {func(l *fake.LVM, on bool) { l.SetExported("vg0", on) }, lvm.ErrExported, lvm.ErrExported},
		"foreign":   {func(l *fake.LVM, on bool) { l.SetForeign("vg0", on) }, lvm.ErrForeign, lvm.ErrForeign},
	} {
		t.Run(what, func(t *testing.T) {
			l, ctx := newLVM(t, lvm.Options{}), t.Context()
			_, err := l.Create(ctx, lvm.CreateOptions{VG: "vg0", Name: "a", Size: mib})
			require.NoError(t, err)
			tc.trouble(l, true)
			for _, layout := range []lvm.Layout{lvm.Linear, lvm.Striped} {
				_, err = l.Create(ctx, lvm.CreateOptions{VG: "vg0", Name: "b", Size: mib, Layout: layout})
				require.ErrorIs(t, err, tc.create)
			}
			lv, err := l.Get(ctx, a)
			require.ErrorIs(t, err, tc.look)
			if what == "missing" {
				require.Equal(t, lvm.HealthPartial, lv.Health)
			}
			vgs, err := l.VolumeGroups(ctx)
			require.NoError(t, err)
			require.Equal(t, what == "foreign", len(vgs) == 0)
			tc.trouble(l, false)
			_, err = l.Create(ctx, lvm.CreateOptions{VG: "vg0", Name: "b", Size: mib})
			require.NoError(t, err)
		})
	}
}

// The stand-in is as dangerous as lvm2 where it can be: a backend that names too much is found out.
func TestLVMRemovesWhatIsNamed(t *testing.T) {
	l, ctx := newLVM(t, lvm.Options{}), t.Context()
	for _, name := range []string{"a", "b"} {
		_, err := l.Create(ctx, lvm.CreateOptions{VG: "vg0", Name: name, Size: mib})
		require.NoError(t, err)
	}
	result, err := l.Run(ctx, command.Command{Argv: []string{"lvremove", "-y", "vg0"}})
	require.NoError(t, err)
	require.Zero(t, result.ExitCode)
	lvs, err := l.List(ctx, "vg0")
	require.NoError(t, err)
	require.Empty(t, lvs)
	for _, argv := range [][]string{{"vgremove", "vg0"}, {"lvcreate", "--unknown", "vg0"}, {"lvcreate", "-n"}} {
		result, err := l.Run(ctx, command.Command{Argv: argv})
		require.NoError(t, err)
		require.Equal(t, 3, result.ExitCode, argv)
	}
}

func TestLVMFaults(t *testing.T) {
	l, ctx := newLVM(t, lvm.Options{}), t.Context()
	o := lvm.CreateOptions{VG: "vg0", Name: "a", Size: mib}
	l.FailNext("lvcreate", `Volume group "vg0" has insufficient free space (1 extents): 2 required.`)
	_, err := l.Create(ctx, o)
	require.ErrorIs(t, err, lvm.ErrNoSpace)
	l.StopAt(2, fake.StopAfter)
	_, err = l.Create(ctx, o)
	require.ErrorIs(t, err, fake.ErrStopped)
	require.True(t, l.Stopped())
	_, err = l.Get(ctx, lvm.Name{VG: "vg0", LV: "a"})
	require.ErrorIs(t, err, fake.ErrStopped, "nothing works until the restart")
	l.Restart()
	lv, err := l.Get(ctx, lvm.Name{VG: "vg0", LV: "a"})
	require.NoError(t, err)
	require.Equal(t, lvm.StageCreating, lv.Stage)
	l.ForgetCalls()
	_, err = l.Create(ctx, o)
	require.NoError(t, err)
	require.Equal(t, []string{
		`lvs -S lv_name="a" vg0`, `lvremove -S lv_tags={"stateofworld.creating -y vg0/a`, `lvs -S lv_name="a" vg0`, "lvcreate --addtag stateofworld.creating -L 1048576b -W y -Z y -n a -y vg0",
		"lvchange --deltag stateofworld.creating vg0/a", `lvs -S lv_name="a" vg0`,
	}, l.Calls())

	require.Error(t, l.Open(lvm.Name{VG: "vg0", LV: "absent"}))
	_, err = l.Deactivate(ctx, lv.Name)
	require.NoError(t, err)
	require.Error(t, l.Mount(lv.Name), "not active")
	require.Error(t, l.Write(lv.Name, "x", ""))
	_, err = l.Read(lv.Name)
	require.Error(t, err)
}

// A user's view of what one volume costs, in a group that holds a thousand.
func BenchmarkLVMCreateRemove(b *testing.B) {
	l, ctx := fake.NewLVM(), b.Context()
	l.AddVG("vg0", 4*mib, fake.Disk{Device: "/dev/sda", Size: 1 << 40})
	o := lvm.CreateOptions{VG: "vg0", Size: mib}
	for i := range 1000 {
		o.Name = fmt.Sprintf("lv%d", i)
		if _, err := l.Create(ctx, o); err != nil {
			b.Fatal(err)
		}
	}
	o.Name = "a"
	for b.Loop() {
		if _, err := l.Create(ctx, o); err != nil {
			b.Fatal(err)
		}
		if err := l.Remove(ctx, lvm.Name{VG: "vg0", LV: "a"}, lvm.RemoveOptions{}); err != nil {
			b.Fatal(err)
		}
		l.ForgetCalls()
	}
}
