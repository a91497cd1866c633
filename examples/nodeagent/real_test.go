package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stateofworld/stateofworld/executor/command"
	"github.com/stateofworld/stateofworld/lvm"
)

// realGroup is a volume group on a loop device that belongs to one test. LVM_SYSTEM_DIR lets lvm2 see no other device.
type realGroup struct {
	vg    string
	flags []string // of this program
	lvm   *lvm.CLI
}

// newRealGroup makes one of 64 MiB. It skips the test where lvm2 cannot be run.
func newRealGroup(t *testing.T) *realGroup {
	t.Helper()
	if testing.Short() {
		t.Skip("runs the real lvm2: not with -short")
	}
	if os.Geteuid() != 0 {
		t.Skip("needs root, for a loop device")
	}
	for program, pkg := range map[string]string{"lvm": "lvm2", "losetup": "util-linux or mount"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("needs %s (package %s)", program, pkg)
		}
	}
	var id [4]byte
	rand.Read(id[:]) // never fails
	dir := t.TempDir()
	t.Setenv("LVM_SYSTEM_DIR", dir)
	g := &realGroup{vg: "sowtest" + hex.EncodeToString(id[:])}
	g.flags = []string{"-vg", g.vg}
	options := lvm.Options{Env: []string{"LVM_SYSTEM_DIR=" + dir}}
	if f, err := os.OpenFile("/dev/mapper/control", os.O_RDWR, 0); err == nil {
		f.Close()
	} else {
		options.NoDeviceMapper = true
		g.flags = append(g.flags, "-no-device-mapper")
	}
	if _, err := os.Stat("/run/udev/control"); err != nil { // nobody would answer
		options.InContainer = true
		g.flags = append(g.flags, "-lvm-config", "activation{udev_sync=0 udev_rules=0}")
	}

	image := filepath.Join(dir, "disk")
	require.NoError(t, os.WriteFile(image, nil, 0o600))
	require.NoError(t, os.Truncate(image, 64<<20))
	out, err := exec.Command("losetup", "--find", "--show", image).CombinedOutput()
	if err != nil {
		t.Skipf("no loop device to be had (losetup: %v: %s)", err, out)
	}
	device := strings.TrimSpace(string(out))
	t.Cleanup(func() {
		out, err := exec.Command("losetup", "--detach", device).CombinedOutput()
		require.NoError(t, err, "%s", out)
	})
	config := fmt.Sprintf(`devices { filter=[%[1]s] global_filter=[%[1]s] use_devicesfile=0 obtain_device_list_from_udev=0 hints="none" scan_lvs=0 }
global { use_lvmpolld=0 system_id_source="none" locking_dir="%[2]s/lock" }
activation { monitoring=0 verify_udev_operations=1 }
backup { backup=0 archive=0 }
`, fmt.Sprintf("%q, %q", "a|^"+device+"$|", "r|.*|"), dir)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "lvm.conf"), []byte(config), 0o600))
	lvm2 := func(args ...string) {
		if options.NoDeviceMapper {
			args = append([]string{args[0], "--driverloaded", "n"}, args[1:]...)
		}
		cmd := exec.Command(args[0], args[1:]...)
		cmd.Env = append(os.Environ(), "LVM_SUPPRESS_FD_WARNINGS=1", "LC_ALL=C", "LVM_SYSTEM_DIR="+dir)
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s: %s", args, out)
	}
	lvm2("vgcreate", "-qq", g.vg, device)
	t.Cleanup(func() { lvm2("vgremove", "-ff", "-y", "-qq", g.vg) })
	host := command.Host()
	t.Cleanup(func() { require.NoError(t, host.Wait(context.Background())) })
	g.lvm = lvm.NewCLI(host, options)
	return g
}

func (g *realGroup) run(ctx context.Context, args ...string) output {
	return call(ctx, "", append(g.flags, args...)...)
}

// file writes good.yaml, or one document of it, for this group.
func (g *realGroup) file(t *testing.T, name string, change ...string) string {
	t.Helper()
	text, err := os.ReadFile("testdata/good.yaml")
	require.NoError(t, err)
	replaced := strings.NewReplacer(append(change, "vg0", g.vg, "1073741824", "5000000")...).Replace(string(text))
	path := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.WriteFile(path, []byte(replaced), 0o600))
	return path
}

func (g *realGroup) list(t *testing.T) map[string]lvm.LogicalVolume {
	t.Helper()
	lvs, err := g.lvm.List(context.Background(), g.vg)
	require.NoError(t, err)
	all := map[string]lvm.LogicalVolume{}
	for _, lv := range lvs {
		all[lv.LV] = lv
	}
	return all
}

// onText calls a function once, when a text is written.
type onText struct {
	bytes.Buffer
	text string
	then func()
	once sync.Once
}

func (w *onText) Write(p []byte) (int, error) {
	if bytes.Contains(p, []byte(w.text)) {
		w.once.Do(w.then)
	}
	return w.Buffer.Write(p)
}

func TestRealLVM(t *testing.T) {
	g := newRealGroup(t)
	ctx := t.Context()
	// One that another node agent has just begun to make, as it looks, and one that somebody has made by hand.
	for name, tags := range map[string][]string{"theirs": {"sow.owner=u", "sow.claim=default/a", "sow.lv=" + g.vg + "/theirs"}, "pvc-old": nil} {
		_, err := g.lvm.Create(ctx, lvm.CreateOptions{VG: g.vg, Name: name, Size: 4 << 20, Tags: tags})
		require.NoError(t, err)
	}
	before := g.list(t)

	out := g.run(ctx)
	require.Equal(t, exitDone, out.code, out)
	require.Contains(t, out.stdout, "\n2 logical volumes of this run removed from "+g.vg+" again\neverything went as it should\n")
	require.Equal(t, before, g.list(t))

	// What was asked for is there, and asking again changes nothing.
	file := g.file(t, "make.yaml", "deleting", "deleted")
	out = g.run(ctx, "-f", file)
	require.Equal(t, exitDone, out.code, out)
	made, ok := g.list(t)["pvc-data"]
	require.True(t, ok)
	require.EqualValues(t, 8<<20, made.Size)
	out = g.run(ctx, "-f", file)
	require.Equal(t, exitDone, out.code, out)
	require.Equal(t, made.UUID, g.list(t)["pvc-data"].UUID)

	// What is not this program's stays, although a volume names it; what is, goes.
	out = g.run(ctx, "-f", g.file(t, "remove-theirs.yaml", "creating", "created"))
	require.Equal(t, exitFailed, out.code, out)
	require.Contains(t, out.stdout, "FAILED  volume pv-old: ExistsMismatch: ")
	out = g.run(ctx, "-f", g.file(t, "remove-ours.yaml", "creating", "created", "pvc-old", "pvc-data", "name: old", "name: data"))
	require.Equal(t, exitDone, out.code, out)
	require.Equal(t, before, g.list(t))

	// Ctrl-C in the middle.
	interrupted, cancel := context.WithCancel(ctx)
	stdout := &onText{text: "asks for", then: cancel}
	var stderr bytes.Buffer
	require.Equal(t, exitFailed, run(interrupted, g.flags, nil, stdout, &stderr), &stderr)
	require.Contains(t, stdout.String(), "FAILED  interrupted\n")
	require.Equal(t, before, g.list(t))

	out = g.run(ctx, "-vg", g.vg+"-none")
	require.Equal(t, exitFailed, out.code, out)
	require.Empty(t, out.stdout)
	require.Contains(t, out.stderr, "volume group not found")
	require.Contains(t, out.stderr, "\nSee vgs for the volume groups that are there\n")
}
