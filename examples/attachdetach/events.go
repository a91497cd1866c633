package main

import (
	"fmt"
	"maps"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/stateofworld/stateofworld/cache"
	"github.com/stateofworld/stateofworld/executor"
	"github.com/stateofworld/stateofworld/reconciler"
	"github.com/stateofworld/stateofworld/reconciler/nodestatus"
)

// event is something to print as it happens.
type event struct {
	at     time.Duration // since the start
	verb   string
	volume v1.UniqueVolumeName // may be empty
	node   types.NodeName      // may be empty
	text   string
}

// summary counts what happened.
type summary struct {
	Attach  map[string]int                `json:"attach"` // by outcome
	Detach  map[string]int                `json:"detach"`
	Reports int                           `json:"reportsWritten"`
	Forced  map[string]uint64             `json:"forcedDetaches"` // by reason
	Notices map[reconciler.NoticeKind]int `json:"notices"`
}

// recorder is told by the reconciler what happens. It only notes it down, since nobody may be held up; the program's loop
// prints it.
type recorder struct {
	start time.Time

	mu       sync.Mutex
	quiet    bool    // events are counted, but not kept
	events   []event // not printed yet
	counts   summary
	attached int // attaches that succeeded
}

func newRecorder(start time.Time, quiet bool) *recorder {
	return &recorder{start: start, quiet: quiet, counts: summary{
		Attach: map[string]int{}, Detach: map[string]int{}, Notices: map[reconciler.NoticeKind]int{},
	}}
}

func (r *recorder) observer() reconciler.Observer {
	return reconciler.Observer{Decided: r.decided, Finished: r.finished, Reported: r.reported}
}

func (r *recorder) add(e event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lockedAdd(e)
}

func (r *recorder) lockedAdd(e event) {
	if !r.quiet {
		e.at = time.Since(r.start)
		r.events = append(r.events, e)
	}
}

// take returns the events since the last call.
func (r *recorder) take() []event {
	r.mu.Lock()
	defer r.mu.Unlock()
	events := r.events
	r.events = nil
	return events
}

func (r *recorder) notice(n reconciler.Notice) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.counts.Notices[n.Kind]++
}

// decided tells what a pair waits for, and that a detach is forced.
func (r *recorder) decided(pair cache.Pair, d reconciler.Decision) {
	verb := "wait"
	switch {
	case d.Forced():
		verb = "force"
	case d.Action != reconciler.Wait, d.Converged(), underWay(d.Reason), d.Attempts > 0:
		return // its end tells more
	}
	r.add(event{verb: verb, volume: pair.Volume, node: pair.Node, text: reasonText(d)})
}

// reasonText is a decision's reason in words, without the time that it names.
func reasonText(d reconciler.Decision) string {
	return strings.TrimPrefix(reconciler.Explanation{Decision: d}.String(), "waiting: ")
}

// underWay: the pair waits for an operation that has begun.
func underWay(reason reconciler.Reason) bool {
	switch reason {
	case reconciler.Attaching, reconciler.Detaching, reconciler.WritingReport, reconciler.OperationQueued, reconciler.OperationElsewhere:
		return true
	}
	return false
}

func (r *recorder) finished(ev executor.Event, _ time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	counts := r.counts.Attach
	if ev.Operation == executor.OpDetach {
		counts = r.counts.Detach
	}
	counts[ev.Outcome.String()]++
	if ev.Operation == executor.OpAttach && ev.Outcome == executor.Done {
		r.attached++
	}
	r.lockedAdd(event{verb: ev.Operation, volume: ev.Volume, node: ev.Node, text: outcomeText(ev)})
}

func outcomeText(ev executor.Event) string {
	text := ""
	switch ev.Outcome {
	case executor.Done, executor.Gone:
		return "done in " + milliseconds(ev.Ran)
	case executor.Refused:
		text = "not started: "
	case executor.FailedForCertain:
		text = "failed: "
	default:
		text = "uncertain: "
	}
	// What the error says of the operation, the line has in its columns.
	text += strings.TrimPrefix(ev.Err.Error(), fmt.Sprintf("%s volume %q, node %q: ", ev.Operation, ev.Volume, ev.Node))
	if !ev.NextTry.IsZero() {
		text += "; again in " + milliseconds(time.Until(ev.NextTry))
	}
	return text
}

func (r *recorder) reported(result nodestatus.Result) {
	r.mu.Lock()
	defer r.mu.Unlock()
	text := "has " + count(result.Volumes, "attached volume")
	if result.Err != nil {
		text = fmt.Sprintf("not written: %v", result.Err)
	} else {
		r.counts.Reports++
	}
	r.lockedAdd(event{verb: "report", node: result.Node, text: text})
}

// summary returns a copy of the counts.
func (r *recorder) summary() summary {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.counts
	s.Attach, s.Detach, s.Notices = maps.Clone(s.Attach), maps.Clone(s.Detach), maps.Clone(s.Notices)
	s.Forced = map[string]uint64{}
	return s
}

// attaches returns how many attaches have succeeded.
func (r *recorder) attaches() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.attached
}

func milliseconds(d time.Duration) string {
	if d >= 10*time.Second {
		return d.Round(100 * time.Millisecond).String()
	}
	return d.Round(time.Millisecond).String()
}
