package engine

import (
	"context"
	"iter"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	clocktesting "k8s.io/utils/clock/testing"
	"pgregory.net/rapid"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func mustNew[K comparable](t testing.TB, c Config[K]) *Engine[K] {
	t.Helper()
	e, err := New(c)
	require.NoError(t, err)
	return e
}

func TestNewRefusesABadConfiguration(t *testing.T) {
	_, err := New(Config[string]{})
	require.ErrorIs(t, err, ErrInvalidConfig)
	_, err = New(Config[string]{Evaluate: func(context.Context, string) time.Time { return time.Time{} }, Workers: -1})
	require.ErrorIs(t, err, ErrInvalidConfig)
}

func TestSingleStepEvaluatesInOrderAndOnce(t *testing.T) {
	var seen []string
	e := mustNew(t, Config[string]{Evaluate: func(_ context.Context, k string) time.Time {
		seen = append(seen, k)
		return time.Time{}
	}})
	for _, k := range []string{"b", "a", "b", "c", "a"} {
		e.Add(k)
	}
	require.Equal(t, 3, e.RunPending(t.Context()))
	require.Equal(t, []string{"b", "a", "c"}, seen)
	require.Zero(t, e.Len(), "a key that is done takes no memory")
	require.Zero(t, e.RunPending(t.Context()))
	require.EqualValues(t, 3, e.Evaluations())
}

func TestSingleStepLeavesWhatBecomesDueMeanwhile(t *testing.T) {
	var e *Engine[int]
	e = mustNew(t, Config[int]{Evaluate: func(_ context.Context, k int) time.Time {
		if k < 3 {
			e.Add(k + 1)
		}
		return time.Time{}
	}})
	e.Add(1)
	require.Equal(t, 1, e.RunPending(t.Context()))
	require.False(t, e.Idle())
	require.Equal(t, 1, e.RunPending(t.Context()))
	require.Equal(t, 1, e.RunPending(t.Context()))
	require.Zero(t, e.RunPending(t.Context()))
	require.True(t, e.Idle())
}

func TestAddDuringEvaluationEvaluatesOnceMore(t *testing.T) {
	var e *Engine[string]
	runs := 0
	e = mustNew(t, Config[string]{Evaluate: func(_ context.Context, k string) time.Time {
		if runs++; runs == 1 {
			e.Add(k)
			e.Add(k)
		}
		return time.Time{}
	}})
	e.Add("a")
	for e.RunPending(t.Context()) > 0 {
	}
	require.Equal(t, 2, runs)
}

func TestTheEarliestDueTimeWins(t *testing.T) {
	start := time.Unix(1000, 0)
	clock := clocktesting.NewFakeClock(start)
	var seen []string
	next := map[string]time.Time{}
	e := mustNew(t, Config[string]{Clock: clock, Evaluate: func(_ context.Context, k string) time.Time {
		seen = append(seen, k)
		return next[k]
	}})
	e.AddAt("late", start.Add(3*time.Second))
	e.AddAt("moved", start.Add(5*time.Second))
	e.AddAt("moved", start.Add(1*time.Second))
	e.AddAt("moved", start.Add(9*time.Second)) // later: no effect
	e.AddAt("same", start.Add(3*time.Second))
	e.AddAt("past", start.Add(-time.Second))
	next["past"] = start.Add(2 * time.Second) // what Evaluate returns is a due time too

	steps := map[int][]string{0: {"past"}, 1: {"moved"}, 2: {"past"}, 3: {"late", "same"}, 10: nil}
	for _, at := range []int{0, 1, 2, 3, 10} {
		seen = nil
		clock.SetTime(start.Add(time.Duration(at) * time.Second))
		e.RunPending(t.Context())
		require.Equal(t, steps[at], seen, "at second %d", at)
		if at == 2 {
			delete(next, "past")
			e.Add("past")
			e.RunPending(t.Context())
		}
	}
	require.Zero(t, e.Len())
	_, ok := e.NextDue()
	require.False(t, ok)
}

func TestRunWakesAtTheDueTimeAndOnlyThen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		var at []time.Duration
		e := mustNew(t, Config[string]{Evaluate: func(context.Context, string) time.Time {
			at = append(at, time.Since(start))
			if len(at) < 3 {
				return time.Now().Add(time.Hour)
			}
			return time.Time{}
		}})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- e.Run(ctx) }()
		e.AddAt("a", start.Add(time.Minute))
		<-time.After(24 * time.Hour) // of virtual time
		synctest.Wait()
		require.Equal(t, []time.Duration{time.Minute, time.Minute + time.Hour, time.Minute + 2*time.Hour}, at)
		require.ErrorIs(t, e.Run(ctx), ErrRunning)
		cancel()
		require.ErrorIs(t, <-done, context.Canceled)
	})
}

