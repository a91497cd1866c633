package cache

import (
	"fmt"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	// chunkSize is how many entries a read of everything copies before it gives the lock away for a moment, so that a
	// write waits for some ten microseconds and not for the whole read.
	chunkSize = 128
	// scanLimit is how many pairs of one volume, beyond the first, are found by looking through a list. A map takes over
	// above it: a shared volume may be on thousands of nodes.
	scanLimit = 8
)

// index keeps pairs and finds them from both sides: V, N and P are what the world keeps for a volume, a node and a pair.
//
//	volumes: name -> volumeEntry -> its pairs (the first inside the entry, as most volumes have one)
//	nodes:   name -> nodeEntry   -> its pairs
//
// A pair's entry never moves while the pair exists. Volume entries live as long as they have a pair; how long node entries
// live is up to the world. The index has no lock: it is guarded by the one of its world.
type index[V, N, P any] struct {
	volumes map[v1.UniqueVolumeName]*volumeEntry[V, N, P]
	nodes   map[types.NodeName]*nodeEntry[V, N, P]
	pairs   int
}

type volumeEntry[V, N, P any] struct {
	name  v1.UniqueVolumeName
	first pairEntry[V, N, P]  // free while first.node is nil
	more  *morePairs[V, N, P] // nil while there are none
	data  V
}

type nodeEntry[V, N, P any] struct {
	name  types.NodeName
	pairs []*pairEntry[V, N, P] // in no order
	data  N
}

type pairEntry[V, N, P any] struct {
	volume *volumeEntry[V, N, P]
	node   *nodeEntry[V, N, P] // nil once the pair is removed
	data   P
	pos    uint32 // in node.pairs
}

// morePairs are a volume's pairs beyond the first: a list, or a map once there were more than scanLimit. A map never turns
// into a list again, so that a read that pauses within it can go on in it.
type morePairs[V, N, P any] struct {
	list   []*pairEntry[V, N, P]
	byNode map[types.NodeName]*pairEntry[V, N, P]
}

func newIndex[V, N, P any]() index[V, N, P] {
	return index[V, N, P]{
		volumes: make(map[v1.UniqueVolumeName]*volumeEntry[V, N, P]),
		nodes:   make(map[types.NodeName]*nodeEntry[V, N, P]),
	}
}

// pair returns the entry of the pair, or nil.
func (x *index[V, N, P]) pair(volume v1.UniqueVolumeName, node types.NodeName) *pairEntry[V, N, P] {
	v := x.volumes[volume]
	if v == nil {
		return nil
	}
	return v.pair(node)
}

func (v *volumeEntry[V, N, P]) pair(node types.NodeName) *pairEntry[V, N, P] {
	if n := v.first.node; n != nil && n.name == node {
		return &v.first
	}
	if v.more == nil {
		return nil
	}
	return v.more.pair(node)
}

func (m *morePairs[V, N, P]) pair(node types.NodeName) *pairEntry[V, N, P] {
	if m.byNode != nil {
		return m.byNode[node]
	}
	for _, p := range m.list {
		if p.node.name == node {
			return p
		}
	}
	return nil
}

// len returns how many pairs the volume has.
func (v *volumeEntry[V, N, P]) len() int {
	n := 0
	if v.first.node != nil {
		n++
	}
	if v.more != nil {
		n += len(v.more.list) + len(v.more.byNode)
	}
	return n
}

// each calls visit for every pair of the volume, in no order.
func (v *volumeEntry[V, N, P]) each(visit func(*pairEntry[V, N, P])) {
	if v.first.node != nil {
		visit(&v.first)
	}
	if v.more == nil {
		return
	}
	for _, p := range v.more.list {
		visit(p)
	}
	for _, p := range v.more.byNode {
		visit(p)
	}
}

// node returns the entry of the node, making it when there is none.
func (x *index[V, N, P]) node(name types.NodeName) (n *nodeEntry[V, N, P], made bool) {
	if n = x.nodes[name]; n != nil {
		return n, false
	}
	n = &nodeEntry[V, N, P]{name: name}
	x.nodes[name] = n
	return n, true
}

// add makes the entry of a pair that has none.
func (x *index[V, N, P]) add(volume v1.UniqueVolumeName, n *nodeEntry[V, N, P]) *pairEntry[V, N, P] {
	v := x.volumes[volume]
	if v == nil {
		v = &volumeEntry[V, N, P]{name: volume}
		x.volumes[volume] = v
	}
	p := &v.first
	if p.node != nil {
		p = new(pairEntry[V, N, P])
		if v.more == nil {
			v.more = new(morePairs[V, N, P])
		}
		v.more.add(n.name, p)
	}
	p.volume, p.node, p.pos = v, n, uint32(len(n.pairs))
	n.pairs = append(n.pairs, p)
	x.pairs++
	return p
}

func (m *morePairs[V, N, P]) add(node types.NodeName, p *pairEntry[V, N, P]) {
	if m.byNode == nil && len(m.list) < scanLimit {
		m.list = append(m.list, p)
		return
	}
	if m.byNode == nil {
		m.byNode = make(map[types.NodeName]*pairEntry[V, N, P], 2*scanLimit)
		for _, q := range m.list {
			m.byNode[q.node.name] = q
		}
		m.list = nil
	}
	m.byNode[node] = p
}

