package fake

import (
	"context"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/stateofworld/stateofworld/cache"
	"github.com/stateofworld/stateofworld/executor"
	"github.com/stateofworld/stateofworld/reconciler"
)

// TB is the part of testing.TB that this package needs.
type TB interface {
	Helper()
	Cleanup(func())
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
	Context() context.Context
}

// Start returns the time at which the clock of a World begins.
func Start() time.Time { return time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC) }

// World is a test of a controller in one value: both worlds, a scripted driver, a recording report sink, live checks, a
// clock that stands until it is moved, and the reconciler that ties them together. Nothing runs on its own: Step, WaitIdle,
// Settle and Advance do.
//
// At the end of the test the invariants are checked; see Check.
//
// Limits: only the driver, the report sink and the live checks of this package can be waited for. A World is used from one
// goroutine.
type World struct {
	T          TB
	Desired    *cache.DesiredStateOfWorld
	Actual     *cache.ActualStateOfWorld
	Driver     *Driver
	Reports    *Reports
	Live       *LiveChecks // nil without WithLiveChecks
	Clock      *clocktesting.FakeClock
	Reconciler *reconciler.Reconciler

	modes   map[string]v1.PersistentVolumeAccessMode
	pods    map[string]map[string]types.NodeName // pod -> volume -> node
	objects map[string]*v1.Pod
	options []Option

	mu      sync.Mutex
	notices []reconciler.Notice
}

// Option changes how a World is made.
type Option func(*World, *reconciler.Config, *settings)

type settings struct{ synced bool }

// WithConfig lets f change the reconciler's configuration before it is used.
func WithConfig(f func(*reconciler.Config)) Option {
	return func(_ *World, c *reconciler.Config, _ *settings) { f(c) }
}

// WithPolicy sets the policy.
func WithPolicy(p reconciler.Policy) Option {
	return WithConfig(func(c *reconciler.Config) { c.Policy = p })
}

// WithLiveChecks adds live checks, as World.Live.
func WithLiveChecks() Option {
	return func(w *World, c *reconciler.Config, _ *settings) {
		if w.Live == nil {
			w.Live = NewLiveChecks()
		}
		c.LiveChecks = w.Live
	}
}

// Unsynced leaves it to the test to call Reconciler.MarkSynced.
func Unsynced() Option { return func(_ *World, _ *reconciler.Config, s *settings) { s.synced = false } }

// NewWorld returns an empty world whose desired part is complete, without live checks, with the cautious policy.
func NewWorld(t TB, opts ...Option) *World {
	t.Helper()
	w := &World{
		T: t, Driver: NewDriver(), Reports: NewReports(), Clock: clocktesting.NewFakeClock(Start()),
		modes: map[string]v1.PersistentVolumeAccessMode{}, pods: map[string]map[string]types.NodeName{}, objects: map[string]*v1.Pod{},
	}
	w.options = opts
	w.Driver.exclusive = w.exclusive
	w.start()
	t.Cleanup(w.finish)
	return w
}

// start makes empty worlds and a reconciler over them.
func (w *World) start() {
	w.T.Helper()
	plugins := cache.NewVolumePluginMgr(Plugin{})
	w.Desired = cache.NewDesiredStateOfWorld(plugins, cache.WithClock(w.Clock))
	w.Actual = cache.NewActualStateOfWorld(plugins, cache.WithClock(w.Clock))
	config := reconciler.Config{
		Desired: w.Desired, Actual: w.Actual, Attacher: w.Driver, Reports: w.Reports, Clock: w.Clock,
		Notices:      w.notice,
		VerifyPeriod: -1, AuditPeriod: -1, // a test that wants them asks for them
		Operations: executor.Options{Backoff: executor.Backoff{Jitter: -1}},
	}
	s := settings{synced: true}
	for _, o := range w.options {
		o(w, &config, &s)
	}
	rc, err := reconciler.New(config)
	if err != nil {
		w.T.Fatalf("new world: %v", err)
	}
	w.Reconciler = rc
	if s.synced {
		rc.MarkSynced()
	}
}

// Restart is a crash of the controller: what it had in memory is gone, the calls that it was waiting for get no answer, and
// a new one begins with empty worlds. What is really attached, what was reported, and the clock stay. The test feeds the new
// worlds.
func (w *World) Restart() {
	w.T.Helper()
	w.stop()
	w.pods, w.objects = map[string]map[string]types.NodeName{}, map[string]*v1.Pod{}
	w.Driver.forgetCallers()
	w.start()
}

func (w *World) exclusive(volume v1.UniqueVolumeName) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	mode := w.modes[Short(volume)]
	return mode != v1.ReadWriteMany && mode != v1.ReadOnlyMany
}

func (w *World) notice(n reconciler.Notice) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.notices = append(w.notices, n)
}

// Notices returns the notices of before now, in order.
func (w *World) Notices() []reconciler.Notice {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.notices)
}

// Volume sets the access mode of a volume; without it a volume is ReadWriteOnce, and so exclusive.
func (w *World) Volume(volume string, mode v1.PersistentVolumeAccessMode) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.modes[volume] = mode
}

