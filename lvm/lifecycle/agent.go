package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/stateofworld/stateofworld/cache"
	"github.com/stateofworld/stateofworld/executor"
	"github.com/stateofworld/stateofworld/lvm"
	"github.com/stateofworld/stateofworld/reconciler/engine"
)

// ErrStopped is returned by Run when the agent has run and stopped already: make a new one.
var ErrStopped = errors.New("agent has stopped")

// Agent makes and removes the logical volumes of one node as annotations ask it to. All methods may be called concurrently.
type Agent struct {
	cfg     AgentConfig
	rules   rules
	backend Backend
	engine  *engine.Engine[key]
	ops     *executor.Operations
	book    *book

	// What is asked for, as last seen; only objects of this node.
	claims  *cache.World[types.NamespacedName, claim]
	volumes *cache.World[string, volume]
	// leftovers are logical volumes whose claim may not want them any more.
	leftovers *cache.World[lvm.Name, leftover]
	orphans   *orphanage
	recovered recoveries

	observing sync.Mutex // makes comparing and replacing what was seen one step

	life      sync.Mutex
	listening bool
	stopped   bool
	cancels   []func()
}

// NewAgent returns an agent that does nothing until Run or Step. It starts no goroutine and calls nobody. Errors: *cache.InvalidError.
func NewAgent(c AgentConfig) (*Agent, error) {
	c, err := c.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("new agent: %w", err)
	}
	a := &Agent{
		cfg: c, rules: c.rules(), backend: c.Backend, book: newBook(), orphans: newOrphanage(),
		claims:    cache.NewWorld(cache.WithEqual[types.NamespacedName](func(x, y claim) bool { return x == y })),
		volumes:   cache.NewWorld(cache.WithEqual[string](func(x, y volume) bool { return x == y })),
		leftovers: cache.NewWorld(cache.WithEqual[lvm.Name](func(x, y leftover) bool { return x == y })),
	}
	if a.ops, err = executor.NewOperations(c.Operations); err != nil {
		return nil, fmt.Errorf("new agent: %w", err)
	}
	if a.engine, err = engine.New(engine.Config[key]{
		Evaluate: a.evaluate, Workers: c.Workers, Clock: c.Clock, Audit: a.everything, AuditPeriod: c.AuditPeriod,
	}); err != nil {
		return nil, fmt.Errorf("new agent: %w", err)
	}
	return a, nil
}

// Run works until ctx ends, and returns ctx's error when every operation has returned: a backend or client that does not honour
// its context holds it up. An agent runs once; a second call returns ErrStopped or engine.ErrRunning.
//
// It does not wait for informers: what they bring later is done later, and nothing is concluded from what they have not brought.
func (a *Agent) Run(ctx context.Context) error {
	if err := a.listen(); err != nil {
		return err
	}
	err := a.engine.Run(ctx)
	if errors.Is(err, engine.ErrRunning) {
		return err
	}
	return errors.Join(err, a.Stop(context.WithoutCancel(ctx)))
}

// Step is the single step, for tests and tools: it decides on everything that is due, starts the operations that follow, and
// returns how many objects it looked at. It does not wait for the operations. Call Stop when done.
func (a *Agent) Step(ctx context.Context) int {
	if a.listen() != nil {
		return 0
	}
	return a.engine.RunPending(ctx)
}

// Stop ends an agent that was driven with Step: it starts nothing any more, cancels what runs, and waits for it until ctx ends. Run does
// this by itself. It may be called several times.
func (a *Agent) Stop(ctx context.Context) error {
	a.life.Lock()
	cancels := a.cancels
	a.cancels, a.stopped = nil, true
	a.life.Unlock()
	for _, cancel := range cancels {
		cancel()
	}
	return a.ops.Shutdown(ctx)
}

