package reconciler

import "fmt"

// Reason says why a decision is what it is. Reasons are stable: they may be used as metric labels and event reasons.
type Reason int

// The reasons, by the decision that they come with.
const (
	reasonUnset Reason = iota

	// Converged: the pair is as it is wished.
	Converged

	// With Attach.

	// Wished: a pod on the node uses the volume.
	Wished

	// With Detach.

	// NotWished: no pod on the node uses the volume, and it is not in use there.
	NotWished
	// ForceTimeout: it is in use on a node that is not Ready, for longer than the policy waits.
	ForceTimeout
	// ForceOutOfService: the node carries the out-of-service taint.
	ForceOutOfService
	// ForceNodeDeleted: the node does not exist any more, and the policy for deleted nodes allows it.
	ForceNodeDeleted

	// With Wait, for an attach.

	// NodeDeleted: the node was deleted while its pods still exist.
	NodeDeleted
	// AttachedElsewhere: the volume is exclusive and attached to another node.
	AttachedElsewhere
	// UncertainElsewhere: the volume is exclusive and may be attached to another node.
	UncertainElsewhere
	// OlderWish: the volume is exclusive and was wished on another node first.
	OlderWish
	// AttachBackoff: the last attach failed; the next try has its time.
	AttachBackoff

	// With Wait, for a detach.

	// InUse: the node says that the volume is in use, or nobody has said that it is not.
	InUse
	// InUseLive: the live check says that the volume is in use, or could not answer.
	InUseLive
	// UnmountTimeout: in use on a node that is not Ready; forced at Until.
	UnmountTimeout
	// ForceDisabled: in use on a node that is not Ready, and the policy never forces there.
	ForceDisabled
	// ForceNotConfirmed: a force was due, but the live check did not confirm its reason.
	ForceNotConfirmed
	// InUseOnDeletedNode: in use, as far as known, on a node that was deleted; forced at Until, if that is set.
	InUseOnDeletedNode
	// NodeUnresolved: the node has pods whose volumes are not known; any of them may use this one.
	NodeUnresolved
	// PluginMissing: no plugin is registered for the volume's name, so nobody here can tell who uses it.
	PluginMissing
	// ReportNotWritten: the report without the volume could not be written.
	ReportNotWritten
	// DetachBackoff: the last detach failed; the next try has its time.
	DetachBackoff

	// With Wait, for both.

	// NotSynced: the desired world is not complete yet.
	NotSynced
	// Refused: the driver found a precondition missing and started nothing; it is asked again at Until.
	Refused
	// Attaching, Detaching: the driver is at work.
	Attaching
	Detaching
	// WritingReport: a detach waits until the node's report without the volume is written.
	WritingReport
	// OperationQueued: the operation waits for a free slot.
	OperationQueued
	// OperationOverdue: the operation is past its deadline, and its function has not returned.
	OperationOverdue
	// OperationElsewhere: an operation on the same volume is at work for another node.
	OperationElsewhere
	// PolicyPanicked: a hook of the policy panicked; nothing is done.
	PolicyPanicked

	reasonEnd
)

var reasonNames = [...]string{
	reasonUnset: "Unset", Converged: "Converged", Wished: "Wished", NotWished: "NotWished",
	ForceTimeout: "ForceTimeout", ForceOutOfService: "ForceOutOfService", ForceNodeDeleted: "ForceNodeDeleted",
	NodeDeleted: "NodeDeleted", AttachedElsewhere: "AttachedElsewhere", UncertainElsewhere: "UncertainElsewhere",
	OlderWish: "OlderWish", AttachBackoff: "AttachBackoff", InUse: "InUse", InUseLive: "InUseLive",
	UnmountTimeout: "UnmountTimeout", ForceDisabled: "ForceDisabled", ForceNotConfirmed: "ForceNotConfirmed",
	InUseOnDeletedNode: "InUseOnDeletedNode", NodeUnresolved: "NodeUnresolved", PluginMissing: "PluginMissing", ReportNotWritten: "ReportNotWritten",
	DetachBackoff: "DetachBackoff", NotSynced: "NotSynced", Refused: "Refused", Attaching: "Attaching", Detaching: "Detaching",
	WritingReport: "WritingReport", OperationQueued: "OperationQueued", OperationOverdue: "OperationOverdue",
	OperationElsewhere: "OperationElsewhere", PolicyPanicked: "PolicyPanicked",
}

// String returns the reason's name, in the form that Kubernetes' event reasons have.
func (r Reason) String() string {
	if r > reasonUnset && r < reasonEnd {
		return reasonNames[r]
	}
	return fmt.Sprintf("Reason(%d)", int(r))
}
