package executor

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/stateofworld/stateofworld/cache"
)

type (
	answer  = map[v1.UniqueVolumeName]Verification
	answers = map[types.NodeName]answer
)

// verifyNow verifies all that is in the actual world, and returns the result when all calls have returned.
func (s *stage) verifyNow() VerifyResult {
	s.t.Helper()
	results := make(chan VerifyResult, 1)
	require.NoError(s.t, s.VerifyVolumes(ctx, s.actual.GetAttachedVolumesPerNode(), func(r VerifyResult) { results <- r }))
	return <-results
}

// S6, kubernetes/kubernetes#117091: unknown and errors change nothing, and do not keep other answers from being used.
func TestVerifyBelievesOnlyWhatIsKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, Options{})
		for _, v := range []v1.UniqueVolumeName{"still", "lost", "unknown", "missing"} {
			s.put(v, "a", cache.Attached)
		}
		s.put("uncertain", "a", cache.Uncertain)
		s.put("v", "errs", cache.Attached)
		s.put("v", "panics", cache.Attached)
		before := map[types.NodeName][]cache.AttachedVolume{}
		for _, node := range []types.NodeName{"errs", "panics"} {
			_, err := s.actual.SetDetachRequestTime("v", node)
			require.NoError(t, err)
			before[node] = s.actual.GetAttachedVolumesForNode(node)
		}
		s.driver.verify = func(_ context.Context, node types.NodeName, volumes []cache.AttachedVolume) (answer, error) {
			switch node {
			case "errs":
				return answer{"v": NotAttached}, errFail
			case "panics":
				panic("boom")
			}
			for _, v := range volumes {
				require.NotEqual(t, v1.UniqueVolumeName("uncertain"), v.VolumeName, "a late attach may still be under way")
			}
			return answer{"still": StillAttached, "lost": NotAttached, "unknown": VerifyUnknown, "uncertain": NotAttached, "never asked": NotAttached}, nil
		}
		results := make(chan VerifyResult, 1)
		snapshot := map[types.NodeName][]cache.AttachedVolume{}
		for v := range s.actual.AttachedVolumes() {
			snapshot[v.NodeName] = append(snapshot[v.NodeName], v)
		}
		require.Len(t, snapshot["a"], 5)
		require.NoError(t, s.VerifyVolumes(ctx, snapshot, func(r VerifyResult) { results <- r }))
		r := <-results
		require.Equal(t, 6, r.Asked)
		require.Equal(t, 1, r.StillAttached)
		require.Equal(t, []cache.Pair{{Volume: "lost", Node: "a"}}, r.Detached)
		require.Equal(t, 4, r.Unknown)
		require.Zero(t, r.Changed)
		require.Empty(t, r.Skipped)
		require.Len(t, r.Errors, 2)
		require.ErrorIs(t, r.Errors["errs"], errFail)
		require.ErrorAs(t, r.Errors["panics"], new(*PanicError))
		for node, want := range before {
			require.Equal(t, want, s.actual.GetAttachedVolumesForNode(node))
			require.Len(t, s.actual.Report(node).Volumes, 1)
		}
		require.Equal(t, cache.Detached, s.state("lost", "a"))
		require.Equal(t, cache.Uncertain, s.state("uncertain", "a"))
		require.Len(t, s.actual.GetAttachedVolumesForNode("a"), 4)
	})
}

func TestVerifyDropsAnswersAboutAnOlderState(t *testing.T) {
	s := newStage(t, Options{})
	s.put("v", "a", cache.Attached)
	s.driver.verify = func(context.Context, types.NodeName, []cache.AttachedVolume) (answer, error) {
		s.actual.MarkVolumeAsDetached("v", "a") // detached and attached again meanwhile
		s.put("v", "a", cache.Attached)
		return answer{"v": NotAttached}, nil
	}
	r := s.verifyNow()
	require.Equal(t, 1, r.Changed)
	require.Empty(t, r.Detached)
	require.Equal(t, cache.Attached, s.state("v", "a"))
}

