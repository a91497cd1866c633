package cache

import (
	"math/rand/v2"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

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

// BenchmarkToggleDetachRequest sets and drops a detach request; both are changes.
func BenchmarkToggleDetachRequest(b *testing.B) {
	atSizes(b, func(b *testing.B, items []benchItem) {
		w := benchActual(b, items)
		each(b, items, func(it *benchItem) { toggleDetachRequest(b, w, it) })
	})
}

// toggleDetachRequest is two writes that change something, whatever was before.
func toggleDetachRequest(b *testing.B, w *ActualStateOfWorld, it *benchItem) {
	if _, err := w.SetDetachRequestTime(it.volume, it.node); err != nil {
		b.Error(err)
	}
	w.ResetDetachRequestTime(it.volume, it.node)
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
