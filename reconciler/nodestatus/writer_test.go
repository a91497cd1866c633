package nodestatus

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/stateofworld/stateofworld/cache"
	"github.com/stateofworld/stateofworld/executor"
)

var errAPI = errors.New("the API server is away")

func fails(context.Context, types.NodeName, int) error { return errAPI }

func notFound(context.Context, types.NodeName, int) error {
	return apierrors.NewNotFound(v1.Resource("nodes"), "gone")
}

func takes(d time.Duration) func(context.Context, types.NodeName, int) error {
	return func(ctx context.Context, _ types.NodeName, _ int) error { return after(ctx, d) }
}

func TestNewWriterNamesWhatIsWrong(t *testing.T) {
	ok := WriterConfig{Source: newWorld(), Sink: newRecorder()}
	for field, spoil := range map[string]func(*WriterConfig){
		"Source":        func(c *WriterConfig) { c.Source = nil },
		"Sink":          func(c *WriterConfig) { c.Sink = nil },
		"Timeout":       func(c *WriterConfig) { c.Timeout = -1 },
		"MaxConcurrent": func(c *WriterConfig) { c.MaxConcurrent = -1 },
		"Backoff.Base":  func(c *WriterConfig) { c.Backoff.Base = -1 },
	} {
		c := ok
		spoil(&c)
		w, err := NewWriter(c)
		require.Nil(t, w, field)
		var invalid *cache.InvalidError
		require.ErrorAs(t, err, &invalid, field)
		require.Equal(t, field, invalid.Field)
	}
	w, err := NewWriter(ok) // everything else has a default
	require.NoError(t, err)
	require.NoError(t, w.Shutdown(t.Context()))
}

func TestAnEmptyNodeNameIsRefused(t *testing.T) {
	inBubble(t, WriterConfig{}, func(b *bench) {
		b.world.set("", "v")
		b.Changed("")
		b.Force("")
		b.NodeAdded("")
		require.ErrorIs(t, b.Flush(b.Context(), "", 1), cache.ErrInvalid)
		b.requireCalls()
		require.Zero(t, b.Len())
	})
}

func TestChangesDuringAWriteBecomeOneMoreWriteOfTheNewest(t *testing.T) {
	inBubble(t, WriterConfig{}, func(b *bench) {
		b.sink.answer(takes(time.Second))
		b.report("a", "v1")
		b.requireCalls("a: v1")
		for i := range 50 {
			b.report("a", "v1", v1.UniqueVolumeName(fmt.Sprint("w", i)))
		}
		b.requireCalls()
		require.NoError(t, b.WaitIdle(b.Context()))
		b.requireCalls("a: v1 w49")
		version, err := b.Written("a")
		require.NoError(t, err)
		require.Equal(t, uint64(51), version)
	})
}

// P2, kubernetes/kubernetes#134175: status writes must not cap the detaches.
func TestWritesOfDifferentNodesRunTogetherAndNeverTwoForOneNode(t *testing.T) {
	inBubble(t, WriterConfig{}, func(b *bench) {
		b.sink.answer(takes(20 * time.Millisecond))
		start := time.Now()
		var flushes []*flushing
		for i := range 1000 {
			node := types.NodeName(fmt.Sprint("node-", i%100))
			flushes = append(flushes, b.flush(node, b.report(node, v1.UniqueVolumeName(fmt.Sprint("v", i)))))
		}
		require.NoError(t, b.WaitIdle(b.Context()))
		took := time.Since(start)
		for _, f := range flushes {
			b.requireFlushed(f)
		}
		// 100 nodes, 32 at a time, with one write each and perhaps one more.
		require.LessOrEqual(t, took, 8*20*time.Millisecond)
		require.LessOrEqual(t, len(b.sink.take()), 200)
		require.Equal(t, DefaultMaxConcurrent, b.sink.mostTotal)
	})
}

