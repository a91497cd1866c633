package reconciler

import (
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/stateofworld/stateofworld/cache"
	"github.com/stateofworld/stateofworld/executor"
)

var (
	t0      = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	errBusy = errors.New("busy")
)

// wishedFacts: an exclusive volume, wished on a healthy node, attached nowhere.
func wishedFacts(change func(*Facts)) Facts {
	f := Facts{
		Now: t0.Add(time.Hour), Pair: cache.Pair{Volume: "vol", Node: "a"}, Synced: true, NodeExists: true,
		Wished: true, WishedSince: t0, Exclusive: true,
	}
	change(&f)
	return f
}

// unwishedFacts: a volume that was attached to a healthy node, is not wished there and not in use.
func unwishedFacts(change func(*Facts)) Facts {
	f := Facts{
		Now: t0.Add(time.Hour), Pair: cache.Pair{Volume: "vol", Node: "a"}, Synced: true, NodeExists: true,
		State: cache.Attached, StateSince: t0, InUse: cache.NotInUse, Node: cache.NodeFacts{NodeHealth: cache.NodeHealth{Ready: v1.ConditionTrue}},
	}
	change(&f)
	return f
}

func notReady(f *Facts) {
	f.InUse, f.Node.Ready = cache.Mounted, v1.ConditionUnknown
	f.DetachRequested = f.Now.Add(-time.Minute)
}

func deletedNode(f *Facts) {
	f.InUse, f.NodeExists = cache.InUseUnknown, false
	f.Node = cache.NodeFacts{NodeHealth: cache.NodeHealth{Deleted: true}, Since: f.Now.Add(-2 * time.Minute)}
	f.DetachRequested = f.Now.Add(-4 * time.Minute)
}

func pending(op string, phase executor.Phase) executor.Info {
	return executor.Info{Name: op, Phase: phase, Started: t0}
}

func failed(f *Facts, next time.Duration) executor.Info {
	return executor.Info{Attempts: 3, LastErr: errBusy, LastFailed: t0, NextTry: f.Now.Add(next)}
}

