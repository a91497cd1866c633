package benchmark

import (
	"math/rand/v2"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	adcache "k8s.io/kubernetes/pkg/controller/volume/attachdetach/cache"

	"github.com/stateofworld/stateofworld/cache"
	"github.com/stateofworld/stateofworld/reconciler/benchmark/internal/fleet"
)

// Each side with everything wished and attached, and no reconciler.

func filledOurs(b *testing.B, n int) (*ours, *fleet.Fleet) {
	f, _ := fleetOf(n)
	o := newOurs(b)
	o.fill(b, f)
	o.actual.GetVolumesToReportAttached()
	return o, f
}

func filledKube(b *testing.B, n int) (*kube, *fleet.Fleet) {
	f, _ := fleetOf(n)
	k := newKube(b, nil, false)
	k.fill(b, f)
	k.actual.GetVolumesToReportAttached(noLog)
	return k, f
}

func filledStateDB(b *testing.B, n int) (*stateDB, *fleet.Fleet) {
	f, _ := fleetOf(n)
	s := newStateDB(b, false)
	s.insert(b, f.Attachments)
	return s, f
}

func filledFloor(n int) (*floor, *fleet.Fleet) {
	f, _ := fleetOf(n)
	return newFloor(f), f
}

// Is it attached? Pairs are asked for in random order, with the caller's copy of their names.
func BenchmarkGetAttachState(b *testing.B) {
	compare(b, "n", allSizes,
		side{name: "ours", run: func(b *testing.B, n int) {
			o, f := filledOurs(b, n)
			each(b, f.Shuffled(), func(a *fleet.Attachment) {
				if o.actual.GetAttachState(a.Volume, a.Node) != cache.Attached {
					b.Fatal("lost")
				}
			})
		}},
		side{name: "kubernetes", run: func(b *testing.B, n int) {
			k, f := filledKube(b, n)
			each(b, f.Shuffled(), func(a *fleet.Attachment) {
				if k.actual.GetAttachState(a.Volume, a.Node) != adcache.AttachStateAttached {
					b.Fatal("lost")
				}
			})
		}},
		// The key is put together for each question, as the API wants it.
		side{name: "statedb", run: func(b *testing.B, n int) {
			s, f := filledStateDB(b, n)
			each(b, f.Shuffled(), func(a *fleet.Attachment) {
				if _, _, ok := s.table.Get(s.db.ReadTxn(), pairIndex.Query(cache.Pair{Volume: a.Volume, Node: a.Node})); !ok {
					b.Fatal("lost")
				}
			})
		}},
		side{name: "floor", run: func(b *testing.B, n int) {
			l, f := filledFloor(n)
			each(b, f.Shuffled(), func(a *fleet.Attachment) {
				if l.get(a.Volume, a.Node) != cache.Attached {
					b.Fatal("lost")
				}
			})
		}},
	)
}

// Is it wished? StateDB and the floor have one table only, so it is the question of GetAttachState again.
func BenchmarkVolumeExists(b *testing.B) {
	compare(b, "n", allSizes,
		side{name: "ours", run: func(b *testing.B, n int) {
			o, f := filledOurs(b, n)
			each(b, f.Shuffled(), func(a *fleet.Attachment) {
				if !o.desired.VolumeExists(a.Volume, a.Node) {
					b.Fatal("lost")
				}
			})
		}},
		side{name: "kubernetes", run: func(b *testing.B, n int) {
			k, f := filledKube(b, n)
			each(b, f.Shuffled(), func(a *fleet.Attachment) {
				if !k.desired.VolumeExists(a.Volume, a.Node) {
					b.Fatal("lost")
				}
			})
		}},
		side{name: "floor", run: func(b *testing.B, n int) {
			l, f := filledFloor(n)
			each(b, f.Shuffled(), func(a *fleet.Attachment) {
				if l.get(a.Volume, a.Node) != cache.Attached {
					b.Fatal("lost")
				}
			})
		}},
	)
}

func shuffledNodes(f *fleet.Fleet) []types.NodeName {
	nodes := append([]types.NodeName(nil), f.Nodes...)
	rand.New(rand.NewPCG(3, 4)).Shuffle(len(nodes), func(i, j int) { nodes[i], nodes[j] = nodes[j], nodes[i] })
	return nodes
}

// The attached volumes of one node. Ours are sorted by name; Kubernetes' are in no order.
func BenchmarkNodeAttachments(b *testing.B) {
	compare(b, "n", allSizes,
		side{name: "ours", run: func(b *testing.B, n int) {
			o, f := filledOurs(b, n)
			each(b, shuffledNodes(f), func(node types.NodeName) {
				if len(o.actual.GetAttachedVolumesForNode(node)) == 0 {
					b.Fatal("lost")
				}
			})
		}},
		side{name: "kubernetes", run: func(b *testing.B, n int) {
			k, f := filledKube(b, n)
			each(b, shuffledNodes(f), func(node types.NodeName) {
				if len(k.actual.GetAttachedVolumesForNode(node)) == 0 {
					b.Fatal("lost")
				}
			})
		}},
		side{name: "statedb", run: func(b *testing.B, n int) {
			s, f := filledStateDB(b, n)
			each(b, shuffledNodes(f), func(node types.NodeName) {
				found := 0
				for range s.table.List(s.db.ReadTxn(), nodeIndex.Query(node)) {
					found++
				}
				if found == 0 {
					b.Fatal("lost")
				}
			})
		}},
		// Thirty look-ups.
		side{name: "floor", run: func(b *testing.B, n int) {
			l, f := filledFloor(n)
			lists := f.InUse()
			each(b, shuffledNodes(f), func(node types.NodeName) {
				for _, v := range lists[node] {
					if l.get(v, node) != cache.Attached {
						b.Fatal("lost")
					}
				}
			})
		}},
	)
}