// P2, kubernetes/kubernetes#134175: one node's Write hangs, the other 99 are not delayed.
func TestANodeThatHangsDelaysNoOther(t *testing.T) {
	inBubble(t, WriterConfig{}, func(b *bench) {
		hang := make(chan struct{})
		b.sink.answer(func(_ context.Context, node types.NodeName, _ int) error {
			if node == "node-0" {
				<-hang // not even the context helps
			}
			return nil
		})
		var flushes []*flushing
		for i := range 100 {
			node := types.NodeName(fmt.Sprint("node-", i))
			flushes = append(flushes, b.flush(node, b.report(node, "v")))
		}
		for _, f := range flushes[1:] {
			b.requireFlushed(f) // and no time has passed
		}
		b.requireWaits(flushes[0])
		require.False(t, b.Idle())
		require.Equal(t, []types.NodeName{"node-0"}, b.Pending())

		pass(DefaultTimeout)
		b.requireFlushError(flushes[0], executor.ErrTimeout)
		require.False(t, b.Idle(), "the write has not returned")
		close(hang)
		require.NoError(t, b.WaitIdle(b.Context()))
	})
}

func TestAWritePastItsTimeoutGivesItsPlaceBackButKeepsItsNode(t *testing.T) {
	inBubble(t, WriterConfig{MaxConcurrent: 1, Timeout: time.Second}, func(b *bench) {
		hang := make(chan struct{})
		b.sink.answer(func(_ context.Context, node types.NodeName, call int) error {
			if node == "a" && call == 1 {
				<-hang
			}
			return nil
		})
		b.report("a", "v")
		b.settle()
		b.report("b", "w")
		b.requireCalls("a: v")
		pass(time.Second)
		b.requireCalls("b: w")

		version := b.report("a", "v", "x")
		f := b.flush("a", version)
		b.requireWaits(f)
		b.requireCalls() // never two in flight for one node
		close(hang)
		b.requireFlushed(f)
		b.requireCalls("a: v x")
	})
}

func TestTimeoutCancelsTheContextAndSaysSo(t *testing.T) {
	inBubble(t, WriterConfig{Timeout: 3 * time.Second}, func(b *bench) {
		b.sink.answer(takes(time.Hour))
		f := b.flush("a", b.report("a", "v"))
		pass(3 * time.Second)
		b.requireFlushError(f, executor.ErrTimeout)
		b.settle()
		require.Len(t, b.results, 1)
		require.ErrorIs(t, b.results[0].Err, executor.ErrTimeout)
		require.ErrorIs(t, b.results[0].Err, context.Canceled)
		require.Equal(t, 3*time.Second, b.results[0].Took)
		require.True(t, b.Idle(), "a node in back-off is not due")
		require.Equal(t, []types.NodeName{"a"}, b.Pending())
	})
}

// T1, kubernetes/kubernetes#107973
func TestOneNodesFailureConcernsNoOther(t *testing.T) {
	inBubble(t, WriterConfig{}, func(b *bench) {
		b.sink.answer(func(_ context.Context, node types.NodeName, call int) error {
			pass(time.Millisecond)
			if node == "a" && call == 1 {
				return errAPI
			}
			return nil
		})
		a := b.flush("a", b.report("a", "v"))
		bb := b.flush("b", b.report("b", "v"))
		c := b.flush("c", b.report("c", "v"))
		b.settle()
		pass(time.Millisecond)
		b.requireFlushed(bb)
		b.requireFlushed(c)
		b.requireFlushError(a, errAPI)
		_, err := a.outcome()
		require.ErrorContains(t, err, `"a"`)
		b.requireCalls("a: v", "b: v", "c: v")
		pass(time.Second + time.Millisecond)
		b.requireCalls("a: v")
		_, err = b.Written("a")
		require.NoError(t, err)
	})
}

func TestFailuresBackOffUntilAWriteSucceeds(t *testing.T) {
	inBubble(t, WriterConfig{}, func(b *bench) {
		start := time.Now()
		var at []time.Duration
		b.sink.answer(func(_ context.Context, _ types.NodeName, call int) error {
			at = append(at, time.Since(start))
			if call != 4 {
				return errAPI
			}
			return nil
		})
		b.report("a", "v")
		pass(time.Hour)
		b.settle()
		require.Equal(t, []time.Duration{0, time.Second, 3 * time.Second, 7 * time.Second}, at)
		require.Len(t, b.results, 4)
		require.Equal(t, []int{1, 2, 3, 0}, []int{b.results[0].Attempts, b.results[1].Attempts, b.results[2].Attempts, b.results[3].Attempts})
		require.Equal(t, start.Add(3*time.Second), b.results[1].NextTry)
		require.Zero(t, b.results[3].NextTry)
		require.Empty(t, b.Pending())

		b.report("a", "w")
		b.settle()
		require.Equal(t, 1, b.results[4].Attempts, "a success forgets the failures")
	})
}

