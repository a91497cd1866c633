package executor

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"
)

// ErrShutdown is returned by Start after Shutdown was called; it is also the cause with which Shutdown cancels the
// contexts of operations.
var ErrShutdown = errors.New("executor is shut down")

// ErrTimeout is the cause with which the context of a function is cancelled that has not returned by its deadline, and is
// found in the error of such an operation. It Is context.DeadlineExceeded.
var ErrTimeout = fmt.Errorf("operation timed out: %w", context.DeadlineExceeded)

// AlreadyExistsError is returned by Start when a pending operation overlaps the key.
type AlreadyExistsError struct {
	Key     Key
	Pending Info // the operation in the way
}

func (e *AlreadyExistsError) Error() string {
	return fmt.Sprintf("operation on %s cannot start: operation %q on %s is %s since %s; try again when it has ended",
		e.Key, e.Pending.Name, e.Pending.Key, e.Pending.Phase, e.Pending.Started.Format(time.RFC3339))
}

// BackoffError is returned by Start when the same operation failed on the same volume and node a short while ago. It does not
// unwrap to LastErr: that is the outcome of another try, not of this one.
type BackoffError struct {
	Key      Key
	Name     string
	Until    time.Time // the first moment at which Start may succeed
	Attempts int       // failures in a row
	LastErr  error
}

func (e *BackoffError) Error() string {
	return fmt.Sprintf("operation %q on %s failed %d times in a row, and is not tried again before %s; last error: %v",
		e.Name, e.Key, e.Attempts, e.Until.Format(time.RFC3339Nano), e.LastErr)
}

// PanicError is the error of an operation whose function panicked, or ended its goroutine with runtime.Goexit. It never
// unwraps to the panic's value: whatever a function panics with says nothing reliable about what was done.
type PanicError struct {
	Value any
	Stack []byte // of the goroutine, at the panic
}

func (e *PanicError) Error() string { return fmt.Sprintf("operation panicked: %v", e.Value) }

var errGoexit = errors.New("runtime.Goexit was called")

// guard calls fn and stores its error, or a *PanicError when fn does not return. The error is stored, not returned, because nothing
// is returned by a call that ends its goroutine.
func guard(err *error, fn func() error) {
	returned := false
	defer func() {
		if returned {
			return
		}
		value := recover()
		if value == nil {
			value = errGoexit
		}
		*err = &PanicError{Value: value, Stack: debug.Stack()}
	}()
	*err = fn()
	returned = true
}
