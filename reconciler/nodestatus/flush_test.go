package nodestatus

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
)

// R2, kubernetes/kubernetes#27836: a detach goes on only when the list without the
// volume is known to be written.
func TestFlushReturnsWhenItsVersionIsWritten(t *testing.T) {
	inBubble(t, WriterConfig{}, func(b *bench) {
		b.report("a", "v", "w")
		b.requireCalls("a: v w")
		b.sink.answer(takes(time.Second))
		f := b.flush("a", b.report("a", "w"))
		b.requireWaits(f)
		pass(time.Second)
		b.requireFlushed(f)
		require.Equal(t, "w", b.sink.stored["a"])

		require.NoError(t, b.Flush(b.Context(), "a", 1), "an older version is written, too")
		require.NoError(t, b.Flush(b.Context(), "a", 2))
		b.requireCalls("a: w")
	})
}

func TestFlushNeedsNoChangedBefore(t *testing.T) {
	inBubble(t, WriterConfig{}, func(b *bench) {
		b.requireFlushed(b.flush("a", b.world.set("a", "v")))
		b.requireCalls("a: v")
		b.requireFlushed(b.flush("a", b.world.set("a", "w")))
		b.requireCalls("a: w")
	})
}

func TestFlushDuringAnOlderWriteWaitsForTheNext(t *testing.T) {
	inBubble(t, WriterConfig{}, func(b *bench) {
		b.sink.answer(func(ctx context.Context, _ types.NodeName, call int) error {
			pass(time.Second)
			if call == 1 {
				return errAPI // does not concern the flush of the second version
			}
			return nil
		})
		first := b.flush("a", b.report("a", "v"))
		b.settle()
		second := b.flush("a", b.world.set("a", "w"))
		pass(time.Second)
		b.requireFlushError(first, errAPI)
		b.requireWaits(second)
		pass(2 * time.Second) // back-off, then the write
		b.requireFlushed(second)
		b.requireCalls("a: v", "a: w")
	})
}

func TestFlushJoinsARunningWriteThatCarriesItsVersion(t *testing.T) {
	inBubble(t, WriterConfig{}, func(b *bench) {
		b.sink.answer(takes(time.Second))
		version := b.report("a", "v")
		b.settle()
		var flushes []*flushing
		for range 20 {
			flushes = append(flushes, b.flush("a", version))
			b.settle()
		}
		pass(time.Second)
		for _, f := range flushes {
			b.requireFlushed(f)
		}
		pass(time.Hour)
		b.requireCalls("a: v")
	})
}

func TestFlushReturnsTheErrorOfTheWriteAndTheWriterGoesOn(t *testing.T) {
	inBubble(t, WriterConfig{}, func(b *bench) {
		b.sink.answer(func(_ context.Context, _ types.NodeName, call int) error {
			pass(time.Millisecond)
			if call == 1 {
				return errAPI
			}
			return nil
		})
		version := b.report("a", "v")
		f := b.flush("a", version)
		b.settle()
		pass(time.Millisecond)
		b.requireFlushError(f, errAPI)

		again := b.flush("a", version) // in back-off: waits for the next try
		b.requireWaits(again)
		pass(time.Second + time.Millisecond)
		b.requireFlushed(again)
	})
}

func TestFlushInBackOffEndsWithItsContextAndNamesTheLastError(t *testing.T) {
	inBubble(t, WriterConfig{}, func(b *bench) {
		b.sink.answer(fails)
		version := b.report("a", "v")
		b.settle()
		ctx, cancel := context.WithTimeout(b.Context(), 500*time.Millisecond)
		defer cancel()
		err := b.Flush(ctx, "a", version)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, err, errAPI)
		require.ErrorContains(t, err, `"a"`)
		require.Empty(t, b.nodes["a"].waiters)
	})
}

func TestFlushThatGivesUpLeavesNoMemory(t *testing.T) {
	inBubble(t, WriterConfig{MaxConcurrent: 1}, func(b *bench) {
		b.sink.answer(takes(time.Second))
		b.report("a", "v")
		b.settle()
		ctx, cancel := context.WithCancel(b.Context())
		cancel()
		require.ErrorIs(t, b.Flush(ctx, "b", 1), context.Canceled)
		b.report("a")
		require.NoError(t, b.WaitIdle(b.Context()))
		require.Zero(t, b.Len())
	})
}

// N1, kubernetes/kubernetes#50721: a node that is gone holds no detach up.
func TestFlushOfAMissingNodeSucceeds(t *testing.T) {
	inBubble(t, WriterConfig{}, func(b *bench) {
		b.sink.answer(notFound)
		require.NoError(t, b.Flush(b.Context(), "a", b.report("a", "v", "w")))
		require.NoError(t, b.Flush(b.Context(), "a", b.report("a", "w")))
		require.NoError(t, b.Flush(b.Context(), "a", b.report("a")))
		// Nothing is remembered of a missing node with an empty list, so that the last
		// flush may have asked once more.
		require.LessOrEqual(t, len(b.sink.take()), 4)
	})
}