func TestAKeyIsNeverEvaluatedTwiceAtOnceAndNoAddIsLost(t *testing.T) {
	const keys, adders, rounds = 5, 4, 2000
	var running [keys]atomic.Int32
	var wanted, seen [keys]atomic.Int64
	e := mustNew(t, Config[int]{Workers: 4, Evaluate: func(_ context.Context, k int) time.Time {
		if running[k].Add(1) != 1 {
			panic("two evaluations of one key at once")
		}
		seen[k].Store(wanted[k].Load())
		running[k].Add(-1)
		return time.Time{}
	}})
	ctx, cancel := context.WithCancel(t.Context())
	var run, add sync.WaitGroup
	run.Go(func() { _ = e.Run(ctx) })
	for a := range adders {
		add.Go(func() {
			for i := range rounds {
				k := (i + a) % keys
				wanted[k].Add(1)
				e.Add(k)
			}
		})
	}
	add.Wait()
	require.Eventually(t, e.Idle, 10*time.Second, 100*time.Microsecond)
	for k := range keys {
		require.Equal(t, wanted[k].Load(), seen[k].Load(), "the last add of key %d was seen", k)
	}
	cancel()
	run.Wait()
	require.Zero(t, e.Len())
}

func TestAuditAddsEveryKeyNowAndThen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		counts := map[int]int{}
		e := mustNew(t, Config[int]{
			Evaluate: func(_ context.Context, k int) time.Time {
				mu.Lock()
				defer mu.Unlock()
				counts[k]++
				return time.Time{}
			},
			Audit:       func() iter.Seq[int] { return slices.Values([]int{1, 2, 3}) },
			AuditPeriod: time.Minute,
		})
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute+30*time.Second)
		defer cancel()
		require.ErrorIs(t, e.Run(ctx), context.DeadlineExceeded)
		for _, k := range []int{1, 2, 3} {
			require.InDelta(t, 10, counts[k], 1, "ten minutes, one audit each, jittered by a tenth")
		}
	})
}

func TestRunCanBeContinued(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen atomic.Int32
		e := mustNew(t, Config[string]{Evaluate: func(context.Context, string) time.Time {
			seen.Add(1)
			return time.Time{}
		}})
		for i := range 3 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			e.Add("a")
			require.Error(t, e.Run(ctx))
			cancel()
			require.EqualValues(t, i+1, seen.Load())
		}
	})
}

func TestMemoryGoesBackAfterABurst(t *testing.T) {
	start := time.Unix(0, 0)
	clock := clocktesting.NewFakeClock(start)
	e := mustNew(t, Config[int]{Clock: clock, Evaluate: func(context.Context, int) time.Time { return time.Time{} }})
	for i := range 10 * maxFree {
		e.Add(i)
		e.AddAt(-i-1, start.Add(time.Minute))
	}
	clock.Step(time.Hour)
	require.Equal(t, 20*maxFree, e.RunPending(t.Context()))
	require.Zero(t, e.Len())
	require.LessOrEqual(t, len(e.free), maxFree)
	require.LessOrEqual(t, cap(e.ready.buf), maxFree)
	require.LessOrEqual(t, cap(e.waiting), maxFree)
}

// The naive model: a set of keys that are due, and a time for each that waits.
func TestQueueAgreesWithANaiveModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		now := time.Unix(0, 0)
		clock := clocktesting.NewFakeClock(now)
		var got []int
		next := map[int]time.Time{}
		e, err := New(Config[int]{Clock: clock, Evaluate: func(_ context.Context, k int) time.Time {
			got = append(got, k)
			at := next[k]
			delete(next, k)
			return at
		}})
		require.NoError(t, err)
		due := map[int]time.Time{} // a time that is not after now is due
		add := func(k int, at time.Time) {
			if old, ok := due[k]; !ok || at.Before(old) {
				due[k] = at
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"add": func(t *rapid.T) {
				k := rapid.IntRange(0, 5).Draw(t, "key")
				e.Add(k)
				add(k, now)
			},
			"addAt": func(t *rapid.T) {
				k, s := rapid.IntRange(0, 5).Draw(t, "key"), rapid.IntRange(-2, 5).Draw(t, "seconds")
				e.AddAt(k, now.Add(time.Duration(s)*time.Second))
				add(k, now.Add(time.Duration(s)*time.Second))
			},
			"again": func(t *rapid.T) {
				next[rapid.IntRange(0, 5).Draw(t, "key")] = now.Add(time.Duration(rapid.IntRange(1, 5).Draw(t, "seconds")) * time.Second)
			},
			"tick": func(*rapid.T) {
				now = now.Add(time.Second)
				clock.SetTime(now)
			},
			"run": func(t *rapid.T) {
				want := map[int]bool{}
				for k, at := range due {
					if !at.After(now) {
						want[k] = true
						delete(due, k)
						if again, ok := next[k]; ok && again.After(now) {
							due[k] = again
						} else if ok {
							due[k] = now
						}
					}
				}
				got = nil
				e.RunPending(context.Background())
				require.Len(t, got, len(want))
				for _, k := range got {
					require.True(t, want[k], "key %d was not due", k)
				}
				require.Equal(t, len(due), e.Len())
			},
		})
	})
}
