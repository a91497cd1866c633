package benchmark

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stateofworld/stateofworld/cache"
	"github.com/stateofworld/stateofworld/reconciler/benchmark/internal/fleet"
)

// inBatches measures op on one attachment after another, and has undo, unmeasured, take each batch back: the world has n
// attachments, give or take a batch.
func inBatches(b *testing.B, items []*fleet.Attachment, op, undo func(*fleet.Attachment)) {
	b.ReportAllocs()
	batch := min(500, len(items))
	first, i := 0, 0
	for b.Loop() {
		if i == batch {
			b.StopTimer()
			for _, a := range items[first : first+batch] {
				undo(a)
			}
			if first += batch; first+batch > len(items) {
				first = 0
			}
			i = 0
			b.StartTimer()
		}
		op(items[first+i])
		i++
	}
}

// A volume was attached. Both worlds here and there keep the report of the node and what it has in use; ours also keeps the
// attachments of the node.
func BenchmarkAddAttachment(b *testing.B) {
	compare(b, "n", allSizes, addOrDelete(true)...)
}

// A volume was detached.
func BenchmarkDeleteAttachment(b *testing.B) {
	compare(b, "n", allSizes, addOrDelete(false)...)
}

func addOrDelete(adds bool) []side {
	measure := func(b *testing.B, f *fleet.Fleet, add, del func(*fleet.Attachment)) {
		items := f.Shuffled()
		if adds {
			items = items[:len(items)/2] // that are not there at first
			for _, a := range items {
				del(a)
			}
			inBatches(b, items, add, del)
			return
		}
		inBatches(b, items, del, add)
	}
	return []side{
		{name: "ours", run: func(b *testing.B, n int) {
			o, f := filledOurs(b, n)
			measure(b, f,
				func(a *fleet.Attachment) { o.markAttached(b, a) },
				func(a *fleet.Attachment) { o.actual.MarkVolumeAsDetached(a.Volume, a.Node) })
		}},
		{name: "kubernetes", run: func(b *testing.B, n int) {
			k, f := filledKube(b, n)
			measure(b, f,
				func(a *fleet.Attachment) { k.markAttached(b, a) },
				func(a *fleet.Attachment) { k.actual.MarkVolumeAsDetached(a.Volume, a.Node) })
		}},
		// A hundred rows in a transaction; alone, a row costs several times as much.
		{name: "statedb", run: func(b *testing.B, n int) {
			s, f := filledStateDB(b, n)
			txn, writes := s.db.WriteTxn(s.table), 0
			next := func(err error) {
				if err != nil {
					b.Fatal(err)
				}
				if writes++; writes == 100 {
					txn.Commit()
					txn, writes = s.db.WriteTxn(s.table), 0
				}
			}
			measure(b, f,
				func(a *fleet.Attachment) { _, _, err := s.table.Insert(txn, newRow(a)); next(err) },
				func(a *fleet.Attachment) {
					_, _, err := s.table.Delete(txn, &row{volume: a.Volume, node: a.Node})
					next(err)
				})
			txn.Commit()
		}},
		{name: "floor", run: func(b *testing.B, n int) {
			l, f := filledFloor(n)
			measure(b, f,
				func(a *fleet.Attachment) { l.set(a.Volume, a.Node, cache.Attached) },
				func(a *fleet.Attachment) { l.delete(a.Volume, a.Node) })
		}},
	}
}

