package executor

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Phase is where an operation is.
type Phase uint8

const (
	// Finished: it has ended and left no back-off. Seen only in a Result.
	Finished Phase = iota
	// Checking: its key is reserved, its Check runs; it may still not start.
	Checking
	// Preparing: its Prepare runs, or it is about to begin.
	Preparing
	// Queued: it waits for a slot.
	Queued
	// Running: its Run runs.
	Running
	// Overdue: its deadline has passed, its context is cancelled, its function has not returned yet.
	Overdue
	// BackingOff: it failed, and either must not be tried again before NextTry, or has not been since.
	BackingOff
)

func (p Phase) String() string {
	switch p {
	case Finished:
		return "finished"
	case Checking:
		return "checking"
	case Preparing:
		return "preparing"
	case Queued:
		return "queued"
	case Running:
		return "running"
	case Overdue:
		return "overdue"
	case BackingOff:
		return "backing off"
	}
	return fmt.Sprintf("Phase(%d)", int(p))
}

// Info is a copy of what is known about an operation.
type Info struct {
	Key   Key
	Name  string
	Node  types.NodeName // Key.Node, or Operation.Node
	Phase Phase

	Started  time.Time // zero when not pending
	Deadline time.Time // of the function that runs now; zero: none

	Attempts   int       // failures in a row before this try
	LastErr    error     // of the last of them
	LastFailed time.Time // when that was
	NextTry    time.Time // when BackingOff: the first moment at which Start may succeed
}

func (op *operation) lockedInfo() (info Info) {
	var s streak
	if op.failure != nil && !op.failure.forgotten {
		s = op.failure.streak
		s.nextTry = time.Time{} // it is now
	}
	op.info(&info, &s)
	return info
}

// info is lockedInfo with the failures given: all else of an operation that has ended does not change any more.
// It takes pointers to keep the stack of an operation's goroutine small: growing it costs as much as starting it.
func (op *operation) info(info *Info, s *streak) {
	*info = Info{
		Key: op.Key, Name: op.Name, Node: op.Node, Phase: op.phase, Started: op.started,
		Attempts: s.attempts, LastErr: s.lastErr, LastFailed: s.lastFailed, NextTry: s.nextTry,
	}
	if op.Timeout > 0 && !op.began.IsZero() {
		info.Deadline = op.began.Add(op.Timeout)
	}
}

// IsOperationPending reports whether a pending operation overlaps the key. It costs the same for any number of operations.
func (o *Operations) IsOperationPending(key Key) bool {
	o.mu.Lock()
	pending := o.pending.find(key) != nil
	o.mu.Unlock()
	return pending
}

// Pending returns a pending operation that overlaps the key; which one, when there are several, is not defined.
func (o *Operations) Pending(key Key) (Info, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	op := o.pending.find(key)
	if op == nil {
		return Info{}, false
	}
	return op.lockedInfo(), true
}

// IsOperationSafeToRetry reports whether no pending operation overlaps the key and the operation called name is not in
// back-off on the key's volume and node.
func (o *Operations) IsOperationSafeToRetry(key Key, name string) bool {
	now := o.clock.Now()
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.pending.find(key) == nil && !o.failures.find(key.Volume, key.Node, name).blocks(now)
}

// Failures returns what is remembered of the failures of the operation called name on the key's volume and node (the pod does
// not matter, and an empty node is not any node, but none). It is there until a success, Forget, or idle time, also
// after NextTry and while the operation is being tried again.
func (o *Operations) Failures(key Key, name string) (Info, bool) {
	now := o.clock.Now()
	o.mu.Lock()
	defer o.mu.Unlock()
	f := o.failures.find(key.Volume, key.Node, name)
	if !f.live(now) {
		return Info{}, false
	}
	return f.info(), true
}

// Forget ends the back-off of the operation called name on the key's volume and node; an empty name is every name. Nothing to forget
// is a no-op. For an operation that is pending, a failure of it then counts as the first.
func (o *Operations) Forget(key Key, name string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if name == "" {
		o.failures.forgetAll(key.Volume, key.Node)
	} else if f := o.failures.find(key.Volume, key.Node, name); f != nil {
		o.failures.forget(f)
	}
}

