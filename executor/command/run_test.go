//go:build linux

package command

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRunKeepsStreamsAndExitCodeApart(t *testing.T) {
	r := newHost(t)
	for _, tc := range []struct {
		name, script string
		want         Result
	}{
		{"success", `echo out; echo err >&2`, Result{Stdout: []byte("out\n"), Stderr: []byte("err\n")}},
		{"failure is not an error", `echo out; echo err >&2; exit 5`, Result{Stdout: []byte("out\n"), Stderr: []byte("err\n"), ExitCode: 5}},
		{"silence", `exit 255`, Result{ExitCode: 255}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := r.Run(t.Context(), sh(tc.script))
			require.NoError(t, err)
			require.Equal(t, string(tc.want.Stdout), string(got.Stdout))
			require.Equal(t, string(tc.want.Stderr), string(got.Stderr))
			require.Equal(t, tc.want.ExitCode, got.ExitCode)
		})
	}
}

func TestRunUsesNoShell(t *testing.T) {
	got, err := newHost(t).Run(t.Context(), Command{Argv: []string{"printf", "%s|", "$(id)", "a b", "; exit 3", "*"}})
	require.NoError(t, err)
	require.Equal(t, "$(id)|a b|; exit 3|*|", string(got.Stdout))
}

func TestStandardInputIsClosed(t *testing.T) {
	got, err := newHost(t).Run(t.Context(), sh(`readlink /proc/self/fd/0; read line; echo "read says $?"`))
	require.NoError(t, err)
	require.Equal(t, "/dev/null\nread says 1\n", string(got.Stdout))
}

func TestNoDescriptorLeaksIntoTheProgram(t *testing.T) {
	f, err := os.Open("/dev/zero")
	require.NoError(t, err)
	defer f.Close()
	got, err := newHost(t).Run(t.Context(), Command{Argv: []string{"ls", "-l", "/proc/self/fd"}})
	require.NoError(t, err)
	require.Contains(t, string(got.Stdout), "/dev/null")
	require.NotContains(t, string(got.Stdout), "/dev/zero")
}

// L07, hansmi/prometheus-lvm-exporter#125
func TestEnvironmentIsMinimalAndLocaleIsSetExactlyOnce(t *testing.T) {
	t.Setenv("LC_ALL", "de_DE.UTF-8")
	t.Setenv("LANG", "de_DE.UTF-8")
	t.Setenv("SECRET", "x")
	for _, tc := range []struct {
		name string
		env  []string
		want []string
	}{
		{"nothing asked for", nil, []string{"PATH=" + DefaultPath, "LC_ALL=C"}},
		{"added", []string{"A=1", "B="}, []string{"PATH=" + DefaultPath, "LC_ALL=C", "A=1", "B="}},
		{"replaced in place, the last one counts", []string{"LC_ALL=de_DE", "LC_ALL=C.UTF-8", "A=1", "A=2"}, []string{"PATH=" + DefaultPath, "LC_ALL=C.UTF-8", "A=2"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := newHost(t).Run(t.Context(), Command{Argv: []string{"/usr/bin/env"}, Env: tc.env})
			require.NoError(t, err)
			require.Equal(t, strings.Join(tc.want, "\n")+"\n", string(got.Stdout))
		})
	}
}

func TestProgramsRunInTheRootDirectory(t *testing.T) {
	got, err := newHost(t).Run(t.Context(), Command{Argv: []string{"pwd"}})
	require.NoError(t, err)
	require.Equal(t, "/\n", string(got.Stdout))
}

func TestProgramIsLookedUpInTheRunnersPath(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "tool"), []byte("#!/bin/sh\necho ours\n"), 0o755))
	t.Setenv("PATH", dir)
	_, err := newHost(t).Run(t.Context(), Command{Argv: []string{"tool"}})
	require.ErrorIs(t, err, fs.ErrNotExist, "the PATH of this process must not count")

	got, err := newHost(t, WithPath("relative:"+dir)).Run(t.Context(), Command{Argv: []string{"tool"}})
	require.NoError(t, err)
	require.Equal(t, "ours\n", string(got.Stdout))
}

