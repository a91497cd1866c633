//go:build linux

package command

import (
	"context"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// forEachRunner runs a test on this host, and through nsenter into the namespaces of this very process, where
// everything must be the same.
func forEachRunner(t *testing.T, test func(t *testing.T, r Runner)) {
	t.Run("host", func(t *testing.T) { test(t, newHost(t, WithReadLimit(1<<20))) })
	t.Run("nsenter", func(t *testing.T) {
		test(t, newNSEnter(t, NSEnterOptions{TargetPID: os.Getpid()}, WithReadLimit(1<<20)))
	})
}

func newNSEnter(t *testing.T, o NSEnterOptions, opts ...HostOption) *NSEnterRunner {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root, to enter namespaces")
	}
	if _, err := exec.LookPath("nsenter"); err != nil {
		t.Skip("needs nsenter (package util-linux)")
	}
	o.Options = opts
	r, err := NSEnter(o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, r.Wait(context.Background())) })
	if _, err := r.Run(t.Context(), Command{Argv: []string{"true"}}); err != nil {
		t.Skipf("cannot enter namespaces here: %v", err)
	}
	return r
}

func TestStatAndLstat(t *testing.T) {
	dir := t.TempDir()
	file, link, dangling, odd := dir+"/file", dir+"/link", dir+"/dangling", dir+"/-c odd\nname"
	require.NoError(t, os.WriteFile(file, []byte("12345"), 0o640))
	require.NoError(t, os.WriteFile(odd, []byte("1"), 0o600))
	require.NoError(t, os.Symlink(file, link))
	require.NoError(t, os.Symlink(dir+"/absent", dangling))
	require.NoError(t, os.Chmod(file, 0o640|fs.ModeSetuid|fs.ModeSetgid|fs.ModeSticky))
	require.NoError(t, syscall.Mkfifo(dir+"/fifo", 0o600))
	var st syscall.Stat_t
	require.NoError(t, syscall.Stat(file, &st))

	forEachRunner(t, func(t *testing.T, r Runner) {
		ctx := t.Context()
		special := fs.ModeSetuid | fs.ModeSetgid | fs.ModeSticky
		for _, tc := range []struct {
			name string
			stat func(context.Context, string) (FileInfo, error)
			path string
			want FileInfo
		}{
			{"file", r.Stat, file, FileInfo{Mode: 0o640 | special, Size: 5, Dev: st.Dev}},
			{"odd name", r.Stat, odd, FileInfo{Mode: 0o600, Size: 1, Dev: st.Dev}},
			{"through a link", r.Stat, link, FileInfo{Mode: 0o640 | special, Size: 5, Dev: st.Dev}},
			{"the link itself", r.Lstat, link, FileInfo{Mode: fs.ModeSymlink | 0o777, Size: int64(len(file)), Dev: st.Dev}},
			{"fifo", r.Stat, dir + "/fifo", FileInfo{Mode: fs.ModeNamedPipe | 0o600, Dev: st.Dev}},
		} {
			got, err := tc.stat(ctx, tc.path)
			require.NoError(t, err, tc.name)
			require.Equal(t, tc.want, got, tc.name)
		}
		null, err := r.Stat(ctx, "/dev/null")
		require.NoError(t, err)
		require.Equal(t, fs.ModeDevice|fs.ModeCharDevice, null.Mode.Type())
		require.Equal(t, [2]uint32{1, 3}, [2]uint32{null.Major, null.Minor})
		root, err := r.Stat(ctx, "/")
		require.NoError(t, err)
		require.True(t, root.Mode.IsDir())

		_, err = r.Stat(ctx, dangling)
		require.ErrorIs(t, err, fs.ErrNotExist)
		_, err = r.Lstat(ctx, dir+"/absent")
		require.ErrorIs(t, err, fs.ErrNotExist)
		_, err = r.Stat(ctx, file+"/below")
		require.ErrorIs(t, err, syscall.ENOTDIR)
		require.NotErrorIs(t, err, fs.ErrNotExist)
		var pathErr *fs.PathError
		require.ErrorAs(t, err, &pathErr)
		require.Equal(t, file+"/below", pathErr.Path)
	})
}

func TestBlockDeviceNumbersAreTheKernels(t *testing.T) {
	var st syscall.Stat_t
	if syscall.Stat("/dev/loop0", &st) != nil {
		t.Skip("needs /dev/loop0")
	}
	forEachRunner(t, func(t *testing.T, r Runner) {
		got, err := r.Stat(t.Context(), "/dev/loop0")
		require.NoError(t, err)
		require.Equal(t, fs.ModeDevice, got.Mode.Type())
		require.Equal(t, [2]uint32{7, 0}, [2]uint32{got.Major, got.Minor})
	})
}

