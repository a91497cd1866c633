package fake_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/stateofworld/stateofworld/executor/command"
	"github.com/stateofworld/stateofworld/fake"
)

// tb records what a Runner would say to a test.
type tb struct {
	errors   []string
	cleanups []func()
}

func (t *tb) Helper()          {}
func (t *tb) Cleanup(f func()) { t.cleanups = append(t.cleanups, f) }
func (t *tb) Errorf(format string, args ...any) {
	t.errors = append(t.errors, fmt.Sprintf(format, args...))
}
func (t *tb) Fatalf(format string, args ...any) { t.Errorf(format, args...) }
func (t *tb) Context() context.Context          { return context.Background() }

// end ends the test that t stands for.
func (t *tb) end() []string {
	for _, f := range t.cleanups {
		f()
	}
	return t.errors
}

func run(ctx context.Context, r command.Runner, argv ...string) (command.Result, error) {
	return r.Run(ctx, command.Command{Argv: argv})
}

func TestRunnerAnswersWhatIsExpected(t *testing.T) {
	r := fake.NewRunner(t)
	r.Expect("a", "1").Stdout("out").Stderr("err").Exit(5)
	r.Expect("b", fake.AnyArg, "x")
	r.Expect("c", fake.AnyArgs).Times(2)
	r.Expect("d").SpawnError()
	r.Expect("e").Fail(&command.SignalError{Argv: []string{"e"}, Signal: syscall.SIGSEGV})
	ctx := t.Context()
	got, err := run(ctx, r, "a", "1")
	require.NoError(t, err)
	require.Equal(t, command.Result{Stdout: []byte("out"), Stderr: []byte("err"), ExitCode: 5}, got)
	_, err = run(ctx, r, "b", "anything", "x")
	require.NoError(t, err)
	_, err = run(ctx, r, "c")
	require.NoError(t, err)
	_, err = run(ctx, r, "c", "1", "2")
	require.NoError(t, err)
	_, err = run(ctx, r, "d")
	var spawn *command.SpawnError
	require.ErrorAs(t, err, &spawn)
	require.ErrorIs(t, err, fs.ErrNotExist)
	_, err = run(ctx, r, "e")
	var signal *command.SignalError
	require.ErrorAs(t, err, &signal)
	require.Len(t, r.Calls(), 6)
}

func TestRunnerFailsTheTestOnTheUnexpected(t *testing.T) {
	for _, tc := range []struct {
		name   string
		expect func(*fake.Runner)
		run    [][]string
		want   []string
	}{
		{"nothing expected", func(*fake.Runner) {}, [][]string{{"a"}}, []string{"unexpected command: a\nnone was expected any more"}},
		{"other arguments", func(r *fake.Runner) { r.Expect("a", "1") }, [][]string{{"a", "2"}}, []string{"unexpected command: a 2\nexpected was:       a 1", "expected command did not come (1 more): a 1"}},
		{"more arguments", func(r *fake.Runner) { r.Expect("a", fake.AnyArg) }, [][]string{{"a", "1", "2"}, {"a", "1"}}, []string{"unexpected command: a 1 2\nexpected was:       a ?"}},
		{"wrong order", func(r *fake.Runner) { r.Expect("a"); r.Expect("b") }, [][]string{{"b"}, {"a"}, {"b"}}, []string{"unexpected command: b\nexpected was:       a"}},
		{"too often", func(r *fake.Runner) { r.Expect("a") }, [][]string{{"a"}, {"a"}}, []string{"unexpected command: a\nnone was expected any more"}},
		{"never came", func(r *fake.Runner) { r.Expect("a", fake.AnyArgs).Times(2) }, [][]string{{"a"}}, []string{"expected command did not come (1 more): a ..."}},
		{"optional", func(r *fake.Runner) { r.Expect("a").AnyTimes(); r.Expect("b") }, [][]string{{"a"}, {"a"}, {"b"}}, nil},
		{"optional, too late", func(r *fake.Runner) { r.Expect("a").AnyTimes(); r.Expect("b") }, [][]string{{"b"}, {"a"}}, []string{"unexpected command: a\nnone was expected any more"}},
		{"any order", func(r *fake.Runner) { r.Unordered(); r.Expect("a"); r.Expect("b") }, [][]string{{"b"}, {"a"}}, nil},
		{"environment", func(r *fake.Runner) { r.Expect("a").Env("A=1") }, [][]string{{"a"}}, []string{`command a without A=1 in its environment []`}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var recorder tb
			r := fake.NewRunner(&recorder)
			tc.expect(r)
			for _, argv := range tc.run {
				run(t.Context(), r, argv...)
			}
			require.Equal(t, tc.want, recorder.end())
		})
	}
}

func TestRunnerHangsUntilItsContextEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := fake.NewRunner(t)
		r.Expect("a").Hang()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err := run(ctx, r, "a")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		var timeout *command.TimeoutError
		require.ErrorAs(t, err, &timeout)
		require.True(t, timeout.Started && timeout.Gone())
		_, err = run(ctx, r, "b")
		require.ErrorAs(t, err, &timeout)
		require.False(t, timeout.Started, "not even looked at")

		held := r.Expect("c").Hold()
		cause := errors.New("why")
		stop, stopNow := context.WithCancelCause(t.Context())
		done := make(chan error, 1)
		go func() { _, err := run(stop, r, "c"); done <- err }()
		<-held.Started()
		stopNow(cause)
		err = <-done
		require.ErrorIs(t, err, cause)
		require.ErrorAs(t, err, &timeout)
		require.False(t, timeout.Gone(), "it cannot be killed")
		held.Release()
		require.True(t, timeout.Gone())

		later := r.Expect("d").Hold().Stdout("x")
		go func() { <-later.Started(); later.Release() }()
		got, err := run(t.Context(), r, "d")
		require.NoError(t, err)
		require.Equal(t, "x", string(got.Stdout))
	})
}

func TestRunnerFiles(t *testing.T) {
	r, ctx := fake.NewRunner(t), t.Context()
	r.AddFile("/etc/file", []byte("data"))
	r.AddDevice("/dev/sda", 8, 16, []byte("0123456789"))
	r.AddLink("/dev/disk/by-id/x", "../../sda")
	r.AddLink("/loop", "/loop")
	r.FailFile("/dev/broken", syscall.EIO)

	data, err := r.ReadFile(ctx, "/etc/file")
	require.NoError(t, err)
	require.Equal(t, "data", string(data))
	info, err := r.Stat(ctx, "/dev/disk/by-id/x")
	require.NoError(t, err)
	require.Equal(t, command.FileInfo{Mode: fs.ModeDevice | 0o660, Major: 8, Minor: 16}, info)
	info, err = r.Lstat(ctx, "/dev/disk/by-id/x")
	require.NoError(t, err)
	require.Equal(t, fs.ModeSymlink, info.Mode.Type())
	resolved, err := r.EvalSymlinks(ctx, "/dev/disk/by-id/x")
	require.NoError(t, err)
	require.Equal(t, "/dev/sda", resolved)
	part, err := r.ReadAt(ctx, "/dev/sda", 8, 2)
	require.NoError(t, err)
	require.Equal(t, "89", string(part))
	_, err = r.ReadAt(ctx, "/dev/sda", 8, 3)
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	_, err = r.ReadAt(ctx, "/dev/sda", -1, 3)
	require.ErrorIs(t, err, fs.ErrInvalid)
	_, err = r.Stat(ctx, "/dev/broken")
	require.ErrorIs(t, err, syscall.EIO)
	_, err = r.Stat(ctx, "/loop")
	require.ErrorIs(t, err, syscall.ELOOP)
	_, err = r.Stat(ctx, "/absent")
	require.ErrorIs(t, err, fs.ErrNotExist)
	_, err = r.Stat(ctx, "relative")
	require.ErrorIs(t, err, fs.ErrInvalid)
	_, err = r.ReadFile(ctx, "/etc")
	require.ErrorIs(t, err, syscall.EISDIR)

	require.NoError(t, r.MkdirAll(ctx, "/a/b", 0o700))
	require.ErrorIs(t, r.MkdirAll(ctx, "/etc/file/x", 0o700), syscall.ENOTDIR)
	require.NoError(t, r.CreateFile(ctx, "/a/b/c", 0o600))
	require.ErrorIs(t, r.CreateFile(ctx, "/a/b/c", 0o600), fs.ErrExist)
	require.ErrorIs(t, r.CreateFile(ctx, "/nowhere/c", 0o600), fs.ErrNotExist)
	require.ErrorIs(t, r.Remove(ctx, "/a/b"), syscall.ENOTEMPTY)
	require.NoError(t, r.Remove(ctx, "/a/b/c"))
	require.NoError(t, r.Remove(ctx, "/a/b"))
	require.ErrorIs(t, r.Remove(ctx, "/a/b"), fs.ErrNotExist)

	ended, cancel := context.WithCancel(ctx)
	cancel()
	_, err = r.Stat(ended, "/etc/file")
	require.ErrorIs(t, err, context.Canceled)
}
