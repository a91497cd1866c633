//go:build linux

package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// interrupt runs cmd, cancels its context when the child has said that it is ready, and returns the error.
func interrupt(t *testing.T, r *HostRunner, cmd Command, ready *fifo) *TimeoutError {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var err error
	returned := make(chan struct{})
	go func() { defer close(returned); _, err = r.Run(ctx, cmd) }()
	ready.read(t, 1)
	cancel()
	await(t, "Run after its context has ended", func() { <-returned })
	var timeout *TimeoutError
	require.ErrorAs(t, err, &timeout)
	require.True(t, timeout.Started)
	return timeout
}

// L20, harvester/harvester#11098
func TestDeadlineKillsAProgramThatIgnoresSignals(t *testing.T) {
	r, ready, never := newHost(t), newFifo(t, "ready"), newFifo(t, "never")
	timeout := interrupt(t, r, sh(`trap "" TERM INT HUP; echo half; echo why >&2; printf r >"$1"; read x <"$2"`, ready.path, never.path), ready)
	require.ErrorIs(t, timeout, context.Canceled)
	require.Contains(t, timeout.Error(), "why")
	require.Equal(t, "half\n", string(timeout.Stdout))
	await(t, "the end of the child", func() { <-timeout.Exited })
	require.True(t, timeout.Gone())
}

func TestDeadlineIsToldFromCancellation(t *testing.T) {
	never := newFifo(t, "never")
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	_, err := newHost(t).Run(ctx, sh(`read x <"$1"`, never.path))
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NotErrorIs(t, err, context.Canceled)
	var timeout *TimeoutError
	require.ErrorAs(t, err, &timeout)
	require.True(t, timeout.Timeout())
}

func TestDeadlineKillsTheWholeProcessGroup(t *testing.T) {
	r, ready, never := newHost(t), newFifo(t, "ready"), newFifo(t, "never")
	// The grandchild holds one end of a pipe of ours open: when that is at its end, the grandchild is gone.
	dir := t.TempDir()
	held := filepath.Join(dir, "held")
	require.NoError(t, syscall.Mkfifo(held, 0o600))
	opened := make(chan *os.File)
	go func() {
		f, err := os.Open(held) // waits for the grandchild
		if err != nil {
			f = nil
		}
		opened <- f
	}()
	interrupt(t, r, sh(`(exec 3>"$3"; trap "" TERM; printf r >"$1"; read x <"$2") & wait`, ready.path, never.path, held), ready)
	f := <-opened
	require.NotNil(t, f)
	defer f.Close()
	await(t, "the end of the grandchild", func() { io.ReadAll(f) })
}

func TestGrandchildThatHoldsTheOutputOpenDoesNotHoldTheCaller(t *testing.T) {
	never := newFifo(t, "never")
	pid := filepath.Join(t.TempDir(), "pid")
	t.Cleanup(func() { killFromFile(t, pid) })
	r := newHost(t)
	var got Result
	var err error
	await(t, "Run of a program that has exited", func() {
		got, err = r.Run(t.Context(), sh(`setsid sh -c 'echo $$ >"$2"; read x <"$1"' sh "$1" "$2" & while ! [ -s "$2" ]; do :; done; echo done; exit 4`, never.path, pid))
	})
	require.NoError(t, err)
	require.Equal(t, "done\n", string(got.Stdout))
	require.Equal(t, 4, got.ExitCode)
	require.Zero(t, r.Alive(), "a daemon that was left behind on purpose is not stuck")
}

func TestGrandchildThatFillsTheOutputForEverDoesNotHoldTheCaller(t *testing.T) {
	pid := filepath.Join(t.TempDir(), "pid")
	t.Cleanup(func() { killFromFile(t, pid) })
	await(t, "Run of a program that has exited", func() {
		_, err := newHost(t).Run(t.Context(), sh(`setsid sh -c 'echo $$ >"$1"; exec yes' sh "$1" & while ! [ -s "$1" ]; do :; done`, pid))
		// Whether the limit is passed before the program ends is up to the scheduler; that it returns is not.
		var over *OutputLimitError
		if !errors.As(err, &over) {
			require.NoError(t, err)
		}
	})
}

func TestGrandchildOutsideTheGroupDoesNotHoldTheDeadline(t *testing.T) {
	r, ready, never := newHost(t), newFifo(t, "ready"), newFifo(t, "never")
	pid := filepath.Join(t.TempDir(), "pid")
	t.Cleanup(func() { killFromFile(t, pid) })
	timeout := interrupt(t, r, sh(`setsid sh -c 'echo $$ >"$3"; printf r >"$1"; read x <"$2"' sh "$1" "$2" "$3" & wait`, ready.path, never.path, pid), ready)
	await(t, "the end of the child", func() { <-timeout.Exited })
}

