package executor

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

func TestFailureIsRetriedNoEarlierThanItsBackOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOperations(t, noJitter)
		for attempt, delay := range []time.Duration{500 * time.Millisecond, time.Second, 2 * time.Second} {
			r := run(t, o, Operation{Key: keyVA, Name: "attach", Run: fail})
			require.Equal(t, attempt+1, r.Info.Attempts)
			pass(delay - 1)
			err := o.Start(ctx, Operation{Key: keyVA, Name: "attach", Run: succeed})
			var backoff *BackoffError
			require.ErrorAs(t, err, &backoff)
			require.Equal(t, BackoffError{
				Key: keyVA, Name: "attach", Until: time.Now().Add(1), Attempts: attempt + 1, LastErr: errFail,
			}, *backoff)
			require.NotErrorIs(t, err, errFail, "the last outcome is not that of this try")
			require.ErrorContains(t, err, "device is busy")
			require.False(t, o.IsOperationSafeToRetry(keyVA, "attach"))
			require.False(t, o.IsOperationPending(keyVA))
			pass(1)
			require.True(t, o.IsOperationSafeToRetry(keyVA, "attach"))
		}
	})
}

// E1, kubernetes/kubernetes#75209: the failures of one operation neither delay nor reset those of another.
func TestBackOffIsPerVolumeNodeAndName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOperations(t, noJitter)
		began := time.Now()
		tries := map[string][]time.Duration{}
		try := func(name string, key Key, node types.NodeName) {
			_ = o.Start(ctx, Operation{Key: key, Node: node, Name: name, Run: func(context.Context) error {
				tries[name+" "+string(node)] = append(tries[name+" "+string(node)], time.Since(began))
				return errFail
			}})
			synctest.Wait()
		}
		for range 30 {
			try("detach", keyVA, "a")
			try("attach", Key{Volume: "v"}, "b")
			try("attach", Key{Volume: "v"}, "a")
			pass(100 * time.Millisecond)
		}
		want := []time.Duration{0, 500 * time.Millisecond, 1500 * time.Millisecond}
		require.Equal(t, map[string][]time.Duration{"detach a": want, "attach b": want, "attach a": want}, tries)

		// Attach at its longest back-off does not hold up the first detach of another pair of the volume.
		require.NoError(t, run(t, o, Operation{Key: Key{Volume: "v"}, Node: "c", Name: "detach", Run: succeed}).Err)
		require.Len(t, o.Backoffs(), 3)
	})
}

// E5, kubernetes/kubernetes#64549
func TestPreconditionLeavesBackOffAsItWas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOperations(t, noJitter)
		refused := func(context.Context) error { return Precondition(errors.New("not ready")) }
		for range 10 {
			r := run(t, o, Operation{Key: keyVA, Name: "attach", Run: refused})
			require.Zero(t, r.Info.Attempts)
			require.Zero(t, r.Info.NextTry)
		}
		requireEmpty(t, o)

		run(t, o, Operation{Key: keyVA, Name: "attach", Run: fail})
		pass(500 * time.Millisecond)
		for range 10 {
			r := run(t, o, Operation{Key: keyVA, Name: "attach", Prepare: refused, Run: succeed})
			require.Equal(t, 1, r.Info.Attempts)
			require.Equal(t, errFail, r.Info.LastErr)
		}
		r := run(t, o, Operation{Key: keyVA, Name: "attach", Run: fail})
		require.Equal(t, 2, r.Info.Attempts)
		require.Equal(t, time.Now().Add(time.Second), r.Info.NextTry)
	})
}

func TestSuccessForgetsFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOperations(t, noJitter)
		for _, name := range []string{"attach", "detach", "resize"} {
			run(t, o, Operation{Key: keyVA, Name: name, Run: fail})
		}
		pass(time.Second)
		for left, name := range map[int]string{2: "detach"} {
			require.NoError(t, run(t, o, Operation{Key: keyVA, Name: name, Run: succeed}).Err)
			_, ok := o.Failures(keyVA, name)
			require.False(t, ok)
			require.Len(t, o.Backoffs(), left)
		}
		run(t, o, Operation{Key: keyVA, Name: "attach", Run: succeed})
		run(t, o, Operation{Key: keyVA, Name: "resize", Run: succeed})
		requireEmpty(t, o)
		require.Equal(t, 1, run(t, o, Operation{Key: keyVA, Name: "attach", Run: fail}).Info.Attempts)
	})
}

func TestForgetEndsBackOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOperations(t, noJitter)
		keyVB := Key{Volume: "v", Node: "b"}
		for _, key := range []Key{keyVA, keyVB} {
			for _, name := range []string{"attach", "detach", "resize"} {
				run(t, o, Operation{Key: key, Name: name, Run: fail})
			}
		}
		o.Forget(keyVA, "detach")
		require.True(t, o.IsOperationSafeToRetry(keyVA, "detach"))
		require.False(t, o.IsOperationSafeToRetry(keyVA, "attach"))
		require.False(t, o.IsOperationSafeToRetry(keyVA, "resize"))
		o.Forget(keyVA, "detach")
		o.Forget(keyVA, "")
		require.True(t, o.IsOperationSafeToRetry(keyVA, "attach"))
		require.True(t, o.IsOperationSafeToRetry(keyVA, "resize"))
		require.Len(t, o.Backoffs(), 3)
		o.Forget(keyVB, "")
		o.Forget(Key{Volume: "never seen"}, "")
		requireEmpty(t, o)
	})
}

func TestForgetDuringATryMakesItsFailureTheFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOperations(t, noJitter)
		run(t, o, Operation{Key: keyVA, Name: "attach", Run: fail})
		pass(time.Second)
		r := run(t, o, Operation{Key: keyVA, Name: "attach", Run: func(context.Context) error {
			require.Equal(t, 1, o.Pendings()[0].Attempts)
			o.Forget(keyVA, "attach")
			require.Zero(t, o.Pendings()[0].Attempts)
			return errFail
		}})
		require.Equal(t, 1, r.Info.Attempts)
		pass(time.Second)
		for _, ending := range []func(context.Context) error{succeed, func(context.Context) error { return ErrPrecondition }} {
			run(t, o, Operation{Key: keyVA, Name: "attach", Run: func(ctx context.Context) error {
				o.Forget(keyVA, "attach")
				return ending(ctx)
			}})
			requireEmpty(t, o)
		}
	})
}

func TestIdleFailuresAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOperations(t, Options{Backoff: Backoff{Jitter: -1, Cap: time.Minute, ForgetAfter: time.Minute}})
		run(t, o, Operation{Key: keyVA, Name: "attach", Run: fail})
		pass(time.Minute - 1)
		info, ok := o.Failures(keyVA, "attach")
		require.True(t, ok)
		require.Equal(t, BackingOff, info.Phase)
		pass(1)
		_, ok = o.Failures(keyVA, "attach")
		require.False(t, ok)
		require.Len(t, o.failures.entries, 1, "not swept yet")
		require.Equal(t, 1, run(t, o, Operation{Key: keyVA, Name: "attach", Run: fail}).Info.Attempts)
		pass(2 * time.Minute)
		require.Empty(t, o.Backoffs())
		requireEmpty(t, o)
	})
}

// A try that takes longer than idle time is not idle: its failure is one more, not the first.
func TestLongTryDoesNotForgetFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOperations(t, Options{Timeout: -1, Backoff: Backoff{Jitter: -1, Cap: time.Minute, ForgetAfter: time.Minute}})
		run(t, o, Operation{Key: keyVA, Name: "attach", Run: fail})
		pass(time.Second)
		r := run(t, o, Operation{Key: keyVA, Name: "attach", Run: func(context.Context) error {
			<-time.After(time.Hour)
			info, ok := o.Failures(keyVA, "attach")
			require.True(t, ok)
			require.Equal(t, 1, info.Attempts)
			return errFail
		}})
		require.Equal(t, 2, r.Info.Attempts)
	})
}

