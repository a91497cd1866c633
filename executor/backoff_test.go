package executor

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/stateofworld/stateofworld/cache"
)

func TestDelayDoublesUpToTheCap(t *testing.T) {
	exact := Backoff{Jitter: -1}
	for attempt, want := range map[int]time.Duration{
		-1: 0, 0: 0,
		1: 500 * time.Millisecond, 2: time.Second, 3: 2 * time.Second, 8: 64 * time.Second,
		9: 2*time.Minute + 2*time.Second, 10: 2*time.Minute + 2*time.Second, math.MaxInt: 2*time.Minute + 2*time.Second,
	} {
		require.Equal(t, want, exact.Delay(attempt, nil), "attempt %d", attempt)
	}
	other := Backoff{Base: time.Second, Factor: 3, Cap: 10 * time.Second, Jitter: -1}
	for attempt, want := range map[int]time.Duration{1: time.Second, 2: 3 * time.Second, 3: 9 * time.Second, 4: 10 * time.Second} {
		require.Equal(t, want, other.Delay(attempt, nil), "attempt %d", attempt)
	}
	require.Equal(t, time.Hour, Backoff{Base: time.Hour, Jitter: -1}.Delay(5, nil), "a base above the default cap is the cap")
}

func TestJitterOnlyLengthens(t *testing.T) {
	always := func(f float64) func() float64 { return func() float64 { return f } }
	require.Equal(t, 500*time.Millisecond, Backoff{}.Delay(1, always(0)))
	require.Equal(t, 525*time.Millisecond, Backoff{}.Delay(1, always(0.5)))
	require.Equal(t, 750*time.Millisecond, Backoff{Jitter: 1}.Delay(1, always(0.5)))
	require.Equal(t, time.Second, Backoff{Jitter: 1}.Delay(1, always(7)), "a source out of range does no harm")
	require.Equal(t, 500*time.Millisecond, Backoff{Jitter: 1}.Delay(1, always(-7)))

	rapid.Check(t, func(t *rapid.T) {
		b := Backoff{
			Base:   time.Duration(rapid.Int64Range(1, math.MaxInt64).Draw(t, "base")),
			Factor: rapid.Float64Range(1, 100).Draw(t, "factor"),
			Jitter: rapid.Float64Range(0.01, 1).Draw(t, "jitter"),
		}
		attempt := rapid.IntRange(1, 1000).Draw(t, "attempt")
		shortest, longest := b.Delay(attempt, always(0)), b.Delay(attempt, always(1))
		d := b.Delay(attempt, nil)
		require.LessOrEqual(t, shortest, d)
		require.LessOrEqual(t, d, longest)
		require.Positive(t, d)
		require.LessOrEqual(t, shortest, b.Delay(attempt+1, always(0)), "never shorter than after fewer failures")
	})
}

func TestOptionsThatMakeNoSenseAreRefused(t *testing.T) {
	for _, b := range []Backoff{{}, {Jitter: 1}, {Jitter: -1, ForgetAfter: 122 * time.Second}, {Base: math.MaxInt64}} {
		require.NoError(t, b.Validate(), "%+v", b)
		require.LessOrEqual(t, b.Delay(math.MaxInt, nil), b.withDefaults().ForgetAfter)
	}
	for field, o := range map[string]Options{
		"Backoff.Base":          {Backoff: Backoff{Base: -1}},
		"Backoff.Factor":        {Backoff: Backoff{Factor: 0.5}},
		"Backoff.Cap":           {Backoff: Backoff{Base: 2 * time.Second, Cap: time.Second}},
		"Backoff.Jitter":        {Backoff: Backoff{Jitter: 1.5}},
		"Backoff.ForgetAfter":   {Backoff: Backoff{ForgetAfter: 134 * time.Second}},
		"Options.MaxConcurrent": {MaxConcurrent: -1},
		"Options.MaxPerNode":    {MaxPerNode: -1},
	} {
		_, err := NewOperations(o)
		var invalid *cache.InvalidError
		require.ErrorAs(t, err, &invalid, field)
		require.Equal(t, field, invalid.Field)
	}
	for _, b := range []Backoff{{Cap: -1}, {Factor: math.NaN()}, {Factor: math.Inf(1)}, {Factor: -2}, {Jitter: math.NaN()}, {Cap: time.Millisecond}, {ForgetAfter: -1}} {
		require.Error(t, b.Validate(), "%+v", b)
	}
}
