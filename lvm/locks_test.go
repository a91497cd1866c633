package lvm

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/stateofworld/stateofworld/executor/command"
)

func TestLockWaitsForItsKeyAndNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l locks
		release, err := l.acquire(t.Context(), "vg0")
		require.NoError(t, err)
		other, err := l.acquire(t.Context(), "vg1")
		require.NoError(t, err)
		other(nil)

		var got atomic.Bool
		go func() {
			second, err := l.acquire(t.Context(), "vg0")
			if err == nil {
				got.Store(true)
				second(nil)
			}
		}()
		synctest.Wait()
		require.False(t, got.Load())
		release(nil)
		synctest.Wait()
		require.True(t, got.Load())
		require.Empty(t, l.keys, "what nobody holds takes no memory")
	})
}

func TestLockGivesUpWithTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l locks
		release, err := l.acquire(t.Context(), "vg0")
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err = l.acquire(ctx, "vg0")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		var timeout *command.TimeoutError
		require.ErrorAs(t, err, &timeout)
		require.False(t, timeout.Started, "nothing ran")
		_, err = l.acquire(ctx, "vg1")
		require.ErrorIs(t, err, context.DeadlineExceeded, "not even a free one")
		release(nil)
		release, err = l.acquire(t.Context(), "vg0")
		require.NoError(t, err)
		release(nil)
		require.Empty(t, l.keys)
	})
}

// L20: a command that cannot be killed keeps its group, and no other, until it has gone.
func TestLockStaysTakenByWhatCannotBeKilled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l locks
		release, err := l.acquire(t.Context(), "vg0")
		require.NoError(t, err)
		gone := make(chan struct{})
		release(gone)
		require.Len(t, l.keys, 1)
		for range 2 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			_, err = l.acquire(ctx, "vg0")
			cancel()
			require.ErrorIs(t, err, context.DeadlineExceeded)
		}
		other, err := l.acquire(t.Context(), "vg1")
		require.NoError(t, err)
		other(nil)
		close(gone)
		release, err = l.acquire(t.Context(), "vg0")
		require.NoError(t, err)
		release(nil)
		require.Empty(t, l.keys)
	})
}

func TestReportsAreSharedAndEndWithTheLastWaiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s flights
		var runs atomic.Int32
		ended := make(chan error, 10)
		gate := make(chan struct{})
		f := func(ctx context.Context) (command.Result, error) {
			runs.Add(1)
			select {
			case <-gate:
				return command.Result{Stdout: []byte("x")}, nil
			case <-ctx.Done():
				ended <- ctx.Err()
				return command.Result{}, &command.TimeoutError{Started: true, Err: ctx.Err()}
			}
		}
		ask := func(ctx context.Context, vg string, f func(context.Context) (command.Result, error)) chan error {
			done := make(chan error, 1)
			go func() {
				result, err := s.do(ctx, []string{"lvs", vg}, vg, f)
				if err == nil && string(result.Stdout) != "x" {
					t.Error("someone else's answer")
				}
				done <- err
			}()
			return done
		}
		first, cancelFirst := context.WithCancel(t.Context())
		a := ask(first, "vg0", f)
		synctest.Wait()
		b := ask(t.Context(), "vg0", f)
		synctest.Wait()
		require.EqualValues(t, 1, runs.Load())

		cancelFirst()
		require.ErrorIs(t, <-a, context.Canceled)
		require.Empty(t, ended, "it runs on for the other")

		// After a change, nobody may be given what was seen before it.
		s.forget("vg1")
		c := ask(t.Context(), "vg0", f)
		synctest.Wait()
		require.EqualValues(t, 1, runs.Load())
		s.forget("vg0")
		d := ask(t.Context(), "vg0", f)
		synctest.Wait()
		require.EqualValues(t, 2, runs.Load())
		close(gate)
		for _, done := range []chan error{b, c, d} {
			require.NoError(t, <-done)
		}
		require.Empty(t, s.running)

		gate = make(chan struct{})
		last, cancelLast := context.WithTimeout(t.Context(), time.Minute)
		defer cancelLast()
		require.ErrorIs(t, <-ask(last, "vg0", f), context.DeadlineExceeded)
		require.ErrorIs(t, <-ended, context.Canceled)
		require.Empty(t, s.running)
	})
}

func TestReportThatCannotBeKilledIsNotRunAgainBeforeItHasGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s flights
		gone := make(chan struct{})
		runs := 0
		f := func(ctx context.Context) (command.Result, error) {
			runs++
			if runs > 1 {
				return command.Result{}, nil
			}
			<-ctx.Done()
			return command.Result{}, &Error{Err: &command.TimeoutError{Started: true, Err: ctx.Err(), Exited: gone}}
		}
		for range 3 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			_, err := s.do(ctx, []string{"lvs", "vg0"}, "vg0", f)
			cancel()
			require.ErrorIs(t, err, context.DeadlineExceeded)
		}
		require.Equal(t, 1, runs)
		close(gone)
		_, err := s.do(t.Context(), []string{"lvs", "vg0"}, "vg0", f)
		require.NoError(t, err)
		require.Equal(t, 2, runs)
		require.Empty(t, s.stuck)
	})
}
