package cache

import (
	"slices"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/types"
)

// subscribers is the list of functions to be told of changes. The zero value is ready to use.
//
// No notice is lost: whether somebody listens is asked while the world is locked for the change. Who
// subscribed before is told; who subscribes later sees the change when he reads the world, as his read has to
// wait for the lock.
type subscribers[T any] struct {
	mu   sync.Mutex                         // serialises add and cancel
	list atomic.Pointer[[]*subscription[T]] // replaced, never modified; nil when nobody listens
}

type subscription[T any] struct {
	fn        func(T)
	cancelled atomic.Bool
}

func (s *subscribers[T]) add(fn func(T)) (cancel func()) {
	if fn == nil {
		return func() {}
	}
	added := &subscription[T]{fn: fn}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.replace(append(slices.Clone(s.all()), added))
	return func() {
		if added.cancelled.Swap(true) {
			return
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.replace(slices.DeleteFunc(slices.Clone(s.all()), func(o *subscription[T]) bool { return o == added }))
	}
}

func (s *subscribers[T]) replace(list []*subscription[T]) {
	if len(list) == 0 {
		s.list.Store(nil)
		return
	}
	s.list.Store(&list)
}

func (s *subscribers[T]) all() []*subscription[T] {
	if list := s.list.Load(); list != nil {
		return *list
	}
	return nil
}

// active says whether anybody listens; one atomic load.
func (s *subscribers[T]) active() bool { return s.list.Load() != nil }

func (s *subscribers[T]) notify(x T) {
	for _, sub := range s.all() {
		if !sub.cancelled.Load() {
			sub.fn(x)
		}
	}
}

// changes collects, while the world is locked, what to tell subscribers afterwards. A list stays empty when
// nobody listens.
type changes struct {
	pairs   gathered[Pair]
	nodes   gathered[types.NodeName]
	reports gathered[types.NodeName]
}

// gathered is a list whose first element, mostly the only one, needs no allocation.
type gathered[T any] struct {
	first T
	any   bool
	more  []T
}

func (g *gathered[T]) add(to *subscribers[T], x T) {
	switch {
	case !to.active():
	case !g.any:
		g.first, g.any = x, true
	default:
		g.more = append(g.more, x)
	}
}

// tell calls the subscribers, once for each distinct element. The world must not be locked.
func (g *gathered[T]) tell(to *subscribers[T], compare func(a, b T) int) {
	if !g.any {
		return
	}
	if len(g.more) == 0 {
		to.notify(g.first)
		return
	}
	all := append(g.more, g.first)
	slices.SortFunc(all, compare)
	var last T
	for i, x := range all {
		if i == 0 || compare(last, x) != 0 {
			to.notify(x)
		}
		last = x
	}
}
