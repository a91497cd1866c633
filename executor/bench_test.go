//go:build unix

package executor

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/stateofworld/stateofworld/cache"
)

func benchKey(i int) Key {
	return Key{
		Volume: v1.UniqueVolumeName(fmt.Sprintf("kubernetes.io/csi/disk.example.com^vol-0a1b2c3d4e5f%07d", i)),
		Node:   types.NodeName(fmt.Sprintf("ip-10-0-%d-%d.example.internal", i/30/250, i/30%250)),
	}
}

func benchKeys(n int) []Key {
	keys := make([]Key, n)
	for i := range keys {
		keys[i] = benchKey(i)
	}
	return keys
}

// known returns Operations with m known operations, half of them running and half in back-off, and the keys of both
// kinds, alternating. They end with the benchmark.
func known(b *testing.B, m int) (*Operations, []Key) {
	b.Helper()
	o, err := NewOperations(Options{Timeout: -1, Backoff: Backoff{Base: time.Hour, Cap: time.Hour}})
	require.NoError(b, err)
	release := make(chan struct{})
	failed := errors.New("failed")
	keys := benchKeys(m)
	var failing sync.WaitGroup
	for i, key := range keys {
		op := Operation{Key: key, Name: "attach", Run: func(context.Context) error { <-release; return nil }}
		if i%2 == 1 {
			failing.Add(1)
			op.Run = func(context.Context) error { return failed }
			op.Done = func(Result) { failing.Done() }
		}
		require.NoError(b, o.Start(context.Background(), op))
	}
	failing.Wait()
	b.Cleanup(func() {
		close(release)
		require.NoError(b, o.Shutdown(context.Background()))
	})
	return o, keys
}

var sizes = []int{100, 10_000, 100_000}

// Budgets are upper bounds, a little above what is measured; they are there to notice a change.
func TestAllocationBudgets(t *testing.T) {
	o := newOperations(t, Options{})
	release := make(chan struct{})
	for i := range 1000 {
		require.NoError(t, o.Start(ctx, Operation{Key: benchKey(i), Run: until(release)}))
	}
	present, absent := benchKey(1), benchKey(1001)
	require.Zero(t, testing.AllocsPerRun(100, func() {
		o.IsOperationPending(present)
		o.IsOperationPending(absent)
		o.IsOperationSafeToRetry(absent, "attach")
		o.Pending(present)
	}))
	require.LessOrEqual(t, testing.AllocsPerRun(100, func() {
		_ = o.Start(ctx, Operation{Key: present, Run: succeed})
	}), 2.0, "a start that is refused")
	done := make(chan struct{})
	op := Operation{Key: absent, Name: "attach", Run: succeed, Done: func(Result) { done <- struct{}{} }}
	require.LessOrEqual(t, testing.AllocsPerRun(100, func() {
		_ = o.Start(ctx, op)
		<-done
	}), 8.0, "a whole operation with a deadline")
	close(release)
	require.NoError(t, o.Wait(ctx))
}

func BenchmarkIsOperationPending(b *testing.B) {
	for _, m := range sizes {
		b.Run(fmt.Sprintf("known=%d", m), func(b *testing.B) {
			o, keys := known(b, m)
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				if o.IsOperationPending(keys[i]) != (i%2 == 0) {
					b.Fatal("wrong answer")
				}
				if i++; i == len(keys) {
					i = 0
				}
			}
		})
	}
}

// BenchmarkStart starts operations while m others are known, and waits for each to end.
func BenchmarkStart(b *testing.B) {
	for _, m := range sizes {
		b.Run(fmt.Sprintf("known=%d", m), func(b *testing.B) {
			o, _ := known(b, m)
			keys := benchKeys(m + 1000)[m:]
			ctx := context.Background()
			ended := make(chan struct{}, 1)
			op := Operation{Name: "attach", Run: func(context.Context) error { return nil }, Done: func(Result) { ended <- struct{}{} }}
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				op.Key = keys[i%len(keys)]
				if err := o.Start(ctx, op); err != nil {
					b.Fatal(err)
				}
				<-ended
				i++
			}
		})
	}
}

