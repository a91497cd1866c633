package command

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
)

// SpawnError says that the program was not started: it is not there, not executable, or the namespaces could not be
// entered. Nothing has happened.
type SpawnError struct {
	Argv []string
	Err  error
}

func (e *SpawnError) Error() string { return fmt.Sprintf("cannot start %s: %v", join(e.Argv), e.Err) }
func (e *SpawnError) Unwrap() error { return e.Err }

// TimeoutError says that the context ended before the program (or the file operation) did. Where Started is set the
// program was running: it has been sent SIGKILL with its process group, and how far it got is unknown.
type TimeoutError struct {
	Argv    []string
	Started bool
	// Err is the context's error: context.DeadlineExceeded or context.Canceled.
	Err error
	// Cause is the context's cause where it has one of its own, else nil.
	Cause error
	// Stdout and Stderr are what was written until then. They may be cut anywhere.
	Stdout, Stderr []byte
	// Exited is closed when the program has really gone. It is nil when it was never started.
	Exited <-chan struct{}
}

func newTimeoutError(ctx context.Context, argv []string) *TimeoutError {
	e := &TimeoutError{Argv: argv, Err: ctx.Err()}
	if cause := context.Cause(ctx); cause != e.Err { //nolint:errorlint // identity is what is asked for
		e.Cause = cause
	}
	return e
}

func (e *TimeoutError) Error() string {
	what := "not started"
	if e.Started {
		what = "killed, its effect is unknown"
		if !e.Gone() {
			what = "killed but still alive, its effect is unknown"
		}
	}
	err := e.Err
	if e.Cause != nil {
		err = e.Cause
	}
	return fmt.Sprintf("%s: %v (%s)%s", join(e.Argv), err, what, excerpt(e.Stderr))
}

// Gone reports whether nothing of the program is left: it never started, or it has exited.
func (e *TimeoutError) Gone() bool {
	if e.Exited == nil {
		return true
	}
	select {
	case <-e.Exited:
		return true
	default:
		return false
	}
}

func (e *TimeoutError) Unwrap() []error {
	if e.Cause == nil {
		return []error{e.Err}
	}
	return []error{e.Err, e.Cause}
}

// Timeout makes the error a timeout in the sense of package net and os, unless it is a cancellation.
func (e *TimeoutError) Timeout() bool { return errors.Is(e.Err, context.DeadlineExceeded) }

// SignalError says that the program was ended by a signal that the runner did not send. How far it got is unknown.
type SignalError struct {
	Argv           []string
	Signal         os.Signal
	Stdout, Stderr []byte
}

func (e *SignalError) Error() string {
	return fmt.Sprintf("%s was killed by signal: %v%s", join(e.Argv), e.Signal, excerpt(e.Stderr))
}

// OutputLimitError says that the program wrote more than the runner takes, and was killed for it, or that a file is
// longer than the read limit.
type OutputLimitError struct {
	Argv  []string
	Limit int64 // bytes
}

func (e *OutputLimitError) Error() string {
	return fmt.Sprintf("%s: more than %d bytes of output", join(e.Argv), e.Limit)
}

// ErrTooManyStuck is inside the SpawnError of a program that was not started because too many earlier ones outlived
// their deadline and are still there.
var ErrTooManyStuck = errors.New("too many earlier programs are past their deadline and cannot be killed; see what they wait for (state D)")

// excerpt is the beginning of a program's standard error, for a message.
func excerpt(stderr []byte) string {
	s := strings.TrimSpace(string(stderr))
	if s == "" {
		return ""
	}
	const most = 512
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "..."
	}
	return ": " + s
}
