package hostvolume_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stateofworld/stateofworld/executor/command"
	"github.com/stateofworld/stateofworld/executor/hostvolume"
)

// The tests whose names begin with TestReal run the real programs on loop devices and tmpfs, in the mount namespace
// that TestMain has made.

// packages are the Debian packages of the programs that the tests need.
var packages = map[string]string{
	"mount": "mount", "umount": "mount", "losetup": "mount", "blkid": "util-linux", "blockdev": "util-linux", "nsenter": "util-linux", "unshare": "util-linux",
	"mkfs.ext4": "e2fsprogs", "fsck.ext4": "e2fsprogs", "debugfs": "e2fsprogs", "mkfs.xfs": "xfsprogs",
}

// machine is a place on this machine for one test: a base directory and a directory of links to devices.
type machine struct {
	t     testing.TB
	base  string
	links string
	env   *hostvolume.Env
}

// realMachine skips the test where the real programs cannot be run.
func realMachine(t testing.TB, programs ...string) *machine {
	t.Helper()
	if testing.Short() {
		t.Skip("runs the real programs: not with -short")
	}
	if os.Getenv(inNamespace) == "" {
		t.Skip("needs root and a mount namespace of its own: run as root, with unshare (package util-linux), where namespaces are allowed")
	}
	for _, program := range append([]string{"mount", "umount", "blkid", "blockdev"}, programs...) {
		if !installed(program) {
			t.Skipf("needs %s: install the package %s", program, packages[program])
		}
		if fsType, ok := strings.CutPrefix(program, "mkfs."); ok && !mountable(fsType) {
			t.Skipf("the kernel here cannot mount %s", fsType)
		}
	}
	dir := t.TempDir()
	m := &machine{t: t, base: dir + "/base", links: dir + "/by-id"}
	require.NoError(t, os.Mkdir(m.links, 0o755))
	m.env = m.newEnv(nil)
	t.Cleanup(func() {
		require.NoError(t, m.newEnv(nil).UnmountExistingVolumes(context.Background()), "clean up")
	})
	return m
}

func installed(program string) bool {
	for _, dir := range filepath.SplitList(command.DefaultPath) {
		if info, err := os.Stat(filepath.Join(dir, program)); err == nil && info.Mode()&0o111 != 0 {
			return true
		}
	}
	return false
}

// mountable reports whether the kernel knows a filesystem, if need be after loading its module.
func mountable(fsType string) bool {
	known := func() bool {
		data, _ := os.ReadFile("/proc/filesystems")
		return slices.Contains(strings.Fields(string(data)), fsType)
	}
	return known() || exec.Command("modprobe", fsType).Run() == nil && known()
}

// newEnv is the Env of a new process. All links are attached disks.
func (m *machine) newEnv(runner command.Runner) *hostvolume.Env {
	if runner == nil {
		runner = command.Host()
	}
	return &hostvolume.Env{
		Runner: runner, Metadata: linkedDisks(m.links), Options: hostvolume.Options{BaseDir: m.base, DeviceDir: m.links, DeviceWait: -1},
	}
}

// linkedDisks takes every google-NAME in a directory for a disk that is attached for reading and writing.
type linkedDisks string

func (dir linkedDisks) Disks(context.Context) ([]hostvolume.AttachedDisk, error) {
	links, err := filepath.Glob(string(dir) + "/google-*")
	var out []hostvolume.AttachedDisk
	for _, link := range links {
		out = append(out, hostvolume.AttachedDisk{DeviceName: strings.TrimPrefix(filepath.Base(link), "google-"), Mode: hostvolume.DiskReadWrite})
	}
	return out, err
}

const mib = 1 << 20

var loopFiles atomic.Int32

const loopPrefix = "hostvolume-test-loop-"

// disk makes a loop device of a sparse file and links it as the persistent disk of that name. The file has no name any
// more when the test goes on, and the name that it had bears the number of this process, so that loop devices that a
// killed test has left behind are found.
func (m *machine) disk(name string, size int64, losetupOptions ...string) string {
	m.t.Helper()
	if !installed("losetup") {
		m.t.Skipf("needs losetup: install the package %s", packages["losetup"])
	}
	freeLoops()
	file := filepath.Join(os.TempDir(), fmt.Sprintf("%s%d-%d", loopPrefix, os.Getpid(), loopFiles.Add(1)))
	require.NoError(m.t, os.WriteFile(file, nil, 0o600))
	defer os.Remove(file)
	require.NoError(m.t, os.Truncate(file, size))
	device := m.loop(file, losetupOptions...)
	require.NoError(m.t, os.Symlink(device, m.links+"/google-"+name))
	return device
}

func (m *machine) loop(file string, options ...string) string {
	m.t.Helper()
	out, err := exec.Command("losetup", append(append([]string{"--find", "--show"}, options...), file)...).CombinedOutput()
	if err != nil {
		m.t.Skipf("loop devices cannot be had here: %v: %s", err, out)
	}
	device := strings.TrimSpace(string(out))
	m.t.Cleanup(func() { _ = exec.Command("losetup", "--detach", device).Run() })
	return device
}

// freeLoops detaches the loop devices of test processes that are gone.
func freeLoops() {
	out, err := exec.Command("losetup", "--list", "--noheadings", "--raw", "--output", "NAME,BACK-FILE").Output()
	if err != nil {
		return
	}
	for line := range strings.Lines(string(out)) {
		device, file, _ := strings.Cut(strings.TrimSpace(line), " ")
		_, rest, ok := strings.Cut(file, loopPrefix)
		pid, err := strconv.Atoi(strings.SplitN(rest, "-", 2)[0])
		if ok && err == nil && syscall.Kill(pid, 0) == syscall.ESRCH {
			_ = exec.Command("losetup", "--detach", device).Run()
		}
	}
}

// sh runs a program that has to succeed.
func (m *machine) sh(argv ...string) string {
	m.t.Helper()
	out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput()
	require.NoError(m.t, err, "%q: %s", argv, out)
	return string(out)
}

// write writes to a device, and through its cache.
func (m *machine) write(device string, offset int64, data []byte) {
	m.t.Helper()
	f, err := os.OpenFile(device, os.O_WRONLY, 0)
	require.NoError(m.t, err)
	defer f.Close()
	_, err = f.WriteAt(data, offset)
	require.NoError(m.t, err)
	require.NoError(m.t, f.Sync())
}

func (m *machine) read(device string, length int) []byte {
	m.t.Helper()
	f, err := os.Open(device)
	require.NoError(m.t, err)
	defer f.Close()
	data := make([]byte, length)
	_, err = f.ReadAt(data, 0)
	require.NoError(m.t, err)
	return data
}

// mounts are the mount points below the directory of the test, as the kernel writes them, oldest first.
func (m *machine) mounts() []string {
	m.t.Helper()
	data, err := os.ReadFile("/proc/self/mountinfo")
	require.NoError(m.t, err)
	out := []string{}
	for line := range bytes.Lines(data) {
		if fields := strings.Fields(string(line)); strings.HasPrefix(fields[4], filepath.Dir(m.base)+"/") {
			out = append(out, strings.TrimPrefix(fields[4], filepath.Dir(m.base)))
		}
	}
	return out
}
