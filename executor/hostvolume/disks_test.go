package hostvolume_test

import (
	"context"
	"io/fs"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/stateofworld/stateofworld/executor/command"
	"github.com/stateofworld/stateofworld/executor/hostvolume"
	"github.com/stateofworld/stateofworld/fake"
)

// refused prepares the disk "data" and expects it to be refused without anything having been written.
func refused(t *testing.T, h *fake.Host, env *hostvolume.Env, class error, fields ...string) error {
	t.Helper()
	before := h.MountTable()
	_, err := env.PrepareVolumesAndGetBindings(testContext(t), diskSpec(t, fields...))
	require.ErrorIs(t, err, class)
	require.False(t, ran(h, "mkfs"), "%q", h.Commands())
	require.Empty(t, h.Formats())
	require.Equal(t, before, h.MountTable())
	require.Equal(t, "data", volumeErr(t, err).Volume)
	require.Equal(t, dataLink, volumeErr(t, err).Device)
	return err
}

// H01, kubernetes/kubernetes PR#43378
func TestDiskWithAPartitionTableIsNotFormatted(t *testing.T) {
	h := newHost(fake.HostDisk{})
	h.WritePartitionTable("/dev/sdb")
	err := refused(t, h, newEnv(h), hostvolume.ErrHasPartitions)
	require.False(t, hostvolume.Retryable(err))
	require.Contains(t, err.Error(), "no partition is chosen")
	require.False(t, ran(h, "mount"))
}

// H02, kubernetes/kubernetes#142243
func TestNothingFoundIsNotTakenForBlank(t *testing.T) {
	const probe = "blkid"
	for name, tc := range map[string]struct {
		arrange func(h *fake.Host)
		want    error
		retry   bool
		blank   bool
	}{
		"device cannot be read": {func(h *fake.Host) { h.FailReads("/dev/sdb", syscall.EIO) }, hostvolume.ErrDeviceUnreadable, true, false},
		"device cannot be read in the middle": {func(h *fake.Host) {
			h.Inject(fake.HostFault{Op: "ReadAt", Skip: 20, Err: syscall.EIO})
		}, hostvolume.ErrDeviceUnreadable, true, true},
		"device is shorter than it says": {func(h *fake.Host) {
			h.Inject(fake.HostFault{Op: "blockdev", Result: &command.Result{Stdout: []byte("99999999999999\n0\n")}})
		}, hostvolume.ErrDeviceUnreadable, true, true},
		"size of 0": {func(h *fake.Host) {
			h.Inject(fake.HostFault{Op: "blockdev", Result: &command.Result{Stdout: []byte("0\n0\n")}})
		}, hostvolume.ErrDeviceUnreadable, true, false},
		"superblock destroyed, data intact": {func(h *fake.Host) { h.WriteDisk("/dev/sdb", 1024+0x38, []byte{0, 0}) }, hostvolume.ErrNotBlank, false, false},
		"ambiguous": {func(h *fake.Host) {
			h.Inject(fake.HostFault{Op: probe, Result: &command.Result{ExitCode: 8}})
		}, hostvolume.ErrAmbiguous, false, false},
		"success that names nothing": {func(h *fake.Host) {
			h.Inject(fake.HostFault{Op: probe, Result: &command.Result{Stdout: []byte("DEVNAME=/dev/sdb\n")}})
		}, hostvolume.ErrAmbiguous, false, false},
		"probe cannot be run": {func(h *fake.Host) {
			h.Inject(fake.HostFault{Op: probe, Err: &command.SpawnError{Argv: []string{probe}, Err: fs.ErrNotExist}})
		}, hostvolume.ErrNoProgram, false, false},
		"probe hangs": {func(h *fake.Host) {
			h.Inject(fake.HostFault{Op: probe, Err: &command.TimeoutError{Argv: []string{probe}, Started: true, Err: context.DeadlineExceeded}})
		}, context.DeadlineExceeded, true, false},
		"device is absent": {func(h *fake.Host) {
			h.Inject(fake.HostFault{Op: "Stat", Text: "/dev/sdb", Err: fs.ErrNotExist})
		}, hostvolume.ErrNoDevice, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			disk := fake.HostDisk{Filesystem: "ext4"}
			if tc.blank {
				disk = fake.HostDisk{}
			}
			h := newHost(disk)
			tc.arrange(h)
			err := refused(t, h, newEnv(h), tc.want)
			require.Equal(t, tc.retry, hostvolume.Retryable(err), "%v", err)
		})
	}
}

