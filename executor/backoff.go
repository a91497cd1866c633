package executor

import (
	"math"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/stateofworld/stateofworld/cache"
)

// Backoff says how long to wait after a failure before the next try. The zero value is Kubernetes' back-off for volume
// operations (500 ms, doubled up to 2m2s), with jitter. A zero field has its default.
type Backoff struct {
	// Base is the delay after the first failure; default 500 ms.
	Base time.Duration
	// Factor is what each further failure multiplies the delay by, at least 1; default 2.
	Factor float64
	// Cap bounds the delay, before jitter; default 2m2s, an odd value so that waits caused by it can be recognised,
	// or Base if that is longer.
	Cap time.Duration
	// Jitter is the share, up to 1, by which a delay is lengthened at random, so that what failed together does not
	// come back together: a delay d becomes d to d*(1+Jitter), never less than d. Default 0.1; negative = none.
	Jitter float64
	// ForgetAfter is how long failures are remembered of what is not tried again, from the end of the last try on; at least
	// the longest delay, Cap with jitter; default 2*Cap.
	ForgetAfter time.Duration
}

// Defaults of Backoff.
const (
	DefaultBackoffBase   = 500 * time.Millisecond
	DefaultBackoffFactor = 2.0
	DefaultBackoffCap    = 2*time.Minute + 2*time.Second
	DefaultBackoffJitter = 0.1
)

// Validate returns an *cache.InvalidError that names the first field with a value that makes no sense.
func (b Backoff) Validate() error {
	switch {
	case b.Base < 0:
		return invalid("Backoff.Base", b.Base.String(), "must not be negative")
	case b.Factor != 0 && !(b.Factor >= 1) || math.IsInf(b.Factor, 0):
		return invalid("Backoff.Factor", formatFloat(b.Factor), "must be at least 1 and finite")
	case b.Cap < 0:
		return invalid("Backoff.Cap", b.Cap.String(), "must not be negative")
	case b.Cap != 0 && b.Cap < b.withDefaults().Base:
		return invalid("Backoff.Cap", b.Cap.String(), "must not be less than Base")
	case math.IsNaN(b.Jitter) || b.Jitter > 1:
		return invalid("Backoff.Jitter", formatFloat(b.Jitter), "must not be more than 1")
	}
	if longest := b.Delay(math.MaxInt, func() float64 { return 1 }); b.ForgetAfter != 0 && b.ForgetAfter < longest {
		return invalid("Backoff.ForgetAfter", b.ForgetAfter.String(), "must not be less than the longest delay, "+longest.String())
	}
	return nil
}

// Delay returns the wait after the given number of failures in a row (1 = the first), with jitter drawn from rnd, which
// returns values in [0, 1); nil = math/rand/v2. It is 0 when attempt is 0 or less, and never negative.
func (b Backoff) Delay(attempt int, rnd func() float64) time.Duration {
	if attempt <= 0 {
		return 0
	}
	b = b.withDefaults()
	// In floating point: a large exponent becomes +Inf and is cut to the cap, where integers would overflow.
	d := min(float64(b.Base)*math.Pow(b.Factor, float64(attempt-1)), float64(b.Cap))
	if b.Jitter > 0 {
		if rnd == nil {
			rnd = rand.Float64
		}
		d += d * b.Jitter * min(max(rnd(), 0), 1)
	}
	if d >= math.MaxInt64 {
		return math.MaxInt64
	}
	return time.Duration(d)
}

func (b Backoff) withDefaults() Backoff {
	if b.Base == 0 {
		b.Base = DefaultBackoffBase
	}
	if b.Factor == 0 {
		b.Factor = DefaultBackoffFactor
	}
	if b.Cap == 0 {
		b.Cap = max(DefaultBackoffCap, b.Base)
	}
	if b.Jitter == 0 {
		b.Jitter = DefaultBackoffJitter
	}
	if b.ForgetAfter == 0 {
		b.ForgetAfter = b.Cap + min(b.Cap, math.MaxInt64-b.Cap)
	}
	return b
}

func invalid(field, value, reason string) *cache.InvalidError {
	return &cache.InvalidError{Field: field, Value: value, Reason: reason}
}

func formatFloat(f float64) string { return strconv.FormatFloat(f, 'g', -1, 64) }
