package fake_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/stateofworld/stateofworld/executor/command"
	"github.com/stateofworld/stateofworld/fake"
)

func hostRun(t *testing.T, h *fake.Host, argv ...string) command.Result {
	t.Helper()
	result, err := h.Run(t.Context(), command.Command{Argv: argv})
	require.NoError(t, err)
	return result
}

func TestHostShowsWhatIsMountedOnTopAndHidesWhatIsBelow(t *testing.T) {
	h := fake.NewHost()
	h.Mkdir("/mnt/a/in")
	h.WriteFile("/mnt/a/file", []byte("root"))
	h.Mount("tmpfs", "/mnt/a/in", "tmpfs", "rw")
	h.WriteFile("/mnt/a/in/file", []byte("lower"))
	h.Mount("tmpfs", "/mnt/a", "tmpfs", "rw")
	h.Mount("tmpfs", "/mnt/a", "tmpfs", "rw")
	h.WriteFile("/mnt/a/file", []byte("top"))

	got, _ := h.Contents("/mnt/a/file")
	require.Equal(t, "top", got)
	_, ok := h.Contents("/mnt/a/in/file")
	require.False(t, ok, "hidden")
	table, err := h.ReadFile(t.Context(), "/proc/self/mountinfo")
	require.NoError(t, err)
	require.Equal(t, `1 1 254:0 / / rw,relatime shared:1 - ext4 /dev/root rw
2 1 0:101 / /mnt/a/in rw,relatime shared:1 - tmpfs tmpfs rw
3 1 0:102 / /mnt/a rw,relatime shared:1 - tmpfs tmpfs rw
4 3 0:103 / /mnt/a rw,relatime shared:1 - tmpfs tmpfs rw
`, string(table))

	h.Unmount("/mnt/a")
	h.Unmount("/mnt/a")
	got, _ = h.Contents("/mnt/a/in/file")
	require.Equal(t, "lower", got)
	require.Equal(t, "umount: /mnt/a: not mounted.\n", string(hostRun(t, h, "umount", "--", "/mnt/a").Stderr))
	require.ErrorIs(t, h.Remove(t.Context(), "/mnt/a/in"), syscall.EBUSY)
	h.Unmount("/mnt/a/in")
	require.NoError(t, h.Remove(t.Context(), "/mnt/a/in"))
}

func TestHostResolvesLinksAsTheKernelDoes(t *testing.T) {
	h := fake.NewHost()
	h.Mkdir("/a/b")
	h.Symlink("../a/b", "/a/rel")
	h.Symlink("/a/rel", "/abs")
	h.Symlink("/loop2", "/loop1")
	h.Symlink("/loop1", "/loop2")
	h.Symlink("/nowhere", "/a/dangling")
	for path, want := range map[string]string{"/abs": "/a/b", "/a/rel/../rel/.": "/a/b", "/abs/..": "/a", "/../..//a": "/a", "/": "/"} {
		got, err := h.EvalSymlinks(t.Context(), path)
		require.NoError(t, err, path)
		require.Equal(t, want, got, path)
	}
	for path, want := range map[string]error{
		"/loop1": syscall.ELOOP, "/a/dangling": fs.ErrNotExist, "/nowhere": fs.ErrNotExist, "relative": fs.ErrInvalid, "/a\x00": fs.ErrInvalid, "": fs.ErrInvalid,
	} {
		_, err := h.EvalSymlinks(t.Context(), path)
		require.ErrorIs(t, err, want, path)
	}
	info, err := h.Lstat(t.Context(), "/a/dangling")
	require.NoError(t, err)
	require.NotZero(t, info.Mode&fs.ModeSymlink)
	require.ErrorIs(t, h.CreateFile(t.Context(), "/a/dangling", 0o600), fs.ErrExist)
	require.ErrorIs(t, h.Remove(t.Context(), "/a"), syscall.ENOTEMPTY)
}

func TestHostDisksKeepTheirContents(t *testing.T) {
	h := fake.NewHost()
	h.AddDisk("/dev/sdb", fake.HostDisk{Size: 1 << 20, Links: []string{"/dev/vg/lv"}})
	h.WriteDisk("/dev/vg/lv", 4090, []byte("across two blocks"))
	data, err := h.ReadAt(t.Context(), "/dev/sdb", 4090, 17)
	require.NoError(t, err)
	require.Equal(t, "across two blocks", string(data))
	_, err = h.ReadAt(t.Context(), "/dev/sdb", 1<<20-1, 2)
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)

	require.Equal(t, 2, hostRun(t, h, "blkid", "-p", "-o", "export", "/dev/sdb").ExitCode, "data without a name")
	require.Zero(t, hostRun(t, h, "mkfs.ext4", "-q", "/dev/sdb").ExitCode)
	require.Equal(t, []fake.HostFormat{{Device: "/dev/sdb", Filesystem: "ext4", HeldData: true}}, h.Formats())
	h.Mkdir("/m")
	h.Mount("/dev/sdb", "/m", "ext4", "rw")
	h.WriteFile("/m/file", []byte("kept"))
	h.Unmount("/m")
	h.Mount("/dev/vg/lv", "/m", "ext4", "ro")
	got, _ := h.Contents("/m/file")
	require.Equal(t, "kept", got)
	require.ErrorIs(t, h.MkdirAll(t.Context(), "/m/dir", 0o755), syscall.EROFS)
	require.ErrorIs(t, h.Remove(t.Context(), "/m/file"), syscall.EROFS)

	h.FailReads("/dev/sdb", syscall.EIO)
	_, err = h.ReadAt(t.Context(), "/dev/sdb", 0, 1)
	require.ErrorIs(t, err, syscall.EIO)
	require.Equal(t, 2, hostRun(t, h, "blkid", "-p", "/dev/sdb").ExitCode, "the same as blank")
}

