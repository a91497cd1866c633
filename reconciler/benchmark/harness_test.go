package benchmark

import (
	"fmt"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"k8s.io/kubernetes/pkg/volume"

	"github.com/stateofworld/stateofworld/reconciler/benchmark/internal/fleet"
)

var (
	allSizes = []int{1_000, 10_000, 100_000}
	// allOps are how many operations run or are in back-off.
	allOps = []int{1_000, 10_000, 100_000}
	// kubeOps leaves out what takes Kubernetes minutes only to set up: starting m operations costs it m².
	kubeOps = []int{1_000, 10_000}
)

// reserve is how many attachments a fleet has beyond its size, to be wished in the benchmark.
const reserve = 2_000

// fleetOf returns the fleet of n attachments, and the one of n+reserve that begins with them. They are made once: their objects
// are there while everything is measured, as they are in the informers of a controller.
func fleetOf(n int) (f, more *fleet.Fleet) {
	fleets.Lock()
	defer fleets.Unlock()
	more = fleets.of[n]
	if more == nil {
		more = newFleet(n + reserve)
		fleets.of[n] = more
	}
	return &fleet.Fleet{Nodes: more.Nodes[:(n+fleet.PerNode-1)/fleet.PerNode], Attachments: more.Attachments[:n:n]}, more
}

// forget drops the fleet, so that the collector need not walk it any more.
func forget(n int) {
	fleets.Lock()
	defer fleets.Unlock()
	delete(fleets.of, n)
}

var fleets = struct {
	sync.Mutex
	of map[int]*fleet.Fleet
}{of: map[int]*fleet.Fleet{}}

func newFleet(n int) *fleet.Fleet {
	f := fleet.New(n)
	for i := range f.Attachments {
		a := &f.Attachments[i]
		a.Peer = volume.NewSpecFromPersistentVolume(a.Spec.PersistentVolume, a.Spec.ReadOnly)
	}
	return f
}

// side is one party of a comparison.
type side struct {
	name string
	// sizes are those at which it is measured; nil means all of the benchmark.
	sizes []int
	run   func(b *testing.B, n int)
}

// compare measures each side at each size, sides of one size one after another, so that they see the same machine.
func compare(b *testing.B, letter string, sizes []int, sides ...side) {
	for _, n := range sizes {
		b.Run(fmt.Sprintf("%s=%d", letter, n), func(b *testing.B) {
			for _, s := range sides {
				if s.sizes != nil && !slices.Contains(s.sizes, n) {
					continue
				}
				b.Run(s.name, func(b *testing.B) {
					s.run(b, n)
					runtime.GC() // what this side leaves behind is not collected while the next is measured
				})
			}
		})
	}
}

// each runs op for item after item, round and round.
func each[T any](b *testing.B, items []T, op func(T)) {
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		op(items[i])
		if i++; i == len(items) {
			i = 0
		}
	}
}

// once does the work a single time, however short the benchmark is: for what reports metrics of its own.
func once(b *testing.B, work func()) {
	did := false
	for b.Loop() {
		if !did {
			work()
			did = true
		}
	}
	b.ReportMetric(0, "ns/op") // not shown
}

// waitFor polls until done. A side that does not get there fails its own row only.
func waitFor(tb testing.TB, limit time.Duration, done func() bool) {
	tb.Helper()
	for deadline := time.Now().Add(limit); !done(); time.Sleep(50 * time.Microsecond) {
		if time.Now().After(deadline) {
			tb.Fatalf("not done after %v", limit)
		}
	}
}

// spinFor is waitFor for what is measured while it is waited for.
func spinFor(tb testing.TB, limit time.Duration, done func() bool) {
	tb.Helper()
	deadline := time.Now().Add(limit)
	for i := 1; !done(); i++ {
		if i%1024 == 0 && time.Now().After(deadline) {
			tb.Fatalf("not done after %v", limit)
		}
		runtime.Gosched()
	}
}

const callLimit = time.Minute

func waitChannel[T any](tb testing.TB, ch <-chan T) T {
	tb.Helper()
	timer := time.NewTimer(callLimit)
	defer timer.Stop()
	select {
	case v := <-ch:
		return v
	case <-timer.C:
		tb.Fatalf("nothing after %v", callLimit)
		panic("unreachable")
	}
}

// signal wakes who waits for the channel, which has room for one; a signal that nobody took yet is enough.
func signal(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

// waitSignal waits for a signal, but not for ever.
func waitSignal(tb testing.TB, ch <-chan struct{}, late <-chan time.Time) {
	tb.Helper()
	select {
	case <-ch:
	case <-late:
		tb.Fatalf("nothing after %v", callLimit)
	}
}

// reportPercentiles adds the median, the 99th percentile and the longest.
func reportPercentiles(b *testing.B, took []time.Duration) {
	slices.Sort(took)
	us := func(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 }
	b.ReportMetric(us(took[len(took)/2]), "p50-us")
	b.ReportMetric(us(took[len(took)*99/100]), "p99-us")
	b.ReportMetric(us(took[len(took)-1]), "max-us")
}

// heapBytes returns the bytes in use after a full collection.
func heapBytes() float64 {
	runtime.GC()
	runtime.GC() // what finalizers and pools held
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}

// cpuTime returns the processor time that this process has used.
func cpuTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
