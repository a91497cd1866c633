package executor

import (
	"context"
	"fmt"
	"runtime"
	"time"
)

// lockedLaunch lets op begin, or puts it into the queue for a slot. The answer is for launch, without the lock.
func (o *Operations) lockedLaunch(op *operation) (queued, spawn bool) {
	if op.Prepare == nil && !o.lockedAdmit(op) {
		return true, false
	}
	return false, o.lockedReady(op)
}

func (o *Operations) launch(op *operation, queued, spawn bool) {
	if queued {
		o.watch(op)
	}
	if spawn {
		go o.work()
	}
}

// lockedReady makes op ready to be advanced. When it returns true a goroutine must be started that does work.
//
// Invariant: len(ready) <= coming, so that no operation ever waits for another to return.
func (o *Operations) lockedReady(op *operation) (spawn bool) {
	o.ready.push(op, queueLinks)
	if spawn = o.ready.n > o.coming; spawn {
		o.coming++
	}
	return spawn
}

// work is the goroutine of an operation, and often of several, one after the other: starting a goroutine and growing its
// stack costs as much as all else of a short operation, so a goroutine that is there already takes what is ready.
// Before it ends it gives way once: while operations are started one after the other, the next one is there by then.
func (o *Operations) work() {
	o.mu.Lock()
	for {
		o.coming--
		op := o.ready.pop(queueLinks)
		if op == nil {
			o.mu.Unlock()
			return
		}
		o.mu.Unlock()
		o.advance(op)
		o.mu.Lock()
		if o.coming++; o.ready.n == 0 {
			o.mu.Unlock()
			runtime.Gosched()
			o.mu.Lock()
		}
	}
}

// advance takes the operation on as far as it goes: to its end, or into the queue for a slot, from where whoever frees
// the slot makes it ready again.
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
	now := op.started // good enough for what begins at once: reading the clock is a good part of what an operation costs
	if op.waited {
		now = o.clock.Now()
	}
	if op.Prepare != nil && !op.prepared {
		if o.call(op, Preparing, now, op.Prepare); op.err != nil {
			return
		}
		op.prepared = true
		o.mu.Lock()
		admitted := o.lockedAdmit(op)
		o.mu.Unlock()
		if !admitted {
			ended = false
			o.watch(op)
			return
		}
		now = o.clock.Now()
	}
	o.call(op, Running, now, op.Run)
}

// lockedAdmit gives op a slot and returns true, or puts it into the queue and returns false.
func (o *Operations) lockedAdmit(op *operation) bool {
	slots := o.slotsOf(op)
	// After Shutdown there are no queues any more; the call that comes next finds out that it is not to run.
	if slots == nil || o.closed {
		return true
	}
	op.turn++
	if op.hasSlot = slots.acquire(op); !op.hasSlot {
		op.phase = Queued
		op.began = time.Time{}
		op.waited = true
	}
	return op.hasSlot
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
	o.slotsOf(op).drop(op)
	op.phase = Running
	o.mu.Unlock()
	o.advance(op) // which sees that the context has ended
}

// call runs one function of op under its own context and deadline, and leaves its error in op.err.
func (o *Operations) call(op *operation, phase Phase, now time.Time, fn func(context.Context) error) {
	ctx := &callContext{parent: op.parent}
	defer ctx.cancel(nil)
	turn, err := o.begin(op, phase, now, ctx)
	if err == nil {
		_, err = ctx.state()
	}
	if err != nil {
		op.err = Precondition(fmt.Errorf("operation was ended before it began: %w", err))
		return
	}
	if op.Timeout > 0 {
		timer := o.clock.AfterFunc(op.Timeout, func() { o.expire(op, turn) })
		defer timer.Stop()
	}
	op.reached = phase == Running
	guard(&op.err, func() error {
		err := fn(ctx)
		// Only our own causes: whatever the caller's cause is marked with says nothing about what the function did.
		if _, cause := ctx.state(); err != nil && (cause == ErrTimeout || cause == ErrShutdown) && !is(err, cause) {
			err = fmt.Errorf("%w: %w", cause, err)
		}
		return err
	})
}

func (o *Operations) begin(op *operation, phase Phase, now time.Time, ctx *callContext) (turn int32, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return 0, ErrShutdown
	}
	op.turn++
	op.phase = phase
	op.began = now
	op.ctx = ctx
	return op.turn, nil
}

// expire is called at the deadline of a function. A fake clock calls it with the clock's own lock held, so it must not use the clock.
func (o *Operations) expire(op *operation, turn int32) {
	o.mu.Lock()
	if op.turn != turn {
		o.mu.Unlock()
		return
	}
	op.phase = Overdue
	ctx := op.ctx
	spawn := o.lockedFreeSlot(op)
	o.mu.Unlock()
	ctx.cancel(ErrTimeout)
	if spawn {
		go o.work()
	}
}

// lockedFreeSlot gives back the slot of op, if it has one. Another operation may get it; see lockedReady for
// what is returned.
func (o *Operations) lockedFreeSlot(op *operation) (spawn bool) {
	if !op.hasSlot {
		return false
	}
	op.hasSlot = false
	next := o.slotsOf(op).release(op)
	if next == nil {
		return false
	}
	next.hasSlot = true
	next.phase = Running
	return o.lockedReady(next)
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
	grows := err != nil && !is(err, ErrPrecondition)
	var random float64
	if grows {
		random = o.rand()
	}
	var panicked *PanicError
	if err != nil && o.onPanic != nil {
		panicked, _ = as[*PanicError](err)
	}
	followed := op.Done != nil || panicked != nil
	o.mu.Lock()
	o.lockedRemove(op)
	spawn := o.lockedFreeSlot(op)
	left := o.lockedBook(op, err, grows, now, random)
	if !followed {
		o.lockedSettle()
	}
	o.mu.Unlock()
	if spawn {
		go o.work()
	}
	if followed {
		o.follow(op, now, left, panicked)
	}
}

// lockedBook brings the back-off up to date with the end of op, and returns what is left of it.
func (o *Operations) lockedBook(op *operation, err error, grows bool, now time.Time, random float64) streak {
	if op.failure != nil {
		o.failures.unhold(op.failure, now)
	}
	switch {
	case err == nil:
		if f := o.failures.find(op.Key.Volume, op.Node, op.Name); f != nil {
			o.failures.forget(f)
		}
	case grows:
		o.failures.sweep(now, sweepLimit)
		return o.failures.record(op, err, now, random).streak
	case op.failure != nil && !op.failure.forgotten:
		return op.failure.streak
	}
	return streak{}
}

// follow calls the callbacks of an operation that has ended.
func (o *Operations) follow(op *operation, now time.Time, left streak, panicked *PanicError) {
	defer func() {
		o.mu.Lock()
		o.lockedSettle()
		o.mu.Unlock()
	}()
	result := Result{Err: op.err, Took: now.Sub(op.started)}
	op.info(&result.Info, &left)
	if left.attempts > 0 {
		result.Info.Phase = BackingOff
	}
	if op.reached {
		result.Ran = now.Sub(op.began)
	}
	if panicked != nil {
		o.onPanic(result.Info, panicked)
	}
	if op.Done != nil {
		op.Done(result)
	}
}
