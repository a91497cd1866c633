package cache

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// The benchmarks run at three sizes: n attachments of n volumes on n/30 nodes, each used by one pod. What should not grow with the world must not
// grow with n; what is cold in a large world (entries, names) is cold here too, as pairs are asked for in random order.
var benchSizes = []int{1_000, 10_000, 100_000}

const volumesPerNode = 30

// benchItem is what a caller holds for one attachment. The names are his own copies, as they would come from the API.
type benchItem struct {
	volume v1.UniqueVolumeName
	node   types.NodeName
	spec   *VolumeSpec
	name   UniquePodName
	pod    *v1.Pod
}

func benchItems(n int) []benchItem {
	items := make([]benchItem, n)
	for i := range items {
		handle := fmt.Sprintf("vol-0a1b2c3d4e5f%05d", i)
		items[i] = benchItem{
			volume: volumeName(handle),
			node:   types.NodeName(fmt.Sprintf("ip-10-0-%d.eu-central-1.compute.internal", i%max(1, n/volumesPerNode))),
			spec:   exclusiveSpec(handle),
			name:   UniquePodName(fmt.Sprintf("default/web-%d", i)),
			pod:    testPod("web-" + strconv.Itoa(i)),
		}
	}
	return items
}

func benchDesired(tb testing.TB, items []benchItem) *DesiredStateOfWorld {
	w := NewDesiredStateOfWorld(NewVolumePluginMgr(CSIPlugin{}))
	for _, it := range items {
		w.AddNode(it.node)
		if _, err := w.AddPod(it.name, it.pod, it.spec, it.node); err != nil {
			tb.Fatal(err)
		}
	}
	return w
}

func benchActual(tb testing.TB, items []benchItem) *ActualStateOfWorld {
	w := NewActualStateOfWorld(NewVolumePluginMgr(CSIPlugin{}))
	for _, it := range items {
		if err := w.MarkVolumeAsAttached(it.volume, it.spec, it.node, "/dev/disk"); err != nil {
			tb.Fatal(err)
		}
	}
	w.GetVolumesToReportAttached()
	return w
}

// atSizes runs the benchmark at each size, with the items in random order.
func atSizes(b *testing.B, bench func(b *testing.B, items []benchItem)) {
	for _, n := range benchSizes {
		b.Run(fmt.Sprintf("n=%d", n), func(b *testing.B) {
			items := benchItems(n)
			b.ReportAllocs()
			bench(b, items)
		})
	}
}

func shuffled(items []benchItem) []benchItem {
	items = slices.Clone(items)
	rand.New(rand.NewPCG(1, 2)).Shuffle(len(items), func(i, j int) { items[i], items[j] = items[j], items[i] })
	return items
}

// each runs op for item after item, in random order.
func each(b *testing.B, items []benchItem, op func(it *benchItem)) {
	items = shuffled(items)
	i := 0
	for b.Loop() {
		op(&items[i])
		if i++; i == len(items) {
			i = 0
		}
	}
}

func BenchmarkVolumeExists(b *testing.B) {
	atSizes(b, func(b *testing.B, items []benchItem) {
		w := benchDesired(b, items)
		each(b, items, func(it *benchItem) {
			if !w.VolumeExists(it.volume, it.node) {
				b.Fatal("lost")
			}
		})
	})
}

func BenchmarkGetWish(b *testing.B) {
	atSizes(b, func(b *testing.B, items []benchItem) {
		w := benchDesired(b, items)
		each(b, items, func(it *benchItem) { w.GetWish(it.volume, it.node) })
	})
}

func BenchmarkGetAttachState(b *testing.B) {
	atSizes(b, func(b *testing.B, items []benchItem) {
		w := benchActual(b, items)
		each(b, items, func(it *benchItem) {
			if w.GetAttachState(it.volume, it.node) != Attached {
				b.Fatal("lost")
			}
		})
	})
}

func BenchmarkGetAttachedVolume(b *testing.B) {
	atSizes(b, func(b *testing.B, items []benchItem) {
		w := benchActual(b, items)
		each(b, items, func(it *benchItem) { w.GetAttachedVolume(it.volume, it.node) })
	})
}

func BenchmarkAppendWishes(b *testing.B) {
	atSizes(b, func(b *testing.B, items []benchItem) {
		w := benchDesired(b, items)
		var buf []Wish
		each(b, items, func(it *benchItem) { buf = w.AppendWishes(buf[:0], it.volume) })
	})
}

func BenchmarkAddPodAgain(b *testing.B) {
	atSizes(b, func(b *testing.B, items []benchItem) {
		w := benchDesired(b, items)
		each(b, items, func(it *benchItem) { _, _ = w.AddPod(it.name, it.pod, it.spec, it.node) })
	})
}

func BenchmarkMarkVolumeAsAttachedAgain(b *testing.B) {
	atSizes(b, func(b *testing.B, items []benchItem) {
		w := benchActual(b, items)
		each(b, items, func(it *benchItem) { _ = w.MarkVolumeAsAttached(it.volume, it.spec, it.node, "/dev/disk") })
	})
}

func BenchmarkSetDetachRequestTime(b *testing.B) {
	atSizes(b, func(b *testing.B, items []benchItem) {
		w := benchActual(b, items)
		each(b, items, func(it *benchItem) { _, _ = w.SetDetachRequestTime(it.volume, it.node) })
	})
}