// listen subscribes to the worlds, once, makes everything due that was observed before, and the recovery of the volume groups.
func (a *Agent) listen() error {
	a.life.Lock()
	defer a.life.Unlock()
	if a.stopped {
		return ErrStopped
	}
	if a.listening {
		return nil
	}
	a.listening = true
	a.cancels = append(a.cancels,
		a.claims.Subscribe(func(n types.NamespacedName) { a.engine.Add(claimKey(n)) }),
		a.volumes.Subscribe(func(n string) { a.engine.Add(key{kind: volumeKind, name: n}) }),
		a.leftovers.Subscribe(func(n lvm.Name) { a.engine.Add(leftoverKey(n)) }))
	a.engine.AuditNow()
	a.engine.Add(key{kind: hostKind})
	return nil
}

// everything yields all objects in memory.
func (a *Agent) everything() iter.Seq[key] {
	return func(yield func(key) bool) {
		for n := range a.claims.All() {
			if !yield(claimKey(n)) {
				return
			}
		}
		for n := range a.volumes.All() {
			if !yield(key{kind: volumeKind, name: n}) {
				return
			}
		}
		for n := range a.leftovers.All() {
			if !yield(leftoverKey(n)) {
				return
			}
		}
	}
}

// evaluate decides on one object and does what the decision says. The engine calls it, never twice at once for a key.
func (a *Agent) evaluate(ctx context.Context, k key) time.Time {
	if a.book.isRunning(k) {
		return time.Time{} // its end makes the key due again
	}
	switch k.kind {
	case claimKind:
		return a.evaluateClaim(ctx, k)
	case volumeKind:
		return a.evaluateVolume(ctx, k)
	case leftoverKind:
		return a.evaluateLeftover(ctx, k)
	case groupKind:
		return a.startRecovery(ctx, k)
	case orphanKind:
		return a.startOrphanPass(ctx, k)
	default:
		return a.startDiscovery(ctx, k)
	}
}

func (a *Agent) evaluateClaim(ctx context.Context, k key) time.Time {
	c, d := a.decisionOnClaim(k)
	// What was begun for a claim that does not want it any more is cleaned up, unless the claim says that it was announced.
	m, ok := a.book.takeMade(k, func(m made) bool {
		return m.UID == c.UID && m.LV == d.LV && (d.Action == Create || d.Action == Report || d.Condition == BackingOff)
	})
	if ok && !(m.UID == c.UID && c.Lifecycle == Created) {
		a.leftovers.Add(m.LV, leftover{UID: m.UID, Claim: k.claim()})
	}
	switch d.Action {
	case Create:
		return a.start(ctx, k, task{
			name: "create for " + string(c.UID), lv: d.LV, attempt: true,
			run:  func(ctx context.Context) error { return a.create(ctx, k, c, d.spec) },
			done: func(err error) { a.concludeAttempt(k, c.request(), c.UID, d.LV, err) },
		})
	case Report:
		return a.startReport(ctx, k, c.UID, d, func(ctx context.Context) error { return a.reportClaim(ctx, k, c, d.Failure) })
	}
	a.forgetWhenDone(k, d)
	return d.Until
}

func (a *Agent) evaluateVolume(ctx context.Context, k key) time.Time {
	v, d := a.decisionOnVolume(k)
	switch d.Action {
	case Remove:
		return a.start(ctx, k, task{
			name: "remove for " + string(v.UID), lv: d.LV, attempt: true, long: a.wipesLong(),
			run:  func(ctx context.Context) error { return a.remove(ctx, k, v, d.LV) },
			done: func(err error) { a.concludeAttempt(k, v.request(), v.UID, d.LV, err) },
		})
	case Release:
		return a.start(ctx, k, task{
			name: "release " + string(v.UID), lv: d.LV, attempt: true,
			run:  func(ctx context.Context) error { return a.release(ctx, k, v, d.LV) },
			done: func(err error) { a.concludeRelease(k, v, d.LV, err) },
		})
	case Protect:
		return a.start(ctx, k, task{
			name: "protect", other: k.String(), attempt: true,
			run: func(ctx context.Context) error { return a.protect(ctx, k, v) },
		})
	case Report:
		return a.startReport(ctx, k, v.UID, d, func(ctx context.Context) error { return a.reportVolume(ctx, k, v, d.Failure) })
	}
	if d.Condition == WrongAffinity {
		a.notifyFailure(k, v.UID, d.LV, d.Failure)
	}
	a.forgetWhenDone(k, d)
	return d.Until
}

