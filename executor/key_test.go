package executor

import (
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/stateofworld/stateofworld/cache"
)

func TestKeysOverlapWhenNoPartTellsThemApart(t *testing.T) {
	for _, c := range []struct {
		name string
		a, b Key
		want bool
	}{
		{"the same", Key{"v", "p", "n"}, Key{"v", "p", "n"}, true},
		{"other volume", Key{"v", "", ""}, Key{"w", "", ""}, false},
		{"volume-wide and node", Key{"v", "", ""}, Key{"v", "", "n"}, true},
		{"volume-wide and pod", Key{"v", "", ""}, Key{"v", "p", ""}, true},
		{"volume-wide and pod on node", Key{"v", "", ""}, Key{"v", "p", "n"}, true},
		{"two nodes", Key{"v", "", "n"}, Key{"v", "", "m"}, false},
		{"two pods", Key{"v", "p", ""}, Key{"v", "q", ""}, false},
		{"pod anywhere, and any pod on a node", Key{"v", "p", ""}, Key{"v", "", "n"}, true},
		{"same pod on two nodes", Key{"v", "p", "n"}, Key{"v", "p", "m"}, false},
		{"two pods on a node", Key{"v", "p", "n"}, Key{"v", "q", "n"}, false},
		{"no volume is not any volume", Key{"", "", "n"}, Key{"v", "", "n"}, false},
		{"no volume, same node", Key{"", "", "n"}, Key{"", "", "n"}, true},
		{"no volume, two nodes", Key{"", "", "n"}, Key{"", "", "m"}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			require.Equal(t, c.want, c.a.Overlaps(c.b))
			require.Equal(t, c.want, c.b.Overlaps(c.a))
		})
	}
}

func TestKeyNamesItsParts(t *testing.T) {
	require.Equal(t, `volume "v", pod "p", node "n"`, Key{"v", "p", "n"}.String())
	require.Equal(t, `volume "v"`, Key{Volume: "v"}.String())
	require.Equal(t, "nothing", Key{}.String())
}

// drawKey draws from few names, so that many keys overlap.
func drawKey(t *rapid.T) Key {
	return Key{
		Volume: v1.UniqueVolumeName(rapid.SampledFrom([]string{"", "v", "w"}).Draw(t, "volume")),
		Pod:    cache.UniquePodName(rapid.SampledFrom([]string{"", "p", "q", "r"}).Draw(t, "pod")),
		Node:   types.NodeName(rapid.SampledFrom([]string{"", "a", "b", "c"}).Draw(t, "node")),
	}
}

// The index answers as a scan of all pending operations would.
func TestOverlapIndexAgreesWithAScan(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		index := newOverlapIndex()
		var model []*operation
		scan := func(key Key) (found []*operation) {
			for _, op := range model {
				if op.Key.Overlaps(key) {
					found = append(found, op)
				}
			}
			return found
		}
		t.Repeat(map[string]func(*rapid.T){
			"add": func(t *rapid.T) {
				key := drawKey(t)
				if len(scan(key)) > 0 {
					t.Skip("taken")
				}
				op := &operation{Operation: Operation{Key: key}}
				index.add(op)
				model = append(model, op)
			},
			"remove": func(t *rapid.T) {
				if len(model) == 0 {
					t.Skip("empty")
				}
				i := rapid.IntRange(0, len(model)-1).Draw(t, "which")
				index.remove(model[i])
				model = append(model[:i], model[i+1:]...)
			},
			"": func(t *rapid.T) {
				for _, volume := range []v1.UniqueVolumeName{"", "v", "w"} {
					for _, pod := range []cache.UniquePodName{"", "p", "q", "r"} {
						for _, node := range []types.NodeName{"", "a", "b", "c"} {
							key := Key{volume, pod, node}
							want := scan(key)
							got := index.find(key)
							if len(want) == 0 {
								require.Nil(t, got, "%v", key)
							} else {
								require.Contains(t, want, got, "%v", key)
							}
						}
					}
				}
			},
		})
		for _, op := range model {
			index.remove(op)
		}
		require.Empty(t, index.volumes)
	})
}
