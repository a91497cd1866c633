package executor

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

func TestCapsLimitWhatRunsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOperations(t, Options{MaxConcurrent: 5, MaxPerNode: 2})
		var now, most atomic.Int32
		for i := range 100 {
			require.NoError(t, o.Start(ctx, Operation{
				Key: Key{Volume: v1.UniqueVolumeName(fmt.Sprint(i))}, Node: types.NodeName(fmt.Sprint(i % 10)),
				Run: func(context.Context) error {
					n := now.Add(1)
					for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
					}
					<-time.After(time.Second)
					now.Add(-1)
					return nil
				},
			}))
		}
		start := time.Now()
		require.NoError(t, o.Wait(ctx))
		require.EqualValues(t, 5, most.Load())
		require.Equal(t, 20*time.Second, time.Since(start), "no slot is left unused")
		requireEmpty(t, o)
	})
}

func TestPrepareAndBackOffHoldNoSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOperations(t, Options{MaxConcurrent: 1, MaxPerNode: 1})
		release := make(chan struct{})
		require.NoError(t, o.Start(ctx, Operation{Key: keyVA, Prepare: until(release), Run: succeed}))
		run(t, o, Operation{Key: Key{Volume: "w", Node: "a"}, Name: "attach", Run: fail})
		require.NoError(t, run(t, o, Operation{Key: Key{Volume: "x", Node: "a"}, Run: succeed}).Err)
		close(release)
		require.NoError(t, o.Wait(ctx))
	})
}

func TestBackgroundOperationsDelayNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOperations(t, Options{MaxConcurrent: 1, MaxBackground: 2})
		release := make(chan struct{})
		for i := range 5 {
			require.NoError(t, o.Start(ctx, Operation{Key: Key{Volume: v1.UniqueVolumeName(fmt.Sprint(i))}, Background: true, Run: until(release)}))
		}
		synctest.Wait()
		require.NoError(t, run(t, o, Operation{Key: keyVA, Run: succeed}).Err)
		phases := map[Phase]int{}
		for _, info := range o.Pendings() {
			phases[info.Phase]++
		}
		require.Equal(t, map[Phase]int{Running: 2, Queued: 3}, phases)
		close(release)
		require.NoError(t, o.Wait(ctx))
		requireEmpty(t, o)
	})
}

func TestQueuedOperationEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOperations(t, Options{MaxConcurrent: 1})
		release := make(chan struct{})
		require.NoError(t, o.Start(ctx, Operation{Key: Key{Volume: "w"}, Run: until(release)}))
		reason := errors.New("lost leadership")
		parent, cancel := context.WithCancelCause(ctx)
		var result Result
		completed := false
		require.NoError(t, o.Start(parent, Operation{
			Key: keyVA, Name: "attach",
			Run:      func(context.Context) error { t.Error("ran"); return nil },
			Complete: func(err error) error { completed = true; return err },
			Done:     func(r Result) { result = r },
		}))
		synctest.Wait()
		cancel(reason)
		synctest.Wait()
		require.True(t, completed)
		require.ErrorIs(t, result.Err, reason)
		require.Equal(t, Refused, Classify(result.Err), "it is certain that nothing was done")
		require.Zero(t, result.Info.Attempts)
		require.False(t, o.IsOperationPending(keyVA))
		close(release)
		require.NoError(t, o.Wait(ctx))
		requireEmpty(t, o)
	})
}

// watchedContext counts who waits for its end.
type watchedContext struct {
	context.Context
	watchers atomic.Int32
}

// Value hides the standard context inside, whose own list of watchers would be used otherwise.
func (c *watchedContext) Value(any) any { return nil }

func (c *watchedContext) AfterFunc(f func()) (stop func() bool) {
	c.watchers.Add(1)
	unwatch := context.AfterFunc(c.Context, f)
	return func() bool {
		c.watchers.Add(-1)
		return unwatch()
	}
}

func TestOperationThatHasLeftTheQueueWatchesItsContextNoMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOperations(t, Options{MaxConcurrent: 1})
		parent, cancel := context.WithCancel(ctx)
		defer cancel()
		watched := &watchedContext{Context: parent}
		release := make(chan struct{})
		require.NoError(t, o.Start(ctx, Operation{Key: Key{Volume: "w"}, Run: until(release)}))
		var before, running, during int32
		require.NoError(t, o.Start(watched, Operation{Key: keyVA, Run: func(ctx context.Context) error {
			running = watched.watchers.Load()
			ctx.Done()
			during = watched.watchers.Load()
			return nil
		}}))
		before = watched.watchers.Load()
		close(release)
		require.NoError(t, o.Wait(ctx))
		require.EqualValues(t, 1, before)
		require.Zero(t, running, "Run has not asked for the end of its context yet")
		require.EqualValues(t, 1, during, "the context of Run")
		require.Zero(t, watched.watchers.Load())
	})
}

func TestQueuedOperationRunsWithItsContextAlive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOperations(t, Options{MaxConcurrent: 1})
		release := make(chan struct{})
		require.NoError(t, o.Start(ctx, Operation{Key: Key{Volume: "w"}, Run: until(release)}))
		parent, cancel := context.WithCancel(ctx)
		defer cancel()
		ran := false
		require.NoError(t, o.Start(parent, Operation{Key: keyVA, Run: func(ctx context.Context) error {
			ran = true
			return ctx.Err()
		}}))
		queued := o.all.last
		close(release)
		require.NoError(t, o.Wait(ctx))
		require.True(t, ran)
		o.leaveQueue(queued) // the end of its context came together with its turn: too late
		requireEmpty(t, o)
	})
}

