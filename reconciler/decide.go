package reconciler

import (
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/stateofworld/stateofworld/cache"
	"github.com/stateofworld/stateofworld/executor"
)

// Facts is everything that a decision about one (volume, node) depends on. It is a value: who has the same facts gets
// the same decision.
type Facts struct {
	Now  time.Time
	Pair cache.Pair

	// Synced: the caller said that the desired world is complete.
	Synced bool
	// LiveChecks: there is a hook that answers live, so that unknown may go to it.
	LiveChecks bool

	// What is wished.
	Wished      bool
	WishedSince time.Time
	Exclusive   bool           // the volume may be attached to one node only, as long as its current users use it
	NodeExists  bool           // the node is known and not deleted
	OlderWish   types.NodeName // Exclusive: the node of the oldest wish that can be fulfilled, if that is another node
	Unresolved  int            // pods on the node whose volumes are not known
	Foreign     bool           // no plugin is registered for the volume's name

	// What is.
	State           cache.AttachState
	StateSince      time.Time
	InUse           cache.InUse
	DetachRequested time.Time // when the volume was first seen to be unwished; zero: not yet
	Node            cache.NodeFacts
	Elsewhere       Elsewhere // Exclusive: where else it is Attached or Uncertain

	// What is being done, and what failed.
	Pending        executor.Info  // the operation in flight for this pair; its Name is empty if there is none
	PendingOn      types.NodeName // Exclusive: another node for which an operation on the volume is in flight
	AttachFailures executor.Info  // back-off of attach; Attempts is zero if there is none
	DetachFailures executor.Info
	Refusal        Refusal // why the last detach was not started
}

// Elsewhere is an attachment of an exclusive volume to another node.
type Elsewhere struct {
	Node           types.NodeName // empty: there is none
	State          cache.AttachState
	Since          time.Time
	DetachAttempts int // failed tries to detach it in a row
	LastErr        error
}

// Refusal is why an operation that was decided on was not started after all: nothing was changed, and it is looked at
// again at Until.
type Refusal struct {
	Reason Reason
	Err    error
	Until  time.Time
}

// Action is what a decision asks for.
type Action int

// The actions.
const (
	Wait   Action = iota // nothing to do now
	Attach               // call the driver's Attach
	Detach               // take it out of the report, have that written, check live, call the driver's Detach
)

func (a Action) String() string {
	switch a {
	case Wait:
		return "wait"
	case Attach:
		return "attach"
	case Detach:
		return "detach"
	}
	return "unknown action"
}

// Decision is what to do about one (volume, node) now, and why.
type Decision struct {
	Action Action
	Reason Reason
	// Since is when the fact behind the reason began, where that is known.
	Since time.Time
	// Until is when to decide again if nothing changes before; always in the future of Facts.Now. Zero: no such time.
	Until time.Time
	// Blocker is the other node that the reason names, if it names one.
	Blocker types.NodeName
	// Attempts and LastErr tell of failed tries, of the operation that the reason is about.
	Attempts int
	LastErr  error
	// Unwished: the time of the detach request runs. Otherwise it is cleared.
	Unwished bool
}

// Converged reports whether the pair is as it is wished to be.
func (d Decision) Converged() bool { return d.Reason == Converged }

// Forced reports whether the decision is to detach a volume that is in use, or may be.
func (d Decision) Forced() bool { return d.Action == Detach && d.Reason != NotWished }

// decide is the heart of the package: one table of facts and outcomes. It has no clock, no lock and no side effect; the
// hooks of the policy must not have any either.
func decide(f *Facts, p *Policy) Decision {
	switch {
	case f.Wished && f.State == cache.Attached, !f.Wished && f.State == cache.Detached:
		if f.Pending.Name == "" {
			return Decision{Action: Wait, Reason: Converged, Since: f.StateSince}
		}
		return decidePending(f)
	case f.Wished:
		return decideAttach(f, p)
	default:
		return decideDetach(f, p)
	}
}

// decidePending: an operation is in flight, and its end is what wakes the pair.
func decidePending(f *Facts) Decision {
	d := Decision{
		Action: Wait, Since: f.Pending.Started, Attempts: f.Pending.Attempts, LastErr: f.Pending.LastErr,
		Unwished: !f.Wished && f.State != cache.Detached && f.Synced && f.Unresolved == 0,
	}
	switch {
	case f.Pending.Phase == executor.Overdue:
		d.Reason = OperationOverdue
	case f.Pending.Phase == executor.Queued:
		d.Reason = OperationQueued
	case f.Pending.Name == executor.OpAttach:
		d.Reason = Attaching
	case f.Pending.Phase == executor.Preparing:
		d.Reason = WritingReport
	default:
		d.Reason = Detaching
	}
	return d
}

