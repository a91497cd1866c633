package lifecycle

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/stateofworld/stateofworld/lvm"
)

var testRules = rules{
	node: node{name: nodeA, labels: map[string]string{v1.LabelHostname: nodeA}}, annotations: keys, drivers: []string{"d1", "d2"},
	volumeGroups: []string{"vg0"}, storageClasses: []string{"", "fast"},
}

func TestDecisionOnAClaim(t *testing.T) {
	now := time.Unix(1000, 0)
	later := now.Add(time.Minute)
	sound := claim{UID: "u1", Node: nodeA, Lifecycle: Creating, Spec: spec("a", 1)}
	noSpace := Failure{Reason: ReasonNoSpace, Message: "full", UID: "u1"}
	broken := Failure{Reason: ReasonInvalidSpec, Message: `invalid volume spec "nonsense": not a JSON object`, UID: "u1"}
	for name, c := range map[string]struct {
		change    func(*claim)
		attempt   attempt
		action    Action
		condition Condition
		until     time.Time
		reason    Reason
	}{
		"asked for":                             {action: Create, condition: Requested},
		"on no node yet":                        {change: func(c *claim) { c.Node = "" }, action: Wait, condition: NotOurs},
		"on another node":                       {change: func(c *claim) { c.Node = "node-b" }, action: Wait, condition: NotOurs},
		"of one of the drivers":                 {change: func(c *claim) { c.Driver = "d2" }, action: Create, condition: Requested},
		"of another driver":                     {change: func(c *claim) { c.Driver = "d3" }, action: Wait, condition: NotOurs},
		"of one of the classes":                 {change: func(c *claim) { c.Class = "fast" }, action: Create, condition: Requested},
		"of another class":                      {change: func(c *claim) { c.Class = "slow" }, action: Wait, condition: NotOurs},
		"with its own UID":                      {change: func(c *claim) { c.RequestUID = "u1" }, action: Create, condition: Requested},
		"restored from a backup":                {change: func(c *claim) { c.RequestUID = "u0" }, action: Wait, condition: NotOurs},
		"created":                               {change: func(c *claim) { c.Lifecycle = Created }, action: Wait, condition: Converged},
		"no lifecycle":                          {change: func(c *claim) { c.Lifecycle = "" }, action: Wait, condition: Converged},
		"a volume's lifecycle":                  {change: func(c *claim) { c.Lifecycle = Deleting }, action: Wait, condition: Converged},
		"a lifecycle that is none":              {change: func(c *claim) { c.Lifecycle = "Creating " }, action: Wait, condition: Converged},
		"being deleted":                         {change: func(c *claim) { c.Terminating = true }, action: Wait, condition: Terminating},
		"nonsense":                              {change: func(c *claim) { c.Spec = "nonsense" }, action: Report, condition: Refused, reason: ReasonInvalidSpec},
		"nonsense, reported":                    {change: func(c *claim) { c.Spec, c.Failure = "nonsense", broken.Encode() }, action: Wait, condition: Refused, reason: ReasonInvalidSpec},
		"nonsense, reported of another":         {change: func(c *claim) { c.Spec, c.Failure = "nonsense", noSpace.Encode() }, action: Report, condition: Refused, reason: ReasonInvalidSpec},
		"nonsense, report failed":               {change: func(c *claim) { c.Spec = "nonsense" }, attempt: attempt{Unreported: later}, action: Wait, condition: Refused, until: later, reason: ReasonInvalidSpec},
		"a group that is not allowed":           {change: func(c *claim) { c.Spec = `{"vg":"root","name":"a","size":1}` }, action: Report, condition: Refused, reason: ReasonNotAllowed},
		"failed, to be reported":                {attempt: attempt{Failed: noSpace, Until: later}, action: Report, condition: BackingOff, reason: ReasonNoSpace},
		"failed, reported, in back-off":         {change: func(c *claim) { c.Failure = noSpace.Encode() }, attempt: attempt{Failed: noSpace, Until: later}, action: Wait, condition: BackingOff, until: later, reason: ReasonNoSpace},
		"failed, reported, back-off over":       {change: func(c *claim) { c.Failure = noSpace.Encode() }, attempt: attempt{Failed: noSpace, Until: now}, action: Create, condition: Requested, reason: ReasonNoSpace},
		"failed, report failed, in back-off":    {attempt: attempt{Failed: noSpace, Until: later, Unreported: now.Add(time.Second)}, action: Wait, condition: BackingOff, until: now.Add(time.Second), reason: ReasonNoSpace},
		"failed, report failed, back-off over":  {attempt: attempt{Failed: noSpace, Until: now, Unreported: later}, action: Create, condition: Requested, reason: ReasonNoSpace},
		"an old failure that is not remembered": {change: func(c *claim) { c.Failure = noSpace.Encode() }, action: Create, condition: Requested},
	} {
		t.Run(name, func(t *testing.T) {
			facts := sound
			if c.change != nil {
				c.change(&facts)
			}
			c.attempt.Now = now
			d := decideClaim(facts, &testRules, c.attempt)
			require.Equal(t, c.action, d.Action)
			require.Equal(t, c.condition, d.Condition)
			require.Equal(t, c.until, d.Until)
			require.Equal(t, c.reason, d.Failure.Reason)
			if d.Action == Create {
				require.Equal(t, lvm.Name{VG: "vg0", LV: "a"}, d.spec.LV())
			}
		})
	}
}

