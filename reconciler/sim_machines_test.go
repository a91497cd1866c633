package reconciler_test

import (
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/stateofworld/stateofworld/cache"
	"github.com/stateofworld/stateofworld/fake"
)

// Machines. A kubelet says that it uses a volume before it looks whether it may mount it.

func (s *sim) kubeletWorks(t *rapid.T) {
	node := pick(t, "working kubelet", s.nodes, func(n types.NodeName, _ *simNode) bool { return !s.machines[n].dead && !s.machines[n].hung })
	m, n, wanted := s.machines[node], s.nodes[node], s.wantedOn(node)
	content := s.w.Reports.Content(node)
	type step struct {
		name string
		do   func()
	}
	var steps []step
	for _, v := range simVolumes {
		switch {
		case wanted[v] && !n.inUse[v]:
			steps = append(steps, step{"says it uses " + v, func() { n.inUse[v] = true; s.nodeEvent(node) }})
		case wanted[v] && !m.mounted[v] && slices.Contains(content, v):
			steps = append(steps, step{"mounts " + v, func() { s.mount(t, node, v) }})
		case !wanted[v] && m.mounted[v]:
			steps = append(steps, step{"unmounts " + v, func() { delete(m.mounted, v) }})
		case !wanted[v] && n.inUse[v]:
			steps = append(steps, step{"says it does not use " + v, func() { delete(n.inUse, v); s.nodeEvent(node) }})
		}
	}
	if len(steps) == 0 {
		t.Skip("nothing to do")
	}
	i := rapid.IntRange(0, len(steps)-1).Draw(t, string(node)+" kubelet's step")
	t.Logf("  %s %s", node, steps[i].name)
	steps[i].do()
}

func (s *sim) wantedOn(node types.NodeName) map[string]bool {
	wanted := map[string]bool{}
	for _, p := range s.pods {
		if p.node == node {
			wanted[p.volume] = true
		}
	}
	return wanted
}

func (s *sim) mount(t *rapid.T, node types.NodeName, volume string) {
	if !slices.Contains(s.w.Driver.AttachedTo(volume), node) {
		if !s.usurped && !s.lost[cache.Pair{Volume: fake.VolumeName(volume), Node: node}] {
			t.Fatalf("volume %s is reported as attached to node %s, and is not", volume, node)
		}
		return // there is no device
	}
	s.machines[node].mounted[volume] = true
}

func (s *sim) machineHangs(t *rapid.T) {
	s.machines[pick(t, "machine", s.machines, func(n types.NodeName, m *machine) bool { return !m.dead && !m.hung && s.nodes[n] != nil })].hung = true
}

func (s *sim) machineDies(t *rapid.T) {
	m := s.machines[pick(t, "machine", s.machines, func(n types.NodeName, m *machine) bool { return !m.dead && s.nodes[n] != nil })]
	m.dead, m.mounted = true, map[string]bool{}
}

func (s *sim) machineRecovers(t *rapid.T) {
	node := pick(t, "hung machine", s.machines, func(n types.NodeName, m *machine) bool { return m.hung && !m.dead })
	s.recover(node)
}

func (s *sim) recover(node types.NodeName) {
	m := s.machines[node]
	m.hung = false
	// What was taken away while it hung is not there any more.
	for v := range m.mounted {
		if !slices.Contains(s.w.Driver.AttachedTo(v), node) {
			delete(m.mounted, v)
		}
	}
}

// recoversUnseen: a lost machine is back before its kubelet has unmounted what nobody wishes there any more. The API has it,
// the controller has not heard of it: the moment at which force would lose data.
func (s *sim) recoversUnseen(t *rapid.T) {
	node := pick(t, "machine that is known to be lost", s.machines, func(n types.NodeName, m *machine) bool {
		return m.hung && !m.dead && s.nodes[n] != nil && s.nodes[n].health.Ready == v1.ConditionUnknown
	})
	for _, name := range slices.Sorted(maps.Keys(s.pods)) {
		if s.pods[name].node == node {
			delete(s.pods, name)
			s.podEvent(name)
		}
	}
	s.deliverAll()
	s.recover(node)
	s.nodes[node].health = cache.NodeHealth{Ready: v1.ConditionTrue}
	s.nodeEvent(node)
	s.advance(2 * time.Minute)
}

// healthIsNoticed lets the node controller, or an administrator, write down how the machine is.
func (s *sim) healthIsNoticed(t *rapid.T) {
	node := pick(t, "node", s.nodes, func(types.NodeName, *simNode) bool { return true })
	m, h := s.machines[node], cache.NodeHealth{Ready: v1.ConditionTrue}
	if m.hung || m.dead {
		h.Ready = v1.ConditionUnknown
	}
	h.OutOfService = m.dead && rapid.Bool().Draw(t, "out of service")
	s.nodes[node].health = h
	s.nodeEvent(node)
}

// kubeletFinishes does all that the kubelet has to do now.
func (s *sim) kubeletFinishes(t *rapid.T, node types.NodeName) (busy bool) {
	n, m := s.nodes[node], s.machines[node]
	if n == nil || m.hung || m.dead {
		return false
	}
	wanted := s.wantedOn(node)
	for _, v := range simVolumes {
		if wanted[v] != n.inUse[v] || wanted[v] != m.mounted[v] {
			busy = true
		}
		switch {
		case wanted[v] && n.inUse[v] && !m.mounted[v] && slices.Contains(s.w.Reports.Content(node), v):
			s.mount(t, node, v)
		case wanted[v]:
			n.inUse[v] = true
		default:
			delete(m.mounted, v)
			delete(n.inUse, v)
		}
	}
	if busy {
		s.nodeEvent(node)
	}
	return busy
}
