package cache

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"
)

// TestActualStateOfWorldIsItsModel compares every answer with the obvious implementation, after each step of
// random histories. Among much else it shows that report(node) holds only what is Attached (U3,
// kubernetes/kubernetes#109951).
func TestActualStateOfWorldIsItsModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := newActualRun()
		node := func(t *rapid.T) types.NodeName { return rapid.SampledFrom(r.nodes).Draw(t, "node") }
		handle := func(t *rapid.T) string { return rapid.SampledFrom(r.handles).Draw(t, "volume") }
		pair := func(t *rapid.T) Pair { return pairOf(handle(t), node(t)) }
		path := func(t *rapid.T) string { return rapid.SampledFrom([]string{"", "/dev/x", "/dev/y"}).Draw(t, "path") }
		yes := func(t *rapid.T, what string) bool { return rapid.Bool().Draw(t, what) }
		epoch := func(t *rapid.T, p Pair) uint64 { // of the pair, or another one
			if yes(t, "current") {
				return r.world.Epoch(p.Volume, p.Node)
			}
			return rapid.Uint64Range(0, 50).Draw(t, "epoch")
		}
		addVolumeNode := func(t require.TestingT, handle string, node types.NodeName, path string) {
			spec, p := pvSpec(handle), pairOf(handle, node)
			name, err := r.world.AddVolumeNode(spec, node, path)
			require.NoError(t, err)
			require.Equal(t, p.Volume, name)
			if a := r.model.pairs[p]; a.State == Attached && path == "" {
				path = a.DevicePath
			}
			r.model.set(p, Attached, spec, path)
		}
		t.Repeat(map[string]func(*rapid.T){
			"AddVolumeNode": func(t *rapid.T) {
				h, n, path := handle(t), node(t), path(t)
				r.step(t, func() { addVolumeNode(t, h, n, path) })
			},
			"AddVolumeNode everywhere": func(t *rapid.T) {
				h, path := handle(t), path(t)
				r.step(t, func() {
					for _, n := range r.nodes {
						addVolumeNode(t, h, n, path)
					}
					r.told.seen, r.toldReports.seen = dedup(r.told.seen), dedup(r.toldReports.seen)
				})
			},
			"MarkVolumeAsAttached": func(t *rapid.T) {
				p, path := pair(t), path(t)
				var spec *VolumeSpec
				if yes(t, "with spec") {
					spec = pvSpec("v")
				}
				r.step(t, func() {
					require.NoError(t, r.world.MarkVolumeAsAttached(p.Volume, spec, p.Node, path))
					r.model.set(p, Attached, spec, path)
					a := r.model.pairs[p]
					a.DetachRequestedTime, a.Reported = time.Time{}, true
					r.model.pairs[p] = a
				})
			},
			"MarkVolumeAsUncertain": func(t *rapid.T) {
				p := pair(t)
				var spec *VolumeSpec
				if yes(t, "with spec") {
					spec = pvSpec("v")
				}
				r.step(t, func() {
					require.NoError(t, r.world.MarkVolumeAsUncertain(p.Volume, spec, p.Node))
					r.model.set(p, Uncertain, spec, r.model.pairs[p].DevicePath)
				})
			},
			"MarkUncertainIfEpoch": func(t *rapid.T) {
				p := pair(t)
				e := epoch(t, p)
				r.step(t, func() {
					same := e == r.world.Epoch(p.Volume, p.Node)
					require.Equal(t, same, r.world.MarkUncertainIfEpoch(p.Volume, p.Node, e))
					if same {
						r.model.set(p, Uncertain, nil, r.model.pairs[p].DevicePath)
					}
				})
			},
			"MarkDetachedIfEpoch": func(t *rapid.T) {
				p := pair(t)
				e := epoch(t, p)
				r.step(t, func() {
					same := e == r.world.Epoch(p.Volume, p.Node)
					require.Equal(t, same, r.world.MarkDetachedIfEpoch(p.Volume, p.Node, e))
					if same {
						delete(r.model.pairs, p)
					}
				})
			},
			"DeleteVolumeNode": func(t *rapid.T) {
				p := pair(t)
				r.step(t, func() { r.world.DeleteVolumeNode(p.Volume, p.Node); delete(r.model.pairs, p) })
			},
			"SetVolumesMountedByNode": func(t *rapid.T) {
				n := node(t)
				var volumes []v1.UniqueVolumeName
				for _, h := range rapid.SliceOfN(rapid.SampledFrom(r.handles), 0, 4).Draw(t, "volumes") {
					volumes = append(volumes, volumeName(h))
				}
				r.step(t, func() { r.setInUse(n, volumes) })
			},
			"SetVolumeMountedByNode": func(t *rapid.T) {
				p, mounted := pair(t), yes(t, "mounted")
				r.step(t, func() { r.setMounted(t, p, mounted) })
			},
			"SetNodeHealth": func(t *rapid.T) {
				n := node(t)
				health := NodeHealth{
					Ready:        rapid.SampledFrom([]v1.ConditionStatus{"", v1.ConditionTrue, v1.ConditionFalse}).Draw(t, "ready"),
					OutOfService: yes(t, "out of service"),
					Deleted:      rapid.IntRange(0, 4).Draw(t, "deleted") == 0,
				}
				r.step(t, func() { r.setHealth(n, health) })
			},
			"DeleteNode": func(t *rapid.T) { n := node(t); r.step(t, func() { r.deleteNode(n) }) },
			"SetDetachRequestTime": func(t *rapid.T) {
				p := pair(t)
				r.step(t, func() { r.setDetachRequest(t, p) })
			},
			"ResetDetachRequestTime": func(t *rapid.T) {
				p := pair(t)
				r.step(t, func() {
					r.world.ResetDetachRequestTime(p.Volume, p.Node)
					if a, ok := r.model.pairs[p]; ok {
						a.DetachRequestedTime = time.Time{}
						r.model.pairs[p] = a
					}
				})
			},
			"report membership": func(t *rapid.T) {
				p, reported := pair(t), yes(t, "reported")
				r.step(t, func() { r.setReported(t, p, reported) })
			},
			"hand out": func(t *rapid.T) {
				n := rapid.SampledFrom(append([]types.NodeName{""}, r.nodes...)).Draw(t, "node, or all")
				r.step(t, func() { r.handOut(t, n) })
			},
			"SetNodeStatusUpdateNeeded": func(t *rapid.T) {
				n := node(t)
				r.step(t, func() {
					r.world.SetNodeStatusUpdateNeeded(n)
					r.model.forced[n] = r.model.exists(n)
				})
			},
			"ResetNodeStatusUpdateNeeded": func(t *rapid.T) {
				n := node(t)
				r.step(t, func() {
					if err := r.world.ResetNodeStatusUpdateNeeded(n); r.model.exists(n) || r.model.dirty[n] {
						require.NoError(t, err)
					} else {
						require.ErrorIs(t, err, ErrNodeUnknown)
					}
					delete(r.model.dirty, n)
				})
			},
			"time passes": func(t *rapid.T) {
				r.model.now = r.model.now.Add(time.Duration(rapid.IntRange(1, 1000).Draw(t, "seconds")) * time.Second)
				r.clock.SetTime(r.model.now)
			},
		})
		r.removeEverything(t)
		require.Zero(t, r.world.Sizes())
	})
}