// remove takes the pair out, and its volume when this was the last one. The node's entry stays.
func (x *index[V, N, P]) remove(p *pairEntry[V, N, P]) {
	v, n := p.volume, p.node

	last := len(n.pairs) - 1
	n.pairs[p.pos] = n.pairs[last]
	n.pairs[p.pos].pos = p.pos
	n.pairs[last] = nil
	n.pairs = n.pairs[:last]
	if last == 0 {
		n.pairs = nil
	}

	if p != &v.first {
		v.more.remove(p)
		if len(v.more.list)+len(v.more.byNode) == 0 {
			v.more = nil
		}
	}
	*p = pairEntry[V, N, P]{}
	if v.first.node == nil && v.more == nil {
		delete(x.volumes, v.name)
	}
	x.pairs--
}

func (m *morePairs[V, N, P]) remove(p *pairEntry[V, N, P]) {
	if m.byNode != nil {
		delete(m.byNode, p.node.name)
		return
	}
	for i, q := range m.list {
		if q == p {
			last := len(m.list) - 1
			m.list[i] = m.list[last]
			m.list[last] = nil
			m.list = m.list[:last]
			return
		}
	}
}

// walk calls visit for every pair under the read lock, and pause without it after each chunk and at the end; it stops when
// pause returns false. A pair that is there from beginning to end is visited exactly once; one that is added or removed
// meanwhile, or removed and added again, may or may not be.
func (x *index[V, N, P]) walk(mu *sync.RWMutex, visit func(*pairEntry[V, N, P]), pause func() bool) {
	seen := 0
	mu.RLock()
	// Ranging over a map while others change it is sound as long as no two accesses happen at once, and the lock sees to
	// that. Volumes are visited as a whole, but for those with a map of pairs, where the same holds for that map.
	for _, v := range x.volumes {
		if v.first.node != nil {
			visit(&v.first)
			seen++
		}
		if m := v.more; m != nil {
			for _, p := range m.list {
				visit(p)
			}
			seen += len(m.list)
			for _, p := range m.byNode {
				visit(p)
				if seen++; seen >= chunkSize {
					mu.RUnlock()
					if !pause() {
						return
					}
					seen = 0
					mu.RLock()
				}
			}
		}
		if seen >= chunkSize {
			mu.RUnlock()
			if !pause() {
				return
			}
			seen = 0
			mu.RLock()
		}
	}
	mu.RUnlock()
	pause()
}

// walkNode is walk for the pairs of one node.
func (x *index[V, N, P]) walkNode(mu *sync.RWMutex, node types.NodeName, visit func(*pairEntry[V, N, P]), pause func() bool) {
	mu.RLock()
	n := x.nodes[node]
	if n == nil {
		mu.RUnlock()
		return
	}
	if len(n.pairs) <= chunkSize {
		for _, p := range n.pairs {
			visit(p)
		}
		mu.RUnlock()
		pause()
		return
	}
	// Removing a pair moves another one in the list, so a long list is copied: that is fast, even if it is very long.
	pairs := append([]*pairEntry[V, N, P](nil), n.pairs...)
	for seen := 0; ; {
		for end := min(seen+chunkSize, len(pairs)); seen < end; seen++ {
			if pairs[seen].node == n { // else it is removed
				visit(pairs[seen])
			}
		}
		mu.RUnlock()
		if !pause() || seen == len(pairs) {
			return
		}
		mu.RLock()
	}
}

// walkNodes yields the names of the nodes that match. It never holds the lock for longer than a chunk, and not while yielding.
func walkNodes[V, N, P any](mu *sync.RWMutex, nodes map[types.NodeName]*nodeEntry[V, N, P], match func(*nodeEntry[V, N, P]) bool, yield func(types.NodeName) bool) {
	chunk := make([]types.NodeName, 0, chunkSize)
	flush := func() bool {
		for _, name := range chunk {
			if !yield(name) {
				return false
			}
		}
		chunk = chunk[:0]
		return true
	}
	seen := 0
	mu.RLock()
	for name, n := range nodes {
		if match(n) {
			chunk = append(chunk, name)
		}
		if seen++; seen%chunkSize == 0 {
			mu.RUnlock()
			if !flush() {
				return
			}
			mu.RLock()
		}
	}
	mu.RUnlock()
	flush()
}

// check compares both sides of the index.
func (x *index[V, N, P]) check() error {
	pairs := 0
	for name, v := range x.volumes {
		if v.name != name {
			return fmt.Errorf("volume %q is kept under the name %q", v.name, name)
		}
		if v.len() == 0 {
			return fmt.Errorf("volume %q is kept without a pair", name)
		}
		if m := v.more; m != nil && (m.list != nil) == (m.byNode != nil) {
			return fmt.Errorf("volume %q: further pairs are in a list of %d and a map of %d", name, len(m.list), len(m.byNode))
		}
		var err error
		v.each(func(p *pairEntry[V, N, P]) {
			pairs++
			n := p.node
			switch {
			case p.volume != v:
				err = fmt.Errorf("volume %q has a pair of volume %q", name, p.volume.name)
			case x.nodes[n.name] != n:
				err = fmt.Errorf("volume %q has a pair on node %q, which is not kept", name, n.name)
			case int(p.pos) >= len(n.pairs) || n.pairs[p.pos] != p:
				err = fmt.Errorf("node %q lacks its pair with volume %q", n.name, name)
			case v.pair(n.name) != p:
				err = fmt.Errorf("volume %q: its pair on node %q is not found", name, n.name)
			}
		})
		if err != nil {
			return err
		}
	}
	byNode := 0
	for name, n := range x.nodes {
		if n.name != name {
			return fmt.Errorf("node %q is kept under the name %q", n.name, name)
		}
		byNode += len(n.pairs)
	}
	if pairs != x.pairs || byNode != x.pairs {
		return fmt.Errorf("%d pairs are counted, %d found by volume, %d by node", x.pairs, pairs, byNode)
	}
	return nil
}
