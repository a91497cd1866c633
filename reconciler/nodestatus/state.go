package nodestatus

import (
	"fmt"
	"math"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
)

type phase int8

const (
	idle       phase = iota // nothing to do
	queued                  // due, waits for a slot
	running                 // a try is in flight
	backingOff              // the last try failed, the next has its time
)

// nodeState is what the Writer knows of one node. All of it but the name is guarded by
// Writer.mu.
type nodeState struct {
	name      types.NodeName
	phase     phase
	try       *try     // set while running
	backoff   *backoff // set while backing off
	dirty     bool     // woken while running: look again
	forgotten bool     // the outcome of the running try is nobody's concern
	waiters   []*waiter
	record
}

// record is what remains of a node between its tries.
type record struct {
	stored   stored
	list     []v1.AttachedVolume // what the sink has, if stored is storedKnown
	written  uint64              // newest version that the sink has had
	force    bool                // write even what the sink has
	missing  bool                // the node was not found ...
	tried    uint64              // ... at the try of this version
	attempts int                 // failures in a row
	lastErr  error               // of the last write
}

// try is one look at a node's report, and the write that may follow.
type try struct {
	covers  uint64 // the version that is written; 0: the report is not read yet
	overdue bool   // past its deadline: the slot is given back
}

type backoff struct {
	timer clock.Timer // nil until it is running
}

// waiter is one Flush.
type waiter struct {
	version uint64
	done    chan error // buffered
}

// lockedAnswer ends the wait of those whose version is covered.
func (st *nodeState) lockedAnswer(covers uint64, err error) {
	waiting := st.waiters[:0]
	for _, wt := range st.waiters {
		if wt.version <= covers {
			wt.done <- err
		} else {
			waiting = append(waiting, wt)
		}
	}
	clear(st.waiters[len(waiting):])
	st.waiters = waiting
}

// lockedRelease ends the wait of all.
func (st *nodeState) lockedRelease(err error) {
	if len(st.waiters) > 0 {
		st.lockedAnswer(math.MaxUint64, fmt.Errorf("flush report of node %q: %w", st.name, err))
	}
}

// lockedEndBackoff returns the timer to stop once the lock is free.
func (st *nodeState) lockedEndBackoff() clock.Timer {
	if st.phase != backingOff {
		return nil
	}
	timer := st.backoff.timer
	st.phase, st.backoff = idle, nil
	return timer
}

func stopTimer(timer clock.Timer) {
	if timer != nil {
		timer.Stop()
	}
}

func (w *Writer) lockedNode(name types.NodeName) *nodeState {
	st := w.nodes[name]
	if st == nil {
		st = &nodeState{name: name}
		w.nodes[name] = st
	}
	return st
}

// lockedWake has the node looked at, as soon as its phase allows.
func (w *Writer) lockedWake(st *nodeState) {
	switch st.phase {
	case idle:
		w.lockedEnqueue(st)
		w.lockedStart()
	case running:
		st.dirty = true
	case queued, backingOff: // the coming try reads the newest report anyway
	}
}

func (w *Writer) lockedEnqueue(st *nodeState) {
	st.phase = queued
	w.queued++
	w.queue.push(st)
}

// lockedStart starts tries while there are slots, first come, first served.
func (w *Writer) lockedStart() {
	for w.slots < w.maxConcurrent && !w.stopped {
		st := w.queue.pop()
		if st == nil {
			return
		}
		if st.phase != queued {
			continue
		}
		t := &try{}
		st.phase, st.try, st.dirty = running, t, false
		w.queued--
		w.slots++
		w.active++
		w.wg.Go(func() { w.run(st, t) })
	}
}

// lockedDropIfEmpty forgets a node about which there is nothing to remember.
func (w *Writer) lockedDropIfEmpty(st *nodeState) {
	if st.phase == idle && len(st.waiters) == 0 && !st.missing &&
		(st.stored == storedNothing || st.stored == storedKnown && len(st.list) == 0) &&
		w.nodes[st.name] == st {
		delete(w.nodes, st.name)
	}
}

func (w *Writer) lockedIdle() bool {
	return w.queued == 0 && w.active == 0
}

func (w *Writer) lockedNotifyIdle() {
	if !w.lockedIdle() {
		return
	}
	for _, done := range w.idleWaiters {
		close(done)
	}
	w.idleWaiters = nil
}

// fifo is a queue. It lets go of its memory when it is empty.
type fifo struct {
	items []*nodeState
	head  int
}

func (q *fifo) push(st *nodeState) {
	if q.head > len(q.items)/2 { // a queue that is never empty must not grow for ever
		q.items = append([]*nodeState(nil), q.items[q.head:]...)
		q.head = 0
	}
	q.items = append(q.items, st)
}

// pop returns nil when the queue is empty.
func (q *fifo) pop() *nodeState {
	if q.head == len(q.items) {
		*q = fifo{}
		return nil
	}
	st := q.items[q.head]
	q.items[q.head] = nil
	q.head++
	return st
}
