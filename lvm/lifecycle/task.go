package lifecycle

import (
	"context"
	"errors"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/stateofworld/stateofworld/executor"
	"github.com/stateofworld/stateofworld/lvm"
)

// task is an operation to be started for a key.
type task struct {
	name string
	// lv is the logical volume that must not be worked on by another operation meanwhile; other, where it is empty, anything else.
	lv    lvm.Name
	other string
	// attempt is an attempt at what is asked for: its back-off is what the object waits for.
	attempt bool
	// long: no time-out, and no slot taken from the others.
	long bool
	run  func(ctx context.Context) error
	done func(err error) // may be nil; called before the key is looked at again
}

// operationKey is what operations exclude each other by. The group is the "node" of the executor, so that groups take turns for the
// slots and each has a limited share: one whose disks do not answer holds up no other.
func (t task) operationKey() executor.Key {
	if t.other != "" {
		return executor.Key{Volume: v1.UniqueVolumeName(t.other)}
	}
	return lvKey(t.lv)
}

func lvKey(name lvm.Name) executor.Key {
	return executor.Key{Volume: v1.UniqueVolumeName(name.String()), Node: types.NodeName(name.VG)}
}

// reportKey is that of writing down a failure. It cannot be a logical volume's: those have no blank.
func reportKey(k key) executor.Key { return executor.Key{Volume: v1.UniqueVolumeName(k.String())} }

// start begins an operation whose end makes the key due again, and returns when to look at the key otherwise.
func (a *Agent) start(ctx context.Context, k key, t task) time.Time {
	op := t.operationKey()
	spec := executor.Operation{
		Key: op, Name: t.name, Run: t.run, Background: t.long,
		Done: func(r executor.Result) {
			// What the agent's own end cuts off says nothing of the object: nobody is told, the next agent begins anew.
			cutOff := r.Err != nil && (ctx.Err() != nil || errors.Is(r.Err, executor.ErrShutdown))
			if t.done != nil && !cutOff {
				t.done(r.Err)
			}
			a.book.end(k)
			a.engine.Add(k)
			a.wake(op)
		},
	}
	if t.long {
		spec.Timeout = -1
	}
	a.book.begin(k, op, t.name, t.attempt)
	err := a.ops.Start(ctx, spec)
	if err == nil {
		return time.Time{}
	}
	a.book.end(k)
	var backoff *executor.BackoffError
	var exists *executor.AlreadyExistsError
	switch {
	case errors.As(err, &backoff):
		return backoff.Until
	case errors.As(err, &exists):
		a.book.wait(k, op)
		if !a.ops.IsOperationPending(op) { // it ended before this key could be woken by its end
			a.wake(op)
		}
	}
	return time.Time{} // the agent is being stopped
}

// wake makes those due that found an operation in their way.
func (a *Agent) wake(op executor.Key) {
	for k := range a.book.wake(op) {
		a.engine.Add(k)
	}
}
