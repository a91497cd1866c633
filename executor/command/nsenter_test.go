//go:build linux

package command

import (
	"context"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// H17, metal-stack/csi-driver-lvm#111; L18, lvmteam/lvm2#70
func TestEveryArgumentListHasThePrefix(t *testing.T) {
	require.Empty(t, Host().Prefix())
	for _, tc := range []struct {
		name    string
		options NSEnterOptions
		want    string
	}{
		{"default: udev cookies need ipc too", NSEnterOptions{}, "nsenter --target 1 --mount --ipc --uts --net --"},
		{"chosen", NSEnterOptions{TargetPID: 42, Namespaces: []Namespace{Mount, PID, Cgroup}, Program: "/opt/bin/nsenter"}, "/opt/bin/nsenter --target 42 --mount --pid --cgroup --"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r, err := NSEnter(tc.options)
			require.NoError(t, err)
			require.Equal(t, tc.want, strings.Join(r.Prefix(), " "))
			r.Prefix()[0] = "changed by the caller"
			require.Equal(t, tc.want, strings.Join(r.Prefix(), " "))
		})
	}
}

// What really runs, for every method: a stand-in for nsenter records its arguments.
func TestEveryMethodGoesThroughThePrefix(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(dir+"/nsenter", []byte("#!/bin/sh\necho \"$*\" >>"+dir+"/log\nwhile [ \"$1\" != -- ]; do shift; done\nshift\nexec \"$@\"\n"), 0o755))
	r, err := NSEnter(NSEnterOptions{Program: dir + "/nsenter"})
	require.NoError(t, err)
	ctx := t.Context()
	_, err = r.Run(ctx, Command{Argv: []string{"true"}})
	require.NoError(t, err)
	require.NoError(t, r.MkdirAll(ctx, dir+"/a/b", 0o700))
	require.NoError(t, r.CreateFile(ctx, dir+"/a/f", 0o600))
	_, err = r.Stat(ctx, dir)
	require.NoError(t, err)
	_, err = r.Lstat(ctx, dir)
	require.NoError(t, err)
	_, err = r.ReadFile(ctx, dir+"/a/f")
	require.NoError(t, err)
	_, err = r.ReadAt(ctx, "/dev/zero", 0, 1)
	require.NoError(t, err)
	_, err = r.EvalSymlinks(ctx, dir)
	require.NoError(t, err)
	require.NoError(t, r.Remove(ctx, dir+"/a/b"))
	log, err := os.ReadFile(dir + "/log")
	require.NoError(t, err)
	programs := map[string]bool{}
	prefix := strings.Join(r.Prefix()[1:], " ") + " "
	for line := range strings.Lines(string(log)) {
		rest, ok := strings.CutPrefix(line, prefix)
		require.True(t, ok, line)
		programs[strings.Fields(rest)[0]] = true
	}
	require.Equal(t, map[string]bool{"true": true, "stat": true, "mkdir": true, "dd": true, "chmod": true, "cat": true, "realpath": true, "rm": true}, programs)
}

// L18, L36: names from outside must not become options of nsenter.
func TestNothingFromACallerBecomesAnOptionOfNSEnter(t *testing.T) {
	r := newNSEnter(t, NSEnterOptions{TargetPID: os.Getpid()})
	marker := filepath.Join(t.TempDir(), "marker")
	for _, name := range []string{"--mount=/x", "-t", "--help", "--"} {
		_, err := r.Run(t.Context(), Command{Argv: []string{name, "touch", marker}})
		var spawn *SpawnError
		require.ErrorAs(t, err, &spawn, name)
		require.Contains(t, err.Error(), "-- "+name)
		require.NoFileExists(t, marker)
	}
}

func TestInvalidOptionsAreRefused(t *testing.T) {
	for _, o := range []NSEnterOptions{
		{TargetPID: -1}, {Namespaces: []Namespace{"mount=/proc/9/ns/mnt"}}, {Namespaces: []Namespace{""}}, {Program: "--mount"}, {Program: "a\x00b"},
	} {
		r, err := NSEnter(o)
		require.ErrorIs(t, err, errInvalidOption, "%+v", o)
		require.Nil(t, r)
	}
}

