package lvm

import (
	"errors"
	"fmt"
	"strings"

	"github.com/stateofworld/stateofworld/executor/command"
)

// Error is every error of a backend: what was to be done, to what, and what came of it.
type Error struct {
	Op     string // "create", "remove", ...
	Object string // "vg0", "vg0/a"
	// Kind is one of the sentinel errors of this package, or nil where the reason has no name of its own.
	Kind error
	// Argv, ExitCode and Stderr are those of the command that failed. Argv is empty where none was run.
	Argv     []string
	ExitCode int
	Stderr   string
	// Err is a cause with details of its own (InvalidError, MismatchError, command.TimeoutError, ...), or nil.
	Err error
}

func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString("lvm: " + e.Op)
	if e.Object != "" {
		b.WriteString(" " + e.Object)
	}
	if e.Kind != nil {
		b.WriteString(": " + e.Kind.Error())
	}
	if e.Err != nil {
		b.WriteString(": " + e.Err.Error())
	}
	if len(e.Argv) > 0 && (e.Err == nil || e.ExitCode != 0) {
		fmt.Fprintf(&b, " (%s: exit code %d", command.Command{Argv: e.Argv}, e.ExitCode)
		if e.Stderr != "" {
			b.WriteString(": " + strings.Join(lines(e.Stderr), "; "))
		}
		b.WriteString(")")
	}
	return b.String()
}

// Unwrap makes the kind and the cause visible to errors.Is and errors.As.
func (e *Error) Unwrap() []error {
	var errs []error
	for _, err := range []error{e.Kind, e.Err} {
		if err != nil {
			errs = append(errs, err)
		}
	}
	return errs
}

// InvalidError says which part of a request is wrong, and why. It is ErrInvalid.
type InvalidError struct {
	Field, Value, Reason string
}

func (e *InvalidError) Error() string {
	return fmt.Sprintf("invalid %s %q: %s", e.Field, e.Value, e.Reason)
}

// Is makes every InvalidError an ErrInvalid.
func (e *InvalidError) Is(target error) bool { return target == ErrInvalid }

// MismatchError says how a volume that exists differs from the one asked for. It comes with ErrExistsMismatch.
type MismatchError struct {
	Field, Have, Want string
}

func (e *MismatchError) Error() string {
	return fmt.Sprintf("%s is %s, wanted %s", e.Field, e.Have, e.Want)
}

// DependentsError names the volumes that stand in the way of a removal. It comes with ErrHasSnapshots (thick snapshots
// of the volume) or ErrInUse (volumes in the thin pool).
type DependentsError struct {
	Names []string
}

func (e *DependentsError) Error() string { return strings.Join(e.Names, ", ") }

// failure is an error without a command.
func failure(op, object string, kind, cause error) *Error {
	if errors.Is(cause, kind) { // said once is enough
		kind = nil
	}
	return &Error{Op: op, Object: object, Kind: kind, Err: cause}
}

// lines are the lines of a program's messages, without the white space and the blank ones.
func lines(text string) []string {
	var out []string
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" {
			out = append(out, line)
		}
	}
	return out
}