// Pendings returns the pending operations, sorted by start.
func (o *Operations) Pendings() []Info {
	o.mu.Lock()
	infos := make([]Info, 0, o.all.n)
	for op := o.all.first; op != nil; op = op.all.next {
		infos = append(infos, op.lockedInfo())
	}
	o.mu.Unlock()
	slices.SortStableFunc(infos, func(a, b Info) int { return a.Started.Compare(b.Started) })
	return infos
}

// Backoffs returns the remembered failures that are not being tried again at present, sorted by next try, volume, node and name.
func (o *Operations) Backoffs() []Info {
	now := o.clock.Now()
	o.mu.Lock()
	o.failures.sweep(now, math.MaxInt)
	infos := make([]Info, 0, o.failures.idle.n)
	for f := o.failures.idle.first; f != nil; f = f.idleLinks.next {
		infos = append(infos, f.info())
	}
	o.mu.Unlock()
	slices.SortFunc(infos, func(a, b Info) int {
		return cmp.Or(a.NextTry.Compare(b.NextTry), cmp.Compare(a.Key.Volume, b.Key.Volume),
			cmp.Compare(a.Node, b.Node), cmp.Compare(a.Name, b.Name))
	})
	return infos
}

// Sizes returns how many operations are pending, and how many failures are remembered that are not being tried again at present.
func (o *Operations) Sizes() (pending, backoff int) {
	now := o.clock.Now()
	o.mu.Lock()
	defer o.mu.Unlock()
	o.failures.sweep(now, math.MaxInt)
	return o.all.n, o.failures.idle.n
}

// Live returns how many operations have not come to their very end: those that are pending, and those whose Done has not
// returned. It is what Wait waits for.
func (o *Operations) Live() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.live
}

// Wait returns when nothing is pending and every Done has returned; it does not matter whether operations failed. Any number
// may wait at once; Done must not. The error wraps the cause of ctx, if that ends first.
func (o *Operations) Wait(ctx context.Context) error {
	o.mu.Lock()
	if o.live == 0 {
		o.mu.Unlock()
		return nil
	}
	if o.idle == nil {
		o.idle = make(chan struct{})
	}
	idle := o.idle
	o.mu.Unlock()
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	err := fmt.Errorf("%d operations have not ended yet: %w", o.live, context.Cause(ctx))
	if op := o.all.first; op != nil {
		err = fmt.Errorf("%w; the oldest is %q on %s, %s", err, op.Name, op.Key, op.phase)
	}
	return err
}

// Shutdown makes every later Start return ErrShutdown, cancels the contexts of all operations with the cause ErrShutdown, and waits
// like Wait. Operations that were queued end without having run. It may be called any number of times.
func (o *Operations) Shutdown(ctx context.Context) error {
	var running []*callContext
	var queued []*operation
	o.mu.Lock()
	o.closed = true
	for op := o.all.first; op != nil; op = op.all.next {
		switch {
		case op.phase == Queued:
			o.slotsOf(op).drop(op)
			op.phase = Running
			queued = append(queued, op)
		case op.ctx != nil:
			running = append(running, op.ctx)
		}
	}
	o.mu.Unlock()
	for _, call := range running {
		call.cancel(ErrShutdown)
	}
	if len(queued) > 0 {
		go o.advanceAll(queued)
	}
	return o.Wait(ctx)
}

// advanceAll ends operations that were queued at Shutdown, in one goroutine: there may be very many.
func (o *Operations) advanceAll(ops []*operation) {
	defer func() { // when a callback ends this goroutine (runtime.Goexit), the rest goes on in another
		if len(ops) > 0 {
			go o.advanceAll(ops)
		}
	}()
	for len(ops) > 0 {
		op := ops[0]
		ops = ops[1:]
		o.advance(op)
	}
}
