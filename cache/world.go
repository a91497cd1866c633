package cache

import (
	"iter"
	"sync"
)

// World is a keyed set of values with change notices: the wanted claims of an agent, the logical volumes of a
// host, or whatever else a controller compares. Values are handed out as they are, so pointers in them must
// not be written through.
//
// All methods are safe for concurrent use.
type World[K comparable, V any] struct {
	equal func(a, b V) bool

	mu          sync.RWMutex
	entries     map[K]V
	subscribers subscribers[K]
}

// WorldOption is an option of [NewWorld].
type WorldOption[K comparable, V any] func(*World[K, V])

// WithEqual makes an Add of an equal value no change. equal runs under the lock of the world: it must be
// quick and must not use the world.
func WithEqual[K comparable, V any](equal func(a, b V) bool) WorldOption[K, V] {
	return func(w *World[K, V]) { w.equal = equal }
}

// NewWorld returns an empty world. Without [WithEqual] every Add is a change.
func NewWorld[K comparable, V any](opts ...WorldOption[K, V]) *World[K, V] {
	w := &World[K, V]{entries: make(map[K]V)}
	for _, opt := range opts {
		if opt != nil {
			opt(w)
		}
	}
	return w
}

// Add sets the value of the key, and says whether that was a change. Only a change replaces the value.
func (w *World[K, V]) Add(key K, value V) (changed bool) {
	if changed = w.set(key, value); changed {
		w.subscribers.notify(key)
	}
	return changed
}

func (w *World[K, V]) set(key K, value V) (changed bool) {
	w.mu.Lock()
	defer w.mu.Unlock() // equal may panic
	if old, exists := w.entries[key]; exists && w.equal != nil && w.equal(old, value) {
		return false
	}
	w.entries[key] = value
	return true
}

// Remove removes the key, and returns the value it had and whether it was there.
func (w *World[K, V]) Remove(key K) (V, bool) {
	w.mu.Lock()
	value, exists := w.entries[key]
	delete(w.entries, key)
	w.mu.Unlock()
	if exists {
		w.subscribers.notify(key)
	}
	return value, exists
}

// RemoveIf removes the key if it is there and cond holds for its value, in one step, and says whether it did.
// With it, news of the end of one object (by UID) does not remove its successor of the same name. cond runs
// under the lock of the world: it must be quick and must not use the world.
func (w *World[K, V]) RemoveIf(key K, cond func(V) bool) bool {
	removed := w.removeIf(key, cond)
	if removed {
		w.subscribers.notify(key)
	}
	return removed
}

func (w *World[K, V]) removeIf(key K, cond func(V) bool) bool {
	w.mu.Lock()
	defer w.mu.Unlock() // cond may panic
	value, exists := w.entries[key]
	if !exists || !cond(value) {
		return false
	}
	delete(w.entries, key)
	return true
}

// Get returns the value of the key, and whether it is there.
func (w *World[K, V]) Get(key K) (V, bool) {
	w.mu.RLock()
	defer w.mu.RUnlock()
	value, exists := w.entries[key]
	return value, exists
}

// Len returns the number of keys.
func (w *World[K, V]) Len() int {
	w.mu.RLock()
	defer w.mu.RUnlock()
	return len(w.entries)
}

// All yields all entries, in no order. The lock is not held while yielding; a key that is there from
// beginning to end is yielded exactly once, with the value of some moment in between.
func (w *World[K, V]) All() iter.Seq2[K, V] {
	return func(yield func(K, V) bool) {
		type entry struct {
			key   K
			value V
		}
		chunk := make([]entry, 0, chunkSize)
		flush := func() bool {
			for _, e := range chunk {
				if !yield(e.key, e.value) {
					return false
				}
			}
			chunk = chunk[:0]
			return true
		}
		w.mu.RLock()
		for key, value := range w.entries {
			if chunk = append(chunk, entry{key, value}); len(chunk) == chunkSize {
				w.mu.RUnlock()
				if !flush() {
					return
				}
				w.mu.RLock()
			}
		}
		w.mu.RUnlock()
		flush()
	}
}

// Subscribe has fn called after each change of a key: its value was set, or it was removed. fn runs in the
// goroutine that made the change, after the change, and may use the world. cancel may be called any number of
// times; a call that has begun by then may still be running.
func (w *World[K, V]) Subscribe(fn func(key K)) (cancel func()) {
	return w.subscribers.add(fn)
}