// L20, Azure/local-csi-driver#153
func TestProgramThatCannotBeKilledIsCountedUntilItIsGone(t *testing.T) {
	r, ready, gate := newHost(t, WithMaxStuck(1)), newFifo(t, "ready"), newFifo(t, "gate")
	r.options.kill = func(int) {} // as SIGKILL to a process in state D
	timeout := interrupt(t, r, sh(`printf r >"$1"; read x <"$2"`, ready.path, gate.path), ready)
	require.False(t, timeout.Gone())
	require.Contains(t, timeout.Error(), "still alive")
	require.Equal(t, 1, r.Alive())

	_, err := r.Run(t.Context(), sh(`exit 0`))
	require.ErrorIs(t, err, ErrTooManyStuck)
	var spawn *SpawnError
	require.ErrorAs(t, err, &spawn)

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, r.Wait(ctx), context.Canceled)

	gate.write(t, "go\n")
	await(t, "the end of the child", func() { <-timeout.Exited })
	require.NoError(t, r.Wait(t.Context()))
	require.Zero(t, r.Alive())
	require.NotContains(t, timeout.Error(), "still alive")
	_, err = r.Run(t.Context(), sh(`exit 0`))
	require.NoError(t, err)
}

func TestOverflowOfAProgramThatCannotBeKilledReturns(t *testing.T) {
	r, gate := newHost(t, WithOutputLimit(10)), newFifo(t, "gate")
	r.options.kill = func(int) {}
	await(t, "Run", func() {
		_, err := r.Run(t.Context(), sh(`echo 0123456789; read x <"$1"`, gate.path))
		var over *OutputLimitError
		require.ErrorAs(t, err, &over)
	})
	require.Equal(t, 1, r.Alive())
	gate.write(t, "go\n")
}

// A frozen filesystem makes a writer wait in the kernel where no signal reaches it.
func TestProgramInUninterruptibleSleepDoesNotHoldTheCaller(t *testing.T) {
	dir := mountedFilesystem(t)
	r, ready := newHost(t), newFifo(t, "ready")
	tool(t, "fsfreeze", "-f", dir)
	t.Cleanup(func() { tool(t, "fsfreeze", "-u", dir) }) // before newHost's, which waits for the child
	timeout := interrupt(t, r, sh(`printf r >"$1"; echo x >"$2/file"`, ready.path, dir), ready)
	require.ErrorIs(t, timeout, context.Canceled)
	require.False(t, timeout.Gone())
	require.Equal(t, 1, r.Alive())
}

// mountedFilesystem is where an ext4 on a loop device is mounted until the end of the test.
func mountedFilesystem(t *testing.T) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root, to mount a filesystem and freeze it")
	}
	for _, tool := range []string{"mkfs.ext4", "mount", "fsfreeze"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("needs %s (packages e2fsprogs, mount, util-linux)", tool)
		}
	}
	image, dir := filepath.Join(t.TempDir(), "image"), filepath.Join(t.TempDir(), "mnt")
	require.NoError(t, os.Mkdir(dir, 0o700))
	require.NoError(t, os.WriteFile(image, nil, 0o600))
	require.NoError(t, os.Truncate(image, 16<<20))
	tool(t, "mkfs.ext4", "-q", image)
	if out, err := exec.Command("mount", "-o", "loop", image, dir).CombinedOutput(); err != nil {
		t.Skipf("cannot mount an ext4 image here: %s", out)
	}
	t.Cleanup(func() { tool(t, "umount", dir) })
	return dir
}

func tool(t *testing.T, argv ...string) {
	t.Helper()
	out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput()
	require.NoError(t, err, "%s: %s", argv, out)
}

func killFromFile(t *testing.T, path string) {
	t.Helper()
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	var pid int
	_, err = fmt.Sscan(strings.TrimSpace(string(data)), &pid)
	require.NoError(t, err)
	require.NoError(t, syscall.Kill(-pid, syscall.SIGKILL))
}

// Contexts that end at any moment of a program's life: each call has either its whole result or an error, and nothing
// is left.
func TestCancellationAtAnyMoment(t *testing.T) {
	r := newHost(t)
	var callers sync.WaitGroup
	for range 4 {
		callers.Go(func() {
			for range 50 {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(rand.Int64N(int64(4*time.Millisecond))))
				got, err := r.Run(ctx, sh(`echo out; echo err >&2; exit 7`))
				cancel()
				var timeout *TimeoutError
				switch {
				case err == nil:
					if string(got.Stdout) != "out\n" || string(got.Stderr) != "err\n" || got.ExitCode != 7 {
						t.Errorf("cut result: %+v", got)
					}
				case !errors.As(err, &timeout):
					t.Errorf("unexpected error: %v", err)
				}
			}
		})
	}
	callers.Wait()
}
