package reconciler_test

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/stateofworld/stateofworld/cache"
	"github.com/stateofworld/stateofworld/executor"
	"github.com/stateofworld/stateofworld/fake"
	"github.com/stateofworld/stateofworld/reconciler"
)

// instantDriver succeeds at once, and may tell when it was called.
type instantDriver struct{ called chan time.Time }

func (d instantDriver) tell() {
	if d.called != nil {
		d.called <- time.Now()
	}
}
func (d instantDriver) Attach(context.Context, cache.VolumeToAttach) (string, error) {
	d.tell()
	return "", nil
}
func (d instantDriver) Detach(context.Context, cache.AttachedVolume) error { d.tell(); return nil }
func (d instantDriver) VerifyAttached(context.Context, types.NodeName, []cache.AttachedVolume) (map[v1.UniqueVolumeName]executor.Verification, error) {
	return nil, nil
}

const perNode = 30

// fleet holds the objects of n attachments on n/30 nodes, made once, so that the worlds alone are measured.
type fleet struct {
	nodes []types.NodeName
	pods  []*v1.Pod
	names []cache.UniquePodName
	specs []*cache.VolumeSpec
}

func newFleet(n int) *fleet {
	f := &fleet{}
	for i := range (n + perNode - 1) / perNode {
		f.nodes = append(f.nodes, types.NodeName(fmt.Sprintf("node-%05d.example.com", i)))
	}
	for i := range n {
		name := fmt.Sprintf("pod-%07d", i)
		f.pods = append(f.pods, fake.NewPod(name))
		f.names = append(f.names, cache.UniquePodName(fmt.Sprintf("6ba7b810-9dad-11d1-80b4-%012d", i)))
		f.specs = append(f.specs, fake.Spec(fmt.Sprintf("pvc-6ba7b814-9dad-11d1-80b4-%012d", i), v1.ReadWriteOnce))
	}
	return f
}

func (f *fleet) node(i int) types.NodeName { return f.nodes[i/perNode] }

func (f *fleet) addNodes(c *controller) { c.node(f.nodes...) }

func (f *fleet) addPod(t testing.TB, c *controller, i int) {
	if _, err := c.desired.AddPod(f.names[i], f.pods[i], f.specs[i], f.node(i)); err != nil {
		t.Fatal(err)
	}
}

// converge waits until n volumes are attached and nothing is open.
func converge(t testing.TB, c *controller, n int) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; <-time.After(100 * time.Microsecond) {
		if c.actual.Sizes().Pairs == n {
			if s := c.rc.Stats(); s.Open+s.Queued+s.Pending == 0 {
				return
			}
		}
		if time.Now().After(deadline) {
			t.Fatalf("no convergence: %+v", c.rc.Stats())
		}
	}
}

func converged(b *testing.B, n int, driver executor.Attacher) (*controller, *fleet) {
	b.Helper()
	f := newFleet(n)
	c := start(b, func(c *reconciler.Config) {
		c.Attacher, c.VerifyPeriod, c.AuditPeriod = driver, -1, -1
	})
	f.addNodes(c)
	for i := range n {
		f.addPod(b, c, i)
	}
	converge(b, c, n)
	return c, f
}

var sizes = []int{1_000, 10_000, 100_000}

func forSizes(b *testing.B, run func(b *testing.B, n int)) {
	for _, n := range sizes {
		b.Run(fmt.Sprintf("n=%d", n), func(b *testing.B) { run(b, n) })
	}
}

// From AddPod to the driver's Attach, with nothing else to do.
func BenchmarkWishToDriverCall(b *testing.B) {
	forSizes(b, func(b *testing.B, n int) {
		called := make(chan time.Time, n)
		c, f := converged(b, n, instantDriver{called})
		defer c.stop()
		for range n {
			<-called
		}
		var took []time.Duration
		i := 0
		for b.Loop() {
			c.desired.DeletePodFromAll(f.names[i])
			<-called
			for c.actual.VolumeNodeExists(fake.VolumeName(f.specs[i].PersistentVolume.Name), f.node(i)) {
				runtime.Gosched()
			}
			start := time.Now()
			f.addPod(b, c, i)
			took = append(took, (<-called).Sub(start))
			i = (i + 7919) % n
		}
		slices.Sort(took)
		b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-us")
		b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-us")
	})
}

