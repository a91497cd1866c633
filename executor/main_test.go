package executor

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	ctx     = context.Background()
	errFail = errors.New("device is busy")
)

// pass lets virtual time go by, and everything come to rest that happens meanwhile. Only for tests in a synctest bubble.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func newOperations(t testing.TB, o Options) *Operations {
	t.Helper()
	ops, err := NewOperations(o)
	require.NoError(t, err)
	return ops
}

// noJitter makes retry times exact.
var noJitter = Options{Backoff: Backoff{Jitter: -1}}

func succeed(context.Context) error { return nil }
func fail(context.Context) error    { return errFail }

// until blocks until the channel is closed, whatever the context says.
func until(release <-chan struct{}) func(context.Context) error {
	return func(context.Context) error { <-release; return nil }
}

// untilCancelled is a well-behaved function that never gets done.
func endGoroutine() { runtime.Goexit() }

func untilCancelled(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

// run starts an operation, and returns its result when it has ended.
func run(t testing.TB, o *Operations, op Operation) Result {
	t.Helper()
	results := make(chan Result, 1)
	op.Done = func(r Result) { results <- r }
	require.NoError(t, o.Start(ctx, op))
	return <-results
}

// requireEmpty fails when anything is remembered.
func requireEmpty(t require.TestingT, o *Operations) {
	if h, ok := t.(interface{ Helper() }); ok {
		h.Helper()
	}
	pending, backoff := o.Sizes()
	require.Zero(t, pending, "pending")
	require.Zero(t, backoff, "in back-off")
	require.Empty(t, o.pending.volumes)
	require.Empty(t, o.failures.entries)
	for _, s := range []*slots{o.foreground, o.background} {
		if s != nil {
			require.Zero(t, s.running)
			require.Empty(t, s.nodes)
			require.Zero(t, s.ready.n)
		}
	}
}