// The table covers every reason and every action; TestTableCoversEveryReason sees to it.
var decideTable = []struct {
	name   string
	facts  Facts
	policy Policy
	want   Decision
}{
	// As wished.
	{"wished and attached", wishedFacts(func(f *Facts) { f.State = cache.Attached; f.StateSince = t0 }), Policy{}, Decision{Reason: Converged, Since: t0}},
	{"neither wished nor attached", unwishedFacts(func(f *Facts) { f.State = cache.Detached; f.StateSince = time.Time{} }), Policy{}, Decision{Reason: Converged}},

	// Attach.
	{"wished, attached nowhere", wishedFacts(func(*Facts) {}), Policy{}, Decision{Action: Attach, Reason: Wished, Since: t0}},
	{"wished, uncertain on this node", wishedFacts(func(f *Facts) { f.State = cache.Uncertain }), Policy{}, Decision{Action: Attach, Reason: Wished, Since: t0}},
	{"wished, back-off is over", wishedFacts(func(f *Facts) { f.AttachFailures = failed(f, 0) }), Policy{}, Decision{Action: Attach, Reason: Wished, Since: t0, Attempts: 3, LastErr: errBusy}},
	{"wished, in back-off", wishedFacts(func(f *Facts) { f.AttachFailures = failed(f, time.Second) }), Policy{}, Decision{Reason: AttachBackoff, Since: t0, Until: t0.Add(time.Hour + time.Second), Attempts: 3, LastErr: errBusy}},
	{"wished, refused a moment ago", wishedFacts(func(f *Facts) {
		f.Refusal = Refusal{Reason: Refused, Err: errBusy, Until: f.Now.Add(time.Second)}
	}), Policy{}, Decision{Reason: Refused, Since: t0, Until: t0.Add(time.Hour + time.Second), LastErr: errBusy}},
	{"wished on a deleted node", wishedFacts(func(f *Facts) { f.NodeExists = false }), Policy{}, Decision{Reason: NodeDeleted, Since: t0}},
	{"wished, exclusive, before the sync", wishedFacts(func(f *Facts) { f.Synced = false }), Policy{}, Decision{Reason: NotSynced, Since: t0}},
	{"wished, shared, before the sync", wishedFacts(func(f *Facts) { f.Synced, f.Exclusive = false, false }), Policy{}, Decision{Action: Attach, Reason: Wished, Since: t0}},
	{"wished, attached elsewhere", wishedFacts(func(f *Facts) { f.Elsewhere = Elsewhere{Node: "b", State: cache.Attached, Since: t0} }), Policy{}, Decision{Reason: AttachedElsewhere, Since: t0, Blocker: "b"}},
	{"wished, uncertain elsewhere", wishedFacts(func(f *Facts) {
		f.Elsewhere = Elsewhere{Node: "b", State: cache.Uncertain, Since: t0, DetachAttempts: 2, LastErr: errBusy}
	}), Policy{}, Decision{Reason: UncertainElsewhere, Since: t0, Blocker: "b", Attempts: 2, LastErr: errBusy}},
	{"wished, uncertain elsewhere, the policy allows, a detach has failed", wishedFacts(func(f *Facts) {
		f.Elsewhere = Elsewhere{Node: "b", State: cache.Uncertain, DetachAttempts: 1}
	}), allowUncertain, Decision{Action: Attach, Reason: Wished, Since: t0}},
	{"wished, uncertain elsewhere, the policy allows, no detach was tried", wishedFacts(func(f *Facts) {
		f.Elsewhere = Elsewhere{Node: "b", State: cache.Uncertain, Since: t0}
	}), allowUncertain, Decision{Reason: UncertainElsewhere, Since: t0, Blocker: "b"}},
	{"wished, attached elsewhere, whatever the policy allows", wishedFacts(func(f *Facts) {
		f.Elsewhere = Elsewhere{Node: "b", State: cache.Attached, Since: t0, DetachAttempts: 1}
	}), allowUncertain, Decision{Reason: AttachedElsewhere, Since: t0, Blocker: "b", Attempts: 1}},
	{"wished, an older wish goes first", wishedFacts(func(f *Facts) { f.OlderWish = "b" }), Policy{}, Decision{Reason: OlderWish, Since: t0, Blocker: "b"}},
	{"wished, being attached elsewhere", wishedFacts(func(f *Facts) { f.PendingOn = "b" }), Policy{}, Decision{Reason: OperationElsewhere, Since: t0, Blocker: "b"}},

	// Operations in flight.
	{"attaching", wishedFacts(func(f *Facts) { f.Pending = pending(executor.OpAttach, executor.Running) }), Policy{}, Decision{Reason: Attaching, Since: t0}},
	{"attach waits for a slot", wishedFacts(func(f *Facts) { f.Pending = pending(executor.OpAttach, executor.Queued) }), Policy{}, Decision{Reason: OperationQueued, Since: t0}},
	{"attach is past its deadline", wishedFacts(func(f *Facts) { f.Pending = pending(executor.OpAttach, executor.Overdue) }), Policy{}, Decision{Reason: OperationOverdue, Since: t0}},
	{"detaching while wished again", wishedFacts(func(f *Facts) {
		f.State, f.Pending = cache.Attached, pending(executor.OpDetach, executor.Running)
	}), Policy{}, Decision{Reason: Detaching, Since: t0}},
	{"the report is being written", unwishedFacts(func(f *Facts) { f.Pending = pending(executor.OpDetach, executor.Preparing) }), Policy{}, Decision{Reason: WritingReport, Since: t0, Unwished: true}},
	{"attaching what is not wished any more", unwishedFacts(func(f *Facts) {
		f.State, f.Pending = cache.Detached, pending(executor.OpAttach, executor.Running)
	}), Policy{}, Decision{Reason: Attaching, Since: t0}},

	// Detach.
	{"free", unwishedFacts(func(*Facts) {}), Policy{}, Decision{Action: Detach, Reason: NotWished, Since: t0.Add(time.Hour), Unwished: true}},
	{"uncertain and free", unwishedFacts(func(f *Facts) { f.State = cache.Uncertain }), Policy{}, Decision{Action: Detach, Reason: NotWished, Since: t0.Add(time.Hour), Unwished: true}},
	{"free, before the sync", unwishedFacts(func(f *Facts) { f.Synced = false }), Policy{}, Decision{Reason: NotSynced, Since: t0}},
	{"free, the node has unresolved pods", unwishedFacts(func(f *Facts) { f.Unresolved = 1 }), Policy{}, Decision{Reason: NodeUnresolved, Since: t0}},
	{"free, but of a plugin that is not registered", unwishedFacts(func(f *Facts) { f.Foreign = true }), Policy{}, Decision{Reason: PluginMissing, Since: t0}},
	{"nobody knows whether it is in use", unwishedFacts(func(f *Facts) { f.InUse = cache.InUseUnknown }), Policy{}, Decision{Reason: InUse, Since: t0.Add(time.Hour), Unwished: true}},
	{"unknown goes to the live check", unwishedFacts(func(f *Facts) { f.InUse, f.LiveChecks = cache.InUseUnknown, true }), Policy{}, Decision{Action: Detach, Reason: NotWished, Since: t0.Add(time.Hour), Unwished: true}},
	{"in use on a healthy node, however long", unwishedFacts(func(f *Facts) {
		f.InUse, f.DetachRequested = cache.Mounted, f.Now.Add(-24*time.Hour)
	}), Policy{}, Decision{Reason: InUse, Since: t0.Add(-23 * time.Hour), Unwished: true}},
	{"in use on a node of which nothing is known", unwishedFacts(func(f *Facts) {
		f.InUse, f.DetachRequested, f.Node = cache.Mounted, f.Now.Add(-24*time.Hour), cache.NodeFacts{}
	}), Policy{}, Decision{Reason: InUse, Since: t0.Add(-23 * time.Hour), Unwished: true}},
	{"the live check found it in use", unwishedFacts(func(f *Facts) {
		f.Refusal = Refusal{Reason: InUseLive, Err: errBusy, Until: f.Now.Add(time.Second)}
	}), Policy{}, Decision{Reason: InUseLive, Since: t0.Add(time.Hour), Until: t0.Add(time.Hour + time.Second), LastErr: errBusy, Unwished: true}},
	{"the live check found it in use a while ago", unwishedFacts(func(f *Facts) {
		f.Refusal = Refusal{Reason: InUseLive, Err: errBusy, Until: f.Now}
	}), Policy{}, Decision{Action: Detach, Reason: NotWished, Since: t0.Add(time.Hour), Unwished: true}},
	{"the report could not be written", unwishedFacts(func(f *Facts) {
		f.Refusal = Refusal{Reason: ReportNotWritten, Err: errBusy, Until: f.Now.Add(time.Second)}
	}), Policy{}, Decision{Reason: ReportNotWritten, Since: t0.Add(time.Hour), Until: t0.Add(time.Hour + time.Second), LastErr: errBusy, Unwished: true}},
	{"detach in back-off", unwishedFacts(func(f *Facts) { f.DetachFailures = failed(f, time.Second) }), Policy{}, Decision{Reason: DetachBackoff, Since: t0, Until: t0.Add(time.Hour + time.Second), Attempts: 3, LastErr: errBusy, Unwished: true}},

	// Force.
	{"in use on a node that is not ready", unwishedFacts(notReady), Policy{}, Decision{Reason: UnmountTimeout, Since: t0.Add(59 * time.Minute), Until: t0.Add(65 * time.Minute), Unwished: true}},
	{"the same, and the live check will be asked before", unwishedFacts(func(f *Facts) {
		notReady(f)
		f.Refusal = Refusal{Reason: InUseLive, Err: errBusy, Until: f.Now.Add(time.Second)}
	}), Policy{}, Decision{Reason: UnmountTimeout, Since: t0.Add(59 * time.Minute), Until: t0.Add(time.Hour + time.Second), Unwished: true}},
	{"the wait is over", unwishedFacts(notReady), Policy{UnmountWait: time.Minute}, Decision{Action: Detach, Reason: ForceTimeout, Since: t0.Add(59 * time.Minute), Unwished: true}},
	{"the wait is over, whatever the live check says of use", unwishedFacts(func(f *Facts) {
		notReady(f)
		f.Refusal = Refusal{Reason: InUseLive, Err: errBusy, Until: f.Now.Add(time.Second)}
	}), Policy{UnmountWait: time.Minute}, Decision{Action: Detach, Reason: ForceTimeout, Since: t0.Add(59 * time.Minute), Unwished: true}},
	{"the wait is over, but force was not confirmed", unwishedFacts(func(f *Facts) {
		notReady(f)
		f.Refusal = Refusal{Reason: ForceNotConfirmed, Err: errBusy, Until: f.Now.Add(time.Second)}
	}), Policy{UnmountWait: time.Minute}, Decision{Reason: ForceNotConfirmed, Since: t0.Add(59 * time.Minute), Until: t0.Add(time.Hour + time.Second), LastErr: errBusy, Unwished: true}},
	{"the wait depends on the volume", unwishedFacts(notReady), Policy{UnmountWaitFor: func(v1.UniqueVolumeName, types.NodeName) time.Duration { return time.Second }}, Decision{Action: Detach, Reason: ForceTimeout, Since: t0.Add(59 * time.Minute), Unwished: true}},
	{"this volume is never forced by time", unwishedFacts(notReady), Policy{UnmountWaitFor: func(v1.UniqueVolumeName, types.NodeName) time.Duration { return -1 }}, Decision{Reason: ForceDisabled, Since: t0.Add(59 * time.Minute), Unwished: true}},
	{"force by time is disabled", unwishedFacts(notReady), Policy{UnmountWait: time.Second, DisableForceOnTimeout: true}, Decision{Reason: ForceDisabled, Since: t0.Add(59 * time.Minute), Unwished: true}},
	{"out of service", unwishedFacts(func(f *Facts) { notReady(f); f.Node.OutOfService = true }), Policy{DisableForceOnTimeout: true}, Decision{Action: Detach, Reason: ForceOutOfService, Since: t0.Add(59 * time.Minute), Unwished: true}},
	{"deleted node, grace", unwishedFacts(deletedNode), Policy{}, Decision{Reason: InUseOnDeletedNode, Since: t0.Add(56 * time.Minute), Until: t0.Add(64 * time.Minute), Unwished: true}},
	{"deleted node, grace is over", unwishedFacts(deletedNode), Policy{UnmountWait: 2 * time.Minute}, Decision{Action: Detach, Reason: ForceNodeDeleted, Since: t0.Add(56 * time.Minute), Unwished: true}},
	{"deleted node, the live check has nothing to ask", unwishedFacts(func(f *Facts) { deletedNode(f); f.LiveChecks = true }), Policy{}, Decision{Reason: InUseOnDeletedNode, Since: t0.Add(56 * time.Minute), Until: t0.Add(64 * time.Minute), Unwished: true}},
	{"deleted node, immediately", unwishedFacts(deletedNode), Policy{DeletedNodes: DetachImmediately}, Decision{Action: Detach, Reason: ForceNodeDeleted, Since: t0.Add(56 * time.Minute), Unwished: true}},
	{"deleted node, never", unwishedFacts(deletedNode), Policy{DeletedNodes: NeverDetach}, Decision{Reason: InUseOnDeletedNode, Since: t0.Add(56 * time.Minute), Unwished: true}},
}

