package executor

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// advance takes the operation on as far as it goes: to its end, or into the queue for a slot, from where whoever frees
// the slot advances it again. It is the whole of an operation's goroutine.
func (o *Operations) advance(op *operation) {
	ended := true
	defer func() { // deferred, so that it also happens when a function ends this goroutine (runtime.Goexit)
		if ended {
			o.complete(op)
		}
	}()
	if op.unwatch != nil {
		op.unwatch()
	}
	if op.Prepare != nil && !op.prepared {
		if o.call(op, Preparing, op.Prepare); op.err != nil {
			return
		}
		op.prepared = true
		if !o.admit(op) {
			ended = false
			return
		}
	}
	o.call(op, Running, op.Run)
}

// admit gives op a slot and returns true, or puts it into the queue and returns false.
func (o *Operations) admit(op *operation) bool {
	if op.slots == nil {
		return true
	}
	o.mu.Lock()
	op.turn++
	// After Shutdown there are no queues any more; the call that comes next finds out that it is not to run.
	if !o.closed && !op.slots.acquire(op) {
		op.phase = Queued
		op.deadline = time.Time{}
		o.mu.Unlock()
		o.watch(op)
		return false
	}
	op.hasSlot = !o.closed
	o.mu.Unlock()
	return true
}

// watch lets a queued operation end when its context does.
func (o *Operations) watch(op *operation) {
	if op.parent.Done() == nil {
		return
	}
	stop := context.AfterFunc(op.parent, func() { o.leaveQueue(op) })
	o.mu.Lock()
	queued := op.phase == Queued
	if queued {
		op.unwatch = stop
	}
	o.mu.Unlock()
	if !queued {
		stop()
	}
}

func (o *Operations) leaveQueue(op *operation) {
	o.mu.Lock()
	if op.phase != Queued {
		o.mu.Unlock()
		return
	}
	op.slots.drop(op)
	op.phase = Running
	o.mu.Unlock()
	o.advance(op) // which sees that the context has ended
}

// call runs one function of op under its own context and deadline, and leaves its error in op.err.
func (o *Operations) call(op *operation, phase Phase, fn func(context.Context) error) {
	ctx, cancel := context.WithCancelCause(op.parent)
	defer cancel(nil)
	now := o.clock.Now()
	turn, err := o.begin(op, phase, now, cancel)
	if err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		op.err = Precondition(fmt.Errorf("operation was ended before it began: %w", err))
		return
	}
	if op.timeout > 0 {
		timer := o.clock.AfterFunc(op.timeout, func() { o.expire(op, turn) })
		defer timer.Stop()
	}
	guard(&op.err, func() error {
		err := fn(ctx)
		// Only our own causes: whatever the caller's cause is marked with says nothing about what the function did.
		if cause := context.Cause(ctx); err != nil && (cause == ErrTimeout || cause == ErrShutdown) && !errors.Is(err, cause) {
			err = fmt.Errorf("%w: %w", cause, err)
		}
		return err
	})
	if phase == Running {
		op.ran = o.clock.Since(now)
	}
}

func (o *Operations) begin(op *operation, phase Phase, now time.Time, cancel context.CancelCauseFunc) (turn int, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return 0, ErrShutdown
	}
	op.turn++
	op.phase = phase
	op.cancel = cancel
	if op.timeout > 0 {
		op.deadline = now.Add(op.timeout)
	}
	return op.turn, nil
}

// expire is called at the deadline of a function. A fake clock calls it with the clock's own lock held, so it must not use the clock.
func (o *Operations) expire(op *operation, turn int) {
	o.mu.Lock()
	if op.turn != turn {
		o.mu.Unlock()
		return
	}
	op.phase = Overdue
	cancel := op.cancel
	next := o.lockedFreeSlot(op)
	o.mu.Unlock()
	cancel(ErrTimeout)
	if next != nil {
		go o.advance(next)
	}
}

// lockedFreeSlot gives back the slot of op, if it has one, and returns the operation that is to advance with it.
func (o *Operations) lockedFreeSlot(op *operation) *operation {
	if !op.hasSlot {
		return nil
	}
	op.hasSlot = false
	next := op.slots.release(op)
	if next != nil {
		next.hasSlot = true
		next.phase = Running
	}
	return next
}

// complete books the outcome, and only then frees the key: who finds the key free finds the outcome.
func (o *Operations) complete(op *operation) {
	defer o.free(op)
	if op.Complete != nil {
		err := op.err
		guard(&op.err, func() error { return op.Complete(err) })
	}
}

func (o *Operations) free(op *operation) {
	now := o.clock.Now()
	err := op.err
	grows := err != nil && !errors.Is(err, ErrPrecondition)
	var random float64
	if grows {
		random = o.rand()
	}
	var panicked *PanicError
	if err != nil && o.onPanic != nil {
		errors.As(err, &panicked)
	}
	followed := op.Done != nil || panicked != nil
	var result Result
	o.mu.Lock()
	o.lockedRemove(op)
	next := o.lockedFreeSlot(op)
	o.lockedBook(op, err, grows, now, random)
	if followed {
		result = Result{Info: op.lockedInfo(), Err: err, Took: now.Sub(op.started), Ran: op.ran}
	} else {
		o.lockedSettle()
	}
	o.mu.Unlock()
	if next != nil {
		go o.advance(next)
	}
	if followed {
		o.follow(op, result, panicked)
	}
}

// lockedBook brings the back-off up to date with the end of op, and leaves in op.failure what is left of it.
func (o *Operations) lockedBook(op *operation, err error, grows bool, now time.Time, random float64) {
	if op.failure != nil {
		o.failures.unhold(op.failure, now)
	}
	switch {
	case grows:
		o.failures.sweep(now, sweepLimit)
		op.failure = o.failures.record(op, err, now, random)
	case err == nil && op.failure != nil:
		o.failures.forget(op.failure)
		op.failure = nil
	}
}

// follow calls the callbacks of an operation that has ended.
func (o *Operations) follow(op *operation, result Result, panicked *PanicError) {
	defer func() {
		o.mu.Lock()
		o.lockedSettle()
		o.mu.Unlock()
	}()
	if panicked != nil {
		o.onPanic(result.Info, panicked)
	}
	if op.Done != nil {
		op.Done(result)
	}
}
