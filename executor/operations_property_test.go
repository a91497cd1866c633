package executor

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/stateofworld/stateofworld/cache"
)

// modelOperation and modelFailure are the obvious way to keep what Operations keeps: lists that are scanned.
type modelOperation struct {
	key  Key
	name string
	end  chan error
}

type modelFailure struct {
	volume   v1.UniqueVolumeName
	node     types.NodeName
	name     string
	attempts int
	nextTry  time.Time
}

type model struct {
	pending  []*modelOperation
	failures []*modelFailure
}

func (m *model) overlapping(key Key) bool {
	for _, op := range m.pending {
		if op.key.Overlaps(key) {
			return true
		}
	}
	return false
}

func (m *model) failure(key Key, name string) *modelFailure {
	for _, f := range m.failures {
		if f.volume == key.Volume && f.node == key.Node && f.name == name {
			return f
		}
	}
	return nil
}

func (m *model) end(i int, err error) {
	op := m.pending[i]
	m.pending = append(m.pending[:i:i], m.pending[i+1:]...)
	f := m.failure(op.key, op.name)
	switch {
	case errors.Is(err, ErrPrecondition):
	case err != nil && f != nil:
		f.attempts++
		f.nextTry = time.Now().Add(Backoff{Jitter: -1}.Delay(f.attempts, nil))
	case err != nil:
		m.failures = append(m.failures, &modelFailure{op.key.Volume, op.key.Node, op.name, 1, time.Now().Add(500 * time.Millisecond)})
	case f != nil:
		m.forget(f)
	}
}

func (m *model) forget(f *modelFailure) {
	for i := range m.failures {
		if m.failures[i] == f {
			m.failures = append(m.failures[:i:i], m.failures[i+1:]...)
			return
		}
	}
}

var errPanic = errors.New("stands for a panic")

// E3, kubernetes/kubernetes#109047: in any interleaving of overlapping keys and outcomes, an operation is accepted exactly when a
// naive scan of all operations says so, and nothing is left behind when all have returned.
func TestAnyInterleavingOfOverlappingKeysAgreesWithANaiveModel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// Without T.Deadline, which must not be called in a bubble.
		rapid.Check(struct{ testing.TB }{t}, checkInterleaving)
	})
}

func checkInterleaving(t *rapid.T) {
	o, err := NewOperations(Options{
		Timeout: -1,
		Backoff: Backoff{Jitter: -1, ForgetAfter: 24 * time.Hour},
		// With room for all: caps have properties of their own, but must not disturb.
		MaxConcurrent: rapid.SampledFrom([]int{0, 1000}).Draw(t, "cap"),
	})
	require.NoError(t, err)
	var m model
	names := []string{"attach", "detach"}
	t.Repeat(map[string]func(*rapid.T){
		"start": func(t *rapid.T) {
			op := &modelOperation{key: drawKey(t), name: rapid.SampledFrom(names).Draw(t, "name"), end: make(chan error)}
			if (op.key == Key{}) {
				t.Skip("no key")
			}
			err := o.Start(ctx, Operation{Key: op.key, Name: op.name, Run: func(context.Context) error {
				err := <-op.end
				if err == errPanic {
					panic(err)
				}
				return err
			}})
			f := m.failure(op.key, op.name)
			switch {
			case m.overlapping(op.key):
				require.ErrorAs(t, err, new(*AlreadyExistsError))
			case f != nil && time.Now().Before(f.nextTry):
				var backoff *BackoffError
				require.ErrorAs(t, err, &backoff)
				require.Equal(t, f.attempts, backoff.Attempts)
				require.Equal(t, f.nextTry, backoff.Until)
			default:
				require.NoError(t, err)
				m.pending = append(m.pending, op)
			}
		},
		"end": func(t *rapid.T) {
			if len(m.pending) == 0 {
				t.Skip("nothing is pending")
			}
			i := rapid.IntRange(0, len(m.pending)-1).Draw(t, "which")
			err := rapid.SampledFrom([]error{nil, errFail, errPanic, ErrPrecondition}).Draw(t, "error")
			m.pending[i].end <- err
			synctest.Wait()
			m.end(i, err)
		},
		"forget": func(t *rapid.T) {
			if len(m.failures) == 0 {
				t.Skip("nothing failed")
			}
			f := rapid.SampledFrom(m.failures).Draw(t, "which")
			o.Forget(Key{Volume: f.volume, Node: f.node}, f.name)
			m.forget(f)
		},
		"time": func(t *rapid.T) {
			pass(time.Duration(rapid.Int64Range(0, int64(3*time.Second)).Draw(t, "passes")))
		},
		"": func(t *rapid.T) {
			for _, volume := range []v1.UniqueVolumeName{"", "v", "w"} {
				for _, pod := range []cache.UniquePodName{"", "p", "q", "r"} {
					for _, node := range []types.NodeName{"", "a", "b", "c"} {
						key := Key{volume, pod, node}
						require.Equal(t, m.overlapping(key), o.IsOperationPending(key), "%v", key)
						for _, name := range names {
							f := m.failure(key, name)
							safe := !m.overlapping(key) && (f == nil || !time.Now().Before(f.nextTry))
							require.Equal(t, safe, o.IsOperationSafeToRetry(key, name), "%v", key)
						}
					}
				}
			}
			require.Len(t, o.Pendings(), len(m.pending))
			require.Len(t, o.failures.entries, len(pairsOf(m.failures)))
		},
	})
	for len(m.pending) > 0 {
		m.pending[0].end <- nil
		synctest.Wait()
		m.end(0, nil)
	}
	require.NoError(t, o.Wait(ctx))
	require.Len(t, o.Backoffs(), len(m.failures))
	pass(25 * time.Hour)
	requireEmpty(t, o)
}

