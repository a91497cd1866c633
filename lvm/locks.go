package lvm

import (
	"context"
	"sync"
)

// locks are one mutex per key, whose waiters give up when their context ends. A key takes memory only while it is held
// or waited for.
//
// A holder may leave something behind that it cannot end: a command past its deadline that cannot be killed. The key
// then stays taken until that has gone, so that such commands do not pile up, and only what needs the same key waits.
type locks struct {
	mu   sync.Mutex
	keys map[string]*keyLock
}

type keyLock struct {
	users int           // holder and waiters
	token chan struct{} // holds one element while free
	stuck <-chan struct{}
}

// acquire waits until the key is free and returns the function that frees it. Freeing with a channel that is not nil
// keeps the key taken until that is closed.
func (l *locks) acquire(ctx context.Context, key string) (release func(stuck <-chan struct{}), err error) {
	if ctx.Err() != nil {
		return nil, stopped(ctx, "waiting", "for", key)
	}
	l.mu.Lock()
	if l.keys == nil {
		l.keys = map[string]*keyLock{}
	}
	k := l.keys[key]
	if k == nil {
		k = &keyLock{token: make(chan struct{}, 1)}
		k.token <- struct{}{}
		l.keys[key] = k
	}
	k.users++
	l.mu.Unlock()

	select {
	case <-k.token:
	case <-ctx.Done():
		l.leave(key, k)
		return nil, stopped(ctx, "waiting", "for", key)
	}
	if k.stuck != nil {
		select {
		case <-k.stuck:
			k.stuck = nil
		case <-ctx.Done():
			k.token <- struct{}{}
			l.leave(key, k)
			return nil, stopped(ctx, "waiting", "for", key)
		}
	}
	return func(stuck <-chan struct{}) {
		k.stuck = stuck
		k.token <- struct{}{}
		l.leave(key, k)
	}, nil
}

// leave counts a user out, and forgets the key with its last one, unless it is stuck.
func (l *locks) leave(key string, k *keyLock) {
	l.mu.Lock()
	defer l.mu.Unlock()
	k.users--
	if k.users > 0 {
		return
	}
	// Nobody else can take the token now, so that k.stuck can be looked at.
	if k.stuck != nil {
		select {
		case <-k.stuck:
		default:
			return
		}
	}
	delete(l.keys, key)
}
