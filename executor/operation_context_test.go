package executor

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// Whether somebody waits for it from the start, or never, or later: it is what context.WithCancelCause would give.
func TestCallContextIsAnOrdinaryContext(t *testing.T) {
	first, second, ofParent := errors.New("first"), errors.New("second"), errors.New("the parent's")
	type trial struct {
		parent, ctx            context.Context
		endParent, cancel      context.CancelCauseFunc
		endOfChild, endOfTimer <-chan struct{}
	}
	for name, steps := range map[string][]func(*trial){
		"nothing":                  {},
		"cancelled":                {func(c *trial) { c.cancel(first) }},
		"cancelled without cause":  {func(c *trial) { c.cancel(nil) }},
		"cancelled twice":          {func(c *trial) { c.cancel(first) }, func(c *trial) { c.cancel(second) }},
		"parent ends":              {func(c *trial) { c.endParent(ofParent) }},
		"parent ends, cancelled":   {func(c *trial) { c.endParent(ofParent) }, func(c *trial) { c.cancel(first) }},
		"cancelled, parent ends":   {func(c *trial) { c.cancel(first) }, func(c *trial) { c.endParent(ofParent) }},
		"deadline of the parent":   {func(*trial) { <-time.After(time.Hour) }},
		"deadline, then cancelled": {func(*trial) { <-time.After(time.Hour) }, func(c *trial) { c.cancel(first) }},
	} {
		for waits := range len(steps) + 2 { // before which step somebody begins to wait; at the end, never
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					type key struct{}
					make := func(child func(context.Context) (context.Context, context.CancelCauseFunc)) *trial {
						c := &trial{}
						timed, stop := context.WithTimeout(context.WithValue(t.Context(), key{}, "value"), time.Minute)
						t.Cleanup(stop)
						c.parent, c.endParent = context.WithCancelCause(timed)
						c.ctx, c.cancel = child(c.parent)
						t.Cleanup(func() { c.cancel(nil); c.endParent(nil) })
						return c
					}
					got := make(func(parent context.Context) (context.Context, context.CancelCauseFunc) {
						c := &callContext{parent: parent}
						return c, c.cancel
					})
					want := make(context.WithCancelCause)
					equal := func() {
						synctest.Wait()
						require.Equal(t, want.ctx.Err(), got.ctx.Err())
						if c := got.ctx.(*callContext); c.child == nil {
							_, cause := c.state()
							require.Equal(t, context.Cause(want.ctx), cause)
						} else {
							require.Equal(t, context.Cause(want.ctx), context.Cause(got.ctx))
						}
						wantAt, _ := want.ctx.Deadline()
						gotAt, ok := got.ctx.Deadline()
						require.True(t, ok)
						require.Equal(t, wantAt, gotAt)
					}
					wait := func() {
						child, stop := context.WithTimeout(got.ctx, 10*time.Hour)
						t.Cleanup(stop)
						got.endOfChild, got.endOfTimer = child.Done(), got.ctx.Done()
						require.Equal(t, "value", got.ctx.Value(key{}))
					}
					for i, step := range steps {
						if i == waits {
							wait()
						}
						step(want)
						step(got)
						equal()
					}
					if waits == len(steps) {
						wait()
					}
					equal()
					if waits > len(steps) {
						if c := got.ctx.(*callContext); c.parent.Err() == nil {
							require.Nil(t, c.child, "nobody has waited")
						}
						return
					}
					for _, done := range []<-chan struct{}{got.endOfChild, got.endOfTimer} {
						select {
						case <-done:
							require.Error(t, want.ctx.Err())
						default:
							require.NoError(t, want.ctx.Err())
						}
					}
				})
			})
		}
	}
}
