package nodestatus

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/stateofworld/stateofworld/cache"
	"github.com/stateofworld/stateofworld/executor"
)

// The defaults of [WriterConfig].
const (
	DefaultTimeout       = 10 * time.Second
	DefaultMaxConcurrent = 32
)

// ErrForgotten is what a waiting Flush returns when Forget is called for its node.
var ErrForgotten = errors.New("the node was forgotten")

// Source knows the newest report of each node; *cache.ActualStateOfWorld is one.
type Source interface {
	// Report must be safe for concurrent use and must not block. The version of a node
	// grows with each change of its list and never goes back; zero means that there never
	// was a report. The Writer keeps the list that it is given.
	Report(node types.NodeName) cache.NodeReport
}

// WriterConfig is what a [Writer] is made of. Source and Sink are required.
type WriterConfig struct {
	Source Source
	Sink   Sink

	// Clock times deadlines and back-off; nil is the real clock.
	Clock clock.WithDelayedExecution

	// Timeout bounds one write: its context ends then, whoever waits for it is told,
	// and its place is free for another node. Zero is DefaultTimeout.
	Timeout time.Duration

	// Backoff spaces the tries after failures; its zero value has good defaults.
	Backoff executor.Backoff

	// MaxConcurrent caps the writes that run at a time, over all nodes. Zero is
	// DefaultMaxConcurrent.
	MaxConcurrent int

	// OnResult, if set, is called after each write, by the goroutine that made it. It
	// may call the Writer, but not wait for it. The node's next write does not wait
	// for it; WaitIdle and Shutdown do.
	OnResult func(Result)

	// Rand is the source of the jitter, as Backoff.Delay wants it; nil is math/rand/v2.
	Rand func() float64
}

// Result is the outcome of one write.
type Result struct {
	Node     types.NodeName
	Version  uint64 // of the report that was written
	Volumes  int    // length of the list
	Err      error  // nil: written
	Missing  bool   // Err says that the node does not exist
	Took     time.Duration
	Attempts int       // failures in a row, with this one
	NextTry  time.Time // when the write is tried again; zero: not by itself
}

// Writer publishes reports asynchronously; the package comment says what it
// guarantees. All methods may be called from any goroutine. None of them but Flush,
// WaitIdle and Shutdown blocks.
//
//	        Changed, Force, NodeAdded, Flush
//	idle ----------------------------------> queued --slot free--> running
//	 ^                                         ^                      |
//	 |                                         +---changed meanwhile--+
//	 |                                         |                      |
//	 |                                    time is up                  |
//	 |                                         |                      |
//	 |                                     backingOff <----failed-----+
//	 +--------------------written, skipped, node missing--------------+
type Writer struct {
	source        Source
	sink          Sink
	clock         clock.WithDelayedExecution // never called with mu held: a fake clock calls us with its own lock held
	timeout       time.Duration
	backoff       executor.Backoff
	maxConcurrent int
	onResult      func(Result)
	rand          func() float64

	ctx    context.Context // of all writes; ended by Shutdown
	cancel context.CancelCauseFunc
	wg     sync.WaitGroup // one for each try

	mu          sync.Mutex
	nodes       map[types.NodeName]*nodeState
	queue       fifo            // nodes that are due; those no longer in phase queued are skipped
	queued      int             // nodes in phase queued
	slots       int             // slots in use
	active      int             // tries that run, those past their deadline too
	idleWaiters []chan struct{} // closed when nothing is queued or active
	stopped     bool
}