func TestWhatCannotStartIsASpawnError(t *testing.T) {
	dir := t.TempDir()
	plain := filepath.Join(dir, "plain")
	require.NoError(t, os.WriteFile(plain, []byte("not a program"), 0o644))
	broken := filepath.Join(dir, "broken")
	require.NoError(t, os.WriteFile(broken, []byte("#!/nonexistent/interpreter\n"), 0o755))
	for _, tc := range []struct {
		name string
		cmd  Command
		is   error
	}{
		{"no program", Command{}, nil},
		{"empty program", Command{Argv: []string{""}}, nil},
		{"not in PATH", Command{Argv: []string{"no-such-program-here"}}, fs.ErrNotExist},
		{"absolute path absent", Command{Argv: []string{dir + "/absent"}}, fs.ErrNotExist},
		{"not executable", Command{Argv: []string{plain}}, fs.ErrPermission},
		{"interpreter absent", Command{Argv: []string{broken}}, fs.ErrNotExist},
		{"relative path", Command{Argv: []string{"./plain"}}, nil},
		{"NUL in an argument", Command{Argv: []string{"echo", "a\x00b"}}, nil},
		{"bad environment entry", Command{Argv: []string{"echo"}, Env: []string{"NOVALUE"}}, nil},
		{"nameless environment entry", Command{Argv: []string{"echo"}, Env: []string{"=x"}}, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := newHost(t).Run(t.Context(), tc.cmd)
			var spawn *SpawnError
			require.ErrorAs(t, err, &spawn)
			if tc.is != nil {
				require.ErrorIs(t, err, tc.is)
			}
		})
	}
}

func TestForeignSignalIsASignalError(t *testing.T) {
	_, err := newHost(t).Run(t.Context(), sh(`echo out; echo err >&2; kill -SEGV $$`))
	var signal *SignalError
	require.ErrorAs(t, err, &signal)
	require.Equal(t, syscall.SIGSEGV, signal.Signal)
	require.Equal(t, "out\n", string(signal.Stdout))
	require.Contains(t, err.Error(), "err")
}

func TestOutputLimit(t *testing.T) {
	const limit = 100_000
	for _, tc := range []struct {
		name, script string
		ok           bool
	}{
		{"up to the limit", `head -c 100000 /dev/zero; head -c 100000 /dev/zero >&2`, true},
		{"one more on stdout", `head -c 100001 /dev/zero`, false},
		{"one more on stderr", `head -c 100001 /dev/zero >&2`, false},
		{"without end, ignoring signals", `trap "" TERM PIPE; while :; do echo yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy; done`, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := newHost(t, WithOutputLimit(limit)).Run(t.Context(), sh(tc.script))
			if tc.ok {
				require.NoError(t, err)
				require.Len(t, got.Stdout, limit)
				require.Len(t, got.Stderr, limit)
				return
			}
			var over *OutputLimitError
			require.ErrorAs(t, err, &over)
			require.EqualValues(t, limit, over.Limit)
			require.Empty(t, got, "cut output must not look like a result")
		})
	}
}

func TestAllOutputArrivesHoweverTheProgramEnds(t *testing.T) {
	r := newHost(t)
	for range 20 {
		got, err := r.Run(t.Context(), sh(`head -c 1000000 /dev/zero; printf end; head -c 50000 /dev/zero >&2; exit 3`))
		require.NoError(t, err)
		require.Equal(t, 3, got.ExitCode)
		require.Len(t, got.Stdout, 1_000_003)
		require.Len(t, got.Stderr, 50_000)
	}
}

func TestContextThatHasEndedStartsNothing(t *testing.T) {
	marker := filepath.Join(t.TempDir(), "marker")
	cause := errors.New("the agent stops")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	_, err := newHost(t).Run(ctx, Command{Argv: []string{"touch", marker}})
	var timeout *TimeoutError
	require.ErrorAs(t, err, &timeout)
	require.False(t, timeout.Started)
	require.True(t, timeout.Gone())
	require.False(t, timeout.Timeout())
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorIs(t, err, cause)
	require.NoFileExists(t, marker)
}

func TestCommandStringCanBeReadBack(t *testing.T) {
	require.Equal(t, `lvcreate -n a "" "b c" "--config=log{prefix=\"\"}"`, Command{Argv: []string{"lvcreate", "-n", "a", "", "b c", `--config=log{prefix=""}`}}.String())
}
