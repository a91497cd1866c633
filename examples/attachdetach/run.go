package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/stateofworld/stateofworld/cache"
	"github.com/stateofworld/stateofworld/executor"
	"github.com/stateofworld/stateofworld/reconciler"
)

// maxCalls is how many calls the storage gets at once.
const maxCalls = 5000

// period is how often the loop prints what has happened, and looks whether it is over.
const period = 20 * time.Millisecond

// bigWorld is the number of volumes from which on there is too much for a line about everything.
const bigWorld = 50

// simulation is a reconciler at work on the worlds of a dump.
type simulation struct {
	dump     *dump
	worlds   *worlds
	storage  *backend
	rc       *reconciler.Reconciler
	recorder *recorder
	names    map[v1.UniqueVolumeName]names
	podNames map[cache.UniquePodName]string
	script   []step    // what is still to happen
	stepDue  time.Time // when the first step is to happen; zero: not known yet
	isBig    bool
	wished   int // attachments that the pods wish, at the start
	standing int // those of them that were attached already
}

// newSimulation wires the library: this is all that a controller has to do.
func newSimulation(d *dump, o options) (*simulation, error) {
	w, err := seed(d)
	if err != nil {
		return nil, err
	}
	s := &simulation{dump: d, worlds: w, storage: newBackend(w.plugins, o), names: volumeNames(d, w.plugins), podNames: podNames(d)}
	w.attachAsBefore(d, s.storage)
	if len(o.files) == 0 {
		planFailures(s.storage)
		s.script = builtinScript()
	}
	for v := range w.desired.VolumesToAttach() {
		s.wished++
		if w.actual.GetAttachState(v.VolumeName, v.NodeName) == cache.Attached {
			s.standing++
		}
	}
	s.isBig = w.desired.Sizes().Volumes+w.actual.Sizes().Volumes > bigWorld
	s.recorder = newRecorder(time.Now(), s.isBig && !o.verbose)
	s.rc, err = reconciler.New(reconciler.Config{
		Desired: w.desired, Actual: w.actual, Attacher: s.storage, Reports: reportSink{},
		Notices: s.recorder.notice, Observer: s.recorder.observer(),
		Operations: executor.Options{MaxConcurrent: maxCalls, Rand: seededRand(o.seed)},
	})
	return s, err
}

// reportSink takes the nodes' reports of attached volumes, in place of the API server.
type reportSink struct{}

func (reportSink) Write(ctx context.Context, _ types.NodeName, _ []v1.AttachedVolume) error {
	return ctx.Err()
}

// seededRand returns random numbers that are the same for the same seed. It may be called by several goroutines.
func seededRand(seed uint64) func() float64 {
	var mu sync.Mutex
	r := rand.New(rand.NewPCG(seed, seed))
	return func() float64 {
		mu.Lock()
		defer mu.Unlock()
		return r.Float64()
	}
}

// verdict is how a run has ended.
type verdict struct {
	converged bool
	why       string // if not
	took      time.Duration
	events    summary
	rows      []row
}

// run reconciles until everything is as it is wished, until nothing would change any more, until the timeout, or until ctx
// ends. tick is called again and again meanwhile.
func (s *simulation) run(ctx context.Context, timeout time.Duration, tick func()) (v verdict, err error) {
	// What is under way when ctx ends is not cancelled before the rows are read: it would all be uncertain.
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan error, 1)
	s.rc.MarkSynced()
	go func() { ended <- s.rc.Run(running) }()
	defer func() {
		stop()
		if stopErr := <-ended; !errors.Is(stopErr, context.Canceled) {
			err = fmt.Errorf("run the reconciler: %w", stopErr)
		}
	}()

	start := time.Now()
	ticker := time.NewTicker(period)
	defer ticker.Stop()
	for {
		s.play()
		v, over := s.look(ctx, start, timeout)
		tick()
		if over {
			return v, nil
		}
		select {
		case <-ctx.Done():
		case <-ticker.C:
		}
	}
}

// look says whether the run is over, and how it has ended.
func (s *simulation) look(ctx context.Context, start time.Time, timeout time.Duration) (v verdict, over bool) {
	deadline := start.Add(timeout)
	stuck := false
	switch {
	case ctx.Err() != nil:
		v.why = "interrupted"
	case !time.Now().Before(deadline):
		v.why = "timed out"
	case len(s.script) == 0 && s.rests(deadline):
		v.why, stuck = "nothing more would happen before the timeout", true
	default:
		return v, false
	}
	v.events, v.rows = s.summary(), s.rows()
	if len(s.script) == 0 && !slices.ContainsFunc(v.rows, func(r row) bool { return !r.Converged }) {
		v.converged, v.why = true, ""
	} else if stuck && slices.ContainsFunc(v.rows, func(r row) bool { return r.moves }) {
		return v, false // the queue looked empty between a change and its consequence
	}
	v.took = time.Since(start)
	return v, true
}

// rests says whether nothing goes on, and nothing waits for a time before deadline.
func (s *simulation) rests(deadline time.Time) bool {
	if s.rc.Operations().Live() > 0 || !s.rc.Reports().Idle() {
		return false
	}
	next, ok := s.rc.NextDue()
	return !ok || next.After(deadline)
}

// play does the next step of the script, when its time has come.
func (s *simulation) play() {
	if len(s.script) == 0 {
		return
	}
	next := &s.script[0]
	if s.stepDue.IsZero() {
		if next.when != nil && !next.when(s.worlds.actual) {
			return
		}
		s.stepDue = time.Now().Add(next.after)
	}
	if time.Now().Before(s.stepDue) {
		return
	}
	s.recorder.add(next.what)
	next.do(s.dump, s.worlds.populator)
	s.script, s.stepDue = s.script[1:], time.Time{}
}

// tick prints what has happened since the last time, or how far it has come.
func (s *simulation) tick(p *printer) {
	for _, e := range s.recorder.take() {
		p.event(e)
	}
	if !s.isBig {
		return
	}
	p.progress.show(func() string {
		stats := s.rc.Stats()
		return fmt.Sprintf("%d/%d attached, %d in progress, %d waiting to retry, %.0fs",
			s.standing+s.recorder.attaches(), s.wished, stats.Pending, stats.BackingOff, time.Since(p.start).Seconds())
	})
}

// printer prints to w, with columns that fit the names of this world.
func (s *simulation) printer(w io.Writer, line *progress) *printer {
	p := &printer{w: w, progress: line, names: s.names, start: s.recorder.start}
	for _, n := range s.names {
		p.volumeWide = width(p.volumeWide, cmp.Or(n.claim, n.volume))
	}
	for name := range s.dump.nodes {
		p.nodeWide = width(p.nodeWide, name)
	}
	return p
}

// summary counts what has happened.
func (s *simulation) summary() summary {
	counts := s.recorder.summary()
	for reason, n := range s.rc.Stats().ForcedDetaches {
		counts.Forced[reason.String()] = n
	}
	return counts
}
