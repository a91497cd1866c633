package lifecycle

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/stateofworld/stateofworld/fake"
)

// thousand makes as many claims in a volume group, with an agent that runs in real time, and returns how long it took until all were marked.
func thousand(b testing.TB, n int, vg string, change ...func(*AgentConfig)) time.Duration {
	realTime := func(c *AgentConfig) { c.Clock, c.Operations.Clock = nil, nil }
	w := makeTestWorld(b, b.Context(), append(change, realTime)...)
	defer w.kill()
	w.lvm.AddVG("big", extent, fake.Disk{Device: "/dev/sdb", Size: 1 << 40})
	left := make(chan struct{}, n)
	watch := w.api.Feed(onCreated{func() { left <- struct{}{} }}, nil, nil)
	defer watch.Stop()
	for i := range n {
		w.claim(fmt.Sprintf("c-%d", i), fmt.Sprintf(`{"volumeGroup":%q,"name":"pvc-%d","size":4194304}`, vg, i))
	}
	ctx, stop := context.WithCancel(b.Context())
	ended := make(chan error)
	start := time.Now()
	go func() { ended <- w.agent.Run(ctx) }()
	for range n {
		<-left
	}
	took := time.Since(start)
	stop()
	<-ended
	return took
}

type onCreated struct{ f func() }

func (o onCreated) OnAdd(any, bool) {}
func (o onCreated) OnDelete(any)    {}
func (o onCreated) OnUpdate(oldObj, newObj any) {
	if state(oldObj.(*v1.PersistentVolumeClaim)) == string(Creating) && state(newObj.(*v1.PersistentVolumeClaim)) == string(Created) {
		o.f()
	}
}

func TestManyClaimsAtOnce(t *testing.T) {
	thousand(t, 200, "big")
}

// 1,000 claims on one node, from the first event to the last "created". With the real lvm2 that takes minutes: nearly all of them are lvm2's own, which reads
// and writes the metadata of the whole group with each of its commands.
func BenchmarkThousandClaims(b *testing.B) {
	const claims = 1000
	b.Run("lvm2 in memory", func(b *testing.B) {
		var took time.Duration
		for b.Loop() {
			took += thousand(b, claims, "big")
		}
		b.ReportMetric(float64(claims*b.N)/took.Seconds(), "claims/s")
	})
	b.Run("real lvm2", func(b *testing.B) {
		if testing.Short() {
			b.Skip("takes minutes: not with -short")
		}
		var took time.Duration
		for b.Loop() {
			b.StopTimer()
			g := newRealGroup(b, 8<<30)
			b.StartTimer()
			took += thousand(b, claims, g.vg, func(c *AgentConfig) { c.Backend = g.backend() })
		}
		b.ReportMetric(float64(claims*b.N)/took.Seconds(), "claims/s")
	})
}

// One event about another node's claim, which is what an agent costs its node whose watch is not narrowed.
func BenchmarkEventOfAnotherNode(b *testing.B) {
	agent, err := NewAgent(sound())
	require.NoError(b, err)
	pvc := fake.NewClaim("data", "node-b")
	pvc.Annotations[keys.Lifecycle()] = string(Creating)
	pv := fake.NewVolume("pv", DefaultDriver, "node-b", pvc)
	b.Run("claim", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			agent.Claims().OnUpdate(nil, pvc)
		}
	})
	b.Run("volume", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			agent.Volumes().OnUpdate(nil, pv)
		}
	})
}

// One decision on a claim.
func BenchmarkDecide(b *testing.B) {
	c := claim{UID: "u1", Node: nodeA, Lifecycle: Creating, Spec: spec("pvc-1", 1<<30)}
	b.ReportAllocs()
	for b.Loop() {
		if d := decideClaim(c, &testRules, attempt{}); d.Action != Create {
			b.Fatal(d)
		}
	}
}
