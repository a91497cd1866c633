package fake

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/stateofworld/stateofworld/executor/command"
)

// AnyArg stands for any one argument in what a Runner is to expect. It is no argument that a program could be given.
const AnyArg = "\x00any"

// AnyArgs stands for any number of arguments, also none. It may only be the last.
const AnyArgs = "\x00any..."

// Runner is a [command.Runner] that runs nothing. It is told which commands are to come, in which order, and what they
// answer:
//
//	r := fake.NewRunner(t)
//	r.Expect("vgs", "vg0").Stdout("{...}")
//	r.Expect("lvcreate", fake.AnyArgs).Stderr("no space").Exit(5)
//	r.Expect("lvs").Hang()
//
// A command that is not expected fails the test and is answered with a [*command.SpawnError]; so does, at the end of
// the test, one that never came. The file methods work on files in memory: see AddFile. It is safe for concurrent use.
//
// Limits: symbolic links are followed only where AddLink made them, and as the last part of a path.
type Runner struct {
	t TB

	mu        sync.Mutex
	unordered bool
	expected  []*Expected
	calls     []command.Command
	files     map[string]*runnerFile
}

var _ command.Runner = (*Runner)(nil)

// NewRunner makes a Runner for one test.
func NewRunner(t TB) *Runner {
	r := &Runner{t: t, files: map[string]*runnerFile{"/": {dir: true, info: dirInfo}}}
	t.Cleanup(r.finish)
	return r
}

// Unordered lets expected commands come in any order: each is answered by the first expectation that fits and is not
// used up.
func (r *Runner) Unordered() *Runner {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.unordered = true
	return r
}

// Expected is a command that is to come, and its answer: by default exit code 0 and no output. Its methods are called
// before the command comes.
type Expected struct {
	runner  *Runner
	argv    []string
	times   int // how often it may still come; negative: as often as it likes
	env     []string
	result  command.Result
	err     error
	hold    bool
	hang    bool
	do      func(command.Command)
	started chan struct{}
	release chan struct{}
	once    sync.Once
	free    sync.Once
}

// Expect says that a command is to come, once.
func (r *Runner) Expect(argv ...string) *Expected {
	e := &Expected{runner: r, argv: argv, times: 1, started: make(chan struct{}), release: make(chan struct{})}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.expected = append(r.expected, e)
	return e
}

// Stdout is what the command writes to standard output.
func (e *Expected) Stdout(s string) *Expected { e.result.Stdout = []byte(s); return e }

// Stderr is what the command writes to standard error.
func (e *Expected) Stderr(s string) *Expected { e.result.Stderr = []byte(s); return e }

// Exit is the exit code.
func (e *Expected) Exit(code int) *Expected { e.result.ExitCode = code; return e }

// Times lets the command come n times.
func (e *Expected) Times(n int) *Expected { e.times = n; return e }

// AnyTimes lets the command come as often as it likes, also never. In order, it stays behind once the next one has
// come.
func (e *Expected) AnyTimes() *Expected { e.times = -1; return e }

// Env says which "NAME=value" entries the command must have, whatever else.
func (e *Expected) Env(entries ...string) *Expected { e.env = entries; return e }

// Do calls f when the command comes, before it is answered.
func (e *Expected) Do(f func(command.Command)) *Expected { e.do = f; return e }

// Fail answers with an error of the runner, a [*command.SignalError] for instance.
func (e *Expected) Fail(err error) *Expected { e.err = err; return e }

// SpawnError answers that the program could not be started: it is not there.
func (e *Expected) SpawnError() *Expected {
	return e.Fail(&command.SpawnError{Argv: e.argv, Err: fmt.Errorf("%q: %w", e.argv[0], os.ErrNotExist)})
}

// Hold keeps the answer back until Release. When the context ends first, the program cannot be killed: the call
// returns, and only Release ends the program.
func (e *Expected) Hold() *Expected { e.hold = true; return e }