func TestDeviceNumbersOfAllSizes(t *testing.T) {
	for _, tc := range []struct {
		dev          uint64
		major, minor uint32
	}{
		{0x0103, 1, 3}, {0xfd04, 253, 4}, {0x10fd00, 253, 256}, {0xffffff00, 0xfff, 0xfff00}, {0x1000_0000_0000, 0x1000, 0},
	} {
		major, minor := deviceNumbers(tc.dev)
		require.Equal(t, [2]uint32{tc.major, tc.minor}, [2]uint32{major, minor}, "%#x", tc.dev)
	}
}

func TestMkdirAll(t *testing.T) {
	old := syscall.Umask(0o077)
	defer syscall.Umask(old)
	forEachRunner(t, func(t *testing.T, r Runner) {
		ctx, dir := t.Context(), t.TempDir()
		require.NoError(t, r.MkdirAll(ctx, dir+"/a/-b/c c/", 0o751|fs.ModeSticky))
		for _, path := range []string{"/a", "/a/-b", "/a/-b/c c"} {
			info, err := os.Stat(dir + path)
			require.NoError(t, err)
			require.Equal(t, fs.ModeDir|fs.ModeSticky|0o751, info.Mode(), "whatever the umask: %s", path)
		}
		require.NoError(t, r.MkdirAll(ctx, dir+"/a/-b", 0o700), "exists")
		info, err := os.Stat(dir + "/a/-b")
		require.NoError(t, err)
		require.Equal(t, fs.ModeDir|fs.ModeSticky|0o751, info.Mode(), "left as it is")
		require.NoError(t, r.MkdirAll(ctx, "/", 0o700))

		require.NoError(t, os.WriteFile(dir+"/file", nil, 0o600))
		require.ErrorIs(t, r.MkdirAll(ctx, dir+"/file", 0o700), syscall.ENOTDIR)
		require.ErrorIs(t, r.MkdirAll(ctx, dir+"/file/below", 0o700), syscall.ENOTDIR)
		require.NoError(t, os.Symlink(dir+"/nowhere", dir+"/dangling"))
		require.ErrorIs(t, r.MkdirAll(ctx, dir+"/dangling", 0o700), fs.ErrExist)
		require.NoDirExists(t, dir+"/nowhere")

		// ".." is that of the kernel: of the directory that the link leads to.
		require.NoError(t, os.MkdirAll(dir+"/real/sub", 0o700))
		require.NoError(t, os.Symlink(dir+"/real/sub", dir+"/link"))
		require.NoError(t, r.MkdirAll(ctx, dir+"/link/../made", 0o700))
		require.DirExists(t, dir+"/real/made")
	})
}

func TestReadFile(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(dir+"/-n", []byte("a\x00b\n"), 0o600))
	require.NoError(t, os.WriteFile(dir+"/limit", make([]byte, 1<<20), 0o600))
	require.NoError(t, os.WriteFile(dir+"/over", make([]byte, 1<<20+1), 0o600))
	forEachRunner(t, func(t *testing.T, r Runner) {
		ctx := t.Context()
		got, err := r.ReadFile(ctx, dir+"/-n")
		require.NoError(t, err)
		require.Equal(t, "a\x00b\n", string(got))
		got, err = r.ReadFile(ctx, dir+"/limit")
		require.NoError(t, err)
		require.Len(t, got, 1<<20)

		_, err = r.ReadFile(ctx, dir+"/over")
		var over *OutputLimitError
		require.ErrorAs(t, err, &over)
		_, err = r.ReadFile(ctx, "/dev/zero")
		require.ErrorAs(t, err, &over)
		_, err = r.ReadFile(ctx, dir+"/absent")
		require.ErrorIs(t, err, fs.ErrNotExist)
		_, err = r.ReadFile(ctx, dir)
		require.ErrorIs(t, err, syscall.EISDIR)

		mounts, err := r.ReadFile(ctx, "/proc/self/mountinfo")
		require.NoError(t, err)
		require.Contains(t, string(mounts), " / ")
	})
}

