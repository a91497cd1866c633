package executor

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"github.com/stateofworld/stateofworld/cache"
)

var keyVA = Key{Volume: "v", Node: "a"}

func TestOverlappingOperationIsRefusedWhileOneIsPending(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOperations(t, Options{})
		release := make(chan struct{})
		started := time.Now()
		require.NoError(t, o.Start(ctx, Operation{Key: keyVA, Name: "attach", Run: until(release)}))
		synctest.Wait()

		for _, key := range []Key{keyVA, {Volume: "v"}, {Volume: "v", Pod: "p"}, {Volume: "v", Pod: "p", Node: "a"}} {
			err := o.Start(ctx, Operation{Key: key, Name: "detach", Run: succeed})
			var exists *AlreadyExistsError
			require.ErrorAs(t, err, &exists, "%v", key)
			require.Equal(t, key, exists.Key)
			require.Equal(t, Info{
				Key: keyVA, Name: "attach", Node: "a", Phase: Running, Started: started, Deadline: started.Add(DefaultTimeout),
			}, exists.Pending)
			require.ErrorContains(t, err, `operation "attach" on volume "v", node "a" is running since`)
			require.True(t, o.IsOperationPending(key))
			require.False(t, o.IsOperationSafeToRetry(key, "detach"))
		}
		for _, key := range []Key{{Volume: "v", Node: "b"}, {Volume: "w"}, {Node: "a"}} {
			require.False(t, o.IsOperationPending(key), "%v", key)
			require.True(t, o.IsOperationSafeToRetry(key, "detach"))
			require.NoError(t, run(t, o, Operation{Key: key, Run: succeed}).Err)
		}
		close(release)
		require.NoError(t, o.Wait(ctx))
		require.False(t, o.IsOperationPending(keyVA))
		require.NoError(t, run(t, o, Operation{Key: Key{Volume: "v"}, Run: succeed}).Err)
		requireEmpty(t, o)
	})
}

func TestBadOperationStartsNothing(t *testing.T) {
	o := newOperations(t, Options{})
	for field, op := range map[string]Operation{
		"Operation.Key":  {Run: succeed},
		"Operation.Run":  {Key: keyVA},
		"Operation.Node": {Key: keyVA, Node: "b", Run: succeed},
	} {
		var invalid *cache.InvalidError
		require.ErrorAs(t, o.Start(ctx, op), &invalid)
		require.Equal(t, field, invalid.Field)
	}
	//lint:ignore SA1012 the mistake is the point
	require.ErrorIs(t, o.Start(nil, Operation{Key: keyVA, Run: succeed}), cache.ErrInvalid)
	requireEmpty(t, o)
}

func TestStartWithAContextThatHasEndedStartsNothing(t *testing.T) {
	o := newOperations(t, Options{})
	reason := errors.New("lost leadership")
	ended, cancel := context.WithCancelCause(ctx)
	cancel(reason)
	require.ErrorIs(t, o.Start(ended, Operation{Key: keyVA, Run: succeed}), reason)
	requireEmpty(t, o)
}

func TestFunctionsSeeTheKeyReservedAndRunInOrder(t *testing.T) {
	o := newOperations(t, Options{})
	var order []string
	step := func(name string) {
		order = append(order, name)
		require.Equal(t, name != "done", o.IsOperationPending(keyVA), name)
	}
	r := run(t, o, Operation{
		Key:      keyVA,
		Check:    func() error { step("check"); return nil },
		Prepare:  func(context.Context) error { step("prepare"); return nil },
		Run:      func(context.Context) error { step("run"); return nil },
		Complete: func(err error) error { require.NoError(t, err); step("complete"); return nil },
	})
	step("done")
	require.NoError(t, r.Err)
	require.Equal(t, []string{"check", "prepare", "run", "complete", "done"}, order)
}

func TestCheckRefusesWithoutATrace(t *testing.T) {
	o := newOperations(t, noJitter)
	notNeeded := errors.New("no longer needed")
	err := o.Start(ctx, Operation{
		Key: keyVA, Name: "attach",
		Check: func() error {
			err := o.Start(ctx, Operation{Key: keyVA, Run: succeed})
			var exists *AlreadyExistsError
			require.ErrorAs(t, err, &exists)
			require.Equal(t, Checking, exists.Pending.Phase, "who is turned away can see that it may not start at all")
			return notNeeded
		},
		Prepare:  func(context.Context) error { t.Error("prepared"); return nil },
		Run:      func(context.Context) error { t.Error("ran"); return nil },
		Complete: func(err error) error { t.Error("completed"); return err },
		Done:     func(Result) { t.Error("done") },
	})
	require.Equal(t, notNeeded, err)
	requireEmpty(t, o)
}