// One node's report changed: which reports are to be written?
func BenchmarkReportsOneNodeChanged(b *testing.B) {
	compare(b, "n", allSizes,
		side{name: "ours", run: func(b *testing.B, n int) {
			o, f := filledOurs(b, n)
			each(b, shuffledNodes(f), func(node types.NodeName) {
				o.actual.SetNodeStatusUpdateNeeded(node)
				if len(o.actual.GetVolumesToReportAttached()) != 1 {
					b.Fatal("lost")
				}
			})
		}},
		side{name: "kubernetes", run: func(b *testing.B, n int) {
			k, f := filledKube(b, n)
			each(b, shuffledNodes(f), func(node types.NodeName) {
				k.actual.SetNodeStatusUpdateNeeded(noLog, node)
				if len(k.actual.GetVolumesToReportAttached(noLog)) != 1 {
					b.Fatal("lost")
				}
			})
		}},
	)
}

// What is the same as before: each heartbeat of a node brings its list of thirty.
func BenchmarkInUseListSame(b *testing.B) {
	inUseList(b, func(list []v1.UniqueVolumeName, _ int) []v1.UniqueVolumeName { return list })
}

// Each list has one volume less or one more than the one before.
func BenchmarkInUseListChanged(b *testing.B) {
	inUseList(b, func(list []v1.UniqueVolumeName, round int) []v1.UniqueVolumeName { return list[:len(list)-round%2] })
}

func inUseList(b *testing.B, change func(list []v1.UniqueVolumeName, round int) []v1.UniqueVolumeName) {
	run := func(b *testing.B, f *fleet.Fleet, set func([]v1.UniqueVolumeName, types.NodeName)) {
		lists, nodes := f.InUse(), shuffledNodes(f)
		for _, node := range nodes {
			set(change(lists[node], 1), node)
		}
		b.ReportAllocs()
		i, round := 0, 0
		for b.Loop() {
			node := nodes[i]
			set(change(lists[node], round), node)
			if i++; i == len(nodes) {
				i = 0
				round++
			}
		}
	}
	compare(b, "n", allSizes,
		side{name: "ours", run: func(b *testing.B, n int) {
			o, f := filledOurs(b, n)
			run(b, f, o.actual.SetVolumesMountedByNode)
		}},
		side{name: "kubernetes", run: func(b *testing.B, n int) {
			k, f := filledKube(b, n)
			run(b, f, func(list []v1.UniqueVolumeName, node types.NodeName) {
				k.actual.SetVolumesMountedByNode(noLog, list, node)
			})
		}},
	)
}

// Everything that is attached. Kubernetes returns a copy under the lock; the others iterate.
func BenchmarkReadAllAttachments(b *testing.B) {
	compare(b, "n", allSizes,
		side{name: "ours", run: func(b *testing.B, n int) {
			o, _ := filledOurs(b, n)
			readAll(b, n, func() (found int) {
				for range o.actual.AttachedVolumes() {
					found++
				}
				return found
			})
		}},
		side{name: "kubernetes", run: func(b *testing.B, n int) {
			k, _ := filledKube(b, n)
			readAll(b, n, func() int { return len(k.actual.GetAttachedVolumes()) })
		}},
		side{name: "statedb", run: func(b *testing.B, n int) {
			s, _ := filledStateDB(b, n)
			readAll(b, n, func() (found int) {
				for range s.table.All(s.db.ReadTxn()) {
					found++
				}
				return found
			})
		}},
		side{name: "floor", run: func(b *testing.B, n int) {
			l, _ := filledFloor(n)
			readAll(b, n, func() (found int) {
				l.mu.RLock()
				defer l.mu.RUnlock()
				for range l.pairs {
					found++
				}
				return found
			})
		}},
	)
}

// Everything that is wished, each with its pods in a slice. Kubernetes returns a copy under the lock; ours is an iterator.
func BenchmarkReadAllWishes(b *testing.B) {
	compare(b, "n", allSizes,
		side{name: "ours", run: func(b *testing.B, n int) {
			o, _ := filledOurs(b, n)
			readAll(b, n, func() (found int) {
				for range o.desired.VolumesToAttach() {
					found++
				}
				return found
			})
		}},
		side{name: "kubernetes", run: func(b *testing.B, n int) {
			k, _ := filledKube(b, n)
			readAll(b, n, func() int { return len(k.desired.GetVolumesToAttach()) })
		}},
	)
}

func readAll(b *testing.B, n int, read func() (found int)) {
	b.ReportAllocs()
	allocs := testing.AllocsPerRun(2, func() { read() })
	for b.Loop() {
		if read() != n {
			b.Fatal("lost")
		}
	}
	b.ReportMetric(b.Elapsed().Seconds()*1e3/float64(b.N), "ms/read")
	b.ReportMetric(allocs/float64(n), "allocs/element")
}
