package benchmark

import (
	"runtime"
	"testing"
	"time"

	"github.com/stateofworld/stateofworld/reconciler/benchmark/internal/fleet"
)

// What is kept for each attachment when all are attached and in use. The objects and strings of the caller are not counted; names
// that the worlds make are. Ours is both worlds, all their indexes, and a reconciler that has attached everything; Kubernetes' is
// its two caches; StateDB's a table with two indexes, which holds less.
func BenchmarkMemory(b *testing.B) {
	measure := func(b *testing.B, n int, build func() (keep any)) {
		once(b, func() {
			before := heapBytes()
			keep := build()
			b.ReportMetric((heapBytes()-before)/float64(n), "B/attachment")
			runtime.KeepAlive(keep)
		})
	}
	compare(b, "n", allSizes,
		side{name: "ours", run: func(b *testing.B, n int) {
			f, _ := fleetOf(n)
			inUse := f.InUse()
			measure(b, n, func() any {
				o := newOurs(b)
				o.addNodes(f)
				o.addPods(b, f.Attachments)
				o.run(b)
				waitFor(b, time.Minute, func() bool { return o.quiet(n) })
				for _, node := range f.Nodes {
					o.actual.SetVolumesMountedByNode(inUse[node], node)
				}
				waitFor(b, time.Minute, func() bool { return o.quiet(n) })
				return o
			})
		}},
		side{name: "kubernetes", run: func(b *testing.B, n int) {
			f, _ := fleetOf(n)
			inUse := f.InUse()
			measure(b, n, func() any {
				k := newKube(b, nil, false)
				k.addNodes(f)
				k.addPods(b, f.Attachments)
				for _, v := range k.desired.GetVolumesToAttach() { // the way names travel: they are made in the desired world
					if err := k.actual.MarkVolumeAsAttached(noLog, v.VolumeName, v.VolumeSpec, v.NodeName, fleet.DevicePath); err != nil {
						b.Fatal(err)
					}
				}
				for _, node := range f.Nodes {
					k.actual.SetVolumesMountedByNode(noLog, inUse[node], node)
				}
				return k
			})
		}},
		side{name: "statedb", run: func(b *testing.B, n int) {
			f, _ := fleetOf(n)
			measure(b, n, func() any {
				s := newStateDB(b, false)
				s.insert(b, f.Attachments)
				return s
			})
		}},
		side{name: "floor", run: func(b *testing.B, n int) {
			f, _ := fleetOf(n)
			measure(b, n, func() any { return newFloor(f) })
		}},
	)
}
