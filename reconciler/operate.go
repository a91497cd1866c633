package reconciler

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/stateofworld/stateofworld/cache"
	"github.com/stateofworld/stateofworld/executor"
)

// errChanged stops an operation that was decided on facts that are not true any more.
var errChanged = errors.New("the attachment changed since the decision")

// refusedError is why a detach was not started.
type refusedError struct {
	reason Reason
	err    error
}

func (e *refusedError) Error() string { return e.err.Error() }
func (e *refusedError) Unwrap() error { return e.err }

func refuse(reason Reason, format string, args ...any) error {
	return &refusedError{reason: reason, err: fmt.Errorf(format, args...)}
}

// startAttach calls the driver's Attach in an operation of its own.
func (r *Reconciler) startAttach(ctx context.Context, f *view, d Decision) time.Time {
	pair, since := f.Pair, f.WishedSince
	exclusive, epoch, volumeEpoch := f.Exclusive, f.attached.Epoch, f.volumeEpoch
	r.begin(f, d, executor.OpAttach, Attaching)
	err := r.exec.AttachVolume(ctx, executor.AttachRequest{
		Volume: cache.VolumeToAttach{
			VolumeName: pair.Volume, NodeName: pair.Node, VolumeSpec: f.spec,
			ScheduledPods: r.desired.GetVolumePodsOnNodes([]types.NodeName{pair.Node}, pair.Volume),
		},
		Exclusive: exclusive,
		Check: func() error {
			// Exclusive: any change of any attachment of the volume: it must not have been attached elsewhere meanwhile.
			if exclusive && r.actual.VolumeEpoch(pair.Volume) != volumeEpoch || !exclusive && r.actual.Epoch(pair.Volume, pair.Node) != epoch {
				return errChanged
			}
			return nil
		},
		Done: func(ev executor.Event) { r.finished(pair, ev, since, reasonUnset) },
	})
	return r.started(f, err, AttachBackoff)
}

// startDetach begins the fixed order of a detach: out of the report, report written, live check, driver.
func (r *Reconciler) startDetach(ctx context.Context, f *view, d Decision) time.Time {
	pair, epoch, reason, since := f.Pair, f.attached.Epoch, d.Reason, d.Since
	r.begin(f, d, executor.OpDetach, Detaching)
	request := executor.DetachRequest{
		Volume: f.attached,
		Check: func() error {
			if r.actual.Epoch(pair.Volume, pair.Node) != epoch || r.desired.VolumeExists(pair.Volume, pair.Node) {
				return errChanged
			}
			return nil
		},
		Withdraw: func(ctx context.Context) error { return r.withdraw(ctx, pair) },
		Confirm:  func(ctx context.Context) error { return r.confirm(ctx, pair, reason) },
		Restore:  func() { r.actual.AddVolumeToReportAsAttached(pair.Volume, pair.Node) },
		Done: func(ev executor.Event) {
			if !d.Forced() {
				reason = reasonUnset
			}
			r.finished(pair, ev, since, reason)
		},
	}
	return r.started(f, r.exec.DetachVolume(ctx, request), DetachBackoff)
}

// begin notes the operation before it starts: it may have finished before the executor returns.
func (r *Reconciler) begin(f *view, d Decision, operation string, reason Reason) {
	r.book.begin(f.Pair, operation, reason, f.Now)
	if r.cfg.Observer.Decided != nil {
		r.cfg.Observer.Decided(f.Pair, d)
	}
}

// started looks at what the executor answered to the start of an operation, and returns when to look at the pair again.
func (r *Reconciler) started(f *view, err error, backoff Reason) time.Time {
	if err == nil {
		// Let it begin: when very many are due, operations that nobody runs yet would pile up, and then all want to write
		// down their outcomes at once.
		runtime.Gosched()
		return time.Time{} // its end makes the pair due
	}
	r.book.end(f.Pair, nil)
	r.wakeWaiting(f.Pair.Volume) // whoever met our reservation meanwhile
	var inBackoff *executor.BackoffError
	var exists *executor.AlreadyExistsError
	d := Decision{Action: Wait, Reason: Refused, Since: f.Now, Until: f.Now.Add(r.cfg.RefusedRetry), LastErr: err, Unwished: !f.Wished}
	switch {
	case errors.Is(err, errChanged):
		return f.Now
	case errors.Is(err, executor.ErrShutdown):
		return time.Time{}
	case errors.As(err, &inBackoff):
		d.Reason, d.Until, d.Attempts, d.LastErr = backoff, inBackoff.Until, inBackoff.Attempts, inBackoff.LastErr
	case errors.As(err, &exists):
		d.Reason, d.LastErr, d.Blocker = OperationElsewhere, nil, exists.Pending.Node
		if r.book.wait(f.Pair); !r.ops.IsOperationPending(exists.Key) {
			return f.Now // it ended before this pair could be woken by its end
		}
	}
	return r.settle(f, d)
}

