package engine

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"runtime"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// ErrRunning is returned by Run while another Run of the same engine has not returned.
var ErrRunning = errors.New("engine is running already")

// ErrInvalidConfig is what every error of New is, for errors.Is.
var ErrInvalidConfig = errors.New("invalid engine configuration")

// DefaultAuditPeriod is the time between two audits when Config.AuditPeriod is zero.
const DefaultAuditPeriod = 5 * time.Minute

// Config says what an Engine evaluates, and how. Only Evaluate is required.
type Config[K comparable] struct {
	// Evaluate looks at one key. It returns when the key must be looked at again at the latest; the zero time means
	// only when it is added again. It must not block, and it may call Add and AddAt, for its own key too.
	Evaluate func(ctx context.Context, key K) time.Time

	// Workers is how many keys are evaluated at once. Zero means GOMAXPROCS.
	Workers int

	// Clock gives the time. Nil means the real clock.
	Clock clock.WithTicker

	// Audit yields every key there is. Nil means that there is no audit.
	Audit func() iter.Seq[K]

	// AuditPeriod is the time between two audits, give or take 10 %. Zero means DefaultAuditPeriod, negative never.
	AuditPeriod time.Duration
}

// Engine evaluates keys when they are due. All methods may be called concurrently.
type Engine[K comparable] struct {
	cfg Config[K]

	mu      sync.Mutex
	work    *sync.Cond // signalled when ready grows or stopping is set
	items   map[K]*item[K]
	ready   fifo[K]  // due, in order
	waiting timed[K] // due later, earliest first
	free    []*item[K]
	seq     uint64
	running int // evaluations in progress
	idlers  int // workers in work.Wait
	started bool
	stopped bool
	count   uint64

	rearm chan struct{} // the earliest due time moved forward
}

type phase uint8

const (
	isReady phase = iota
	isWaiting
	isRunning
)

// item is what the engine keeps of a key that waits or runs.
type item[K comparable] struct {
	key   K
	phase phase
	again bool      // added while it ran: ready as soon as the evaluation returns
	due   time.Time // isWaiting: when; isRunning: the earliest AddAt during the evaluation, or zero
	seq   uint64    // isWaiting: order among equal due times
	index int       // isWaiting: place in the heap
}

// New returns an engine that has nothing to do. It starts no goroutine.
func New[K comparable](c Config[K]) (*Engine[K], error) {
	if c.Evaluate == nil {
		return nil, fmt.Errorf("%w: Evaluate is nil", ErrInvalidConfig)
	}
	if c.Workers < 0 {
		return nil, fmt.Errorf("%w: Workers is %d; it must not be negative", ErrInvalidConfig, c.Workers)
	}
	if c.Workers == 0 {
		c.Workers = runtime.GOMAXPROCS(0)
	}
	if c.Clock == nil {
		c.Clock = clock.RealClock{}
	}
	if c.AuditPeriod == 0 {
		c.AuditPeriod = DefaultAuditPeriod
	}
	e := &Engine[K]{cfg: c, items: map[K]*item[K]{}, rearm: make(chan struct{}, 1)}
	e.work = sync.NewCond(&e.mu)
	return e, nil
}

// Add makes key due now.
func (e *Engine[K]) Add(key K) {
	e.mu.Lock()
	e.addLocked(key)
	e.mu.Unlock()
}

func (e *Engine[K]) addLocked(key K) {
	it := e.items[key]
	switch {
	case it == nil:
		it = e.newItemLocked(key)
		e.pushReadyLocked(it)
	case it.phase == isWaiting:
		e.waiting.remove(it)
		e.pushReadyLocked(it)
	case it.phase == isRunning:
		it.again = true
	}
}

// AddAt makes key due at t, or earlier if it is due earlier already. A time that is not in the future means now, and so
// does the zero time.
func (e *Engine[K]) AddAt(key K, t time.Time) {
	now := e.cfg.Clock.Now()
	e.mu.Lock()
	defer e.mu.Unlock()
	if !t.After(now) {
		e.addLocked(key)
		return
	}
	it := e.items[key]
	switch {
	case it == nil:
		e.waitLocked(e.newItemLocked(key), t)
	case it.phase == isWaiting && t.Before(it.due):
		e.waiting.remove(it)
		e.waitLocked(it, t)
	case it.phase == isRunning:
		it.due = earliest(it.due, t)
	}
}

// earliest returns the earlier of two times, of which zero means none.
func earliest(a, b time.Time) time.Time {
	if a.IsZero() || (!b.IsZero() && b.Before(a)) {
		return b
	}
	return a
}

func (e *Engine[K]) newItemLocked(key K) *item[K] {
	var it *item[K]
	if n := len(e.free); n > 0 {
		it, e.free = e.free[n-1], e.free[:n-1]
	} else {
		it = new(item[K])
	}
	it.key = key
	e.items[key] = it
	return it
}

// maxFree bounds the items kept for re-use: enough for the steady state, little after a burst.
const maxFree = 1024

func (e *Engine[K]) dropLocked(it *item[K]) {
	delete(e.items, it.key)
	*it = item[K]{}
	if len(e.free) < maxFree {
		e.free = append(e.free, it)
	}
	if len(e.items) == 0 {
		e.shrinkLocked()
	}
}

// shrinkLocked gives back what a burst left behind, once nothing is known any more.
func (e *Engine[K]) shrinkLocked() {
	if cap(e.ready.buf) > maxFree {
		e.ready = fifo[K]{}
		e.items = map[K]*item[K]{}
	}
	if cap(e.waiting) > maxFree {
		e.waiting = nil
	}
}

