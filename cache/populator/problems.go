package populator

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/stateofworld/stateofworld/cache"
)

// ProblemKind says what is wrong.
type ProblemKind string

// The kinds of problems.
const (
	ClaimMissing     ProblemKind = "ClaimMissing"     // the pod names a claim that does not exist
	ClaimUnbound     ProblemKind = "ClaimUnbound"     // the claim is not bound to a volume yet
	ClaimLost        ProblemKind = "ClaimLost"        // the claim has lost its volume
	ClaimNotOwned    ProblemKind = "ClaimNotOwned"    // the claim of an ephemeral volume is not the pod's
	VolumeMissing    ProblemKind = "VolumeMissing"    // the persistent volume does not exist
	VolumeNotClaimed ProblemKind = "VolumeNotClaimed" // the volume does not say that it belongs to the claim
	LookupFailed     ProblemKind = "LookupFailed"     // a lister failed
	PluginFailed     ProblemKind = "PluginFailed"     // the plugins could not tell what the volume is
	PluginMissing    ProblemKind = "PluginMissing"    // the volume is attached by a plugin that is not registered
	NodeUnknown      ProblemKind = "NodeUnknown"      // the pod's node does not exist
	NoSource         ProblemKind = "NoSource"         // the volume attachment names no volume
	WorldRefused     ProblemKind = "WorldRefused"     // a world did not take it: a name is empty, most likely
	UnexpectedObject ProblemKind = "UnexpectedObject" // a handler got something that is not of its type
)

// Problem is something that keeps a pod's volume, or an attachment of before the start,
// out of the worlds.
type Problem struct {
	Kind ProblemKind

	Pod        types.NamespacedName // empty for volume attachments
	PodName    cache.UniquePodName  // the name of the pod in the desired world
	Volume     string               // the volume's name in the pod
	Claim      string               // the claim's name, in the pod's namespace
	PVName     string               // the persistent volume's name
	Attachment string               // the VolumeAttachment's name; empty for pods
	Node       types.NodeName

	Err   error     // more words; never nil
	Since time.Time // when it came up
}

// String says it for humans.
func (p Problem) String() string {
	var b strings.Builder
	switch {
	case p.Attachment != "":
		fmt.Fprintf(&b, "volume attachment %q, node %q: ", p.Attachment, p.Node)
	case p.Pod.Name != "" && p.Volume != "":
		fmt.Fprintf(&b, "pod %q, volume %q, node %q: ", p.Pod.String(), p.Volume, p.Node)
	case p.Pod.Name != "":
		fmt.Fprintf(&b, "pod %q, node %q: ", p.Pod.String(), p.Node)
	}
	fmt.Fprintf(&b, "%s: %v", p.Kind, p.Err)
	return b.String()
}

// same says whether o is the same problem at another time.
func (p Problem) same(o Problem) bool {
	return p.Kind == o.Kind && p.Volume == o.Volume && p.Claim == o.Claim && p.PVName == o.PVName && p.Node == o.Node && p.Err.Error() == o.Err.Error()
}

func compareProblems(a, b Problem) int {
	return cmp.Or(
		a.Since.Compare(b.Since),
		cmp.Compare(a.Pod.Namespace, b.Pod.Namespace),
		cmp.Compare(a.Pod.Name, b.Pod.Name),
		cmp.Compare(a.PodName, b.PodName),
		cmp.Compare(a.Volume, b.Volume),
		cmp.Compare(a.Attachment, b.Attachment),
	)
}

// lockedReplaced dates the problems that an object has now, given those it had, and
// queues the news for OnProblem. While the initial lists come in, most problems are only
// that something has not come in yet.
func (p *Populator) lockedReplaced(had, has []Problem) []Problem {
	for i := range has {
		known := slices.IndexFunc(had, has[i].same)
		if known >= 0 {
			has[i].Since = had[known].Since
			continue
		}
		has[i].Since = p.config.Clock.Now()
		if p.synced && p.lockedConcerns(has[i].Node) {
			p.lockedTell(has[i])
		}
	}
	return has
}

func (p *Populator) lockedTell(problem Problem) {
	if p.config.OnProblem != nil {
		p.outbox = append(p.outbox, func() { p.config.OnProblem(problem) })
	}
}

// lockedConcerns is false for nodes that exist and are not managed: what happens there is
// none of our business.
func (p *Populator) lockedConcerns(node types.NodeName) bool {
	state, exists := p.nodes[node]
	return !exists || state.managed
}

// Problems returns what is wrong now, the oldest first, at most Config.MaxProblems of
// them: pods with unresolved volumes, pods whose node does not exist, volume attachments
// that could not be resolved.
func (p *Populator) Problems() []Problem {
	p.mu.Lock()
	defer p.mu.Unlock()
	problems := p.lockedUnresolved()
	for node, parked := range p.pods.parked {
		if _, exists := p.nodes[node]; exists {
			continue
		}
		for e := range parked {
			problems = append(problems, Problem{
				Kind: NodeUnknown, Pod: nameOf(e.pod), PodName: e.name, Node: node, Since: e.parking.since,
				Err: fmt.Errorf("node %q does not exist: the pod waits for it", node),
			})
		}
	}
	slices.SortFunc(problems, compareProblems)
	return problems[:min(len(problems), p.config.MaxProblems)]
}

// lockedUnresolved returns the problems of pods and volume attachments, sorted.
func (p *Populator) lockedUnresolved() []Problem {
	var problems []Problem
	for e := range p.pods.unresolved {
		if p.lockedConcerns(e.node()) {
			problems = append(problems, e.problems...)
		}
	}
	for a := range p.attachments.parked {
		problems = append(problems, a.problems...)
	}
	slices.SortFunc(problems, compareProblems)
	return problems
}