// withdraw takes the volume out of its node's report and waits until that is written.
func (r *Reconciler) withdraw(ctx context.Context, pair cache.Pair) error {
	if err := r.actual.RemoveVolumeFromReportAsAttached(pair.Volume, pair.Node); err != nil {
		return refuse(ReportNotWritten, "take volume %q out of the report of node %q: %w", pair.Volume, pair.Node, err)
	}
	version := r.actual.ReportVersion(pair.Node)
	if r.writer == nil || r.book.isWithdrawn(pair, version) {
		return nil // T3, kubernetes/kubernetes#88565: the next try of a detach has nothing new to write
	}
	if err := r.writer.Flush(ctx, pair.Node, version); err != nil {
		return refuse(ReportNotWritten, "write the report of node %q without volume %q: %w", pair.Node, pair.Volume, err)
	}
	r.book.setWithdrawn(pair, version)
	return nil
}

// confirm asks for fresh evidence right before the driver is called. Without a hook for live checks the worlds are read
// once more.
func (r *Reconciler) confirm(ctx context.Context, pair cache.Pair, reason Reason) error {
	if reason == NotWished {
		return r.confirmNotInUse(ctx, pair)
	}
	health := r.actual.GetNodeFacts(pair.Node).NodeHealth
	health.Deleted = health.Deleted || !r.desired.NodeExists(pair.Node)
	if live := r.cfg.LiveChecks; live != nil {
		var err error
		if health, err = live.NodeHealth(ctx, pair.Node); err != nil {
			return refuse(ForceNotConfirmed, "confirm %s of node %q: %w", reason, pair.Node, err)
		}
	}
	confirmed := false
	switch reason {
	case ForceTimeout:
		confirmed = knownNotReady(health) || health.Deleted
	case ForceOutOfService:
		confirmed = health.OutOfService
	case ForceNodeDeleted:
		confirmed = health.Deleted
	}
	if !confirmed {
		return refuse(ForceNotConfirmed, "%s does not hold for node %q any more: ready %q, out of service %t, deleted %t",
			reason, pair.Node, health.Ready, health.OutOfService, health.Deleted)
	}
	return nil
}

func (r *Reconciler) confirmNotInUse(ctx context.Context, pair cache.Pair) error {
	if av, ok := r.actual.GetAttachedVolume(pair.Volume, pair.Node); ok && av.InUse == cache.Mounted {
		return refuse(InUse, "volume %q is in use on node %q", pair.Volume, pair.Node)
	}
	if r.cfg.LiveChecks == nil {
		return nil
	}
	inUse, err := r.cfg.LiveChecks.VolumeInUse(ctx, pair.Volume, pair.Node)
	if err != nil {
		return refuse(InUseLive, "ask whether volume %q is in use on node %q: %w", pair.Volume, pair.Node, err)
	}
	if inUse {
		return refuse(InUseLive, "volume %q is in use on node %q, says the live check", pair.Volume, pair.Node)
	}
	return nil
}

// finished is called when an operation has ended, the actual world is updated and the key is free.
func (r *Reconciler) finished(pair cache.Pair, ev executor.Event, since time.Time, forced Reason) {
	now := r.cfg.Clock.Now()
	var refusal *Refusal
	if ev.Outcome == executor.Refused {
		refusal = &Refusal{Reason: Refused, Err: ev.Err, Until: now.Add(r.cfg.RefusedRetry)}
		var refused *refusedError
		if errors.As(ev.Err, &refused) {
			refusal.Reason, refusal.Err = refused.reason, refused.err
		}
	} else if forced != reasonUnset && r.book.countForced(pair, forced) {
		r.stats.forced[forced].Add(1)
		r.noticeForced(pair, forced)
	}
	r.noticeFailure(pair, ev)
	r.book.end(pair, refusal)
	if r.cfg.Observer.Finished != nil {
		r.cfg.Observer.Finished(ev, now.Sub(since))
	}
	r.engine.Add(pair)
	r.wakeWaiting(pair.Volume)
}
