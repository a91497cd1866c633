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

	"github.com/stateofworld/stateofworld/cache"
)

func TestAttachWritesItsOutcome(t *testing.T) {
	for _, c := range []struct {
		name    string
		err     error
		before  cache.AttachState
		outcome Outcome
		after   cache.AttachState
		backoff bool
	}{
		{"done", nil, cache.Detached, Done, cache.Attached, false},
		{"done, was uncertain", nil, cache.Uncertain, Done, cache.Attached, false},
		{"refused", Precondition(errFail), cache.Detached, Refused, cache.Detached, false},
		{"refused, was uncertain", Precondition(errFail), cache.Uncertain, Refused, cache.Uncertain, false},
		{"failed for certain", NothingHappened(errFail), cache.Detached, FailedForCertain, cache.Detached, true},
		{"failed for certain, was uncertain", NothingHappened(errFail), cache.Uncertain, FailedForCertain, cache.Uncertain, true},
		{"gone", GoneError(errFail), cache.Detached, Gone, cache.Detached, true},
		{"unknown", errFail, cache.Detached, Unknown, cache.Uncertain, true}, // U1, kubernetes/kubernetes#32727
		{"unknown, was uncertain", errFail, cache.Uncertain, Unknown, cache.Uncertain, true},
		{"cancelled", context.Canceled, cache.Detached, Unknown, cache.Uncertain, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newStage(t, Options{})
			s.put("v", "a", c.before)
			s.driver.attach = func(context.Context, cache.VolumeToAttach) (string, error) { return "/dev/v", c.err }
			e := s.attach(AttachRequest{Volume: toAttach("v", "a"), Exclusive: true})
			require.Equal(t, c.outcome, e.Outcome)
			require.Equal(t, c.after, s.state("v", "a"))
			require.Equal(t, c.after == cache.Attached, s.reported("v", "a"), "only what is attached is reported (U3, kubernetes/kubernetes#109951)")
			require.Equal(t, c.backoff, e.Attempts == 1)
			require.Equal(t, c.backoff, !e.NextTry.IsZero())
			require.Equal(t, OpAttach, e.Operation)
			require.False(t, e.Panicked)
			require.Equal(t, []Event{e}, s.events)
			if c.err == nil {
				require.NoError(t, e.Err)
				require.Equal(t, "/dev/v", e.DevicePath)
				require.Equal(t, "/dev/v", s.attached("v", "a").DevicePath)
			} else {
				require.ErrorIs(t, e.Err, c.err)
				require.ErrorContains(t, e.Err, `attach volume "v", node "a": `)
				require.Empty(t, e.DevicePath)
			}
		})
	}
}

func TestEmptyDevicePathStaysEmpty(t *testing.T) {
	s := newStage(t, Options{})
	s.driver.attach = func(context.Context, cache.VolumeToAttach) (string, error) { return "", nil }
	require.Equal(t, Done, s.attach(AttachRequest{Volume: toAttach("v", "a")}).Outcome)
	require.Empty(t, s.attached("v", "a").DevicePath)
}

func TestDetachWritesItsOutcome(t *testing.T) {
	for _, c := range []struct {
		name     string
		err      error
		before   cache.AttachState
		outcome  Outcome
		after    cache.AttachState
		reported bool
		backoff  bool
	}{
		{"done", nil, cache.Attached, Done, cache.Detached, false, false},
		{"done, was uncertain", nil, cache.Uncertain, Done, cache.Detached, false, false},
		{"gone", GoneError(errFail), cache.Attached, Gone, cache.Detached, false, false}, // N4, kubernetes-csi/external-attacher#215
		{"refused", Precondition(errFail), cache.Attached, Refused, cache.Attached, true, false},
		{"failed for certain", NothingHappened(errFail), cache.Attached, FailedForCertain, cache.Attached, true, true},
		{"failed for certain, was uncertain", NothingHappened(errFail), cache.Uncertain, FailedForCertain, cache.Uncertain, false, true},
		{"unknown", errFail, cache.Attached, Unknown, cache.Uncertain, false, true}, // U2, kubernetes/kubernetes#120571
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newStage(t, Options{})
			s.put("v", "a", c.before)
			s.driver.detach = func(context.Context, cache.AttachedVolume) error {
				require.False(t, s.reported("v", "a"))
				return c.err
			}
			e := s.detach(DetachRequest{
				Volume:   s.attached("v", "a"),
				Withdraw: func(context.Context) error { return s.actual.RemoveVolumeFromReportAsAttached("v", "a") },
				Restore:  func() { s.actual.AddVolumeToReportAsAttached("v", "a") },
			})
			require.Equal(t, c.outcome, e.Outcome)
			require.Equal(t, c.after, s.state("v", "a"))
			require.Equal(t, c.reported, s.reported("v", "a"))
			require.Equal(t, c.backoff, e.Attempts == 1)
			require.Equal(t, OpDetach, e.Operation)
			if c.err == nil {
				require.NoError(t, e.Err)
			} else {
				require.ErrorIs(t, e.Err, errFail)
				require.ErrorContains(t, e.Err, `detach volume "v", node "a": device is busy`)
			}
		})
	}
}

