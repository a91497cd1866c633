package lifecycle

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/stateofworld/stateofworld/executor"
)

// Explanation answers why a claim, a volume or a logical volume is not as it is asked to be. It is the decision of this moment, not a memory of one.
type Explanation struct {
	Kind            Kind
	Namespace, Name string
	UID             types.UID
	Decision        Decision
	// Running is the operation under way; its Name is empty if there is none.
	Running executor.Info
	// Attempts is how many attempts in a row have failed, LastErr why the last has.
	Attempts int
	LastErr  error
}

// Converged reports whether nothing is left to be done.
func (e Explanation) Converged() bool {
	return e.Running.Name == "" && (e.Decision.Condition == Converged || e.Decision.Condition == NotOurs)
}

var conditionTexts = map[Condition]string{
	Converged:     "nothing is asked for that is not done",
	NotOurs:       "not of this node, driver or class",
	Requested:     "about to %s",
	BackingOff:    "waiting after a failure",
	Refused:       "refused until the request is changed",
	Terminating:   "the claim is being deleted",
	StillBound:    "still bound to a claim",
	Unprotected:   "about to get the finalizer",
	Held:          "held by the finalizer while its logical volume is there",
	Elsewhere:     "its logical volume is not on this node, and may be on others",
	WrongAffinity: "its node affinity makes no sense",
}

// String is a line for a person.
func (e Explanation) String() string {
	var b strings.Builder
	d := e.Decision
	text := conditionTexts[d.Condition]
	if strings.Contains(text, "%s") {
		text = fmt.Sprintf(text, d.Action)
	}
	switch {
	case e.Running.Name != "":
		fmt.Fprintf(&b, "%s: %s", e.Running.Phase, e.Running.Name)
		if !e.Running.Started.IsZero() {
			fmt.Fprintf(&b, " since %s", e.Running.Started.UTC().Format(time.TimeOnly))
		}
	default:
		b.WriteString(text)
	}
	if !d.Until.IsZero() {
		fmt.Fprintf(&b, ", until %s", d.Until.UTC().Format(time.TimeOnly))
	}
	if e.Attempts > 0 {
		fmt.Fprintf(&b, "; failed %d times", e.Attempts)
	}
	switch {
	case d.Failure.Reason != "":
		fmt.Fprintf(&b, "; %s: %s", d.Failure.Reason, d.Failure.Message)
	case e.LastErr != nil:
		fmt.Fprintf(&b, "; last error: %v", e.LastErr)
	}
	return b.String()
}

// ExplainClaim says why a claim is, or is not, as it asks to be.
func (a *Agent) ExplainClaim(namespace, name string) Explanation {
	k := key{claimKind, namespace, name}
	c, d := a.peekClaim(k)
	return a.explain(k, Explanation{Kind: KindClaim, Namespace: namespace, Name: name, UID: c.UID, Decision: d})
}

// ExplainVolume says why a volume is, or is not, as it asks to be.
func (a *Agent) ExplainVolume(name string) Explanation {
	k := key{kind: volumeKind, name: name}
	v, d := a.peekVolume(k)
	return a.explain(k, Explanation{Kind: KindVolume, Name: name, UID: v.UID, Decision: d})
}

func (a *Agent) explain(k key, e Explanation) Explanation {
	r := a.book.peek(k)
	if r.op != (executor.Key{}) {
		if info, ok := a.ops.Failures(r.op, r.opName); ok {
			e.Attempts, e.LastErr = info.Attempts, info.LastErr
		}
		if info, ok := a.ops.Pending(r.op); ok && r.running {
			e.Running = info
		}
	}
	if r.running && e.Running.Name == "" {
		if info, ok := a.ops.Pending(reportKey(k)); ok {
			e.Running = info
		}
	}
	return e
}

// Explanations explains everything that is not converged, sorted by kind and name.
func (a *Agent) Explanations() []Explanation {
	var out []Explanation
	for n := range a.claims.All() {
		out = append(out, a.ExplainClaim(n.Namespace, n.Name))
	}
	for n := range a.volumes.All() {
		out = append(out, a.ExplainVolume(n))
	}
	for n := range a.leftovers.All() {
		e := a.explain(leftoverKey(n), Explanation{Kind: KindLogicalVolume, Name: n.String(), Decision: Decision{Action: Remove, Condition: Requested, LV: n}})
		if info, ok := a.ops.Failures(lvKey(n), "clean up"); ok {
			e.Attempts, e.LastErr, e.Decision.Condition, e.Decision.Until = info.Attempts, info.LastErr, BackingOff, info.NextTry
		}
		out = append(out, e)
	}
	out = slices.DeleteFunc(out, Explanation.Converged)
	slices.SortFunc(out, func(x, y Explanation) int {
		return cmp.Or(cmp.Compare(x.Kind, y.Kind), cmp.Compare(x.Namespace, y.Namespace), cmp.Compare(x.Name, y.Name))
	})
	return out
}

// peekClaim decides without the side effect of forgetting what another request has left in memory.
func (a *Agent) peekClaim(k key) (claim, Decision) {
	c, ok := a.claims.Get(k.claim())
	if !ok {
		return claim{}, Decision{Action: Wait, Condition: NotOurs}
	}
	return c, decideClaim(c, &a.rules, a.remembered(k, a.book.peek(k), c.request()))
}

func (a *Agent) peekVolume(k key) (volume, Decision) {
	v, ok := a.volumes.Get(k.name)
	if !ok {
		return volume{}, Decision{Action: Wait, Condition: NotOurs}
	}
	return v, decideVolume(v, &a.rules, a.remembered(k, a.book.peek(k), v.request()))
}
