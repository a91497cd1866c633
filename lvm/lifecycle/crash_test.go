package lifecycle

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/stateofworld/stateofworld/fake"
	"github.com/stateofworld/stateofworld/lvm"
)

// endState is all that is left to be seen: objects and logical volumes, apart from what differs in every run.
func (w *testWorld) endState() string {
	var b strings.Builder
	w.api.Heal()
	claims, err := w.user.Claims("").List(w.ctx, metav1.ListOptions{})
	require.NoError(w.t, err)
	for _, c := range claims.Items {
		fmt.Fprintf(&b, "claim %s: %v %v\n", c.Name, c.Annotations, c.Labels)
	}
	volumes, err := w.user.Volumes().List(w.ctx, metav1.ListOptions{})
	require.NoError(w.t, err)
	for _, v := range volumes.Items {
		fmt.Fprintf(&b, "volume %s: %v %v\n", v.Name, v.Annotations, v.Finalizers)
	}
	lvs, err := w.hand.List(w.ctx, "vg0")
	require.NoError(w.t, err)
	for _, lv := range lvs {
		fmt.Fprintf(&b, "lv %s: %d %s %v\n", lv.LV, lv.Size, lv.Stage, lv.Tags)
	}
	require.NoError(w.t, w.lvm.Check())
	return b.String()
}

// scenarios are lives of objects that must end the same wherever the process is stopped.
var scenarios = map[string]struct {
	config []func(*AgentConfig)
	setUp  func(w *testWorld)
	act    func(w *testWorld)
	window time.Duration // how long it may be stopped; zero: 10 seconds
	rest   time.Duration // how long it is left alone then; zero: 5 minutes
}{
	"a claim is made": {
		act: func(w *testWorld) { w.claim("data", spec("pvc-1", 10*mib)) },
	},
	"a claim is made beside others": {
		setUp: func(w *testWorld) { w.makeLV("foreign"); w.owned("announced") },
		act: func(w *testWorld) {
			w.claim("data", spec("pvc-1", 10*mib))
			w.claim("taken", spec("foreign", 4*mib))
			w.claim("big", spec("big", 2*gib))
		},
	},
	"a claim goes before it is read again": {
		config: []func(*AgentConfig){removeOrphans}, rest: 5 * time.Hour,
		act: func(w *testWorld) {
			w.api.FailNext(getClaim, nil)
			w.api.BeforeNext(getClaim, func() { w.deleteClaim("data") })
			w.claim("data", spec("pvc-1", mib))
		},
	},
	"a claim goes before it is marked": {
		config: []func(*AgentConfig){removeOrphans}, rest: 5 * time.Hour,
		act: func(w *testWorld) {
			w.api.BeforeNext(patchClaim, func() { w.deleteClaim("data") })
			w.claim("data", spec("pvc-1", mib))
		},
	},
	"a volume is removed": {
		setUp: func(w *testWorld) { w.owned("pvc-1"); w.makeLV("foreign") },
		act:   func(w *testWorld) { w.volume("pvc-1", "owner") },
	},
	"a volume is wiped and removed, with its finalizer": {
		config: []func(*AgentConfig){withFinalizer, func(c *AgentConfig) { c.Wipe = lvm.WipeZero }},
		setUp:  func(w *testWorld) { w.owned("pvc-1") },
		act: func(w *testWorld) {
			w.volume("pvc-1", "owner", func(pv *v1.PersistentVolume) { pv.Finalizers = []string{"example.com/other", testFinalizer} })
		},
	},
	"a volume on several nodes is removed": {
		setUp: func(w *testWorld) { w.owned("pvc-1") },
		act: func(w *testWorld) {
			w.volume("pvc-1", "owner", func(pv *v1.PersistentVolume) {
				pv.Spec.NodeAffinity.Required.NodeSelectorTerms[0].MatchExpressions[0].Values = []string{"node-b", nodeA}
			})
		},
	},
	"a volume is removed and its name is used again": {
		setUp: func(w *testWorld) { w.owned("pvc-1") },
		act: func(w *testWorld) {
			w.volume("pvc-1", "owner")
			w.claim("data", spec("pvc-1", mib))
		},
	},
	"a volume is protected and released": {
		config: []func(*AgentConfig){withFinalizer},
		setUp: func(w *testWorld) {
			w.volume("pvc-1", "owner", quiet, func(pv *v1.PersistentVolume) { pv.Finalizers = []string{testFinalizer} })
		},
		act: func(w *testWorld) { w.deleteVolume("pvc-1"); w.volume("pvc-2", "owner", quiet) },
	},
	"an orphan is wiped and removed": {
		config: []func(*AgentConfig){removeOrphans, func(c *AgentConfig) { c.Wipe = lvm.WipeZero }}, window: 4 * time.Hour, rest: 5 * time.Hour,
		act: func(w *testWorld) { w.owned("pvc-1") },
	},
	"a failure is written": {
		act: func(w *testWorld) { w.claim("data", "nonsense") },
	},
}

// The process stops at every one of its steps, a new one starts, and the end is the same as without the stop.
func TestAStopAtAnyStepChangesNothingInTheEnd(t *testing.T) {
	for name, s := range scenarios {
		t.Run(name, func(t *testing.T) {
			window, rest := cmp.Or(s.window, 10*time.Second), cmp.Or(s.rest, 5*time.Minute)
			run := func(stop func(w *testWorld)) (end string, stopped bool) {
				w := makeTestWorld(t, t.Context(), s.config...)
				defer w.kill()
				if s.setUp != nil {
					s.setUp(w)
				}
				w.lvm.ForgetCalls()
				if stop != nil {
					stop(w)
				}
				s.act(w)
				w.untilStopped(window)
				stopped = w.stopped()
				if stopped {
					w.restart()
				}
				w.advance(rest)
				return w.endState(), stopped
			}
			want, _ := run(nil)
			steps := 0
			for _, when := range []fake.StopWhen{fake.StopBefore, fake.StopDuring, fake.StopAfter} {
				for n := 1; ; n++ {
					end, stopped := run(func(w *testWorld) { w.lvm.StopAt(n, when) })
					if !stopped {
						break
					}
					require.Equal(t, want, end, "stopped %s command %d", when, n)
					steps++
				}
				for n := 1; when != fake.StopDuring; n++ {
					end, stopped := run(func(w *testWorld) { w.session.StopAt(n, when) })
					if !stopped {
						break
					}
					require.Equal(t, want, end, "stopped %s call %d", when, n)
					steps++
				}
			}
			require.Greater(t, steps, 3)
			t.Logf("%d steps; %d lines of end state", steps, len(slices.Collect(strings.Lines(want))))
		})
	}
}