func TestDecisionOnAVolume(t *testing.T) {
	now := time.Unix(1000, 0)
	later := now.Add(time.Minute)
	withFinalizer := testRules
	withFinalizer.finalizer = "example.com/lv"
	sound := volume{UID: "u1", Placement: placement{Here: true, Pinned: true}, Lifecycle: Deleting, Spec: "vg0/a", Owner: "c1"}
	inUse := Failure{Reason: ReasonInUse, Message: "open", UID: "u1"}
	bound := failureOf(ErrBound, "u1")
	for name, c := range map[string]struct {
		change    func(*volume)
		attempt   attempt
		rules     *rules
		action    Action
		condition Condition
		until     time.Time
		reason    Reason
	}{
		"to be removed":                      {action: Remove, condition: Requested},
		"of another driver":                  {change: func(v *volume) { v.Foreign = true }, action: Wait, condition: NotOurs},
		"on another node":                    {change: func(v *volume) { v.Placement = placement{} }, action: Wait, condition: NotOurs},
		"affinity that makes no sense":       {change: func(v *volume) { v.Placement, v.BadAffinity = placement{}, "x" }, action: Wait, condition: WrongAffinity, reason: ReasonInvalidSpec},
		"on several nodes":                   {change: func(v *volume) { v.Placement.Pinned = false }, action: Remove, condition: Requested},
		"on several nodes, not here":         {change: func(v *volume) { v.Placement.Pinned = false }, attempt: attempt{Absent: true}, action: Wait, condition: Elsewhere},
		"on several nodes, begun here":       {change: func(v *volume) { v.Placement.Pinned, v.MarkedNode = false, nodeA }, attempt: attempt{Absent: true}, action: Remove, condition: Requested},
		"on several nodes, begun on another": {change: func(v *volume) { v.Placement.Pinned, v.MarkedNode = false, "node-b" }, action: Wait, condition: NotOurs},
		"restored from a backup":             {change: func(v *volume) { v.RequestUID = "u0" }, action: Wait, condition: Converged},
		"no lifecycle":                       {change: func(v *volume) { v.Lifecycle = "" }, action: Wait, condition: Converged},
		"a claim's lifecycle":                {change: func(v *volume) { v.Lifecycle = Creating }, action: Wait, condition: Converged},
		"deleted":                            {change: func(v *volume) { v.Lifecycle = Deleted }, action: Wait, condition: Converged},
		"being deleted, to be removed":       {change: func(v *volume) { v.Terminating = true }, action: Remove, condition: Requested},
		"no spec":                            {change: func(v *volume) { v.Spec = "" }, action: Report, condition: Refused, reason: ReasonInvalidSpec},
		"a spec for a claim":                 {change: func(v *volume) { v.Spec = spec("a", 1) }, action: Report, condition: Refused, reason: ReasonInvalidSpec},
		"a whole group":                      {change: func(v *volume) { v.Spec = "vg0" }, action: Report, condition: Refused, reason: ReasonInvalidSpec},
		"a group that is not allowed":        {change: func(v *volume) { v.Spec = "root/a" }, action: Report, condition: Refused, reason: ReasonNotAllowed},
		"bound":                              {change: func(v *volume) { v.Bound = true }, action: Report, condition: StillBound, reason: ReasonBound},
		"bound, reported":                    {change: func(v *volume) { v.Bound, v.Failure = true, bound.Encode() }, action: Wait, condition: StillBound, reason: ReasonBound},
		"in use, to be reported":             {attempt: attempt{Failed: inUse, Until: later}, action: Report, condition: BackingOff, reason: ReasonInUse},
		"in use, reported":                   {change: func(v *volume) { v.Failure = inUse.Encode() }, attempt: attempt{Failed: inUse, Until: later}, action: Wait, condition: BackingOff, until: later, reason: ReasonInUse},
		"in use, back-off over":              {change: func(v *volume) { v.Failure = inUse.Encode() }, attempt: attempt{Failed: inUse, Until: now}, action: Remove, condition: Requested, reason: ReasonInUse},

		"finalizer to be put on":                {rules: &withFinalizer, change: func(v *volume) { v.Lifecycle = "" }, action: Protect, condition: Unprotected},
		"finalizer is on":                       {rules: &withFinalizer, change: func(v *volume) { v.Lifecycle, v.Finalizer = "", true }, action: Wait, condition: Converged},
		"too late for the finalizer":            {rules: &withFinalizer, change: func(v *volume) { v.Lifecycle, v.Terminating = "", true }, action: Wait, condition: Converged},
		"finalizer, being deleted":              {rules: &withFinalizer, change: func(v *volume) { v.Lifecycle, v.Terminating, v.Finalizer = "", true, true }, action: Release, condition: Held},
		"finalizer, being deleted, in back-off": {rules: &withFinalizer, attempt: attempt{Until: later}, change: func(v *volume) { v.Lifecycle, v.Terminating, v.Finalizer = "", true, true }, action: Wait, condition: Held, until: later},
		"finalizer, being deleted, names none":  {rules: &withFinalizer, change: func(v *volume) { v.Lifecycle, v.Terminating, v.Finalizer, v.Spec = "", true, true, "" }, action: Wait, condition: Held},
		"finalizer, being deleted, on several":  {rules: &withFinalizer, change: func(v *volume) { v.Lifecycle, v.Terminating, v.Finalizer, v.Placement.Pinned = "", true, true, false }, action: Wait, condition: Held},
		"finalizer, being deleted, named itself": {rules: &withFinalizer, change: func(v *volume) {
			v.Lifecycle, v.Terminating, v.Finalizer, v.Spec, v.Source = "", true, true, "", lvm.Name{VG: "vg0", LV: "a"}
		}, action: Release, condition: Held},
		"finalizer, deleted":         {rules: &withFinalizer, change: func(v *volume) { v.Lifecycle, v.Finalizer = Deleted, true }, action: Release, condition: Held},
		"finalizer, to be removed":   {rules: &withFinalizer, action: Remove, condition: Requested},
		"finalizer, deleted without": {rules: &withFinalizer, change: func(v *volume) { v.Lifecycle = Deleted }, action: Wait, condition: Converged},
	} {
		t.Run(name, func(t *testing.T) {
			facts, r := sound, c.rules
			if c.change != nil {
				c.change(&facts)
			}
			if r == nil {
				r = &testRules
			}
			c.attempt.Now = now
			d := decideVolume(facts, r, c.attempt)
			require.Equal(t, c.action, d.Action)
			require.Equal(t, c.condition, d.Condition)
			require.Equal(t, c.until, d.Until)
			require.Equal(t, c.reason, d.Failure.Reason)
			if d.Action == Remove || d.Action == Release {
				require.Equal(t, lvm.Name{VG: "vg0", LV: "a"}, d.LV)
			}
		})
	}
}

// L36, kubernetes/kubernetes#16971, and defect 6 of the forerunner: "vg/" was taken for a logical volume that is not there.
func TestDeletionSpecsThatAreRefused(t *testing.T) {
	for _, text := range []string{
		"", "vg0", "vg0/", "/a", "vg0//a", "vg0/a/b", "@t/a", "vg0/@t", "vg0/../a", "vg0/..", "vg0/-f", "-f/a", "vg0/a;b", "vg0/a b", "vg0/$(id)", "/dev/vg0/a",
		"vg0/a\n", "vg0/a\x00", "vg0/a_tmeta", "vg0/" + strings.Repeat("a", 200),
	} {
		d := decideVolume(volume{Placement: placement{Here: true}, Lifecycle: Deleting, Spec: text}, &testRules, attempt{})
		require.Equal(t, Report, d.Action, "%q", text)
		require.Equal(t, ReasonInvalidSpec, d.Failure.Reason, "%q", text)
		require.Zero(t, d.LV)
	}
}
