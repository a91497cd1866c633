// Package reconciler brings the actual state of the world to the desired one: it attaches the volumes that pods wish on a
// node, detaches those that nobody wishes there any more, and can say at any moment why it does not.
//
// # How it works
//
// The unit of work is the pair of a volume and a node. A change of either world makes its pairs due in a queue (package
// engine); for each, a pure function decides:
//
//	decide(Facts, Policy) -> Decision{Action, Reason, Since, Until, ...}
//
// The action is an operation of package executor, in a goroutine of its own, one at a time for a volume. Its end makes the
// pair due again. A wait for a time is a due time in the same queue. When nothing changes, nothing runs; a slow audit of
// every pair catches what an event may have missed. [Reconciler.Explain] calls the same function, so the explanation is
// the decision.
//
// # Guarantees
//
// For as long as the worlds are told the truth and the driver keeps the contract of [executor.Attacher]:
//
//   - Nothing is detached before [Reconciler.MarkSynced], from a node with pods whose volumes are not known, or where a pod
//     uses it.
//   - A volume in use is not detached, unless a reason to force holds: its node is known not to be Ready for the time that
//     the [Policy] says, is marked out of service, or was deleted. With [LiveChecks] the reason, or that the volume is free,
//     is confirmed right before the driver is called; what cannot be confirmed is not done.
//   - An exclusive volume that is attached, or may be, to one node is not attached to another. The oldest wish wins, and one
//     attach is in flight.
//   - A detach has a fixed order: the volume leaves the report of its node, that report is written, the live check answers,
//     the driver is called. When a step fails, the ones before it are undone.
//   - The report of a node contains only what is known to be attached to it.
//   - One call of the driver for one transition. Attach and detach have each their own back-off, per volume and node.
//
// # What the caller must do
//
//  1. Put into the actual world what is known to be attached, before Run: from the nodes' status, or from records of the
//     storage. What may be attached goes in as uncertain.
//  2. Add nodes and pods as they come; mark pods whose volumes cannot be resolved as unresolved.
//  3. Call MarkSynced once every pod that existed at the start was added or marked.
//  4. Tell the actual world what nodes say of themselves: which volumes they use, whether they are Ready.
//  5. Run one reconciler at a time over one storage: it does not elect a leader.
//
// Package cache/populator does 1 to 4 from the objects of the API.
//
// # Limits
//
//   - The worlds are in memory: after a restart they must be filled again.
//   - A detach that has reached the driver is not called back when a pod comes meanwhile; the pod waits for the next attach.
//   - A volume that is uncertain on two nodes and wished on both waits for a person, or for a pod to go.
package reconciler
