//go:build linux

package lvmtest_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stateofworld/stateofworld/executor/command"
	"github.com/stateofworld/stateofworld/lvm"
	"github.com/stateofworld/stateofworld/lvm/lvmtest"
)

// realLVM is lvm2 itself on loop devices that belong to one test. Its configuration lets it see no other device, so
// that the volumes of the machine are never touched.
type realLVM struct {
	t            *testing.T
	host         *command.HostRunner
	options      lvm.Options
	vg           string
	images       []string
	devices      []string
	deviceMapper bool
}

// requireLVM skips the test where lvm2 cannot be run.
func requireLVM(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root, for loop devices")
	}
	for _, tool := range []struct{ program, pkg string }{{"lvm", "lvm2"}, {"losetup", "util-linux or mount"}} {
		if _, err := exec.LookPath(tool.program); err != nil {
			t.Skipf("needs %s (package %s)", tool.program, tool.pkg)
		}
	}
}

// hasDeviceMapper is whether the kernel can activate logical volumes.
func hasDeviceMapper() bool {
	f, err := os.OpenFile("/dev/mapper/control", os.O_RDWR, 0)
	if err == nil {
		f.Close()
	}
	return err == nil
}

// newRealLVM makes a volume group of so many disks of 64 MiB.
func newRealLVM(t *testing.T, disks int) *realLVM {
	t.Helper()
	requireLVM(t)
	var id [4]byte
	rand.Read(id[:])
	r := &realLVM{t: t, host: command.Host(), vg: "sowtest" + hex.EncodeToString(id[:]), deviceMapper: hasDeviceMapper()}
	t.Cleanup(func() { require.NoError(t, r.host.Wait(context.Background())) })
	dir := t.TempDir()
	for i := range disks {
		image := filepath.Join(dir, fmt.Sprintf("disk%d", i))
		require.NoError(t, os.WriteFile(image, nil, 0o600))
		require.NoError(t, os.Truncate(image, 64<<20))
		r.images = append(r.images, image)
		r.devices = append(r.devices, r.attach(image))
	}
	system := filepath.Join(dir, "etc")
	require.NoError(t, os.Mkdir(system, 0o700))
	r.options = lvm.Options{Env: []string{"LVM_SYSTEM_DIR=" + system}, NoDeviceMapper: !r.deviceMapper}
	if _, err := os.Stat("/run/udev/control"); err != nil {
		r.options.InContainer = true // nobody would answer
	}
	r.configure(r.devices)
	args := []string{"vgcreate", "-qq", r.vg}
	r.lvm2(append(args, r.devices...)...)
	t.Cleanup(r.cleanUp)
	return r
}

func (r *realLVM) attach(image string) string {
	r.t.Helper()
	out, err := exec.Command("losetup", "--find", "--show", image).CombinedOutput()
	if err != nil {
		r.t.Skipf("no loop device to be had (losetup: %v: %s)", err, out)
	}
	device := strings.TrimSpace(string(out))
	r.t.Cleanup(func() { exec.Command("losetup", "--detach", device).Run() })
	return device
}

// configure limits lvm2 to some devices.
func (r *realLVM) configure(devices []string) {
	r.t.Helper()
	system := strings.TrimPrefix(r.options.Env[0], "LVM_SYSTEM_DIR=")
	var filter []string
	for _, device := range devices {
		filter = append(filter, fmt.Sprintf("%q", "a|^"+device+"$|"))
	}
	filter = append(filter, `"r|.*|"`)
	text := fmt.Sprintf(`devices { filter=[%[1]s] global_filter=[%[1]s] use_devicesfile=0 obtain_device_list_from_udev=0 hints="none" scan_lvs=0 }
global { use_lvmpolld=0 system_id_source="none" locking_dir="%[2]s/lock" }
activation { monitoring=0 verify_udev_operations=1 }
backup { backup=0 archive=0 }
`, strings.Join(filter, ","), system)
	require.NoError(r.t, os.WriteFile(filepath.Join(system, "lvm.conf"), []byte(text), 0o600))
}

// backend is a backend of its own, as another process would have it.
func (r *realLVM) backend() *lvm.CLI { return lvm.NewCLI(r.host, r.options) }

// try runs one command of lvm2 as a user would.
func (r *realLVM) try(args ...string) (string, error) {
	argv := []string{args[0]}
	if r.options.NoDeviceMapper {
		argv = append(argv, "--driverloaded", "n")
	}
	if r.options.InContainer {
		argv = append(argv, "--config", "activation{udev_sync=0 udev_rules=0}")
	}
	cmd := exec.Command(argv[0], append(argv[1:], args[1:]...)...)
	cmd.Env = append(os.Environ(), append(r.options.Env, "LVM_SUPPRESS_FD_WARNINGS=1", "LC_ALL=C")...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func (r *realLVM) lvm2(args ...string) {
	r.t.Helper()
	out, err := r.try(args...)
	require.NoError(r.t, err, "%s: %s", args, out)
}

// cleanUp takes the volume group away, whatever state the test has left it in.
func (r *realLVM) cleanUp() {
	if _, err := r.try("vgremove", "-ff", "-y", r.vg); err != nil { // it may have been left exported
		r.try("vgimport", r.vg)
		r.try("vgremove", "-ff", "-y", r.vg)
	}
	if left, _ := filepath.Glob("/dev/mapper/" + r.vg + "-*"); len(left) > 0 {
		r.t.Errorf("devices left behind: %s", left)
	}
}

func (r *realLVM) device(name lvm.Name) string { return name.DevicePath() }

// setup is what the conformance suite needs.
func (r *realLVM) setup() lvmtest.Setup {
	s := lvmtest.Setup{Backend: r.backend(), VG: r.vg, DeviceMapper: r.deviceMapper}
	if !r.deviceMapper {
		return s
	}
	s.Hold = func(t *testing.T, name lvm.Name) func() {
		f, err := os.Open(r.device(name))
		require.NoError(t, err)
		return func() { f.Close() }
	}
	s.Write = func(t *testing.T, name lvm.Name, data string) {
		f, err := os.OpenFile(r.device(name), os.O_WRONLY, 0)
		require.NoError(t, err)
		defer f.Close()
		size, err := f.Seek(0, io.SeekEnd)
		require.NoError(t, err)
		block := bytes.Repeat([]byte(data+"\n"), 1<<20/(len(data)+1)+1)[:1<<20]
		for at := int64(0); at < size; at += int64(len(block)) {
			_, err := f.WriteAt(block[:min(int64(len(block)), size-at)], at)
			require.NoError(t, err)
		}
		require.NoError(t, f.Sync())
	}
	s.Contains = func(t *testing.T, name lvm.Name, data string) bool {
		f, err := os.Open(r.device(name))
		require.NoError(t, err)
		defer f.Close()
		content, err := io.ReadAll(f)
		require.NoError(t, err)
		return bytes.Contains(content, []byte(data))
	}
	s.DeviceExists = func(_ *testing.T, name lvm.Name) bool {
		info, err := os.Stat(r.device(name))
		return err == nil && info.Mode()&os.ModeDevice != 0
	}
	s.Reboot = func(*testing.T) { r.lvm2("vgchange", "-an", r.vg) }
	return s
}

func TestRealLVMIsABackend(t *testing.T) {
	requireLVM(t)
	lvmtest.Run(t, func(t *testing.T) lvmtest.Setup { return newRealLVM(t, 3).setup() })
}
