package cache

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	// chunkSize is how many entries a read of everything copies before it gives the lock away for a moment,
	// so that a write waits for some ten microseconds and not for the whole read.
	chunkSize = 128
	// scanLimit is how many pairs of one volume, beyond the first, are found by looking through a list. A map
	// takes over above it: a shared volume may be on thousands of nodes.
	scanLimit = 8
	// sortLimit is up to how many pairs of a node are put in order under the lock, and kept in that order.
	sortLimit = 512
)

// index keeps pairs and finds them from both sides: V, N and P are what the world keeps for a volume, a node
// and a pair.
//
//	volumes: name -> volumeEntry -> its pairs (the first inside the entry, as most volumes have one)
//	nodes:   name -> nodeEntry   -> its pairs
//
// A pair's entry never moves while the pair exists. Volume entries live as long as they have a pair; how long
// node entries live is up to the world. The index has no lock: it is guarded by the one of its world.
type index[V, N, P any] struct {
	volumes volumeTable[V, N, P]
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
	// byVolume is pairs in order; nil until somebody asks for it, and after each change of pairs. Readers
	// share it.
	byVolume atomic.Pointer[[]*pairEntry[V, N, P]]
	data     N
}

type pairEntry[V, N, P any] struct {
	volume *volumeEntry[V, N, P]
	node   *nodeEntry[V, N, P] // nil once the pair is removed
	data   P
	pos    uint32 // in node.pairs
}

// morePairs are a volume's pairs beyond the first: a list, or a map once there were more than scanLimit.
type morePairs[V, N, P any] struct {
	list   []*pairEntry[V, N, P]
	byNode map[types.NodeName]*pairEntry[V, N, P]
}

func newIndex[V, N, P any]() index[V, N, P] {
	return index[V, N, P]{
		volumes: newVolumeTable[V, N, P](),
		nodes:   make(map[types.NodeName]*nodeEntry[V, N, P]),
	}
}