func (a *Agent) startReport(ctx context.Context, k key, uid types.UID, d Decision, run func(context.Context) error) time.Time {
	a.notifyFailure(k, uid, d.LV, d.Failure)
	return a.start(ctx, k, task{name: "report", other: k.String(), run: run})
}

// forgetWhenDone keeps memory for what is not converged only.
func (a *Agent) forgetWhenDone(k key, d Decision) {
	if d.Condition != Converged && d.Condition != NotOurs {
		return
	}
	if e := a.book.drop(k); e.opName != "" {
		a.ops.Forget(e.op, e.opName)
	}
	a.ops.Forget(reportKey(k), "report")
}

// decisionOnClaim decides on a claim from memory. A claim that is not known is nobody's.
func (a *Agent) decisionOnClaim(k key) (claim, Decision) {
	c, ok := a.claims.Get(k.claim())
	if !ok {
		return claim{}, Decision{Action: Wait, Condition: NotOurs}
	}
	return c, decideClaim(c, &a.rules, a.attempt(k, c.request()))
}

func (a *Agent) decisionOnVolume(k key) (volume, Decision) {
	v, ok := a.volumes.Get(k.name)
	if !ok {
		return volume{}, Decision{Action: Wait, Condition: NotOurs}
	}
	return v, decideVolume(v, &a.rules, a.attempt(k, v.request()))
}

func (c claim) request() request { return request{UID: c.UID, Lifecycle: c.Lifecycle, Spec: c.Spec} }

func (v volume) request() request {
	return request{UID: v.UID, Lifecycle: v.Lifecycle, Spec: v.Spec, Marked: v.MarkedNode, Placement: v.Placement}
}

// attempt gathers what is remembered of the attempts at a request. Another request than before is tried at once.
func (a *Agent) attempt(k key, r request) attempt {
	e, forget := a.book.look(k, r)
	if forget {
		if e.opName != "" { // a request that can never work has had no attempt, but perhaps a report
			a.ops.Forget(e.op, e.opName)
		}
		a.ops.Forget(reportKey(k), "report")
	}
	return a.remembered(k, e, r)
}

// remembered is what an entry says of the attempts at a request.
func (a *Agent) remembered(k key, e entry, r request) attempt {
	at := attempt{Now: a.cfg.Clock.Now()}
	if e.request != r {
		return at
	}
	at.Failed, at.Absent = e.failed, e.absent
	if e.opName != "" {
		if info, ok := a.ops.Failures(e.op, e.opName); ok {
			at.Until = info.NextTry
		}
	}
	if info, ok := a.ops.Failures(reportKey(k), "report"); ok {
		at.Unreported = info.NextTry
	}
	return at
}

// concludeAttempt notes how an attempt at a request has ended.
func (a *Agent) concludeAttempt(k key, r request, uid types.UID, lv lvm.Name, err error) {
	if err == nil {
		a.book.failed(k, r, Failure{})
		return
	}
	f := failureOf(err, uid)
	var api *apiError
	if errors.As(err, &api) {
		if !errors.Is(err, errOutdated) {
			a.notifyFailure(k, uid, lv, f) // the API server is told by the annotation of everything else
		}
		return
	}
	a.book.failed(k, r, f)
}

// NextDue returns when the next object is looked at, for who drives the agent with Step. False means that none waits for a time.
func (a *Agent) NextDue() (time.Time, bool) { return a.engine.NextDue() }

// Idle reports whether nothing is to be done now and nothing is being done. What waits for its back-off does not count.
func (a *Agent) Idle() bool { return a.engine.Idle() && a.ops.Live() == 0 && a.engine.Idle() }

// Operations returns what the agent runs its operations on: to list what is pending or in back-off.
func (a *Agent) Operations() *executor.Operations { return a.ops }

// wipesLong reports whether a removal can take as long as the volume is large.
func (a *Agent) wipesLong() bool { return a.cfg.Wipe == lvm.WipeZero || a.cfg.Wipe == lvm.WipeDiscard }
