package reconciler_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/stateofworld/stateofworld/cache"
	"github.com/stateofworld/stateofworld/executor"
	"github.com/stateofworld/stateofworld/fake"
	"github.com/stateofworld/stateofworld/reconciler"
)

// slowDriver takes a while for everything, in virtual time, and knows how many calls run at once.
type slowDriver struct {
	takes           time.Duration
	verifyTakes     time.Duration
	running, most   atomic.Int32
	attach, detach  atomic.Int32
	verifies, twice atomic.Int32
	verifying       atomic.Int32
}

func (d *slowDriver) wait(ctx context.Context, takes time.Duration) error {
	if takes == 0 {
		return nil
	}
	select {
	case <-time.After(takes):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (d *slowDriver) call(ctx context.Context, n *atomic.Int32) error {
	n.Add(1)
	running := d.running.Add(1)
	for most := d.most.Load(); running > most && !d.most.CompareAndSwap(most, running); most = d.most.Load() {
	}
	defer d.running.Add(-1)
	return d.wait(ctx, d.takes)
}

func (d *slowDriver) Attach(ctx context.Context, _ cache.VolumeToAttach) (string, error) {
	return "/dev/x", d.call(ctx, &d.attach)
}

func (d *slowDriver) Detach(ctx context.Context, _ cache.AttachedVolume) error {
	return d.call(ctx, &d.detach)
}

func (d *slowDriver) VerifyAttached(ctx context.Context, _ types.NodeName, volumes []cache.AttachedVolume) (map[v1.UniqueVolumeName]executor.Verification, error) {
	if d.verifying.Add(1) > 1 {
		d.twice.Add(1)
	}
	defer d.verifying.Add(-1)
	d.verifies.Add(1)
	result := map[v1.UniqueVolumeName]executor.Verification{}
	for _, av := range volumes {
		result[av.VolumeName] = executor.StillAttached
	}
	return result, d.wait(ctx, d.verifyTakes)
}

// controller is a running reconciler over empty worlds.
type controller struct {
	desired *cache.DesiredStateOfWorld
	actual  *cache.ActualStateOfWorld
	rc      *reconciler.Reconciler
	stop    func()
}

func start(t testing.TB, change func(*reconciler.Config)) *controller {
	t.Helper()
	c := prepare(t, change)
	c.run(t)
	return c
}

// prepare returns a controller that does not run yet.
func prepare(t testing.TB, change func(*reconciler.Config)) *controller {
	t.Helper()
	plugins := cache.NewVolumePluginMgr(fake.Plugin{})
	c := &controller{desired: cache.NewDesiredStateOfWorld(plugins), actual: cache.NewActualStateOfWorld(plugins)}
	config := reconciler.Config{Desired: c.desired, Actual: c.actual}
	change(&config)
	rc, err := reconciler.New(config)
	require.NoError(t, err)
	c.rc = rc
	return c
}

func (c *controller) run(t testing.TB) {
	t.Helper()
	c.rc.MarkSynced()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- c.rc.Run(ctx) }()
	c.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("Run returned %v", err)
		}
	})
}

func (c *controller) node(names ...types.NodeName) {
	for _, n := range names {
		c.desired.AddNode(n)
		c.actual.SetVolumesMountedByNode(nil, n)
		c.actual.SetNodeHealth(n, cache.NodeHealth{Ready: v1.ConditionTrue})
	}
}

func (c *controller) pod(t testing.TB, volume string, mode v1.PersistentVolumeAccessMode, node types.NodeName) cache.UniquePodName {
	t.Helper()
	name := cache.UniquePodName(fmt.Sprintf("%s-on-%s", volume, node))
	_, err := c.desired.AddPod(name, fake.NewPod(string(name)), fake.Spec(volume, mode), node)
	require.NoError(t, err)
	return name
}