func TestCheckThatRefusesLeavesBackOffAsItWas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOperations(t, noJitter)
		run(t, o, Operation{Key: keyVA, Name: "attach", Run: fail})
		pass(time.Second)
		before, _ := o.Failures(keyVA, "attach")
		require.Error(t, o.Start(ctx, Operation{Key: keyVA, Name: "attach", Check: func() error { return errFail }, Run: succeed}))
		after, ok := o.Failures(keyVA, "attach")
		require.True(t, ok)
		require.Equal(t, before, after)
		require.Len(t, o.Backoffs(), 1)
	})
}

func TestPanicIsAnErrorWithItsStack(t *testing.T) {
	bomb := func() { panic(Precondition(errors.New("boom"))) }
	for name, op := range map[string]Operation{
		"prepare":  {Prepare: func(context.Context) error { bomb(); return nil }, Run: succeed},
		"run":      {Run: func(context.Context) error { bomb(); return nil }},
		"complete": {Run: succeed, Complete: func(error) error { bomb(); return nil }},
	} {
		t.Run(name, func(t *testing.T) {
			var reported *PanicError
			var info Info
			o := newOperations(t, Options{OnPanic: func(i Info, p *PanicError) {
				info, reported = i, p
				require.Equal(t, BackingOff, i.Phase, "the key is free by now")
			}})
			op.Key, op.Name = keyVA, "attach"
			r := run(t, o, op)
			var panicked *PanicError
			require.ErrorAs(t, r.Err, &panicked)
			require.True(t, panicked == reported, "the hook gets the same")
			require.Equal(t, keyVA, info.Key)
			require.Contains(t, string(panicked.Stack), "TestPanicIsAnErrorWithItsStack")
			require.ErrorContains(t, r.Err, "boom")
			require.Equal(t, Unknown, Classify(r.Err), "what a function panics with is no claim about what it did")
			require.Equal(t, 1, r.Info.Attempts)
			require.False(t, o.IsOperationPending(keyVA))
		})
	}
}

func TestPanicInCheckFreesTheKey(t *testing.T) {
	var reported *PanicError
	o := newOperations(t, Options{OnPanic: func(_ Info, p *PanicError) { reported = p }})
	err := o.Start(ctx, Operation{Key: keyVA, Check: func() error { panic("boom") }, Run: succeed})
	require.ErrorAs(t, err, new(*PanicError))
	require.NotNil(t, reported)
	requireEmpty(t, o)
}

// A test double that calls t.FailNow in a driver ends the goroutine without a panic.
func TestFunctionThatEndsItsGoroutineFreesTheKey(t *testing.T) {
	goexit := func(context.Context) error { runtime.Goexit(); return nil }
	for name, op := range map[string]Operation{
		"prepare":  {Prepare: goexit, Run: succeed},
		"run":      {Run: goexit},
		"complete": {Run: succeed, Complete: func(error) error { return goexit(nil) }},
	} {
		t.Run(name, func(t *testing.T) {
			o := newOperations(t, Options{MaxConcurrent: 1})
			op.Key = keyVA
			require.ErrorAs(t, run(t, o, op).Err, new(*PanicError))
			require.NoError(t, o.Wait(ctx))
			require.False(t, o.IsOperationPending(keyVA))
		})
	}
	o := newOperations(t, Options{})
	require.NoError(t, o.Start(ctx, Operation{Key: keyVA, Run: succeed, Done: func(Result) { runtime.Goexit() }}))
	require.NoError(t, o.Wait(ctx))
	requireEmpty(t, o)
}

func TestPanicWithoutAHookIsStillAnError(t *testing.T) {
	o := newOperations(t, Options{})
	require.NoError(t, o.Start(ctx, Operation{Key: keyVA, Name: "x", Run: func(context.Context) error { panic("boom") }}))
	require.NoError(t, o.Wait(ctx))
	info, ok := o.Failures(keyVA, "x")
	require.True(t, ok)
	require.ErrorAs(t, info.LastErr, new(*PanicError))
}

// nilError is a pointer type whose nil is returned as an error, and panics when it is looked into.
type nilError struct{ err error }

func (e *nilError) Error() string { return e.err.Error() }
func (e *nilError) Unwrap() error { return e.err }

func TestErrorThatPanicsHasNoMark(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOperations(t, Options{OnPanic: func(Info, *PanicError) { t.Error("the function did not panic") }})
		r := run(t, o, Operation{Key: keyVA, Name: "attach", Run: func(ctx context.Context) error {
			<-ctx.Done()
			return (*nilError)(nil)
		}})
		require.False(t, o.IsOperationPending(keyVA))
		require.Equal(t, 1, r.Info.Attempts)
		require.ErrorIs(t, r.Err, ErrTimeout)
		require.Equal(t, Unknown, Classify((*nilError)(nil)))
		require.True(t, is(Precondition((*nilError)(nil)), ErrPrecondition))
	})
}

type ctxKey struct{}

