package lifecycle

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/stateofworld/stateofworld/executor"
	"github.com/stateofworld/stateofworld/fake"
	"github.com/stateofworld/stateofworld/lvm"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	mib    = 1 << 20
	gib    = 1 << 30
	nodeA  = "node-a"
	extent = 4 * mib
)

var keys = Annotations{}.withDefaults()

// testWorld is one node with a volume group of 1 GiB, an API server, and an agent that is driven step by step.
type testWorld struct {
	t     require.TestingT
	ctx   context.Context
	api   *fake.API
	user  *fake.APISession // what the test itself does
	lvm   *fake.LVM
	hand  *lvm.CLI // what the test itself does with logical volumes
	clock *clocktesting.FakeClock

	config  AgentConfig
	settles bool // a process that starts looks at its groups before it hears of objects
	session *fake.APISession
	agent   *Agent
	feed    *fake.Feed

	mu      sync.Mutex
	notices []Notice
}

func newTestWorld(t testing.TB, change ...func(*AgentConfig)) *testWorld {
	w := makeTestWorld(t, t.Context(), change...)
	t.Cleanup(w.kill)
	return w
}

func makeTestWorld(t require.TestingT, ctx context.Context, change ...func(*AgentConfig)) *testWorld {
	api := fake.NewAPI()
	w := &testWorld{t: t, ctx: ctx, api: api, user: api.Direct(), lvm: fake.NewLVM(), clock: clocktesting.NewFakeClock(fake.Start())}
	w.hand = w.lvm.Direct()
	w.lvm.AddVG("vg0", extent, fake.Disk{Device: "/dev/sda", Size: gib})
	w.config = AgentConfig{
		Node: nodeA, Backend: w.lvm, Clock: w.clock, AuditPeriod: -1, Notices: w.notice,
		Operations: executor.Options{Backoff: executor.Backoff{Base: time.Second, Jitter: -1}},
	}
	for _, f := range change {
		f(&w.config)
	}
	w.start()
	return w
}

// start starts the process of an agent.
func (w *testWorld) start() {
	w.session = w.api.Session()
	w.session.StopWith(w.lvm.Stopped) // the two are one process
	w.session.OnStop(func() { w.lvm.StopAt(1, fake.StopBefore) })
	w.config.Claims = func(ns string) ClaimClient { return w.session.Claims(ns) }
	w.config.Volumes = w.session.Volumes()
	agent, err := NewAgent(w.config)
	require.NoError(w.t, err)
	w.agent = agent
	if w.settles {
		for range 3 {
			agent.Step(w.ctx)
			require.NoError(w.t, agent.ops.Wait(w.ctx))
		}
	}
	w.feed = w.api.Feed(agent.Claims(), agent.Volumes(), nil)
}

// kill ends the process of the agent, whatever it is at.
func (w *testWorld) kill() {
	w.session.Stop()
	w.lvm.StopAt(1, fake.StopBefore)
	w.feed.Stop()
	require.NoError(w.t, w.agent.Stop(w.ctx))
}

// restart kills the process and starts another.
func (w *testWorld) restart() {
	w.kill()
	w.lvm.Restart()
	w.start()
}

// stopped reports whether the process has been stopped at one of its steps.
func (w *testWorld) stopped() bool { return w.session.Stopped() || w.lvm.Stopped() }

// untilStopped lets the agent work until it is stopped or nothing more happens, with the clock moving for d at most.
func (w *testWorld) untilStopped(d time.Duration) {
	end := w.clock.Now().Add(d)
	for rounds := 0; !w.stopped(); rounds++ {
		require.Less(w.t, rounds, 1000, "the agent does not come to rest")
		n := w.agent.Step(w.ctx)
		require.NoError(w.t, w.agent.ops.Wait(w.ctx))
		due, ok := w.agent.NextDue()
		if n > 0 || ok && !due.After(w.clock.Now()) {
			continue
		}
		if !ok || due.After(end) {
			return
		}
		w.clock.SetTime(due)
	}
}

func (w *testWorld) notice(n Notice) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.notices = append(w.notices, n)
}

// said returns the notices of the type, and forgets all.
func (w *testWorld) said(t NoticeType) (out []Notice) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, n := range w.notices {
		if n.Type == t {
			out = append(out, n)
		}
	}
	w.notices = nil
	return out
}

// idle lets the agent work until nothing more happens without the clock.
func (w *testWorld) idle() {
	for range 1000 {
		n := w.agent.Step(w.ctx)
		require.NoError(w.t, w.agent.ops.Wait(w.ctx))
		if due, ok := w.agent.NextDue(); n == 0 && (!ok || due.After(w.clock.Now())) {
			return
		}
	}
	require.FailNow(w.t, "the agent does not come to rest", "%v", w.agent.Explanations())
}

// advance moves the clock by d, and lets the agent work at every moment at which something is due.
func (w *testWorld) advance(d time.Duration) {
	end := w.clock.Now().Add(d)
	w.idle()
	for {
		due, ok := w.agent.NextDue()
		if !ok || due.After(end) {
			break
		}
		w.clock.SetTime(due)
		w.idle()
	}
	w.clock.SetTime(end)
	w.idle()
}

// spec is the annotation of a volume in vg0.
func spec(name string, size uint64) string {
	return fmt.Sprintf(`{"volumeGroup":"vg0","name":%q,"size":%d}`, name, size)
}

