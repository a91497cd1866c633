package populator

import (
	"fmt"
	"reflect"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/stateofworld/stateofworld/cache"
)

// history is what one object goes through: each version in order, and perhaps its end.
type history struct {
	versions []any
	deleted  bool
}

// drawHistories makes up the objects of an API, each with what it goes through. An object
// only ever gets more complete: that a wish outlives the claim it was resolved through is
// meant to depend on what was there before.
func drawHistories(t *rapid.T) []history {
	var all []history
	choose := func(what string, of ...string) string { return rapid.SampledFrom(of).Draw(t, what) }
	some := func(prefix string, of []string, what string) (list []string) {
		for _, x := range of {
			if rapid.Bool().Draw(t, what) {
				list = append(list, prefix+x)
			}
		}
		return list
	}
	pvs, claims, nodes := []string{"v0", "v1", "v2"}, []string{"c0", "c1", "c2"}, []string{"a", "b", "c"}
	for i, name := range pvs {
		full, early := makePV(name, claims[i]), makePV(name, claims[i])
		early.Spec.ClaimRef = nil
		switch choose("volume "+name, "full", "full", "late", "never claimed", "never", "files") {
		case "full":
			all = append(all, history{versions: []any{full}})
		case "late":
			all = append(all, history{versions: []any{early, full}})
		case "never claimed":
			all = append(all, history{versions: []any{early}})
		case "files":
			full.Spec.CSI.Driver = "files.example.com"
			all = append(all, history{versions: []any{full}})
		}
	}
	for i, name := range claims {
		full, early := makeClaim(name, pvs[i]), makeClaim(name, "")
		early.Status.Phase = v1.ClaimPending
		switch choose("claim "+name, "full", "full", "late", "never bound", "never") {
		case "full":
			all = append(all, history{versions: []any{full}})
		case "late":
			all = append(all, history{versions: []any{early, full}})
		case "never bound":
			all = append(all, history{versions: []any{early}})
		}
	}
	for _, name := range nodes {
		var versions []any
		for i := range rapid.IntRange(0, 3).Draw(t, "versions of node "+name) {
			node := makeNode(name, slices.Concat(some("in-use ", pvs, "in use"), some("attached ", pvs, "attached"))...)
			node.Status.Conditions[0].Status = v1.ConditionStatus(choose("ready", "True", "False"))
			if i == 0 && rapid.IntRange(0, 2).Draw(t, "managed") == 0 {
				node.Annotations = nil
			}
			versions = append(versions, node)
		}
		if len(versions) == 1 && rapid.Bool().Draw(t, "never managed") {
			versions[0].(*v1.Node).Annotations = nil
		}
		if versions != nil {
			all = append(all, history{versions: versions})
		}
	}
	for _, name := range []string{"p0", "p1", "p2"} {
		var versions []any
		for i := range rapid.IntRange(0, 3).Draw(t, "versions of pod "+name) {
			uses := append(some("", claims, "uses"), "config")
			pod := makePod(fmt.Sprint(name, "-uid-", i), name, choose("node", "a", "b", "c", "nowhere", ""), uses...)
			if i == 2 && rapid.Bool().Draw(t, "terminated") {
				pod.Status.Phase = v1.PodFailed
			}
			versions = append(versions, pod)
		}
		if versions != nil {
			all = append(all, history{versions: versions, deleted: rapid.IntRange(0, 3).Draw(t, "deleted") == 0})
		}
	}
	for _, node := range nodes {
		for _, pv := range some("", pvs, "volume attachment on "+node) {
			all = append(all, history{versions: []any{makeAttachment("va-"+pv+"-"+node, pv, node)}})
		}
	}
	return all
}

// deliver tells of the next event of a history, and returns what is left of it.
func (c *cluster) deliver(h history, next int) (done int) {
	switch {
	case next < len(h.versions):
		if obj := h.versions[next]; next == 0 {
			c.add(obj)
		} else if pod, ok := obj.(*v1.Pod); ok {
			c.Pods().OnUpdate(h.versions[next-1], pod)
		} else {
			c.add(obj) // to the handlers, a changed object is like a new one
		}
	case h.deleted:
		c.remove(h.versions[len(h.versions)-1])
	}
	return next + 1
}

func (h history) events() int {
	if h.deleted {
		return len(h.versions) + 1
	}
	return len(h.versions)
}

