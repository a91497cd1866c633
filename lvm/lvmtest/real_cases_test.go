//go:build linux

package lvmtest_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/stateofworld/stateofworld/executor/command"
	"github.com/stateofworld/stateofworld/lvm"
)

func (r *realLVM) create(lv string, extents uint64, devices ...string) lvm.LogicalVolume {
	r.t.Helper()
	out, err := r.backend().Create(r.t.Context(), lvm.CreateOptions{VG: r.vg, Name: lv, Size: extents << 22, PhysicalVolumes: devices})
	require.NoError(r.t, err)
	return out
}

// A disk of the group is gone: nothing can be made or grown, what does not lie on it is whole, and what does can be
// removed.
func TestRealLVMWithMissingPV(t *testing.T) {
	r := newRealLVM(t, 2)
	a, b := r.create("a", 1, r.devices[0]), r.create("b", 1, r.devices[1])
	if r.deviceMapper {
		r.lvm2("vgchange", "-an", r.vg)
	}
	detach(t, r.devices[1])
	c, ctx := r.backend(), t.Context()
	vg, err := c.VolumeGroup(ctx, r.vg)
	require.NoError(t, err)
	require.True(t, vg.Partial)
	require.Equal(t, 1, vg.MissingPVs)
	require.Len(t, vg.PVs, 2)
	require.True(t, vg.PVs[0].Missing && vg.PVs[0].Device == "")
	lvs, err := c.List(ctx, r.vg)
	require.NoError(t, err)
	require.Len(t, lvs, 2)
	require.Equal(t, lvm.HealthOK, lvs[0].Health)
	require.Equal(t, lvm.HealthPartial, lvs[1].Health)

	for _, layout := range []lvm.Layout{lvm.Linear, lvm.Striped} {
		_, err = c.Create(ctx, lvm.CreateOptions{VG: r.vg, Name: "c", Size: 1, Layout: layout})
		require.ErrorIs(t, err, lvm.ErrPartialVG)
	}
	_, err = c.Grow(ctx, a.Name, 8<<20)
	require.ErrorIs(t, err, lvm.ErrPartialVG)
	_, err = c.Capacity(ctx, lvm.CapacityOptions{VG: r.vg})
	require.ErrorIs(t, err, lvm.ErrPartialVG)
	again, err := c.Create(ctx, lvm.CreateOptions{VG: r.vg, Name: "a", Size: 4 << 20})
	require.NoError(t, err, "what is there already is there")
	require.Equal(t, a.UUID, again.UUID)
	if r.deviceMapper {
		require.ErrorIs(t, c.Remove(ctx, b.Name, lvm.RemoveOptions{Wipe: lvm.WipeZero}), lvm.ErrPartialVG, "what cannot be reached cannot be wiped")
	}
	require.NoError(t, c.Remove(ctx, b.Name, lvm.RemoveOptions{}))
	_, err = c.Get(ctx, b.Name)
	require.ErrorIs(t, err, lvm.ErrNotFound)
}

func detach(t *testing.T, device string) {
	t.Helper()
	out, err := exec.Command("losetup", "--detach", device).CombinedOutput()
	require.NoError(t, err, "%s", out)
}

// A copy of a disk appears, as a multipath device that is not set up, or a clone: reading goes on, and nothing is
// changed.
func TestRealLVMWithDuplicatePV(t *testing.T) {
	r := newRealLVM(t, 2)
	a := r.create("a", 1)
	copied := filepath.Join(t.TempDir(), "copy")
	from, err := os.ReadFile(r.images[0])
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(copied, from, 0o600))
	r.configure(append([]string{r.attach(copied)}, r.devices...))
	t.Cleanup(func() { r.configure(r.devices) })

	c, ctx := r.backend(), t.Context()
	vg, err := c.VolumeGroup(ctx, r.vg)
	require.NoError(t, err)
	duplicates := 0
	for _, pv := range vg.PVs {
		if pv.Duplicate {
			duplicates++
		}
	}
	require.Len(t, vg.PVs, 2)
	require.Equal(t, 1, duplicates)
	lv, err := c.Get(ctx, a.Name)
	require.NoError(t, err)
	require.Equal(t, a.UUID, lv.UUID)
	_, err = c.Create(ctx, lvm.CreateOptions{VG: r.vg, Name: "b", Size: 1})
	require.ErrorIs(t, err, lvm.ErrDuplicatePV)
	_, err = c.Create(ctx, lvm.CreateOptions{VG: r.vg, Name: "b", Size: 1, Layout: lvm.Striped})
	require.ErrorIs(t, err, lvm.ErrDuplicatePV)
	require.ErrorIs(t, c.Remove(ctx, a.Name, lvm.RemoveOptions{}), lvm.ErrDuplicatePV)
	_, err = c.Get(ctx, a.Name)
	require.NoError(t, err)
}