func TestReadAt(t *testing.T) {
	dir := t.TempDir()
	data := make([]byte, 300_000)
	for i := range data {
		data[i] = byte(i / 255)
	}
	require.NoError(t, os.WriteFile(dir+"/file", data, 0o600))
	forEachRunner(t, func(t *testing.T, r Runner) {
		ctx := t.Context()
		for _, tc := range []struct{ offset, length int64 }{{0, 300_000}, {0, 1}, {299_999, 1}, {65_535, 131_075}, {300_000, 0}, {7, 0}} {
			got, err := r.ReadAt(ctx, dir+"/file", tc.offset, tc.length)
			require.NoError(t, err)
			require.Equal(t, data[tc.offset:tc.offset+tc.length], got)
		}
		for _, tc := range []struct{ offset, length int64 }{{299_999, 2}, {300_000, 1}, {1 << 40, 1}, {0, 300_001}} {
			_, err := r.ReadAt(ctx, dir+"/file", tc.offset, tc.length)
			require.ErrorIs(t, err, io.ErrUnexpectedEOF, "%+v", tc)
		}
		for _, tc := range []struct{ offset, length int64 }{{-1, 1}, {0, -1}, {1<<63 - 1, 1}} {
			_, err := r.ReadAt(ctx, dir+"/file", tc.offset, tc.length)
			require.ErrorIs(t, err, fs.ErrInvalid, "%+v", tc)
		}
		_, err := r.ReadAt(ctx, dir+"/file", 0, 1<<20+1)
		var over *OutputLimitError
		require.ErrorAs(t, err, &over)
		_, err = r.ReadAt(ctx, dir+"/absent", 0, 1)
		require.ErrorIs(t, err, fs.ErrNotExist)
		_, err = r.ReadAt(ctx, dir+"/absent", 0, 0)
		require.ErrorIs(t, err, fs.ErrNotExist)
	})
}

// What a device really answers past its end, and that a failing one is not taken for a short one.
func TestReadAtOfADevice(t *testing.T) {
	device := loopDevice(t, 1<<20)
	forEachRunner(t, func(t *testing.T, r Runner) {
		ctx := t.Context()
		got, err := r.ReadAt(ctx, device, 1<<20-4096, 4096)
		require.NoError(t, err)
		require.Equal(t, make([]byte, 4096), got)
		for _, offset := range []int64{1<<20 - 4095, 1 << 20, 1<<20 + 4096} {
			_, err = r.ReadAt(ctx, device, offset, 4096)
			require.ErrorIs(t, err, io.ErrUnexpectedEOF, "offset %d", offset)
		}
	})
}

func loopDevice(t *testing.T, size int64) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root, for a loop device")
	}
	image := filepath.Join(t.TempDir(), "image")
	require.NoError(t, os.WriteFile(image, nil, 0o600))
	require.NoError(t, os.Truncate(image, size))
	out, err := exec.Command("losetup", "--find", "--show", image).CombinedOutput()
	if err != nil {
		t.Skipf("no loop device to be had: %v: %s", err, out)
	}
	device := strings.TrimSpace(string(out))
	t.Cleanup(func() { tool(t, "losetup", "--detach", device) })
	return device
}

func TestEvalSymlinks(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	require.NoError(t, os.MkdirAll(dir+"/real/sub\n", 0o700))
	require.NoError(t, os.Symlink("real", dir+"/link"))
	require.NoError(t, os.Symlink(dir+"/nowhere", dir+"/dangling"))
	require.NoError(t, os.Symlink(dir+"/loop", dir+"/loop"))
	forEachRunner(t, func(t *testing.T, r Runner) {
		ctx := t.Context()
		got, err := r.EvalSymlinks(ctx, dir+"/link/sub\n")
		require.NoError(t, err)
		require.Equal(t, dir+"/real/sub\n", got)
		_, err = r.EvalSymlinks(ctx, dir+"/dangling")
		require.ErrorIs(t, err, fs.ErrNotExist)
		_, err = r.EvalSymlinks(ctx, dir+"/loop")
		require.Error(t, err)
	})
}

func TestCreateFileIsExclusive(t *testing.T) {
	old := syscall.Umask(0o077)
	defer syscall.Umask(old)
	forEachRunner(t, func(t *testing.T, r Runner) {
		ctx, dir := t.Context(), t.TempDir()
		require.NoError(t, r.CreateFile(ctx, dir+"/file", 0o664))
		info, err := os.Stat(dir + "/file")
		require.NoError(t, err)
		require.Equal(t, fs.FileMode(0o664), info.Mode())
		require.Zero(t, info.Size())

		require.NoError(t, os.WriteFile(dir+"/full", []byte("data"), 0o600))
		require.ErrorIs(t, r.CreateFile(ctx, dir+"/full", 0o600), fs.ErrExist)
		data, err := os.ReadFile(dir + "/full")
		require.NoError(t, err)
		require.Equal(t, "data", string(data))

		require.NoError(t, os.Symlink(dir+"/nowhere", dir+"/dangling"))
		require.ErrorIs(t, r.CreateFile(ctx, dir+"/dangling", 0o600), fs.ErrExist)
		require.NoFileExists(t, dir+"/nowhere")
		require.ErrorIs(t, r.CreateFile(ctx, dir+"/absent/file", 0o600), fs.ErrNotExist)
	})
}

