package lifecycle

import (
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/stateofworld/stateofworld/lvm"
)

// Action is what a decision asks for.
type Action string

// The actions.
const (
	Wait    Action = "wait"    // nothing to do now
	Create  Action = "create"  // make the logical volume of a claim, and write "created"
	Remove  Action = "remove"  // remove the logical volume of a volume, and write "deleted"
	Report  Action = "report"  // write down why it failed
	Protect Action = "protect" // put the finalizer on a volume
	Release Action = "release" // take the finalizer off a volume whose logical volume is not there
)

// Condition is why a decision was taken.
type Condition string

// The conditions.
const (
	Converged     Condition = "Converged"     // nothing is asked for, or it is done
	NotOurs       Condition = "NotOurs"       // another node, driver, storage class or UID
	Requested     Condition = "Requested"     // to be done now
	BackingOff    Condition = "BackingOff"    // the last attempt failed; the next is at Until
	Refused       Condition = "Refused"       // it can never work; until somebody changes the object
	Terminating   Condition = "Terminating"   // the claim is being deleted: nothing is made for it
	StillBound    Condition = "StillBound"    // the volume is still bound to a claim
	Unprotected   Condition = "Unprotected"   // the volume lacks the finalizer
	Held          Condition = "Held"          // the volume is being deleted and is held by the finalizer
	Elsewhere     Condition = "Elsewhere"     // the logical volume is not here, and the volume's affinity allows other nodes too
	WrongAffinity Condition = "WrongAffinity" // the node affinity of the volume makes no sense
)

// Decision is what to do about one claim or volume now, and why.
type Decision struct {
	Action    Action
	Condition Condition
	// Until is when to decide again if nothing changes before. Zero: no such time.
	Until time.Time
	// Failure is why the last attempt failed, or why none will be made. It is what Report writes.
	Failure Failure
	// LV is the logical volume that is meant, where that is known.
	LV lvm.Name

	spec CreateSpec // Create
}

// decideClaim is one of the two hearts of the package: from what is known of a claim follows what to do. It has no clock, no lock and no side effect.
func decideClaim(c claim, r *rules, a attempt) Decision {
	switch {
	case !r.claimIsOurs(c):
		return Decision{Action: Wait, Condition: NotOurs}
	case c.Lifecycle != Creating:
		return Decision{Action: Wait, Condition: Converged}
	case c.Terminating:
		return Decision{Action: Wait, Condition: Terminating}
	}
	spec, err := ParseCreateSpec(c.Spec)
	if err == nil && !r.allowed(spec.VolumeGroup) {
		err = fmt.Errorf("%w: %q", ErrNotAllowed, spec.VolumeGroup)
	}
	if err != nil {
		a.Failed = failureOf(err, c.UID)
		return refuse(Decision{Condition: Refused}, c.Failure, a)
	}
	return attemptAgain(Decision{Action: Create, LV: spec.LV(), spec: spec}, c.Failure, a)
}

// decideVolume is the other: from what is known of a volume follows what to do.
func decideVolume(v volume, r *rules, a attempt) Decision {
	switch {
	case v.Foreign, v.MarkedNode != "" && v.MarkedNode != r.node.name:
		return Decision{Action: Wait, Condition: NotOurs}
	case v.BadAffinity != "":
		return Decision{Action: Wait, Condition: WrongAffinity, Failure: Failure{Reason: ReasonInvalidSpec, Message: v.BadAffinity, UID: v.UID}}
	case !v.Placement.Here:
		return Decision{Action: Wait, Condition: NotOurs}
	case v.RequestUID != "" && v.RequestUID != v.UID:
		return decideFinalizer(v, r, a)
	case v.Lifecycle == Deleting:
		return decideRemove(v, r, a)
	case v.Lifecycle == Deleted && !v.Finalizer:
		return Decision{Action: Wait, Condition: Converged}
	}
	return decideFinalizer(v, r, a)
}

