package lifecycle

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/stateofworld/stateofworld/executor/command"
	"github.com/stateofworld/stateofworld/fake"
	"github.com/stateofworld/stateofworld/lvm"
)

// realGroup is a volume group on a loop device that belongs to one test, and an lvm2 that sees no other device.
type realGroup struct {
	host    *command.HostRunner
	options lvm.Options
	vg      string
}

// newRealGroup makes a group of one sparse disk of that size. It skips the test where lvm2 cannot be run.
func newRealGroup(t testing.TB, size int64) *realGroup {
	t.Helper()
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
	g := &realGroup{host: command.Host(), vg: "sowtest" + hex.EncodeToString(id[:])}
	t.Cleanup(func() { require.NoError(t, g.host.Wait(context.Background())) })
	g.options = lvm.Options{Env: []string{"LVM_SYSTEM_DIR=" + dir}}
	if f, err := os.OpenFile("/dev/mapper/control", os.O_RDWR, 0); err == nil {
		f.Close()
	} else {
		g.options.NoDeviceMapper = true
	}
	if _, err := os.Stat("/run/udev/control"); err != nil {
		g.options.InContainer = true // nobody would answer
	}

	image := filepath.Join(dir, "disk")
	require.NoError(t, os.WriteFile(image, nil, 0o600))
	require.NoError(t, os.Truncate(image, size))
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
	// The metadata of a thousand volumes would not fit into the room that is the default.
	require.NoError(t, g.lvm2("vgcreate", "-qq", "--metadatasize", "16m", g.vg, device))
	t.Cleanup(func() { require.NoError(t, g.lvm2("vgremove", "-ff", "-y", "-qq", g.vg)) })
	return g
}

// lvm2 runs one command as a user would.
func (g *realGroup) lvm2(args ...string) error {
	argv := args[:1:1]
	if g.options.NoDeviceMapper {
		argv = append(argv, "--driverloaded", "n")
	}
	cmd := exec.Command(argv[0], append(argv[1:], args[1:]...)...)
	cmd.Env = append(os.Environ(), append(g.options.Env, "LVM_SUPPRESS_FD_WARNINGS=1", "LC_ALL=C")...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", args, err, out)
	}
	return nil
}

// backend is one of its own, as another process has it.
func (g *realGroup) backend() *lvm.CLI { return lvm.NewCLI(g.host, g.options) }

// uuids are those of the logical volumes, by name.
func (g *realGroup) uuids(w *testWorld) map[string]string {
	lvs, err := g.backend().List(w.ctx, g.vg)
	require.NoError(w.t, err)
	uuids := map[string]string{}
	for _, lv := range lvs {
		uuids[lv.LV] = lv.UUID
	}
	return uuids
}

func (g *realGroup) spec(name string, size uint64) string {
	return fmt.Sprintf(`{"volumeGroup":%q,"name":%q,"size":%d,"tags":["team/a"]}`, g.vg, name, size)
}

// The whole life of claims with the real lvm2: made, too big, a name that is taken, the process killed in between, removed.
func TestRealLVMIsWorkedByTheAgent(t *testing.T) {
	t.Parallel()
	g := newRealGroup(t, 128<<20)
	w := newTestWorld(t, func(c *AgentConfig) { c.Backend, c.VolumeGroups = g.backend(), []string{g.vg} })
	restart := func() {
		w.kill()
		w.config.Backend = g.backend()
		w.start()
	}

	foreign, err := g.backend().Create(w.ctx, lvm.CreateOptions{VG: g.vg, Name: "foreign", Size: extent})
	require.NoError(t, err)
	w.claim("data", g.spec("pvc-1", 5*mib))
	w.claim("huge", g.spec("pvc-2", gib))
	w.claim("taken", g.spec("foreign", extent))
	w.idle()
	require.Equal(t, "created", w.claimState("data"))
	require.Equal(t, "creating NoSpace", w.claimState("huge"))
	require.Equal(t, "creating ExistsMismatch", w.claimState("taken"))
	made, err := g.backend().Get(w.ctx, lvm.Name{VG: g.vg, LV: "pvc-1"})
	require.NoError(t, err)
	require.EqualValues(t, 8*mib, made.Size)
	owner := ownerTags(w.getClaim("data").UID, types.NamespacedName{Namespace: "default", Name: "data"}, made.Name)
	require.ElementsMatch(t, append(owner, readyTag, "team/a"), made.Tags)
	w.deleteClaim("huge")
	w.deleteClaim("taken")

	// Killed when the logical volume is made, and nobody was told of it: the next agent finishes what is wanted, and removes what is not.
	crash := func(name string) {
		w.session.StopAt(2, fake.StopBefore)
		w.claim(name, g.spec("pvc-"+name, extent))
		w.untilStopped(time.Second)
		require.True(t, w.session.Stopped())
		require.Equal(t, "creating", w.claimState(name))
		require.Contains(t, g.uuids(w), "pvc-"+name)
	}
	crash("kept")
	before := g.uuids(w)["pvc-kept"]
	restart()
	w.idle()
	require.Equal(t, "created", w.claimState("kept"))
	require.Equal(t, before, g.uuids(w)["pvc-kept"], "the same, not another")
	crash("dropped")
	w.deleteClaim("dropped")
	restart()
	w.idle()
	require.NotContains(t, g.uuids(w), "pvc-dropped")
	require.Len(t, w.said(NoticeWithdrawn), 1)

	pv := fake.NewVolume("pv-1", DefaultDriver, nodeA, w.getClaim("data"))
	pv.Annotations = map[string]string{keys.Lifecycle(): string(Deleting), keys.Spec(): made.String()}
	_, err = w.user.Volumes().Create(w.ctx, pv, metav1.CreateOptions{})
	require.NoError(t, err)
	w.idle()
	require.Equal(t, "deleted", w.volumeState("pv-1"))
	left := g.uuids(w)
	require.Len(t, left, 2)
	require.Equal(t, foreign.UUID, left["foreign"], "never touched")
	require.Contains(t, left, "pvc-kept")
}
