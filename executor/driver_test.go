package executor

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/stateofworld/stateofworld/cache"
)

// driver is an Attacher whose answers the test gives. Unset functions succeed at once.
type driver struct {
	attach func(context.Context, cache.VolumeToAttach) (string, error)
	detach func(context.Context, cache.AttachedVolume) error
	verify func(context.Context, types.NodeName, []cache.AttachedVolume) (map[v1.UniqueVolumeName]Verification, error)

	mu    sync.Mutex
	calls []string
}

func (d *driver) record(format string, args ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.calls = append(d.calls, fmt.Sprintf(format, args...))
}

// Calls are the calls so far, in order.
func (d *driver) Calls() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return append([]string(nil), d.calls...)
}

func (d *driver) Attach(ctx context.Context, v cache.VolumeToAttach) (string, error) {
	d.record("attach %s %s", v.VolumeName, v.NodeName)
	if d.attach == nil {
		return "/dev/" + string(v.VolumeName), nil
	}
	return d.attach(ctx, v)
}

func (d *driver) Detach(ctx context.Context, v cache.AttachedVolume) error {
	d.record("detach %s %s", v.VolumeName, v.NodeName)
	if d.detach == nil {
		return nil
	}
	return d.detach(ctx, v)
}

func (d *driver) VerifyAttached(ctx context.Context, node types.NodeName, volumes []cache.AttachedVolume) (map[v1.UniqueVolumeName]Verification, error) {
	d.record("verify %s", node)
	if d.verify == nil {
		return nil, nil
	}
	return d.verify(ctx, node, volumes)
}

// bulkDriver is a driver that verifies all nodes with one call.
type bulkDriver struct {
	driver
	verifyAll func(context.Context, map[types.NodeName][]cache.AttachedVolume) (map[types.NodeName]map[v1.UniqueVolumeName]Verification, error)
}

func (d *bulkDriver) VerifyAllAttached(ctx context.Context, volumes map[types.NodeName][]cache.AttachedVolume) (map[types.NodeName]map[v1.UniqueVolumeName]Verification, error) {
	d.record("verify all")
	return d.verifyAll(ctx, volumes)
}

// stage is an executor on a real actual world with a scripted driver.
type stage struct {
	t      testing.TB
	driver *driver
	actual *cache.ActualStateOfWorld
	ops    *Operations
	*OperationExecutor

	mu     sync.Mutex
	events []Event
}

func newStage(t testing.TB, o Options) *stage {
	t.Helper()
	return newStageWith(t, o, &driver{})
}

func newStageWith(t testing.TB, o Options, attacher Attacher) *stage {
	t.Helper()
	s := &stage{t: t, actual: cache.NewActualStateOfWorld(cache.NewVolumePluginMgr()), ops: newOperations(t, o)}
	s.driver, _ = attacher.(*driver)
	e, err := NewOperationExecutor(ExecutorConfig{
		Operations: s.ops, Attacher: attacher, Actual: s.actual,
		OnOutcome: func(e Event) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.events = append(s.events, e)
		},
	})
	require.NoError(t, err)
	s.OperationExecutor = e
	// Whoever is told of a change finds the operation that made it still pending: its outcome is written before its key is free.
	s.actual.Subscribe(func(p cache.Pair) {
		if info, ok := s.ops.Pending(Key{Volume: p.Volume, Node: p.Node}); ok {
			require.Contains(t, []Phase{Running, Overdue, Preparing}, info.Phase)
		}
	})
	return s
}

func spec(name string) *cache.VolumeSpec {
	return cache.NewSpecFromPersistentVolume(&v1.PersistentVolume{}, name == "read-only")
}

func toAttach(volume v1.UniqueVolumeName, node types.NodeName) cache.VolumeToAttach {
	return cache.VolumeToAttach{VolumeName: volume, NodeName: node, VolumeSpec: spec("")}
}

// put makes the pair what the state says.
func (s *stage) put(volume v1.UniqueVolumeName, node types.NodeName, state cache.AttachState) {
	s.t.Helper()
	switch state {
	case cache.Attached:
		require.NoError(s.t, s.actual.MarkVolumeAsAttached(volume, spec(""), node, "/dev/x"))
	case cache.Uncertain:
		require.NoError(s.t, s.actual.MarkVolumeAsUncertain(volume, spec(""), node))
	}
}

func (s *stage) state(volume v1.UniqueVolumeName, node types.NodeName) cache.AttachState {
	return s.actual.GetAttachState(volume, node)
}

func (s *stage) reported(volume v1.UniqueVolumeName, node types.NodeName) bool {
	for _, v := range s.actual.Report(node).Volumes {
		if v.Name == volume {
			return true
		}
	}
	return false
}

// attach runs an attach to its end.
func (s *stage) attach(r AttachRequest) Event {
	s.t.Helper()
	events := make(chan Event, 1)
	r.Done = func(e Event) { events <- e }
	require.NoError(s.t, s.AttachVolume(ctx, r))
	return <-events
}

// detach runs a detach of what the world says to its end.
func (s *stage) detach(r DetachRequest) Event {
	s.t.Helper()
	events := make(chan Event, 1)
	r.Done = func(e Event) { events <- e }
	require.NoError(s.t, s.DetachVolume(ctx, r))
	return <-events
}

// attached is the request's view of a pair: what the world says, or only the names.
func (s *stage) attached(volume v1.UniqueVolumeName, node types.NodeName) cache.AttachedVolume {
	if v, ok := s.actual.GetAttachedVolume(volume, node); ok {
		return v
	}
	return cache.AttachedVolume{VolumeName: volume, NodeName: node}
}
