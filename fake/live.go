package fake

import (
	"context"
	"fmt"
	"slices"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/stateofworld/stateofworld/cache"
	"github.com/stateofworld/stateofworld/reconciler"
)

// LiveChecks answers live checks as it is told and records the questions. A node that nothing was set for uses nothing and
// is Ready. All methods may be called concurrently.
type LiveChecks struct {
	mu     sync.Mutex
	inUse  map[types.NodeName]map[string]bool
	health map[types.NodeName]cache.NodeHealth
	errs   map[types.NodeName]error
	asked  []string
}

var _ reconciler.LiveChecks = (*LiveChecks)(nil)

// NewLiveChecks returns checks that find nothing in use and every node Ready.
func NewLiveChecks() *LiveChecks {
	return &LiveChecks{inUse: map[types.NodeName]map[string]bool{}, health: map[types.NodeName]cache.NodeHealth{}, errs: map[types.NodeName]error{}}
}

// SetInUse sets what the node uses, by short names.
func (l *LiveChecks) SetInUse(node types.NodeName, volumes ...string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.inUse[node] = map[string]bool{}
	for _, v := range volumes {
		l.inUse[node][v] = true
	}
}

// SetHealth sets the node's health.
func (l *LiveChecks) SetHealth(node types.NodeName, health cache.NodeHealth) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.health[node] = health
}

// Fail makes every question about the node fail, until it is called with nil.
func (l *LiveChecks) Fail(node types.NodeName, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.errs[node] = err
}

// Asked returns the questions, in order: "in use vol-1 a", "health a".
func (l *LiveChecks) Asked() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.asked)
}

// VolumeInUse implements reconciler.LiveChecks.
func (l *LiveChecks) VolumeInUse(_ context.Context, volume v1.UniqueVolumeName, node types.NodeName) (bool, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.asked = append(l.asked, fmt.Sprintf("in use %s %s", Short(volume), node))
	return l.inUse[node][Short(volume)], l.errs[node]
}

// NodeHealth implements reconciler.LiveChecks.
func (l *LiveChecks) NodeHealth(_ context.Context, node types.NodeName) (cache.NodeHealth, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.asked = append(l.asked, fmt.Sprintf("health %s", node))
	if h, ok := l.health[node]; ok {
		return h, l.errs[node]
	}
	return cache.NodeHealth{Ready: v1.ConditionTrue}, l.errs[node]
}