// BenchmarkDesiredDeleteAdd removes the pod of a wish and adds it again.
func BenchmarkDesiredDeleteAdd(b *testing.B) {
	atSizes(b, func(b *testing.B, items []benchItem) {
		w := benchDesired(b, items)
		each(b, items, func(it *benchItem) {
			w.DeletePod(it.name, it.volume, it.node)
			_, _ = w.AddPod(it.name, it.pod, it.spec, it.node)
		})
	})
}

func BenchmarkActualDelete(b *testing.B) {
	atSizes(b, func(b *testing.B, items []benchItem) {
		w := benchActual(b, items)
		random := shuffled(items)
		for i := 0; b.Loop(); i++ {
			if i == len(random) {
				b.StopTimer()
				w, i = benchActual(b, items), 0
				b.StartTimer()
			}
			w.DeleteVolumeNode(random[i].volume, random[i].node)
		}
	})
}

func BenchmarkActualAdd(b *testing.B) {
	atSizes(b, func(b *testing.B, items []benchItem) {
		w := NewActualStateOfWorld(NewVolumePluginMgr(CSIPlugin{}))
		random := shuffled(items)
		for i := 0; b.Loop(); i++ {
			if i == len(random) {
				b.StopTimer()
				w, i = NewActualStateOfWorld(NewVolumePluginMgr(CSIPlugin{})), 0
				b.StartTimer()
			}
			_, _ = w.AddVolumeNode(random[i].spec, random[i].node, "/dev/disk")
		}
	})
}

// BenchmarkActualDeleteAdd detaches a volume and attaches it again.
func BenchmarkActualDeleteAdd(b *testing.B) {
	atSizes(b, func(b *testing.B, items []benchItem) {
		w := benchActual(b, items)
		each(b, items, func(it *benchItem) {
			w.DeleteVolumeNode(it.volume, it.node)
			_ = w.MarkVolumeAsAttached(it.volume, it.spec, it.node, "/dev/disk")
		})
	})
}

func BenchmarkGetAttachedVolumesForNode(b *testing.B) {
	atSizes(b, func(b *testing.B, items []benchItem) {
		w := benchActual(b, items)
		each(b, items, func(it *benchItem) {
			if len(w.GetAttachedVolumesForNode(it.node)) < volumesPerNode {
				b.Fatal("lost")
			}
		})
	})
}

// inUseLists returns for each node its attached volumes.
func inUseLists(items []benchItem) (nodes []types.NodeName, lists map[types.NodeName][]v1.UniqueVolumeName) {
	lists = map[types.NodeName][]v1.UniqueVolumeName{}
	for _, it := range items {
		if lists[it.node] == nil {
			nodes = append(nodes, it.node)
		}
		lists[it.node] = append(lists[it.node], it.volume)
	}
	rand.New(rand.NewPCG(3, 4)).Shuffle(len(nodes), func(i, j int) { nodes[i], nodes[j] = nodes[j], nodes[i] })
	return nodes, lists
}

// BenchmarkSetVolumesMountedByNode sets the list of 30 volumes of a node, the same as before.
func BenchmarkSetVolumesMountedByNode(b *testing.B) {
	atSizes(b, func(b *testing.B, items []benchItem) {
		w := benchActual(b, items)
		nodes, lists := inUseLists(items)
		for i := 0; b.Loop(); i++ {
			node := nodes[i%len(nodes)]
			w.SetVolumesMountedByNode(lists[node], node)
		}
	})
}

// BenchmarkReportsOneNodeChanged changes the report of one node and asks for the reports to write.
func BenchmarkReportsOneNodeChanged(b *testing.B) {
	atSizes(b, func(b *testing.B, items []benchItem) {
		w := benchActual(b, items)
		each(b, items, func(it *benchItem) {
			w.SetNodeStatusUpdateNeeded(it.node)
			if len(w.GetVolumesToReportAttached()) != 1 {
				b.Fatal("lost")
			}
		})
	})
}

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

// BenchmarkParallelMix is 90 % point reads and 10 % writes from all cores.
func BenchmarkParallelMix(b *testing.B) {
	atSizes(b, func(b *testing.B, items []benchItem) {
		w := benchActual(b, items)
		items = shuffled(items)
		var worker atomic.Int64
		b.ResetTimer()
		b.RunParallel(func(pb *testing.PB) {
			for i := int(worker.Add(1)) * 7919; pb.Next(); i++ {
				it := &items[i%len(items)]
				if i%10 == 0 {
					_ = w.MarkVolumeAsAttached(it.volume, it.spec, it.node, "/dev/disk")
				} else {
					w.GetAttachState(it.volume, it.node)
				}
			}
		})
	})
}

// BenchmarkMemory measures what both worlds keep for an attachment; the objects and strings of the caller are not counted, names
// that the worlds make are.
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

// BenchmarkWriteDuringFullRead measures how long a write takes while others read everything, again and again.
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
			w.ResetDetachRequestTime(it.volume, it.node)
			took = append(took, time.Since(start))
		})
		close(stop)
		<-done
		slices.Sort(took)
		b.ReportMetric(float64(took[len(took)*99/100].Nanoseconds()), "p99-ns")
		b.ReportMetric(float64(took[len(took)-1].Nanoseconds()), "max-ns")
	})
}
