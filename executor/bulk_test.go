package executor_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/stateofworld/stateofworld/cache"
	"github.com/stateofworld/stateofworld/executor"
)

// bulkDriver attaches in bulk, as its script says.
type bulkDriver struct {
	calls  [][]string
	answer func(ctx context.Context, volumes []cache.VolumeToAttach) []executor.AttachResult
}

func (d *bulkDriver) Attach(context.Context, cache.VolumeToAttach) (string, error) {
	panic("a bulk driver is asked in bulk")
}
func (d *bulkDriver) Detach(context.Context, cache.AttachedVolume) error { return nil }
func (d *bulkDriver) VerifyAttached(context.Context, types.NodeName, []cache.AttachedVolume) (map[v1.UniqueVolumeName]executor.Verification, error) {
	return nil, nil
}

func (d *bulkDriver) AttachAll(ctx context.Context, volumes []cache.VolumeToAttach) []executor.AttachResult {
	var names []string
	for _, v := range volumes {
		names = append(names, string(v.VolumeName))
	}
	d.calls = append(d.calls, names)
	return d.answer(ctx, volumes)
}

type bulkTest struct {
	actual *cache.ActualStateOfWorld
	ops    *executor.Operations
	exec   *executor.OperationExecutor
	mu     sync.Mutex
	events map[v1.UniqueVolumeName]executor.Event
}

func newBulkTest(t *testing.T, d *bulkDriver) *bulkTest {
	ops, err := executor.NewOperations(executor.Options{})
	require.NoError(t, err)
	b := &bulkTest{actual: cache.NewActualStateOfWorld(nil), ops: ops, events: map[v1.UniqueVolumeName]executor.Event{}}
	b.exec, err = executor.NewOperationExecutor(executor.ExecutorConfig{Operations: ops, Attacher: d, Actual: b.actual})
	require.NoError(t, err)
	return b
}

func (b *bulkTest) attach(t *testing.T, ctx context.Context, volume string, timeout time.Duration) {
	require.NoError(t, b.exec.AttachVolume(ctx, executor.AttachRequest{
		Volume:  cache.VolumeToAttach{VolumeName: v1.UniqueVolumeName(volume), NodeName: "a"},
		Timeout: timeout,
		Done:    func(ev executor.Event) { b.mu.Lock(); defer b.mu.Unlock(); b.events[ev.Volume] = ev },
	}))
	synctest.Wait() // it is in the driver, or waits for others: the order of the volumes is that of the starts
}

func TestAttachesThatBeginTogetherAreOneCallOfABulkDriver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &bulkDriver{answer: func(_ context.Context, volumes []cache.VolumeToAttach) []executor.AttachResult {
			results := make([]executor.AttachResult, len(volumes))
			for i, v := range volumes {
				results[i].DevicePath = "/dev/" + string(v.VolumeName)
			}
			if len(results) > 2 {
				results[1] = executor.AttachResult{Err: executor.NothingHappened(errors.New("quota"))}
				results = results[:len(results)-1] // and nothing is said of the last
			}
			return results
		}}
		b := newBulkTest(t, d)
		for _, v := range []string{"v1", "v2", "v3", "v4"} {
			b.attach(t, t.Context(), v, 0)
		}
		require.NoError(t, b.ops.Wait(t.Context()))
		b.attach(t, t.Context(), "v5", 0)
		require.NoError(t, b.ops.Wait(t.Context()))

		require.Equal(t, [][]string{{"v1", "v2", "v3", "v4"}, {"v5"}}, d.calls)
		for volume, want := range map[v1.UniqueVolumeName]struct {
			outcome executor.Outcome
			state   cache.AttachState
		}{
			"v1": {executor.Done, cache.Attached}, "v2": {executor.FailedForCertain, cache.Detached},
			"v3": {executor.Done, cache.Attached}, "v4": {executor.Unknown, cache.Uncertain}, "v5": {executor.Done, cache.Attached},
		} {
			require.Equal(t, want.outcome, b.events[volume].Outcome, volume)
			require.Equal(t, want.state, b.actual.GetAttachState(volume, "a"), volume)
		}
		require.Equal(t, "/dev/v3", b.events["v3"].DevicePath)
	})
}

// Nothing is ever said of a volume that the driver still works on.
func TestACancelledMemberWaitsForTheCallOfAllAndIsUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ended error
		d := &bulkDriver{answer: func(ctx context.Context, volumes []cache.VolumeToAttach) []executor.AttachResult {
			select {
			case <-ctx.Done():
				ended = context.Cause(ctx)
			case <-time.After(time.Minute):
			}
			results := make([]executor.AttachResult, len(volumes))
			for i := range results {
				results[i].Err = ended
			}
			return results
		}}
		b := newBulkTest(t, d)
		b.attach(t, t.Context(), "quick", 10*time.Second)
		b.attach(t, t.Context(), "slow", 0)
		<-time.After(30 * time.Second)
		require.True(t, b.ops.IsOperationPending(executor.Key{Volume: "quick", Node: "a"}), "the driver is at work on it")
		require.NoError(t, b.ops.Wait(t.Context()))
		require.NoError(t, ended, "the call of the others goes on")
		require.Equal(t, cache.Attached, b.actual.GetAttachState("slow", "a"))

		// When all are cancelled, the call is.
		b = newBulkTest(t, d)
		b.attach(t, t.Context(), "x", time.Second)
		b.attach(t, t.Context(), "y", 2*time.Second)
		require.NoError(t, b.ops.Wait(t.Context()))
		require.ErrorIs(t, ended, executor.ErrTimeout)
		require.Equal(t, cache.Uncertain, b.actual.GetAttachState("x", "a"))
		require.Equal(t, cache.Uncertain, b.actual.GetAttachState("y", "a"))
	})
}

func TestAMemberThatIsCancelledBeforeTheCallWasNotStarted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &bulkDriver{answer: func(_ context.Context, volumes []cache.VolumeToAttach) []executor.AttachResult {
			return make([]executor.AttachResult, len(volumes))
		}}
		b := newBulkTest(t, d)
		ctx, cancel := context.WithCancel(t.Context())
		b.attach(t, ctx, "gone", 0)
		b.attach(t, t.Context(), "stays", 0)
		cancel()
		require.NoError(t, b.ops.Wait(t.Context()))
		require.Equal(t, [][]string{{"stays"}}, d.calls)
		require.Equal(t, executor.Refused, b.events["gone"].Outcome)
		require.Equal(t, cache.Detached, b.actual.GetAttachState("gone", "a"))
		require.Equal(t, cache.Attached, b.actual.GetAttachState("stays", "a"))
	})
}

func TestAPanicInABulkCallIsUnknownForAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBulkTest(t, &bulkDriver{answer: func(context.Context, []cache.VolumeToAttach) []executor.AttachResult { panic("oops") }})
		for i := range 3 {
			b.attach(t, t.Context(), fmt.Sprint("v", i), 0)
		}
		require.NoError(t, b.ops.Wait(t.Context()))
		for i := range 3 {
			volume := v1.UniqueVolumeName(fmt.Sprint("v", i))
			require.True(t, b.events[volume].Panicked)
			require.Equal(t, cache.Uncertain, b.actual.GetAttachState(volume, "a"))
		}
	})
}
