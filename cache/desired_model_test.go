package cache

import (
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// desiredModel is the desired world written down in the most obvious way: three sets and a loop over
// everything for each question.
type desiredModel struct {
	known  map[types.NodeName]bool
	uses   map[modelUse]modelUseState
	wishes map[Pair]modelWish
	marks  map[modelMark]bool
	order  uint64
	now    time.Time
}

type modelUse struct {
	pod  UniquePodName
	pair Pair
}

type modelUseState struct {
	object    *v1.Pod
	exclusive bool
}

type modelWish struct {
	spec  *VolumeSpec
	order uint64
	since time.Time
	multi bool
}

type modelMark struct {
	pod  UniquePodName
	node types.NodeName
}

func newDesiredModel() *desiredModel {
	return &desiredModel{
		known:  map[types.NodeName]bool{},
		uses:   map[modelUse]modelUseState{},
		wishes: map[Pair]modelWish{},
		marks:  map[modelMark]bool{},
		now:    t0,
	}
}

func (m *desiredModel) addPod(pod UniquePodName, object *v1.Pod, spec *VolumeSpec, exclusive bool, pair Pair) {
	wish, exists := m.wishes[pair]
	if !exists {
		m.order++
		wish = modelWish{order: m.order, since: m.now}
	}
	wish.spec = spec
	m.wishes[pair] = wish
	m.uses[modelUse{pod, pair}] = modelUseState{object, exclusive}
}

func (m *desiredModel) removeUses(match func(modelUse) bool) {
	for use := range m.uses {
		if match(use) {
			delete(m.uses, use)
		}
	}
	for pair := range m.wishes {
		if len(m.podsOf(pair)) == 0 {
			delete(m.wishes, pair)
		}
	}
}

func (m *desiredModel) removeMarks(match func(modelMark) bool) {
	maps.DeleteFunc(m.marks, func(k modelMark, _ bool) bool { return match(k) })
}

func (m *desiredModel) removePod(pod UniquePodName) {
	m.removeUses(func(u modelUse) bool { return u.pod == pod })
	m.removeMarks(func(k modelMark) bool { return k.pod == pod })
}

func (m *desiredModel) podsOf(pair Pair) []PodToAdd {
	var pods []PodToAdd
	for use, state := range m.uses {
		if use.pair == pair {
			pods = append(pods, PodToAdd{PodName: use.pod, Pod: state.object, VolumeName: pair.Volume, NodeName: pair.Node})
		}
	}
	slices.SortFunc(pods, comparePodToAdd)
	return pods
}

func (m *desiredModel) unresolved(node types.NodeName) []UniquePodName {
	var pods []UniquePodName
	for k := range m.marks {
		if k.node == node {
			pods = append(pods, k.pod)
		}
	}
	slices.Sort(pods)
	return pods
}

func (m *desiredModel) wish(pair Pair) (Wish, bool) {
	wish, exists := m.wishes[pair]
	if !exists {
		return Wish{}, false
	}
	exclusive := false
	for use, state := range m.uses {
		exclusive = exclusive || use.pair.Volume == pair.Volume && state.exclusive
	}
	return Wish{
		VolumeName: pair.Volume, NodeName: pair.Node, VolumeSpec: wish.spec, Exclusive: exclusive,
		Order: wish.order, Since: wish.since, Pods: len(m.podsOf(pair)),
		NodeDeleted: !m.known[pair.Node], NodeUnresolved: len(m.unresolved(pair.Node)),
	}, true
}

func (m *desiredModel) sizes() DesiredSizes {
	nodes, volumes, pods := map[types.NodeName]bool{}, map[v1.UniqueVolumeName]bool{}, map[UniquePodName]bool{}
	for node := range m.known {
		nodes[node] = true
	}
	for use := range m.uses {
		nodes[use.pair.Node], volumes[use.pair.Volume], pods[use.pod] = true, true, true
	}
	for k := range m.marks {
		nodes[k.node] = true
	}
	return DesiredSizes{Nodes: len(nodes), Volumes: len(volumes), Pairs: len(m.wishes), Pods: len(pods), Unresolved: len(m.marks)}
}
