package benchmark

import (
	"context"
	"math/rand/v2"
	"runtime"
	"runtime/debug"
	"sync"
	"testing"
	"time"

	"github.com/stateofworld/stateofworld/cache"
	"github.com/stateofworld/stateofworld/reconciler/benchmark/internal/fleet"
)

// A pass over a world in which nothing is to be done. Ours looks at what is due; nothing is.
func BenchmarkIdlePass(b *testing.B) {
	compare(b, "n", allSizes,
		side{name: "ours", run: func(b *testing.B, n int) {
			f, _ := fleetOf(n)
			api := newNodeAPI(b, f)
			o := oursConverged(b, f, n, checks(api), reports(api))
			defer o.stop()
			before := o.rc.Stats().Evaluations
			b.ReportAllocs()
			for b.Loop() {
				o.rc.Step(b.Context())
			}
			b.ReportMetric(float64(o.rc.Stats().Evaluations-before), "evaluations")
		}},
		side{name: "kubernetes", run: func(b *testing.B, n int) {
			k := filledKubeWithAPI(b, n)
			b.ReportAllocs()
			for b.Loop() {
				k.pass()
			}
		}},
	)
}

// filledKubeWithAPI returns Kubernetes' controller with everything attached and every report written.
func filledKubeWithAPI(b *testing.B, n int) *kube {
	f, _ := fleetOf(n)
	k := newKube(b, newNodeAPI(b, f), true)
	k.fill(b, f)
	k.pass()
	return k
}

// The processor time of a controller that has nothing to do, in percent of a core.
func BenchmarkIdleCPU(b *testing.B) {
	measure := func(b *testing.B) {
		once(b, func() {
			debug.FreeOSMemory() // collects, and gives back at once what would be given back in the background
			time.Sleep(500 * time.Millisecond)
			start, cpu := time.Now(), cpuTime()
			time.Sleep(time.Second)
			b.ReportMetric(100*(cpuTime()-cpu).Seconds()/time.Since(start).Seconds(), "%core")
		})
	}
	compare(b, "n", allSizes,
		side{name: "ours", run: func(b *testing.B, n int) {
			f, _ := fleetOf(n)
			api := newNodeAPI(b, f)
			o := oursConverged(b, f, n, checks(api), reports(api))
			defer o.stop()
			measure(b)
		}},
		side{name: "kubernetes", run: func(b *testing.B, n int) {
			k := filledKubeWithAPI(b, n)
			k.run(b)
			defer k.stop()
			measure(b)
		}},
		// A process that sleeps.
		side{name: "floor", run: func(b *testing.B, _ int) { measure(b) }},
	)
}

// From the wish to the driver's call, with nothing else to do. The pauses between wishes are long enough for goroutines and
// processors to go to sleep. On Kubernetes' side a wish comes at any moment of the period of 100 ms.
func BenchmarkWishToDriverCall(b *testing.B) {
	measure := func(b *testing.B, d *driver, wishes []fleet.Attachment, pause func(), wish func(*fleet.Attachment)) {
		once(b, func() {
			called := make(chan time.Time, 1)
			d.onAttach(func(context.Context, string) { called <- time.Now() })
			took := make([]time.Duration, 0, len(wishes))
			for i := range wishes {
				pause()
				start := time.Now()
				wish(&wishes[i])
				took = append(took, waitChannel(b, called).Sub(start))
			}
			reportPercentiles(b, took)
		})
	}
	short := func() { time.Sleep(500 * time.Microsecond) }
	compare(b, "n", allSizes,
		side{name: "ours", run: func(b *testing.B, n int) {
			_, f := fleetOf(n)
			o := oursConverged(b, f, n)
			defer o.stop()
			measure(b, o.driver, f.Attachments[n:n+1000], short, func(a *fleet.Attachment) { o.addPod(b, a) })
		}},
		side{name: "kubernetes", run: func(b *testing.B, n int) {
			f, more := fleetOf(n)
			k := newKube(b, nil, false)
			k.fill(b, f)
			k.addNodes(more)
			k.run(b)
			defer k.stop()
			random := rand.New(rand.NewPCG(5, 6))
			samples := 20
			if n >= 100_000 {
				samples = 6
			}
			measure(b, k.driver, more.Attachments[n:n+samples],
				func() { time.Sleep(time.Duration(random.Int64N(int64(kubePeriod)))) },
				func(a *fleet.Attachment) { k.addPod(b, a) })
		}},
		// A transaction of one row.
		side{name: "statedb", run: func(b *testing.B, n int) {
			_, f := fleetOf(n)
			s := stateDBConverged(b, f, n)
			defer s.stop()
			measure(b, s.driver, f.Attachments[n:n+1000], short, func(a *fleet.Attachment) { s.insert(b, []fleet.Attachment{*a}) })
		}},
	)
}