func (e *Engine[K]) pushReadyLocked(it *item[K]) {
	it.phase, it.due, it.again = isReady, time.Time{}, false
	e.ready.push(it)
	if e.idlers > 0 {
		e.work.Signal()
	}
}

func (e *Engine[K]) waitLocked(it *item[K], t time.Time) {
	e.seq++
	it.phase, it.due, it.again, it.seq = isWaiting, t, false, e.seq
	e.waiting.push(it)
	if it.index == 0 {
		select {
		case e.rearm <- struct{}{}:
		default:
		}
	}
}

// releaseDueLocked moves what is due by now from waiting to ready.
func (e *Engine[K]) releaseDueLocked(now time.Time) {
	for len(e.waiting) > 0 && !e.waiting[0].due.After(now) {
		it := e.waiting[0]
		e.waiting.remove(it)
		e.pushReadyLocked(it)
	}
}

// evaluateLocked takes the first ready item, evaluates it without the lock, and files it again.
func (e *Engine[K]) evaluateLocked(ctx context.Context) {
	it := e.ready.pop()
	it.phase = isRunning
	e.running++
	e.count++
	key := it.key
	e.mu.Unlock()

	next := e.cfg.Evaluate(ctx, key)
	var now time.Time
	if !next.IsZero() {
		now = e.cfg.Clock.Now()
	}

	e.mu.Lock()
	e.running--
	next = earliest(next, it.due)
	switch {
	case it.again || (!now.IsZero() && !next.After(now)):
		e.pushReadyLocked(it)
	case !next.IsZero():
		e.waitLocked(it, next)
	default:
		e.dropLocked(it)
	}
}

// Run evaluates what is due until ctx ends, and returns ctx's error when every worker has returned. What still waits is
// kept, and a later Run goes on with it.
func (e *Engine[K]) Run(ctx context.Context) error {
	e.mu.Lock()
	if e.started {
		e.mu.Unlock()
		return ErrRunning
	}
	e.started, e.stopped = true, false
	e.mu.Unlock()

	var workers sync.WaitGroup
	for range e.cfg.Workers {
		workers.Go(func() { e.runWorker(ctx) })
	}
	e.runTimers(ctx)

	e.mu.Lock()
	e.stopped = true
	e.work.Broadcast()
	e.mu.Unlock()
	workers.Wait()

	e.mu.Lock()
	e.started = false
	e.mu.Unlock()
	return ctx.Err()
}

func (e *Engine[K]) runWorker(ctx context.Context) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for !e.stopped {
		if e.ready.len() == 0 {
			e.idlers++
			e.work.Wait()
			e.idlers--
			continue
		}
		e.evaluateLocked(ctx)
	}
}

// runTimers sleeps until the earliest due time or the next audit, whichever comes first, until ctx ends.
func (e *Engine[K]) runTimers(ctx context.Context) {
	audit := e.nextAudit()
	for {
		now := e.cfg.Clock.Now()
		if !audit.IsZero() && !audit.After(now) {
			e.AuditNow()
			audit = e.nextAudit()
		}
		e.mu.Lock()
		e.releaseDueLocked(now)
		wake := audit
		if len(e.waiting) > 0 {
			wake = earliest(wake, e.waiting[0].due)
		}
		e.mu.Unlock()

		var fired <-chan time.Time
		var timer clock.Timer
		if !wake.IsZero() {
			timer = e.cfg.Clock.NewTimer(wake.Sub(now))
			fired = timer.C()
		}
		select {
		case <-ctx.Done():
		case <-e.rearm:
		case <-fired:
		}
		if timer != nil {
			timer.Stop()
		}
		if ctx.Err() != nil {
			return
		}
	}
}

func (e *Engine[K]) nextAudit() time.Time {
	if e.cfg.Audit == nil || e.cfg.AuditPeriod < 0 {
		return time.Time{}
	}
	jitter := 0.9 + 0.2*rand.Float64()
	return e.cfg.Clock.Now().Add(time.Duration(float64(e.cfg.AuditPeriod) * jitter))
}

// AuditNow adds every key that Config.Audit yields.
func (e *Engine[K]) AuditNow() {
	if e.cfg.Audit == nil {
		return
	}
	for key := range e.cfg.Audit() {
		e.Add(key)
	}
}

// RunPending is the single step: it evaluates, in the calling goroutine and in order, the keys that are due when it is
// called, and returns how many those were. Keys that become due meanwhile are left for the next call. It is for tests
// and tools; it may be mixed with Run.
func (e *Engine[K]) RunPending(ctx context.Context) int {
	now := e.cfg.Clock.Now()
	e.mu.Lock()
	defer e.mu.Unlock()
	e.releaseDueLocked(now)
	done := 0
	for n := e.ready.len(); done < n && e.ready.len() > 0; done++ {
		e.evaluateLocked(ctx)
	}
	return done
}

// NextDue returns when the next key is due; a time that is not in the future when one is due now. False means that no
// key waits.
func (e *Engine[K]) NextDue() (time.Time, bool) {
	now := e.cfg.Clock.Now()
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.ready.len() > 0 {
		return now, true
	}
	if len(e.waiting) > 0 {
		return e.waiting[0].due, true
	}
	return time.Time{}, false
}

// Idle reports whether nothing is due now and nothing is being evaluated.
func (e *Engine[K]) Idle() bool {
	now := e.cfg.Clock.Now()
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.ready.len() == 0 && e.running == 0 && (len(e.waiting) == 0 || e.waiting[0].due.After(now))
}

// Len returns how many keys wait or run.
func (e *Engine[K]) Len() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.items)
}

// Evaluations returns how many evaluations were started since New.
func (e *Engine[K]) Evaluations() uint64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.count
}