// pair returns the entry of the pair, or nil.
func (x *index[V, N, P]) pair(volume v1.UniqueVolumeName, node types.NodeName) *pairEntry[V, N, P] {
	v := x.volumes.get(volume)
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
	v := x.volumes.get(volume)
	if v == nil {
		v = &volumeEntry[V, N, P]{name: volume}
		x.volumes.add(v)
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
	n.byVolume.Store(nil)
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
	n.byVolume.Store(nil)

	if p != &v.first {
		v.more.remove(p)
		if len(v.more.list)+len(v.more.byNode) == 0 {
			v.more = nil
		}
	}
	*p = pairEntry[V, N, P]{}
	if v.first.node == nil && v.more == nil {
		x.volumes.remove(v)
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

// sorted returns the pairs of the node by volume, for reading only. It needs the read lock, and is valid
// while that is held. ok is false when there are too many to sort them under a lock.
func (n *nodeEntry[V, N, P]) sorted() (pairs []*pairEntry[V, N, P], ok bool) {
	if known := n.byVolume.Load(); known != nil {
		return *known, true
	}
	if len(n.pairs) > sortLimit {
		return nil, false
	}
	return n.sort(), true
}

func (n *nodeEntry[V, N, P]) sort() []*pairEntry[V, N, P] {
	pairs := slices.Clone(n.pairs)
	slices.SortFunc(pairs, func(a, b *pairEntry[V, N, P]) int { return cmp.Compare(a.volume.name, b.volume.name) })
	n.byVolume.Store(&pairs)
	return pairs
}

// walk calls visit for every pair under the read lock, and pause without it after each chunk and at the end;
// it stops when pause returns false. A pair that is there from beginning to end is visited exactly once; one
// that is added or removed meanwhile, or removed and added again, may or may not be.
func (x *index[V, N, P]) walk(mu *sync.RWMutex, visit func(*pairEntry[V, N, P]), pause func() bool) {
	seen := 0
	mu.RLock()
	// Ranging over a map while others change it is sound as long as no two accesses happen at once, and the
	// lock sees to that.
	for _, n := range x.nodes {
		if seen += 1 + len(n.pairs); seen > chunkSize {
			seen = 1 + len(n.pairs)
			mu.RUnlock()
			if !pause() {
				return
			}
			mu.RLock()
		}
		if !n.walk(mu, visit, pause) {
			return
		}
	}
	mu.RUnlock()
	pause()
}

// walkPairs yields every pair, node by node in the order of their names, by the rules of walk.
func (x *index[V, N, P]) walkPairs(mu *sync.RWMutex, yield func(Pair) bool) {
	chunk := make([]Pair, 0, chunkSize)
	visit := func(p *pairEntry[V, N, P]) { chunk = append(chunk, Pair{Volume: p.volume.name, Node: p.node.name}) }
	pause := func() bool { return flush(&chunk, yield) }
	for _, name := range sortedNodes(mu, x.nodes, func(*nodeEntry[V, N, P]) bool { return true }) {
		mu.RLock()
		if n := x.nodes[name]; n != nil && !n.walk(mu, visit, pause) {
			return
		}
		mu.RUnlock()
		if len(chunk) >= chunkSize && !pause() {
			return
		}
	}
	pause()
}

// touch reads every pair of the node once. The reads do not depend on each other, so that the processor has
// many of them under way at a time, while a loop that does more with each pair waits for one after the other.
// In a world that is larger than the processor's caches that halves the time of a walk.
//
//go:noinline
func (n *nodeEntry[V, N, P]) touch() (sum uint32) {
	for _, p := range n.pairs {
		if p.volume != nil { // the first part of the entry
			sum += p.pos // and its last
		}
	}
	return sum
}

// walk is index.walk for one node. It is called with the read lock and returns with it, unless pause returned
// false.
func (n *nodeEntry[V, N, P]) walk(mu *sync.RWMutex, visit func(*pairEntry[V, N, P]), pause func() bool) bool {
	if len(n.pairs) <= chunkSize {
		n.touch()
		for _, p := range n.pairs {
			visit(p)
		}
		return true
	}
	// Removing a pair moves another one in the list, so a long list is copied; that is fast, even if it is
	// very long.
	pairs := slices.Clone(n.pairs)
	for i, p := range pairs {
		if i > 0 && i%chunkSize == 0 {
			mu.RUnlock()
			if !pause() {
				return false
			}
			mu.RLock()
		}
		if p.node == n { // else it was removed meanwhile
			visit(p)
		}
	}
	return true
}

// sortedNodes returns the names of the nodes that match. It never holds the lock for longer than a chunk. A node that is
// there from beginning to end is among them.
func sortedNodes[V, N, P any](mu *sync.RWMutex, nodes map[types.NodeName]*nodeEntry[V, N, P], match func(*nodeEntry[V, N, P]) bool) []types.NodeName {
	mu.RLock()
	names := make([]types.NodeName, 0, len(nodes))
	seen := 0
	for name, n := range nodes {
		if match(n) {
			names = append(names, name)
		}
		if seen++; seen%chunkSize == 0 {
			mu.RUnlock()
			mu.RLock()
		}
	}
	mu.RUnlock()
	slices.Sort(names)
	return names
}

// check compares both sides of the index.
func (x *index[V, N, P]) check() error {
	err := x.volumes.check()
	pairs := 0
	x.volumes.each(func(v *volumeEntry[V, N, P]) bool {
		if err == nil {
			err = x.checkVolume(v)
		}
		pairs += v.len()
		return err == nil
	})
	if err != nil {
		return err
	}
	byNode := 0
	for name, n := range x.nodes {
		if n.name != name {
			return fmt.Errorf("node %q is kept under the name %q", n.name, name)
		}
		byNode += len(n.pairs)
		if sorted := n.byVolume.Load(); sorted != nil && len(*sorted) != len(n.pairs) {
			return fmt.Errorf("node %q has %d pairs, sorted are %d", name, len(n.pairs), len(*sorted))
		}
	}
	if pairs != x.pairs || byNode != x.pairs {
		return fmt.Errorf("%d pairs are counted, %d found by volume, %d by node", x.pairs, pairs, byNode)
	}
	return nil
}

func (x *index[V, N, P]) checkVolume(v *volumeEntry[V, N, P]) (err error) {
	if v.len() == 0 {
		return fmt.Errorf("volume %q is kept without a pair", v.name)
	}
	if m := v.more; m != nil && (m.list != nil) == (m.byNode != nil) {
		return fmt.Errorf("volume %q: further pairs are in a list of %d and a map of %d", v.name, len(m.list), len(m.byNode))
	}
	v.each(func(p *pairEntry[V, N, P]) {
		n := p.node
		switch {
		case p.volume != v:
			err = fmt.Errorf("volume %q has a pair of volume %q", v.name, p.volume.name)
		case x.nodes[n.name] != n:
			err = fmt.Errorf("volume %q has a pair on node %q, which is not kept", v.name, n.name)
		case int(p.pos) >= len(n.pairs) || n.pairs[p.pos] != p:
			err = fmt.Errorf("node %q lacks its pair with volume %q", n.name, v.name)
		case v.pair(n.name) != p:
			err = fmt.Errorf("volume %q: its pair on node %q is not found", v.name, n.name)
		}
	})
	return err
}
