package reconciler

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/stateofworld/stateofworld/cache"
	"github.com/stateofworld/stateofworld/executor"
	"github.com/stateofworld/stateofworld/reconciler/engine"
	"github.com/stateofworld/stateofworld/reconciler/nodestatus"
)

// ErrStopped is returned by Run when the reconciler has run and stopped already: make a new one.
var ErrStopped = errors.New("reconciler has stopped")

// Reconciler brings the actual world to the desired one. All methods may be called concurrently.
type Reconciler struct {
	cfg     Config
	desired *cache.DesiredStateOfWorld
	actual  *cache.ActualStateOfWorld
	engine  *engine.Engine[cache.Pair]
	exec    *executor.OperationExecutor
	ops     *executor.Operations
	writer  *nodestatus.Writer // nil without Config.Reports

	synced atomic.Bool
	book   book

	life      sync.Mutex
	listening bool
	stopped   bool
	cancels   []func()

	stats counters
}

// New returns a reconciler that does nothing until Run or Step. It starts no goroutine and does not touch the worlds.
func New(c Config) (*Reconciler, error) {
	c, err := c.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("new reconciler: %w", err)
	}
	r := &Reconciler{cfg: c, desired: c.Desired, actual: c.Actual}
	r.book.init()
	if r.ops, err = executor.NewOperations(c.Operations); err != nil {
		return nil, fmt.Errorf("new reconciler: %w", err)
	}
	if r.exec, err = executor.NewOperationExecutor(executor.ExecutorConfig{
		Operations: r.ops, Attacher: c.Attacher, Actual: c.Actual,
	}); err != nil {
		return nil, fmt.Errorf("new reconciler: %w", err)
	}
	if r.engine, err = engine.New(engine.Config[cache.Pair]{
		Evaluate: r.evaluate, Workers: c.Workers, Clock: c.Clock, Audit: r.allPairs, AuditPeriod: c.AuditPeriod,
	}); err != nil {
		return nil, fmt.Errorf("new reconciler: %w", err)
	}
	if c.Reports != nil {
		if r.writer, err = nodestatus.NewWriter(nodestatus.WriterConfig{
			Source: c.Actual, Sink: c.Reports, Clock: c.Clock, Timeout: c.ReportTimeout,
			Backoff: c.Operations.Backoff, OnResult: c.Observer.Reported,
		}); err != nil {
			return nil, fmt.Errorf("new reconciler: %w", err)
		}
	}
	return r, nil
}

// MarkSynced says that the desired world is complete: every pod that exists was added, or marked as unresolved. Nothing is
// detached before, and no exclusive volume is attached. It cannot be taken back.
func (r *Reconciler) MarkSynced() {
	if r.synced.Swap(true) {
		return
	}
	r.life.Lock()
	listening := r.listening
	r.life.Unlock()
	if listening { // else listen makes everything due
		r.engine.AuditNow()
	}
}

// Run reconciles until ctx ends, and returns ctx's error when every operation has returned: a driver that does not honour
// its context holds it up. A reconciler runs once; a second call returns ErrStopped or engine.ErrRunning.
func (r *Reconciler) Run(ctx context.Context) error {
	if err := r.listen(); err != nil {
		return err
	}
	var background sync.WaitGroup
	background.Go(func() { r.runVerify(ctx) })
	err := r.engine.Run(ctx)
	if errors.Is(err, engine.ErrRunning) {
		return err
	}
	background.Wait()
	return errors.Join(err, r.Stop(context.WithoutCancel(ctx)))
}

// Step is the single step, for tests and tools: it decides on every pair that is due, starts the operations that follow,
// and returns how many pairs it looked at. It does not wait for the operations. Call Stop when done.
func (r *Reconciler) Step(ctx context.Context) int {
	if r.listen() != nil {
		return 0
	}
	return r.engine.RunPending(ctx)
}

// Stop ends a reconciler that was driven with Step: it starts nothing any more, cancels what runs, and waits for it until
// ctx ends. Run does this by itself. It may be called several times.
func (r *Reconciler) Stop(ctx context.Context) error {
	r.life.Lock()
	cancels := r.cancels
	r.cancels, r.stopped = nil, true
	r.life.Unlock()
	for _, cancel := range cancels {
		cancel()
	}
	err := r.ops.Shutdown(ctx)
	if r.writer != nil {
		err = errors.Join(err, r.writer.Shutdown(ctx))
	}
	return err
}

// listen subscribes to the worlds, once, and makes every pair that exists already due.
func (r *Reconciler) listen() error {
	r.life.Lock()
	defer r.life.Unlock()
	if r.stopped {
		return ErrStopped
	}
	if r.listening {
		return nil
	}
	r.listening = true
	for node := range r.desired.Nodes() {
		r.book.nodeAdded(node, true)
	}
	r.cancels = append(r.cancels,
		r.desired.Subscribe(r.changed), r.actual.Subscribe(r.changed),
		r.desired.SubscribeNodes(r.nodeWishChanged), r.actual.SubscribeNodes(r.nodeChanged))
	if r.writer != nil {
		r.cancels = append(r.cancels, r.actual.SubscribeReports(r.writer.Changed))
		for node := range r.actual.Nodes() {
			r.writer.Changed(node)
		}
	}
	r.engine.AuditNow()
	return nil
}

