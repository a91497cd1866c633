package hostvolume_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
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

// H02: the look is repeated right before mkfs, by the same path.
func TestWhatHappensBetweenLookingAndFormattingIsSeen(t *testing.T) {
	for name, tc := range map[string]struct {
		fault fake.HostFault
		want  error
	}{
		"formatted by someone else": {fake.HostFault{Op: "blkid", Skip: 1, Result: &command.Result{Stdout: []byte("TYPE=ext4\n")}}, hostvolume.ErrDeviceBusy},
		"another filesystem on it":  {fake.HostFault{Op: "blkid", Skip: 1, Result: &command.Result{Stdout: []byte("TYPE=xfs\n")}}, hostvolume.ErrWrongFilesystem},
		"partitioned":               {fake.HostFault{Op: "blkid", Skip: 1, Result: &command.Result{Stdout: []byte("PTTYPE=gpt\n")}}, hostvolume.ErrHasPartitions},
		"another device now":        {fake.HostFault{Op: "EvalSymlinks", Text: dataLink, Skip: 1, Err: fs.ErrNotExist}, hostvolume.ErrNoDevice},
		"mount table unreadable":    {fake.HostFault{Op: "ReadFile", Skip: 1, Err: errors.New("lost")}, hostvolume.ErrMountTable},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(fake.HostDisk{})
			h.Inject(tc.fault)
			refused(t, h, newEnv(h), tc.want)
		})
	}
	t.Run("written without a filesystem", func(t *testing.T) {
		h := newHost(fake.HostDisk{})
		looks := 0
		env := newEnv(h, func(e *hostvolume.Env) {
			e.Runner = &hooked{Runner: h, evalSymlinks: func(path string) {
				if path == dataLink {
					looks++
				}
				if looks == 2 {
					h.WriteDisk("/dev/sdb", 1<<29, []byte("raw"))
				}
			}}
		})
		err := refused(t, h, env, hostvolume.ErrNotBlank)
		require.Contains(t, err.Error(), fmt.Sprint(1<<29))
	})
	t.Run("formatted and mounted by someone else", func(t *testing.T) {
		h := newHost(fake.HostDisk{})
		looks := 0
		env := newEnv(h, func(e *hostvolume.Env) {
			e.Runner = &hooked{Runner: h, evalSymlinks: func(path string) {
				if path != dataLink {
					return
				}
				if looks++; looks == 2 {
					result, err := h.Run(t.Context(), command.Command{Argv: []string{"mkfs.ext4", "-q", "/dev/sdb"}})
					require.NoError(t, err)
					require.Zero(t, result.ExitCode)
					h.Mkdir("/other")
					h.Mount("/dev/sdb", "/other", "ext4", "rw")
				}
			}}
		})
		_, err := env.PrepareVolumesAndGetBindings(testContext(t), diskSpec(t))
		require.ErrorIs(t, err, hostvolume.ErrDeviceBusy)
		require.Equal(t, "/other", volumeErr(t, err).Place)
		require.Len(t, h.Formats(), 1, "only theirs")
	})
}

// H02: device names are handed out anew when disks come and go.
func TestLinkThatLeadsToAnotherDeviceByNowIsNotFormatted(t *testing.T) {
	h := newHost(fake.HostDisk{})
	h.AddDisk("/dev/sdc", fake.HostDisk{})
	looks := 0
	env := newEnv(h, func(e *hostvolume.Env) {
		e.Runner = &hooked{Runner: h, evalSymlinks: func(path string) {
			if path != dataLink {
				return
			}
			if looks++; looks == 2 {
				require.NoError(t, h.Remove(t.Context(), dataLink))
				h.Symlink("/dev/sdc", dataLink)
			}
		}}
	})
	err := refused(t, h, env, hostvolume.ErrNoDevice)
	require.Contains(t, err.Error(), "has become another device")
	require.True(t, hostvolume.Retryable(err))
}

// hooked calls a function before a call reaches the host.
type hooked struct {
	command.Runner
	evalSymlinks func(path string)
}

func (r *hooked) EvalSymlinks(ctx context.Context, path string) (string, error) {
	r.evalSymlinks(path)
	return r.Runner.EvalSymlinks(ctx, path)
}

