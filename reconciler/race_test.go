package reconciler_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/stateofworld/stateofworld/cache"
	"github.com/stateofworld/stateofworld/executor"
	"github.com/stateofworld/stateofworld/fake"
	"github.com/stateofworld/stateofworld/reconciler"
)

// hookClock calls hook each time somebody asks for the time: while facts are read, and once more when an operation is about
// to start, after the decision and before its key is reserved. So a test can change the worlds in between.
type hookClock struct {
	*clocktesting.FakeClock
	hook atomic.Pointer[func()]
}

func (c *hookClock) Now() time.Time {
	// Not while it runs: what a hook does asks for the time too.
	if hook := c.hook.Swap(nil); hook != nil {
		(*hook)()
		c.hook.CompareAndSwap(nil, hook)
	}
	return c.FakeClock.Now()
}

// R1, kubernetes/kubernetes#93902: whatever moment the world changes at, an operation that is not needed any more is not started.
func TestAChangeBetweenDecisionAndStartStopsTheOperation(t *testing.T) {
	cases := map[string]struct {
		mode   v1.PersistentVolumeAccessMode
		before func(*fake.World)
		change func(*fake.World)
		op     fake.Op
	}{
		"shared, attached meanwhile": {
			mode: v1.ReadWriteMany, op: fake.Attach,
			before: func(w *fake.World) { w.Pod("p", "v", "a") },
			change: func(w *fake.World) {
				_ = w.Actual.MarkVolumeAsAttached(fake.VolumeName("v"), nil, "a", "")
			},
		},
		"exclusive, attached elsewhere meanwhile": {
			mode: v1.ReadWriteOnce, op: fake.Attach,
			before: func(w *fake.World) { w.Pod("p", "v", "a") },
			change: func(w *fake.World) {
				_ = w.Actual.MarkVolumeAsAttached(fake.VolumeName("v"), nil, "b", "")
				w.InUse("b", "v")
			},
		},
		"wished again meanwhile": {
			mode: v1.ReadWriteOnce, op: fake.Detach,
			before: func(w *fake.World) { w.Seed("v", "a", cache.Attached) },
			change: func(w *fake.World) { w.Pod("p", "v", "a") },
		},
		"detached meanwhile": {
			mode: v1.ReadWriteOnce, op: fake.Detach,
			before: func(w *fake.World) { w.Seed("v", "a", cache.Attached) },
			change: func(w *fake.World) { w.Actual.MarkVolumeAsDetached(fake.VolumeName("v"), "a") },
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			moments := 0
			for at := 1; ; at++ {
				clock := &hookClock{}
				w := fake.NewWorld(t, fake.WithConfig(func(c *reconciler.Config) {
					clock.FakeClock = c.Clock.(*clocktesting.FakeClock)
					c.Clock, c.Reports = clock, nil // whose writer asks for the time at any moment
				}))
				w.Volume("v", c.mode)
				w.Node("a", "b")
				c.before(w)
				calls, changed := 0, false
				hook := func() {
					if calls++; calls == at && w.Driver.Count(c.op, "v", "a") == 0 && !started(w) {
						changed = true
						c.change(w)
					}
				}
				clock.hook.Store(&hook)
				w.Reconciler.Step(t.Context())
				none := func() {}
				clock.hook.Store(&none)
				w.WaitIdle()
				if !changed {
					break // the operation had started by then
				}
				moments++
				require.Zero(t, w.Driver.Count(c.op, "v", "a"), "changed at moment %d", at)
			}
			require.GreaterOrEqual(t, moments, 2, "moments before the start")
		})
	}
}

// started reports whether an operation has passed its check.
func started(w *fake.World) bool { return len(w.Reconciler.Operations().Pendings()) > 0 }

// An operation for another node that begins between decision and start is waited for, and not asked about again and again; also
// when it is not the reconciler's, so that nobody tells of its end.
func TestAnOperationThatBeginsElsewhereMeanwhileIsWaitedFor(t *testing.T) {
	for at := 1; at <= 3; at++ { // before, between and after the facts are read; nothing is reserved yet
		clock := &hookClock{}
		w := fake.NewWorld(t, fake.WithConfig(func(c *reconciler.Config) {
			clock.FakeClock = c.Clock.(*clocktesting.FakeClock)
			c.Clock, c.Reports = clock, nil // whose writer asks for the time at any moment
		}))
		w.Node("a", "b")
		w.Pod("p", "v", "a")
		release := make(chan struct{})
		calls := 0
		hook := func() {
			if calls++; calls == at {
				require.NoError(t, w.Reconciler.Operations().Start(t.Context(), executor.Operation{
					Key: executor.Key{Volume: fake.VolumeName("v"), Node: "b"},
					Run: func(context.Context) error { <-release; return nil },
				}))
			}
		}
		clock.hook.Store(&hook)
		for range 20 {
			w.Reconciler.Step(t.Context())
		}
		none := func() {}
		clock.hook.Store(&none)
		require.Zero(t, w.Driver.Count(fake.Attach, "v", "a"), "at %d", at)
		require.LessOrEqual(t, w.Reconciler.Stats().Evaluations, uint64(3), "at %d", at)
		close(release)
		require.NoError(t, w.Reconciler.Operations().Wait(t.Context()))
		w.Advance(time.Minute)
		require.Equal(t, cache.Attached, w.State("v", "a"), "at %d", at)
	}
}
