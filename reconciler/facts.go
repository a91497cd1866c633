package reconciler

import (
	"fmt"
	"time"

	"github.com/stateofworld/stateofworld/cache"
	"github.com/stateofworld/stateofworld/executor"
)

// view is the facts plus what acting on them needs: which state of the actual world they were read from.
type view struct {
	Facts
	spec        *cache.VolumeSpec // of the wish
	attached    cache.AttachedVolume
	reported    bool
	volumeEpoch uint64
}

// decision reads the facts of a pair and decides. The entry was read from the book before.
func (r *Reconciler) decision(pair cache.Pair, entry *reading) (f view, d Decision) {
	r.readFacts(&f, pair, entry)
	defer func() {
		// The policy's hooks are the only foreign code in here.
		if v := recover(); v != nil {
			r.stats.policyPanics.Add(1)
			d = Decision{
				Action: Wait, Reason: PolicyPanicked, Since: f.Now, Until: f.Now.Add(policyPanicRetry),
				LastErr: fmt.Errorf("policy panicked: %v", v), Unwished: !f.Wished,
			}
		}
	}()
	return f, decide(&f.Facts, &r.cfg.Policy)
}

// policyPanicRetry is when a pair is decided on again after the policy panicked.
const policyPanicRetry = time.Minute

// readFacts reads in the order that makes a race harmless: first what is in flight, then the epochs, then the states.
// An operation that finishes in between makes the facts stale, and its end makes the pair due again; one that is started
// on stale facts is stopped by the comparison of epochs when its key is reserved.
func (r *Reconciler) readFacts(f *view, pair cache.Pair, entry *reading) {
	f.Pair, f.Now, f.Synced, f.LiveChecks = pair, r.cfg.Clock.Now(), r.synced.Load(), r.cfg.LiveChecks != nil
	f.Refusal = entry.refusal

	wish, wished := r.desired.GetWish(pair.Volume, pair.Node)
	f.Wished = wished
	if wished {
		f.WishedSince, f.Exclusive, f.spec = wish.Since, wish.Exclusive, wish.VolumeSpec
		f.NodeExists, f.Unresolved = !wish.NodeDeleted, wish.NodeUnresolved
	}

	if f.volumeEpoch = r.actual.VolumeEpoch(pair.Volume); f.volumeEpoch != 0 {
		f.attached, _ = r.actual.GetAttachedVolume(pair.Volume, pair.Node)
	}
	f.State, f.StateSince, f.InUse = f.attached.State, f.attached.Since, f.attached.InUse
	f.DetachRequested, f.reported = f.attached.DetachRequestedTime, f.attached.Reported

	if entry.inFlight != "" {
		f.Pending = r.pendingInfo(pair, entry.inFlight)
	}
	switch {
	case wished && f.State != cache.Attached:
		f.AttachFailures, _ = r.ops.Failures(operationKey(pair), executor.OpAttach)
		if f.Exclusive {
			r.readElsewhere(f, wish)
		}
	case !wished && f.State != cache.Detached:
		f.NodeExists, f.Unresolved = r.desired.NodeExists(pair.Node), r.desired.NodeUnresolved(pair.Node)
		f.Node = r.actual.GetNodeFacts(pair.Node)
		f.Foreign = !r.actual.HasPlugin(pair.Volume)
		f.DetachFailures, _ = r.ops.Failures(operationKey(pair), executor.OpDetach)
	}
}

// readElsewhere finds what keeps an exclusive volume from being attached: its other attachments, an older wish, an
// operation for another node.
func (r *Reconciler) readElsewhere(f *view, own cache.Wish) {
	// Only what this reconciler started wakes the pair at its end.
	if op, ok := r.ops.Pending(executor.Key{Volume: f.Pair.Volume}); ok && op.Node != f.Pair.Node && (op.Name == executor.OpAttach || op.Name == executor.OpDetach) {
		f.PendingOn = op.Node
	}
	if f.volumeEpoch != 0 {
		var buf [4]cache.AttachedVolume
		for _, av := range r.actual.AppendAttachments(buf[:0], f.Pair.Volume) {
			// The first Attached node is named, else the first Uncertain one: they come sorted.
			if av.NodeName == f.Pair.Node || (f.Elsewhere.Node != "" && av.State <= f.Elsewhere.State) {
				continue
			}
			f.Elsewhere = Elsewhere{Node: av.NodeName, State: av.State, Since: av.Since}
		}
		if f.Elsewhere.Node != "" {
			failures, _ := r.ops.Failures(operationKey(cache.Pair{Volume: f.Pair.Volume, Node: f.Elsewhere.Node}), executor.OpDetach)
			f.Elsewhere.DetachAttempts, f.Elsewhere.LastErr = failures.Attempts, failures.LastErr
		}
	}
	if f.State == cache.Detached {
		// Where it is Uncertain on this very node, this node goes first whatever its age: the others wait for it anyway.
		var buf [4]cache.Wish
		for _, w := range r.desired.AppendWishes(buf[:0], f.Pair.Volume) {
			if !w.NodeDeleted {
				if w.Order < own.Order {
					f.OlderWish = w.NodeName
				}
				break
			}
		}
	}
}

// operationKey names the operations of a pair: their back-off is per volume and node.
func operationKey(pair cache.Pair) executor.Key {
	return executor.Key{Volume: pair.Volume, Node: pair.Node}
}

// pendingInfo describes the operation in flight for a pair.
func (r *Reconciler) pendingInfo(pair cache.Pair, name string) executor.Info {
	info, ok := r.ops.Pending(operationKey(pair))
	if !ok || info.Name != name {
		// Between the reservation and the start, or between the end and our note of it.
		info = executor.Info{Key: operationKey(pair), Name: name, Phase: executor.Preparing, Started: r.cfg.Clock.Now()}
	}
	return info
}