func TestChangesDoNotBreakTheBackOff(t *testing.T) {
	inBubble(t, WriterConfig{}, func(b *bench) {
		b.sink.answer(fails)
		b.report("a", "v")
		b.requireCalls("a: v")
		b.sink.answer(nil)
		b.report("a", "v", "w")
		b.Force("a")
		b.requireCalls()
		pass(time.Second)
		b.requireCalls("a: v w")
	})
}

// T2, kubernetes/kubernetes#111000: the volume is out of the list for a detach, the
// write fails, the pod comes back: the list must be written again, although it is the
// one that was written last with success.
func TestAfterAFailureTheNextVersionIsWrittenEvenIfEqual(t *testing.T) {
	inBubble(t, WriterConfig{}, func(b *bench) {
		b.report("a", "v")
		b.requireCalls("a: v")
		b.sink.answer(func(ctx context.Context, _ types.NodeName, _ int) error { return after(ctx, time.Hour) })
		f := b.flush("a", b.report("a"))
		pass(DefaultTimeout)
		b.requireFlushError(f, executor.ErrTimeout)
		b.requireCalls("a: ")
		b.sink.answer(nil)
		b.report("a", "v")
		pass(time.Second)
		b.requireCalls("a: v")
		require.Equal(t, "v", b.sink.stored["a"])
	})
}

// T3, kubernetes/kubernetes#88565
func TestAnEqualListIsNotWrittenAgain(t *testing.T) {
	inBubble(t, WriterConfig{}, func(b *bench) {
		b.report("a", "v", "w")
		b.requireCalls("a: v w")
		for range 100 {
			version := b.report("a", "v", "w")
			b.requireFlushed(b.flush("a", version))
			written, err := b.Written("a")
			require.NoError(t, err)
			require.Equal(t, version, written)
		}
		b.requireCalls()
	})
}

func TestForceWritesAnEqualList(t *testing.T) {
	inBubble(t, WriterConfig{}, func(b *bench) {
		b.report("a", "v")
		b.requireCalls("a: v")
		b.Force("a")
		b.requireCalls("a: v")
		b.report("a", "v")
		b.requireCalls()
		b.Force("never-heard-of")
		b.requireCalls()
	})
}

// N1, kubernetes/kubernetes#50721
func TestAMissingNodeGetsOneTryForEachVersion(t *testing.T) {
	inBubble(t, WriterConfig{}, func(b *bench) {
		b.sink.answer(notFound)
		version := b.report("a", "w")
		b.requireFlushed(b.flush("a", version)) // nobody can read that report
		for range 100 {
			b.Changed("a")
			b.requireFlushed(b.flush("a", version))
			pass(time.Minute)
		}
		b.requireCalls("a: w")
		require.Empty(t, b.Pending())
		require.Equal(t, 1, b.Len())
		_, err := b.Written("a")
		require.True(t, apierrors.IsNotFound(err))
		require.True(t, b.results[0].Missing)

		b.requireFlushed(b.flush("a", b.report("a", "w", "x")))
		b.requireCalls("a: w x")

		b.sink.answer(nil)
		b.NodeAdded("a")
		b.requireCalls("a: w x")
		pass(time.Hour)
		b.requireCalls()
	})
}

func TestErrNodeNotFoundOfASinkMeansMissingToo(t *testing.T) {
	inBubble(t, WriterConfig{}, func(b *bench) {
		b.sink.answer(func(context.Context, types.NodeName, int) error { return fmt.Errorf("sink: %w", ErrNodeNotFound) })
		b.requireFlushed(b.flush("a", b.report("a", "w")))
		pass(time.Hour)
		b.requireCalls("a: w")
	})
}

