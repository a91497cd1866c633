package command

import (
	"context"
	"sync"
)

// pool counts the work of one runner that may outlive the call that started it, so that every goroutine has an owner.
type pool struct {
	mu     sync.Mutex
	active int           // work that has not ended, abandoned or not
	stuck  int           // of it, abandoned by its caller at a deadline
	idle   chan struct{} // closed when active becomes 0; nil while nobody waits
}

func (p *pool) enter() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.active++
}

func (p *pool) leave() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.active--
	if p.active == 0 && p.idle != nil {
		close(p.idle)
		p.idle = nil
	}
}

func (p *pool) addStuck(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stuck += n
}

func (p *pool) alive() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stuck
}

func (p *pool) wait(ctx context.Context) error {
	p.mu.Lock()
	if p.active == 0 {
		p.mu.Unlock()
		return nil
	}
	if p.idle == nil {
		p.idle = make(chan struct{})
	}
	idle := p.idle
	p.mu.Unlock()
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// job is one piece of work whose caller may stop waiting for it.
type job struct {
	pool *pool
	done chan struct{}

	mu        sync.Mutex
	ended     bool
	abandoned bool
}

func (p *pool) newJob() *job {
	p.enter()
	return &job{pool: p, done: make(chan struct{})}
}

// end is called once, by the work itself, when it is over.
func (j *job) end() {
	j.mu.Lock()
	j.ended = true
	if j.abandoned {
		j.pool.addStuck(-1)
	}
	j.mu.Unlock()
	close(j.done)
	j.pool.leave()
}

// abandon is called once, by the caller, when it stops waiting. It is false when the work has ended already, whose
// result is then to be used.
func (j *job) abandon() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.ended {
		return false
	}
	j.abandoned = true
	j.pool.addStuck(1)
	return true
}

// call runs f, which may block in the kernel for ever, and returns when it has or when ctx ends.
func call[T any](ctx context.Context, p *pool, op, path string, f func() (T, error)) (T, error) {
	var zero T
	if ctx.Err() != nil {
		return zero, newTimeoutError(ctx, []string{op, path})
	}
	j := p.newJob()
	var value T
	var err error
	go func() {
		defer j.end()
		value, err = f()
	}()
	select {
	case <-j.done:
		return value, err
	case <-ctx.Done():
	}
	if !j.abandon() {
		<-j.done
		return value, err
	}
	e := newTimeoutError(ctx, []string{op, path})
	e.Started, e.Exited = true, j.done
	return zero, e
}