// H05, runatlantis/terraform-gce-atlantis#107
func TestDeviceThatIsMountedElsewhereIsBusyAndThePlaceIsNamed(t *testing.T) {
	h := newHost(fake.HostDisk{Filesystem: "ext4"})
	h.Mkdir("/other place")
	h.Mount("/dev/sdb", "/other place", "ext4", "rw")
	err := refused(t, h, newEnv(h), hostvolume.ErrDeviceBusy)
	require.Equal(t, "/other place", volumeErr(t, err).Place)
	require.Contains(t, err.Error(), "/other place")
	require.True(t, hostvolume.Retryable(err))
	require.Empty(t, h.Commands(), "no fsck, no mkfs")
}

// H05
func TestDeviceThatIsMountedWhereItBelongsIsUsedAsItIs(t *testing.T) {
	for name, tc := range map[string]struct {
		options, fsType string
		spec            []string
		want            error
	}{
		"as wanted":                        {options: "rw"},
		"read-only, to be written":         {options: "ro", want: hostvolume.ErrReadOnlyDevice},
		"as another filesystem than asked": {options: "rw", spec: []string{"fsType: xfs"}, want: hostvolume.ErrTargetInUse},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(fake.HostDisk{Filesystem: "ext4"})
			h.Mkdir(dataTarget)
			h.Mkdir("/also")
			h.Mount("/dev/sdb", "/also", "ext4", tc.options)
			h.Mount("/dev/sdb", dataTarget, "ext4", tc.options)
			got, err := newEnv(h).PrepareVolumesAndGetBindings(testContext(t), diskSpec(t, tc.spec...))
			require.Empty(t, h.Commands())
			if tc.want != nil {
				require.ErrorIs(t, err, tc.want)
				require.Equal(t, dataTarget, volumeErr(t, err).Place)
				return
			}
			require.NoError(t, err)
			require.Equal(t, dataTarget, got["app"][0].HostPath)
		})
	}
	t.Run("for writing, only to be read", func(t *testing.T) {
		h := newHost(fake.HostDisk{Filesystem: "ext4"})
		h.Mkdir(dataTarget)
		h.Mount("/dev/sdb", dataTarget, "ext4", "rw")
		_, err := newEnv(h).PrepareVolumesAndGetBindings(testContext(t), readOnly(diskSpec(t)))
		require.ErrorIs(t, err, hostvolume.ErrTargetInUse)
	})
	t.Run("another device", func(t *testing.T) {
		h := newHost(fake.HostDisk{Filesystem: "ext4"})
		h.AddDisk("/dev/sdc", fake.HostDisk{Filesystem: "ext4"})
		h.Mkdir(dataTarget)
		h.Mount("/dev/sdc", dataTarget, "ext4", "rw")
		err := refused(t, h, newEnv(h), hostvolume.ErrTargetInUse)
		require.Contains(t, err.Error(), "/dev/sdc")
	})
}

