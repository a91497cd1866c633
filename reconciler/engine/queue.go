package engine

import "container/heap"

// fifo is a ring of items in the order in which they became due.
type fifo[K comparable] struct {
	buf  []*item[K] // its length is a power of two, or zero
	head int
	n    int
}

func (f *fifo[K]) len() int { return f.n }

func (f *fifo[K]) push(it *item[K]) {
	if f.n == len(f.buf) {
		grown := make([]*item[K], max(16, 2*len(f.buf)))
		for i := range f.n {
			grown[i] = f.buf[(f.head+i)&(len(f.buf)-1)]
		}
		f.buf, f.head = grown, 0
	}
	f.buf[(f.head+f.n)&(len(f.buf)-1)] = it
	f.n++
}

func (f *fifo[K]) pop() *item[K] {
	it := f.buf[f.head]
	f.buf[f.head] = nil
	f.head = (f.head + 1) & (len(f.buf) - 1)
	f.n--
	return it
}

// timed is a heap of items by due time, and by order of adding among equals.
type timed[K comparable] []*item[K]

func (t *timed[K]) push(it *item[K])   { heap.Push((*timedHeap[K])(t), it) }
func (t *timed[K]) remove(it *item[K]) { heap.Remove((*timedHeap[K])(t), it.index) }

// timedHeap keeps the methods that container/heap wants away from the users of timed.
type timedHeap[K comparable] []*item[K]

func (h timedHeap[K]) Len() int { return len(h) }

func (h timedHeap[K]) Less(i, j int) bool {
	if h[i].due.Equal(h[j].due) {
		return h[i].seq < h[j].seq
	}
	return h[i].due.Before(h[j].due)
}

func (h timedHeap[K]) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

func (h *timedHeap[K]) Push(x any) {
	it := x.(*item[K])
	it.index = len(*h)
	*h = append(*h, it)
}

func (h *timedHeap[K]) Pop() any {
	old := *h
	it := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	return it
}
