package executor

import "k8s.io/apimachinery/pkg/types"

// slots hands out a limited number of slots: first come, first served within a node, and in turns over the nodes, so
// that a node with a long queue delays no other. It has no lock of its own.
//
// Invariant: while a node is in ready, every slot is taken. So an operation that finds a slot free overtakes nobody.
type slots struct {
	max     int // 0: no cap
	perNode int // 0: no cap; operations without a node are never capped by it
	running int
	nodes   map[types.NodeName]*nodeSlots // those with something running or queued
	ready   list[nodeSlots]               // those with a queue and room, in the order of their turns
}

type nodeSlots struct {
	node    types.NodeName
	running int
	queue   list[operation]
	isReady bool
	turns   links[nodeSlots]
}

func queueLinks(op *operation) *links[operation] { return &op.queue }
func turnLinks(n *nodeSlots) *links[nodeSlots]   { return &n.turns }

// newSlots returns nil, which stands for slots without end, when there is no cap.
func newSlots(limit, perNode int) *slots {
	if limit <= 0 && perNode <= 0 {
		return nil
	}
	return &slots{max: limit, perNode: perNode, nodes: map[types.NodeName]*nodeSlots{}}
}

func (s *slots) room(n *nodeSlots) bool {
	return s.perNode <= 0 || n.node == "" || n.running < s.perNode
}

func (s *slots) free() bool { return s.max <= 0 || s.running < s.max }

// acquire takes a slot for op and returns true, or puts op into the queue of its node.
func (s *slots) acquire(op *operation) bool {
	n := s.nodes[op.Node]
	if n == nil {
		n = &nodeSlots{node: op.Node}
		s.nodes[op.Node] = n
	}
	if s.room(n) && s.free() {
		n.running++
		s.running++
		return true
	}
	n.queue.push(op, queueLinks)
	s.settle(n)
	return false
}

// release gives the slot of op back, and returns the queued operation that has it now, or nil.
func (s *slots) release(op *operation) *operation {
	n := s.nodes[op.Node]
	n.running--
	s.running--
	s.settle(n)
	if !s.free() {
		return nil
	}
	turn := s.ready.pop(turnLinks)
	if turn == nil {
		return nil
	}
	turn.isReady = false
	next := turn.queue.pop(queueLinks)
	turn.running++
	s.running++
	s.settle(turn)
	return next
}

// drop takes op out of the queue it waits in.
func (s *slots) drop(op *operation) {
	n := s.nodes[op.Node]
	n.queue.remove(op, queueLinks)
	s.settle(n)
}

// settle puts n in or out of ready, and forgets it when nothing of it is left.
func (s *slots) settle(n *nodeSlots) {
	ready := n.queue.n > 0 && s.room(n)
	switch {
	case ready && !n.isReady:
		s.ready.push(n, turnLinks)
	case !ready && n.isReady:
		s.ready.remove(n, turnLinks)
	}
	n.isReady = ready
	if n.running == 0 && n.queue.n == 0 {
		delete(s.nodes, n.node)
	}
}