func TestHostDiskAppearsAfterItsDelay(t *testing.T) {
	clock := testingclock.NewFakePassiveClock(time.Unix(0, 0))
	h := fake.NewHost(fake.HostClock(clock))
	h.AddDisk("/dev/sdb", fake.HostDisk{Delay: time.Minute, Links: []string{"/dev/disk/by-id/x"}})
	_, err := h.Stat(t.Context(), "/dev/disk/by-id/x")
	require.ErrorIs(t, err, fs.ErrNotExist)
	clock.SetTime(time.Unix(60, 0))
	info, err := h.Stat(t.Context(), "/dev/disk/by-id/x")
	require.NoError(t, err)
	require.Equal(t, [2]uint32{8, 16}, [2]uint32{info.Major, info.Minor})
}

func TestHostFaults(t *testing.T) {
	h := fake.NewHost()
	injected := errors.New("injected")
	h.Inject(fake.HostFault{Op: "MkdirAll", Text: "/b", Skip: 1, Times: 2, Err: injected})
	for i, want := range []error{nil, injected, injected, nil} {
		require.ErrorIs(t, h.MkdirAll(t.Context(), fmt.Sprintf("/b/%d", i), 0o755), want)
		_, made := h.Mode(fmt.Sprintf("/b/%d", i))
		require.Equal(t, want == nil, made)
		require.NoError(t, h.MkdirAll(t.Context(), fmt.Sprintf("/c/%d", i), 0o755))
	}
	h.Inject(fake.HostFault{Op: "MkdirAll", Err: injected, After: true})
	require.ErrorIs(t, h.MkdirAll(t.Context(), "/after", 0o755), injected)
	_, made := h.Mode("/after")
	require.True(t, made, "the answer is lost, not the work")

	h.Inject(fake.HostFault{Op: "blkid", Result: &command.Result{ExitCode: 8}, Times: -1})
	require.Equal(t, 8, hostRun(t, h, "blkid", "-p", "/dev/sdb").ExitCode)
	require.Equal(t, 8, hostRun(t, h, "blkid", "-p", "/dev/sdb").ExitCode)
	h.ClearFaults()
	require.Equal(t, 2, hostRun(t, h, "blkid", "-p", "/dev/sdb").ExitCode)

	h.Inject(fake.HostFault{Op: "Stat", Gate: make(chan struct{})})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := h.Stat(ctx, "/etc")
	var timeout *command.TimeoutError
	require.ErrorAs(t, err, &timeout)
	require.False(t, timeout.Started, "a context that has ended starts nothing")
	open := make(chan struct{})
	close(open)
	h.ClearFaults()
	h.Inject(fake.HostFault{Op: "Stat", Gate: open})
	_, err = h.Stat(t.Context(), "/etc")
	require.NoError(t, err)
}

func TestHostProcessThatIsStopped(t *testing.T) {
	for _, afterEffect := range []bool{false, true} {
		h := fake.NewHost()
		require.NoError(t, h.MkdirAll(t.Context(), "/before", 0o755))
		h.StopAt(1, afterEffect)
		require.NoError(t, h.MkdirAll(t.Context(), "/0", 0o755))
		require.ErrorIs(t, h.MkdirAll(t.Context(), "/1", 0o755), fake.ErrHostStopped)
		require.ErrorIs(t, h.MkdirAll(t.Context(), "/2", 0o755), fake.ErrHostStopped)
		for path, want := range map[string]bool{"/0": true, "/1": afterEffect, "/2": false} {
			_, made := h.Mode(path)
			require.Equal(t, want, made, path)
		}
		require.True(t, h.Restart())
		require.False(t, h.Restart())
		require.NoError(t, h.MkdirAll(t.Context(), "/2", 0o755))
		require.Len(t, h.Calls(), 5)
	}
}

func TestHostWithoutAProgram(t *testing.T) {
	_, err := fake.NewHost().Run(t.Context(), command.Command{Argv: []string{"lsblk", "-n"}})
	var spawn *command.SpawnError
	require.ErrorAs(t, err, &spawn)
	require.ErrorIs(t, err, fs.ErrNotExist)
}

func TestHostPanicsOnWhatATestCannotMean(t *testing.T) {
	h := fake.NewHost()
	for name, do := range map[string]func(){
		"file in no directory": func() { h.WriteFile("/none/file", nil) },
		"mount on nothing":     func() { h.Mount("tmpfs", "/none", "tmpfs", "rw") },
		"no such disk":         func() { h.WriteDisk("/dev/none", 0, nil) },
		"unknown filesystem":   func() { h.AddDisk("/dev/x", fake.HostDisk{Filesystem: "zfs"}) },
	} {
		require.Panics(t, do, name)
	}
}

func ExampleHost() {
	host := fake.NewHost()
	host.AddDisk("/dev/sdb", fake.HostDisk{Filesystem: "ext4"})
	host.Mkdir("/data")
	host.Inject(fake.HostFault{Op: "mount", Result: &command.Result{ExitCode: 32}})

	mount := command.Command{Argv: []string{"mount", "-t", "ext4", "-o", "ro", "--", "/dev/sdb", "/data"}}
	for range 2 {
		result, err := host.Run(context.Background(), mount)
		fmt.Println(result.ExitCode, err, host.MountTable())
	}
	// Output:
	// 32 <nil> []
	// 0 <nil> [/data /dev/sdb ext4 ro]
}