// decideAttach: the volume is wished on the node and is not known to be attached there.
func decideAttach(f *Facts, p *Policy) Decision {
	wait := func(r Reason, since time.Time) Decision { return Decision{Action: Wait, Reason: r, Since: since} }
	if f.Pending.Name != "" {
		return decidePending(f)
	}
	if !f.NodeExists {
		return wait(NodeDeleted, f.WishedSince)
	}
	if f.Exclusive {
		if !f.Synced {
			// An older wish, or an attachment elsewhere, may not have been heard of yet.
			return wait(NotSynced, f.WishedSince)
		}
		if e := f.Elsewhere; e.Node != "" && !mayAttachBeside(f, p) {
			d := wait(AttachedElsewhere, e.Since)
			if e.State == cache.Uncertain {
				d.Reason = UncertainElsewhere
			}
			d.Blocker, d.Attempts, d.LastErr = e.Node, e.DetachAttempts, e.LastErr
			return d
		}
		if f.OlderWish != "" {
			d := wait(OlderWish, f.WishedSince)
			d.Blocker = f.OlderWish
			return d
		}
	}
	if f.PendingOn != "" {
		d := wait(OperationElsewhere, f.WishedSince)
		d.Blocker = f.PendingOn
		return d
	}
	if r := f.Refusal; r.Reason == Refused && r.Until.After(f.Now) {
		return Decision{Action: Wait, Reason: Refused, Since: f.WishedSince, Until: r.Until, LastErr: r.Err}
	}
	if b := f.AttachFailures; b.NextTry.After(f.Now) {
		return Decision{Action: Wait, Reason: AttachBackoff, Since: b.LastFailed, Until: b.NextTry, Attempts: b.Attempts, LastErr: b.LastErr}
	}
	return Decision{Action: Attach, Reason: Wished, Since: f.WishedSince, Attempts: f.AttachFailures.Attempts, LastErr: f.AttachFailures.LastErr}
}

// mayAttachBeside asks the policy whether an exclusive volume may be attached although it is perhaps attached elsewhere:
// only while that is uncertain, and only after a detach there was tried and failed.
func mayAttachBeside(f *Facts, p *Policy) bool {
	return f.Elsewhere.State == cache.Uncertain && f.Elsewhere.DetachAttempts > 0 &&
		p.AttachWhileUncertain != nil && p.AttachWhileUncertain(f.Pair.Volume, f.Elsewhere.Node, f.Pair.Node)
}

// decideDetach: the volume is attached to the node, or may be, and is not wished there.
func decideDetach(f *Facts, p *Policy) Decision {
	if f.Pending.Name != "" {
		return decidePending(f)
	}
	if !f.Synced {
		return Decision{Action: Wait, Reason: NotSynced, Since: f.StateSince}
	}
	if f.Unresolved > 0 {
		return Decision{Action: Wait, Reason: NodeUnresolved, Since: f.StateSince}
	}
	if f.Foreign {
		return Decision{Action: Wait, Reason: PluginMissing, Since: f.StateSince}
	}
	requested := f.DetachRequested
	if requested.IsZero() {
		requested = f.Now
	}
	d := decideUse(f, p, requested)
	d.Unwished = true
	if d.Action == Wait {
		return d
	}
	// The detach is due. It may have failed or been refused a moment ago.
	d.Attempts, d.LastErr = f.DetachFailures.Attempts, f.DetachFailures.LastErr
	if b := f.DetachFailures; b.NextTry.After(f.Now) {
		return Decision{
			Action: Wait, Reason: DetachBackoff, Since: b.LastFailed, Until: b.NextTry,
			Attempts: b.Attempts, LastErr: b.LastErr, Unwished: true,
		}
	}
	// That the live check found it in use, decideUse has weighed already.
	if r := f.Refusal; r.Reason != InUseLive && r.Until.After(f.Now) {
		return Decision{
			Action: Wait, Reason: r.Reason, Since: requested, Until: r.Until,
			Attempts: d.Attempts, LastErr: r.Err, Unwished: true,
		}
	}
	return d
}

// decideUse: is the volume free to be detached, and if not, is there a reason to force it?
func decideUse(f *Facts, p *Policy, requested time.Time) Decision {
	detach := func(r Reason) Decision { return Decision{Action: Detach, Reason: r, Since: requested} }
	wait := func(r Reason) Decision { return Decision{Action: Wait, Reason: r, Since: requested} }
	inUseLive := f.Refusal.Reason == InUseLive && f.Refusal.Until.After(f.Now)
	// forceAfter forces with reason r once the policy's wait is over, and waits with reason w until then.
	forceAfter := func(w, r Reason, from time.Time) Decision {
		due, ok := p.forceDue(f.Pair, from)
		switch {
		case !ok:
			return wait(ForceDisabled)
		case due.After(f.Now):
			d := wait(w)
			d.Until = due
			if inUseLive && f.Refusal.Until.Before(due) {
				d.Until = f.Refusal.Until // the live check may find it free before
			}
			return d
		default:
			return detach(r)
		}
	}

	deleted := !f.NodeExists || f.Node.Deleted
	unknownGoesLive := f.InUse == cache.InUseUnknown && f.LiveChecks && !deleted
	if (f.InUse == cache.NotInUse || unknownGoesLive) && !inUseLive {
		return detach(NotWished)
	}
	switch {
	case f.Node.OutOfService:
		return detach(ForceOutOfService)
	case deleted:
		switch p.DeletedNodes {
		case DetachImmediately:
			return detach(ForceNodeDeleted)
		case NeverDetach:
			return wait(InUseOnDeletedNode)
		default:
			from := requested
			if f.Node.Deleted && f.Node.Since.After(from) {
				from = f.Node.Since
			}
			return forceAfter(InUseOnDeletedNode, ForceNodeDeleted, from)
		}
	case knownNotReady(f.Node.NodeHealth):
		if p.DisableForceOnTimeout {
			return wait(ForceDisabled)
		}
		return forceAfter(UnmountTimeout, ForceTimeout, requested)
	case inUseLive:
		d := wait(InUseLive)
		d.Until, d.LastErr = f.Refusal.Until, f.Refusal.Err
		return d
	default:
		return wait(InUse)
	}
}

// knownNotReady: False or Unknown is what the node controller says of a node that it has lost. Nothing said is not that.
func knownNotReady(h cache.NodeHealth) bool {
	return h.Ready == v1.ConditionFalse || h.Ready == v1.ConditionUnknown
}