// R2, kubernetes/kubernetes#27836, and the rule that the outcome is written before the key is free.
func TestDetachKeepsItsOrder(t *testing.T) {
	for _, err := range []error{nil, NothingHappened(errFail)} {
		s := newStage(t, Options{})
		s.put("v", "a", cache.Attached)
		var order []string
		step := func(name string) {
			if s.ops.IsOperationPending(Key{Volume: "v", Node: "b"}) {
				name += "*"
			}
			order = append(order, name)
		}
		s.driver.detach = func(context.Context, cache.AttachedVolume) error { step("driver"); return err }
		cancel := s.actual.Subscribe(func(cache.Pair) { step("world") })
		s.OperationExecutor.onOutcome = func(Event) { step("outcome") }
		s.detach(DetachRequest{
			Volume: s.attached("v", "a"), Exclusive: true,
			Check:    func() error { step("check"); return nil },
			Withdraw: func(context.Context) error { step("withdraw"); return nil },
			Confirm:  func(context.Context) error { step("confirm"); return nil },
			Restore:  func() { step("restore") },
		})
		cancel()
		// With a star: the key, and with it the volume on every node, is still reserved.
		want := []string{"check*", "withdraw*", "confirm*", "driver*", "world*", "outcome"}
		if err != nil {
			want[4] = "restore*"
		}
		require.Equal(t, want, order)
	}
}

func TestDetachIsRefusedWithoutTheDriverWhenInDoubt(t *testing.T) {
	for name, c := range map[string]struct {
		request DetachRequest
		panics  bool
	}{
		"withdrawal fails":       {request: DetachRequest{Withdraw: fail}},
		"withdrawal takes long":  {request: DetachRequest{Withdraw: untilCancelled}},
		"withdrawal panics":      {request: DetachRequest{Withdraw: func(context.Context) error { panic("boom") }}, panics: true},
		"still in use":           {request: DetachRequest{Confirm: fail}},
		"live check takes long":  {request: DetachRequest{Confirm: untilCancelled}},
		"live check too late":    {request: DetachRequest{Confirm: func(ctx context.Context) error { <-ctx.Done(); return nil }}},
		"live check panics":      {request: DetachRequest{Confirm: func(context.Context) error { panic("boom") }}, panics: true},
		"node of the check gone": {request: DetachRequest{Confirm: func(context.Context) error { return GoneError(errFail) }}},
		"check says unknown":     {request: DetachRequest{Confirm: func(context.Context) error { return NothingHappened(&DanglingError{Node: "b"}) }}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStage(t, Options{})
				s.put("v", "a", cache.Attached)
				r := c.request
				r.Volume = s.attached("v", "a")
				restored := 0
				r.Restore = func() { restored++ }
				for range 3 { // a refusal burns no back-off
					e := s.detach(r)
					require.Equal(t, Refused, e.Outcome)
					require.ErrorIs(t, e.Err, ErrPrecondition)
					require.Zero(t, e.Attempts)
					require.Equal(t, c.panics, e.Panicked)
				}
				require.Equal(t, 3, restored)
				require.Empty(t, s.driver.Calls())
				require.Equal(t, cache.Attached, s.state("v", "a"), "a refusal changes no state (U4, kubernetes/kubernetes#124334)")
				require.Equal(t, cache.Detached, s.state("v", "b"))
				requireEmpty(t, s.ops)
			})
		})
	}
}

