package executor

// links is the place of a value in one list. The value holds its links itself, so that joining and leaving a list
// costs no allocation and no search.
type links[T any] struct{ prev, next *T }

// list is a first-in, first-out list of values that hold their own links; at says which links of the value are this
// list's. The zero value is empty.
type list[T any] struct {
	first, last *T
	n           int
}

func (l *list[T]) push(x *T, at func(*T) *links[T]) {
	*at(x) = links[T]{prev: l.last}
	if l.last == nil {
		l.first = x
	} else {
		at(l.last).next = x
	}
	l.last = x
	l.n++
}

// remove takes x out; x must be in the list.
func (l *list[T]) remove(x *T, at func(*T) *links[T]) {
	k := at(x)
	if k.prev == nil {
		l.first = k.next
	} else {
		at(k.prev).next = k.next
	}
	if k.next == nil {
		l.last = k.prev
	} else {
		at(k.next).prev = k.prev
	}
	*k = links[T]{}
	l.n--
}

// pop takes the first value out; nil when the list is empty.
func (l *list[T]) pop(at func(*T) *links[T]) *T {
	x := l.first
	if x != nil {
		l.remove(x, at)
	}
	return x
}
