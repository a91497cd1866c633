// Package cache holds the two worlds of attachments: which volumes ought to be attached to which nodes
// ([DesiredStateOfWorld]), and which are ([ActualStateOfWorld]). Names and meaning follow the caches of
// Kubernetes' attach/detach controller. Beside them is [World], a generic keyed world with change notices.
//
// It is pure data: no I/O, no goroutines, no logging. Whoever compares the two worlds and acts on the
// difference is the reconciler; this package only answers, fast and at any size, and says what has changed.
//
// The unit is the [Pair] of a volume and a node. A volume is named by its [VolumePlugin], found through a
// [VolumePluginMgr]; [CSIPlugin] names the volumes of CSI drivers as Kubernetes does.
//
// # Guarantees
//
//   - Both worlds are indexed from both sides: a read of one pair costs O(1), one of a node or a volume what
//     it returns, a write what it touches.
//   - A read of everything never holds the lock for longer than a chunk of entries, and no lock is held while
//     an iterator yields.
//   - Plugins and subscribers are called without the lock, so they may use the worlds. Without subscribers,
//     notices cost nothing.
//   - No notice is lost: a subscriber that is told of a change sees at least that change when it reads.
//   - Calls with bad arguments change nothing. Each call is one step: nobody sees half of it.
//   - The report of a node holds only what is Attached to it, in a fixed order, and its version never goes
//     back.
//   - Specs and device paths that are unknown never replace known ones of the same attachment.
//   - A volume is exclusive for as long as any of its current uses is.
//   - Memory goes back: after everything was removed, Sizes is all zero. DeleteNode always takes effect, also
//     when it returns an error.
//   - Times come from an injectable clock and are monotonic: a step of the wall clock makes no timer expire
//     early.
//
// # Limits
//
//   - Specs, pods and volumes are kept and handed out as pointers: they must not be modified after they were
//     handed over.
//   - Nothing is persistent. After a restart the actual world is seeded from what the API and the driver say,
//     by name if need be.
//   - Reads of everything are not a snapshot of one moment. Reads of one volume are, and those of one node up
//     to some hundred attachments.
//   - The in-use list of a node is taken as it is: it may be late or early, and only whoever detaches can
//     check it against the node.
package cache