func decideRemove(v volume, r *rules, a attempt) Decision {
	name, err := lvm.ParseName(v.Spec)
	if err == nil && !r.allowed(name.VG) {
		err = fmt.Errorf("%w: %q", ErrNotAllowed, name.VG)
	}
	if err != nil {
		a.Failed = failureOf(err, v.UID)
		return refuse(Decision{Condition: Refused}, v.Failure, a)
	}
	if v.Bound {
		a.Failed = failureOf(ErrBound, v.UID)
		return refuse(Decision{Condition: StillBound, LV: name}, v.Failure, a)
	}
	if a.Absent && !v.pinned(r) {
		return Decision{Action: Wait, Condition: Elsewhere, LV: name}
	}
	return attemptAgain(Decision{Action: Remove, LV: name}, v.Failure, a)
}

// pinned reports whether the logical volume of the volume can be on no other node, so that its absence here is its end.
func (v volume) pinned(r *rules) bool { return v.Placement.Pinned || v.MarkedNode == r.node.name }

// decideFinalizer: nothing is to be removed. A volume that is being deleted keeps the finalizer for as long as its logical volume is there.
func decideFinalizer(v volume, r *rules, a attempt) Decision {
	if r.finalizer == "" {
		return Decision{Action: Wait, Condition: Converged}
	}
	var d Decision
	switch {
	case v.Finalizer && (v.Terminating || v.Lifecycle == Deleted):
		d = Decision{Action: Release, Condition: Held, LV: v.held()}
	case !v.Finalizer && !v.Terminating:
		d = Decision{Action: Protect, Condition: Unprotected}
	default:
		return Decision{Action: Wait, Condition: Converged}
	}
	d.Failure = a.Failed
	switch {
	case d.Action == Release && (d.LV.Validate() != nil || !v.pinned(r)): // whether it is gone cannot be known
		d.Action = Wait
	case a.Until.After(a.Now):
		d.Action, d.Until = Wait, a.Until
	}
	return d
}

// held is the logical volume that the finalizer stands for.
func (v volume) held() lvm.Name {
	if name, err := lvm.ParseName(v.Spec); err == nil {
		return name
	}
	return v.Source
}

// refuse: it can never work. That is written down once, and then it waits for somebody to change the object.
func refuse(d Decision, reported string, a attempt) Decision {
	d.Action, d.Failure = Wait, a.Failed
	if reported != a.Failed.Encode() {
		return report(d, a)
	}
	return d
}

// attemptAgain: it is to be done, after the last failure is written down and the back-off is over.
func attemptAgain(d Decision, reported string, a attempt) Decision {
	d.Condition, d.Failure = Requested, a.Failed
	if a.Failed.Reason != "" && reported != a.Failed.Encode() && !a.Unreported.After(a.Now) {
		d.Action, d.Condition = Report, BackingOff
		return d
	}
	if a.Until.After(a.Now) {
		d.Action, d.Condition, d.Until = Wait, BackingOff, a.Until
		if a.Unreported.After(a.Now) && a.Unreported.Before(d.Until) {
			d.Until = a.Unreported
		}
	}
	return d
}

func report(d Decision, a attempt) Decision {
	if a.Unreported.After(a.Now) {
		d.Until = a.Unreported
		return d
	}
	d.Action = Report
	return d
}

func (r *rules) claimIsOurs(c claim) bool {
	return c.Node == r.node.name &&
		(c.Driver == "" || slices.Contains(r.drivers, c.Driver)) &&
		(len(r.storageClasses) == 0 || slices.Contains(r.storageClasses, c.Class)) &&
		(c.RequestUID == "" || c.RequestUID == c.UID)
}

func (r *rules) allowed(vg string) bool {
	return len(r.volumeGroups) == 0 || slices.Contains(r.volumeGroups, vg)
}

// wants reports whether the claim still asks this node for that logical volume: the question that is asked again after it is made.
func (r *rules) wants(c claim, uid types.UID, spec CreateSpec) bool {
	d := decideClaim(c, r, attempt{})
	return c.UID == uid && d.Action == Create && d.spec.Equal(spec)
}
