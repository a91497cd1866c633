package fake

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"time"

	"github.com/stateofworld/stateofworld/cache"
	"github.com/stateofworld/stateofworld/executor"
	"github.com/stateofworld/stateofworld/reconciler"
)

// WaitIdle reconciles without moving the clock until nothing more happens: everything that is due was decided on, and every
// operation has ended or hangs in a blocked call. It returns after failures as after successes.
func (w *World) WaitIdle() {
	w.T.Helper()
	deadline := time.Now().Add(30 * time.Second) // of real time: only a deadlock takes so long
	w.waitQuiet(deadline)                        // what the clock or the test has set going comes before the decisions that it may matter to
	for rounds := 0; ; rounds++ {
		n := w.Reconciler.Step(w.T.Context())
		w.waitQuiet(deadline)
		if due, ok := w.Reconciler.NextDue(); n == 0 && (!ok || due.After(w.Clock.Now())) {
			return
		}
		if rounds > 100_000 {
			w.T.Fatalf("the world does not come to rest after %d rounds: %v", rounds, w.Reconciler.Explanations())
		}
	}
}

func (w *World) waitQuiet(deadline time.Time) {
	w.T.Helper()
	for spins := 0; !w.quiet(); spins++ {
		if time.Now().After(deadline) {
			w.T.Fatalf("the world does not come to rest; pending: %v", w.Reconciler.Operations().Pendings())
		}
		if spins < 100 {
			runtime.Gosched()
		} else {
			time.Sleep(20 * time.Microsecond)
		}
	}
}

// quiet reports whether every goroutine of the reconciler has ended or hangs in something that only the test can end.
func (w *World) quiet() bool {
	ops := w.Reconciler.Operations()
	pending := ops.Pendings()
	if ops.Live() != len(pending) {
		return false
	}
	preparing := 0
	for _, info := range pending {
		switch info.Phase {
		case executor.Queued:
		case executor.Preparing:
			preparing++
		case executor.Running:
			if !w.Driver.Blocked(Op(info.Name), Short(info.Key.Volume), info.Node) {
				return false
			}
		case executor.Overdue: // its context has ended, and with it any call that is not stuck
			if !w.Driver.hangs(Op(info.Name), Short(info.Key.Volume), info.Node) {
				return false
			}
		default:
			return false
		}
	}
	return w.reportsRest(preparing)
}

// reportsRest reports whether the writing of reports can only go on with the clock or the test's help, and each of the
// operations that prepare waits for it.
func (w *World) reportsRest(preparing int) bool {
	writer := w.Reconciler.Reports()
	if writer == nil {
		return preparing == 0
	}
	if writer.Waiting() != preparing {
		return false
	}
	if writer.Idle() {
		return true
	}
	for _, node := range writer.Pending() {
		if !w.Reports.Held(node) {
			return false
		}
	}
	return true
}

// reportsDone reports whether no report waits to be written, not even for its next try.
func (w *World) reportsDone() bool {
	writer := w.Reconciler.Reports()
	return writer == nil || len(writer.Pending()) == 0
}

// Settle reconciles until nothing more happens by itself, moving the clock over back-offs, by ten minutes at most. It does
// not move it over the waits of the policy, nor for what is asked live again and again.
func (w *World) Settle() {
	w.T.Helper()
	end := w.Clock.Now().Add(10 * time.Minute)
	for {
		w.WaitIdle()
		next, ok := w.nextRetry()
		if !ok || next.After(end) {
			return
		}
		w.Clock.SetTime(next)
	}
}

// nextRetry returns when the next try of something that failed is due.
func (w *World) nextRetry() (next time.Time, ok bool) {
	for _, e := range w.Reconciler.Explanations() {
		switch d := e.Decision; d.Reason {
		case reconciler.AttachBackoff, reconciler.DetachBackoff, reconciler.Refused, reconciler.ReportNotWritten:
			if !ok || d.Until.Before(next) {
				next, ok = d.Until, true
			}
		}
	}
	if !ok && !w.reportsDone() {
		for _, node := range w.Reconciler.Reports().Pending() {
			ok = ok || !w.Reports.Held(node)
		}
		next = w.Clock.Now().Add(100 * time.Millisecond)
	}
	return next, ok
}

// Advance moves the clock by d, reconciling at every moment in between at which something is due.
func (w *World) Advance(d time.Duration) {
	w.T.Helper()
	end := w.Clock.Now().Add(d)
	w.WaitIdle()
	for w.Clock.Now().Before(end) {
		next := end
		if due, ok := w.Reconciler.NextDue(); ok && due.Before(next) {
			next = due
		}
		if len(w.Reconciler.Operations().Pendings()) > 0 || !w.reportsDone() {
			// Deadlines and retries of reports are not keys of the engine: go in small steps while there may be some.
			if step := w.Clock.Now().Add(max(d/1000, 10*time.Millisecond)); step.Before(next) {
				next = step
			}
		}
		w.Clock.SetTime(next)
		w.WaitIdle()
	}
}

// Passes reconciles n times, period apart, as a polling controller would.
func (w *World) Passes(n int, period time.Duration) {
	w.T.Helper()
	for range n {
		w.WaitIdle()
		w.Clock.Step(period)
	}
	w.WaitIdle()
}

// Check returns what must never be so: a report with a volume that is not attached, indexes that disagree, a driver called
// twice for one transition or with an exclusive volume on two nodes, two writes of one report at once, and, once everything
// is converged, memory that was not given back.
func (w *World) Check() []string {
	problems := append(w.Driver.Violations(), w.Reports.Violations()...)
	for _, err := range []error{w.Desired.CheckInvariants(), w.Actual.CheckInvariants()} {
		if err != nil {
			problems = append(problems, err.Error())
		}
	}
	for node := range w.Actual.Nodes() {
		for _, v := range w.Actual.Report(node).Volumes {
			if state := w.Actual.GetAttachState(v.Name, node); state != cache.Attached {
				problems = append(problems, fmt.Sprintf("the report of node %s contains volume %s, which is %s there", node, v.Name, state))
			}
		}
	}
	stats := w.Reconciler.Stats()
	if stats.Queued == 0 && stats.Pending == 0 && len(w.Reconciler.Explanations()) == 0 && stats.Open+stats.Waiting > 0 {
		problems = append(problems, fmt.Sprintf("everything is converged, but the reconciler remembers %d pairs and %d volumes", stats.Open, stats.Waiting))
	}
	return problems
}

// finish checks the invariants and stops the reconciler. Blocked calls are cancelled; one that is Stuck must have been
// released by the test.
func (w *World) finish() {
	w.T.Helper()
	if problems := w.Check(); len(problems) > 0 {
		w.T.Errorf("invariants are violated:\n  %s\ncalls:\n  %s", strings.Join(problems, "\n  "), strings.Join(w.Driver.Calls(), "\n  "))
	}
	w.stop()
}

func (w *World) stop() {
	w.T.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := w.Reconciler.Stop(ctx); err != nil {
		w.T.Errorf("stop the reconciler: %v", err)
	}
}