// Nine reads for each write, from all cores. A write requests or drops the request of a detach: something changes each time.
func BenchmarkParallelMix(b *testing.B) {
	mix := func(b *testing.B, f *fleet.Fleet, read func(*fleet.Attachment), write func(a *fleet.Attachment, request bool)) {
		items := f.Shuffled()
		const perRound = 20_000
		var worker atomic.Int64
		ops := 0
		for b.Loop() {
			var all sync.WaitGroup
			for range runtime.GOMAXPROCS(0) {
				all.Go(func() {
					i := int(worker.Add(1)) * 7919
					for k := range perRound {
						a := items[(i+k)%len(items)]
						switch k % 20 {
						case 0:
							write(a, true)
						case 1: // of the same attachment: what was requested is dropped
							write(items[(i+k-1)%len(items)], false)
						default:
							read(a)
						}
					}
				})
			}
			all.Wait()
			ops += perRound * runtime.GOMAXPROCS(0)
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(ops), "ns/mixed")
	}
	compare(b, "n", allSizes,
		side{name: "ours", run: func(b *testing.B, n int) {
			o, f := filledOurs(b, n)
			mix(b, f, func(a *fleet.Attachment) { o.actual.GetAttachState(a.Volume, a.Node) }, oursWrite(o))
		}},
		side{name: "kubernetes", run: func(b *testing.B, n int) {
			k, f := filledKube(b, n)
			mix(b, f, func(a *fleet.Attachment) { k.actual.GetAttachState(a.Volume, a.Node) }, kubeWrite(k))
		}},
		side{name: "floor", run: func(b *testing.B, n int) {
			l, f := filledFloor(n)
			mix(b, f, func(a *fleet.Attachment) { l.get(a.Volume, a.Node) },
				func(a *fleet.Attachment, request bool) { l.set(a.Volume, a.Node, cache.Attached) })
		}},
	)
}

func oursWrite(o *ours) func(*fleet.Attachment, bool) {
	return func(a *fleet.Attachment, request bool) {
		if request {
			_, _ = o.actual.SetDetachRequestTime(a.Volume, a.Node)
		} else {
			o.actual.ResetDetachRequestTime(a.Volume, a.Node)
		}
	}
}

func kubeWrite(k *kube) func(*fleet.Attachment, bool) {
	return func(a *fleet.Attachment, request bool) {
		if request {
			_, _ = k.actual.SetDetachRequestTime(noLog, a.Volume, a.Node)
		} else {
			k.actual.ResetDetachRequestTime(noLog, a.Volume, a.Node)
		}
	}
}

// How long does one write take while somebody reads everything, again and again? StateDB's readers have a snapshot, which no
// writer waits for; its write is a transaction of one row.
func BenchmarkWriteDuringFullRead(b *testing.B) {
	measure := func(b *testing.B, f *fleet.Fleet, samples int, read func(), write func(a *fleet.Attachment, i int)) {
		items := f.Shuffled()
		var stop atomic.Bool
		var reader sync.WaitGroup
		reader.Go(func() {
			for !stop.Load() {
				read()
			}
		})
		defer reader.Wait()
		defer stop.Store(true)
		once(b, func() {
			took := make([]time.Duration, 0, samples)
			for i := range samples {
				a := items[i/2%len(items)]
				start := time.Now()
				write(a, i)
				took = append(took, time.Since(start))
			}
			reportPercentiles(b, took)
		})
	}
	const many, few = 4000, 30
	compare(b, "n", allSizes,
		side{name: "ours", run: func(b *testing.B, n int) {
			o, f := filledOurs(b, n)
			write := oursWrite(o)
			measure(b, f, many, func() {
				for range o.actual.AttachedVolumes() {
				}
			}, func(a *fleet.Attachment, i int) { write(a, i%2 == 0) })
		}},
		side{name: "kubernetes", run: func(b *testing.B, n int) { // a sample takes as long as a read of everything
			k, f := filledKube(b, n)
			write := kubeWrite(k)
			samples := many
			if n > 1000 {
				samples = few
			}
			measure(b, f, samples, func() { k.actual.GetAttachedVolumes() }, func(a *fleet.Attachment, i int) { write(a, i%2 == 0) })
		}},
		side{name: "statedb", run: func(b *testing.B, n int) {
			s, f := filledStateDB(b, n)
			measure(b, f, many, func() {
				for range s.table.All(s.db.ReadTxn()) {
				}
			}, func(a *fleet.Attachment, _ int) {
				txn := s.db.WriteTxn(s.table)
				if _, _, err := s.table.Insert(txn, newRow(a)); err != nil {
					b.Error(err)
				}
				txn.Commit()
			})
		}},
	)
}
