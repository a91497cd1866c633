package fake

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/stateofworld/stateofworld/reconciler/nodestatus"
)

// Reports is a sink of node reports that records what is written and fails or blocks as it is told. All methods may be
// called concurrently.
type Reports struct {
	mu      sync.Mutex
	writes  []string
	content map[types.NodeName][]string
	next    map[types.NodeName][]error
	always  map[types.NodeName]error
	lost    map[types.NodeName]error
	missing map[types.NodeName]bool
	blocked map[types.NodeName]chan struct{} // closed by Unblock
	held    map[types.NodeName]int           // writes that wait
	writing map[types.NodeName]int
	overlap []types.NodeName
}

var _ nodestatus.Sink = (*Reports)(nil)

// NewReports returns a sink that takes every write.
func NewReports() *Reports {
	return &Reports{
		content: map[types.NodeName][]string{}, next: map[types.NodeName][]error{}, always: map[types.NodeName]error{}, lost: map[types.NodeName]error{}, missing: map[types.NodeName]bool{},
		blocked: map[types.NodeName]chan struct{}{}, held: map[types.NodeName]int{}, writing: map[types.NodeName]int{},
	}
}

// FailNext makes the next writes of the node's report fail, one with each error.
func (r *Reports) FailNext(node types.NodeName, errs ...error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.next[node] = append(r.next[node], errs...)
}

// Fail makes every write of the node's report fail, until it is called with nil.
func (r *Reports) Fail(node types.NodeName, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.always[node] = err
}

// SetMissing says whether the Node object does not exist: then its report is gone, and writes find no node.
func (r *Reports) SetMissing(node types.NodeName, missing bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if missing {
		r.missing[node] = true
		delete(r.content, node)
		return
	}
	delete(r.missing, node)
}

// Lose makes every write of the node's report take effect and yet return err, until it is called with nil: a reply that was
// lost.
func (r *Reports) Lose(node types.NodeName, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lost[node] = err
}

// Block holds every write of the node's report until Unblock.
func (r *Reports) Block(node types.NodeName) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.blocked[node] == nil {
		r.blocked[node] = make(chan struct{})
	}
}

// Unblock lets the held writes go on.
func (r *Reports) Unblock(node types.NodeName) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.blocked[node] != nil {
		close(r.blocked[node])
		delete(r.blocked, node)
	}
}

// Held reports whether a write of the node's report is held.
func (r *Reports) Held(node types.NodeName) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.blocked[node] != nil && r.held[node] > 0
}

// Writes returns every write, in order, as "a: vol-1 vol-2" or "a: vol-1: the error".
func (r *Reports) Writes() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.writes)
}

// Count returns how many writes of the node's report there were, failed ones included.
func (r *Reports) Count(node types.NodeName) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := 0
	for _, w := range r.writes {
		if strings.HasPrefix(w, string(node)+":") {
			n++
		}
	}
	return n
}

// Content returns the short names of the volumes in the report of the node that was written last.
func (r *Reports) Content(node types.NodeName) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.content[node])
}

// Write implements nodestatus.Sink.
func (r *Reports) Write(ctx context.Context, node types.NodeName, volumes []v1.AttachedVolume) error {
	names := []string{}
	for _, v := range volumes {
		names = append(names, Short(v.Name))
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.writing[node]++; r.writing[node] > 1 {
		r.overlap = append(r.overlap, node)
	}
	defer func() {
		if r.writing[node]--; r.writing[node] == 0 {
			delete(r.writing, node)
		}
	}()
	if err := r.waitLocked(ctx, node); err != nil {
		return err
	}
	err := r.always[node]
	if r.missing[node] {
		err = fmt.Errorf("%w: %q", nodestatus.ErrNodeNotFound, node)
	}
	if queue := r.next[node]; len(queue) > 0 {
		err, r.next[node] = queue[0], queue[1:]
	}
	line := strings.TrimSuffix(fmt.Sprintf("%s: %s", node, strings.Join(names, " ")), " ")
	if err != nil {
		r.writes = append(r.writes, line+": "+err.Error())
		return err
	}
	r.content[node] = names
	if err := r.lost[node]; err != nil {
		r.writes = append(r.writes, line+": "+err.Error())
		return err
	}
	r.writes = append(r.writes, line)
	return nil
}

// waitLocked holds a write while its node is blocked.
func (r *Reports) waitLocked(ctx context.Context, node types.NodeName) error {
	release := r.blocked[node]
	if release == nil {
		return nil
	}
	r.held[node]++
	r.mu.Unlock()
	defer func() {
		r.mu.Lock()
		if r.held[node]--; r.held[node] == 0 {
			delete(r.held, node)
		}
	}()
	select {
	case <-release:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Violations returns what no writer of reports may do: two writes at once for one node.
func (r *Reports) Violations() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []string
	for _, node := range r.overlap {
		out = append(out, fmt.Sprintf("two writes of the report of node %s at once", node))
	}
	return out
}