// H03, kubernetes/kubernetes PR#59050, rook/rook#1553
func TestOnlyALowLevelProbeDecidesAboutFormatting(t *testing.T) {
	h := newHost(fake.HostDisk{Filesystem: "ext4"})
	_, err := newEnv(h).PrepareVolumesAndGetBindings(testContext(t), diskSpec(t))
	require.NoError(t, err)
	require.False(t, ran(h, "mkfs"))
	require.False(t, ran(h, "lsblk"))

	h = newHost(fake.HostDisk{})
	_, err = newEnv(h).PrepareVolumesAndGetBindings(testContext(t), diskSpec(t))
	require.NoError(t, err)
	last := ""
	for _, line := range h.Commands() {
		if strings.HasPrefix(line, "mkfs") {
			require.Equal(t, "blkid -p -s TYPE -s PTTYPE -o export /dev/sdb", last, "what comes right before mkfs")
		}
		last = line
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

// H12, GoogleCloudPlatform/konlet#69, terraform-google-container-vm#117
func TestDiskIsLookedUpByItsDeviceNameAndTheKnownOnesAreListed(t *testing.T) {
	h := newHost(fake.HostDisk{Filesystem: "ext4"})
	metadata := &hostvolume.StaticMetadata{{DeviceName: "persistent-disk-1", Mode: "READ_WRITE"}, {DeviceName: "boot", Mode: "READ_WRITE"}}
	env := newEnv(h, func(e *hostvolume.Env) { e.Metadata = metadata })
	err := refused(t, h, env, hostvolume.ErrNoDevice)
	require.Contains(t, err.Error(), "boot, persistent-disk-1")
	require.True(t, hostvolume.Retryable(err))
	require.Empty(t, h.Calls(), "nothing was touched")

	*metadata = append(*metadata, hostvolume.AttachedDisk{DeviceName: "data", Mode: "READ_WRITE"}) // attached later
	_, err = env.PrepareVolumesAndGetBindings(testContext(t), diskSpec(t))
	require.NoError(t, err)
}

// H12
func TestModesOfAttachment(t *testing.T) {
	h := newHost(fake.HostDisk{Filesystem: "ext4"})
	with := func(disks ...hostvolume.AttachedDisk) *hostvolume.Env {
		return newEnv(h, func(e *hostvolume.Env) { e.Metadata = hostvolume.StaticMetadata(disks) })
	}
	err := refused(t, h, with(hostvolume.AttachedDisk{DeviceName: "data", Mode: "READ_ONLY"}), hostvolume.ErrReadOnlyDevice)
	require.False(t, hostvolume.Retryable(err))
	err = refused(t, h, with(hostvolume.AttachedDisk{DeviceName: "data", Mode: "EXCLUSIVE"}), hostvolume.ErrBadMetadata)
	require.Contains(t, err.Error(), "EXCLUSIVE")
	refused(t, h, with(hostvolume.AttachedDisk{DeviceName: "data", Mode: "READ_WRITE"}, hostvolume.AttachedDisk{DeviceName: "data", Mode: "READ_ONLY"}), hostvolume.ErrBadMetadata)

	_, err = with(hostvolume.AttachedDisk{DeviceName: "data", Mode: "READ_WRITE"}, hostvolume.AttachedDisk{DeviceName: "other", Mode: "EXCLUSIVE"}, hostvolume.AttachedDisk{}).
		PrepareVolumesAndGetBindings(testContext(t), diskSpec(t))
	require.NoError(t, err, "disks that the spec does not use do not matter")
}

func TestFaultsOfTheSpecAndOfTheAttachmentAreReportedTogether(t *testing.T) {
	h := newHost(fake.HostDisk{Filesystem: "ext4"})
	env := newEnv(h, func(e *hostvolume.Env) {
		e.Metadata = hostvolume.StaticMetadata{{DeviceName: "data", Mode: "READ_ONLY"}}
	})
	spec := diskSpec(t)
	spec.Volumes[0].Name, spec.Containers[0].VolumeMounts[0].Name = "-o", "-o"
	_, err := env.PrepareVolumesAndGetBindings(testContext(t), spec)
	require.ErrorIs(t, err, hostvolume.ErrInvalidSpec)
	require.ErrorIs(t, err, hostvolume.ErrReadOnlyDevice)
	require.Empty(t, h.Calls())
}

func TestMetadataIsAskedOnlyForPersistentDisksAndIsThenRequired(t *testing.T) {
	h := newHost(fake.HostDisk{Filesystem: "ext4"})
	env := newEnv(h, func(e *hostvolume.Env) { e.Metadata = nil })
	_, err := env.PrepareVolumesAndGetBindings(testContext(t), podSpec(t, "containers: [{name: app}]"))
	require.NoError(t, err)
	_, err = env.PrepareVolumesAndGetBindings(testContext(t), diskSpec(t))
	require.ErrorIs(t, err, hostvolume.ErrInvalidOptions)

	env = newEnv(h, func(e *hostvolume.Env) { e.Metadata = brokenMetadata{} })
	_, err = env.PrepareVolumesAndGetBindings(testContext(t), diskSpec(t))
	require.ErrorIs(t, err, hostvolume.ErrMetadata)
	require.True(t, hostvolume.Retryable(err))
}

type brokenMetadata struct{}

func (brokenMetadata) Disks(context.Context) ([]hostvolume.AttachedDisk, error) {
	return nil, errors.New("broken")
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

func TestFormattingPolicies(t *testing.T) {
	t.Run("never", func(t *testing.T) {
		h := newHost(fake.HostDisk{})
		refused(t, h, newEnv(h, options(func(o *hostvolume.Options) { o.Format = hostvolume.FormatNever })), hostvolume.ErrFormatNotAllowed)
	})
	t.Run("first use of what is not zero", func(t *testing.T) {
		h := newHost(fake.HostDisk{})
		h.WriteDisk("/dev/sdb", 5000, []byte("old"))
		err := refused(t, h, newEnv(h), hostvolume.ErrNotBlank)
		require.Contains(t, err.Error(), "offset 5000")
		_, err = newEnv(h, options(func(o *hostvolume.Options) { o.FirstUse, o.StateDir = []string{"data"}, "/var/lib/agent" })).PrepareVolumesAndGetBindings(testContext(t), diskSpec(t))
		require.NoError(t, err)
		require.Equal(t, []fake.HostFormat{{Device: "/dev/sdb", Filesystem: "ext4", HeldData: true}}, h.Formats())
	})
	t.Run("first use of what cannot be read", func(t *testing.T) {
		h := newHost(fake.HostDisk{})
		h.FailReads("/dev/sdb", syscall.EIO)
		refused(t, h, newEnv(h, options(func(o *hostvolume.Options) { o.FirstUse, o.StateDir = []string{"data"}, "/var/lib/agent" })), hostvolume.ErrDeviceUnreadable)
	})
}

func TestDeviceThatWasSeenFormattedIsNeverFormattedAgain(t *testing.T) {
	wipe := func(h *fake.Host) {
		h.WriteDisk("/dev/sdb", 0, make([]byte, 8192))
		h.WriteDisk("/dev/sdb", 32768*4096, make([]byte, 4096))
	}
	t.Run("by the same Env", func(t *testing.T) {
		h := newHost(fake.HostDisk{Filesystem: "ext4"})
		env := newEnv(h, options(func(o *hostvolume.Options) { o.FirstUse, o.StateDir = []string{"data"}, "/var/lib/agent" }))
		_, err := env.PrepareVolumesAndGetBindings(testContext(t), diskSpec(t))
		require.NoError(t, err)
		require.NoError(t, env.UnmountExistingVolumes(testContext(t)))
		wipe(h)
		err = refused(t, h, env, hostvolume.ErrFilesystemLost)
		require.False(t, hostvolume.Retryable(err))

		require.NoError(t, env.ForgetDevice(testContext(t), volumeErr(t, err).Device)) // it is a new disk of the same name
		_, err = env.PrepareVolumesAndGetBindings(testContext(t), diskSpec(t))
		require.NoError(t, err)
		require.Len(t, h.Formats(), 1)
	})
	t.Run("whatever had to be done with it", func(t *testing.T) {
		for _, fsType := range []string{"ext4", "xfs"} {
			for _, mounted := range []bool{false, true} {
				h := newHost(fake.HostDisk{Filesystem: fsType})
				if mounted {
					h.Mkdir(dataTarget)
					h.Mount("/dev/sdb", dataTarget, fsType, "rw")
				}
				env := newEnv(h)
				_, err := env.PrepareVolumesAndGetBindings(testContext(t), diskSpec(t, "fsType: "+fsType))
				require.NoError(t, err)
				require.NoError(t, env.UnmountExistingVolumes(testContext(t)))
				wipe(h)
				for _, group := range []int64{1 << 28, 1 << 29, 3 << 28} {
					h.WriteDisk("/dev/sdb", group, make([]byte, 4096))
				}
				refused(t, h, env, hostvolume.ErrFilesystemLost, "fsType: "+fsType)
			}
		}
	})
	t.Run("across restarts", func(t *testing.T) {
		h := newHost(fake.HostDisk{})
		state := options(func(o *hostvolume.Options) { o.StateDir = "/var/lib/agent" })
		env := newEnv(h, state)
		_, err := env.PrepareVolumesAndGetBindings(testContext(t), diskSpec(t))
		require.NoError(t, err)
		require.NoError(t, env.UnmountExistingVolumes(testContext(t)))
		wipe(h)
		next := newEnv(h, state)
		_, err = next.PrepareVolumesAndGetBindings(testContext(t), diskSpec(t))
		require.ErrorIs(t, err, hostvolume.ErrFilesystemLost)
		require.Len(t, h.Formats(), 1)

		h.Inject(fake.HostFault{Op: "Lstat", Text: "/var/lib/agent", Err: syscall.EIO})
		_, err = next.PrepareVolumesAndGetBindings(testContext(t), diskSpec(t))
		require.ErrorIs(t, err, hostvolume.ErrHost, "not knowing is not no")

		require.NoError(t, next.ForgetDevice(testContext(t), dataLink))
		require.NoError(t, next.ForgetDevice(testContext(t), dataLink), "forgetting twice is fine")
		_, err = next.PrepareVolumesAndGetBindings(testContext(t), diskSpec(t))
		require.NoError(t, err)
	})
	t.Run("it is recorded before anyone can write to it", func(t *testing.T) {
		h := newHost(fake.HostDisk{Filesystem: "ext4"})
		env := newEnv(h, options(func(o *hostvolume.Options) { o.StateDir = "/var/lib/agent" }))
		h.Inject(fake.HostFault{Op: "CreateFile", Err: syscall.EROFS})
		_, err := env.PrepareVolumesAndGetBindings(testContext(t), diskSpec(t))
		require.ErrorIs(t, err, syscall.EROFS)
		require.False(t, ran(h, "mount"))
	})
}

func TestOtherContentIsNeverFormatted(t *testing.T) {
	for name, arrange := range map[string]func(h *fake.Host){
		"LVM2_member": func(h *fake.Host) { h.WriteDisk("/dev/sdb", 512, []byte("LABELONE")) },
		"crypto_LUKS": func(h *fake.Host) { h.WriteDisk("/dev/sdb", 0, []byte("LUKS\xba\xbe")) },
		"swap":        func(h *fake.Host) { h.WriteDisk("/dev/sdb", 4086, []byte("SWAPSPACE2")) },
	} {
		h := newHost(fake.HostDisk{})
		arrange(h)
		err := refused(t, h, newEnv(h, options(func(o *hostvolume.Options) { o.FirstUse, o.StateDir = []string{"data"}, "/var/lib/agent" })), hostvolume.ErrWrongFilesystem)
		require.Contains(t, err.Error(), name)
	}
	h := newHost(fake.HostDisk{Filesystem: "xfs"})
	refused(t, h, newEnv(h), hostvolume.ErrWrongFilesystem)
}

func TestMkfsIsBelievedOnlyWhenTheProbeConfirms(t *testing.T) {
	for name, tc := range map[string]struct {
		fault fake.HostFault
		want  error
	}{
		"fails":               {fake.HostFault{Op: "mkfs.ext4", Result: &command.Result{ExitCode: 1, Stderr: []byte("in use")}}, hostvolume.ErrFormatFailed},
		"succeeds in nothing": {fake.HostFault{Op: "mkfs.ext4", Result: &command.Result{}}, hostvolume.ErrFormatFailed},
		"is not installed":    {fake.HostFault{Op: "mkfs.ext4", Err: &command.SpawnError{Argv: []string{"mkfs.ext4"}, Err: fs.ErrNotExist}}, hostvolume.ErrNoProgram},
		"is killed":           {fake.HostFault{Op: "mkfs.ext4", Err: &command.SignalError{Argv: []string{"mkfs.ext4"}, Signal: syscall.SIGKILL}}, hostvolume.ErrFormatFailed},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(fake.HostDisk{})
			h.Inject(tc.fault)
			_, err := newEnv(h).PrepareVolumesAndGetBindings(testContext(t), diskSpec(t))
			require.ErrorIs(t, err, tc.want)
			require.False(t, ran(h, "mount"))
		})
	}
	t.Run("its answer is lost", func(t *testing.T) {
		h := newHost(fake.HostDisk{})
		h.Inject(fake.HostFault{Op: "mkfs.ext4", Err: errors.New("lost"), After: true})
		env := newEnv(h)
		_, err := env.PrepareVolumesAndGetBindings(testContext(t), diskSpec(t))
		require.ErrorIs(t, err, hostvolume.ErrFormatFailed)
		_, err = env.PrepareVolumesAndGetBindings(testContext(t), diskSpec(t))
		require.NoError(t, err)
		require.Len(t, h.Formats(), 1)
	})
}

// Formatting survives the caller's deadline, runs once per device, and the next call waits for it.
func TestFormattingOutlivesTheCallThatStartedIt(t *testing.T) {
	for _, program := range []string{"mkfs.ext4", "fsck.ext4"} {
		synctest.Test(t, func(t *testing.T) {
			disk := fake.HostDisk{}
			if program == "fsck.ext4" {
				disk.Filesystem = "ext4"
			}
			h := newHost(disk)
			gate := make(chan struct{})
			h.Inject(fake.HostFault{Op: program, Gate: gate})
			env := newEnv(h)
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_, err := env.PrepareVolumesAndGetBindings(ctx, diskSpec(t))
			require.ErrorIs(t, err, hostvolume.ErrInProgress)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.True(t, hostvolume.Retryable(err))

			ctx, cancel = context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			_, err = env.PrepareVolumesAndGetBindings(ctx, diskSpec(t))
			require.ErrorIs(t, err, hostvolume.ErrInProgress, "it is waited for, not started again")
			require.ErrorIs(t, env.Wait(ctx), hostvolume.ErrInProgress)

			close(gate)
			require.NoError(t, env.Wait(t.Context()))
			_, err = env.PrepareVolumesAndGetBindings(t.Context(), diskSpec(t))
			require.NoError(t, err)
			require.Len(t, runs(h, "mkfs"), len(h.Formats()))
			require.LessOrEqual(t, len(h.Formats()), 1)
			require.Empty(t, runs(h, "umount"))
		})
	}
}

func TestFormattingThatNeverEndsIsGivenUpAtItsOwnDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(fake.HostDisk{})
		h.Inject(fake.HostFault{Op: "mkfs.ext4", Gate: make(chan struct{})})
		env := newEnv(h, options(func(o *hostvolume.Options) { o.DeviceTimeout = time.Hour }))
		start := time.Now()
		_, err := env.PrepareVolumesAndGetBindings(t.Context(), diskSpec(t))
		require.ErrorIs(t, err, hostvolume.ErrFormatFailed)
		require.Equal(t, time.Hour, time.Since(start))
	})
}

// A program that cannot be killed may still write, so its device stays taken until it is gone.
func TestDeviceStaysTakenWhileAKilledProgramIsStillThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(fake.HostDisk{})
		exited := make(chan struct{})
		h.Inject(fake.HostFault{Op: "mkfs.ext4", Err: &command.TimeoutError{Started: true, Err: context.DeadlineExceeded, Exited: exited}})
		env := newEnv(h)
		_, err := env.PrepareVolumesAndGetBindings(t.Context(), diskSpec(t))
		require.ErrorIs(t, err, hostvolume.ErrFormatFailed, "the call does not wait for it")
		h.ResetCalls()
		_, err = env.PrepareVolumesAndGetBindings(t.Context(), diskSpec(t))
		require.ErrorIs(t, err, hostvolume.ErrInProgress)
		require.True(t, hostvolume.Retryable(err))
		require.Empty(t, h.Commands())
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, env.Wait(ctx), hostvolume.ErrInProgress)

		close(exited)
		require.NoError(t, env.Wait(t.Context()))
		_, err = env.PrepareVolumesAndGetBindings(t.Context(), diskSpec(t))
		require.NoError(t, err)
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