// E3: a panic is an error, and leaves the pair Uncertain.
func TestPanicOfTheDriverIsUnknown(t *testing.T) {
	var panics []string
	s := newStage(t, Options{OnPanic: func(i Info, p *PanicError) { panics = append(panics, fmt.Sprint(i.Name, " ", p.Value)) }})
	s.put("w", "a", cache.Attached)
	s.driver.attach = func(context.Context, cache.VolumeToAttach) (string, error) { panic(GoneError(nil)) }
	s.driver.detach = func(context.Context, cache.AttachedVolume) error { panic(GoneError(nil)) }
	for _, e := range []Event{s.attach(AttachRequest{Volume: toAttach("v", "a")}), s.detach(DetachRequest{Volume: s.attached("w", "a")})} {
		require.Equal(t, Unknown, e.Outcome)
		require.True(t, e.Panicked)
		require.Equal(t, 1, e.Attempts)
		require.Equal(t, cache.Uncertain, s.state(e.Volume, "a"))
	}
	require.Equal(t, []string{"attach " + ErrGone.Error(), "detach " + ErrGone.Error()}, panics)
}

func TestTimeOutIsUnknownAndKeepsTheVolumeSerialised(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, Options{})
		release := make(chan struct{})
		s.driver.attach = func(context.Context, cache.VolumeToAttach) (string, error) { <-release; return "", errFail }
		var event Event
		require.NoError(t, s.AttachVolume(ctx, AttachRequest{
			Volume: toAttach("v", "a"), Exclusive: true, Timeout: time.Second, Done: func(e Event) { event = e },
		}))
		pass(time.Hour)
		require.ErrorAs(t, s.AttachVolume(ctx, AttachRequest{Volume: toAttach("v", "b"), Exclusive: true}), new(*AlreadyExistsError))
		require.ErrorAs(t, s.DetachVolume(ctx, DetachRequest{Volume: s.attached("v", "a")}), new(*AlreadyExistsError))
		close(release)
		require.NoError(t, s.Operations().Wait(ctx))
		require.Equal(t, Unknown, event.Outcome)
		require.ErrorIs(t, event.Err, ErrTimeout)
		require.Equal(t, cache.Uncertain, s.state("v", "a"))
		require.Equal(t, time.Hour, event.Took)
	})
}

func TestDanglingAttachmentMakesTheOtherNodeUncertain(t *testing.T) {
	for _, c := range []struct {
		name          string
		err           error
		other         cache.AttachState
		outcome       Outcome
		asked, result cache.AttachState
	}{
		{"not known there", &DanglingError{Node: "b", Err: errFail}, cache.Detached, FailedForCertain, cache.Detached, cache.Uncertain},
		{"known there", &DanglingError{Node: "b"}, cache.Attached, FailedForCertain, cache.Detached, cache.Attached},
		{"uncertain there", &DanglingError{Node: "b"}, cache.Uncertain, FailedForCertain, cache.Detached, cache.Uncertain},
		{"wrapped", fmt.Errorf("attach: %w", &DanglingError{Node: "b"}), cache.Detached, FailedForCertain, cache.Detached, cache.Uncertain},
		{"nobody knows where", &DanglingError{Err: errFail}, cache.Detached, FailedForCertain, cache.Detached, cache.Detached},
		{"elsewhere is here", &DanglingError{Node: "a"}, cache.Detached, Unknown, cache.Uncertain, cache.Detached},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newStage(t, Options{})
			s.put("v", "b", c.other)
			s.driver.attach = func(context.Context, cache.VolumeToAttach) (string, error) { return "", c.err }
			e := s.attach(AttachRequest{Volume: toAttach("v", "a"), Exclusive: true})
			require.Equal(t, c.outcome, e.Outcome)
			require.Equal(t, c.asked, s.state("v", "a"))
			require.Equal(t, c.result, s.state("v", "b"))
			require.Equal(t, 1, e.Attempts)
			require.NotErrorIs(t, e.Err, cache.ErrInvalid)
			if c.result == cache.Uncertain {
				require.NotNil(t, s.attached("v", "b").VolumeSpec, "it can be detached with its spec")
			}
		})
	}
	t.Run("on detach", func(t *testing.T) {
		s := newStage(t, Options{})
		s.put("v", "a", cache.Attached)
		s.driver.detach = func(context.Context, cache.AttachedVolume) error { return &DanglingError{Node: "b"} }
		require.Equal(t, FailedForCertain, s.detach(DetachRequest{Volume: s.attached("v", "a")}).Outcome)
		require.Equal(t, cache.Attached, s.state("v", "a"))
		require.Equal(t, cache.Uncertain, s.state("v", "b"))
	})
}