// A group that is on its way to another host, or belongs to one, is none whose volumes are absent.
func TestRealLVMWithExportedAndForeignGroups(t *testing.T) {
	r := newRealLVM(t, 1)
	a := r.create("a", 1)
	if r.deviceMapper {
		r.lvm2("vgchange", "-an", r.vg)
	}
	c, ctx := r.backend(), t.Context()
	every := func(kind error) {
		t.Helper()
		_, err := c.Get(ctx, a.Name)
		require.ErrorIs(t, err, kind)
		_, err = c.List(ctx, r.vg)
		require.ErrorIs(t, err, kind)
		_, err = c.Create(ctx, lvm.CreateOptions{VG: r.vg, Name: "b", Size: 1})
		require.ErrorIs(t, err, kind)
		require.ErrorIs(t, c.Remove(ctx, a.Name, lvm.RemoveOptions{}), kind)
		_, err = c.Capacity(ctx, lvm.CapacityOptions{VG: r.vg})
		require.ErrorIs(t, err, kind)
	}
	r.lvm2("vgexport", "-qq", r.vg)
	vg, err := c.VolumeGroup(ctx, r.vg)
	require.NoError(t, err)
	require.True(t, vg.Exported)
	every(lvm.ErrExported)
	r.lvm2("vgimport", "-qq", r.vg)
	_, err = c.Get(ctx, a.Name)
	require.NoError(t, err)

	r.lvm2("vgchange", "-qq", "-y", "--systemid", "other", r.vg)
	every(lvm.ErrForeign)
	vgs, err := c.VolumeGroups(ctx)
	require.NoError(t, err)
	require.Empty(t, vgs)
}

