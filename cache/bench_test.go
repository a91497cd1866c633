package cache

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// The benchmarks run at three sizes: n attachments of n volumes on n/30 nodes, each used by one pod. What
// should not grow with the world must not grow with n; what is cold in a large world (entries, names) is cold
// here too, as pairs are asked for in random order.
var benchSizes = []int{1_000, 10_000, 100_000}

const volumesPerNode = 30

// benchItem is what a caller holds for one attachment. The names are his own copies, as they would come from
// the API.
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
