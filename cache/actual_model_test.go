package cache

import (
	"cmp"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// actualModel is the actual world written down in the most obvious way. Epochs and versions are not in it:
// they are checked by their rules.
type actualModel struct {
	pairs  map[Pair]AttachedVolume                         // with Epoch 0, and InUse only as long as the node's list is unknown
	inUse  map[types.NodeName]map[v1.UniqueVolumeName]bool // the lists of the nodes that reported one
	health map[types.NodeName]NodeFacts                    // NodeHealth and Since
	dirty  map[types.NodeName]bool
	forced map[types.NodeName]bool // reports that this step forces to be written
	now    time.Time
}

func newActualModel() *actualModel {
	return &actualModel{
		pairs:  map[Pair]AttachedVolume{},
		inUse:  map[types.NodeName]map[v1.UniqueVolumeName]bool{},
		health: map[types.NodeName]NodeFacts{},
		dirty:  map[types.NodeName]bool{},
		now:    t0,
	}
}

// get returns the pair as the world should.
func (m *actualModel) get(pair Pair) (AttachedVolume, bool) {
	a, ok := m.pairs[pair]
	if list := m.inUse[pair.Node]; ok && list != nil {
		a.InUse = NotInUse
		if list[pair.Volume] {
			a.InUse = Mounted
		}
	}
	return a, ok
}

func (m *actualModel) report(node types.NodeName) []v1.AttachedVolume {
	report := []v1.AttachedVolume{}
	for pair, a := range m.pairs {
		if pair.Node == node && a.Reported {
			report = append(report, v1.AttachedVolume{Name: pair.Volume, DevicePath: a.DevicePath})
		}
	}
	slices.SortFunc(report, func(a, b v1.AttachedVolume) int { return cmp.Compare(a.Name, b.Name) })
	return report
}

func (m *actualModel) exists(node types.NodeName) bool {
	for pair := range m.pairs {
		if pair.Node == node {
			return true
		}
	}
	h := m.health[node].NodeHealth
	return m.inUse[node] != nil || h != NodeHealth{} && !h.Deleted
}

// set changes the pair to the state, or only its spec and path when it is in it.
func (m *actualModel) set(pair Pair, state AttachState, spec *VolumeSpec, path string) {
	a := m.pairs[pair]
	if a.State != state {
		a.State, a.Since, a.Reported = state, m.now, state == Attached
		if state == Attached {
			a.DetachRequestedTime = time.Time{}
		}
	}
	a.VolumeName, a.NodeName, a.DevicePath = pair.Volume, pair.Node, path
	if spec != nil {
		a.VolumeSpec = spec
	}
	m.pairs[pair] = a
}

func (m *actualModel) setHealth(node types.NodeName, health NodeHealth) {
	if old := m.health[node].NodeHealth; old != health {
		if old.Deleted && len(m.report(node)) > 0 {
			m.forced[node] = true
		}
		m.health[node] = NodeFacts{NodeHealth: health, Since: m.now}
	}
}

// forget drops what is known of nodes that have no reason to be kept.
func (m *actualModel) forget(nodes []types.NodeName) {
	for _, node := range nodes {
		if !m.exists(node) {
			delete(m.health, node)
		}
	}
}

func (m *actualModel) sizes(nodes []types.NodeName) ActualSizes {
	volumes := map[v1.UniqueVolumeName]bool{}
	for pair := range m.pairs {
		volumes[pair.Volume] = true
	}
	s := ActualSizes{Volumes: len(volumes), Pairs: len(m.pairs), Dirty: len(m.dirty)}
	for _, node := range nodes {
		if m.exists(node) {
			s.Nodes++
		}
		for volume := range m.inUse[node] {
			if _, attached := m.pairs[Pair{volume, node}]; !attached {
				s.InUse++
			}
		}
	}
	return s
}
