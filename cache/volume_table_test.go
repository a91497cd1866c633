package cache

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"
)

// TestVolumeTableIsAMap compares the table with a map while it grows and shrinks.
func TestVolumeTableIsAMap(t *testing.T) {
	type entry = volumeEntry[struct{}, struct{}, struct{}]
	rapid.Check(t, func(t *rapid.T) {
		table := newVolumeTable[struct{}, struct{}, struct{}]()
		model := map[v1.UniqueVolumeName]*entry{}
		name := func(i int) v1.UniqueVolumeName { return v1.UniqueVolumeName(fmt.Sprintf("vol-%d", i)) }
		check := func() {
			require.NoError(t, table.check())
			require.Equal(t, len(model), table.len)
		}
		const names = 1500
		t.Repeat(map[string]func(*rapid.T){
			"add or remove a range": func(t *rapid.T) {
				from := rapid.IntRange(0, names-1).Draw(t, "from")
				to := rapid.IntRange(from, names).Draw(t, "to")
				step := rapid.IntRange(1, 7).Draw(t, "step")
				add := rapid.Bool().Draw(t, "add")
				for i := from; i < to; i += step {
					e, exists := model[name(i)]
					if table.get(name(i)) != e {
						require.Same(t, e, table.get(name(i)))
					}
					switch {
					case add && !exists:
						e = &entry{name: name(i)}
						model[e.name] = e
						table.add(e)
					case !add && exists:
						delete(model, e.name)
						table.remove(e)
					}
				}
				check()
			},
			"": func(t *rapid.T) {
				i := rapid.IntRange(0, names).Draw(t, "look for")
				require.Same(t, model[name(i)], table.get(name(i)))
			},
		})
		for _, e := range model {
			table.remove(e)
			delete(model, e.name)
		}
		check()
		for i := range table.shards {
			require.Nil(t, table.shards[i].slots, "memory was not given back")
		}
	})
}
