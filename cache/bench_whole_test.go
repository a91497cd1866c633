package cache

import (
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"time"
)

func BenchmarkAllAttachedVolumes(b *testing.B) {
	atSizes(b, func(b *testing.B, items []benchItem) {
		w := benchActual(b, items)
		for b.Loop() {
			n := 0
			for range w.AttachedVolumes() {
				n++
			}
			if n != len(items) {
				b.Fatal("lost")
			}
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(items)), "ns/element")
	})
}

func BenchmarkAllVolumesToAttach(b *testing.B) {
	atSizes(b, func(b *testing.B, items []benchItem) {
		w := benchDesired(b, items)
		for b.Loop() {
			n := 0
			for range w.VolumesToAttach() {
				n++
			}
			if n != len(items) {
				b.Fatal("lost")
			}
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(items)), "ns/element")
	})
}

// BenchmarkParallelMix is 90 % point reads and 10 % writes from all cores. Each write changes something: what is
// known already would be answered as a read.
func BenchmarkParallelMix(b *testing.B) {
	atSizes(b, func(b *testing.B, items []benchItem) {
		w := benchActual(b, items)
		items = shuffled(items)
		var worker atomic.Int64
		b.ResetTimer()
		b.RunParallel(func(pb *testing.PB) {
			for i := int(worker.Add(1)) * 7919; pb.Next(); i++ {
				it := &items[i%len(items)]
				if i%20 == 0 {
					toggleDetachRequest(b, w, it)
				} else if i%20 != 1 { // of which the toggle is the second write
					w.GetAttachState(it.volume, it.node)
				}
			}
		})
	})
}

// BenchmarkMemory measures what both worlds keep for an attachment; the objects and strings of the caller are
// not counted, names that the worlds make are.
func BenchmarkMemory(b *testing.B) {
	atSizes(b, func(b *testing.B, items []benchItem) {
		var desiredBytes, actualBytes float64
		for b.Loop() {
			start := heapBytes()
			desired := benchDesired(b, items)
			middle := heapBytes()
			actual := NewActualStateOfWorld(NewVolumePluginMgr(CSIPlugin{}))
			for v := range desired.VolumesToAttach() { // the way names travel: they are made in the desired world
				_ = actual.MarkVolumeAsAttached(v.VolumeName, v.VolumeSpec, v.NodeName, "/dev/disk")
			}
			end := heapBytes()
			desiredBytes, actualBytes = middle-start, end-middle
			runtime.KeepAlive(desired)
			runtime.KeepAlive(actual)
		}
		runtime.KeepAlive(items)
		n := float64(len(items))
		b.ReportMetric(desiredBytes/n, "B/wish")
		b.ReportMetric(actualBytes/n, "B/attachment")
		b.ReportMetric((desiredBytes+actualBytes)/n, "B/both")
	})
}

// BenchmarkWriteDuringFullRead measures how long two writes take while others read everything, again and again.
func BenchmarkWriteDuringFullRead(b *testing.B) {
	atSizes(b, func(b *testing.B, items []benchItem) {
		w := benchActual(b, items)
		stop, done := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(done)
			for {
				for range w.AttachedVolumes() {
				}
				select {
				case <-stop:
					return
				default:
				}
			}
		}()
		var took []time.Duration
		each(b, items, func(it *benchItem) {
			start := time.Now()
			toggleDetachRequest(b, w, it)
			took = append(took, time.Since(start))
		})
		close(stop)
		<-done
		slices.Sort(took)
		b.ReportMetric(float64(took[len(took)*99/100].Nanoseconds()), "p99-ns")
		b.ReportMetric(float64(took[len(took)-1].Nanoseconds()), "max-ns")
	})
}