// One pod goes, its volume is detached; it comes again, the volume is attached. Both sides look at the API before the detach, and
// neither writes the status of the node. The figure is for one of the two changes.
func BenchmarkOneChangedPod(b *testing.B) {
	measure := func(b *testing.B, f *fleet.Fleet, change func(*fleet.Attachment)) {
		cpu := cpuTime()
		each(b, f.Shuffled(), change)
		b.ReportMetric(float64((cpuTime()-cpu).Nanoseconds())/1e3/float64(2*b.N), "cpu-us/change")
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/1e3/float64(2*b.N), "us/change")
	}
	compare(b, "n", allSizes,
		side{name: "ours", run: func(b *testing.B, n int) {
			f, _ := fleetOf(n)
			o := oursConverged(b, f, n, checks(newNodeAPI(b, f)))
			defer o.stop()
			written := make(chan struct{}, 1)
			defer o.actual.Subscribe(func(cache.Pair) { signal(written) })()
			late := time.After(callLimit)
			until := func(a *fleet.Attachment, state cache.AttachState) {
				for o.actual.GetAttachState(a.Volume, a.Node) != state {
					waitSignal(b, written, late)
				}
			}
			before, changed := o.rc.Stats().Evaluations, 0
			measure(b, f, func(a *fleet.Attachment) {
				o.deletePod(a)
				until(a, cache.Detached)
				o.addPod(b, a)
				until(a, cache.Attached)
				changed += 2
			})
			b.ReportMetric(float64(o.rc.Stats().Evaluations-before)/float64(changed), "evaluations/change")
		}},
		side{name: "kubernetes", run: func(b *testing.B, n int) {
			f, _ := fleetOf(n)
			k := newKube(b, newNodeAPI(b, f), false)
			k.fill(b, f)
			late := time.After(callLimit)
			measure(b, f, func(a *fleet.Attachment) {
				k.actual.SetVolumesMountedByNode(noLog, nil, a.Node) // an attached volume counts as in use until then
				detached, attached := k.actual.detached.Load(), k.actual.attached.Load()
				k.deletePod(a)
				k.pass()
				for k.actual.detached.Load() == detached {
					waitSignal(b, k.actual.written, late)
				}
				k.addPod(b, a)
				k.pass()
				for k.actual.attached.Load() == attached {
					waitSignal(b, k.actual.written, late)
				}
			})
		}},
	)
}

// From n wishes that nothing was done about to n attached volumes, with a driver that answers at once. Nobody writes reports.
func BenchmarkConverge(b *testing.B) {
	measure := func(b *testing.B, n int, prepare func(f *fleet.Fleet) (converge, stop func())) {
		f, _ := fleetOf(n) // the largest is shared by the sides, and dropped afterwards
		b.ReportAllocs()
		var cpu time.Duration
		for b.Loop() {
			b.StopTimer()
			converge, stop := prepare(f)
			if n > 1000 {
				runtime.GC()
			}
			before := cpuTime()
			b.StartTimer()
			converge()
			b.StopTimer()
			cpu += cpuTime() - before
			stop()
			b.StartTimer()
		}
		perAttach := float64(b.Elapsed().Nanoseconds()) / float64(b.N) / float64(n)
		b.ReportMetric(perAttach, "ns/attach")
		b.ReportMetric(float64(cpu.Nanoseconds())/float64(b.N)/float64(n), "cpu-ns/attach")
		b.ReportMetric(1e9/perAttach, "attaches/s")
	}
	const largest = 300_000
	defer forget(largest)
	compare(b, "n", []int{1_000, 30_000, 100_000, largest},
		side{name: "ours", run: func(b *testing.B, n int) {
			measure(b, n, func(f *fleet.Fleet) (converge, stop func()) {
				o := newOurs(b)
				o.addNodes(f)
				o.addPods(b, f.Attachments)
				return func() {
					o.run(b)
					waitFor(b, callLimit, func() bool { return o.actual.Sizes().Pairs == n })
				}, func() { o.stop() }
			})
		}},
		side{name: "kubernetes", sizes: []int{1_000, 30_000, 100_000}, run: func(b *testing.B, n int) {
			measure(b, n, func(f *fleet.Fleet) (converge, stop func()) {
				k := newKube(b, nil, false)
				k.addNodes(f)
				k.addPods(b, f.Attachments)
				return func() {
					k.run(b)
					waitFor(b, callLimit, func() bool { return k.actual.attached.Load() == int64(n) })
				}, func() { k.stop() }
			})
		}},
		// Its reconciler runs while the rows are inserted, as it has to, so that is measured too.
		side{name: "statedb", run: func(b *testing.B, n int) {
			measure(b, n, func(f *fleet.Fleet) (converge, stop func()) {
				s := newStateDB(b, true)
				return func() {
					s.insert(b, f.Attachments)
					s.done(b, &f.Attachments[n-1])
				}, func() { s.stop() }
			})
		}},
	)
}

