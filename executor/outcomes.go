package executor

import (
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/types"
)

// Outcome is what is known after an operation on an attachment has ended. The five are never mixed, because each asks for
// something else: what may have happened must not be taken for what has not.
type Outcome int

const (
	// Done: it succeeded.
	Done Outcome = iota
	// Refused: nothing was started, because a precondition does not hold (yet).
	Refused
	// FailedForCertain: it was tried, and the driver knows that nothing has changed.
	FailedForCertain
	// Unknown: it may or may not have happened, or may still happen: a time-out, a panic, any error that says nothing else.
	Unknown
	// Gone: the node or the volume no longer exists.
	Gone
)

func (o Outcome) String() string {
	switch o {
	case Done:
		return "done"
	case Refused:
		return "refused"
	case FailedForCertain:
		return "failed for certain"
	case Unknown:
		return "unknown"
	case Gone:
		return "gone"
	}
	return fmt.Sprintf("Outcome(%d)", int(o))
}

var (
	// ErrPrecondition marks an error as Refused: the operation did nothing. It leaves the back-off as it was.
	ErrPrecondition = errors.New("precondition does not hold")
	// ErrNothingHappened marks an error as FailedForCertain.
	ErrNothingHappened = errors.New("nothing has changed")
	// ErrGone marks an error as Gone.
	ErrGone = errors.New("node or volume no longer exists")
)

// Classify returns the outcome that an error stands for. An error with several marks has the first of Refused,
// FailedForCertain and Gone: each changes less than the next. An error without a mark is Unknown, and so are a *PanicError
// and ErrTimeout.
func Classify(err error) Outcome {
	switch {
	case err == nil:
		return Done
	case is(err, ErrPrecondition):
		return Refused
	case is(err, ErrNothingHappened):
		return FailedForCertain
	case is(err, ErrGone):
		return Gone
	}
	return Unknown
}

// is and as are errors.Is and errors.As for the errors of others, whose methods may panic (a nil pointer in an error is not
// rare): such an error has no mark.
func is(err, target error) (found bool) {
	defer func() {
		if recover() != nil {
			found = false
		}
	}()
	return errors.Is(err, target)
}

func as[T error](err error) (target T, found bool) {
	defer func() {
		if recover() != nil {
			found = false
		}
	}()
	found = errors.As(err, &target)
	return target, found
}

// marked adds a mark to an error without changing its text.
type marked struct{ err, mark error }

func (m *marked) Error() string        { return m.err.Error() }
func (m *marked) Unwrap() error        { return m.err }
func (m *marked) Is(target error) bool { return target == m.mark }

func mark(err, mark error) error {
	if err == nil {
		return mark
	}
	if is(err, mark) {
		return err
	}
	return &marked{err: err, mark: mark}
}

// Precondition marks err as ErrPrecondition; nil gives ErrPrecondition itself.
func Precondition(err error) error { return mark(err, ErrPrecondition) }

// NothingHappened marks err as ErrNothingHappened; nil gives ErrNothingHappened itself.
func NothingHappened(err error) error { return mark(err, ErrNothingHappened) }

// GoneError marks err as ErrGone; nil gives ErrGone itself.
func GoneError(err error) error { return mark(err, ErrGone) }

// DanglingError is a driver's "the volume is attached elsewhere": nothing has changed on the node that was asked for, and the
// volume is attached, or being attached, to Node, whatever the actual world says.
type DanglingError struct {
	Node       types.NodeName // where it is attached; empty when the driver cannot say
	DevicePath string         // there; may be empty
	Err        error          // the driver's own error; may be nil
}

func (e *DanglingError) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("volume is attached to node %q", e.Node)
	}
	return fmt.Sprintf("volume is attached to node %q: %v", e.Node, e.Err)
}

// Unwrap returns the driver's own error.
func (e *DanglingError) Unwrap() error { return e.Err }

// Is makes every DanglingError an ErrNothingHappened.
func (e *DanglingError) Is(target error) bool { return target == ErrNothingHappened }