// Hang never answers. When the context ends, the program is killed.
func (e *Expected) Hang() *Expected { e.hold, e.hang = true, true; return e }

// Started is closed when the command has come.
func (e *Expected) Started() <-chan struct{} { return e.started }

// Release ends what Hold has begun. It may be called at any time, and more than once.
func (e *Expected) Release() { e.free.Do(func() { close(e.release) }) }

func (e *Expected) matches(argv []string) bool {
	for i, want := range e.argv {
		if want == AnyArgs && i == len(e.argv)-1 {
			return true
		}
		if i >= len(argv) || want != AnyArg && want != argv[i] {
			return false
		}
	}
	return len(argv) == len(e.argv)
}

func (e *Expected) String() string {
	text := command.Command{Argv: e.argv}.String()
	return strings.NewReplacer(`"\x00any..."`, "...", `"\x00any"`, "?").Replace(text)
}

// Calls are the commands that came, in order.
func (r *Runner) Calls() []command.Command {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.calls)
}

// Run implements [command.Runner].
func (r *Runner) Run(ctx context.Context, cmd command.Command) (command.Result, error) {
	if ctx.Err() != nil {
		return command.Result{}, runnerTimeout(ctx, cmd.Argv, false, nil)
	}
	e := r.take(cmd)
	if e == nil {
		return command.Result{}, &command.SpawnError{Argv: cmd.Argv, Err: fmt.Errorf("unexpected command: %w", os.ErrNotExist)}
	}
	if e.do != nil {
		e.do(cmd)
	}
	e.once.Do(func() { close(e.started) })
	if e.hold {
		select {
		case <-e.release:
		case <-ctx.Done():
			exited := e.release
			if e.hang {
				exited = make(chan struct{})
				close(exited)
			}
			return command.Result{}, runnerTimeout(ctx, cmd.Argv, true, exited)
		}
	}
	if e.err != nil {
		return command.Result{}, e.err
	}
	return command.Result{Stdout: slices.Clone(e.result.Stdout), Stderr: slices.Clone(e.result.Stderr), ExitCode: e.result.ExitCode}, nil
}

// take records a command and finds who expected it.
func (r *Runner) take(cmd command.Command) *Expected {
	r.t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls = append(r.calls, command.Command{Argv: slices.Clone(cmd.Argv), Env: slices.Clone(cmd.Env)})
	var next *Expected
	for _, e := range r.expected {
		if e.times == 0 {
			continue
		}
		if next == nil {
			next = e
		}
		if !e.matches(cmd.Argv) {
			if r.unordered || e.times < 0 {
				continue
			}
			break
		}
		for _, entry := range e.env {
			if !slices.Contains(cmd.Env, entry) {
				r.t.Errorf("command %s without %s in its environment %q", cmd, entry, cmd.Env)
			}
		}
		if e.times > 0 {
			e.times--
		}
		if !r.unordered {
			r.lockedPass(e)
		}
		return e
	}
	if next == nil {
		r.t.Errorf("unexpected command: %s\nnone was expected any more", cmd)
	} else {
		r.t.Errorf("unexpected command: %s\nexpected was:       %s", cmd, next)
	}
	return nil
}

// lockedPass uses up the optional commands before e.
func (r *Runner) lockedPass(e *Expected) {
	for _, before := range r.expected {
		if before == e {
			return
		}
		before.times = 0
	}
}

// finish is the end of the test.
func (r *Runner) finish() {
	r.t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.expected {
		e.Release()
		if e.times > 0 {
			r.t.Errorf("expected command did not come (%d more): %s", e.times, e)
		}
	}
}

func runnerTimeout(ctx context.Context, argv []string, started bool, exited <-chan struct{}) error {
	err := &command.TimeoutError{Argv: argv, Started: started, Err: ctx.Err(), Exited: exited}
	if cause := context.Cause(ctx); cause != err.Err { //nolint:errorlint // identity is what is asked for
		err.Cause = cause
	}
	return err
}