// claim makes a claim that asks for a volume.
func (w *testWorld) claim(name, spec string, change ...func(*v1.PersistentVolumeClaim)) *v1.PersistentVolumeClaim {
	pvc := fake.NewClaim(name, nodeA)
	pvc.Annotations[keys.Lifecycle()] = string(Creating)
	pvc.Annotations[keys.Spec()] = spec
	for _, f := range change {
		f(pvc)
	}
	made, err := w.user.Claims(pvc.Namespace).Create(w.ctx, pvc, metav1.CreateOptions{})
	require.NoError(w.t, err)
	return made
}

// volume makes a volume for a logical volume of vg0 that is to be removed. Owner is its claim's.
func (w *testWorld) volume(name string, owner types.UID, change ...func(*v1.PersistentVolume)) *v1.PersistentVolume {
	pv := fake.NewVolume(name, DefaultDriver, nodeA, nil)
	pv.Spec.ClaimRef = &v1.ObjectReference{Namespace: "default", Name: "was", UID: owner}
	pv.Annotations = map[string]string{keys.Lifecycle(): string(Deleting), keys.Spec(): "vg0/" + name}
	for _, f := range change {
		f(pv)
	}
	made, err := w.user.Volumes().Create(w.ctx, pv, metav1.CreateOptions{})
	require.NoError(w.t, err)
	return made
}

func (w *testWorld) getClaim(name string) *v1.PersistentVolumeClaim {
	pvc, err := w.user.Claims("default").Get(w.ctx, name, metav1.GetOptions{})
	require.NoError(w.t, err)
	return pvc
}

func (w *testWorld) getVolume(name string) *v1.PersistentVolume {
	pv, err := w.user.Volumes().Get(w.ctx, name, metav1.GetOptions{})
	require.NoError(w.t, err)
	return pv
}

func (w *testWorld) annotate(name string, annotations map[string]string) {
	pvc := w.getClaim(name)
	for k, v := range annotations {
		if v == "" {
			delete(pvc.Annotations, k)
		} else {
			pvc.Annotations[k] = v
		}
	}
	_, err := w.user.Claims("default").Update(w.ctx, pvc, metav1.UpdateOptions{})
	require.NoError(w.t, err)
}

func (w *testWorld) deleteClaim(name string) {
	require.NoError(w.t, w.user.Claims("default").Delete(w.ctx, name, metav1.DeleteOptions{}))
}

// state is the lifecycle and the reason of the failure, as "creating NoSpace".
func state(obj metav1.Object) string {
	s := obj.GetAnnotations()[keys.Lifecycle()]
	if text, ok := obj.GetAnnotations()[keys.Error()]; ok {
		f, err := ParseFailure(text)
		if err != nil {
			return s + " " + err.Error()
		}
		s += " " + string(f.Reason)
	}
	return s
}

func (w *testWorld) claimState(name string) string  { return state(w.getClaim(name)) }
func (w *testWorld) volumeState(name string) string { return state(w.getVolume(name)) }

// lvs are the names of the logical volumes in vg0.
func (w *testWorld) lvs() []string {
	lvs, err := w.hand.List(w.ctx, "vg0")
	require.NoError(w.t, err)
	names := []string{}
	for _, lv := range lvs {
		names = append(names, lv.LV)
	}
	return names
}

func (w *testWorld) getLV(name string) lvm.LogicalVolume {
	lv, err := w.hand.Get(w.ctx, lvm.Name{VG: "vg0", LV: name})
	require.NoError(w.t, err)
	return lv
}

// makeLV makes a logical volume of 4 MiB in vg0 that no agent has made.
func (w *testWorld) makeLV(name string, tags ...string) lvm.LogicalVolume {
	lv, err := w.hand.Create(w.ctx, lvm.CreateOptions{VG: "vg0", Name: name, Size: extent, Tags: tags})
	require.NoError(w.t, err)
	return lv
}

// changes are the commands that came and were no reports.
func (w *testWorld) changes() []string {
	return slices.DeleteFunc(w.lvm.Calls(), func(c string) bool { return strings.HasPrefix(c, "lvs") || strings.HasPrefix(c, "vgs") })
}

func nodeSelector(t testing.TB, node types.NodeName) labels.Selector {
	s, err := labels.Parse(Annotations{}.NodeSelector(node))
	require.NoError(t, err)
	return s
}

// hookedBackend calls functions, once each, right before the next call of a method.
type hookedBackend struct {
	Backend
	beforeRemove, beforeGet func()
}

func once(f *func()) {
	if g := *f; g != nil {
		*f = nil
		g()
	}
}

func (b *hookedBackend) Remove(ctx context.Context, name lvm.Name, o lvm.RemoveOptions) error {
	once(&b.beforeRemove)
	return b.Backend.Remove(ctx, name, o)
}

func (b *hookedBackend) Get(ctx context.Context, name lvm.Name) (lvm.LogicalVolume, error) {
	once(&b.beforeGet)
	return b.Backend.Get(ctx, name)
}

// hook puts a hookedBackend between the agent and its volume groups.
func (w *testWorld) hook() *hookedBackend {
	h := &hookedBackend{Backend: w.lvm}
	w.agent.backend = h
	return h
}