// P3, kubernetes/kubernetes#84169
func TestVerifyNeverRunsTwiceAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, Options{MaxConcurrent: 1})
		for i := range 40 {
			s.put(v1.UniqueVolumeName(fmt.Sprint(i)), types.NodeName(fmt.Sprint(i)), cache.Attached)
		}
		var inFlight, most atomic.Int32
		s.driver.verify = func(context.Context, types.NodeName, []cache.AttachedVolume) (answer, error) {
			if n := inFlight.Add(1); n > most.Load() {
				most.Store(n)
			}
			<-time.After(5 * time.Second)
			inFlight.Add(-1)
			return nil, nil
		}
		var started, done, missed int
		ticked := make(chan VerifyResult, 100)
		for range 30 { // every second
			err := s.VerifyVolumes(ctx, s.actual.GetAttachedVolumesPerNode(), func(r VerifyResult) { ticked <- r })
			if err == nil {
				started++
			} else {
				require.ErrorAs(t, err, new(*AlreadyExistsError))
				missed++
			}
			// An attach is not delayed, although there is one slot and 40 nodes to verify.
			before := time.Now()
			require.Equal(t, Done, s.attach(AttachRequest{Volume: toAttach(v1.UniqueVolumeName(fmt.Sprint("new", missed, started)), "a")}).Outcome)
			require.Equal(t, before, time.Now())
			pass(time.Second)
		}
		require.NoError(t, s.ops.Wait(ctx))
		close(ticked)
		for r := range ticked {
			done++
			require.Empty(t, r.Skipped)
		}
		require.Equal(t, 2, started, "40 nodes in turns of 16, 5 s each")
		require.Equal(t, 28, missed)
		require.Equal(t, started, done)
		require.EqualValues(t, DefaultMaxBackground, most.Load())
	})
}

// One node whose verification never returns must not end the verification of all others.
func TestVerifySkipsANodeWhoseCallIsStuck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, Options{Timeout: time.Minute})
		s.put("v", "stuck", cache.Attached)
		s.put("w", "fine", cache.Attached)
		release := make(chan struct{})
		s.driver.verify = func(_ context.Context, node types.NodeName, _ []cache.AttachedVolume) (answer, error) {
			if node == "stuck" {
				<-release
				return answer{"v": NotAttached}, nil
			}
			return answer{"w": StillAttached}, nil
		}
		var late *VerifyResult
		require.NoError(t, s.VerifyVolumes(ctx, s.actual.GetAttachedVolumesPerNode(), func(r VerifyResult) { late = &r }))
		pass(time.Minute - 1)
		require.ErrorAs(t, s.VerifyVolumes(ctx, s.actual.GetAttachedVolumesPerNode(), nil), new(*AlreadyExistsError))
		pass(1)
		r := s.verifyNow()
		require.Equal(t, 1, r.StillAttached)
		require.Len(t, r.Skipped, 1)
		require.ErrorAs(t, r.Skipped["stuck"], new(*AlreadyExistsError))
		require.Nil(t, late)
		close(release)
		require.NoError(t, s.ops.Wait(ctx))
		require.Equal(t, []cache.Pair{{Volume: "v", Node: "stuck"}}, late.Detached, "the pair has not changed: the late answer counts")
		requireEmpty(t, s.ops)
	})
}

func TestVerifyOfAFailingNodeBacksOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, noJitter)
		s.put("v", "a", cache.Attached)
		s.put("w", "b", cache.Attached)
		s.driver.verify = func(_ context.Context, node types.NodeName, _ []cache.AttachedVolume) (answer, error) {
			if node == "a" {
				return nil, errFail
			}
			return nil, nil
		}
		require.ErrorIs(t, s.verifyNow().Errors["a"], errFail)
		r := s.verifyNow()
		require.ErrorAs(t, r.Skipped["a"], new(*BackoffError))
		require.Equal(t, 1, r.Asked)
		require.Len(t, s.driver.Calls(), 3)
		s.actual.MarkVolumeAsDetached("w", "b")
		require.ErrorAs(t, s.VerifyVolumes(ctx, s.actual.GetAttachedVolumesPerNode(), nil), new(*BackoffError), "nothing could be started")
		pass(500 * time.Millisecond)
		require.Empty(t, s.verifyNow().Skipped)
	})
}

func TestBulkVerifierGetsOneCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &bulkDriver{}
		s := newStageWith(t, Options{Timeout: time.Minute}, d)
		for i := range 100 {
			s.put(v1.UniqueVolumeName(fmt.Sprint("v", i)), types.NodeName(fmt.Sprint("n", i%10)), cache.Attached)
		}
		d.verifyAll = func(_ context.Context, volumes map[types.NodeName][]cache.AttachedVolume) (answers, error) {
			require.Len(t, volumes, 10)
			return answers{"n1": {"v1": NotAttached, "v2": NotAttached}, "n2": {"v2": StillAttached}}, nil
		}
		r := s.verifyNow()
		require.Equal(t, []string{"verify all"}, d.Calls())
		require.Equal(t, 100, r.Asked)
		require.Equal(t, 1, r.StillAttached)
		require.Equal(t, []cache.Pair{{Volume: "v1", Node: "n1"}}, r.Detached)
		require.Equal(t, 98, r.Unknown)
		require.Equal(t, cache.Attached, s.state("v2", "n2"), "v2 was asked for on n2 only")

		release := make(chan struct{})
		d.verifyAll = func(context.Context, map[types.NodeName][]cache.AttachedVolume) (answers, error) {
			<-release
			return answers{"n2": {"v2": NotAttached}}, errFail
		}
		var result VerifyResult
		require.NoError(t, s.VerifyVolumes(ctx, s.actual.GetAttachedVolumesPerNode(), func(r VerifyResult) { result = r }))
		pass(time.Hour)
		require.ErrorAs(t, s.VerifyVolumes(ctx, s.actual.GetAttachedVolumesPerNode(), nil), new(*AlreadyExistsError))
		close(release)
		require.NoError(t, s.ops.Wait(ctx))
		require.Len(t, result.Errors, 10)
		require.Equal(t, 99, result.Unknown)
		require.Equal(t, cache.Attached, s.state("v2", "n2"))
	})
}

func TestVerifyWithNothingToAskIsDoneAtOnce(t *testing.T) {
	s := newStage(t, Options{})
	s.put("v", "a", cache.Uncertain)
	require.NoError(t, s.VerifyVolumes(ctx, nil, nil))
	called := 0
	again := func(VerifyResult) { called++ }
	snapshot := map[types.NodeName][]cache.AttachedVolume{"a": {s.attached("v", "a")}, "": {{VolumeName: "v", State: cache.Attached}}}
	require.NoError(t, s.VerifyVolumes(ctx, snapshot, func(r VerifyResult) {
		require.Zero(t, r)
		called++
		require.NoError(t, s.VerifyVolumes(ctx, nil, again), "it may be called from done")
	}))
	require.Equal(t, 2, called)
	require.Empty(t, s.driver.Calls())
}

func TestVerifyAfterShutdownIsRefused(t *testing.T) {
	for _, d := range []Attacher{&driver{}, &bulkDriver{}} {
		s := newStageWith(t, Options{}, d)
		s.put("v", "a", cache.Attached)
		s.put("v", "b", cache.Attached)
		require.NoError(t, s.ops.Shutdown(ctx))
		require.ErrorIs(t, s.VerifyVolumes(ctx, s.actual.GetAttachedVolumesPerNode(), nil), ErrShutdown)
	}
}

func TestVerifyHasItsOwnTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, Options{})
		s.OperationExecutor.verifyTimeout = time.Second
		s.put("v", "a", cache.Attached)
		s.driver.verify = func(ctx context.Context, _ types.NodeName, _ []cache.AttachedVolume) (answer, error) {
			return nil, untilCancelled(ctx)
		}
		start := time.Now()
		require.ErrorIs(t, s.verifyNow().Errors["a"], ErrTimeout)
		require.Equal(t, time.Second, time.Since(start))
	})
}

func TestVerificationsHaveNames(t *testing.T) {
	for v, name := range []string{"unknown", "still attached", "not attached", "Verification(3)"} {
		require.Equal(t, name, Verification(v).String())
	}
}
