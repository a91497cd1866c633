package nodestatus

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/stateofworld/stateofworld/cache"
	"github.com/stateofworld/stateofworld/executor"
)

// world is a Source that tests write to.
type world struct {
	mu      sync.Mutex
	reports map[types.NodeName]cache.NodeReport
}

func newWorld() *world {
	return &world{reports: make(map[types.NodeName]cache.NodeReport)}
}

// set gives the node a new version with these volumes, and returns the version.
func (s *world) set(node types.NodeName, volumes ...v1.UniqueVolumeName) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := cache.NodeReport{Node: node, Version: s.reports[node].Version + 1}
	for _, name := range volumes {
		r.Volumes = append(r.Volumes, v1.AttachedVolume{Name: name})
	}
	s.reports[node] = r
	return r.Version
}

func (s *world) Report(node types.NodeName) cache.NodeReport {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.reports[node]
	r.Node = node
	return r
}

// recorder is a Sink that records each write and answers as its rule says.
type recorder struct {
	mu       sync.Mutex
	calls    []string // "a: v w", in the order of their beginning
	inFlight map[types.NodeName]int
	most     map[types.NodeName]int                                         // in flight at a time
	rule     func(ctx context.Context, node types.NodeName, call int) error // nil: ok. call counts the node's calls from 1
	count    map[types.NodeName]int

	total, mostTotal int // in flight over all nodes
	stored           map[types.NodeName]string
}

func newRecorder() *recorder {
	return &recorder{
		inFlight: make(map[types.NodeName]int), most: make(map[types.NodeName]int),
		count: make(map[types.NodeName]int), stored: make(map[types.NodeName]string),
	}
}

func listed(volumes []v1.AttachedVolume) string {
	var names []string
	for _, v := range volumes {
		names = append(names, string(v.Name))
	}
	return strings.Join(names, " ")
}

func (r *recorder) Write(ctx context.Context, node types.NodeName, volumes []v1.AttachedVolume) error {
	r.mu.Lock()
	r.calls = append(r.calls, fmt.Sprintf("%s: %s", node, listed(volumes)))
	r.count[node]++
	call := r.count[node]
	r.inFlight[node]++
	r.most[node] = max(r.most[node], r.inFlight[node])
	r.total++
	r.mostTotal = max(r.mostTotal, r.total)
	rule := r.rule
	r.mu.Unlock()
	defer func() {
		r.mu.Lock()
		r.inFlight[node]--
		r.total--
		r.mu.Unlock()
	}()
	if rule != nil {
		if err := rule(ctx, node, call); err != nil {
			return err
		}
	}
	r.mu.Lock()
	r.stored[node] = listed(volumes)
	r.mu.Unlock()
	return nil
}

// answer replaces the rule.
func (r *recorder) answer(rule func(ctx context.Context, node types.NodeName, call int) error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.rule = rule
}

// take returns the calls since the last take.
func (r *recorder) take() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	calls := r.calls
	r.calls = nil
	return calls
}

// after waits in virtual time, or until ctx ends.
func after(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// pass lets virtual time pass.
func pass(d time.Duration) { <-time.After(d) }

// bench is one Writer with its source and sink, inside a bubble of virtual time.
type bench struct {
	*testing.T
	*Writer
	world   *world
	sink    *recorder
	results []Result
}

// inBubble runs a test with virtual time: the back-off is 1 s, 2 s, 4 s without jitter.
func inBubble(t *testing.T, config WriterConfig, test func(b *bench)) {
	synctest.Test(t, func(t *testing.T) {
		b := &bench{T: t, world: newWorld(), sink: newRecorder()}
		config.Source, config.Sink = b.world, b.sink
		if config.Backoff == (executor.Backoff{}) {
			config.Backoff = executor.Backoff{Base: time.Second, Jitter: -1}
		}
		var mu sync.Mutex
		config.OnResult = func(r Result) {
			mu.Lock()
			defer mu.Unlock()
			b.results = append(b.results, r)
		}
		w, err := NewWriter(config)
		require.NoError(t, err)
		b.Writer = w
		test(b)
		require.NoError(t, w.Shutdown(context.Background()))
		require.Zero(t, w.Len(), "memory after Shutdown")
		require.Zero(t, w.slots)
		for node, most := range b.sink.most {
			require.LessOrEqual(t, most, 1, "writes in flight for node %s", node)
		}
	})
}

// report sets the list of a node and tells the Writer.
func (b *bench) report(node types.NodeName, volumes ...v1.UniqueVolumeName) uint64 {
	version := b.world.set(node, volumes...)
	b.Changed(node)
	return version
}

// settle lets everything happen that needs no time to pass.
func (b *bench) settle() {
	synctest.Wait()
}

// flush starts a Flush and returns the place where its outcome will be.
func (b *bench) flush(node types.NodeName, version uint64) *flushing {
	f := &flushing{}
	go func() {
		err := b.Flush(b.Context(), node, version)
		f.mu.Lock()
		defer f.mu.Unlock()
		f.done, f.err = true, err
	}()
	return f
}

type flushing struct {
	mu   sync.Mutex
	done bool
	err  error
}

func (f *flushing) outcome() (bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.done, f.err
}

func (b *bench) requireWaits(f *flushing) {
	b.Helper()
	synctest.Wait()
	done, err := f.outcome()
	require.False(b, done, "the flush returned %v", err)
}

func (b *bench) requireFlushed(f *flushing) {
	b.Helper()
	synctest.Wait()
	done, err := f.outcome()
	require.True(b, done, "the flush still waits")
	require.NoError(b, err)
}

func (b *bench) requireFlushError(f *flushing, target error) {
	b.Helper()
	synctest.Wait()
	done, err := f.outcome()
	require.True(b, done, "the flush still waits")
	require.ErrorIs(b, err, target)
}

func (b *bench) requireCalls(calls ...string) {
	b.Helper()
	synctest.Wait()
	got := b.sink.take()
	slices.Sort(got)
	slices.Sort(calls)
	require.Equal(b, calls, got)
}
