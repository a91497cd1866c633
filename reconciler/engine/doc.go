// Package engine is the loop under the reconciler, for keys of any kind: a deduplicating queue with due times, and the
// workers that evaluate what is due.
//
// A change names a key ([Engine.Add]); a wait names a key and a time ([Engine.AddAt], or the time that Evaluate returns).
// When nothing is due, nothing runs: there is no period, and an idle engine costs no processor time. A slow audit adds
// every key now and then, for the case that a change was missed.
//
// Guarantees:
//
//   - A key is never evaluated by two workers at once. An Add during its evaluation evaluates it once more afterwards.
//   - Adds of a key that waits already are merged; the earliest time wins. None is lost.
//   - Keys that are due are evaluated in the order in which they became due.
//   - Only keys that wait or run take memory.
//   - [Engine.Run] returns when its context has ended and every worker has returned. No goroutine outlives it, and
//     [New] starts none.
//
// Limits:
//
//   - Evaluate must not block: it decides, and starts slow work elsewhere (package executor). A blocked Evaluate holds
//     one worker, and with it one share of the throughput.
//   - Evaluate runs without a fence: a panic in it ends the program.
package engine