// Two processes share a group: at worst an attempt fails, and is right the next time.
func TestRealLVMWithTwoProcesses(t *testing.T) {
	r := newRealLVM(t, 1)
	backends := []*lvm.CLI{r.backend(), r.backend()}
	var group sync.WaitGroup
	for i, c := range backends {
		group.Go(func() {
			for n := range 4 {
				name := fmt.Sprintf("lv%d", n)
				_, err := c.Create(t.Context(), lvm.CreateOptions{VG: r.vg, Name: name, Size: 1, Tags: []string{fmt.Sprint(i)}})
				if err != nil && !errors.Is(err, lvm.ErrExists) && !errors.Is(err, lvm.ErrNotFound) {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
	for n := range 4 {
		lv, err := backends[0].Create(t.Context(), lvm.CreateOptions{VG: r.vg, Name: fmt.Sprintf("lv%d", n), Size: 1})
		require.NoError(t, err)
		require.Equal(t, lvm.StageReady, lv.Stage)
	}
	vg, err := backends[0].VolumeGroup(t.Context(), r.vg)
	require.NoError(t, err)
	require.Equal(t, vg.Extents-4, vg.FreeExtents)
}

// The process, and the command of lvm2 that it has just started, are killed: what is there afterwards is whole or known
// to be half made, and the next attempts finish.
func TestRealLVMKilledInTheMiddle(t *testing.T) {
	r := newRealLVM(t, 1)
	programs := []string{"lvcreate", "lvchange", "lvremove"}
	if r.deviceMapper {
		programs = append(programs, "lvrename", "wipefs")
	}
	for _, program := range programs {
		cmd := exec.Command(os.Args[0], "-test.run=^TestHelperChurn$")
		cmd.Env = append(os.Environ(), "LVM_TEST_CHURN="+r.vg, "LVM_TEST_SYSTEM_DIR="+strings.TrimPrefix(r.options.Env[0], "LVM_SYSTEM_DIR="),
			fmt.Sprintf("LVM_TEST_MODE=%t %t", r.options.NoDeviceMapper, r.options.InContainer))
		require.NoError(t, cmd.Start())
		child := 0
		for deadline := time.Now().Add(time.Minute); child == 0 && time.Now().Before(deadline); {
			child = childRunning(cmd.Process.Pid, program)
		}
		// The process first, so that it cannot go on when its command is gone.
		require.NoError(t, cmd.Process.Signal(syscall.SIGSTOP))
		syscall.Kill(-child, syscall.SIGKILL)
		require.NoError(t, cmd.Process.Kill())
		require.Error(t, cmd.Wait())
		require.NotZero(t, child, "%s was never seen", program)

		c, ctx := r.backend(), t.Context()
		for _, name := range []string{"a", "b"} {
			lv, err := c.Create(ctx, lvm.CreateOptions{VG: r.vg, Name: name, Size: 8 << 20})
			require.NoError(t, err)
			require.Equal(t, lvm.StageReady, lv.Stage)
			require.EqualValues(t, 8<<20, lv.Size)
			require.NoError(t, c.Remove(ctx, lv.Name, lvm.RemoveOptions{}))
		}
		_, err := c.FinishRemovals(ctx, r.vg)
		require.NoError(t, err)
		vg, err := c.VolumeGroup(ctx, r.vg)
		require.NoError(t, err)
		require.Equal(t, vg.Extents, vg.FreeExtents, "nothing leaked")
		r.lvm2("vgck", r.vg)
	}
}

// childRunning is the child of a process that runs a program, or 0.
func childRunning(pid int, program string) int {
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, list := range lists {
		children, _ := os.ReadFile(list)
		for child := range strings.FieldsSeq(string(children)) {
			name, _ := os.ReadFile("/proc/" + child + "/comm")
			if strings.TrimSpace(string(name)) == program {
				n, _ := strconv.Atoi(child)
				return n
			}
		}
	}
	return 0
}

// TestHelperChurn is no test: it is the process that TestRealLVMKilledInTheMiddle kills.
func TestHelperChurn(t *testing.T) {
	vg := os.Getenv("LVM_TEST_CHURN")
	if vg == "" {
		t.Skip("only as the child of another test")
	}
	o := lvm.Options{Env: []string{"LVM_SYSTEM_DIR=" + os.Getenv("LVM_TEST_SYSTEM_DIR")}}
	if _, err := fmt.Sscan(os.Getenv("LVM_TEST_MODE"), &o.NoDeviceMapper, &o.InContainer); err != nil {
		t.Fatal(err)
	}
	c := lvm.NewCLI(command.Host(), o)
	policy := lvm.WipeNone
	if !o.NoDeviceMapper {
		policy = lvm.WipeSignatures
	}
	for ctx := context.Background(); ; {
		for _, name := range []string{"a", "b"} {
			if _, err := c.Create(ctx, lvm.CreateOptions{VG: vg, Name: name, Size: 8 << 20}); err != nil {
				t.Fatal(err)
			}
			if err := c.Remove(ctx, lvm.Name{VG: vg, LV: name}, lvm.RemoveOptions{Wipe: policy}); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// Filesystems keep their data while the volume under them grows, mounted.
func TestRealFilesystemsGrow(t *testing.T) {
	requireLVM(t)
	if !hasDeviceMapper() {
		t.Skip("needs device-mapper in the kernel")
	}
	for _, fs := range []struct {
		name   string
		disks  int
		size   uint64
		mkfs   []string
		resize func(device, dir string) []string
	}{
		{"ext4", 1, 16 << 20, []string{"mkfs.ext4", "-q"}, func(device, _ string) []string { return []string{"resize2fs", device} }},
		{"xfs", 8, 320 << 20, []string{"mkfs.xfs", "-q"}, func(_, dir string) []string { return []string{"xfs_growfs", dir} }},
	} {
		t.Run(fs.name, func(t *testing.T) {
			for _, tool := range []string{fs.mkfs[0], fs.resize("", "")[0]} {
				if _, err := exec.LookPath(tool); err != nil {
					t.Skipf("needs %s (packages e2fsprogs, xfsprogs)", tool)
				}
			}
			r := newRealLVM(t, fs.disks)
			tool := func(argv ...string) {
				t.Helper()
				out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput()
				require.NoError(t, err, "%s: %s", argv, out)
			}
			lv := r.create("a", fs.size>>22)
			device, dir := r.device(lv.Name), t.TempDir()
			tool(append(fs.mkfs, device)...)
			tool("mount", "-t", fs.name, device, dir)
			mounted := true
			t.Cleanup(func() {
				if mounted {
					tool("umount", dir)
				}
			})
			data := strings.Repeat("kept", 1<<18)
			require.NoError(t, os.WriteFile(filepath.Join(dir, "file"), []byte(data), 0o600))
			blocks := func() uint64 {
				var st syscall.Statfs_t
				require.NoError(t, syscall.Statfs(dir, &st))
				return st.Blocks * uint64(st.Bsize)
			}
			before := blocks()
			grown, err := r.backend().Grow(t.Context(), lv.Name, fs.size+16<<20)
			require.NoError(t, err)
			require.Equal(t, fs.size+16<<20, grown.Size)
			require.Equal(t, lvm.Yes, grown.Open)
			tool(fs.resize(device, dir)...)
			require.Greater(t, blocks(), before)
			got, err := os.ReadFile(filepath.Join(dir, "file"))
			require.NoError(t, err)
			require.Equal(t, data, string(got))

			err = r.backend().Remove(t.Context(), lv.Name, lvm.RemoveOptions{Wipe: lvm.WipeSignatures})
			require.ErrorIs(t, err, lvm.ErrInUse, "mounted")
			tool("umount", dir)
			mounted = false
			require.NoError(t, r.backend().Remove(t.Context(), lv.Name, lvm.RemoveOptions{Wipe: lvm.WipeSignatures}))
		})
	}
}
