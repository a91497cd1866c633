package reconciler

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/stateofworld/stateofworld/cache"
)

// Explanation answers why a volume is, or is not, attached to a node. It is the decision of this moment, not a memory of
// one.
type Explanation struct {
	Pair     cache.Pair
	Decision Decision
	// State is what is known about the pair now.
	State cache.AttachState
	// Since is when the pair came to this reason, as far as known.
	Since time.Time
	// Pods are the pods on the node that use the volume, as namespace/name.
	Pods []string
	// Unresolved are pods on the node whose volumes are not known, when that is the reason.
	Unresolved []cache.UniquePodName
	// Blocker explains the pair of the same volume that this one waits for, if it does.
	Blocker *Explanation
}

// Converged reports whether the pair is as it is wished.
func (e Explanation) Converged() bool { return e.Decision.Converged() }

// String is a line for a person.
func (e Explanation) String() string {
	d := e.Decision
	var b strings.Builder
	if e.Converged() {
		fmt.Fprintf(&b, "%s, as wished", e.State)
		if len(e.Pods) > 0 {
			fmt.Fprintf(&b, " by %s", strings.Join(e.Pods, ", "))
		}
		return b.String()
	}
	text := reasonTexts[d.Reason]
	if d.Action == Wait {
		b.WriteString("waiting: ")
	} else {
		b.WriteString("about to " + d.Action.String() + ": ")
	}
	if d.Blocker != "" {
		text = strings.ReplaceAll(text, "another node", fmt.Sprintf("node %q", d.Blocker))
	}
	b.WriteString(text)
	if len(e.Unresolved) > 0 {
		fmt.Fprintf(&b, " (%s)", joinNames(e.Unresolved))
	}
	if !e.Since.IsZero() {
		fmt.Fprintf(&b, " since %s", e.Since.UTC().Format(time.TimeOnly))
	}
	if !d.Until.IsZero() {
		fmt.Fprintf(&b, ", until %s", d.Until.UTC().Format(time.TimeOnly))
	}
	if d.Attempts > 0 {
		fmt.Fprintf(&b, "; failed %s", times(d.Attempts))
	}
	if d.LastErr != nil {
		fmt.Fprintf(&b, "; last error: %v", d.LastErr)
	}
	if e.Blocker != nil {
		fmt.Fprintf(&b, "; there: %s", e.Blocker)
	}
	return b.String()
}

func times(n int) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}

func joinNames(names []cache.UniquePodName) string {
	var parts []string
	for _, n := range names {
		parts = append(parts, string(n))
	}
	return strings.Join(parts, ", ")
}

var reasonTexts = [...]string{
	reasonUnset:        "not decided yet",
	Converged:          "as wished",
	Wished:             "a pod on the node uses it",
	NotWished:          "no pod on the node uses it",
	ForceTimeout:       "still in use after the wait, on a node that is not ready",
	ForceOutOfService:  "the node is marked out of service",
	ForceNodeDeleted:   "the node was deleted",
	NodeDeleted:        "the node was deleted",
	AttachedElsewhere:  "attached to another node",
	UncertainElsewhere: "uncertain whether it is attached to another node",
	OlderWish:          "pods on another node asked for it first",
	AttachBackoff:      "the last attach failed",
	InUse:              "in use on the node",
	InUseLive:          "in use on the node, says the live check",
	UnmountTimeout:     "in use on a node that is not ready; will be forced",
	ForceDisabled:      "in use on an unhealthy node, and force by time is disabled",
	ForceNotConfirmed:  "the reason to force was not confirmed by the live check",
	InUseOnDeletedNode: "in use, as far as known, on a node that was deleted",
	NodeUnresolved:     "the node has pods whose volumes are not known",
	PluginMissing:      "no plugin is registered for it, so its users are not known",
	ReportNotWritten:   "the node's report without the volume could not be written",
	DetachBackoff:      "the last detach failed",
	NotSynced:          "the desired world is not complete yet",
	Refused:            "the driver refused to start",
	Attaching:          "attaching",
	Detaching:          "detaching",
	WritingReport:      "the node's report without the volume is being written",
	OperationQueued:    "queued: all slots are taken",
	OperationOverdue:   "past its deadline, and the driver has not returned",
	OperationElsewhere: "an operation on it is at work for another node",
	PolicyPanicked:     "the policy panicked",
}

// Explain says why the volume is, or is not, attached to the node. A pair that nobody knows is converged: not wished, not
// attached.
func (r *Reconciler) Explain(volume v1.UniqueVolumeName, node types.NodeName) Explanation {
	return r.explain(cache.Pair{Volume: volume, Node: node}, true)
}

func (r *Reconciler) explain(pair cache.Pair, withBlocker bool) Explanation {
	entry := r.book.read(pair)
	f, d := r.decision(pair, &entry)
	e := Explanation{Pair: pair, Decision: d, State: f.State, Since: d.Since}
	if since, ok := r.book.reasonSince(pair, d.Reason); ok && e.Since.IsZero() {
		e.Since = since
	}
	for _, pod := range r.desired.PodsOf(pair.Volume, pair.Node) {
		e.Pods = append(e.Pods, podName(pod.Pod))
	}
	if d.Reason == NodeUnresolved {
		e.Unresolved = r.desired.UnresolvedPods(pair.Node)
	}
	if withBlocker && d.Blocker != "" {
		there := r.explain(cache.Pair{Volume: pair.Volume, Node: d.Blocker}, false)
		e.Blocker = &there
	}
	return e
}

// ExplainVolume explains the volume on every node where it is wished or attached, by node.
func (r *Reconciler) ExplainVolume(volume v1.UniqueVolumeName) []Explanation {
	nodes := r.actual.GetNodesForAttachedVolume(volume)
	for _, w := range r.desired.AppendWishes(nil, volume) {
		nodes = append(nodes, w.NodeName)
	}
	slices.Sort(nodes)
	var all []Explanation
	for _, node := range slices.Compact(nodes) {
		all = append(all, r.Explain(volume, node))
	}
	return all
}

// Explanations explains every pair that is not converged, by volume and node. Its cost is that of those pairs.
func (r *Reconciler) Explanations() []Explanation {
	var open []Explanation
	for _, pair := range r.book.open() {
		if e := r.explain(pair, true); !e.Converged() {
			open = append(open, e)
		}
	}
	return open
}

func comparePairs(a, b cache.Pair) int {
	return cmp.Or(cmp.Compare(a.Volume, b.Volume), cmp.Compare(a.Node, b.Node))
}
