package hostvolume_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/stateofworld/stateofworld/executor/hostvolume"
	"github.com/stateofworld/stateofworld/fake"
)

func TestBadOptionsAreRefusedBeforeAnythingHappens(t *testing.T) {
	for name, change := range map[string]func(*hostvolume.Options){
		"relative base":             func(o *hostvolume.Options) { o.BaseDir = "volumes" },
		"root as base":              func(o *hostvolume.Options) { o.BaseDir = "//./" },
		"base with ..":              func(o *hostvolume.Options) { o.BaseDir = "/a/../b" },
		"relative device directory": func(o *hostvolume.Options) { o.DeviceDir = "dev" },
		"state inside base":         func(o *hostvolume.Options) { o.BaseDir, o.StateDir = "/a", "/a/b" },
		"state is base":             func(o *hostvolume.Options) { o.BaseDir, o.StateDir = "/a", "/a/" },
		"unknown filesystem":        func(o *hostvolume.Options) { o.Devices = map[string]hostvolume.Device{"a": {FSType: "zfs"}} },
		"rw as a mount option": func(o *hostvolume.Options) {
			o.Devices = map[string]hostvolume.Device{"a": {MountOptions: []string{"rw"}}}
		},
		"two mount options in one": func(o *hostvolume.Options) {
			o.Devices = map[string]hostvolume.Device{"a": {MountOptions: []string{"a,remount"}}}
		},
		"mkfs for what is unknown":    func(o *hostvolume.Options) { o.MkfsOptions = map[string][]string{"zfs": nil} },
		"mkfs.ext4 with force":        func(o *hostvolume.Options) { o.MkfsOptions = map[string][]string{"ext4": {"-m", "0", "-F"}} },
		"mkfs.ext4 with force inside": func(o *hostvolume.Options) { o.MkfsOptions = map[string][]string{"ext4": {"-qF"}} },
		"mkfs.xfs with force":         func(o *hostvolume.Options) { o.MkfsOptions = map[string][]string{"xfs": {"-f"}} },
		"format policy":               func(o *hostvolume.Options) { o.Format = 7 },
		"fsck policy":                 func(o *hostvolume.Options) { o.Fsck = -1 },
		"first use at every start":    func(o *hostvolume.Options) { o.FirstUse = []string{"data"} },
		"negative timeout":            func(o *hostvolume.Options) { o.DeviceTimeout = -time.Second },
	} {
		t.Run(name, func(t *testing.T) {
			h := fake.NewHost()
			env := newEnv(h, options(change))
			_, err := env.PrepareVolumesAndGetBindings(testContext(t), podSpec(t, "containers: [{name: a}]"))
			require.ErrorIs(t, err, hostvolume.ErrInvalidOptions)
			require.ErrorIs(t, env.UnmountExistingVolumes(testContext(t)), hostvolume.ErrInvalidOptions)
			require.ErrorIs(t, env.ForgetDevice(testContext(t), "/dev/sdb"), hostvolume.ErrInvalidOptions)
			require.False(t, hostvolume.Retryable(err))
			require.Empty(t, h.Calls())
		})
	}
	_, err := (&hostvolume.Env{}).PrepareVolumesAndGetBindings(testContext(t), nil)
	require.ErrorIs(t, err, hostvolume.ErrInvalidOptions, "no Runner")
}

func TestOptionsThatOnlyLookLikeForceAreAllowed(t *testing.T) {
	h := newHost(fake.HostDisk{})
	env := newEnv(h, options(func(o *hostvolume.Options) {
		o.MkfsOptions = map[string][]string{"ext4": {"-LFast", "-E", "F", "-f", "1024"}}
	}))
	_, err := env.PrepareVolumesAndGetBindings(testContext(t), diskSpec(t))
	require.NoError(t, err)
}

func TestRetryableNeedsAllPartsToBe(t *testing.T) {
	passing := &hostvolume.VolumeError{Volume: "a", Err: fmt.Errorf("%w: %w", hostvolume.ErrDeviceBusy, errors.New("x"))}
	lasting := &hostvolume.VolumeError{Volume: "b", Err: hostvolume.ErrHasPartitions}
	require.True(t, hostvolume.Retryable(passing))
	require.False(t, hostvolume.Retryable(lasting))
	require.True(t, hostvolume.Retryable(&hostvolume.PrepareError{Errs: []error{passing, passing}}))
	require.False(t, hostvolume.Retryable(&hostvolume.PrepareError{Errs: []error{passing, lasting}}))
	require.False(t, hostvolume.Retryable(&hostvolume.UnmountError{Errs: []error{passing, lasting}}))
	require.True(t, hostvolume.Retryable(fmt.Errorf("wrapped: %w", context.Canceled)))
	require.False(t, hostvolume.Retryable(errors.New("of no class")))
	require.False(t, hostvolume.Retryable(nil))
}
