package reconciler

import (
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/stateofworld/stateofworld/cache"
)

// book is what the reconciler remembers of pairs that are not converged. A converged pair takes no memory here.
type book struct {
	mu    sync.Mutex
	pairs map[cache.Pair]*entry
	// waiting: by volume, the nodes that wait for its attachments elsewhere to change.
	waiting map[v1.UniqueVolumeName][]types.NodeName
	// nodes are those that are known to exist.
	nodes map[types.NodeName]struct{}
}

type entry struct {
	reason   Reason
	since    time.Time // of the reason
	inFlight string    // name of the operation that was started and has not finished
	forced   Reason    // a forced detach of this request was counted already, with this reason
	refusal  *Refusal
	notices  *noticeBook
	// withdrawn is the version of the node's report, without this volume, that was written last.
	withdrawn uint64
}

// reading is a copy of what a decision needs of the book.
type reading struct {
	inFlight string
	refusal  Refusal
}

func (b *book) init() {
	b.pairs = map[cache.Pair]*entry{}
	b.waiting = map[v1.UniqueVolumeName][]types.NodeName{}
	b.nodes = map[types.NodeName]struct{}{}
}

// nodeAdded notes whether the node exists, and reports whether it did not before.
func (b *book) nodeAdded(node types.NodeName, exists bool) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	_, known := b.nodes[node]
	if !exists {
		delete(b.nodes, node)
		return false
	}
	b.nodes[node] = struct{}{}
	return !known
}

func (b *book) read(pair cache.Pair) (r reading) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if e := b.pairs[pair]; e != nil {
		r.inFlight = e.inFlight
		if e.refusal != nil {
			r.refusal = *e.refusal
		}
	}
	return r
}

func (b *book) entryLocked(pair cache.Pair) *entry {
	e := b.pairs[pair]
	if e == nil {
		e = &entry{}
		b.pairs[pair] = e
	}
	return e
}

// inFlightElseReset returns the operation of the pair that is in flight. If there is none, something else changed the pair,
// and a refusal of before says nothing any more.
func (b *book) inFlightElseReset(pair cache.Pair) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	e := b.pairs[pair]
	switch {
	case e == nil:
		return ""
	case e.inFlight == "":
		e.refusal = nil
	}
	return e.inFlight
}

// settle records the decision on a pair that nothing was started for, and reports whether its reason is new.
func (b *book) settle(pair cache.Pair, d Decision, now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !waitsForVolume(d.Reason) {
		b.unwaitLocked(pair)
	}
	e := b.pairs[pair]
	if d.Converged() {
		if e == nil {
			return false
		}
		if e.inFlight == "" {
			delete(b.pairs, pair)
		}
		return e.reason != Converged
	}
	if e == nil {
		e = b.entryLocked(pair)
	}
	return e.setReason(d.Reason, now)
}

func (e *entry) setReason(r Reason, now time.Time) bool {
	if e.reason == r {
		return false
	}
	e.reason, e.since = r, now
	return true
}

// begin notes that an operation of the pair is about to start.
func (b *book) begin(pair cache.Pair, operation string, reason Reason, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	e := b.entryLocked(pair)
	e.inFlight = operation
	e.setReason(reason, now)
	b.unwaitLocked(pair)
}

// end notes that the operation is not in flight any more, and why it was refused, if it was.
func (b *book) end(pair cache.Pair, refusal *Refusal) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if e := b.pairs[pair]; e != nil {
		e.inFlight, e.refusal = "", refusal
	}
}

// isWithdrawn reports whether the version of the node's report was written for this pair's detach already.
func (b *book) isWithdrawn(pair cache.Pair, version uint64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	e := b.pairs[pair]
	return e != nil && e.withdrawn == version
}

func (b *book) setWithdrawn(pair cache.Pair, version uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.entryLocked(pair).withdrawn = version
}

// countForced reports whether this is the first forced detach of the pair's detach request.
func (b *book) countForced(pair cache.Pair, reason Reason) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	e := b.entryLocked(pair)
	first := e.forced == reasonUnset
	e.forced = reason
	return first
}

// wait makes changes of the volume wake the pair, and reports whether that is new.
func (b *book) wait(pair cache.Pair) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if slices.Contains(b.waiting[pair.Volume], pair.Node) {
		return false
	}
	b.waiting[pair.Volume] = append(b.waiting[pair.Volume], pair.Node)
	return true
}

func (b *book) unwaitLocked(pair cache.Pair) {
	nodes, ok := b.waiting[pair.Volume]
	if !ok {
		return
	}
	// A new slice: one that waitingFor handed out must not change.
	nodes = slices.DeleteFunc(slices.Clone(nodes), func(n types.NodeName) bool { return n == pair.Node })
	if len(nodes) == 0 {
		delete(b.waiting, pair.Volume)
		return
	}
	b.waiting[pair.Volume] = nodes
}

// waitingFor returns the nodes that wait for the volume. The slice must not be changed.
func (b *book) waitingFor(volume v1.UniqueVolumeName) []types.NodeName {
	b.mu.Lock()
	defer b.mu.Unlock()
	nodes := b.waiting[volume]
	return nodes[:len(nodes):len(nodes)]
}

// open returns the pairs that are not converged, sorted.
func (b *book) open() []cache.Pair {
	b.mu.Lock()
	defer b.mu.Unlock()
	pairs := make([]cache.Pair, 0, len(b.pairs))
	for pair := range b.pairs {
		pairs = append(pairs, pair)
	}
	slices.SortFunc(pairs, comparePairs)
	return pairs
}

// reasonSince returns since when the pair has had the reason, if that is noted.
func (b *book) reasonSince(pair cache.Pair, reason Reason) (time.Time, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if e := b.pairs[pair]; e != nil && e.reason == reason {
		return e.since, true
	}
	return time.Time{}, false
}

func (b *book) sizes() (pairs, waiting int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.pairs), len(b.waiting)
}

// waitsForVolume: these reasons end with a change of the volume's attachment to another node.
func waitsForVolume(r Reason) bool {
	switch r {
	case AttachedElsewhere, UncertainElsewhere, OlderWish, OperationElsewhere:
		return true
	}
	return false
}