// BenchmarkFloor is what any implementation pays for the same promises: a goroutine, a map entry, a context and a timer.
func BenchmarkFloor(b *testing.B) {
	const volumes = 100_000
	keys := benchKeys(volumes)
	var mu sync.Mutex
	pending := map[Key]bool{}
	var running sync.WaitGroup
	b.ReportAllocs()
	cpu := cpuTime()
	b.ResetTimer()
	for i := range b.N {
		if i%1000 == 0 {
			running.Wait()
		}
		key := &keys[i%volumes]
		mu.Lock()
		pending[*key] = true
		mu.Unlock()
		running.Go(func() {
			_, cancel := context.WithCancelCause(context.Background())
			timer := time.AfterFunc(time.Minute, func() { cancel(ErrTimeout) })
			timer.Stop()
			cancel(nil)
			mu.Lock()
			delete(pending, *key)
			mu.Unlock()
		})
	}
	running.Wait()
	report(b, cpu)
}

// BenchmarkThroughput starts no-op operations on 100,000 keys from all cores, at most about 1,000 pending at a time.
func BenchmarkThroughput(b *testing.B) {
	for _, c := range []struct {
		name    string
		options Options
	}{
		{"plain", Options{Timeout: -1}},
		{"deadline", Options{}},
		{"deadline and caps", Options{MaxConcurrent: 10_000, MaxPerNode: 1000}},
	} {
		b.Run(c.name, func(b *testing.B) {
			o, err := NewOperations(c.options)
			require.NoError(b, err)
			const volumes = 100_000
			keys := benchKeys(volumes)
			ctx := context.Background()
			var next atomic.Int64
			b.ReportAllocs()
			cpu := cpuTime()
			b.ResetTimer()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					i := next.Add(1)
					if i%1000 == 0 {
						_ = o.Wait(ctx)
					}
					op := Operation{Key: keys[i%volumes], Name: "attach", Run: succeed}
					for o.Start(ctx, op) != nil { // a whole round later, and still not over
						runtime.Gosched()
					}
				}
			})
			_ = o.Wait(ctx)
			report(b, cpu)
		})
	}
}

// BenchmarkAttachDetach attaches and detaches, 1,000 volumes at a time, with an instant driver and the real actual world.
func BenchmarkAttachDetach(b *testing.B) {
	o := newOperations(b, Options{})
	actual := cache.NewActualStateOfWorld(cache.NewVolumePluginMgr())
	e, err := NewOperationExecutor(ExecutorConfig{Operations: o, Attacher: instantDriver{}, Actual: actual})
	require.NoError(b, err)
	keys := benchKeys(1000)
	ctx := context.Background()
	done := func(Event) {}
	b.ReportAllocs()
	cpu := cpuTime()
	b.ResetTimer()
	for i := range b.N {
		key := keys[i%1000]
		if i%1000 == 0 {
			_ = o.Wait(ctx)
		}
		if i/1000%2 == 0 {
			err = e.AttachVolume(ctx, AttachRequest{
				Volume: cache.VolumeToAttach{VolumeName: key.Volume, NodeName: key.Node}, Exclusive: true, Done: done,
			})
		} else {
			err = e.DetachVolume(ctx, DetachRequest{
				Volume: cache.AttachedVolume{VolumeName: key.Volume, NodeName: key.Node}, Exclusive: true, Done: done,
			})
		}
		if err != nil {
			b.Fatal(err)
		}
	}
	_ = o.Wait(ctx)
	report(b, cpu)
}

type instantDriver struct{}

func (instantDriver) Attach(context.Context, cache.VolumeToAttach) (string, error) { return "", nil }
func (instantDriver) Detach(context.Context, cache.AttachedVolume) error           { return nil }
func (instantDriver) VerifyAttached(context.Context, types.NodeName, []cache.AttachedVolume) (map[v1.UniqueVolumeName]Verification, error) {
	return nil, nil
}

// report adds throughput and processor time: the latter says more on a machine that others use too.
func report(b *testing.B, cpu time.Duration) {
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "ops/s")
	b.ReportMetric(float64(cpuTime()-cpu)/float64(b.N), "cpu-ns/op")
}

func cpuTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