// H06, kubernetes/kubernetes#94970, zalando-stups/taupage PR#350
func TestFsckDecidesByTheBitsOfItsExitCode(t *testing.T) {
	for exit, want := range map[int]error{
		0: nil, 1: nil, 2: nil, 3: nil, 4: hostvolume.ErrNeedsRepair, 5: hostvolume.ErrNeedsRepair,
		12: hostvolume.ErrCheckFailed, 8: hostvolume.ErrCheckFailed, 16: hostvolume.ErrCheckFailed, 32: hostvolume.ErrCheckFailed, 128: hostvolume.ErrCheckFailed,
	} {
		h := newHost(fake.HostDisk{Filesystem: "ext4"})
		h.Inject(fake.HostFault{Op: "fsck.ext4", Result: &command.Result{ExitCode: exit, Stdout: []byte("/dev/sdb: says fsck\n")}})
		_, err := newEnv(h).PrepareVolumesAndGetBindings(testContext(t), diskSpec(t))
		if want == nil {
			require.NoError(t, err, "exit %d", exit)
			require.True(t, ran(h, "mount"))
			continue
		}
		require.ErrorIs(t, err, want, "exit %d", exit)
		require.Contains(t, err.Error(), "says fsck")
		require.False(t, ran(h, "mount"), "exit %d", exit)
		require.Equal(t, exit&8 != 0 || exit > 8, hostvolume.Retryable(err), "exit %d", exit)
		var failed *hostvolume.CommandError
		require.ErrorAs(t, err, &failed)
		require.Equal(t, exit, failed.ExitCode)
	}
	t.Run("cannot be started", func(t *testing.T) {
		h := newHost(fake.HostDisk{Filesystem: "ext4"})
		h.Inject(fake.HostFault{Op: "fsck.ext4", Err: &command.SpawnError{Argv: []string{"fsck.ext4"}, Err: fs.ErrNotExist}})
		_, err := newEnv(h).PrepareVolumesAndGetBindings(testContext(t), diskSpec(t))
		require.ErrorIs(t, err, hostvolume.ErrNoProgram)
		require.False(t, ran(h, "mount"))
	})
	t.Run("killed", func(t *testing.T) {
		h := newHost(fake.HostDisk{Filesystem: "ext4"})
		h.Inject(fake.HostFault{Op: "fsck.ext4", Err: &command.SignalError{Argv: []string{"fsck.ext4"}, Signal: syscall.SIGKILL}})
		_, err := newEnv(h).PrepareVolumesAndGetBindings(testContext(t), diskSpec(t))
		require.ErrorIs(t, err, hostvolume.ErrCheckFailed)
		require.False(t, ran(h, "mount"))
	})
}

func TestFilesystemThatNeedsAHumanIsNotMounted(t *testing.T) {
	h := newHost(fake.HostDisk{Filesystem: "ext4"})
	h.SetDamage("/dev/sdb", fake.HostNeedsRepair)
	err := refused(t, h, newEnv(h), hostvolume.ErrNeedsRepair)
	require.Contains(t, err.Error(), "RUN fsck MANUALLY")
	require.False(t, hostvolume.Retryable(err))

	h.SetDamage("/dev/sdb", fake.HostRepairable)
	_, err = newEnv(h).PrepareVolumesAndGetBindings(testContext(t), diskSpec(t))
	require.NoError(t, err)
}

