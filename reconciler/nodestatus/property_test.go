package nodestatus

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/stateofworld/stateofworld/executor"
)

// cluster is a Source and a Sink in one, which knows what was asked and what is stored.
type cluster struct {
	*world
	mu       sync.Mutex
	history  map[types.NodeName][]string // list of each version, from 1
	exists   map[types.NodeName]bool
	stored   map[types.NodeName]string
	inFlight map[types.NodeName]bool
	broken   []string
	faults   []fault // used up one by one
}

// fault is what happens to one write.
type fault struct {
	takes time.Duration
	fails bool
	early bool // stored before it fails
	deaf  bool // does not heed its context
}

func (c *cluster) set(node types.NodeName, volumes ...v1.UniqueVolumeName) uint64 {
	version := c.world.set(node, volumes...)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.history[node] = append(c.history[node], listed(c.world.Report(node).Volumes))
	return version
}

func (c *cluster) Write(ctx context.Context, node types.NodeName, volumes []v1.AttachedVolume) error {
	c.mu.Lock()
	if c.inFlight[node] {
		c.broken = append(c.broken, fmt.Sprintf("two writes in flight for node %s", node))
	}
	c.inFlight[node] = true
	var f fault
	if len(c.faults) > 0 {
		f, c.faults = c.faults[0], c.faults[1:]
	}
	c.mu.Unlock()

	if f.deaf {
		pass(f.takes)
	} else if err := after(ctx, f.takes); err != nil {
		f.fails = true
	}

	c.mu.Lock()
	defer c.mu.Unlock()
	c.inFlight[node] = false
	if !c.exists[node] {
		return ErrNodeNotFound
	}
	if !f.fails || f.early {
		c.stored[node] = listed(volumes)
	}
	if f.fails {
		return errAPI
	}
	return nil
}

// check is called when a Flush has returned nil: the node's list must be that of the
// version or of a later one.
func (c *cluster) check(node types.NodeName, version uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.exists[node] && !slices.Contains(c.history[node][version-1:], c.stored[node]) {
		c.broken = append(c.broken, fmt.Sprintf("flushed version %d of node %s, but %q is stored", version, node, c.stored[node]))
	}
}

// Whatever happens, a Flush that succeeds has told the truth, never two writes run for
// a node, what is stored in the end is the newest report, and no memory remains.
func TestRandomHistoriesEndWithTheNewestReportStored(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var failure any // rapid wants it in its own goroutine
		synctest.Test(t, func(bubble *testing.T) {
			defer func() { failure = recover() }()
			randomHistory(bubble.Context(), rt)
		})
		if failure != nil {
			panic(failure)
		}
	})
}

func randomHistory(ctx context.Context, t *rapid.T) {
	nodes := []types.NodeName{"a", "b", "c"}
	c := &cluster{
		world: newWorld(), history: make(map[types.NodeName][]string), exists: make(map[types.NodeName]bool),
		stored: make(map[types.NodeName]string), inFlight: make(map[types.NodeName]bool),
	}
	for _, node := range nodes {
		c.exists[node] = true
	}
	w, err := NewWriter(WriterConfig{
		Source: c, Sink: c, Timeout: 5 * time.Second, Backoff: executor.Backoff{Base: time.Second, Cap: 8 * time.Second},
		MaxConcurrent: rapid.IntRange(1, 4).Draw(t, "cap"),
	})
	require.NoError(t, err)
	defer func() { require.NoError(t, w.Shutdown(ctx)) }()
	var flushes sync.WaitGroup
	node := func() types.NodeName { return rapid.SampledFrom(nodes).Draw(t, "node") }
	volumes := func() (l []v1.UniqueVolumeName) {
		for _, v := range []v1.UniqueVolumeName{"v", "w"} {
			if rapid.Bool().Draw(t, string(v)) {
				l = append(l, v)
			}
		}
		return l
	}
	t.Repeat(map[string]func(*rapid.T){
		"": func(t *rapid.T) {
			synctest.Wait()
			c.mu.Lock()
			defer c.mu.Unlock()
			require.Empty(t, c.broken)
		},
		"report": func(*rapid.T) {
			n := node()
			c.set(n, volumes()...)
			w.Changed(n)
		},
		"withdraw and flush": func(t *rapid.T) {
			n := node()
			version := c.set(n, volumes()...)
			if rapid.Bool().Draw(t, "changed") {
				w.Changed(n)
			}
			patience := time.Duration(rapid.IntRange(0, 60).Draw(t, "patience")) * time.Second
			flushes.Go(func() {
				ctx, cancel := context.WithTimeout(ctx, patience)
				defer cancel()
				if w.Flush(ctx, n, version) == nil {
					c.check(n, version)
				}
			})
		},
		"fault": func(t *rapid.T) {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.faults = append(c.faults, fault{
				takes: time.Duration(rapid.IntRange(0, 8).Draw(t, "takes")) * time.Second,
				fails: rapid.Bool().Draw(t, "fails"), early: rapid.Bool().Draw(t, "early"), deaf: rapid.Bool().Draw(t, "deaf"),
			})
		},
		"time passes": func(t *rapid.T) {
			pass(time.Duration(rapid.IntRange(1, 10).Draw(t, "seconds")) * time.Second)
		},
		"node goes": func(*rapid.T) {
			n := node()
			c.mu.Lock()
			defer c.mu.Unlock()
			c.exists[n] = false
			delete(c.stored, n)
		},
		"node comes": func(*rapid.T) {
			n := node()
			c.mu.Lock()
			if c.exists[n] {
				c.mu.Unlock()
				return
			}
			c.exists[n], c.stored[n] = true, ""
			c.mu.Unlock()
			w.NodeAdded(n)
		},
		"force": func(*rapid.T) { w.Force(node()) },
	})

	c.mu.Lock()
	c.faults = nil
	c.mu.Unlock()
	pass(time.Hour) // for all back-offs and time-outs
	flushes.Wait()
	require.NoError(t, w.WaitIdle(ctx))
	require.Empty(t, w.Pending())
	require.Empty(t, c.broken)
	for _, n := range nodes {
		if report := c.Report(n); c.exists[n] && report.Version > 0 {
			require.Equal(t, listed(report.Volumes), c.stored[n], "node %s", n)
		}
	}
	for _, n := range nodes {
		c.set(n)
		w.Changed(n)
	}
	require.NoError(t, w.WaitIdle(ctx))
	require.Zero(t, w.Len())
}

// Any number of goroutines, for the race detector.
func TestParallelUseConverges(t *testing.T) {
	w, err := NewWriter(WriterConfig{Source: newWorld(), Sink: newRecorder()})
	require.NoError(t, err)
	s, sink := w.source.(*world), w.sink.(*recorder)
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 200 {
				node := types.NodeName(fmt.Sprint("node-", i%5))
				version := s.set(node, v1.UniqueVolumeName(fmt.Sprint("v", g, "-", i)))
				w.Changed(node)
				switch i % 10 {
				case 0:
					w.NodeAdded(node)
				case 1:
					w.Pending()
					w.Written(node)
				case 2:
					w.Force(node)
				default:
					if err := w.Flush(t.Context(), node, version); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	wg.Wait()
	require.NoError(t, w.WaitIdle(t.Context()))
	for i := range 5 {
		node := types.NodeName(fmt.Sprint("node-", i))
		require.Equal(t, listed(s.Report(node).Volumes), sink.stored[node])
		require.Equal(t, 1, sink.most[node])
	}
	require.NoError(t, w.Shutdown(t.Context()))
}