// E3, kubernetes/kubernetes#109047: Wait returns although operations failed, and wakes everyone.
func TestWaitReturnsForAllWaitersAlsoAfterFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOperations(t, Options{})
		require.NoError(t, o.Wait(ctx), "nothing to wait for")
		release := make(chan struct{})
		doneReturned := false
		require.NoError(t, o.Start(ctx, Operation{
			Key: keyVA, Name: "attach",
			Run:  func(context.Context) error { <-release; return errFail },
			Done: func(Result) { <-time.After(time.Second); doneReturned = true },
		}))
		var returned atomic.Int32
		for range 10 {
			go func() {
				if o.Wait(ctx) == nil {
					returned.Add(1)
				}
			}()
		}
		synctest.Wait()
		limited, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		err := o.Wait(limited)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, `1 operations have not ended yet`)
		require.ErrorContains(t, err, `"attach" on volume "v", node "a", running`)
		require.Zero(t, returned.Load())
		close(release)
		synctest.Wait()
		require.False(t, o.IsOperationPending(keyVA))
		require.Equal(t, 1, o.Live(), "its Done has not returned")
		require.NoError(t, o.Wait(ctx))
		require.Zero(t, o.Live())
		require.True(t, doneReturned)
		synctest.Wait()
		require.EqualValues(t, 10, returned.Load())
	})
}

func TestShutdownCancelsRefusesAndWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOperations(t, Options{MaxConcurrent: 2})
		var results []Result
		done := make(chan Result, 10)
		start := func(volume v1.UniqueVolumeName, op Operation) {
			op.Key = Key{Volume: volume}
			op.Done = func(r Result) { done <- r }
			require.NoError(t, o.Start(ctx, op))
		}
		release, prepared := make(chan struct{}), make(chan struct{})
		start("stuck", Operation{Run: until(release)})
		start("stuck too", Operation{Run: until(release)})
		start("prepares", Operation{Prepare: untilCancelled, Run: func(context.Context) error { t.Error("ran"); return nil }})
		start("prepared", Operation{Prepare: until(prepared), Run: func(context.Context) error { t.Error("ran"); return nil }})
		start("obeys", Operation{Background: true, Run: untilCancelled})
		for i := range 3 {
			start(v1.UniqueVolumeName(fmt.Sprint("queued", i)), Operation{Run: func(context.Context) error { t.Error("ran"); return nil }})
		}
		synctest.Wait()
		limited, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		require.ErrorIs(t, o.Shutdown(limited), context.DeadlineExceeded)
		require.ErrorIs(t, o.Start(ctx, Operation{Key: Key{Volume: "new"}, Run: succeed}), ErrShutdown)
		require.Len(t, o.Pendings(), 3, "stuck, stuck too, and prepared")
		close(prepared)
		synctest.Wait()
		require.Len(t, o.Pendings(), 2, "no slot is needed to end")
		close(release)
		require.NoError(t, o.Shutdown(ctx))
		require.NoError(t, o.Shutdown(ctx), "again")
		close(done)
		outcomes := map[v1.UniqueVolumeName]Outcome{}
		for r := range done {
			results = append(results, r)
			outcomes[r.Info.Key.Volume] = Classify(r.Err)
			if outcomes[r.Info.Key.Volume] != Done {
				require.ErrorIs(t, r.Err, ErrShutdown)
			}
		}
		require.Len(t, results, 8)
		require.Equal(t, map[v1.UniqueVolumeName]Outcome{
			"obeys": Unknown, "stuck": Done, "stuck too": Done, "prepares": Unknown, "prepared": Refused,
			"queued0": Refused, "queued1": Refused, "queued2": Refused,
		}, outcomes)
	})
}

func TestShutdownDuringCheckStartsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, limit := range []int{0, 1} {
			o := newOperations(t, Options{MaxConcurrent: limit})
			var result Result
			err := o.Start(ctx, Operation{
				Key: keyVA,
				Check: func() error {
					limited, cancel := context.WithTimeout(ctx, time.Second)
					defer cancel()
					require.ErrorIs(t, o.Shutdown(limited), context.DeadlineExceeded)
					return nil
				},
				Run:  func(context.Context) error { t.Error("ran"); return nil },
				Done: func(r Result) { result = r },
			})
			require.NoError(t, err)
			require.NoError(t, o.Wait(ctx))
			require.ErrorIs(t, result.Err, ErrShutdown)
			require.Equal(t, Refused, Classify(result.Err))
			requireEmpty(t, o)
		}
	})
}

func TestCallbackThatEndsItsGoroutineDoesNotStopShutdown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOperations(t, Options{MaxConcurrent: 1})
		require.NoError(t, o.Start(ctx, Operation{Key: keyVA, Run: untilCancelled}))
		for i := range 3 {
			require.NoError(t, o.Start(ctx, Operation{
				Key: Key{Volume: v1.UniqueVolumeName(fmt.Sprint(i))}, Run: succeed,
				Complete: func(error) error { endGoroutine(); return nil },
			}))
		}
		require.NoError(t, o.Shutdown(ctx))
		pending, _ := o.Sizes()
		require.Zero(t, pending)
	})
}

func TestDoneMayStartTheNext(t *testing.T) {
	o := newOperations(t, Options{MaxConcurrent: 1})
	left := 100
	var next func(Result)
	next = func(Result) {
		if left--; left > 0 {
			require.NoError(t, o.Start(ctx, Operation{Key: keyVA, Run: succeed, Done: next}))
		}
	}
	next(Result{})
	require.NoError(t, o.Wait(ctx))
	require.Zero(t, left)
	requireEmpty(t, o)
}