// snapshot is everything in the worlds, and in the Populator, that may not depend on the
// order of events.
type snapshot struct {
	Wishes      []string
	Nodes       []types.NodeName
	Unresolved  map[types.NodeName][]cache.UniquePodName
	Attachments []cache.AttachedVolume
	Facts       map[types.NodeName]cache.NodeFacts
	Problems    []string
	Sizes       Sizes
	Desired     cache.DesiredSizes
	Actual      cache.ActualSizes
}

func (c *cluster) snapshot(t require.TestingT) snapshot {
	require.NoError(t, c.desired.CheckInvariants())
	require.NoError(t, c.actual.CheckInvariants())
	s := snapshot{
		Wishes: c.wishes(), Nodes: slices.Sorted(c.desired.Nodes()), Sizes: c.Sizes(),
		Unresolved: map[types.NodeName][]cache.UniquePodName{}, Facts: map[types.NodeName]cache.NodeFacts{},
		Desired: c.desired.Sizes(), Actual: c.actual.Sizes(),
	}
	for _, node := range []types.NodeName{"a", "b", "c", "nowhere"} {
		s.Unresolved[node] = c.desired.UnresolvedPods(node)
		s.Facts[node] = c.actual.GetNodeFacts(node)
	}
	for a := range c.actual.AttachedVolumes() {
		// A pod that came and went may have left its spec; epochs count events.
		a.VolumeSpec, a.Epoch = nil, 0
		s.Attachments = append(s.Attachments, a)
	}
	slices.SortFunc(s.Attachments, func(a, b cache.AttachedVolume) int {
		return slices.Compare([]string{string(a.VolumeName), string(a.NodeName)}, []string{string(b.VolumeName), string(b.NodeName)})
	})
	for _, p := range c.Problems() {
		s.Problems = append(s.Problems, p.String())
	}
	slices.Sort(s.Problems)
	return s
}

// canonical is the world when each object has its whole history after the other.
func canonical(t require.TestingT, histories []history) snapshot {
	c := newCluster(t)
	for _, h := range histories {
		for next := 0; next < h.events(); {
			next = c.deliver(h, next)
		}
	}
	c.MarkSynced()
	return c.snapshot(t)
}

func TestTheOrderOfEventsMakesNoDifference(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		histories := drawHistories(t)
		c := newCluster(t)
		next := make([]int, len(histories))
		for {
			var open []int
			for i, h := range histories {
				if next[i] < h.events() {
					open = append(open, i)
				}
			}
			if len(open) == 0 {
				break
			}
			i := rapid.SampledFrom(open).Draw(t, "next event of")
			next[i] = c.deliver(histories[i], next[i])
			if rapid.IntRange(0, 4).Draw(t, "twice") == 0 && next[i] <= len(histories[i].versions) {
				c.add(histories[i].versions[next[i]-1])
			}
		}
		c.MarkSynced()
		require.Equal(t, canonical(t, histories), c.snapshot(t))

		require.NoError(t, c.Resync(t.Context()))
		require.Equal(t, canonical(t, histories), c.snapshot(t), "a resync finds nothing to do")

		// Everything goes, in whatever order.
		order := rapid.Permutation(indexes(histories)).Draw(t, "order of deletion")
		for _, i := range order {
			if h := histories[i]; !h.deleted {
				c.remove(h.versions[len(h.versions)-1])
			}
		}
		for a := range c.actual.AttachedVolumes() {
			c.actual.MarkVolumeAsDetached(a.VolumeName, a.NodeName)
		}
		c.requireEmpty(t)
		for node := range c.actual.Nodes() {
			t.Fatalf("node %s is left in the actual world", node)
		}
	})
}

// Each informer has its own goroutine.
func TestInformersThatRunTogetherLeadToTheSameWorlds(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		histories := drawHistories(rt)
		want := canonical(rt, histories)
		for range 3 {
			c := newCluster(rt)
			byType := map[reflect.Type][]history{}
			for _, h := range histories {
				kind := reflect.TypeOf(h.versions[0])
				byType[kind] = append(byType[kind], h)
			}
			var informers sync.WaitGroup
			for _, list := range byType {
				informers.Go(func() {
					for _, h := range list {
						for next := 0; next < h.events(); {
							next = c.deliver(h, next)
						}
					}
				})
			}
			informers.Wait()
			c.MarkSynced()
			require.Equal(rt, want, c.snapshot(rt))
		}
	})
}

func indexes(histories []history) []int {
	list := make([]int, len(histories))
	for i := range list {
		list[i] = i
	}
	return list
}
