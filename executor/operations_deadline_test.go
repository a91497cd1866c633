package executor

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	clocktesting "k8s.io/utils/clock/testing"
)

func TestDeadlineCancelsWithItsCause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOperations(t, Options{Timeout: time.Minute})
		for name, timeout := range map[string]time.Duration{"default": 0, "its own": time.Second} {
			t.Log(name)
			var cause error
			start := time.Now()
			r := run(t, o, Operation{Key: keyVA, Name: name, Timeout: timeout, Run: func(ctx context.Context) error {
				<-ctx.Done()
				cause = context.Cause(ctx)
				return ctx.Err()
			}})
			want := time.Minute
			if timeout != 0 {
				want = timeout
			}
			require.Equal(t, want, time.Since(start))
			require.Equal(t, ErrTimeout, cause)
			require.ErrorIs(t, r.Err, ErrTimeout)
			require.ErrorIs(t, r.Err, context.Canceled)
			require.ErrorIs(t, r.Err, context.DeadlineExceeded)
			require.Equal(t, Unknown, Classify(r.Err))
			require.Equal(t, 1, r.Info.Attempts)
		}
	})
}

func TestNegativeTimeoutIsNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOperations(t, Options{})
		r := run(t, o, Operation{Key: keyVA, Timeout: -1, Run: func(ctx context.Context) error {
			<-time.After(24 * time.Hour)
			require.NoError(t, ctx.Err())
			return nil
		}})
		require.NoError(t, r.Err)
		require.Zero(t, r.Info.Deadline)
	})
}

func TestOverdueOperationKeepsItsKeyAndGivesItsSlotBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOperations(t, Options{MaxConcurrent: 1, Timeout: time.Minute, Backoff: Backoff{Jitter: -1}})
		release := make(chan struct{})
		var late Result
		require.NoError(t, o.Start(ctx, Operation{Key: keyVA, Name: "attach", Run: until(release), Done: func(r Result) { late = r }}))
		var ran atomic.Bool
		require.NoError(t, o.Start(ctx, Operation{Key: Key{Volume: "w"}, Run: func(context.Context) error { ran.Store(true); return nil }}))
		pass(time.Minute - 1)
		require.False(t, ran.Load())
		pass(1)
		require.True(t, ran.Load(), "one stuck operation delays no other")
		info, ok := o.Pending(keyVA)
		require.True(t, ok)
		require.Equal(t, Overdue, info.Phase)
		pass(time.Hour)
		require.ErrorAs(t, o.Start(ctx, Operation{Key: Key{Volume: "v"}, Run: succeed}), new(*AlreadyExistsError))
		close(release)
		require.NoError(t, o.Wait(ctx))
		require.NoError(t, late.Err, "a late success is one")
		requireEmpty(t, o)
	})
}

func TestErrorMarkedByTheFunctionKeepsItsMeaningAfterTheDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOperations(t, Options{})
		r := run(t, o, Operation{Key: keyVA, Run: func(ctx context.Context) error {
			<-ctx.Done()
			return NothingHappened(ctx.Err())
		}})
		require.Equal(t, FailedForCertain, Classify(r.Err))
		require.ErrorIs(t, r.Err, ErrTimeout)
	})
}

func TestPrepareAndRunHaveADeadlineEach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOperations(t, Options{Timeout: time.Minute, MaxConcurrent: 1})
		release := make(chan struct{})
		require.NoError(t, o.Start(ctx, Operation{Key: Key{Volume: "w"}, Timeout: -1, Run: until(release)}))
		var result Result
		require.NoError(t, o.Start(ctx, Operation{
			Key:     keyVA,
			Prepare: func(context.Context) error { <-time.After(59 * time.Second); return nil },
			Run:     func(context.Context) error { <-time.After(59 * time.Second); return nil },
			Done:    func(r Result) { result = r },
		}))
		pass(10 * time.Minute)
		require.Equal(t, Queued, o.Pendings()[1].Phase)
		require.Zero(t, o.Pendings()[1].Deadline)
		// The timer of Prepare may have fired just before Prepare returned: by now that is nobody's deadline.
		queued := o.all.first.all.next
		o.expire(queued, 1)
		require.Equal(t, Queued, o.Pendings()[1].Phase)
		close(release)
		pass(59 * time.Second)
		require.NoError(t, result.Err)
		require.Equal(t, 10*time.Minute+59*time.Second, result.Took)
		require.Equal(t, 59*time.Second, result.Ran)
		requireEmpty(t, o)
	})
}

func TestPrepareThatFailsOrIsLateEndsTheOperation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOperations(t, Options{Timeout: time.Minute})
		never := func(context.Context) error { t.Error("ran"); return nil }
		require.Equal(t, errFail, run(t, o, Operation{Key: keyVA, Name: "1", Prepare: fail, Run: never}).Err)
		require.ErrorIs(t, run(t, o, Operation{Key: keyVA, Name: "2", Prepare: untilCancelled, Run: never}).Err, ErrTimeout)
		// One that is late, but says that all is well, goes on with a deadline of its own for Run.
		r := run(t, o, Operation{
			Key: keyVA, Name: "3",
			Prepare: func(ctx context.Context) error { <-time.After(time.Hour); require.Error(t, ctx.Err()); return nil },
			Run: func(ctx context.Context) error {
				require.NoError(t, ctx.Err())
				require.Equal(t, Running, o.Pendings()[0].Phase)
				return nil
			},
		})
		require.NoError(t, r.Err)
	})
}

// The fake clock calls back with its own lock held: the deadline must use neither the clock nor a lock under which it is used.
func TestDeadlineComesFromTheInjectedClock(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Unix(0, 0))
	o := newOperations(t, Options{Clock: clock, Timeout: time.Minute, MaxConcurrent: 1, Backoff: Backoff{Jitter: -1}})
	began, results := make(chan struct{}), make(chan Result)
	require.NoError(t, o.Start(ctx, Operation{Key: keyVA, Name: "attach", Run: func(ctx context.Context) error {
		close(began)
		return untilCancelled(ctx)
	}, Done: func(r Result) { results <- r }}))
	<-began
	require.NoError(t, o.Start(ctx, Operation{Key: Key{Volume: "w"}, Run: succeed, Done: func(r Result) { results <- r }}))
	clock.Step(time.Minute)
	var err error
	for range 2 {
		if r := <-results; r.Info.Key == keyVA {
			err = r.Err
			require.Equal(t, time.Unix(60, 0).Add(500*time.Millisecond), r.Info.NextTry)
		}
	}
	require.ErrorIs(t, err, ErrTimeout)
	require.NoError(t, o.Wait(ctx))
	require.False(t, clock.HasWaiters(), "no timer is left behind")
}
