// Package nodestatus publishes which volumes are attached to a node.
//
// A node may mount only what the list status.volumesAttached of its Node object
// names. So a volume enters the list when it is attached, and has to be out of the
// list, with that write confirmed, before it is detached. The actual world
// ([cache.ActualStateOfWorld]) says what the list of a node is and gives each
// change of it a version; a [Writer] gets the newest version of each node to a
// [Sink]; the [Patcher] is the Sink that writes to the API server.
//
//	actual.SubscribeReports --Changed--> Writer --Write--> Sink (Patcher) --> API
//	a detach ----------------Flush-----> waits for its own node only
//
// # Guarantees
//
//   - At most one write is in flight for a node. Any number of changes during a write
//     become one more write, of the newest version.
//   - A write carries the whole list. It is never a difference to some older copy.
//   - The writes of different nodes do not wait for each other, apart from the cap on
//     concurrent writes; a write past its time-out does not count against the cap, even
//     if the sink does not return.
//   - [Writer.Flush] returns nil only if its version, or a later one, was written, or if
//     the node does not exist.
//   - A failed write is tried again with back-off until it succeeds or the node is
//     found to be missing. After any failure the content on the server is unknown, and
//     the next try is made whatever the list is by then.
//   - A list equal to the one last written is not written again, unless it is forced.
//   - A missing node gets one try for each version; [Writer.NodeAdded] starts afresh.
//   - Memory is kept only for nodes with something unwritten, in flight, or with a
//     list that was not empty when it was last written.
//
// # Limits
//
//   - The Writer does not read the API. A list changed by someone else stays until the
//     report changes, or until [Writer.Force] or [Writer.NodeAdded].
//   - A request that timed out here may still be carried out by the API server, after
//     a later one. No client without a precondition on the resource version can rule
//     that out, and a precondition would fail on each heartbeat of the node.
//   - Versions are compared as numbers: for one node they must never go back.
package nodestatus