func (w *World) spec(volume string) *cache.VolumeSpec {
	w.mu.Lock()
	defer w.mu.Unlock()
	mode := w.modes[volume]
	if mode == "" {
		mode = v1.ReadWriteOnce
	}
	return Spec(volume, mode)
}

// Node adds nodes that are Ready and use nothing.
func (w *World) Node(names ...types.NodeName) {
	for _, n := range names {
		w.Desired.AddNode(n)
		w.Health(n, cache.NodeHealth{Ready: v1.ConditionTrue})
		w.InUse(n)
	}
}

// DeleteNode deletes the node, as the populator does when the Node object goes.
func (w *World) DeleteNode(node types.NodeName) {
	_ = w.Desired.DeleteNode(node) // that it has volumes is what tests do this for
	w.Actual.DeleteNode(node)
	if w.Live != nil {
		w.Live.SetHealth(node, cache.NodeHealth{Deleted: true})
	}
}

// Health sets the node's health, cached and live.
func (w *World) Health(node types.NodeName, health cache.NodeHealth) {
	w.Actual.SetNodeHealth(node, health)
	if w.Live != nil {
		w.Live.SetHealth(node, health)
	}
}

// NotReady makes the node not Ready, cached and live.
func (w *World) NotReady(node types.NodeName) {
	w.Health(node, cache.NodeHealth{Ready: v1.ConditionUnknown})
}

// InUse is the node's report of what it uses: these volumes, and no others; cached and live.
func (w *World) InUse(node types.NodeName, volumes ...string) {
	w.InUseCached(node, volumes...)
	if w.Live != nil {
		w.Live.SetInUse(node, volumes...)
	}
}

// InUseCached is InUse without the live answer.
func (w *World) InUseCached(node types.NodeName, volumes ...string) {
	var names []v1.UniqueVolumeName
	for _, v := range volumes {
		names = append(names, VolumeName(v))
	}
	w.Actual.SetVolumesMountedByNode(names, node)
}

// Pod adds a pod that uses the volume on the node; once more for each further volume. Its name is "namespace/name", or a
// name in namespace default.
func (w *World) Pod(pod, volume string, node types.NodeName) {
	w.T.Helper()
	if w.objects[pod] == nil {
		w.objects[pod], w.pods[pod] = NewPod(pod), map[string]types.NodeName{}
	}
	if _, err := w.Desired.AddPod(cache.UniquePodName(pod), w.objects[pod], w.spec(volume), node); err != nil {
		w.T.Fatalf("add pod %s with volume %s to node %s: %v", pod, volume, node, err)
	}
	w.pods[pod][volume] = node
}

// RemovePod removes the pod with all its volumes.
func (w *World) RemovePod(pod string) {
	w.Desired.DeletePodFromAll(cache.UniquePodName(pod))
	delete(w.pods, pod)
	delete(w.objects, pod)
}

// Move moves the pod, with all its volumes, to another node, in one step.
func (w *World) Move(pod string, node types.NodeName) {
	w.T.Helper()
	update := cache.PodUpdate{Name: cache.UniquePodName(pod), Pod: w.objects[pod], Node: node}
	if update.Pod == nil {
		w.T.Fatalf("move pod %s: there is no such pod", pod)
	}
	for volume := range w.pods[pod] {
		update.Specs = append(update.Specs, w.spec(volume))
		w.pods[pod][volume] = node
	}
	if _, err := w.Desired.UpdatePod(update); err != nil {
		w.T.Fatalf("move pod %s to node %s: %v", pod, node, err)
	}
}

// Seed makes the volume attached, or perhaps attached, before anything has run: in the actual world by name alone, and at
// the back end.
func (w *World) Seed(volume string, node types.NodeName, state cache.AttachState) {
	w.T.Helper()
	var err error
	switch state {
	case cache.Attached:
		err = w.Actual.MarkVolumeAsAttached(VolumeName(volume), nil, node, "")
	case cache.Uncertain:
		err = w.Actual.MarkVolumeAsUncertain(VolumeName(volume), nil, node)
	}
	if err != nil {
		w.T.Fatalf("seed volume %s on node %s: %v", volume, node, err)
	}
	w.Driver.SetAttached(volume, node, true)
}

// State returns what the actual world says.
func (w *World) State(volume string, node types.NodeName) cache.AttachState {
	return w.Actual.GetAttachState(VolumeName(volume), node)
}

// Report returns the short names in the node's report, as the actual world has it.
func (w *World) Report(node types.NodeName) []string {
	names := []string{}
	for _, v := range w.Actual.Report(node).Volumes {
		names = append(names, Short(v.Name))
	}
	return names
}

// Explain explains the pair.
func (w *World) Explain(volume string, node types.NodeName) reconciler.Explanation {
	return w.Reconciler.Explain(VolumeName(volume), node)
}

// Reason returns the reason of the decision on the pair.
func (w *World) Reason(volume string, node types.NodeName) reconciler.Reason {
	return w.Explain(volume, node).Decision.Reason
}