// otherNamespace is a process in a mount namespace of its own, where a tmpfs covers dir.
func otherNamespace(t *testing.T, dir string) (pid int) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root, to make a mount namespace")
	}
	ready := newFifo(t, "ready")
	cmd := exec.Command("unshare", "--mount", "sh", "-c", `mount -t tmpfs tmpfs "$1" && printf r >"$2"; read x`, "sh", dir, ready.path)
	stdin, err := cmd.StdinPipe()
	require.NoError(t, err)
	if err := cmd.Start(); err != nil {
		t.Skipf("needs unshare (package util-linux): %v", err)
	}
	exited := make(chan struct{})
	go func() { defer close(exited); cmd.Wait() }()
	t.Cleanup(func() { stdin.Close(); <-exited })
	opened := make(chan struct{})
	go func() { defer close(opened); ready.read(t, 1) }()
	select {
	case <-opened:
	case <-exited:
		ready.file.SetReadDeadline(timeInThePast)
		t.Skip("no mount namespace to be had here")
	}
	return cmd.Process.Pid
}

func TestFilesAndProgramsAreThoseOfTheOtherNamespace(t *testing.T) {
	dir := t.TempDir()
	r := newNSEnter(t, NSEnterOptions{TargetPID: otherNamespace(t, dir), Namespaces: []Namespace{Mount}})
	ctx := t.Context()
	require.NoError(t, r.MkdirAll(ctx, dir+"/there", 0o700))
	require.NoError(t, r.CreateFile(ctx, dir+"/there/file", 0o600))
	require.NoDirExists(t, dir+"/there")
	got, err := r.Run(ctx, Command{Argv: []string{"ls", dir + "/there"}})
	require.NoError(t, err)
	require.Equal(t, "file\n", string(got.Stdout))
	mounts, err := r.ReadFile(ctx, "/proc/self/mountinfo")
	require.NoError(t, err)
	require.Contains(t, string(mounts), " "+dir+" ")

	inside, err := r.Stat(ctx, dir)
	require.NoError(t, err)
	outside, err := newHost(t).Stat(ctx, dir)
	require.NoError(t, err)
	require.NotEqual(t, outside.Dev, inside.Dev)
}

func TestNSEnterFailuresAreSpawnErrorsAndExitCodesAreNot(t *testing.T) {
	r := newNSEnter(t, NSEnterOptions{TargetPID: os.Getpid()})
	ctx := t.Context()
	_, err := r.Run(ctx, Command{Argv: []string{"no-such-program-here"}})
	var spawn *SpawnError
	require.ErrorAs(t, err, &spawn)
	require.ErrorIs(t, err, fs.ErrNotExist)
	_, err = r.Run(ctx, Command{Argv: []string{"/dev/null"}})
	require.ErrorAs(t, err, &spawn)
	require.ErrorIs(t, err, fs.ErrPermission)

	for _, code := range []string{"1", "5", "126", "127"} {
		got, err := r.Run(ctx, sh(`echo "sh: nsenter: not ours" >&2; exit "$1"`, code))
		require.NoError(t, err)
		require.NotZero(t, got.ExitCode)
	}

	gone, err := NSEnter(NSEnterOptions{TargetPID: 1<<22 - 1}) // above every pid_max in use
	require.NoError(t, err)
	_, err = gone.Run(ctx, Command{Argv: []string{"true"}})
	require.ErrorAs(t, err, &spawn)
	_, err = gone.Stat(ctx, "/")
	require.ErrorAs(t, err, &spawn)
	require.NotErrorIs(t, err, context.Canceled)
}

func TestDeadlineHoldsThroughNSEnter(t *testing.T) {
	r := newNSEnter(t, NSEnterOptions{TargetPID: os.Getpid(), Namespaces: []Namespace{Mount, PID}}) // with a PID namespace nsenter forks
	ready, never := newFifo(t, "ready"), newFifo(t, "never")
	ctx, cancel := context.WithCancel(t.Context())
	returned := make(chan error)
	go func() {
		_, err := r.Run(ctx, sh(`trap "" TERM; printf r >"$1"; read x <"$2"`, ready.path, never.path))
		returned <- err
	}()
	ready.read(t, 1)
	cancel()
	await(t, "Run", func() { require.ErrorIs(t, <-returned, context.Canceled) })
	await(t, "the end of the child", func() { require.NoError(t, r.Wait(context.Background())) })
}
