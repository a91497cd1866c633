// Package populator feeds the worlds of package cache from what the API server
// delivers: pods, claims, persistent volumes, nodes, volume attachments.
//
//	pods ---> claims ---> persistent volumes ---> DesiredStateOfWorld
//	nodes: known, health, volumes in use  ------> both worlds
//	nodes: volumesAttached; volume attachments -> ActualStateOfWorld, once, as recovery
//
// [Populator.Pods], [Populator.Claims], [Populator.Volumes], [Populator.Nodes] and
// [Populator.Attachments] are event handlers in the shape of client-go's
// ResourceEventHandler, so that an informer takes them as they are; this package does
// not import client-go.
//
// # What the caller does, in this order
//
//  1. Register the handlers with the informers and start these.
//  2. Wait until each registration has synced, that is, until the handlers have seen
//     the initial lists (and not only the caches have).
//  3. Call [Populator.MarkSynced].
//  4. Let the reconciler run, and tell it that the desired world is complete. Not
//     earlier: before, nobody knows what is attached already, and an exclusive volume
//     could be attached a second time.
//
// # Guarantees
//
//   - The effect of an event is in the worlds when the handler returns.
//   - The order in which the informers deliver does not matter: each pod is looked at
//     again when one of its claims, their volumes, or its node arrives or changes.
//   - What cannot be resolved is not taken for unwanted (S4): a pod with a missing or
//     unbound claim, a missing volume, a lister or plugin that fails keeps what it had,
//     and marks its node as having an unresolved pod. [Populator.Problems] says which
//     and why.
//   - A pod that takes another's place under the same name does so in one step (R4).
//   - Pods on unknown nodes wait for their node (S1); so do volume attachments for
//     their persistent volume.
//   - Attachments of before the start are seeded: Attached if the node's status says so,
//     Uncertain if only a VolumeAttachment object does (S2). What another informer, or the
//     reconciler, has made of the pair meanwhile is left alone.
//   - Deleting needs no look-up, and everything that is deleted leaves no memory behind.
//   - Nothing blocks on I/O, and there are no goroutines. Handlers may be called
//     concurrently.
//
// # Limits
//
//   - The objects are kept and shared, not copied: they must not be modified, which is
//     what client-go demands of everyone anyway.
//   - Subscribers of the worlds run inside the handlers, and must not call the Populator.
//   - volumesAttached of a managed node is taken to be the work of this controller alone,
//     whatever plugin a name belongs to, as Kubernetes does.
//   - In-tree volumes are not translated to CSI. A plugin for them may be registered; without one a
//     pod that uses such a volume counts as unresolved, as its volume is attached under a name that
//     is not known here.
//   - A node once managed stays so until it is deleted, as in Kubernetes.
package populator
