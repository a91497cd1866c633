package benchmark

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/volume/util/nestedpendingoperations"
	volumetypes "k8s.io/kubernetes/pkg/volume/util/types"

	"github.com/stateofworld/stateofworld/executor"
)

var errFailed = errors.New("failed")

// opVolumes are the volumes of m operations that are known, and of as many that are not.
func opVolumes(m int) (known, unknown []v1.UniqueVolumeName) {
	for i := range 2 * m {
		name := v1.UniqueVolumeName(fmt.Sprintf("kubernetes.io/csi/disk.csi.example.com^vol-0a1b2c3d4e%07d", i))
		if i < m {
			known = append(known, name)
		} else {
			unknown = append(unknown, name)
		}
	}
	return known, unknown
}

// knownOurs returns operations of which m are known: half of them run, half have failed and are in back-off.
func knownOurs(b testing.TB, m int) (o *executor.Operations, known, unknown []v1.UniqueVolumeName) {
	b.Helper()
	o, err := executor.NewOperations(executor.Options{Backoff: executor.Backoff{Base: time.Hour, Cap: time.Hour}})
	if err != nil {
		b.Fatal(err)
	}
	release := make(chan struct{})
	known, unknown = opVolumes(m)
	var failing sync.WaitGroup
	for i, volume := range known {
		op := executor.Operation{Key: executor.Key{Volume: volume}, Name: "volume_attach", Run: func(context.Context) error { <-release; return nil }}
		if i%2 == 1 {
			failing.Add(1)
			op.Run = func(context.Context) error { return errFailed }
			op.Done = func(executor.Result) { failing.Done() }
		}
		if err := o.Start(context.Background(), op); err != nil {
			b.Fatal(err)
		}
	}
	failing.Wait()
	b.Cleanup(func() {
		close(release)
		_ = o.Shutdown(context.Background())
	})
	return o, known, unknown
}

func knownKube(b testing.TB, m int) (o nestedpendingoperations.NestedPendingOperations, known, unknown []v1.UniqueVolumeName) {
	b.Helper()
	o = nestedpendingoperations.NewNestedPendingOperations(true)
	release := make(chan struct{})
	known, unknown = opVolumes(m)
	for i, volume := range known {
		op := kubeOperation(func() error { <-release; return nil })
		if i%2 == 1 {
			op = kubeOperation(func() error { return errFailed })
		}
		if err := o.Run(volume, "", "", op); err != nil {
			b.Fatal(err)
		}
	}
	for i := 1; i < m; i += 2 { // until it has failed
		spinFor(b, callLimit, func() bool { return !o.IsOperationPending(known[i], "", "") })
	}
	b.Cleanup(func() { // ending costs m² as well, and should be over before something else is measured; Wait waits for what failed, too
		close(release)
		for i := 0; i < m; i += 2 {
			spinFor(b, callLimit, func() bool { return !o.IsOperationPending(known[i], "", "") })
		}
	})
	return o, known, unknown
}

func kubeOperation(run func() error) volumetypes.GeneratedOperations {
	return volumetypes.GeneratedOperations{OperationName: "volume_attach", OperationFunc: func() volumetypes.OperationContext {
		err := run()
		return volumetypes.NewOperationContext(err, err, false)
	}}
}

// Does an operation on the volume run? Half of the questions are about volumes of which nothing is known, as nearly all are that
// a reconciler asks.
func BenchmarkIsOperationPending(b *testing.B) {
	ask := func(b *testing.B, known, unknown []v1.UniqueVolumeName, pending func(v1.UniqueVolumeName) bool) {
		b.ReportAllocs()
		i := 0
		for b.Loop() {
			if pending(known[i]) != (i%2 == 0) || pending(unknown[i]) {
				b.Fatal("wrong answer")
			}
			if i += 7; i >= len(known) { // 7 is coprime to all sizes
				i -= len(known)
			}
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(2*b.N), "ns/question")
	}
	compare(b, "m", allOps,
		side{name: "ours", run: func(b *testing.B, m int) {
			o, known, unknown := knownOurs(b, m)
			ask(b, known, unknown, func(v v1.UniqueVolumeName) bool { return o.IsOperationPending(executor.Key{Volume: v}) })
		}},
		side{name: "kubernetes", sizes: kubeOps, run: func(b *testing.B, m int) {
			o, known, unknown := knownKube(b, m)
			ask(b, known, unknown, func(v v1.UniqueVolumeName) bool { return o.IsOperationPending(v, "", "") })
		}},
		side{name: "floor", run: func(b *testing.B, m int) {
			known, unknown := opVolumes(m)
			var mu sync.RWMutex
			running := map[v1.UniqueVolumeName]bool{}
			for i, v := range known {
				running[v] = i%2 == 0
			}
			ask(b, known, unknown, func(v v1.UniqueVolumeName) bool {
				mu.RLock()
				defer mu.RUnlock()
				return running[v]
			})
		}},
	)
}

// An operation is started and its function called, while m others are known. On Kubernetes' side the time in which the finished
// operation is taken off the list is not waited for.
func BenchmarkStartOperation(b *testing.B) {
	compare(b, "m", allOps,
		side{name: "ours", run: func(b *testing.B, m int) {
			o, _, unknown := knownOurs(b, m)
			ended := make(chan struct{}, 1)
			op := executor.Operation{Name: "volume_attach", Run: func(context.Context) error { return nil }, Done: func(executor.Result) { ended <- struct{}{} }}
			each(b, unknown, func(v v1.UniqueVolumeName) {
				op.Key = executor.Key{Volume: v}
				if err := o.Start(context.Background(), op); err != nil {
					b.Fatal(err)
				}
				<-ended
			})
		}},
		side{name: "kubernetes", sizes: kubeOps, run: func(b *testing.B, m int) {
			o, _, unknown := knownKube(b, m)
			ended := make(chan struct{}, 1)
			op := kubeOperation(func() error { ended <- struct{}{}; return nil })
			each(b, unknown, func(v v1.UniqueVolumeName) {
				if err := o.Run(v, "", "", op); err != nil {
					b.Fatal(err)
				}
				<-ended
			})
		}},
		// A goroutine and a map entry.
		side{name: "floor", run: func(b *testing.B, m int) {
			known, unknown := opVolumes(m)
			var mu sync.Mutex
			running := map[v1.UniqueVolumeName]bool{}
			for _, v := range known {
				running[v] = true
			}
			ended := make(chan struct{}, 1)
			each(b, unknown, func(v v1.UniqueVolumeName) {
				mu.Lock()
				running[v] = true
				mu.Unlock()
				go func() {
					mu.Lock()
					delete(running, v)
					mu.Unlock()
					ended <- struct{}{}
				}()
				<-ended
			})
		}},
	)
}
