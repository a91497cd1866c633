package fake_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/stateofworld/stateofworld/cache"
	"github.com/stateofworld/stateofworld/cache/populator"
	"github.com/stateofworld/stateofworld/fake"
)

var (
	_ populator.ClaimGetter  = fake.ClaimLister{}
	_ populator.VolumeGetter = fake.VolumeLister{}
)

// trialT is a test that may fail without failing this one.
type trialT struct {
	testing.TB
	failures []string
	cleanups []func()
}

func (r *trialT) Helper()                  {}
func (r *trialT) Cleanup(f func())         { r.cleanups = append(r.cleanups, f) }
func (r *trialT) Context() context.Context { return context.Background() }
func (r *trialT) Errorf(format string, a ...any) {
	r.failures = append(r.failures, fmt.Sprintf(format, a...))
}
func (r *trialT) Fatalf(format string, a ...any) { r.Errorf(format, a...); panic(r) }

// failures runs f as a test, and returns what it failed with.
func failures(f func(t fake.TB)) string {
	r := &trialT{}
	func() {
		defer func() {
			if v := recover(); v != nil && v != any(r) {
				panic(v)
			}
		}()
		f(r)
	}()
	for _, cleanup := range r.cleanups {
		cleanup()
	}
	return strings.Join(r.failures, "\n")
}

func TestAScriptThatIsWrongFails(t *testing.T) {
	for script, want := range map[string]string{
		"node a\nexpect-state v a attached":           "line 2: expect-state v a attached",
		"node a\nexplain v a Attaching":               "want Attaching",
		"fly":                                         "no such command: fly",
		"node":                                        "needs 1 arguments",
		"node a\noption live-checks":                  "option must come first",
		"option warp":                                 "no such option: warp",
		"policy kind":                                 "no such policy: kind",
		"health a fine":                               "no such health: fine",
		"driver next attach v a shrug":                "no such answer: shrug",
		"driver next eat v a ok":                      "no such operation: eat",
		"live in-use a v":                             "needs: option live-checks",
		"expect-notice VolumeInUseElsewhere -":        "there is no further notice",
		"node a\ndesire p v a\nidle\nexpect-calls":    "got  attach v a",
		"desire p v a":                                "node is unknown",
		"node a\ndesire p v a\nidle\nexpect-report a": "got  [v]",
	} {
		require.Contains(t, failures(func(t fake.TB) { fake.RunScript(t, script) }), want, "%q", script)
	}
	require.Empty(t, failures(func(t fake.TB) {
		fake.RunScript(t, "node a\ndesire p v a\nsettle\nexpect-calls attach v a # as it should be")
	}))
}

// The checker at the end of each test finds what a broken controller does.
func TestAWorldFindsWhatMustNotBe(t *testing.T) {
	call := func(w *fake.World, op fake.Op) {
		volume := fake.VolumeName("v")
		if op == fake.Attach {
			_, _ = w.Driver.Attach(context.Background(), cache.VolumeToAttach{VolumeName: volume, NodeName: "a"})
			return
		}
		_ = w.Driver.Detach(context.Background(), cache.AttachedVolume{VolumeName: volume, NodeName: "a"})
	}
	for want, broken := range map[string]func(w *fake.World){
		"called again although the last one succeeded": func(w *fake.World) {
			call(w, fake.Attach)
			call(w, fake.Attach)
		},
		"exclusive volume is attached to [a b]": func(w *fake.World) {
			w.Driver.SetAttached("v", "b", true)
			call(w, fake.Attach)
		},
		"two writes of the report of node a at once": func(w *fake.World) {
			w.Reports.Block("a")
			done := make(chan error)
			for range 2 {
				go func() { done <- w.Reports.Write(context.Background(), "a", []v1.AttachedVolume{}) }()
			}
			for len(w.Reports.Violations()) == 0 {
			}
			w.Reports.Unblock("a")
			require.NoError(t, errors.Join(<-done, <-done))
		},
	} {
		require.Contains(t, failures(func(t fake.TB) { broken(fake.NewWorld(t)) }), want)
	}
}

func TestACrashLosesWhatWasInMemoryAndNothingElse(t *testing.T) {
	w := fake.NewWorld(t)
	w.Node("a")
	w.Pod("p", "v", "a")
	w.Driver.Next(fake.Attach, "v", "a", fake.Answer{Block: true})
	w.WaitIdle()
	require.Equal(t, []string{"attach v a"}, w.Driver.BlockedCalls())
	w.Driver.SetAttached("v", "a", true) // the storage does it, and nobody hears of it
	w.Restart()
	require.Zero(t, w.Actual.Sizes())
	require.Equal(t, cache.Detached, w.State("v", "a"))
	require.NotEmpty(t, w.Driver.AttachedTo("v"))
	w.Node("a")
	w.Seed("v", "a", cache.Uncertain)
	w.Settle()
	require.Empty(t, w.Driver.AttachedTo("v"))
}

func TestListersFindWhatWasAdded(t *testing.T) {
	l := fake.NewListers()
	claim, volume := fake.NewClaim("ns/data", "a"), &v1.PersistentVolume{}
	volume.Name = "pv"
	_, err := l.Claims().Get(claim.Namespace, claim.Name)
	require.True(t, apierrors.IsNotFound(err))
	l.Add(claim, volume)
	found, err := l.Claims().Get(claim.Namespace, claim.Name)
	require.NoError(t, err)
	require.Same(t, claim, found)
	pv, err := l.Volumes().Get("pv")
	require.NoError(t, err)
	require.Same(t, volume, pv)
	l.Fail(errors.New("cold cache"))
	_, err = l.Volumes().Get("pv")
	require.EqualError(t, err, "cold cache")
	l.Fail(nil)
	l.Remove(claim, volume)
	_, err = l.Volumes().Get("pv")
	require.True(t, apierrors.IsNotFound(err))
}

func ExampleNewWorld() {
	t := &trialT{} // in a test, its *testing.T
	w := fake.NewWorld(t)
	w.Node("a", "b")
	w.Pod("web-0", "vol-1", "a")
	w.Settle()
	w.InUse("a", "vol-1") // the node mounts it
	w.Move("web-0", "b")
	w.Settle()
	fmt.Println(w.Driver.Calls())
	fmt.Println(w.Explain("vol-1", "b"))
	for _, cleanup := range t.cleanups {
		cleanup() // a test does this by itself
	}
	// Output:
	// [attach vol-1 a]
	// waiting: attached to node "a" since 12:00:00; there: waiting: in use on the node since 12:00:00
}