// H15, kubernetes/kubernetes#78880, #27058
func TestWriteProtectedDevices(t *testing.T) {
	protected := func(e *hostvolume.Env) {
		e.Metadata = hostvolume.StaticMetadata{{DeviceName: "data", Mode: hostvolume.DiskReadOnly}}
	}
	t.Run("to be written", func(t *testing.T) {
		h := newHost(fake.HostDisk{Filesystem: "ext4", ReadOnly: true})
		refused(t, h, newEnv(h), hostvolume.ErrReadOnlyDevice)
		require.False(t, ran(h, "mount") || ran(h, "fsck"))
	})
	t.Run("to be written, found out only by mount", func(t *testing.T) {
		h := newHost(fake.HostDisk{Filesystem: "ext4", ReadOnly: true})
		h.Inject(fake.HostFault{Op: "blockdev", Result: &command.Result{Stdout: []byte("1073741824\n0\n")}})
		env := newEnv(h, options(func(o *hostvolume.Options) { o.Fsck = hostvolume.FsckNever }))
		refused(t, h, env, hostvolume.ErrReadOnlyDevice)
		require.Equal(t, []string{"umount -- " + dataTarget}, runs(h, "umount"))
	})
	t.Run("to be read", func(t *testing.T) {
		h := newHost(fake.HostDisk{Filesystem: "ext4", ReadOnly: true})
		_, err := newEnv(h, protected).PrepareVolumesAndGetBindings(testContext(t), readOnly(diskSpec(t)))
		require.NoError(t, err)
		require.Equal(t, []string{"mount -t ext4 -o ro -- /dev/sdb " + dataTarget}, runs(h, "mount"))
		require.False(t, ran(h, "fsck") || ran(h, "mkfs"))
	})
	t.Run("blank, to be read", func(t *testing.T) {
		h := newHost(fake.HostDisk{ReadOnly: true})
		_, err := newEnv(h, protected).PrepareVolumesAndGetBindings(testContext(t), readOnly(diskSpec(t)))
		require.ErrorIs(t, err, hostvolume.ErrUnformattedReadOnly)
		require.False(t, ran(h, "fsck") || ran(h, "mkfs") || ran(h, "mount"))
	})
	t.Run("blank, to be read although it could be written", func(t *testing.T) {
		h := newHost(fake.HostDisk{})
		_, err := newEnv(h).PrepareVolumesAndGetBindings(testContext(t), readOnly(diskSpec(t)))
		require.ErrorIs(t, err, hostvolume.ErrUnformattedReadOnly)
	})
	t.Run("with a journal to replay", func(t *testing.T) {
		for _, tc := range []struct{ fsType, option string }{{"ext4", "noload"}, {"xfs", "norecovery"}} {
			h := newHost(fake.HostDisk{Filesystem: tc.fsType, ReadOnly: true})
			h.SetDamage("/dev/sdb", fake.HostRepairable)
			spec := readOnly(diskSpec(t, "fsType: "+tc.fsType))
			_, err := newEnv(h, protected).PrepareVolumesAndGetBindings(testContext(t), spec)
			require.ErrorIs(t, err, hostvolume.ErrNotMounted)
			_, err = newEnv(h, protected, options(func(o *hostvolume.Options) { o.SkipReplay = true })).PrepareVolumesAndGetBindings(testContext(t), spec)
			require.NoError(t, err)
			require.Equal(t, []string{dataTarget + " /dev/sdb " + tc.fsType + " ro," + tc.option}, h.MountTable())
		}
	})
}

func TestDeviceNodeIsWaitedFor(t *testing.T) {
	wait := func(d time.Duration) func(*hostvolume.Env) {
		return options(func(o *hostvolume.Options) { o.DeviceWait = d })
	}
	t.Run("it appears", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			h := newHost(fake.HostDisk{Delay: 3 * time.Second})
			start := time.Now()
			_, err := newEnv(h, wait(0)).PrepareVolumesAndGetBindings(t.Context(), diskSpec(t))
			require.NoError(t, err)
			require.GreaterOrEqual(t, time.Since(start), 3*time.Second)
			require.Less(t, time.Since(start), 5*time.Second)
		})
	})
	t.Run("it does not", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			h := newHost(fake.HostDisk{Delay: time.Hour})
			start := time.Now()
			_, err := newEnv(h, wait(7*time.Second)).PrepareVolumesAndGetBindings(t.Context(), diskSpec(t))
			require.ErrorIs(t, err, hostvolume.ErrNoDevice)
			require.True(t, hostvolume.Retryable(err))
			require.Equal(t, 7*time.Second, time.Since(start))
			require.Empty(t, h.Commands())
		})
	})
	t.Run("the caller gives up", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			h := newHost(fake.HostDisk{Delay: time.Hour})
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_, err := newEnv(h, wait(time.Hour)).PrepareVolumesAndGetBindings(ctx, diskSpec(t))
			require.ErrorIs(t, err, context.DeadlineExceeded)
		})
	})
}

