package reconciler

import "sync/atomic"

// Stats are counts since New, and current sizes.
type Stats struct {
	// Evaluations is how many decisions were made.
	Evaluations uint64
	// ForcedDetaches counts detaches of volumes in use, by reason; each detach request once, however often it was tried.
	ForcedDetaches map[Reason]uint64
	// MissedVerifications counts verifications that were due while one still ran.
	MissedVerifications uint64
	// PolicyPanics counts panics of the policy's hooks.
	PolicyPanics uint64
	// Open is how many pairs are not converged; Queued how many keys the engine knows; Waiting how many volumes are waited
	// for. All three are zero when everything is as wished.
	Open, Queued, Waiting int
	// Pending is how many operations are in flight, BackingOff how many wait for their next try.
	Pending, BackingOff int
}

type counters struct {
	forced         [reasonEnd]atomic.Uint64
	missedVerifies atomic.Uint64
	policyPanics   atomic.Uint64
}

func (c *counters) read(r *Reconciler) Stats {
	s := Stats{
		Evaluations: r.engine.Evaluations(), MissedVerifications: c.missedVerifies.Load(), PolicyPanics: c.policyPanics.Load(),
		Queued: r.engine.Len(), ForcedDetaches: map[Reason]uint64{},
	}
	for reason := range c.forced {
		if n := c.forced[reason].Load(); n > 0 {
			s.ForcedDetaches[Reason(reason)] = n
		}
	}
	s.Open, s.Waiting = r.book.sizes()
	s.Pending, s.BackingOff = r.ops.Sizes()
	return s
}