// Operations of several pods share the back-off of their volume, node and name.
func TestTwoTriesOfOneBackOffAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOperations(t, noJitter)
		podP, podQ := Key{"v", "p", "a"}, Key{"v", "q", "a"}
		run(t, o, Operation{Key: podP, Name: "mount", Run: fail})
		pass(time.Second)
		release := make(chan struct{})
		var last Result
		require.NoError(t, o.Start(ctx, Operation{Key: podP, Name: "mount", Run: func(context.Context) error { <-release; return errFail }, Done: func(r Result) { last = r }}))
		require.Equal(t, 2, run(t, o, Operation{Key: podQ, Name: "mount", Run: fail}).Info.Attempts)
		close(release)
		require.NoError(t, o.Wait(ctx))
		require.Equal(t, 3, last.Info.Attempts)
		pass(time.Minute)
		release = make(chan struct{})
		require.NoError(t, o.Start(ctx, Operation{Key: podP, Name: "mount", Run: until(release)}))
		run(t, o, Operation{Key: podQ, Name: "mount", Run: succeed})
		require.Equal(t, 1, run(t, o, Operation{Key: podQ, Name: "mount", Run: fail}).Info.Attempts)
		close(release)
		require.NoError(t, o.Wait(ctx))
		requireEmpty(t, o) // the last success forgets them, whoever failed
	})
}

// Entries that nobody asks about do not stay for ever: every start and every failure sweeps a few.
func TestOldFailuresAreSweptByWhatIsStarted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOperations(t, noJitter)
		failOn := func(volume string) {
			run(t, o, Operation{Key: Key{Volume: v1.UniqueVolumeName(volume)}, Name: "attach", Run: fail})
		}
		for i := range 1000 {
			failOn(fmt.Sprint("old", i))
		}
		pass(time.Hour)
		for i := range 100 {
			failOn(fmt.Sprint("new", i))
		}
		for i := range 100 {
			run(t, o, Operation{Key: Key{Volume: v1.UniqueVolumeName(fmt.Sprint("other", i))}, Run: succeed})
		}
		require.Len(t, o.failures.entries, 100)
	})
}

func TestAnOldFailureThatIsNotSweptYetDoesNotCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOperations(t, noJitter)
		for i := range 100 {
			run(t, o, Operation{Key: Key{Volume: v1.UniqueVolumeName(fmt.Sprint(i))}, Name: "attach", Run: fail})
		}
		pass(time.Hour)
		require.Equal(t, 1, run(t, o, Operation{Key: Key{Volume: "99"}, Name: "attach", Run: fail}).Info.Attempts)
	})
}

func TestBackoffsAreSortedByNextTry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOperations(t, noJitter)
		for _, key := range []Key{{Volume: "w", Node: "b"}, {Volume: "w", Node: "a"}, {Volume: "v", Node: "b"}} {
			run(t, o, Operation{Key: key, Name: "attach", Run: fail})
		}
		run(t, o, Operation{Key: Key{Volume: "w", Node: "a"}, Name: "Attach", Run: fail})
		pass(500 * time.Millisecond)
		run(t, o, Operation{Key: Key{Volume: "v", Node: "b"}, Name: "attach", Run: fail})
		var order []string
		for _, info := range o.Backoffs() {
			order = append(order, fmt.Sprint(info.Key.Volume, info.Node, info.Name, info.Attempts))
		}
		require.Equal(t, []string{"waAttach1", "waattach1", "wbattach1", "vbattach2"}, order)
	})
}

func TestJitterComesFromTheGivenSource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOperations(t, Options{Rand: func() float64 { return 0.5 }})
		r := run(t, o, Operation{Key: keyVA, Name: "attach", Run: fail})
		require.Equal(t, time.Now().Add(525*time.Millisecond), r.Info.NextTry)
	})
}
