package executor

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
)

// Defaults of Options.
const (
	DefaultTimeout       = 2 * time.Minute
	DefaultMaxBackground = 16
)

// Options configure Operations. The zero value is ready to use.
type Options struct {
	// Clock is what all times and deadlines come from; default the real one. It is never called with a lock held.
	Clock clock.WithDelayedExecution
	// Backoff is the wait after failures.
	Backoff Backoff
	// MaxConcurrent and MaxPerNode cap how many functions run at once; 0 = no cap. Beyond a cap operations queue: first
	// come, first served within a node, nodes in turns. Operations without a node have no node cap. No slot is held by
	// a Prepare, during back-off, or by an operation past its deadline.
	MaxConcurrent, MaxPerNode int
	// MaxBackground caps background operations, which count for neither of the other caps; 0 = 16, negative = no cap.
	MaxBackground int
	// Timeout is for operations that do not set their own; 0 = 2 minutes, negative = none.
	Timeout time.Duration
	// OnPanic, if set, is called for every operation that ended in a panic, before Done, by the operation's goroutine.
	OnPanic func(Info, *PanicError)
	// Rand is the source of jitter, in [0, 1), and safe for concurrent use; default math/rand/v2.
	Rand func() float64
}

// Operation is one piece of work. Its functions are called at most once each, in the order Check, Prepare, Run, Complete, Done.
type Operation struct {
	// Key is what must not be worked on by another operation meanwhile.
	Key Key
	// Name tells kinds of operations apart, as in "attach": back-off is per (volume, node, Name).
	Name string
	// Node is the node for back-off and for the fair share of slots when Key.Node is empty, that is, when the operation
	// works on one node and excludes all. Otherwise it is empty or equal to Key.Node.
	Node types.NodeName
	// Timeout bounds Prepare and Run, each on its own; waiting for a slot does not count. 0 = Options.Timeout, negative = none.
	Timeout time.Duration
	// Background operations have slots of their own (Options.MaxBackground), so that they delay no other operation.
	Background bool

	// Check, if set, is called in Start by the caller's goroutine, with the key reserved and nothing running yet: what it
	// sees cannot be changed by another operation on the key. An error frees the key and is returned by Start as it is;
	// nothing else is called. It must not block. While it runs, other Starts get an AlreadyExistsError whose Pending.Phase is
	// Checking: as nobody is told when a check refuses, they should try again soon.
	Check func() error
	// Prepare, if set, runs first and holds no slot: it is the place to wait for preconditions. Its error ends the operation.
	Prepare func(ctx context.Context) error
	// Run does the work. It must be set.
	//
	// The contexts of Prepare and Run carry the values of Start's context, and are cancelled with it, at the deadline
	// (cause ErrTimeout) and by Shutdown (cause ErrShutdown). Having no deadline of their own, as the clock is injected, they
	// have only this signal. A function that does not return stays pending (Overdue), and keeps its key. The goroutine that
	// calls it may go on to another operation, and must be left as it was found (runtime.UnlockOSThread).
	Run func(ctx context.Context) error
	// Complete, if set, is called with the error of Prepare or Run, also after a panic and also when Run was never reached,
	// while the key is still reserved: it is the place to write down the outcome. What it returns becomes the error of
	// the operation.
	Complete func(err error) error
	// Done, if set, is called after the key is free and back-off is booked. It may call Start. A panic in it is not recovered.
	Done func(Result)
}

// Result is how an operation ended.
type Result struct {
	Info Info // as of the end: Attempts and NextTry include this try
	// Err is the error of the operation; nil = success. It Is ErrPrecondition when Run was never called because the
	// operation was cancelled before; it Is ErrTimeout or ErrShutdown when a function failed after it was cancelled for that.
	Err  error
	Took time.Duration // from Start to the end
	Ran  time.Duration // in Run and Complete alone; 0 when Run was not reached
}

// Operations runs functions in goroutines of their own, never two with overlapping keys at once, and delays the retries of those
// that fail. See the package documentation for its guarantees. It is safe for concurrent use.
type Operations struct {
	clock      clock.WithDelayedExecution
	rand       func() float64
	timeout    time.Duration
	onPanic    func(Info, *PanicError)
	foreground *slots // nil: no cap
	background *slots

	mu       sync.Mutex
	pending  overlapIndex
	all      list[operation] // pending, in the order of Start
	ready    list[operation] // to be advanced
	coming   int             // goroutines that were started and have not looked into ready yet
	failures failures
	live     int           // pending, and those whose Done has not returned
	idle     chan struct{} // closed when live gets to 0; nil while nobody waits
	closed   bool
}

// operation is an Operation that was started, with its Node and Timeout filled in.
type operation struct {
	Operation
	parent context.Context
	err    error // of what has been called so far

	// Used only by the goroutine that the operation is with, which is one at a time.
	prepared bool // Prepare has succeeded
	reached  bool // Run was called
	waited   bool // in the queue

	// Guarded by Operations.mu, as is all that follows.
	hasSlot bool
	phase   Phase
	turn    int32 // tells the deadline of an earlier function from that of the present one
	started time.Time
	began   time.Time    // when the present function began; zero: none
	ctx     *callContext // of the present function
	unwatch func() bool  // set while queued
	failure *failure

	all, byPod, byNode links[operation]
	queue              links[operation] // of slots, and then of ready
}

func allLinks(op *operation) *links[operation] { return &op.all }

