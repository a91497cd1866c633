package lifecycle

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/stateofworld/stateofworld/executor"
	"github.com/stateofworld/stateofworld/lvm"
)

// book is what the agent remembers about objects beyond the worlds. It is lost with the process, and nothing depends on it but how
// soon something is tried again. It only has entries for what is not converged.
type book struct {
	mu      sync.Mutex
	entries map[key]*entry
	waiters map[executor.Key]map[key]struct{} // who found an operation in the way
}

type entry struct {
	// running: an operation for the key is under way; its end makes the key due again.
	running bool
	// request is what the rest is about; another request starts afresh.
	request request
	// op and opName are those of the last attempt, by which its back-off is found.
	op     executor.Key
	opName string
	failed Failure
	// absent: the logical volume was looked for and is not on this node, while the volume may be on others.
	absent bool
	// said is the cause of the last notice.
	said string
	// made is the logical volume that an attempt has begun to make.
	made    made
	hasMade bool
}

// request is what was asked for, as far as another attempt could end differently.
type request struct {
	UID       types.UID
	Lifecycle State
	Spec      string
	Marked    string
	Placement placement
}

// made is a logical volume that was begun for a claim.
type made struct {
	LV  lvm.Name
	UID types.UID
}

func newBook() *book {
	return &book{entries: map[key]*entry{}, waiters: map[executor.Key]map[key]struct{}{}}
}

func (b *book) lockedEntry(k key) *entry {
	e := b.entries[k]
	if e == nil {
		e = &entry{}
		b.entries[k] = e
	}
	return e
}

// isRunning reports whether an operation for the key is under way.
func (b *book) isRunning(k key) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	e := b.entries[k]
	return e != nil && e.running
}

// begin notes an operation before it starts: it may have ended before its start returns. attempt is false for an operation that is
// not an attempt at the request, such as writing down a failure.
func (b *book) begin(k key, op executor.Key, name string, attempt bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	e := b.lockedEntry(k)
	e.running = true
	if attempt {
		e.op, e.opName = op, name
	}
}

// end is the end of begin.
func (b *book) end(k key) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if e := b.entries[k]; e != nil {
		e.running = false
	}
}

// failed notes why the attempt at a request failed; the zero Failure that it did not, or that nobody need know.
func (b *book) failed(k key, r request, f Failure) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if e := b.lockedEntry(k); e.request == r {
		e.failed = f
	}
}

// setAbsent notes that the logical volume of the request is not on this node.
func (b *book) setAbsent(k key, r request) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if e := b.lockedEntry(k); e.request == r {
		e.absent = true
	}
}

// look returns what is remembered about the request. When that is another than before, everything is forgotten, and what was remembered of the old one is
// returned, so that its back-off is forgotten, too.
func (b *book) look(k key, r request) (e entry, forget bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	have := b.lockedEntry(k)
	if have.request != r {
		old := *have
		*have = entry{request: r, running: old.running, made: old.made, hasMade: old.hasMade, said: old.said}
		return old, old.request != (request{})
	}
	return *have, false
}

// peek returns what is remembered.
func (b *book) peek(k key) entry {
	b.mu.Lock()
	defer b.mu.Unlock()
	if e := b.entries[k]; e != nil {
		return *e
	}
	return entry{}
}

// news reports whether the cause of a notice is another than that of the last one, and notes it.
func (b *book) news(k key, cause string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	e := b.lockedEntry(k)
	if e.said == cause {
		return false
	}
	e.said = cause
	return true
}

// begun notes that a logical volume may be there from now on that the claim has not been told of.
func (b *book) begun(k key, m made) {
	b.mu.Lock()
	defer b.mu.Unlock()
	e := b.lockedEntry(k)
	e.made, e.hasMade = m, true
}

// expect is begun for a logical volume that an earlier process has made. What this process has begun since counts more.
func (b *book) expect(k key, m made) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if e := b.lockedEntry(k); !e.hasMade {
		e.made, e.hasMade = m, true
	}
}

// takeMade returns what was begun, unless it is kept, and forgets it.
func (b *book) takeMade(k key, keep func(made) bool) (made, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	e := b.entries[k]
	if e == nil || !e.hasMade || keep(e.made) {
		return made{}, false
	}
	m := e.made
	e.made, e.hasMade = made{}, false
	return m, true
}

// drop forgets a key that needs nothing any more, and returns the entry.
func (b *book) drop(k key) (e entry) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if have := b.entries[k]; have != nil && !have.running && !have.hasMade {
		e = *have
		delete(b.entries, k)
	}
	return e
}

// wait notes that k is to be looked at when an operation on op has ended.
func (b *book) wait(k key, op executor.Key) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.waiters[op] == nil {
		b.waiters[op] = map[key]struct{}{}
	}
	b.waiters[op][k] = struct{}{}
}

// wake returns who waits for operations on op.
func (b *book) wake(op executor.Key) map[key]struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	waiting := b.waiters[op]
	delete(b.waiters, op)
	return waiting
}

// size is how many keys are remembered.
func (b *book) size() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.entries) + len(b.waiters)
}
