package cache

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"
)

// TestDesiredStateOfWorldIsItsModel compares every answer with the obvious implementation, after each step of
// random histories.
func TestDesiredStateOfWorldIsItsModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := newDesiredRun()
		node := func(t *rapid.T) types.NodeName { return rapid.SampledFrom(r.nodes).Draw(t, "node") }
		pod := func(t *rapid.T) UniquePodName { return rapid.SampledFrom(r.pods).Draw(t, "pod") }
		handle := func(t *rapid.T) string { return rapid.SampledFrom(r.handles).Draw(t, "volume") }
		yes := func(t *rapid.T, what string) bool { return rapid.Bool().Draw(t, what) }
		r.step(t, func() {
			for _, n := range r.nodes[:rapid.IntRange(0, len(r.nodes)).Draw(t, "known nodes")] {
				r.addNode(n)
			}
		})
		t.Repeat(map[string]func(*rapid.T){
			"AddNode":    func(t *rapid.T) { n := node(t); r.step(t, func() { r.addNode(n) }) },
			"DeleteNode": func(t *rapid.T) { n := node(t); r.step(t, func() { r.deleteNode(t, n) }) },
			"AddPod": func(t *rapid.T) {
				p, h, e, n := pod(t), handle(t), yes(t, "exclusive"), node(t)
				r.step(t, func() { r.addPod(t, p, h, e, n) })
			},
			"AddPod everywhere": func(t *rapid.T) {
				p, h, e := pod(t), handle(t), yes(t, "exclusive")
				r.step(t, func() {
					for _, n := range r.nodes {
						r.addPod(t, p, h, e, n)
					}
					r.told.seen = dedup(r.told.seen)
				})
			},
			"DeletePod": func(t *rapid.T) {
				p, h, n := pod(t), handle(t), node(t)
				r.step(t, func() {
					r.world.DeletePod(p, volumeName(h), n)
					r.model.removeUses(func(u modelUse) bool { return u == modelUse{p, pairOf(h, n)} })
				})
			},
			"DeletePodFromAll": func(t *rapid.T) {
				p := pod(t)
				r.step(t, func() { r.world.DeletePodFromAll(p); r.model.removePod(p) })
			},
			"UpdatePod": func(t *rapid.T) {
				u := PodUpdate{Name: pod(t), Node: node(t), Unresolved: yes(t, "unresolved")}
				if yes(t, "replaces") {
					u.Old = pod(t)
				}
				u.Pod = testPod(string(u.Name))
				handles := rapid.SliceOfN(rapid.SampledFrom(r.handles), 0, 3).Draw(t, "volumes")
				e := yes(t, "exclusive")
				r.step(t, func() { r.updatePod(t, u, handles, e) })
			},
			"SetPodUnresolved": func(t *rapid.T) {
				p, n, unresolved := pod(t), node(t), yes(t, "unresolved")
				r.step(t, func() {
					r.world.SetPodUnresolved(p, n, unresolved)
					if unresolved {
						r.model.marks[modelMark{p, n}] = true
					} else {
						delete(r.model.marks, modelMark{p, n})
					}
				})
			},
			"MultiAttachError": func(t *rapid.T) {
				h, n, set := handle(t), node(t), yes(t, "set")
				r.step(t, func() {
					if set {
						r.world.SetMultiAttachError(volumeName(h), n)
					} else {
						r.world.ResetMultiAttachError(volumeName(h), n)
					}
					if wish, ok := r.model.wishes[pairOf(h, n)]; ok {
						wish.multi = set
						r.model.wishes[pairOf(h, n)] = wish
					}
				})
			},
			"time passes": func(t *rapid.T) {
				r.model.now = r.model.now.Add(time.Duration(rapid.IntRange(1, 1000).Draw(t, "seconds")) * time.Second)
				r.clock.SetTime(r.model.now)
			},
		})
		r.step(t, r.clear)
		require.Zero(t, r.world.Sizes())
	})
}