// N1, kubernetes/kubernetes#49549
func TestNodeAddedForcesExactlyOneFullWriteIfThereIsSomethingToSay(t *testing.T) {
	inBubble(t, WriterConfig{}, func(b *bench) {
		b.world.set("without-volumes") // the source may number from more than zero
		b.NodeAdded("without-volumes")
		b.Force("without-volumes")
		require.True(t, b.Idle(), "not even a look, be there ten thousand nodes")
		b.requireCalls()
		require.Zero(t, b.Len())

		b.world.set("unseen", "v") // reported while nobody told the Writer
		b.NodeAdded("unseen")
		b.requireCalls("unseen: v")

		b.NodeAdded("unseen")
		b.requireCalls("unseen: v")
		pass(time.Hour)
		b.requireCalls()
	})
}

func TestNodeAddedEndsTheBackOff(t *testing.T) {
	inBubble(t, WriterConfig{}, func(b *bench) {
		b.sink.answer(fails)
		b.report("a", "v")
		b.settle()
		b.sink.answer(nil)
		b.NodeAdded("a")
		b.requireCalls("a: v", "a: v")
		pass(time.Hour)
		b.requireCalls()
	})
}

// The write in flight may have met the older Node object.
func TestNodeAddedDuringAWriteMeansOneMore(t *testing.T) {
	for name, answer := range map[string]error{"which succeeds": nil, "which finds no node": ErrNodeNotFound} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, WriterConfig{}, func(b *bench) {
				b.sink.answer(func(ctx context.Context, _ types.NodeName, call int) error {
					if call == 1 {
						pass(time.Second)
						return answer
					}
					return nil
				})
				b.report("a", "v")
				b.requireCalls("a: v")
				b.NodeAdded("a")
				b.NodeAdded("a")
				b.requireCalls()
				pass(time.Hour)
				b.requireCalls("a: v")
			})
		})
	}
}

func TestAPanicOfTheSinkIsAnErrorAndIsTriedAgain(t *testing.T) {
	inBubble(t, WriterConfig{}, func(b *bench) {
		b.sink.answer(func(_ context.Context, _ types.NodeName, call int) error {
			if call == 1 {
				pass(time.Millisecond)
				panic("oops")
			}
			return nil
		})
		f := b.flush("a", b.report("a", "v"))
		b.settle()
		pass(time.Millisecond)
		b.settle()
		_, err := f.outcome()
		var panicked *executor.PanicError
		require.ErrorAs(t, err, &panicked)
		require.Equal(t, "oops", panicked.Value)
		require.NotEmpty(t, panicked.Stack)
		pass(time.Second)
		b.requireCalls("a: v", "a: v")
	})
}

func TestMemoryIsKeptOnlyForNodesWithAListOrWork(t *testing.T) {
	inBubble(t, WriterConfig{}, func(b *bench) {
		const nodes = 200
		name := func(i int) types.NodeName { return types.NodeName(fmt.Sprint("node-", i)) }
		for i := range nodes {
			b.report(name(i), "v")
		}
		b.settle()
		require.Equal(t, nodes, b.Len())
		for i := range nodes {
			b.report(name(i))
		}
		b.settle()
		require.Zero(t, b.Len())

		b.sink.answer(notFound) // the nodes go first, then their volumes
		for i := range nodes {
			b.report(name(i), "v")
		}
		b.settle()
		require.Equal(t, nodes, b.Len())
		for i := range nodes {
			b.report(name(i))
		}
		b.settle()
		require.Zero(t, b.Len())

		for i := range nodes {
			require.NoError(t, b.Flush(b.Context(), types.NodeName(fmt.Sprint("unknown-", i)), 0))
			b.NodeAdded(types.NodeName(fmt.Sprint("unknown-", i)))
		}
		b.settle()
		require.Zero(t, b.Len())
	})
}

func TestForgetDropsEverythingButWaitsForTheWriteInFlight(t *testing.T) {
	inBubble(t, WriterConfig{MaxConcurrent: 1}, func(b *bench) {
		b.Forget("never-heard-of")
		b.sink.answer(takes(time.Second))
		a := b.flush("a", b.report("a", "v"))
		b.settle()
		queuedOne := b.flush("b", b.report("b", "v"))
		b.requireWaits(queuedOne)
		b.Forget("a")
		b.Forget("b")
		b.requireFlushError(a, ErrForgotten)
		b.requireFlushError(queuedOne, ErrForgotten)
		require.False(t, b.Idle())
		b.report("a", "v", "w")
		b.requireCalls("a: v")
		pass(time.Second)
		b.requireCalls("a: v w")
		require.NoError(t, b.WaitIdle(b.Context()))
		require.Equal(t, 1, b.Len())

		b.sink.answer(fails)
		b.report("a")
		b.settle()
		b.Forget("a")
		require.Zero(t, b.Len())
		pass(time.Hour)
		b.requireCalls("a: ")
	})
}