func pairsOf(failures []*modelFailure) map[cache.Pair]bool {
	pairs := map[cache.Pair]bool{}
	for _, f := range failures {
		pairs[cache.Pair{Volume: f.volume, Node: f.node}] = true
	}
	return pairs
}

// Truly concurrent: whatever runs together does not overlap, and in the end nothing is left.
func TestOverlappingOperationsNeverRunTogether(t *testing.T) {
	o := newOperations(t, Options{MaxConcurrent: 6, MaxPerNode: 3, Backoff: Backoff{Base: 1, Cap: 1}})
	var mu sync.Mutex
	running := map[Key]bool{}
	enter := func(key Key) {
		mu.Lock()
		defer mu.Unlock()
		for other := range running {
			if other.Overlaps(key) {
				t.Errorf("%v runs together with %v", key, other)
			}
		}
		running[key] = true
	}
	leave := func(key Key) {
		mu.Lock()
		defer mu.Unlock()
		delete(running, key)
	}
	var accepted, ended atomic.Int64
	var workers sync.WaitGroup
	for seed := range 8 {
		workers.Go(func() {
			rnd := rand.New(rand.NewPCG(uint64(seed), 0))
			pick := func(values ...string) string { return values[rnd.IntN(len(values))] }
			for range 3000 {
				key := Key{
					v1.UniqueVolumeName(pick("v", "w", "x")), cache.UniquePodName(pick("", "", "p", "q")), types.NodeName(pick("", "a", "b", "c")),
				}
				outcome := rnd.IntN(4)
				op := Operation{
					Key: key, Name: pick("attach", "detach"),
					Run: func(context.Context) error {
						enter(key)
						if outcome == 3 {
							panic("boom")
						}
						return []error{nil, errFail, ErrPrecondition}[outcome]
					},
					Complete: func(err error) error { leave(key); return err },
					Done:     func(Result) { ended.Add(1) },
				}
				if rnd.IntN(3) == 0 {
					op.Prepare = succeed
				}
				if err := o.Start(ctx, op); err == nil {
					accepted.Add(1)
				}
				o.IsOperationPending(key)
				if rnd.IntN(50) == 0 {
					o.Forget(key, "")
				}
			}
		})
	}
	workers.Wait()
	require.NoError(t, o.Wait(ctx))
	require.Equal(t, accepted.Load(), ended.Load())
	require.Positive(t, accepted.Load())
	pending, _ := o.Sizes()
	require.Zero(t, pending)
	require.Empty(t, o.pending.volumes)
	for _, key := range []Key{{Volume: "v"}, {Volume: "w", Node: "a"}, {Volume: "x", Pod: "p"}} {
		for _, name := range []string{"attach", "detach"} {
			o.Forget(key, name)
			require.NoError(t, run(t, o, Operation{Key: key, Name: name, Run: succeed}).Err)
		}
	}
}

// R1, kubernetes/kubernetes#93902: an operation that finished between the look at the state and the start is not run again. With
// the state looked at in Check, exactly one call is made per transition.
func TestExactlyOneCallPerTransition(t *testing.T) {
	const rounds = 10_000
	o := newOperations(t, Options{})
	var state, calls atomic.Int64 // state is written by the operation before its key is free
	var workers sync.WaitGroup
	for range 4 {
		workers.Go(func() {
			for {
				seen := state.Load()
				if seen == rounds {
					return
				}
				err := o.Start(ctx, Operation{
					Key: keyVA,
					Check: func() error {
						if state.Load() != seen {
							return errFail // no longer needed
						}
						return nil
					},
					Run:      func(context.Context) error { calls.Add(1); return nil },
					Complete: func(err error) error { state.Add(1); return err },
				})
				if err != nil { // whoever is turned away looks again
					runtime.Gosched()
				}
			}
		})
	}
	workers.Wait()
	require.NoError(t, o.Wait(ctx))
	require.EqualValues(t, rounds, state.Load())
	require.EqualValues(t, rounds, calls.Load())
	requireEmpty(t, o)
}