// M4, kubernetes/kubernetes#73972.
func TestASharedVolumeIsAttachedToFiftyNodesInTheTimeOfOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		driver := &slowDriver{takes: time.Second}
		c := start(t, func(c *reconciler.Config) { c.Attacher = driver })
		defer c.stop()
		for i := range 50 {
			node := types.NodeName(fmt.Sprint("node-", i))
			c.node(node)
			c.pod(t, "w", v1.ReadOnlyMany, node)
		}
		<-time.After(time.Second + time.Millisecond)
		require.EqualValues(t, 50, driver.attach.Load())
		require.EqualValues(t, 50, driver.most.Load(), "all in flight together")
		require.Len(t, c.actual.GetNodesForAttachedVolume(fake.VolumeName("w")), 50)
	})
}

// M3, kubernetes/kubernetes#40148: in every run the oldest wish wins.
func TestTheOldestWishWinsInEveryRun(t *testing.T) {
	for range 100 {
		w := fake.NewWorld(t)
		w.Node("a", "b")
		w.Pod("p", "v", "a")
		w.Clock.Step(time.Second)
		w.Pod("q", "v", "b")
		w.Settle()
		require.Equal(t, []string{"attach v a"}, w.Driver.Calls())
	}
}

// P2, kubernetes/kubernetes#134175: 1,000 detaches on 100 nodes while a write of a report takes 20 ms.
func TestReportsAreWrittenInParallelAndCoalesced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		driver := &slowDriver{}
		sink := &slowSink{takes: 20 * time.Millisecond, running: map[types.NodeName]int{}}
		c := start(t, func(c *reconciler.Config) { c.Attacher, c.Reports = driver, sink })
		defer c.stop()
		var pods []cache.UniquePodName
		for n := range 100 {
			node := types.NodeName(fmt.Sprint("node-", n))
			c.node(node)
			for v := range 10 {
				pods = append(pods, c.pod(t, fmt.Sprintf("v-%d-%d", n, v), v1.ReadWriteOnce, node))
			}
		}
		<-time.After(time.Minute)
		require.Empty(t, c.rc.Explanations())
		before := sink.writes.Load()
		sink.hang.Store("node-7")
		for _, pod := range pods {
			c.desired.DeletePodFromAll(pod)
		}
		<-time.After(2 * time.Second)
		require.EqualValues(t, 990, driver.detach.Load(), "all but those of the node whose report hangs")
		require.Zero(t, sink.twice.Load(), "two writes at once for one node")
		require.Less(t, sink.writes.Load()-before, int32(300), "writes are coalesced")
		sink.hang.Store("")
		<-time.After(time.Minute)
		require.EqualValues(t, 1000, driver.detach.Load())
		require.Empty(t, c.rc.Explanations())
	})
}

type slowSink struct {
	takes         time.Duration
	hang          atomic.Value // the node whose writes hang
	writes, twice atomic.Int32
	mu            sync.Mutex
	running       map[types.NodeName]int
}

func (s *slowSink) Write(ctx context.Context, node types.NodeName, _ []v1.AttachedVolume) error {
	s.writes.Add(1)
	s.mu.Lock()
	if s.running[node]++; s.running[node] > 1 {
		s.twice.Add(1)
	}
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.running[node]--
	}()
	takes := s.takes
	if s.hang.Load() == string(node) {
		takes = time.Hour
	}
	select {
	case <-time.After(takes):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// P3, kubernetes/kubernetes#84169: a verification that takes five periods is never joined by another.
func TestVerificationsDoNotOverlap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		driver := &slowDriver{verifyTakes: 5*time.Second - time.Millisecond}
		c := start(t, func(c *reconciler.Config) { c.Attacher, c.VerifyPeriod = driver, time.Second })
		defer c.stop()
		c.node("a")
		c.pod(t, "v", v1.ReadWriteOnce, "a")
		<-time.After(30*time.Second + 500*time.Millisecond)
		require.Zero(t, driver.twice.Load())
		require.EqualValues(t, 6, driver.verifies.Load())
		require.EqualValues(t, 24, c.rc.Stats().MissedVerifications, "missed ticks are counted, not queued")

		c.pod(t, "late", v1.ReadWriteOnce, "a")
		synctest.Wait()
		require.Equal(t, cache.Attached, c.actual.GetAttachState(fake.VolumeName("late"), "a"), "an attach does not wait for a verification")
	})
}

