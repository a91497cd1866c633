package hostvolume_test

import (
	"context"
	"errors"
	"io/fs"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/stateofworld/stateofworld/executor/command"
	"github.com/stateofworld/stateofworld/executor/hostvolume"
	"github.com/stateofworld/stateofworld/fake"
)

// mountAt mounts a tmpfs at each path.
func mountAt(h *fake.Host, paths ...string) {
	for _, path := range paths {
		h.Mkdir(path)
		h.Mount("tmpfs", path, "tmpfs", "rw")
	}
}

func mountPoints(h *fake.Host) []string {
	out := []string{}
	for _, line := range h.MountTable() {
		out = append(out, line[:strings.LastIndex(line, " tmpfs tmpfs")])
	}
	return out
}

// H07, NERSC/shifter PR#215, kubernetes/kubernetes PR#71663
func TestOnlyMountsBelowTheBaseAreUnmounted(t *testing.T) {
	h := fake.NewHost()
	mountAt(h, "/B", "/B/a", "/B2/a", "/B-x", "/Bx", "/other/B/a", "/C", "/B/deep/er")
	env := newEnv(h, options(func(o *hostvolume.Options) { o.BaseDir = "/B" }))
	require.NoError(t, env.UnmountExistingVolumes(testContext(t)))
	require.Equal(t, []string{"/B", "/B2/a", "/B-x", "/Bx", "/other/B/a", "/C"}, mountPoints(h))
	require.Equal(t, []string{"umount -- /B/deep/er", "umount -- /B/a"}, h.Commands(), "the last one first, never lazy, never forced")
	for _, dir := range []string{"/B/a", "/B/deep/er"} {
		_, ok := h.Mode(dir)
		require.True(t, ok, "%s was not made by this package, so it stays", dir)
	}
}

func TestNothingMountedIsASuccess(t *testing.T) {
	h := fake.NewHost()
	require.NoError(t, newEnv(h).UnmountExistingVolumes(testContext(t)), "no base directory either")
	h.Mkdir(base)
	require.NoError(t, newEnv(h).UnmountExistingVolumes(testContext(t)))
	require.Empty(t, h.Commands())
}

func TestStackedAndNestedMountsAreUnmountedOneByOne(t *testing.T) {
	h := fake.NewHost()
	mountAt(h, base+"/x", base+"/x", base+"/x/in", base+"/y", base+"/x/in/in", base+"/x")
	require.NoError(t, newEnv(h).UnmountExistingVolumes(testContext(t)))
	require.Empty(t, h.MountTable())
	for _, line := range h.Commands() {
		require.Regexp(t, `^umount -- \S+$`, line)
	}
}

func TestMountPointsThatThisPackageMadeAreRemovedIfEmpty(t *testing.T) {
	h := newHost(fake.HostDisk{})
	env := newEnv(h)
	spec := podSpec(t, `
containers: [{name: app, volumeMounts: [{name: one, mountPath: /1}, {name: two, mountPath: /2}, {name: data, mountPath: /3}, {name: scratch, mountPath: /4}]}]
volumes: [{name: one, emptyDir: {medium: Memory}}, {name: two, emptyDir: {medium: Memory}}, {name: data, gcePersistentDisk: {pdName: data}}, {name: scratch, emptyDir: {}}]`)
	h.Mkdir(base + "/tmpfss/two")
	h.WriteFile(base+"/tmpfss/two/hidden", []byte("below the mount"))
	_, err := env.PrepareVolumesAndGetBindings(testContext(t), spec)
	require.NoError(t, err)
	h.WriteFile(base+"/emptydirs/scratch/file", []byte("kept"))
	require.NoError(t, env.UnmountExistingVolumes(testContext(t)))
	require.Empty(t, h.MountTable())
	for path, want := range map[string]bool{
		"": true, "/tmpfss/one": false, "/tmpfss/two/hidden": true, "/gce-persistent-disks": false, "/emptydirs/scratch/file": true,
	} {
		_, ok := h.Mode(base + path)
		require.Equal(t, want, ok, path)
	}
}

// H10, util-linux/util-linux#2049, systemd/systemd PR#31360
func TestMountInfoDecidesWhetherUmountHasWorked(t *testing.T) {
	exit32 := func(text string) *command.Result {
		return &command.Result{ExitCode: 32, Stderr: []byte("umount: " + text + "\n")}
	}
	t.Run("failed, and gone", func(t *testing.T) {
		h := fake.NewHost()
		mountAt(h, base+"/a")
		h.Inject(fake.HostFault{Op: "umount", Result: exit32("not mounted."), After: true})
		require.NoError(t, newEnv(h).UnmountExistingVolumes(testContext(t)))
	})
	t.Run("failed, and present", func(t *testing.T) {
		h := fake.NewHost()
		mountAt(h, base+"/a")
		h.HoldOpen(base + "/a")
		err := newEnv(h).UnmountExistingVolumes(testContext(t))
		require.ErrorIs(t, err, hostvolume.ErrUnmountBusy)
		require.Contains(t, err.Error(), "target is busy")
		require.True(t, hostvolume.Retryable(err))
		require.Len(t, runs(h, "umount"), 1)
	})
	t.Run("succeeded, and present (moosefs/moosefs-csi#34)", func(t *testing.T) {
		h := fake.NewHost()
		mountAt(h, base+"/a")
		h.Inject(fake.HostFault{Op: "umount", Result: &command.Result{}, Times: -1})
		err := newEnv(h).UnmountExistingVolumes(testContext(t))
		require.ErrorIs(t, err, hostvolume.ErrUnmountBusy)
		require.Contains(t, err.Error(), "reported success")
	})
	t.Run("succeeded once for nothing, then for real", func(t *testing.T) {
		h := fake.NewHost()
		mountAt(h, base+"/a", base+"/b")
		h.Inject(fake.HostFault{Op: "umount", Text: "/a", Result: &command.Result{}})
		require.NoError(t, newEnv(h).UnmountExistingVolumes(testContext(t)))
		require.Empty(t, h.MountTable())
	})
	t.Run("one target for each call", func(t *testing.T) {
		h := fake.NewHost()
		mountAt(h, base+"/a", base+"/b b", base+"/ü")
		require.NoError(t, newEnv(h).UnmountExistingVolumes(testContext(t)))
		for _, call := range h.Calls() {
			if call.Program {
				require.Len(t, call.Argv, 3)
			}
		}
	})
}