func TestForgetDuringAWriteLeavesNothingBehind(t *testing.T) {
	for name, answer := range map[string]error{"written": nil, "failed": errAPI, "missing": ErrNodeNotFound} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, WriterConfig{}, func(b *bench) {
				b.sink.answer(func(context.Context, types.NodeName, int) error { pass(time.Second); return answer })
				b.report("a", "v")
				b.settle()
				b.Forget("a")
				require.NoError(t, b.WaitIdle(b.Context()))
				require.Zero(t, b.Len())
				pass(time.Hour)
				b.requireCalls("a: v")
			})
		})
	}
}

func TestShutdownCancelsWaitsAndRefuses(t *testing.T) {
	inBubble(t, WriterConfig{MaxConcurrent: 1}, func(b *bench) {
		release := make(chan struct{})
		var cause error
		b.sink.answer(func(ctx context.Context, node types.NodeName, _ int) error {
			if node == "failing" {
				return errAPI
			}
			<-ctx.Done()
			cause = context.Cause(ctx)
			<-release
			return ctx.Err()
		})
		b.report("failing", "v")
		b.settle()
		running := b.flush("a", b.report("a", "v"))
		b.settle()
		waiting := b.flush("b", b.report("b", "v"))
		b.settle()

		short, cancel := context.WithTimeout(b.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, b.Shutdown(short), context.DeadlineExceeded)
		b.requireFlushError(running, executor.ErrShutdown)
		b.requireFlushError(waiting, executor.ErrShutdown)
		require.ErrorIs(t, cause, executor.ErrShutdown)

		close(release)
		require.NoError(t, b.Shutdown(b.Context()))
		require.NoError(t, b.Shutdown(b.Context()))
		require.Zero(t, b.Len())
		b.sink.take()
		b.report("c", "v")
		b.NodeAdded("c")
		b.Force("c")
		require.ErrorIs(t, b.Flush(b.Context(), "c", 1), executor.ErrShutdown)
		pass(time.Hour)
		b.requireCalls()
	})
}

func TestWaitIdleWaitsForWritesAndTheirResultsButNotForBackOff(t *testing.T) {
	inBubble(t, WriterConfig{}, func(b *bench) {
		require.True(t, b.Idle())
		require.NoError(t, b.WaitIdle(b.Context()))
		b.sink.answer(takes(2 * time.Second))
		b.report("a", "v")
		require.False(t, b.Idle())
		short, cancel := context.WithTimeout(b.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, b.WaitIdle(short), context.DeadlineExceeded)
		require.Empty(t, b.idleWaiters)
		require.NoError(t, b.WaitIdle(b.Context()))
		require.Len(t, b.results, 1)

		b.sink.answer(fails)
		b.report("a", "w")
		require.NoError(t, b.WaitIdle(b.Context()))
		require.Equal(t, []types.NodeName{"a"}, b.Pending())
	})
}

func TestAVersionFromTheFutureWaits(t *testing.T) {
	inBubble(t, WriterConfig{}, func(b *bench) {
		b.report("a", "v")
		f := b.flush("a", 3)
		b.requireWaits(f)
		b.report("a", "v", "w")
		b.requireWaits(f)
		b.report("a", "w")
		b.requireFlushed(f)
	})
}

func TestTheQueueIsServedInOrderAndDoesNotGrowForEver(t *testing.T) {
	var q fifo
	pushed, popped := 0, 0
	push := func() { q.push(&nodeState{name: types.NodeName(fmt.Sprint(pushed))}); pushed++ }
	push()
	for range 10_000 {
		push()
		require.Equal(t, types.NodeName(fmt.Sprint(popped)), q.pop().name)
		popped++
	}
	require.Less(t, cap(q.items), 64)
	require.NotNil(t, q.pop())
	require.Nil(t, q.pop())
	require.Zero(t, cap(q.items))
}
