package nodestatus

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
	testclock "k8s.io/utils/clock/testing"

	"github.com/stateofworld/stateofworld/executor"
)

// A fake clock calls back with its own lock held, and so must find none of ours taken
// by someone who waits for the clock.
func TestTheInjectedClockTimesDeadlinesAndBackOff(t *testing.T) {
	clock := testclock.NewFakeClock(time.Unix(0, 0))
	world, sink := newWorld(), newRecorder()
	began := make(chan struct{}, 10)
	sink.answer(func(ctx context.Context, _ types.NodeName, call int) error {
		began <- struct{}{}
		if call == 1 {
			<-ctx.Done()
			return ctx.Err()
		}
		return nil
	})
	results := make(chan Result, 10)
	w, err := NewWriter(WriterConfig{
		Source: world, Sink: sink, Clock: clock, Timeout: time.Minute, OnResult: func(r Result) { results <- r },
		Backoff: executor.Backoff{Base: time.Second, Jitter: 0.5}, Rand: func() float64 { return 0.5 },
	})
	require.NoError(t, err)
	defer func() { require.NoError(t, w.Shutdown(t.Context())) }()

	version := world.set("a", "v")
	w.Changed("a")
	<-began
	clock.Step(time.Minute - 1)
	require.False(t, w.Idle())
	clock.Step(1)
	result := <-results
	require.ErrorIs(t, result.Err, executor.ErrTimeout)
	require.Equal(t, time.Minute, result.Took)
	require.Equal(t, clock.Now().Add(1250*time.Millisecond), result.NextTry)
	require.NoError(t, w.WaitIdle(t.Context()))

	clock.Step(1250*time.Millisecond - 1)
	require.True(t, w.Idle())
	clock.Step(1)
	require.NoError(t, w.Flush(t.Context(), "a", version))
	require.NoError(t, w.WaitIdle(t.Context()))
	require.False(t, clock.HasWaiters())
}