// N4, kubernetes-csi/external-attacher#215: only gone is gone.
func TestOtherErrorsThanGoneNeverDetach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, noJitter)
		s.put("v", "a", cache.Attached)
		s.driver.detach = func(context.Context, cache.AttachedVolume) error { return errors.New("instance not reachable") }
		for attempt := 1; attempt <= 20; attempt++ {
			e := s.detach(DetachRequest{Volume: s.attached("v", "a"), Exclusive: true})
			require.Equal(t, cache.Uncertain, s.state("v", "a"))
			require.Equal(t, attempt, e.Attempts)
			wait := time.Until(e.NextTry)
			require.LessOrEqual(t, wait, DefaultBackoffCap)
			pass(wait)
		}
		info, ok := s.ops.Failures(keyVA, OpDetach)
		require.True(t, ok, "of an exclusive volume, too, it is kept for its node")
		require.Equal(t, 20, info.Attempts)
		require.ErrorContains(t, info.LastErr, "instance not reachable")
		s.driver.detach = func(context.Context, cache.AttachedVolume) error { return GoneError(errFail) }
		require.Zero(t, s.detach(DetachRequest{Volume: s.attached("v", "a"), Exclusive: true}).Attempts)
		require.Equal(t, cache.Detached, s.state("v", "a"))
		requireEmpty(t, s.ops)
	})
}

// M3, kubernetes/kubernetes#40148, and M4, kubernetes/kubernetes#73972
func TestExclusiveVolumesOneAtATimeSharedOnesTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, Options{})
		s.driver.attach = func(context.Context, cache.VolumeToAttach) (string, error) { <-time.After(time.Second); return "", nil }
		start := time.Now()
		for i := range 50 {
			require.NoError(t, s.AttachVolume(ctx, AttachRequest{Volume: toAttach("w", types.NodeName(fmt.Sprint(i)))}))
		}
		require.NoError(t, s.AttachVolume(ctx, AttachRequest{Volume: toAttach("v", "a"), Exclusive: true}))
		require.ErrorAs(t, s.AttachVolume(ctx, AttachRequest{Volume: toAttach("v", "b"), Exclusive: true}), new(*AlreadyExistsError))
		require.NoError(t, s.ops.Wait(ctx))
		require.Equal(t, time.Second, time.Since(start))
		require.Len(t, s.actual.GetNodesForAttachedVolume("w"), 50)
		require.Equal(t, []types.NodeName{"a"}, s.actual.GetNodesForAttachedVolume("v"))
	})
}

// The caps are per node also for exclusive volumes, whose key names no node.
func TestNodeCapHoldsForExclusiveVolumes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, Options{MaxPerNode: 1})
		s.driver.attach = func(context.Context, cache.VolumeToAttach) (string, error) { <-time.After(time.Second); return "", nil }
		start := time.Now()
		for i := range 3 {
			require.NoError(t, s.AttachVolume(ctx, AttachRequest{Volume: toAttach(v1.UniqueVolumeName(fmt.Sprint(i)), "a"), Exclusive: true}))
		}
		require.NoError(t, s.ops.Wait(ctx))
		require.Equal(t, 3*time.Second, time.Since(start))
	})
}