// NewWriter checks the configuration, *[cache.InvalidError], and starts nothing: a
// goroutine runs only while there is something to write. End with Shutdown.
func NewWriter(c WriterConfig) (*Writer, error) {
	switch {
	case c.Source == nil:
		return nil, &cache.InvalidError{Field: "Source", Reason: "must not be nil: it has the reports to write"}
	case c.Sink == nil:
		return nil, &cache.InvalidError{Field: "Sink", Reason: "must not be nil: it is where reports are written to"}
	case c.Timeout < 0:
		return nil, &cache.InvalidError{Field: "Timeout", Value: c.Timeout.String(), Reason: "must not be negative"}
	case c.MaxConcurrent < 0:
		return nil, &cache.InvalidError{Field: "MaxConcurrent", Value: strconv.Itoa(c.MaxConcurrent), Reason: "must not be negative"}
	}
	if err := c.Backoff.Validate(); err != nil {
		return nil, fmt.Errorf("configure the report writer: %w", err)
	}
	w := &Writer{
		source:        c.Source,
		sink:          c.Sink,
		clock:         c.Clock,
		timeout:       c.Timeout,
		backoff:       c.Backoff,
		maxConcurrent: c.MaxConcurrent,
		onResult:      c.OnResult,
		rand:          c.Rand,
		nodes:         make(map[types.NodeName]*nodeState),
	}
	if w.clock == nil {
		w.clock = clock.RealClock{}
	}
	if w.timeout == 0 {
		w.timeout = DefaultTimeout
	}
	if w.maxConcurrent == 0 {
		w.maxConcurrent = DefaultMaxConcurrent
	}
	w.ctx, w.cancel = context.WithCancelCause(context.Background())
	return w, nil
}

// Changed says that the report of node may have a new version. It is what
// cache.ActualStateOfWorld.SubscribeReports wants. A node in back-off stays there. An empty
// name is ignored, here and in Force and NodeAdded.
func (w *Writer) Changed(node types.NodeName) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stopped || node == "" {
		return
	}
	w.lockedWake(w.lockedNode(node))
}

// Force makes the next write of node happen even if its list is what was last written.
// It does nothing for a node with an empty list and nothing on record. A node in back-off
// stays there.
func (w *Writer) Force(node types.NodeName) {
	w.force(node, false)
}

// NodeAdded says that the Node object was created, perhaps again: what was written
// before may be gone with the older object. It forgets that the node was missing, ends
// the back-off, and forces one write of the full list. For a node with an empty list and
// nothing on record it does nothing.
func (w *Writer) NodeAdded(node types.NodeName) {
	w.force(node, true)
}

func (w *Writer) force(node types.NodeName, fresh bool) {
	reported := len(w.source.Report(node).Volumes) > 0
	w.mu.Lock()
	st := w.nodes[node]
	if w.stopped || node == "" || st == nil && !reported {
		w.mu.Unlock() // no list now, and none on record
		return
	}
	st = w.lockedNode(node)
	st.force = true
	var timer clock.Timer
	if fresh {
		st.missing, st.tried, st.attempts, st.lastErr = false, 0, 0, nil
		timer = st.lockedEndBackoff()
	}
	w.lockedWake(st)
	w.mu.Unlock()
	stopTimer(timer)
}