// A thousand volumes are detached while each write of a node's status takes 5 ms, and must come before the detaches from it.
func BenchmarkDetachWithSlowReports(b *testing.B) {
	const takes = 5 * time.Millisecond
	compare(b, "n", []int{1_000},
		side{name: "ours", run: func(b *testing.B, n int) {
			f, _ := fleetOf(n)
			api := newNodeAPI(b, f)
			o := oursConverged(b, f, n, checks(api), reports(api))
			defer o.stop()
			waitFor(b, callLimit, o.rc.Reports().Idle)
			api.takes.Store(int64(takes))
			once(b, func() {
				start := time.Now()
				for i := range f.Attachments {
					o.deletePod(&f.Attachments[i])
				}
				waitFor(b, callLimit, func() bool { return o.actual.Sizes().Pairs == 0 })
				b.ReportMetric(time.Since(start).Seconds()*1e3, "ms/all")
			})
		}},
		side{name: "kubernetes", run: func(b *testing.B, n int) {
			f, _ := fleetOf(n)
			api := newNodeAPI(b, f)
			k := newKube(b, api, true)
			k.fill(b, f)
			k.pass()
			k.addNodes(f) // nothing is in use
			api.takes.Store(int64(takes))
			once(b, func() {
				start := time.Now()
				for i := range f.Attachments {
					k.deletePod(&f.Attachments[i])
				}
				k.run(b)
				waitFor(b, callLimit, func() bool { return k.actual.detached.Load() == int64(n) })
				b.ReportMetric(time.Since(start).Seconds()*1e3, "ms/all")
			})
			k.stop()
		}},
	)
}

// Operations that take 10 ms each, all wished at once, without caps. StateDB gets a tenth of them, as it runs one after another.
func BenchmarkSlowOperations(b *testing.B) {
	slow := func(context.Context, string) { time.Sleep(10 * time.Millisecond) }
	measure := func(b *testing.B, n int, work func()) {
		once(b, func() {
			start := time.Now()
			work()
			b.ReportMetric(float64(n)/time.Since(start).Seconds(), "ops/s")
		})
	}
	compare(b, "n", []int{1_000},
		side{name: "ours", run: func(b *testing.B, n int) {
			f, _ := fleetOf(n)
			o := newOurs(b)
			o.driver.onAttach(slow)
			o.addNodes(f)
			o.addPods(b, f.Attachments)
			measure(b, n, func() {
				o.run(b)
				waitFor(b, callLimit, func() bool { return o.actual.Sizes().Pairs == n })
			})
			o.stop()
		}},
		side{name: "kubernetes", run: func(b *testing.B, n int) {
			f, _ := fleetOf(n)
			k := newKube(b, nil, false)
			k.driver.onAttach(slow)
			k.addNodes(f)
			k.addPods(b, f.Attachments)
			measure(b, n, func() {
				k.run(b)
				waitFor(b, callLimit, func() bool { return k.actual.attached.Load() == int64(n) })
			})
			k.stop()
		}},
		side{name: "statedb", run: func(b *testing.B, n int) {
			f, _ := fleetOf(n)
			s := newStateDB(b, true)
			defer s.stop()
			s.driver.onAttach(slow)
			measure(b, n/10, func() {
				s.insert(b, f.Attachments[:n/10])
				s.done(b, &f.Attachments[n/10-1])
			})
		}},
	)
}

// From the wish to the driver's call while the attach of another volume does not return, for 200 ms at most.
func BenchmarkStuckOperation(b *testing.B) {
	measure := func(b *testing.B, d *driver, wishes []fleet.Attachment, wish func(*fleet.Attachment)) {
		once(b, func() {
			var took []time.Duration
			for i := 0; i+1 < len(wishes); i += 2 {
				stuckName := wishes[i].Spec.PersistentVolume.Name
				stuck, called, free := make(chan struct{}), make(chan time.Time, 1), make(chan struct{})
				var hooks sync.WaitGroup
				hooks.Add(2)
				d.onAttach(func(_ context.Context, volume string) {
					defer hooks.Done()
					if volume != stuckName {
						called <- time.Now()
						return
					}
					close(stuck)
					select {
					case <-free:
					case <-time.After(200 * time.Millisecond):
					}
				})
				wish(&wishes[i])
				waitChannel(b, stuck)
				start := time.Now()
				wish(&wishes[i+1])
				took = append(took, waitChannel(b, called).Sub(start))
				close(free)
				hooks.Wait()
			}
			reportPercentiles(b, took)
		})
	}
	compare(b, "n", []int{1_000},
		side{name: "ours", run: func(b *testing.B, n int) {
			_, f := fleetOf(n)
			o := oursConverged(b, f, n)
			defer o.stop()
			measure(b, o.driver, f.Attachments[n:n+200], func(a *fleet.Attachment) { o.addPod(b, a) })
		}},
		side{name: "kubernetes", run: func(b *testing.B, n int) {
			f, more := fleetOf(n)
			k := newKube(b, nil, false)
			k.fill(b, f)
			k.addNodes(more)
			k.run(b)
			defer k.stop()
			measure(b, k.driver, more.Attachments[n:n+20], func(a *fleet.Attachment) { k.addPod(b, a) })
		}},
		side{name: "statedb", run: func(b *testing.B, n int) {
			_, f := fleetOf(n)
			s := stateDBConverged(b, f, n)
			defer s.stop()
			measure(b, s.driver, f.Attachments[n:n+20], func(a *fleet.Attachment) { s.insert(b, []fleet.Attachment{*a}) })
		}},
	)
}
