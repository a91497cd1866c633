package hostvolume_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/stateofworld/stateofworld/executor/hostvolume"
	"github.com/stateofworld/stateofworld/fake"
)

func everything(t testing.TB) *v1.PodSpec {
	return podSpec(t, `
initContainers: [{name: init, volumeMounts: [{name: data, mountPath: /data, subPath: a/b}]}]
containers:
- name: app
  volumeMounts: [{name: mem, mountPath: /mem}, {name: scratch, mountPath: /scratch}, {name: data, mountPath: /data}, {name: old, mountPath: /old, readOnly: true}, {name: dir, mountPath: /dir}, {name: file, mountPath: /file}]
volumes:
- {name: mem, emptyDir: {medium: Memory, sizeLimit: 1Mi}}
- {name: scratch, emptyDir: {}}
- {name: data, gcePersistentDisk: {pdName: data}}
- {name: old, hostPath: {path: /dev/old, type: BlockDevice}}
- {name: dir, hostPath: {path: /srv/a/b, type: DirectoryOrCreate}}
- {name: file, hostPath: {path: /srv/file, type: FileOrCreate}}`)
}

func everythingHost() *fake.Host {
	h := newHost(fake.HostDisk{Size: 1 << 20})
	h.AddDisk("/dev/sdc", fake.HostDisk{Filesystem: "xfs", Links: []string{"/dev/old"}})
	h.Mkdir("/srv")
	mountAt(h, "/srv/foreign")
	return h
}

func everythingEnv(h *fake.Host) *hostvolume.Env {
	return newEnv(h, options(func(o *hostvolume.Options) {
		o.StateDir = "/var/lib/agent"
		o.Devices = map[string]hostvolume.Device{"old": {FSType: "xfs"}}
	}))
}

// The process ends at any call, before or after its effect, and the next one starts over: the end is the same, and
// nothing is formatted twice.
func TestProcessThatEndsAtAnyCallIsTakenOverByTheNext(t *testing.T) {
	ctx := testContext(t)
	reference := everythingHost()
	want, err := everythingEnv(reference).PrepareVolumesAndGetBindings(ctx, everything(t))
	require.NoError(t, err)
	prepareCalls := len(reference.Calls())
	wantTable := reference.MountTable()
	reference.ResetCalls()
	require.NoError(t, everythingEnv(reference).UnmountExistingVolumes(ctx))
	unmountCalls := len(reference.Calls())
	wantEnd := reference.MountTable()
	require.Equal(t, []string{"/srv/foreign tmpfs tmpfs rw"}, wantEnd)

	for _, afterEffect := range []bool{false, true} {
		for n := range prepareCalls {
			name := fmt.Sprintf("prepare, call %d, after its effect: %v", n, afterEffect)
			h := everythingHost()
			h.StopAt(n, afterEffect)
			_, err := everythingEnv(h).PrepareVolumesAndGetBindings(ctx, everything(t))
			require.ErrorIs(t, err, fake.ErrHostStopped, name)
			require.True(t, h.Restart(), name)
			got, err := everythingEnv(h).PrepareVolumesAndGetBindings(ctx, everything(t))
			require.NoError(t, err, name)
			require.Equal(t, want, got, name)
			require.ElementsMatch(t, wantTable, h.MountTable(), name)
			require.Equal(t, []fake.HostFormat{{Device: "/dev/sdb", Filesystem: "ext4"}}, h.Formats(), name)
			require.NoError(t, everythingEnv(h).UnmountExistingVolumes(ctx), name)
			require.Equal(t, wantEnd, h.MountTable(), name)
		}
		for n := range unmountCalls {
			name := fmt.Sprintf("unmount, call %d, after its effect: %v", n, afterEffect)
			h := everythingHost()
			_, err := everythingEnv(h).PrepareVolumesAndGetBindings(ctx, everything(t))
			require.NoError(t, err, name)
			h.StopAt(n, afterEffect)
			err = everythingEnv(h).UnmountExistingVolumes(ctx)
			require.True(t, h.Restart(), name)
			if err != nil { // removing mount points is not worth an error
				require.ErrorIs(t, err, fake.ErrHostStopped, name)
			}
			require.NoError(t, everythingEnv(h).UnmountExistingVolumes(ctx), name)
			require.Equal(t, wantEnd, h.MountTable(), name)
			got, err := everythingEnv(h).PrepareVolumesAndGetBindings(ctx, everything(t))
			require.NoError(t, err, name)
			require.Equal(t, want, got, name)
		}
	}
}

// Any one call fails, before or after its effect: the call fails cleanly or succeeds rightly, leaves no mount behind in
// the first case, and the next call succeeds.
func TestFailureOfAnyOneCallIsUndoneAndTriedAgain(t *testing.T) {
	ctx := testContext(t)
	reference := everythingHost()
	want, err := everythingEnv(reference).PrepareVolumesAndGetBindings(ctx, everything(t))
	require.NoError(t, err)
	calls := len(reference.Calls())
	before := everythingHost().MountTable()
	for _, after := range []bool{false, true} {
		for n := range calls {
			name := fmt.Sprintf("call %d (%v), after its effect: %v", n, reference.Calls()[n], after)
			h := everythingHost()
			h.Inject(fake.HostFault{Skip: n, Err: fmt.Errorf("fault"), After: after})
			env := everythingEnv(h)
			got, err := env.PrepareVolumesAndGetBindings(ctx, everything(t))
			if err != nil {
				require.Equal(t, before, h.MountTable(), name)
				require.True(t, hostvolume.Retryable(err), "%s: %v", name, err)
				got, err = env.PrepareVolumesAndGetBindings(ctx, everything(t))
			}
			require.NoError(t, err, name)
			require.Equal(t, want, got, name)
			require.Equal(t, []fake.HostFormat{{Device: "/dev/sdb", Filesystem: "ext4"}}, h.Formats(), name)
		}
	}
}