func TestDeviceThatIsNoBlockDeviceIsRefused(t *testing.T) {
	h := fake.NewHost()
	h.WriteFile("/etc/passwd", []byte("root"))
	h.Symlink("/etc/passwd", dataLink)
	refused(t, h, newEnv(h), hostvolume.ErrNotBlockDevice)
}

func TestTwoVolumesOnOneDeviceAreFoundThroughLinks(t *testing.T) {
	h := newHost(fake.HostDisk{Links: []string{"/dev/vg/data"}})
	spec := podSpec(t, `
containers: [{name: app, volumeMounts: [{name: data, mountPath: /a}, {name: lv, mountPath: /b}, {name: raw, mountPath: /c}]}]
volumes:
- {name: data, gcePersistentDisk: {pdName: data}}
- {name: lv, hostPath: {path: /dev/vg/data, type: BlockDevice}}
- {name: raw, hostPath: {path: /dev/sdb, type: BlockDevice}}`)
	env := newEnv(h, options(func(o *hostvolume.Options) { o.Devices = map[string]hostvolume.Device{"lv": {}} }))
	_, err := env.PrepareVolumesAndGetBindings(testContext(t), spec)
	var invalid *hostvolume.InvalidSpecError
	require.ErrorAs(t, err, &invalid)
	require.Len(t, invalid.Faults, 3)
	require.Contains(t, err.Error(), "is on the same device (/dev/sdb, 8:16) as volume data")
	require.Empty(t, h.Formats())
	require.Empty(t, h.MountTable())
	require.NotContains(t, ops(h), "MkdirAll")
}

// All devices are looked at before anything is written, and everything that is wrong is reported at once.
func TestFaultsOfAllDevicesAreReportedBeforeAnythingIsWritten(t *testing.T) {
	h := newHost(fake.HostDisk{})
	h.AddDisk("/dev/sdc", fake.HostDisk{Filesystem: "xfs", Links: []string{"/dev/disk/by-id/google-two"}})
	h.AddDisk("/dev/sdd", fake.HostDisk{Links: []string{"/dev/disk/by-id/google-three"}})
	h.WritePartitionTable("/dev/sdd")
	env := newEnv(h, func(e *hostvolume.Env) {
		e.Metadata = hostvolume.StaticMetadata{
			{DeviceName: "data", Mode: "READ_WRITE"}, {DeviceName: "two", Mode: "READ_WRITE"}, {DeviceName: "three", Mode: "READ_WRITE"}, {DeviceName: "late", Mode: "READ_WRITE"},
		}
	})
	spec := podSpec(t, `
containers: [{name: app, volumeMounts: [{name: data, mountPath: /1}, {name: two, mountPath: /2}, {name: three, mountPath: /3}, {name: dir, mountPath: /4}, {name: late, mountPath: /5}]}]
volumes:
- {name: data, gcePersistentDisk: {pdName: data}}
- {name: two, gcePersistentDisk: {pdName: two}}
- {name: three, gcePersistentDisk: {pdName: three}}
- {name: dir, hostPath: {path: /absent, type: Directory}}
- {name: late, gcePersistentDisk: {pdName: late}}`)
	_, err := env.PrepareVolumesAndGetBindings(testContext(t), spec)
	for _, want := range []error{hostvolume.ErrWrongFilesystem, hostvolume.ErrHasPartitions, hostvolume.ErrHostPath, hostvolume.ErrNoDevice} {
		require.ErrorIs(t, err, want)
	}
	require.Empty(t, h.Formats())
	require.Empty(t, h.MountTable())
	require.False(t, hostvolume.Retryable(err))
}