func TestShutdownLeavesNothingUnsaid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, Options{MaxConcurrent: 1})
		s.put("w", "a", cache.Attached)
		s.driver.attach = func(ctx context.Context, _ cache.VolumeToAttach) (string, error) { return "", untilCancelled(ctx) }
		require.NoError(t, s.AttachVolume(ctx, AttachRequest{Volume: toAttach("v", "a")}))
		restored := false
		require.NoError(t, s.DetachVolume(ctx, DetachRequest{
			Volume: s.attached("w", "a"), Withdraw: succeed, Restore: func() { restored = true },
		}))
		synctest.Wait()
		require.NoError(t, s.ops.Shutdown(ctx))
		require.Len(t, s.events, 2)
		for _, e := range s.events {
			require.ErrorIs(t, e.Err, ErrShutdown)
			if e.Operation == OpAttach {
				require.Equal(t, Unknown, e.Outcome)
			} else {
				require.Equal(t, Refused, e.Outcome)
			}
		}
		require.Equal(t, cache.Uncertain, s.state("v", "a"))
		require.Equal(t, cache.Attached, s.state("w", "a"))
		require.True(t, restored)
		require.Equal(t, []string{"attach v a"}, s.driver.Calls())
		require.ErrorIs(t, s.AttachVolume(ctx, AttachRequest{Volume: toAttach("x", "a")}), ErrShutdown)
	})
}

func TestBadRequestIsRefusedBeforeAnythingRuns(t *testing.T) {
	s := newStage(t, Options{})
	bad := cache.VolumeToAttach{VolumeName: "v", NodeName: "a", VolumeSpec: &cache.VolumeSpec{}}
	for _, err := range []error{
		s.AttachVolume(ctx, AttachRequest{Volume: toAttach("", "a")}),
		s.AttachVolume(ctx, AttachRequest{Volume: toAttach("v", "")}),
		s.AttachVolume(ctx, AttachRequest{Volume: bad}),
		s.DetachVolume(ctx, DetachRequest{Volume: s.attached("", "a")}),
		s.DetachVolume(ctx, DetachRequest{Volume: s.attached("v", "")}),
	} {
		require.ErrorIs(t, err, cache.ErrInvalid)
	}
	require.Equal(t, errFail, s.AttachVolume(ctx, AttachRequest{Volume: toAttach("v", "a"), Check: func() error { return errFail }}))
	require.Equal(t, errFail, s.DetachVolume(ctx, DetachRequest{
		Volume: s.attached("v", "a"), Check: func() error { return errFail }, Restore: func() { t.Error("nothing was withdrawn") },
	}))
	require.Empty(t, s.driver.Calls())
	require.Empty(t, s.events)

	full := ExecutorConfig{Operations: s.ops, Attacher: s.driver, Actual: s.actual}
	for _, c := range []ExecutorConfig{
		{Attacher: full.Attacher, Actual: full.Actual}, {Operations: full.Operations, Actual: full.Actual}, {Operations: full.Operations, Attacher: full.Attacher},
	} {
		_, err := NewOperationExecutor(c)
		require.ErrorIs(t, err, cache.ErrInvalid)
	}
}

// closedWorld refuses every write.
type closedWorld struct{ *cache.ActualStateOfWorld }

func (closedWorld) MarkVolumeAsAttached(v1.UniqueVolumeName, *cache.VolumeSpec, types.NodeName, string) error {
	return cache.ErrInvalid
}

func (closedWorld) MarkVolumeAsUncertain(v1.UniqueVolumeName, *cache.VolumeSpec, types.NodeName) error {
	return cache.ErrInvalid
}

func TestOutcomeThatCannotBeRecordedIsReported(t *testing.T) {
	s := newStage(t, Options{})
	s.OperationExecutor.actual = closedWorld{s.actual}
	e := s.attach(AttachRequest{Volume: toAttach("v", "a")})
	require.Equal(t, Done, e.Outcome)
	require.ErrorIs(t, e.Err, cache.ErrInvalid)
	require.ErrorContains(t, e.Err, `outcome "done" could not be recorded`)
	require.Equal(t, 1, e.Attempts, "not to be tried again in a tight loop")
	s.driver.attach = func(context.Context, cache.VolumeToAttach) (string, error) { return "", errFail }
	e = s.attach(AttachRequest{Volume: toAttach("w", "a")})
	require.Equal(t, Unknown, e.Outcome)
	require.ErrorIs(t, e.Err, cache.ErrInvalid)
	require.ErrorIs(t, e.Err, errFail)
}

