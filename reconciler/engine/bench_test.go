package engine

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"
)

// An add and its evaluation, with n other keys waiting.
func BenchmarkAddAndEvaluate(b *testing.B) {
	for _, n := range []int{1_000, 10_000, 100_000} {
		b.Run(fmt.Sprintf("waiting=%d", n), func(b *testing.B) {
			e := mustNew(b, Config[int]{Evaluate: func(context.Context, int) time.Time { return time.Time{} }})
			later := time.Now().Add(time.Hour)
			for i := range n {
				e.AddAt(-i-1, later.Add(time.Duration(i)))
			}
			b.ReportAllocs()
			for b.Loop() {
				e.Add(1)
				e.RunPending(b.Context())
			}
		})
	}
}

// From Add to Evaluate while a loop with nothing to do runs.
func BenchmarkAddToEvaluateLatency(b *testing.B) {
	woken := make(chan time.Time, 1)
	e := mustNew(b, Config[int]{Evaluate: func(context.Context, int) time.Time {
		woken <- time.Now()
		return time.Time{}
	}})
	ctx, cancel := context.WithCancel(b.Context())
	done := make(chan struct{})
	go func() { defer close(done); _ = e.Run(ctx) }()
	var took []time.Duration
	for b.Loop() {
		start := time.Now()
		e.Add(1)
		took = append(took, (<-woken).Sub(start))
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Nanoseconds()), "p50-ns")
	b.ReportMetric(float64(took[len(took)*99/100].Nanoseconds()), "p99-ns")
	cancel()
	<-done
}

func TestAddAndEvaluateAllocateNothing(t *testing.T) {
	e := mustNew(t, Config[int]{Evaluate: func(context.Context, int) time.Time { return time.Time{} }})
	later := time.Now().Add(time.Hour)
	e.AddAt(2, later)
	require := func(what string, f func()) {
		t.Helper()
		if n := testing.AllocsPerRun(1000, f); n != 0 {
			t.Errorf("%s allocates %v times", what, n)
		}
	}
	ctx := t.Context()
	require("an add and its evaluation", func() { e.Add(1); e.RunPending(ctx) })
	require("a pass with nothing due", func() { e.RunPending(ctx) })
}
