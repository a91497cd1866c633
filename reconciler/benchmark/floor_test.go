package benchmark

import (
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/stateofworld/stateofworld/cache"
	"github.com/stateofworld/stateofworld/reconciler/benchmark/internal/fleet"
)

// floor is a bare map under a lock: the least that a shared index of attachments can cost in Go. It knows one fact of a pair.
type floor struct {
	mu    sync.RWMutex
	pairs map[cache.Pair]cache.AttachState
}

func newFloor(f *fleet.Fleet) *floor {
	l := &floor{pairs: map[cache.Pair]cache.AttachState{}}
	for i := range f.Attachments {
		a := &f.Attachments[i]
		l.set(a.Volume, a.Node, cache.Attached)
	}
	return l
}

func (l *floor) get(volume v1.UniqueVolumeName, node types.NodeName) cache.AttachState {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.pairs[cache.Pair{Volume: volume, Node: node}]
}

func (l *floor) set(volume v1.UniqueVolumeName, node types.NodeName, state cache.AttachState) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pairs[cache.Pair{Volume: volume, Node: node}] = state
}

func (l *floor) delete(volume v1.UniqueVolumeName, node types.NodeName) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.pairs, cache.Pair{Volume: volume, Node: node})
}
