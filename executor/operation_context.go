package executor

import (
	"context"
	"sync"
	"time"
)

// callContext is the context of one call of an operation's function: it ends with its parent, and by cancel. It becomes a
// child of its parent only when somebody waits for it. Otherwise all operations would meet twice each at the one lock of a
// parent that they share, and when tens of thousands are short, that lock is what they wait for most.
type callContext struct {
	parent context.Context

	mu    sync.Mutex
	child context.Context // nil until it is wanted
	end   context.CancelCauseFunc
	cause error // of cancel; nil: not cancelled
}

// cancel ends the context; only the first cause counts. It must be called at some time, to let go of the parent.
func (c *callContext) cancel(cause error) {
	if cause == nil {
		cause = context.Canceled
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.child != nil:
		c.end(cause)
	case c.cause != nil:
	case c.parent.Err() != nil:
		c.lockedChild() // it has ended already, as its parent
	default:
		c.cause = cause
	}
}

func (c *callContext) lockedChild() context.Context {
	if c.child != nil {
		return c.child
	}
	parent := c.parent
	if c.cause != nil {
		parent = context.WithoutCancel(parent) // which may have ended since, but that was later
	}
	c.child, c.end = context.WithCancelCause(parent)
	if c.cause != nil {
		c.end(c.cause)
	}
	return c.child
}

func (c *callContext) get() context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lockedChild()
}

// state returns what Err and context.Cause say.
func (c *callContext) state() (err, cause error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.child != nil:
		return c.child.Err(), context.Cause(c.child)
	case c.cause != nil:
		return context.Canceled, c.cause
	}
	return c.parent.Err(), context.Cause(c.parent)
}

func (c *callContext) Err() error {
	err, _ := c.state()
	return err
}

func (c *callContext) Deadline() (time.Time, bool) { return c.parent.Deadline() }

func (c *callContext) Done() <-chan struct{} { return c.get().Done() }

// Value is the child's, which is also how package context finds the cause, and makes children of this context its own.
func (c *callContext) Value(key any) any { return c.get().Value(key) }
