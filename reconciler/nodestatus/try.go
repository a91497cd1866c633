package nodestatus

import (
	"context"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/stateofworld/stateofworld/cache"
	"github.com/stateofworld/stateofworld/executor"
)

// run is one try: reads the newest report, decides, writes, books the outcome.
func (w *Writer) run(st *nodeState, t *try) {
	report := w.source.Report(st.name)

	w.mu.Lock()
	t.covers = report.Version
	act := decide(st.record, report)
	st.force = false
	if act != actWrite {
		w.lockedBookNoWrite(st, act, report)
		w.lockedOver()
		w.mu.Unlock()
		return
	}
	w.mu.Unlock()

	result := w.write(st, t, report)
	w.book(st, report, &result)
	if w.onResult != nil {
		w.onResult(result)
	}
	w.mu.Lock()
	w.lockedOver()
	w.mu.Unlock()
}

// write calls the sink, bounded by the time-out.
func (w *Writer) write(st *nodeState, t *try, report cache.NodeReport) Result {
	ctx, cancel := context.WithCancelCause(w.ctx)
	defer cancel(nil)
	started := w.clock.Now()
	timer := w.clock.AfterFunc(w.timeout, func() {
		cancel(executor.ErrTimeout)
		w.overdue(st, t)
	})
	err := w.call(ctx, report)
	timer.Stop()
	if cause := context.Cause(ctx); err != nil && cause != nil {
		err = fmt.Errorf("%w: %w", cause, err) // says more than "context canceled"
	}
	if err != nil {
		err = fmt.Errorf("write report %d of node %q: %w", report.Version, st.name, err)
	}
	return Result{
		Node:    st.name,
		Version: report.Version,
		Volumes: len(report.Volumes),
		Err:     err,
		Missing: isNotFound(err),
		Took:    w.clock.Now().Sub(started),
	}
}

func (w *Writer) call(ctx context.Context, report cache.NodeReport) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &executor.PanicError{Value: v, Stack: debug.Stack()}
		}
	}()
	return w.sink.Write(ctx, report.Node, report.Volumes)
}

// overdue gives the slot of a try back that is past its deadline, and tells those who
// wait for it. The node itself stays occupied until the sink returns.
func (w *Writer) overdue(st *nodeState, t *try) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if st.try != t || t.overdue {
		return
	}
	t.overdue = true
	w.slots--
	st.lockedAnswer(t.covers, fmt.Errorf("write report of node %q: %w after %s", st.name, executor.ErrTimeout, w.timeout))
	w.lockedStart()
}

// lockedBookNoWrite books a try that found nothing to write.
func (w *Writer) lockedBookNoWrite(st *nodeState, act action, report cache.NodeReport) {
	w.lockedReturned(st)
	if act == actSkip {
		st.written = report.Version
	}
	st.lockedAnswer(report.Version, nil)
	w.lockedNext(st)
}

// book books the outcome of a write, and adds to result what follows from it.
func (w *Writer) book(st *nodeState, report cache.NodeReport, result *Result) {
	w.mu.Lock()
	forgotten := w.lockedReturned(st)
	if w.stopped || forgotten {
		w.lockedNext(st)
		w.mu.Unlock()
		return
	}
	st.lastErr = result.Err
	switch {
	case result.Err == nil:
		st.stored, st.list, st.written = storedKnown, report.Volumes, report.Version
		st.missing, st.attempts = false, 0
		st.lockedAnswer(report.Version, nil)
	case result.Missing:
		// What was written is gone with the node; one that has nothing to report need
		// not be remembered. No node can read the report: nobody waits for it.
		st.stored, st.list = storedNothing, nil
		st.missing, st.tried = len(report.Volumes) > 0, report.Version
		st.attempts = 0
		st.lockedAnswer(report.Version, nil)
	default:
		st.stored, st.list = storedUnknown, nil
		st.attempts++
		result.Attempts = st.attempts
		st.lockedAnswer(report.Version, result.Err)
		b := &backoff{}
		st.phase, st.backoff = backingOff, b
		w.lockedStart()
		w.mu.Unlock()
		result.NextTry = w.backOff(st, b, result.Attempts)
		return
	}
	w.lockedNext(st)
	w.mu.Unlock()
}

// backOff sets the time of the next try, and returns it.
func (w *Writer) backOff(st *nodeState, b *backoff, attempts int) time.Time {
	delay := w.backoff.Delay(attempts, w.rand)
	next := w.clock.Now().Add(delay)
	timer := w.clock.AfterFunc(delay, func() { w.backoffOver(st, b) })
	w.mu.Lock()
	current := st.backoff == b
	if current {
		b.timer = timer
	}
	w.mu.Unlock()
	if !current { // over already, or ended by someone
		timer.Stop()
	}
	return next
}

func (w *Writer) backoffOver(st *nodeState, b *backoff) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if st.backoff != b {
		return
	}
	st.lockedEndBackoff()
	w.lockedWake(st)
}

// lockedReturned frees what the running try of st holds, and says whether the node
// was forgotten meanwhile.
func (w *Writer) lockedReturned(st *nodeState) (forgotten bool) {
	if !st.try.overdue {
		w.slots--
	}
	forgotten = st.forgotten
	st.phase, st.try, st.forgotten = idle, nil, false
	return forgotten
}

// lockedNext has the node looked at again if it was woken during its try, and lets the
// next node begin.
func (w *Writer) lockedNext(st *nodeState) {
	switch {
	case w.stopped:
		delete(w.nodes, st.name)
	case st.dirty:
		w.lockedEnqueue(st)
	default:
		w.lockedDropIfEmpty(st)
	}
	w.lockedStart()
}

// lockedOver ends a try for good: it has called nothing since and will not.
func (w *Writer) lockedOver() {
	w.active--
	w.lockedNotifyIdle()
}