// Flush waits until the sink has version, or a later one, of the report of node, and
// starts the write if need be. Take the version from the source before the call.
//
// It returns nil when that is written, at once if it was before, or when the node does
// not exist: nobody can read its report. An empty list that was written is not kept in
// mind, and is written once more. The first write that carries the version and
// fails ends the wait with its error; the Writer itself goes on trying. While the node
// is in back-off, the next try is waited for. When ctx ends, the error Is ctx.Err(),
// with the last write's error if there is one. Other errors: executor.ErrTimeout for
// a write past its time-out, executor.ErrShutdown, [ErrForgotten], *[cache.InvalidError]
// for an empty name.
func (w *Writer) Flush(ctx context.Context, node types.NodeName, version uint64) error {
	if node == "" {
		return fmt.Errorf("flush report: %w", &cache.InvalidError{Field: "node name", Reason: "must not be empty"})
	}
	w.mu.Lock()
	if w.stopped {
		w.mu.Unlock()
		return fmt.Errorf("flush report of node %q: %w", node, executor.ErrShutdown)
	}
	st := w.lockedNode(node)
	if version <= st.written {
		w.lockedDropIfEmpty(st)
		w.mu.Unlock()
		return nil
	}
	wt := &waiter{version: version, done: make(chan error, 1)}
	st.waiters = append(st.waiters, wt)
	w.lockedWake(st)
	w.mu.Unlock()

	select {
	case err := <-wt.done:
		return err
	case <-ctx.Done():
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	select {
	case err := <-wt.done: // both at once: the answer counts
		return err
	default:
	}
	st.waiters = slices.DeleteFunc(st.waiters, func(o *waiter) bool { return o == wt })
	w.lockedDropIfEmpty(st)
	if st.lastErr != nil {
		return fmt.Errorf("flush report of node %q: %w; last write: %w", node, ctx.Err(), st.lastErr)
	}
	return fmt.Errorf("flush report of node %q: %w", node, ctx.Err())
}

// Written returns the version last written for node and the error of the last write,
// nil if it succeeded. Both are zero for a node that the Writer keeps no memory of:
// never written, or last written with an empty list.
func (w *Writer) Written(node types.NodeName) (version uint64, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if st := w.nodes[node]; st != nil {
		return st.written, st.lastErr
	}
	return 0, nil
}

// Forget drops everything about node: what is pending, what was written, the back-off.
// A waiting Flush gets [ErrForgotten]. A write in flight is not stopped, and no other
// starts before it has returned. If the node's report changes, or changed during
// that write, it is written like that of a new node.
func (w *Writer) Forget(node types.NodeName) {
	w.mu.Lock()
	st := w.nodes[node]
	if st == nil {
		w.mu.Unlock()
		return
	}
	st.lockedRelease(ErrForgotten)
	timer := st.lockedEndBackoff()
	if st.phase == queued {
		w.queued--
		st.phase = idle
	}
	st.record, st.dirty = record{}, false
	if st.phase == running {
		st.forgotten = true
	} else {
		delete(w.nodes, node)
	}
	w.lockedNotifyIdle()
	w.mu.Unlock()
	stopTimer(timer)
}

// Pending returns, sorted, the nodes whose newest report is being written, or will be
// without another call: due, in flight, or in back-off. Missing nodes are not among them.
func (w *Writer) Pending() []types.NodeName {
	w.mu.Lock()
	defer w.mu.Unlock()
	var names []types.NodeName
	for name, st := range w.nodes {
		if st.phase != idle {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// Len returns the number of nodes that the Writer keeps memory of.
func (w *Writer) Len() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.nodes)
}

// Waiting returns how many calls of Flush wait for a write.
func (w *Writer) Waiting() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := 0
	for _, st := range w.nodes {
		n += len(st.waiters)
	}
	return n
}

// Idle says that no write runs and none is due now. Writes in back-off do not count.
func (w *Writer) Idle() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.lockedIdle()
}

// WaitIdle waits until Idle is true, also when writes failed. If ctx ends first, the
// error Is ctx.Err().
func (w *Writer) WaitIdle(ctx context.Context) error {
	w.mu.Lock()
	if w.lockedIdle() {
		w.mu.Unlock()
		return nil
	}
	done := make(chan struct{})
	w.idleWaiters = append(w.idleWaiters, done)
	w.mu.Unlock()

	select {
	case <-done:
		return nil
	case <-ctx.Done():
	}
	w.mu.Lock()
	w.idleWaiters = slices.DeleteFunc(w.idleWaiters, func(o chan struct{}) bool { return o == done })
	w.mu.Unlock()
	return fmt.Errorf("wait for node reports: %w", ctx.Err())
}

// Shutdown ends the Writer for good: nothing new starts, a waiting Flush gets
// executor.ErrShutdown, writes in flight are cancelled with that cause and waited for.
// It writes nothing more by itself: call WaitIdle before if that matters. If ctx ends
// while a write has not returned, the error Is ctx.Err(); Shutdown may be called again
// to wait on.
func (w *Writer) Shutdown(ctx context.Context) error {
	w.mu.Lock()
	w.stopped = true
	w.cancel(executor.ErrShutdown)
	var timers []clock.Timer
	for name, st := range w.nodes {
		st.lockedRelease(executor.ErrShutdown)
		timers = append(timers, st.lockedEndBackoff())
		if st.phase == queued {
			st.phase = idle
		}
		if st.phase != running {
			delete(w.nodes, name)
		}
	}
	w.queue, w.queued = fifo{}, 0
	w.lockedNotifyIdle()
	w.mu.Unlock()
	for _, timer := range timers {
		stopTimer(timer)
	}
	if err := w.WaitIdle(ctx); err != nil {
		return fmt.Errorf("shut down the report writer: %w", err)
	}
	w.wg.Wait() // the last instructions of tries that are over
	return nil
}