var allowUncertain = Policy{AttachWhileUncertain: func(v1.UniqueVolumeName, types.NodeName, types.NodeName) bool { return true }}

func TestDecide(t *testing.T) {
	for _, c := range decideTable {
		t.Run(c.name, func(t *testing.T) {
			require.NoError(t, c.policy.validate())
			require.Equal(t, c.want, decide(&c.facts, &c.policy))
		})
	}
}

func TestDecideTableCoversEveryReasonAndEveryAction(t *testing.T) {
	reasons, actions := map[Reason]bool{PolicyPanicked: true}, map[Action]bool{} // PolicyPanicked: TestAPanickingPolicyDoesNothing
	for _, c := range decideTable {
		reasons[c.want.Reason], actions[c.want.Action] = true, true
	}
	for r := reasonUnset + 1; r < reasonEnd; r++ {
		require.True(t, reasons[r], "no case for %s", r)
		require.NotEmpty(t, reasonTexts[r], "no text for %s", r)
		require.NotContains(t, r.String(), "(", "no name for %d", r)
	}
	require.Len(t, actions, 3)
}

func drawFacts(t *rapid.T) Facts {
	node := rapid.SampledFrom([]types.NodeName{"", "", "b"})
	now := t0.Add(time.Hour)
	at := func(name string) time.Time {
		return rapid.SampledFrom([]time.Time{{}, t0, now.Add(-time.Minute), now, now.Add(time.Nanosecond), now.Add(time.Hour)}).Draw(t, name)
	}
	info := func(name string) executor.Info {
		if rapid.Bool().Draw(t, name) {
			return executor.Info{}
		}
		return executor.Info{Attempts: rapid.IntRange(1, 5).Draw(t, name+"Attempts"), LastErr: errBusy, NextTry: at(name + "Next")}
	}
	f := Facts{
		Now: now, Pair: cache.Pair{Volume: "vol", Node: "a"},
		Synced: rapid.Bool().Draw(t, "synced"), LiveChecks: rapid.Bool().Draw(t, "live"),
		Wished: rapid.Bool().Draw(t, "wished"), WishedSince: t0, Exclusive: rapid.Bool().Draw(t, "exclusive"),
		NodeExists: rapid.Bool().Draw(t, "nodeExists"), OlderWish: node.Draw(t, "older"), Unresolved: rapid.IntRange(0, 1).Draw(t, "unresolved"), Foreign: rapid.Bool().Draw(t, "foreign"),
		State: rapid.SampledFrom([]cache.AttachState{cache.Detached, cache.Uncertain, cache.Attached}).Draw(t, "state"), StateSince: t0,
		InUse: rapid.SampledFrom([]cache.InUse{cache.InUseUnknown, cache.NotInUse, cache.Mounted}).Draw(t, "inUse"), DetachRequested: at("requested"),
		Node: cache.NodeFacts{NodeHealth: cache.NodeHealth{
			Ready:        rapid.SampledFrom([]v1.ConditionStatus{"", v1.ConditionTrue, v1.ConditionFalse, v1.ConditionUnknown}).Draw(t, "ready"),
			OutOfService: rapid.Bool().Draw(t, "outOfService"), Deleted: rapid.Bool().Draw(t, "deleted"),
		}, Since: at("health")},
		Elsewhere:      Elsewhere{Node: node.Draw(t, "elsewhere"), State: rapid.SampledFrom([]cache.AttachState{cache.Uncertain, cache.Attached}).Draw(t, "elsewhereState"), DetachAttempts: rapid.IntRange(0, 1).Draw(t, "elsewhereAttempts")},
		PendingOn:      node.Draw(t, "pendingOn"),
		AttachFailures: info("attachFailures"), DetachFailures: info("detachFailures"),
	}
	if rapid.Bool().Draw(t, "isPending") {
		f.Pending = pending(rapid.SampledFrom([]string{executor.OpAttach, executor.OpDetach}).Draw(t, "op"),
			rapid.SampledFrom([]executor.Phase{executor.Preparing, executor.Queued, executor.Running, executor.Overdue}).Draw(t, "phase"))
	}
	if rapid.Bool().Draw(t, "refused") {
		f.Refusal = Refusal{Reason: rapid.SampledFrom([]Reason{Refused, InUse, InUseLive, ReportNotWritten, ForceNotConfirmed}).Draw(t, "refusal"), Err: errBusy, Until: at("refusedUntil")}
	}
	return f
}

