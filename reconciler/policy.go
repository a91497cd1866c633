package reconciler

import (
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/stateofworld/stateofworld/cache"
)

// DefaultUnmountWait is how long an unwished volume may stay in use on a node that is not Ready before it is detached by
// force; the figure of Kubernetes' attach/detach controller.
const DefaultUnmountWait = 6 * time.Minute

// Policy holds what a user may decide about forcing and about exclusive volumes. The zero value is the cautious choice.
//
// Hooks are asked while deciding: they must be fast, must not block, and must not call the worlds or the reconciler.
type Policy struct {
	// UnmountWait is how long after its last pod went a volume must have been in use on a node that is not Ready, or that
	// was deleted, before it is detached by force. Zero means DefaultUnmountWait; negative is refused.
	UnmountWait time.Duration

	// UnmountWaitFor, if set, is asked instead, per volume and node. A negative answer means: never by time.
	UnmountWaitFor func(volume v1.UniqueVolumeName, node types.NodeName) time.Duration

	// DisableForceOnTimeout: never force on a node that exists only because time has passed. The out-of-service taint and
	// DeletedNodes still count.
	DisableForceOnTimeout bool

	// DeletedNodes is what happens to volumes that are in use, as far as known, on a node that was deleted.
	DeletedNodes DeletedNodesPolicy

	// AttachWhileUncertain, if set, is asked whether an exclusive volume may be attached to one node while it is uncertain
	// whether another still has it; only after a detach there has failed. Say yes only for a back end that takes the
	// volume away from the other node itself, or for a node that is fenced: otherwise two nodes write to one volume.
	AttachWhileUncertain func(volume v1.UniqueVolumeName, uncertainOn, wantedOn types.NodeName) bool
}

// DeletedNodesPolicy says when a volume is detached from a node that does not exist any more although nobody has said
// that it is not in use there. A deleted Node object does not prove that the machine has stopped.
type DeletedNodesPolicy int

// The policies for deleted nodes.
const (
	// DetachAfterGrace waits for UnmountWait, counted from the deletion or from when the last pod went, whichever is later.
	DetachAfterGrace DeletedNodesPolicy = iota
	// DetachImmediately does not wait: for platforms that delete a Node object only after its machine is gone.
	DetachImmediately
	// NeverDetach waits for a person, or for the node to come back.
	NeverDetach
)

func (p DeletedNodesPolicy) String() string {
	switch p {
	case DetachAfterGrace:
		return "Grace"
	case DetachImmediately:
		return "Immediate"
	case NeverDetach:
		return "Never"
	}
	return fmt.Sprintf("DeletedNodesPolicy(%d)", int(p))
}

func (p *Policy) validate() error {
	if p.UnmountWait < 0 {
		return &cache.InvalidError{Field: "Policy.UnmountWait", Value: p.UnmountWait.String(), Reason: "must not be negative; set DisableForceOnTimeout to never force"}
	}
	if p.DeletedNodes < DetachAfterGrace || p.DeletedNodes > NeverDetach {
		return &cache.InvalidError{Field: "Policy.DeletedNodes", Value: p.DeletedNodes.String(), Reason: "unknown policy"}
	}
	return nil
}

// forceDue returns when the wait that began at from is over; false means never.
func (p *Policy) forceDue(pair cache.Pair, from time.Time) (time.Time, bool) {
	wait := p.UnmountWait
	if wait == 0 {
		wait = DefaultUnmountWait
	}
	if p.UnmountWaitFor != nil {
		wait = p.UnmountWaitFor(pair.Volume, pair.Node)
	}
	return from.Add(wait), wait >= 0
}
