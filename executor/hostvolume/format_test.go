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