// changed is what the worlds call after a change. A change that an operation in flight makes needs no look: its end
// brings one.
func (r *Reconciler) changed(pair cache.Pair) {
	if operation := r.book.inFlightElseReset(pair); operation != "" {
		if operation == executor.OpDetach && r.desired.VolumeExists(pair.Volume, pair.Node) {
			// The pod may be gone again when the operation ends; the wait must begin anew all the same.
			r.actual.ResetDetachRequestTime(pair.Volume, pair.Node)
		}
		return
	}
	r.engine.Add(pair)
	r.wakeWaiting(pair.Volume)
}

// wakeWaiting makes the pairs due that wait for another node's attachment of the volume.
func (r *Reconciler) wakeWaiting(volume v1.UniqueVolumeName) {
	for _, node := range r.book.waitingFor(volume) {
		r.engine.Add(cache.Pair{Volume: volume, Node: node})
	}
}

// nodeWishChanged: a node that was added, perhaps once more, needs its whole report; one that only has an unresolved pod
// more or less does not.
func (r *Reconciler) nodeWishChanged(node types.NodeName) {
	if added := r.book.nodeAdded(node, r.desired.NodeExists(node)); added && r.writer != nil {
		r.writer.NodeAdded(node)
	}
	r.nodeChanged(node)
}

// nodeChanged: what is known of a node decides on what is to be detached there. That a node was added or deleted, the
// desired world tells of each wish by itself.
func (r *Reconciler) nodeChanged(node types.NodeName) {
	for av := range r.actual.AttachedVolumesForNode(node) {
		r.engine.Add(cache.Pair{Volume: av.VolumeName, Node: node})
	}
}

// allPairs yields every pair of either world.
func (r *Reconciler) allPairs() iter.Seq[cache.Pair] {
	return func(yield func(cache.Pair) bool) {
		for _, pairs := range []iter.Seq[cache.Pair]{r.desired.Pairs(), r.actual.Pairs()} {
			for pair := range pairs {
				if !yield(pair) {
					return
				}
			}
		}
	}
}

// evaluate decides on one pair and does what the decision says. The engine calls it, never twice at once for a pair.
func (r *Reconciler) evaluate(ctx context.Context, pair cache.Pair) time.Time {
	entry := r.book.read(pair)
	if entry.inFlight != "" {
		return time.Time{} // its end makes the pair due again
	}
	f, d := r.decision(pair, &entry)
	if waitsForVolume(d.Reason) && r.book.wait(pair) {
		// From here on a change of the volume wakes this pair. One that came before did not: look once more.
		entry = r.book.read(pair)
		f, d = r.decision(pair, &entry)
	}
	r.keepDetachRequest(&f, d)
	switch d.Action {
	case Attach:
		return r.startAttach(ctx, &f, d)
	case Detach:
		return r.startDetach(ctx, &f, d)
	}
	if d.Converged() && f.Wished && !f.reported {
		r.actual.AddVolumeToReportAsAttached(pair.Volume, pair.Node)
	}
	return r.settle(&f, d)
}

// settle records a decision after which nothing was started, and returns when to look again.
func (r *Reconciler) settle(f *view, d Decision) time.Time {
	changed := r.book.settle(f.Pair, d, f.Now)
	if changed && r.cfg.Observer.Decided != nil {
		r.cfg.Observer.Decided(f.Pair, d)
	}
	until := d.Until
	if again := r.noticeWait(f, d); !again.IsZero() && (until.IsZero() || again.Before(until)) {
		until = again
	}
	return until
}

// keepDetachRequest starts the time of the detach request when the volume is found unwished, and clears it when it is not.
func (r *Reconciler) keepDetachRequest(f *view, d Decision) {
	switch {
	case f.State == cache.Detached:
	case d.Unwished && f.DetachRequested.IsZero():
		// ErrNotAttached means that it was detached meanwhile, which is as good.
		_, _ = r.actual.SetDetachRequestTime(f.Pair.Volume, f.Pair.Node)
	case !d.Unwished && !f.DetachRequested.IsZero():
		r.actual.ResetDetachRequestTime(f.Pair.Volume, f.Pair.Node)
	}
}

// Stats returns what was counted since New.
func (r *Reconciler) Stats() Stats { return r.stats.read(r) }

// Operations returns what the reconciler runs its operations on: to list what is pending or in back-off.
func (r *Reconciler) Operations() *executor.Operations { return r.ops }

// Reports returns the writer of reports; nil without Config.Reports.
func (r *Reconciler) Reports() *nodestatus.Writer { return r.writer }

// NextDue returns when the next pair is looked at, for who drives the reconciler with Step. False means that none waits
// for a time.
func (r *Reconciler) NextDue() (time.Time, bool) { return r.engine.NextDue() }
