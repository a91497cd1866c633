package cache

import (
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"
)

// TestWalkGivesTheLockAwayAfterEachChunk shows that no read of everything holds the lock for more than a
// chunk of entries, whatever the shape of the world: a write waits for one chunk.
func TestWalkGivesTheLockAwayAfterEachChunk(t *testing.T) {
	for _, tc := range []struct{ nodes, volumesPerNode int }{
		{0, 0}, {1, 1}, {1, chunkSize}, {1, chunkSize + 1}, {1, 5*chunkSize + 3}, {100, 30}, {3, chunkSize - 1}, {2 * chunkSize, 1}, {7, 2*chunkSize + 1}, {1000, 0},
	} {
		t.Run(fmt.Sprintf("%d nodes of %d", tc.nodes, tc.volumesPerNode), func(t *testing.T) {
			x := newIndex[struct{}, struct{}, struct{}]()
			for n := range tc.nodes {
				node, _ := x.node(types.NodeName(fmt.Sprintf("node-%d", n)))
				for v := range tc.volumesPerNode {
					x.add(v1.UniqueVolumeName(fmt.Sprintf("vol-%d-%d", n, v)), node)
				}
			}
			require.NoError(t, x.check())
			var mu sync.RWMutex
			visited, inChunk, longest := map[Pair]int{}, 0, 0
			x.walk(&mu, func(p *pairEntry[struct{}, struct{}, struct{}]) {
				visited[Pair{p.volume.name, p.node.name}]++
				inChunk++
			}, func() bool {
				require.True(t, mu.TryLock(), "the lock is held")
				mu.Unlock()
				longest, inChunk = max(longest, inChunk), 0
				return true
			})
			require.True(t, mu.TryLock(), "the lock is held at the end")
			require.Zero(t, inChunk, "the last chunk was not handed over")
			require.LessOrEqual(t, longest, chunkSize)
			require.Len(t, visited, tc.nodes*tc.volumesPerNode)
			for pair, times := range visited {
				require.Equal(t, 1, times, pair)
			}
		})
	}
}

// TestWalkVisitsWhatStaysExactlyOnce changes the world within each pause of a walk.
func TestWalkVisitsWhatStaysExactlyOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x := newIndex[struct{}, struct{}, struct{}]()
		type entry = pairEntry[struct{}, struct{}, struct{}]
		nodes := rapid.IntRange(1, 20).Draw(t, "nodes")
		volumes := rapid.IntRange(1, 300).Draw(t, "volumes")
		pairOf := func(i int) Pair {
			return Pair{v1.UniqueVolumeName(fmt.Sprintf("vol-%d", i/nodes%volumes)), types.NodeName(fmt.Sprintf("node-%d", i%nodes))}
		}
		toggle := func(i int) {
			pair := pairOf(i)
			if p := x.pair(pair.Volume, pair.Node); p != nil {
				n := p.node
				x.remove(p)
				if len(n.pairs) == 0 {
					delete(x.nodes, n.name)
				}
				return
			}
			node, _ := x.node(pair.Node)
			x.add(pair.Volume, node)
		}
		for i := range nodes * volumes {
			if i%3 != 0 {
				toggle(i)
			}
		}
		stayed := map[Pair]bool{}
		for i := range nodes * volumes {
			stayed[pairOf(i)] = i%3 != 0
		}
		var mu sync.RWMutex
		visited := map[Pair]int{}
		x.walk(&mu, func(p *entry) { visited[Pair{p.volume.name, p.node.name}]++ }, func() bool {
			for _, i := range rapid.SliceOfN(rapid.IntRange(0, nodes*volumes-1), 0, 200).Draw(t, "changes") {
				toggle(i)
				delete(stayed, pairOf(i))
			}
			return true
		})
		require.NoError(t, x.check())
		for pair, there := range stayed {
			want := 0
			if there {
				want = 1
			}
			require.Equal(t, want, visited[pair], pair)
		}
	})
}

// TestSharedVolumeIsFoundByMapAboveTheScanLimit walks a volume up to thousands of nodes and down again.
func TestSharedVolumeIsFoundByMapAboveTheScanLimit(t *testing.T) {
	x := newIndex[struct{}, struct{}, struct{}]()
	node := func(i int) types.NodeName { return types.NodeName(fmt.Sprintf("node-%d", i)) }
	const many = 5000
	for i := range many {
		n, _ := x.node(node(i))
		x.add("shared", n)
		v := x.volumes.get("shared")
		require.Equal(t, i+1, v.len())
		if i > scanLimit {
			require.Nil(t, v.more.list)
			require.Len(t, v.more.byNode, i)
		}
	}
	require.NoError(t, x.check())
	for i := range many {
		p := x.pair("shared", node(i))
		require.Equal(t, node(i), p.node.name)
		x.remove(p)
		require.Nil(t, x.pair("shared", node(i)))
	}
	require.NoError(t, x.check())
	require.Zero(t, x.pairs)
	require.Zero(t, x.volumes.len)
}