func TestUnmountGoesOnAfterFailuresAndJoinsThem(t *testing.T) {
	h := fake.NewHost()
	mountAt(h, base+"/a", base+"/b", base+"/b/in", base+"/c", base+"/d")
	h.HoldOpen(base + "/b/in")
	release := h.HoldOpen(base + "/d")
	h.Inject(fake.HostFault{Op: "umount", Text: base + "/c", Err: errors.New("no memory"), Times: -1})
	env := newEnv(h)
	err := env.UnmountExistingVolumes(testContext(t))
	var joined *hostvolume.UnmountError
	require.ErrorAs(t, err, &joined)
	require.Len(t, joined.Errs, 4)
	for _, want := range []string{base + "/b/in", base + "/b: " + base + "/b/in is mounted on it", "no memory", base + "/d"} {
		require.Contains(t, err.Error(), want)
	}
	require.Equal(t, []string{base + "/b", base + "/b/in", base + "/c", base + "/d"}, mountPoints(h))
	require.NotContains(t, h.Commands(), "umount -- "+base+"/b", "it cannot work while something is mounted on it")

	release()
	h.ClearFaults()
	require.Error(t, env.UnmountExistingVolumes(testContext(t)))
	require.Equal(t, []string{base + "/b", base + "/b/in"}, mountPoints(h))
}

// A mount that is hidden by a later one keeps its path, and the path may lead elsewhere by now. umount would follow it
// there.
func TestPathOfAHiddenMountIsNotFollowedThroughALink(t *testing.T) {
	h := fake.NewHost()
	mountAt(h, "/outside", base+"/x/b", base+"/x")
	h.Symlink("/outside", base+"/x/b") // in the mount that hides the other one
	release := h.HoldOpen(base + "/x")
	env := newEnv(h)
	err := env.UnmountExistingVolumes(testContext(t))
	require.ErrorIs(t, err, hostvolume.ErrUnsafePath)
	require.Equal(t, []string{"/outside", base + "/x/b", base + "/x"}, mountPoints(h))
	release()
	require.NoError(t, env.UnmountExistingVolumes(testContext(t)))
	require.Equal(t, []string{"/outside"}, mountPoints(h))
}

func TestHiddenMountIsUnmountedOnceItCanBeReached(t *testing.T) {
	h := fake.NewHost()
	mountAt(h, base+"/x/deep/b", base+"/x")
	require.NoError(t, newEnv(h).UnmountExistingVolumes(testContext(t)))
	require.Empty(t, h.MountTable())
}

func TestUnmountEndsWithItsContextAndSaysWhatItKnows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := fake.NewHost()
		mountAt(h, base+"/a", base+"/b")
		h.Inject(fake.HostFault{Op: "umount", Gate: make(chan struct{})})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		env := newEnv(h)
		err := env.UnmountExistingVolumes(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.True(t, hostvolume.Retryable(err))
		require.NoError(t, env.UnmountExistingVolumes(t.Context()))
	})
}

func TestMountTableThatCannotBeReadIsAnErrorNotAnEmptyOne(t *testing.T) {
	h := fake.NewHost()
	mountAt(h, base+"/a")
	h.Inject(fake.HostFault{Op: "ReadFile", Err: fs.ErrPermission})
	require.ErrorIs(t, newEnv(h).UnmountExistingVolumes(testContext(t)), hostvolume.ErrMountTable)
	require.Len(t, h.MountTable(), 1)
}

// Undoing goes on when the caller's context has ended.
func TestCallThatRunsOutOfTimeStillUndoesItsMounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(fake.HostDisk{Filesystem: "ext4"})
		spec := podSpec(t, `
containers: [{name: app, volumeMounts: [{name: one, mountPath: /1}, {name: data, mountPath: /3}]}]
volumes: [{name: one, emptyDir: {medium: Memory}}, {name: data, gcePersistentDisk: {pdName: data}}]`)
		h.Inject(fake.HostFault{Op: "mount", Text: "/dev/sdb", Gate: make(chan struct{})})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := newEnv(h).PrepareVolumesAndGetBindings(ctx, spec)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.True(t, hostvolume.Retryable(err))
		require.Empty(t, h.MountTable())
	})
}

func TestCallsThatChangeTheHostWaitForEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(fake.HostDisk{})
		gate := make(chan struct{})
		h.Inject(fake.HostFault{Op: "mkfs.ext4", Gate: gate})
		env := newEnv(h)
		const callers = 5
		results := make(chan error, callers)
		for range callers {
			go func() {
				_, err := env.PrepareVolumesAndGetBindings(t.Context(), diskSpec(t))
				results <- err
			}()
		}
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := env.UnmountExistingVolumes(ctx)
		require.ErrorIs(t, err, hostvolume.ErrInProgress)
		close(gate)
		for range callers {
			require.NoError(t, <-results)
		}
		require.Len(t, h.Formats(), 1)
		require.Len(t, runs(h, "mount "), 1)
		require.False(t, slices.Contains(ops(h), "umount"))
	})
}