// R1, kubernetes/kubernetes#93902: pods come and go as fast as they can; each transition is one call.
func TestEveryTransitionIsOneCallUnderStress(t *testing.T) {
	const rounds, volumes = 2500, 4
	driver := fake.NewDriver()
	c := start(t, func(c *reconciler.Config) { c.Attacher = driver })
	c.node("a", "b")
	var churn sync.WaitGroup
	for i := range volumes {
		volume := fmt.Sprint("v", i)
		mode := v1.ReadWriteOnce
		if i%2 == 1 {
			mode = v1.ReadWriteMany
		}
		churn.Go(func() {
			for r := range rounds {
				node := types.NodeName([]string{"a", "b"}[r%2])
				name := cache.UniquePodName(volume)
				if _, err := c.desired.AddPod(name, fake.NewPod(volume), fake.Spec(volume, mode), node); err != nil {
					t.Error(err)
				}
				if r%3 > 0 {
					driver.Count(fake.Attach, volume, node) // a moment for the others
				}
				c.desired.DeletePodFromAll(name)
			}
		})
	}
	churn.Wait()
	require.Eventually(t, func() bool {
		s := c.rc.Stats()
		return s.Open+s.Queued+s.Pending == 0 && len(c.actual.GetAttachedVolumes()) == 0
	}, 30*time.Second, time.Millisecond)
	c.stop()
	require.Empty(t, driver.Violations())
	require.NoError(t, c.actual.CheckInvariants())
	require.NoError(t, c.desired.CheckInvariants())
	require.Zero(t, c.rc.Stats().Waiting)
}

// N2, kubernetes/kubernetes#31014.
func TestNodesThatComeAndGoLeaveNothingBehind(t *testing.T) {
	w := fake.NewWorld(t)
	for i := range 500 {
		node := types.NodeName(fmt.Sprint("node-", i))
		w.Node(node)
		w.Pod("p", fmt.Sprint("v-", i), node)
		w.WaitIdle()
		if i%2 == 0 {
			w.RemovePod("p")
			w.WaitIdle()
			w.DeleteNode(node)
			continue
		}
		w.DeleteNode(node)
		w.RemovePod("p")
		w.Actual.DeleteVolumeNode(fake.VolumeName(fmt.Sprint("v-", i)), node) // the storage was deleted with the machine
		w.Driver.SetAttached(fmt.Sprint("v-", i), node, false)
		w.WaitIdle()
	}
	require.Zero(t, w.Desired.Sizes())
	require.Zero(t, w.Actual.Sizes())
	stats := w.Reconciler.Stats()
	require.Zero(t, stats.Open+stats.Queued+stats.Waiting+stats.Pending+stats.BackingOff)
	require.Zero(t, w.Reconciler.Reports().Len())
}

func TestAPanickingPolicyDoesNothing(t *testing.T) {
	w := fake.NewWorld(t, fake.WithPolicy(reconciler.Policy{
		UnmountWaitFor: func(v1.UniqueVolumeName, types.NodeName) time.Duration { panic("no idea") },
	}))
	w.Node("a")
	w.Pod("p", "v", "a")
	w.Settle()
	w.InUse("a", "v")
	w.NotReady("a")
	w.RemovePod("p")
	w.Advance(time.Hour)
	require.Equal(t, []string{"attach v a"}, w.Driver.Calls())
	e := w.Explain("v", "a")
	require.Equal(t, reconciler.PolicyPanicked, e.Decision.Reason)
	require.ErrorContains(t, e.Decision.LastErr, "no idea")
	require.NotZero(t, w.Reconciler.Stats().PolicyPanics)
}