func TestContextCarriesValuesAndCancellation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOperations(t, Options{})
		reason := errors.New("lost leadership")
		parent, cancel := context.WithCancelCause(context.WithValue(ctx, ctxKey{}, "value"))
		var cause error
		var result Result
		require.NoError(t, o.Start(parent, Operation{Key: keyVA, Run: func(ctx context.Context) error {
			require.Equal(t, "value", ctx.Value(ctxKey{}))
			<-ctx.Done()
			cause = context.Cause(ctx)
			return ctx.Err()
		}, Done: func(r Result) { result = r }}))
		synctest.Wait()
		cancel(reason)
		require.NoError(t, o.Wait(ctx))
		require.Equal(t, reason, cause)
		require.ErrorIs(t, result.Err, context.Canceled)
		require.NotErrorIs(t, result.Err, ErrTimeout)
		require.NotErrorIs(t, result.Err, ErrShutdown)
		require.Equal(t, Unknown, Classify(result.Err))
	})
}

// The caller's cause may be marked as anything; it must not decide what the function has done.
func TestMarkedCauseOfTheCallerIsNoOutcome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOperations(t, Options{})
		parent, cancel := context.WithCancelCause(ctx)
		var result Result
		require.NoError(t, o.Start(parent, Operation{Key: keyVA, Run: untilCancelled, Done: func(r Result) { result = r }}))
		synctest.Wait()
		cancel(Precondition(errors.New("not me")))
		require.NoError(t, o.Wait(ctx))
		require.Equal(t, Unknown, Classify(result.Err))
	})
}

func TestResultTellsWhatHappened(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOperations(t, noJitter)
		start := time.Now()
		r := run(t, o, Operation{
			Key: Key{Volume: "v"}, Node: "a", Name: "attach",
			Prepare: func(context.Context) error { <-time.After(time.Second); return nil },
			Run:     func(context.Context) error { <-time.After(2 * time.Second); return errFail },
		})
		end := start.Add(3 * time.Second)
		require.Equal(t, Result{
			Info: Info{
				Key: Key{Volume: "v"}, Node: "a", Name: "attach", Phase: BackingOff,
				Started: start, Deadline: start.Add(time.Second + DefaultTimeout),
				Attempts: 1, LastErr: errFail, LastFailed: end, NextTry: end.Add(500 * time.Millisecond),
			},
			Err: errFail, Took: 3 * time.Second, Ran: 2 * time.Second,
		}, r)
		pass(time.Second)
		r = run(t, o, Operation{Key: Key{Volume: "v"}, Node: "a", Name: "attach", Run: succeed})
		require.Equal(t, Info{
			Key: Key{Volume: "v"}, Node: "a", Name: "attach", Phase: Finished, Started: time.Now(), Deadline: time.Now().Add(DefaultTimeout),
		}, r.Info)
		requireEmpty(t, o)
	})
}

func TestPendingsTellThePhaseOfEach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOperations(t, Options{MaxConcurrent: 1, Backoff: Backoff{Jitter: -1}})
		release := make(chan struct{})
		start := func(node types.NodeName, op Operation) {
			op.Key, op.Name = Key{Volume: "v", Node: node}, "attach"
			require.NoError(t, o.Start(ctx, op))
			pass(time.Second)
		}
		run(t, o, Operation{Key: Key{Volume: "v", Node: "overdue"}, Name: "attach", Run: fail})
		failedAt := time.Now()
		pass(time.Second)
		start("overdue", Operation{Run: until(release), Timeout: time.Second})
		start("running", Operation{Run: until(release)})
		start("queued", Operation{Run: until(release)})
		start("preparing", Operation{Prepare: until(release), Run: succeed})

		var phases []string
		for _, info := range o.Pendings() {
			phases = append(phases, string(info.Node)+" "+info.Phase.String())
		}
		require.Equal(t, []string{"overdue overdue", "running running", "queued queued", "preparing preparing"}, phases)
		overdue := o.Pendings()[0]
		require.Equal(t, 1, overdue.Attempts)
		require.Equal(t, errFail, overdue.LastErr)
		require.Equal(t, failedAt, overdue.LastFailed)
		require.Zero(t, overdue.NextTry)
		require.Zero(t, o.Pendings()[2].Deadline, "the wait for a slot has no deadline")
		require.Empty(t, o.Backoffs(), "what is tried again now does not back off")
		info, ok := o.Pending(Key{Volume: "v", Node: "queued"})
		require.True(t, ok)
		require.Equal(t, Queued, info.Phase)
		_, ok = o.Pending(Key{Volume: "w"})
		require.False(t, ok)
		close(release)
		require.NoError(t, o.Wait(ctx))
		requireEmpty(t, o)
	})
}

func TestPhasesHaveNames(t *testing.T) {
	for phase, name := range []string{"finished", "checking", "preparing", "queued", "running", "overdue", "backing off", "Phase(7)"} {
		require.Equal(t, name, Phase(phase).String())
	}
}
