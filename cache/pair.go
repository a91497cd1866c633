package cache

import (
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
)

// Pair is the unit of work: one volume on one node.
type Pair struct {
	Volume v1.UniqueVolumeName
	Node   types.NodeName
}

// compare orders pairs by volume, then node.
func (p Pair) compare(o Pair) int {
	if c := strings.Compare(string(p.Volume), string(o.Volume)); c != 0 {
		return c
	}
	return strings.Compare(string(p.Node), string(o.Node))
}

// Option is an option of either world.
type Option func(*options)

type options struct {
	clock clock.PassiveClock
}

// WithClock sets the clock of the world, for tests. The default, also for nil, is the real one.
func WithClock(c clock.PassiveClock) Option {
	return func(o *options) { o.clock = c }
}

func newOptions(opts []Option) options {
	o := options{}
	for _, opt := range opts {
		if opt != nil {
			opt(&o)
		}
	}
	if o.clock == nil {
		o.clock = clock.RealClock{}
	}
	return o
}

// timeline keeps the times of a world as offsets from the world's start. That takes 8 bytes instead of 24,
// and as both the start and what is computed from it carry the monotonic clock, a step of the wall clock
// makes no timer expire early.
type timeline struct {
	clock clock.PassiveClock
	start time.Time
}

// moment is a point on the timeline of a world.
type moment time.Duration

func newTimeline(c clock.PassiveClock) timeline {
	return timeline{clock: c, start: c.Now()}
}

func (t timeline) now() moment { return moment(t.clock.Since(t.start)) }

func (t timeline) time(m moment) time.Time { return t.start.Add(time.Duration(m)) }