// NewOperations checks the options and returns an Operations without goroutines. Errors: *cache.InvalidError.
func NewOperations(o Options) (*Operations, error) {
	if err := o.Backoff.Validate(); err != nil {
		return nil, err
	}
	if o.MaxConcurrent < 0 {
		return nil, invalid("Options.MaxConcurrent", strconv.Itoa(o.MaxConcurrent), "must not be negative; 0 is no cap")
	}
	if o.MaxPerNode < 0 {
		return nil, invalid("Options.MaxPerNode", strconv.Itoa(o.MaxPerNode), "must not be negative; 0 is no cap")
	}
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	if o.Rand == nil {
		o.Rand = rand.Float64
	}
	if o.Timeout == 0 {
		o.Timeout = DefaultTimeout
	}
	if o.MaxBackground == 0 {
		o.MaxBackground = DefaultMaxBackground
	}
	return &Operations{
		clock:      o.Clock,
		rand:       o.Rand,
		timeout:    o.Timeout,
		onPanic:    o.OnPanic,
		foreground: newSlots(o.MaxConcurrent, o.MaxPerNode),
		background: newSlots(o.MaxBackground, 0),
		pending:    newOverlapIndex(),
		failures:   newFailures(o.Backoff),
	}, nil
}

// Start reserves the key and runs the operation in its own goroutine. ctx gives the operation its values and its
// cancellation.
//
// Errors, none of which started or changed anything: *AlreadyExistsError, *BackoffError, ErrShutdown, *cache.InvalidError, the
// error of Check as it is (a *PanicError if it panicked), and the cause of ctx, wrapped, when that has already ended.
func (o *Operations) Start(ctx context.Context, spec Operation) error {
	op, err := o.newOperation(ctx, spec)
	if err != nil {
		return err
	}
	now := o.clock.Now()
	if err := o.reserve(op, now); err != nil {
		return err
	}
	if op.Check == nil {
		return nil
	}
	if guard(&err, op.Check); err != nil {
		return o.withdraw(op, now, err)
	}
	o.mu.Lock()
	queued, spawn := o.lockedLaunch(op)
	o.mu.Unlock()
	o.launch(op, queued, spawn)
	return nil
}

func (o *Operations) newOperation(ctx context.Context, spec Operation) (*operation, error) {
	switch {
	case spec.Key == Key{}:
		return nil, invalid("Operation.Key", "", "at least one of volume, pod and node must be set")
	case spec.Run == nil:
		return nil, invalid("Operation.Run", "", "must be set")
	case spec.Key.Node != "" && spec.Node != "" && spec.Node != spec.Key.Node:
		return nil, invalid("Operation.Node", string(spec.Node), "must be empty or the node of the key, "+string(spec.Key.Node))
	case ctx == nil:
		return nil, invalid("ctx", "", "must not be nil")
	case ctx.Err() != nil:
		return nil, fmt.Errorf("operation %q on %s not started: %w", spec.Name, spec.Key, context.Cause(ctx))
	}
	op := &operation{Operation: spec, parent: ctx}
	if op.Node == "" {
		op.Node = op.Key.Node
	}
	if op.Timeout == 0 {
		op.Timeout = o.timeout
	}
	return op, nil
}

// slotsOf returns where op gets its slot from; nil when there is no cap.
func (o *Operations) slotsOf(op *operation) *slots {
	if op.Background {
		return o.background
	}
	return o.foreground
}

// sweepLimit bounds what one call forgets of idle failures: more than one call can add, so that the list shrinks.
const sweepLimit = 4

// reserve makes op pending, and starts it unless it is to be checked first.
func (o *Operations) reserve(op *operation, now time.Time) error {
	o.mu.Lock()
	err := o.lockedReserve(op, now)
	if err != nil || op.Check != nil {
		o.mu.Unlock()
		return err
	}
	queued, spawn := o.lockedLaunch(op)
	o.mu.Unlock()
	o.launch(op, queued, spawn)
	return nil
}

func (o *Operations) lockedReserve(op *operation, now time.Time) error {
	if o.closed {
		return ErrShutdown
	}
	if other := o.pending.find(op.Key); other != nil {
		return &AlreadyExistsError{Key: op.Key, Pending: other.lockedInfo()}
	}
	o.failures.sweep(now, sweepLimit)
	switch f := o.failures.find(op.Key.Volume, op.Node, op.Name); {
	case f == nil:
	case f.blocks(now):
		return &BackoffError{Key: op.Key, Name: op.Name, Until: f.nextTry, Attempts: f.attempts, LastErr: f.lastErr}
	case f.live(now):
		op.failure = f
		o.failures.hold(f)
	default:
		o.failures.forget(f)
	}
	op.started = now
	op.phase = Preparing
	if op.Check != nil {
		op.phase = Checking
	}
	o.pending.add(op)
	o.all.push(op, allLinks)
	o.live++
	return nil
}

// withdraw undoes a reservation of which nothing has run.
func (o *Operations) withdraw(op *operation, now time.Time, err error) error {
	o.mu.Lock()
	o.lockedRemove(op)
	if op.failure != nil {
		o.failures.unhold(op.failure, now)
	}
	info := op.lockedInfo()
	o.lockedSettle()
	o.mu.Unlock()
	if panicked, ok := err.(*PanicError); ok && o.onPanic != nil {
		o.onPanic(info, panicked)
	}
	return err
}

func (o *Operations) lockedRemove(op *operation) {
	o.pending.remove(op)
	o.all.remove(op, allLinks)
	op.phase = Finished
	op.turn++
}

// lockedSettle is the very end of an operation: nothing of it is running any more.
func (o *Operations) lockedSettle() {
	if o.live--; o.live == 0 && o.idle != nil {
		close(o.idle)
		o.idle = nil
	}
}