// A pod goes and comes: a detach and an attach, until both are done.
func BenchmarkOneChangedPod(b *testing.B) {
	forSizes(b, func(b *testing.B, n int) {
		c, f := converged(b, n, instantDriver{})
		defer c.stop()
		before := c.rc.Stats().Evaluations
		i := 0
		b.ReportAllocs()
		for b.Loop() {
			c.desired.DeletePodFromAll(f.names[i])
			f.addPod(b, c, i)
			i = (i + 7919) % n
			for s := c.rc.Stats(); s.Open+s.Queued+s.Pending > 0; s = c.rc.Stats() {
				runtime.Gosched()
			}
		}
		b.ReportMetric(float64(c.rc.Stats().Evaluations-before)/float64(b.N), "evaluations/op")
	})
}

// A pass in which nothing changed.
func BenchmarkIdlePass(b *testing.B) {
	forSizes(b, func(b *testing.B, n int) {
		c, _ := converged(b, n, instantDriver{})
		defer c.stop()
		before := c.rc.Stats().Evaluations
		b.ReportAllocs()
		for b.Loop() {
			c.rc.Step(b.Context())
		}
		b.ReportMetric(float64(c.rc.Stats().Evaluations-before), "evaluations")
	})
}

// From n wishes that nothing was done about to n attached volumes.
func BenchmarkConverge(b *testing.B) {
	forSizes(b, func(b *testing.B, n int) {
		f := newFleet(n)
		for b.Loop() {
			b.StopTimer()
			c := prepare(b, func(c *reconciler.Config) { c.Attacher, c.VerifyPeriod, c.AuditPeriod = instantDriver{}, -1, -1 })
			f.addNodes(c)
			for i := range n {
				f.addPod(b, c, i)
			}
			runtime.GC()
			b.StartTimer()
			c.run(b)
			converge(b, c, n)
			b.StopTimer()
			c.stop()
			b.StartTimer()
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/attach")
		b.ReportMetric(float64(n)*float64(b.N)/b.Elapsed().Seconds(), "attaches/s")
	})
}

// A thousand detaches on a hundred nodes while each write of a report takes 5 ms.
func BenchmarkDetachWithSlowReports(b *testing.B) {
	sink := &slowSink{takes: 5 * time.Millisecond, running: map[types.NodeName]int{}}
	f := newFleet(3000)
	c := start(b, func(c *reconciler.Config) { c.Attacher, c.Reports, c.VerifyPeriod = instantDriver{}, sink, -1 })
	defer c.stop()
	f.addNodes(c)
	for b.Loop() {
		b.StopTimer()
		for i := range 1000 {
			f.addPod(b, c, 3*i)
		}
		converge(b, c, 1000)
		b.StartTimer()
		for i := range 1000 {
			c.desired.DeletePodFromAll(f.names[3*i])
		}
		converge(b, c, 0)
	}
	b.ReportMetric(float64(b.Elapsed().Milliseconds())/float64(b.N), "ms/1000-detaches")
}

// What both worlds and the reconciler keep for an attachment; pods and specs are the caller's.
func BenchmarkMemoryPerAttachment(b *testing.B) {
	forSizes(b, func(b *testing.B, n int) {
		f := newFleet(n)
		for b.Loop() {
			var before, after runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			c := start(b, func(c *reconciler.Config) { c.Attacher, c.VerifyPeriod, c.AuditPeriod = instantDriver{}, -1, -1 })
			f.addNodes(c)
			for i := range n {
				f.addPod(b, c, i)
			}
			converge(b, c, n)
			runtime.GC()
			runtime.ReadMemStats(&after)
			b.ReportMetric((float64(after.HeapAlloc)-float64(before.HeapAlloc))/float64(n), "B/attachment")
			runtime.KeepAlive(c)
			c.stop()
		}
		runtime.KeepAlive(f)
	})
}
