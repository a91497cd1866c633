package executor

import (
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/stateofworld/stateofworld/cache"
)

// failures remembers, per (volume, node, operation name), what failed since the last success. It has no lock of its own.
//
// An entry that no pending operation holds is idle, and is forgotten once it is idle for too long. The idle list is ordered by
// the time at which that began, so that those to be forgotten are at its front.
type failures struct {
	backoff Backoff // with its defaults filled in
	entries map[cache.Pair]*failure
	idle    list[failure]
}

type failure struct {
	pair cache.Pair
	name string
	streak
	expires   time.Time // when idle
	held      int       // pending operations that started from this entry
	forgotten bool
	sibling   *failure // same pair, another name
	idleLinks links[failure]
}

// streak is a row of failures.
type streak struct {
	attempts   int
	lastErr    error
	lastFailed time.Time
	nextTry    time.Time
}

func idleLinks(f *failure) *links[failure] { return &f.idleLinks }

func newFailures(b Backoff) failures {
	return failures{backoff: b.withDefaults(), entries: map[cache.Pair]*failure{}}
}

// find returns the entry, also one that only waits to be swept; see live.
func (s *failures) find(volume v1.UniqueVolumeName, node types.NodeName, name string) *failure {
	if len(s.entries) == 0 {
		return nil
	}
	f := s.entries[cache.Pair{Volume: volume, Node: node}]
	for f != nil && f.name != name {
		f = f.sibling
	}
	return f
}

// live reports whether f still counts at the given time. A nil entry does not.
func (f *failure) live(now time.Time) bool {
	return f != nil && (f.held > 0 || now.Before(f.expires))
}

// blocks reports whether no new try is allowed yet.
func (f *failure) blocks(now time.Time) bool {
	return f.live(now) && now.Before(f.nextTry)
}

// hold keeps f from being forgotten while an operation that started from it is pending.
func (s *failures) hold(f *failure) {
	if f.held == 0 {
		s.idle.remove(f, idleLinks)
	}
	f.held++
}

// unhold is the end of a hold; the entry is idle from now on.
func (s *failures) unhold(f *failure, now time.Time) {
	if f.held--; f.held == 0 && !f.forgotten {
		s.rest(f, now)
	}
}

func (s *failures) rest(f *failure, now time.Time) {
	f.expires = now.Add(s.backoff.ForgetAfter)
	s.idle.push(f, idleLinks)
}

// record books a failure and returns its entry.
func (s *failures) record(op *operation, err error, now time.Time, random float64) *failure {
	f := s.find(op.Key.Volume, op.Node, op.Name)
	switch {
	case f == nil:
		pair := cache.Pair{Volume: op.Key.Volume, Node: op.Node}
		f = &failure{pair: pair, name: op.Name, sibling: s.entries[pair]}
		s.entries[pair] = f
	case f.held == 0:
		s.idle.remove(f, idleLinks)
	}
	f.attempts++
	f.lastErr, f.lastFailed = err, now
	f.nextTry = now.Add(s.backoff.Delay(f.attempts, func() float64 { return random }))
	if f.held == 0 {
		s.rest(f, now)
	}
	return f
}

func (s *failures) forget(f *failure) {
	if f.forgotten {
		return
	}
	f.forgotten = true
	if f.held == 0 {
		s.idle.remove(f, idleLinks)
	}
	first := s.entries[f.pair]
	if first == f {
		if f.sibling == nil {
			delete(s.entries, f.pair)
		} else {
			s.entries[f.pair] = f.sibling
		}
		return
	}
	for first.sibling != f {
		first = first.sibling
	}
	first.sibling = f.sibling
}

// forgetAll forgets the entries of all names of a pair.
func (s *failures) forgetAll(volume v1.UniqueVolumeName, node types.NodeName) {
	for f := s.entries[cache.Pair{Volume: volume, Node: node}]; f != nil; f = f.sibling {
		s.forget(f)
	}
}

// sweep forgets up to limit entries that are idle for too long.
func (s *failures) sweep(now time.Time, limit int) {
	for ; limit > 0 && s.idle.first != nil && !s.idle.first.live(now); limit-- {
		s.forget(s.idle.first)
	}
}

func (f *failure) info() Info {
	return Info{
		Key: Key{Volume: f.pair.Volume, Node: f.pair.Node}, Name: f.name, Node: f.pair.Node, Phase: BackingOff,
		Attempts: f.attempts, LastErr: f.lastErr, LastFailed: f.lastFailed, NextTry: f.nextTry,
	}
}
