package executor

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
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

func BenchmarkThroughput(b *testing.B) {
	for name, timeout := range map[string]time.Duration{"deadline": time.Minute, "no deadline": -1} {
		for capped, limit := range map[string]int{"no caps": 0, "caps": 1000} {
			b.Run(name+"/"+capped, func(b *testing.B) {
				o, err := NewOperations(Options{Timeout: timeout, MaxConcurrent: limit, MaxPerNode: limit})
				require.NoError(b, err)
				keys := benchKeys(100_000)
				ctx := context.Background()
				run := func(context.Context) error { return nil }
				b.ReportAllocs()
				b.ResetTimer()
				i := 0
				for ; i < b.N; i++ {
					err := o.Start(ctx, Operation{Key: keys[i%len(keys)], Name: "attach", Run: run})
					var exists *AlreadyExistsError
					for errors.As(err, &exists) {
						runtime.Gosched()
						err = o.Start(ctx, Operation{Key: keys[i%len(keys)], Name: "attach", Run: run})
					}
					if err != nil {
						b.Fatal(err)
					}
				}
				require.NoError(b, o.Wait(ctx))
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "ops/s")
			})
		}
	}
}
