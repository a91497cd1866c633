package lifecycle

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/stateofworld/stateofworld/cache"
	"github.com/stateofworld/stateofworld/executor"
	"github.com/stateofworld/stateofworld/fake"
	"github.com/stateofworld/stateofworld/reconciler/engine"
)

type ctxt = context.Context

// notALister has no List.
type notALister struct{ c *fake.VolumeClient }

func (n notALister) Get(ctx ctxt, name string, o metav1.GetOptions) (*v1.PersistentVolume, error) {
	return n.c.Get(ctx, name, o)
}

func (n notALister) Patch(ctx ctxt, name string, pt types.PatchType, data []byte, o metav1.PatchOptions, sub ...string) (*v1.PersistentVolume, error) {
	return n.c.Patch(ctx, name, pt, data, o, sub...)
}

func sound() AgentConfig {
	api := fake.NewAPI()
	return AgentConfig{
		Node: nodeA, Backend: fake.NewLVM(), Claims: func(ns string) ClaimClient { return api.Claims(ns) }, Volumes: api.Volumes(),
	}
}

func TestABadConfigurationIsRefusedAsAWhole(t *testing.T) {
	_, err := NewAgent(sound())
	require.NoError(t, err)
	for field, spoil := range map[string]func(*AgentConfig){
		"AgentConfig.Node":           func(c *AgentConfig) { c.Node = "" },
		"AgentConfig.Node ":          func(c *AgentConfig) { c.Node = "a b" },
		"AgentConfig.Backend":        func(c *AgentConfig) { c.Backend = nil },
		"AgentConfig.Backend ":       func(c *AgentConfig) { var l *fake.LVM; c.Backend = l },
		"AgentConfig.Claims":         func(c *AgentConfig) { c.Claims = nil },
		"AgentConfig.Volumes":        func(c *AgentConfig) { c.Volumes = nil },
		"AgentConfig.Volumes ":       func(c *AgentConfig) { c.Orphans.Mode = OrphansReported; c.Volumes = notALister{} },
		"Annotations.Prefix":         func(c *AgentConfig) { c.Annotations.Prefix = "a/b" },
		"AgentConfig.Drivers":        func(c *AgentConfig) { c.Annotations.Prefix = "lvm.example.com" },
		"AgentConfig.VolumeGroups":   func(c *AgentConfig) { c.VolumeGroups = []string{"-f"} },
		"AgentConfig.Wipe":           func(c *AgentConfig) { c.Wipe = "burn" },
		"AgentConfig.Finalizer":      func(c *AgentConfig) { c.Finalizer = "a b" },
		"AgentConfig.Orphans.Mode":   func(c *AgentConfig) { c.Orphans.Mode = "burn" },
		"AgentConfig.Orphans.Grace":  func(c *AgentConfig) { c.Orphans.Grace = -1 },
		"AgentConfig.Orphans.Period": func(c *AgentConfig) { c.Orphans.Period = -1 },
		"AgentConfig.Workers":        func(c *AgentConfig) { c.Workers = -1 },
		"Options.MaxConcurrent":      func(c *AgentConfig) { c.Operations.MaxConcurrent = -1 },
	} {
		c := sound()
		spoil(&c)
		_, err := NewAgent(c)
		var invalid *cache.InvalidError
		require.ErrorAs(t, err, &invalid, field)
		require.Contains(t, field, invalid.Field)
	}
}

func TestRunEndsWithItsContextAndRunsOnce(t *testing.T) {
	c := sound()
	agent, err := NewAgent(c)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- agent.Run(ctx) }()
	require.Eventually(t, func() bool { return agent.engine.Evaluations() > 0 && agent.Idle() }, 10*time.Second, time.Millisecond)
	require.ErrorIs(t, agent.Run(ctx), engine.ErrRunning)
	cancel()
	require.ErrorIs(t, <-ended, context.Canceled)
	require.ErrorIs(t, agent.Run(t.Context()), ErrStopped)
	require.Zero(t, agent.Step(t.Context()))
	require.NoError(t, agent.Stop(t.Context()))
	agent.Claims().OnAdd(fake.NewClaim("data", nodeA), false) // an informer may go on
}

// What was observed before Run is done by Run; the process's end is waited for.
func TestRunDoesWhatWasObservedBeforeIt(t *testing.T) {
	w := newTestWorld(t)
	w.claim("data", spec("pvc-1", mib))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- w.agent.Run(ctx) }()
	require.Eventually(t, func() bool { return w.claimState("data") == "created" }, 10*time.Second, time.Millisecond)
	held := w.lvm.Hold("lvcreate")
	w.claim("more", spec("pvc-2", mib))
	<-held.Started()
	cancel()
	require.ErrorIs(t, <-ended, context.Canceled)
	require.Equal(t, "creating", w.claimState("more"), "cut off, to be finished by the next")
	require.NoError(t, w.agent.Operations().Wait(t.Context()))
	require.ErrorIs(t, w.agent.Operations().Start(t.Context(), executor.Operation{Key: executor.Key{Volume: "x"}, Run: func(context.Context) error { return nil }}), executor.ErrShutdown)
}

// Whether its context ends or it is stopped: what that cuts off is no failure of the object.
func TestWhatTheAgentsEndCutsOffIsNotReported(t *testing.T) {
	for name, end := range map[string]func(w *testWorld, cancel func()){
		"its context ends": func(_ *testWorld, cancel func()) { cancel() },
		"it is stopped":    func(w *testWorld, _ func()) { require.NoError(t, w.agent.Stop(t.Context())) },
	} {
		for _, program := range []string{"vgs", "lvs", "lvcreate"} {
			t.Run(name+" in "+program, func(t *testing.T) {
				w := newTestWorld(t)
				w.claim("data", spec("pvc-1", mib))
				held := w.lvm.Hold(program)
				ctx, cancel := context.WithCancel(t.Context())
				ended := make(chan error)
				go func() { ended <- w.agent.Run(ctx) }()
				<-held.Started()
				end(w, cancel)
				cancel()
				require.ErrorIs(t, <-ended, context.Canceled)
				require.Empty(t, w.said(NoticeFailed))
			})
		}
	}
}