// brokenWorld panics when it is written to.
type brokenWorld struct{ *cache.ActualStateOfWorld }

func (brokenWorld) MarkVolumeAsAttached(v1.UniqueVolumeName, *cache.VolumeSpec, types.NodeName, string) error {
	panic("broken")
}

func TestPanicOfTheWorldIsReported(t *testing.T) {
	s := newStage(t, Options{})
	s.OperationExecutor.actual = brokenWorld{s.actual}
	e := s.attach(AttachRequest{Volume: toAttach("v", "a")})
	require.Equal(t, Done, e.Outcome)
	require.ErrorAs(t, e.Err, new(*PanicError))
	require.True(t, e.Panicked)
	require.Equal(t, 1, e.Attempts)
}

func TestErrorOfTheDriverThatPanicsIsUnknown(t *testing.T) {
	s := newStage(t, Options{})
	s.driver.attach = func(context.Context, cache.VolumeToAttach) (string, error) { return "", (*nilError)(nil) }
	e := s.attach(AttachRequest{Volume: toAttach("v", "a")})
	require.Equal(t, Unknown, e.Outcome)
	require.Equal(t, cache.Uncertain, s.state("v", "a"))
}

func TestDriverSeesTheRequest(t *testing.T) {
	s := newStage(t, Options{})
	want := toAttach("v", "a")
	want.ScheduledPods = []*v1.Pod{{}}
	s.driver.attach = func(_ context.Context, got cache.VolumeToAttach) (string, error) {
		require.Equal(t, want, got)
		return "/dev/v", nil
	}
	s.attach(AttachRequest{Volume: want})
	attached := s.attached("v", "a")
	require.Equal(t, want.VolumeSpec, attached.VolumeSpec)
	s.driver.detach = func(_ context.Context, got cache.AttachedVolume) error { require.Equal(t, attached, got); return nil }
	s.detach(DetachRequest{Volume: attached})
}

func TestOutcomesOfErrors(t *testing.T) {
	for _, c := range []struct {
		err     error
		outcome Outcome
		name    string
	}{
		{nil, Done, "done"},
		{ErrPrecondition, Refused, "refused"},
		{Precondition(GoneError(errFail)), Refused, "refused"},
		{GoneError(Precondition(errFail)), Refused, "refused"},
		{NothingHappened(errFail), FailedForCertain, "failed for certain"},
		{&DanglingError{}, FailedForCertain, "failed for certain"},
		{fmt.Errorf("wrapped: %w", NothingHappened(errFail)), FailedForCertain, "failed for certain"},
		{GoneError(nil), Gone, "gone"},
		{errFail, Unknown, "unknown"},
		{ErrTimeout, Unknown, "unknown"},
		{context.Canceled, Unknown, "unknown"},
		{&PanicError{Value: ErrGone}, Unknown, "unknown"},
		{&BackoffError{LastErr: ErrGone}, Unknown, "unknown"},
	} {
		require.Equal(t, c.outcome, Classify(c.err), "%v", c.err)
		require.Equal(t, c.name, c.outcome.String())
	}
	require.Equal(t, "Outcome(9)", Outcome(9).String())
}

func TestMarksKeepTheErrorAndItsText(t *testing.T) {
	for _, mark := range []func(error) error{Precondition, NothingHappened, GoneError} {
		err := mark(errFail)
		require.Equal(t, errFail.Error(), err.Error())
		require.ErrorIs(t, err, errFail)
		require.Equal(t, mark(nil), errors.Unwrap(fmt.Errorf("%w", mark(nil))))
		require.Equal(t, err, mark(err), "marked once")
		require.ErrorIs(t, err, mark(nil))
	}
	require.Equal(t, `volume is attached to node "b"`, (&DanglingError{Node: "b"}).Error())
	require.Equal(t, `volume is attached to node "b": device is busy`, (&DanglingError{Node: "b", Err: errFail}).Error())
	require.ErrorIs(t, &DanglingError{Err: errFail}, errFail)
}
