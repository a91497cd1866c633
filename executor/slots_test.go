package executor

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"
)

func slotOp(node types.NodeName, name string) *operation {
	return &operation{Operation: Operation{Name: name, Node: node}}
}

func TestSlotsTakeNodesInTurnsAndEachInOrder(t *testing.T) {
	s := newSlots(1, 0)
	first := slotOp("a", "a0")
	require.True(t, s.acquire(first))
	for _, op := range []*operation{
		slotOp("a", "a1"), slotOp("a", "a2"), slotOp("a", "a3"), slotOp("b", "b1"), slotOp("c", "c1"), slotOp("b", "b2"),
	} {
		require.False(t, s.acquire(op))
	}
	var order []string
	for op := s.release(first); op != nil; op = s.release(op) {
		order = append(order, op.Name)
	}
	require.Equal(t, []string{"a1", "b1", "c1", "a2", "b2", "a3"}, order)
	require.Empty(t, s.nodes)
}

func TestANodeAtItsCapDoesNotHoldUpOthers(t *testing.T) {
	s := newSlots(3, 1)
	a0, b0 := slotOp("a", "a0"), slotOp("b", "b0")
	require.True(t, s.acquire(a0))
	require.False(t, s.acquire(slotOp("a", "a1")))
	require.True(t, s.acquire(b0), "a waits for its own node, not for a slot")
	require.Nil(t, s.release(b0), "a is still at its cap")
	require.Equal(t, "a1", s.release(a0).Name)
}

func TestOperationsWithoutNodeHaveNoNodeCap(t *testing.T) {
	s := newSlots(0, 1)
	require.True(t, s.acquire(slotOp("", "x")))
	require.True(t, s.acquire(slotOp("", "y")))
}

func TestNoCapNeedsNoSlots(t *testing.T) {
	require.Nil(t, newSlots(0, 0))
	require.Nil(t, newSlots(-1, 0))
}

// Caps hold, no slot stays free while something that may have it waits, and within a node nobody overtakes.
func TestSlotsAreNeitherExceededNorWasted(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit, perNode := rapid.IntRange(0, 4).Draw(t, "max"), rapid.IntRange(0, 3).Draw(t, "perNode")
		if limit == 0 && perNode == 0 {
			perNode = 1
		}
		s := newSlots(limit, perNode)
		var running, queued []*operation
		count := func(ops []*operation, node types.NodeName) (n int) {
			for _, op := range ops {
				if op.Node == node {
					n++
				}
			}
			return n
		}
		number := 0
		release := func(i int) {
			op := running[i]
			running = append(running[:i:i], running[i+1:]...)
			next := s.release(op)
			if next == nil {
				return
			}
			for j, q := range queued {
				if q.Node == next.Node {
					require.Same(t, q, next, "the oldest of its node")
					queued = append(queued[:j:j], queued[j+1:]...)
					break
				}
			}
			running = append(running, next)
		}
		t.Repeat(map[string]func(*rapid.T){
			"acquire": func(t *rapid.T) {
				number++
				op := slotOp(types.NodeName(rapid.SampledFrom([]string{"", "a", "b", "c"}).Draw(t, "node")), fmt.Sprint(number))
				if s.acquire(op) {
					running = append(running, op)
				} else {
					queued = append(queued, op)
				}
			},
			"release": func(t *rapid.T) {
				if len(running) == 0 {
					t.Skip("nothing runs")
				}
				release(rapid.IntRange(0, len(running)-1).Draw(t, "which"))
			},
			"drop": func(t *rapid.T) {
				if len(queued) == 0 {
					t.Skip("nothing waits")
				}
				i := rapid.IntRange(0, len(queued)-1).Draw(t, "which")
				s.drop(queued[i])
				queued = append(queued[:i:i], queued[i+1:]...)
			},
			"": func(t *rapid.T) {
				require.Equal(t, len(running), s.running)
				require.True(t, limit == 0 || len(running) <= limit)
				for _, node := range []types.NodeName{"", "a", "b", "c"} {
					full := perNode > 0 && node != "" && count(running, node) >= perNode
					require.True(t, perNode == 0 || node == "" || count(running, node) <= perNode)
					if count(queued, node) > 0 {
						require.True(t, full || limit > 0 && len(running) == limit, "a slot is wasted")
					}
				}
			},
		})
		for len(running) > 0 {
			release(0)
		}
		require.Empty(t, queued)
		require.Empty(t, s.nodes)
		require.Zero(t, s.ready.n)
	})
}
