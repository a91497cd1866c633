package executor

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/utils/clock"

	"github.com/stateofworld/stateofworld/cache"
)

// BulkAttacher is an Attacher that can attach several volumes with one call, and is then asked that way: attaches that
// begin within ExecutorConfig.BulkWindow of each other go into one call. Each is an operation of its own all the same, with
// its own key, slot and outcome.
type BulkAttacher interface {
	// AttachAll attaches the volumes, and returns a result for each, in their order. One that is missing counts as unknown. The
	// rules of Attach hold; ctx ends when every operation of the call is cancelled, and until AttachAll returns, none of its
	// volumes is worked on again.
	AttachAll(ctx context.Context, volumes []cache.VolumeToAttach) []AttachResult
}

// AttachResult is what came of one volume of AttachAll: what Attach would return.
type AttachResult struct {
	DevicePath string
	Err        error
}

// DefaultBulkWindow is how long an attach waits for others to go with it, when ExecutorConfig.BulkWindow is zero.
const DefaultBulkWindow = 2 * time.Millisecond

// bulk gathers attaches. The first of a batch makes the call, in its own operation; the others wait for it.
type bulk struct {
	driver BulkAttacher
	clock  clock.Clock
	window time.Duration

	mu   sync.Mutex
	open *batch // takes members; nil: the next attach opens one
}

type batch struct {
	members []bulkMember
	done    chan struct{} // closed when results are there
	results []AttachResult
}

type bulkMember struct {
	ctx    context.Context
	volume cache.VolumeToAttach
}

func (b *bulk) attach(ctx context.Context, volume cache.VolumeToAttach) (string, error) {
	b.mu.Lock()
	gathering := b.open
	first := gathering == nil
	if first {
		gathering = &batch{done: make(chan struct{})}
		b.open = gathering
	}
	i := len(gathering.members)
	gathering.members = append(gathering.members, bulkMember{ctx, volume})
	b.mu.Unlock()

	if first {
		b.lead(gathering)
	} else {
		// Not the end of ctx: the driver is at work on the volume until the call has returned.
		<-gathering.done
	}
	result := gathering.results[i]
	return result.DevicePath, result.Err
}

// lead waits for others to join, makes the call and hands out the results.
func (b *bulk) lead(gathering *batch) {
	timer := b.clock.NewTimer(b.window)
	<-timer.C()
	b.mu.Lock()
	b.open = nil
	b.mu.Unlock()
	defer close(gathering.done)
	b.call(gathering)
}

func (b *bulk) call(gathering *batch) {
	members := gathering.members
	gathering.results = make([]AttachResult, len(members))
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(members[0].ctx))
	defer cancel(nil)

	var asked []cache.VolumeToAttach
	var index []int // in members, of what is asked
	var left atomic.Int32
	left.Store(1)
	for i, m := range members {
		if m.ctx.Err() != nil {
			// It was cancelled while it waited for the others: nothing was begun for it.
			gathering.results[i].Err = Precondition(context.Cause(m.ctx))
			continue
		}
		left.Add(1)
		asked, index = append(asked, m.volume), append(index, i)
		stop := context.AfterFunc(m.ctx, func() {
			if left.Add(-1) == 0 {
				cancel(context.Cause(m.ctx))
			}
		})
		defer stop()
	}
	if len(asked) == 0 {
		return
	}
	if left.Add(-1) == 0 {
		cancel(context.Cause(members[index[0]].ctx))
	}

	var results []AttachResult
	var failed error
	guard(&failed, func() error {
		results = b.driver.AttachAll(ctx, asked)
		return nil
	})
	for n, i := range index {
		switch {
		case failed != nil:
			gathering.results[i].Err = failed
		case n >= len(results):
			gathering.results[i].Err = fmt.Errorf("%w: %d results for %d volumes", errNoResult, len(results), len(asked))
		default:
			gathering.results[i] = results[n]
		}
	}
}

var errNoResult = errors.New("the driver did not say what came of this volume")