func TestRemoveIsNeverRecursive(t *testing.T) {
	forEachRunner(t, func(t *testing.T, r Runner) {
		ctx, dir := t.Context(), t.TempDir()
		require.NoError(t, os.MkdirAll(dir+"/full/below", 0o700))
		require.NoError(t, os.WriteFile(dir+"/-rf", nil, 0o400))
		require.NoError(t, os.Symlink(dir+"/full", dir+"/link"))

		require.ErrorIs(t, r.Remove(ctx, dir+"/full"), syscall.ENOTEMPTY)
		require.DirExists(t, dir+"/full/below")
		require.NoError(t, r.Remove(ctx, dir+"/link"))
		require.DirExists(t, dir+"/full/below", "the link goes, not what it leads to")
		require.NoError(t, r.Remove(ctx, dir+"/full/below"))
		require.NoError(t, r.Remove(ctx, dir+"/-rf"))
		require.NoFileExists(t, dir+"/-rf")
		require.ErrorIs(t, r.Remove(ctx, dir+"/absent"), fs.ErrNotExist)
	})
}

func TestPathsMustBeAbsolute(t *testing.T) {
	forEachRunner(t, func(t *testing.T, r Runner) {
		ctx := t.Context()
		for _, path := range []string{"", "relative", "./x", "-f", "/a\x00b"} {
			for name, f := range map[string]func() error{
				"MkdirAll":     func() error { return r.MkdirAll(ctx, path, 0o700) },
				"Stat":         func() error { _, err := r.Stat(ctx, path); return err },
				"Lstat":        func() error { _, err := r.Lstat(ctx, path); return err },
				"ReadFile":     func() error { _, err := r.ReadFile(ctx, path); return err },
				"ReadAt":       func() error { _, err := r.ReadAt(ctx, path, 0, 1); return err },
				"EvalSymlinks": func() error { _, err := r.EvalSymlinks(ctx, path); return err },
				"CreateFile":   func() error { return r.CreateFile(ctx, path, 0o600) },
				"Remove":       func() error { return r.Remove(ctx, path) },
			} {
				require.ErrorIs(t, f(), fs.ErrInvalid, "%s %q", name, path)
			}
		}
	})
}

// A file operation that blocks in the kernel, here on a pipe that nobody writes to, returns with its context and is
// counted until it is over.
func TestFileOperationThatBlocksDoesNotHoldTheCaller(t *testing.T) {
	r, dir := newHost(t), t.TempDir()
	require.NoError(t, syscall.Mkfifo(dir+"/fifo", 0o600))
	ctx, cancel := context.WithCancel(t.Context())
	var err error
	returned := make(chan struct{})
	go func() { defer close(returned); _, err = r.ReadFile(ctx, dir+"/fifo") }()
	cancel()
	await(t, "ReadFile", func() { <-returned })
	var timeout *TimeoutError
	require.ErrorAs(t, err, &timeout)
	if timeout.Started { // else the context had ended before it began
		require.Equal(t, 1, r.Alive())
		w, err := os.OpenFile(dir+"/fifo", os.O_WRONLY, 0)
		require.NoError(t, err)
		w.Close()
		await(t, "the end of the read", func() { <-timeout.Exited })
	}
}

func TestFileOperationsEndWithTheirContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	forEachRunner(t, func(t *testing.T, r Runner) {
		_, err := r.Stat(ctx, "/")
		require.ErrorIs(t, err, context.Canceled)
		dir := t.TempDir()
		require.ErrorIs(t, r.MkdirAll(ctx, dir+"/a", 0o700), context.Canceled)
		require.NoDirExists(t, dir+"/a")
	})
}

func FuzzParseStat(f *testing.F) {
	for _, seed := range []string{"81a4 5 0 0 64769\n", "61b0 0 7 0 5\n", "21b6 0 1 3 5\n", "a1ff 9 0 0 1\n", "", "x", "1 2 3 4 5 6", "81a4 -5 0 0 1"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, line string) {
		info, err := parseStat(line)
		if err != nil {
			require.Zero(t, info)
			return
		}
		require.GreaterOrEqual(t, info.Size, int64(0))
		if info.Mode&fs.ModeDevice == 0 {
			require.Zero(t, info.Major)
			require.Zero(t, info.Minor)
		}
	})
}
