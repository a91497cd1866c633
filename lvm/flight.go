package lvm

import (
	"context"
	"errors"
	"strings"
	"sync"

	"github.com/stateofworld/stateofworld/executor/command"
)

// flights share the answers of identical questions: while a report runs, others who want the same one wait for its
// answer instead of running it again.
//
// An answer may be older than the question by as long as the report runs, but never older than a change made through
// this backend: see forget.
type flights struct {
	mu      sync.Mutex
	running map[string]*flight
	// stuck are reports past their deadline that cannot be killed. The same report is not run again before they have
	// gone.
	stuck map[string]<-chan struct{}
}

type flight struct {
	vg      string // the group that it is about; empty: all
	waiters int
	cancel  context.CancelFunc
	done    chan struct{}
	result  command.Result
	err     error
}

// do runs f, which runs argv, or waits for one that does. f's context ends when nobody waits any more.
func (s *flights) do(ctx context.Context, argv []string, vg string, f func(ctx context.Context) (command.Result, error)) (command.Result, error) {
	if ctx.Err() != nil {
		return command.Result{}, stopped(ctx, argv...)
	}
	key := strings.Join(argv, "\x00")
	if err := s.waitStuck(ctx, key, argv); err != nil {
		return command.Result{}, err
	}
	s.mu.Lock()
	fl := s.running[key]
	if fl == nil {
		if s.running == nil {
			s.running, s.stuck = map[string]*flight{}, map[string]<-chan struct{}{}
		}
		fctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
		fl = &flight{vg: vg, cancel: cancel, done: make(chan struct{})}
		s.running[key] = fl
		go func() {
			defer cancel()
			fl.result, fl.err = f(fctx)
			s.land(key, fl)
		}()
	}
	fl.waiters++
	s.mu.Unlock()

	select {
	case <-fl.done:
		return fl.result, fl.err
	case <-ctx.Done():
	}
	s.mu.Lock()
	fl.waiters--
	last := fl.waiters == 0
	if last {
		s.lockedRemove(key, fl) // nobody may join what is being cancelled
	}
	s.mu.Unlock()
	timeout := stopped(ctx, argv...)
	timeout.Started = true
	if last {
		// A runner returns at once when its context ends, and the goroutine with it.
		fl.cancel()
		<-fl.done
		if fl.err == nil {
			return fl.result, nil
		}
		timeout.Exited = stuckIn(fl.err)
	}
	return command.Result{}, timeout
}

// stopped is the error of a wait that the context has ended.
func stopped(ctx context.Context, what ...string) *command.TimeoutError {
	err := &command.TimeoutError{Argv: what, Err: ctx.Err()}
	if cause := context.Cause(ctx); !errors.Is(cause, err.Err) {
		err.Cause = cause
	}
	return err
}

func (s *flights) land(key string, fl *flight) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lockedRemove(key, fl)
	var timeout *command.TimeoutError
	if errors.As(fl.err, &timeout) && !timeout.Gone() {
		s.stuck[key] = timeout.Exited
	}
	close(fl.done)
}

func (s *flights) lockedRemove(key string, fl *flight) {
	if s.running[key] == fl {
		delete(s.running, key)
	}
}

// waitStuck waits until an earlier run of the same report has gone, so that those do not pile up.
func (s *flights) waitStuck(ctx context.Context, key string, argv []string) error {
	for {
		s.mu.Lock()
		stuck := s.stuck[key]
		if stuck != nil {
			select {
			case <-stuck:
				delete(s.stuck, key)
				stuck = nil
			default:
			}
		}
		s.mu.Unlock()
		if stuck == nil {
			return nil
		}
		select {
		case <-stuck:
		case <-ctx.Done():
			return stopped(ctx, append([]string{"waiting", "for", "the", "end", "of", "an", "earlier"}, argv...)...)
		}
	}
}

// forget makes sure that nobody joins a report about the group that began before this moment.
func (s *flights) forget(vg string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, fl := range s.running {
		if fl.vg == vg || fl.vg == "" {
			delete(s.running, key)
		}
	}
}