// What must hold whatever the facts are.
func TestDecideNeverDoesWhatMayLoseData(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := drawFacts(t)
		p := Policy{
			DisableForceOnTimeout: rapid.Bool().Draw(t, "disableForce"),
			DeletedNodes:          DeletedNodesPolicy(rapid.IntRange(0, 2).Draw(t, "deletedNodes")),
		}
		before := f
		d := decide(&f, &p)

		require.Equal(t, before, f, "the facts were changed")
		require.True(t, reflect.DeepEqual(d, decide(&f, &p)), "two decisions on the same facts")
		require.NotEqual(t, reasonUnset, d.Reason)
		require.True(t, d.Until.IsZero() || d.Until.After(f.Now), "Until is not in the future")
		if f.Pending.Name != "" {
			require.Equal(t, Wait, d.Action, "an operation is in flight")
		}
		switch d.Action {
		case Attach:
			require.True(t, f.Wished && f.NodeExists)
			require.NotEqual(t, cache.Attached, f.State)
			if f.Exclusive {
				require.Empty(t, f.Elsewhere.Node, "attached, or perhaps attached, elsewhere")
				require.Empty(t, f.OlderWish)
				require.True(t, f.Synced)
			}
			require.Empty(t, f.PendingOn)
		case Detach:
			require.False(t, f.Wished, "a pod uses it")
			require.True(t, f.Synced, "a pod may use it")
			require.Zero(t, f.Unresolved, "a pod may use it")
			require.False(t, f.Foreign, "its users are not known")
			require.NotEqual(t, cache.Detached, f.State)
			if f.InUse == cache.Mounted {
				require.True(t, d.Forced())
			}
			switch d.Reason {
			case ForceTimeout:
				require.True(t, knownNotReady(f.Node.NodeHealth) && !p.DisableForceOnTimeout)
			case ForceOutOfService:
				require.True(t, f.Node.OutOfService)
			case ForceNodeDeleted:
				require.True(t, (f.Node.Deleted || !f.NodeExists) && p.DeletedNodes != NeverDetach)
			}
		}
	})
}

func TestPolicyRefusesWhatMakesNoSense(t *testing.T) {
	for _, p := range []Policy{{UnmountWait: -1}, {DeletedNodes: -1}, {DeletedNodes: 3}} {
		require.ErrorIs(t, p.validate(), cache.ErrInvalid)
	}
}