func TestNewRefusesABadConfiguration(t *testing.T) {
	plugins := cache.NewVolumePluginMgr(fake.Plugin{})
	good := func() reconciler.Config {
		return reconciler.Config{
			Desired: cache.NewDesiredStateOfWorld(plugins), Actual: cache.NewActualStateOfWorld(plugins), Attacher: fake.NewDriver(),
		}
	}
	_, err := reconciler.New(good())
	require.NoError(t, err)
	for field, spoil := range map[string]func(*reconciler.Config){
		"Desired":       func(c *reconciler.Config) { c.Desired = nil },
		"Actual":        func(c *reconciler.Config) { c.Actual = nil },
		"Attacher":      func(c *reconciler.Config) { c.Attacher = nil },
		"NoticeRepeat":  func(c *reconciler.Config) { c.NoticeRepeat = -1 },
		"RefusedRetry":  func(c *reconciler.Config) { c.RefusedRetry = -1 },
		"ReportTimeout": func(c *reconciler.Config) { c.ReportTimeout = -1 },
		"Workers":       func(c *reconciler.Config) { c.Workers = -1 },
		"UnmountWait":   func(c *reconciler.Config) { c.Policy.UnmountWait = -1 },
		"DeletedNodes":  func(c *reconciler.Config) { c.Policy.DeletedNodes = 17 },
		"MaxConcurrent": func(c *reconciler.Config) { c.Operations.MaxConcurrent = -1 },
		"Base":          func(c *reconciler.Config) { c.Operations.Backoff.Base = -1 },
	} {
		c := good()
		spoil(&c)
		_, err := reconciler.New(c)
		require.ErrorIs(t, err, cache.ErrInvalid, field)
		require.ErrorContains(t, err, field)
	}
}

func TestAReconcilerRunsOnce(t *testing.T) {
	c := start(t, func(c *reconciler.Config) { c.Attacher = fake.NewDriver() })
	c.stop()
	require.ErrorIs(t, c.rc.Run(t.Context()), reconciler.ErrStopped)
	require.Zero(t, c.rc.Step(t.Context()))
	require.NoError(t, c.rc.Stop(t.Context()), "Stop may be called again")
}

func TestRunWaitsForEveryOperation(t *testing.T) {
	driver := fake.NewDriver()
	driver.Always(fake.Attach, "v", "a", fake.Answer{Stuck: true})
	c := start(t, func(c *reconciler.Config) { c.Attacher = driver })
	c.node("a")
	c.pod(t, "v", v1.ReadWriteOnce, "a")
	stopped := make(chan struct{})
	require.Eventually(t, func() bool { return driver.Blocked(fake.Attach, "v", "a") }, 10*time.Second, time.Millisecond)
	go func() { defer close(stopped); c.stop() }()
	select {
	case <-stopped:
		t.Fatal("Run returned while the driver was still called")
	default:
	}
	require.NoError(t, driver.Release(t.Context(), fake.Attach, "v", "a"))
	<-stopped
	require.Equal(t, cache.Attached, c.actual.GetAttachState(fake.VolumeName("v"), "a"), "what came of it is not lost")
}

// O1, kubernetes/kubernetes#114219: the same decision acts and explains, so that it cannot lie.
func TestExplanationsListWhatIsNotAsWishedAndWhy(t *testing.T) {
	w := fake.NewWorld(t, fake.WithLiveChecks())
	w.Node("a", "b")
	w.Pod("web-0", "v", "a")
	w.Pod("other", "w", "b")
	w.Settle()
	require.Empty(t, w.Reconciler.Explanations())
	w.InUse("a", "v")
	w.Clock.Step(67 * time.Second)
	w.Pod("web-1", "v", "b")
	w.WaitIdle()

	all := w.Reconciler.Explanations()
	require.Len(t, all, 1)
	require.Equal(t, cache.Pair{Volume: fake.VolumeName("v"), Node: "b"}, all[0].Pair)
	require.Equal(t, `waiting: attached to node "a" since 12:00:00; there: attached, as wished by default/web-0`, all[0].String())

	w.RemovePod("web-0")
	w.WaitIdle()
	all = w.Reconciler.Explanations()
	require.Len(t, all, 2)
	require.Equal(t, "waiting: in use on the node since 12:01:07", all[0].String())
	require.Equal(t, `waiting: attached to node "a" since 12:00:00; there: waiting: in use on the node since 12:01:07`, all[1].String())
	require.Len(t, w.Reconciler.ExplainVolume(fake.VolumeName("v")), 2)
	require.Equal(t, "detached, as wished", w.Reconciler.Explain("nobody", "knows").String())
}
