package cache

import (
	"maps"
	"strconv"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestWorldKeepsValuesByKey(t *testing.T) {
	w := NewWorld[string, int]()
	var told recorder[string]
	cancel := w.Subscribe(told.add)
	require.True(t, w.Add("a", 1))
	require.True(t, w.Add("a", 1), "without WithEqual every Add is a change")
	value, ok := w.Get("a")
	require.True(t, ok)
	require.Equal(t, 1, value)
	require.Equal(t, 1, w.Len())
	_, ok = w.Get("b")
	require.False(t, ok)
	value, ok = w.Remove("a")
	require.True(t, ok)
	require.Equal(t, 1, value)
	_, ok = w.Remove("a")
	require.False(t, ok)
	require.Equal(t, []string{"a", "a", "a"}, told.take())
	cancel()
	w.Add("a", 2)
	require.Empty(t, told.take())
}

func TestWorldTakesAnEqualValueForNoChange(t *testing.T) {
	type claim struct {
		uid string
		at  int
	}
	w := NewWorld(nil, WithEqual[string](func(a, b claim) bool { return a.uid == b.uid }))
	var told recorder[string]
	w.Subscribe(told.add)
	require.True(t, w.Add("a", claim{"1", 1}))
	require.False(t, w.Add("a", claim{"1", 2}))
	value, _ := w.Get("a")
	require.Equal(t, 1, value.at, "only a change replaces the value")
	require.True(t, w.Add("a", claim{"2", 3}))
	require.Equal(t, []string{"a", "a"}, told.take())
}

func TestWorldRemovesOnlyTheObjectThatIsMeant(t *testing.T) {
	w := NewWorld[string, string]()
	w.Add("a", "uid-2")
	var told recorder[string]
	w.Subscribe(told.add)
	is := func(uid string) func(string) bool { return func(v string) bool { return v == uid } }
	require.False(t, w.RemoveIf("a", is("uid-1")))
	require.False(t, w.RemoveIf("b", is("uid-2")))
	require.Empty(t, told.take())
	require.True(t, w.RemoveIf("a", is("uid-2")))
	require.Equal(t, []string{"a"}, told.take())
	require.Zero(t, w.Len())
}

func TestWorldSurvivesAPanicOfItsFunctions(t *testing.T) {
	w := NewWorld(WithEqual[string](func(a, b int) bool { panic("equal") }))
	w.Add("a", 1)
	require.PanicsWithValue(t, "equal", func() { w.Add("a", 2) })
	require.PanicsWithValue(t, "cond", func() { w.RemoveIf("a", func(int) bool { panic("cond") }) })
	require.True(t, w.Add("b", 1), "the lock is free")
}

// While iterating the lock is not held; else this would never return. What stays is yielded once.
func TestWorldIterationLetsTheWorldChange(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := NewWorld[int, int]()
		n := rapid.IntRange(0, 5*chunkSize).Draw(t, "entries")
		for i := range n {
			w.Add(i, i)
		}
		stayed := map[int]bool{}
		for i := range n {
			stayed[i] = true
		}
		seen := map[int]int{}
		for k, v := range w.All() {
			require.Equal(t, k, v)
			seen[k]++
			if k%3 == 0 && n > 0 {
				other := (k * 7) % n
				w.Remove(other)
				delete(stayed, other)
				w.Add(n+k, n+k)
			}
		}
		for k := range stayed {
			require.Equal(t, 1, seen[k])
		}
		for range w.All() {
			break
		}
		w.Add(-1, 0)
	})
}

func TestWorldIsSafeForConcurrentUse(t *testing.T) {
	w := NewWorld(WithEqual[string](func(a, b int) bool { return a == b }))
	var mu sync.Mutex
	mirror := map[string]int{}
	w.Subscribe(func(key string) { // reads within the lock, so the last to be told reads the last value
		mu.Lock()
		defer mu.Unlock()
		if value, ok := w.Get(key); ok {
			mirror[key] = value
		} else {
			delete(mirror, key)
		}
	})
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for i := range 2000 {
				key := strconv.Itoa((i*7 + g) % 50)
				switch i % 3 {
				case 0:
					w.Add(key, i)
				case 1:
					w.Remove(key)
				default:
					w.RemoveIf(key, func(v int) bool { return v%2 == 0 })
				}
				for range w.All() {
					break
				}
			}
		})
	}
	wg.Wait()
	require.Equal(t, maps.Collect(w.All()), mirror)
}
