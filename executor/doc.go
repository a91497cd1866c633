// Package executor runs slow operations that fail: [Operations] runs any keyed work, and [OperationExecutor] attaches,
// detaches and verifies volumes with a driver, the [Attacher], and writes what came of it into the actual world.
//
// # Operations
//
// An operation has a [Key] (volume, pod, node; empty means any) and a name. [Operations.Start] reserves the key, and runs the
// operation in a goroutine of its own:
//
//	Check      with the key reserved, in the caller's goroutine: is it still needed?     an error: as if nothing had been
//	Prepare    wait for preconditions; holds no slot
//	           wait for a slot, if there are caps
//	Run        the work
//	Complete   write the outcome down
//	           the key is free, back-off is booked
//	Done       tell who wants to know
//
// It guarantees:
//   - Operations whose keys overlap never run together.
//   - Who finds a key free finds the outcome of the operation before: it is written first. Pending check, state check and
//     start are one step when the state is looked at in Check.
//   - Nothing costs more with more operations pending or in back-off, but for the lists of all of them.
//   - Back-off is per (volume, node, name): one operation neither delays nor resets another. It is forgotten on success, by
//     Forget, and after idle time. [ErrPrecondition] leaves it as it was.
//   - A function that panics, or ends its goroutine, has failed with a [*PanicError]; its key is free afterwards.
//   - At its deadline a function's context is cancelled, with [ErrTimeout] as the cause. If it does not return, it stays pending
//     and keeps its key, as it may still be doing something; but it gives its slot back, so that it delays no other.
//   - With caps, nodes take turns, and within a node it is first come, first served. What waits for a slot costs no goroutine.
//   - [Operations.Wait] and [Operations.Shutdown] return when everything has ended, whether it failed or not, for any number of
//     waiters. Nothing is left of an operation that has ended but its back-off.
//
// It does not:
//   - retry: it only says when a retry is allowed. Who starts operations starts them again.
//   - stop a function that ignores its context.
//   - tell those who got an [AlreadyExistsError] when the operation in the way has ended. Done is where to do that. An
//     operation whose Check refuses has no Done; who sees it in the way (Phase Checking) should try again soon.
//   - give functions a context with a deadline: the clock is injected, so that cancellation is the only signal.
//
// # Outcomes
//
// What an attach or a detach came to is one of five [Outcome] values, which differ in what they do to the actual world; see
// [OperationExecutor.AttachVolume] and [OperationExecutor.DetachVolume]. The rule is that only what is known is written, and
// what is not known makes the attachment Uncertain: a driver that can say more than "failed" marks its errors with
// [Precondition], [NothingHappened], [GoneError] or returns a [*DanglingError].
//
// A driver whose back end attaches many volumes with one request implements [BulkAttacher], one that can say of all nodes at once
// what is attached [BulkVerifier]. What goes into one call has one key, slot and outcome each all the same; until the call has
// returned, none of its volumes is worked on again.
package executor
