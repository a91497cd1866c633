package reconciler_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/stateofworld/stateofworld/cache"
	"github.com/stateofworld/stateofworld/fake"
)

// The API.

func (s *sim) createPod(t *rapid.T) {
	volume := rapid.SampledFrom(simVolumes).Draw(t, "volume")
	node := pick(t, "node", s.nodes, func(types.NodeName, *simNode) bool { return true })
	users := 0
	for _, p := range s.pods {
		if p.volume == volume {
			users++
		}
	}
	if users > 2 {
		t.Skip("enough pods")
	}
	s.serial++
	name := fmt.Sprintf("pod-%d", s.serial)
	s.pods[name] = simPod{volume, node}
	s.podEvent(name)
}

func (s *sim) deletePod(t *rapid.T) {
	name := pick(t, "pod", s.pods, func(string, simPod) bool { return true })
	delete(s.pods, name)
	s.podEvent(name)
}

func (s *sim) movePod(t *rapid.T) {
	name := pick(t, "pod", s.pods, func(string, simPod) bool { return true })
	node := pick(t, "node", s.nodes, func(n types.NodeName, _ *simNode) bool { return n != s.pods[name].node })
	volume := s.pods[name].volume
	delete(s.pods, name)
	s.podEvent(name)
	s.serial++
	s.pods[fmt.Sprintf("pod-%d", s.serial)] = simPod{volume, node}
	s.podEvent(fmt.Sprintf("pod-%d", s.serial))
}

func (s *sim) deleteNode(t *rapid.T) {
	node := pick(t, "dead machine's node", s.nodes, func(n types.NodeName, _ *simNode) bool { return s.machines[n].dead })
	delete(s.nodes, node)
	s.w.Reports.SetMissing(node, true)
	s.nodeEvent(node)
}

func (s *sim) recreateNode(t *rapid.T) {
	node := pick(t, "node to come back", s.machines, func(n types.NodeName, _ *machine) bool { return s.nodes[n] == nil })
	s.machines[node] = newMachine()
	s.nodes[node] = &simNode{health: cache.NodeHealth{Ready: v1.ConditionTrue}, inUse: map[string]bool{}}
	s.w.Reports.SetMissing(node, false)
	s.nodeEvent(node)
}

// nodeEvent puts what the API has of the node now on its way, and tells the live checks at once.
func (s *sim) nodeEvent(node types.NodeName) {
	s.tellLive(node)
	n := s.nodes[node]
	if n == nil {
		s.events[0] = append(s.events[0], func() {
			_ = s.w.Desired.DeleteNode(node)
			s.w.Actual.DeleteNode(node)
		})
		return
	}
	health, inUse := n.health, slices.Sorted(maps.Keys(n.inUse))
	s.events[0] = append(s.events[0], func() {
		s.w.Desired.AddNode(node)
		s.w.Actual.SetNodeHealth(node, health)
		s.w.InUseCached(node, inUse...)
		for _, name := range slices.Sorted(maps.Keys(s.parked)) {
			s.parked[name]()
		}
	})
}

// tellLive: who asks the API itself gets what it has now.
func (s *sim) tellLive(node types.NodeName) {
	health, inUse := cache.NodeHealth{Deleted: true}, []string(nil)
	if n := s.nodes[node]; n != nil {
		health, inUse = n.health, slices.Sorted(maps.Keys(n.inUse))
	}
	for _, w := range []*fake.World{s.w, s.old} {
		if w != nil {
			w.Live.SetHealth(node, health)
			w.Live.SetInUse(node, inUse...)
		}
	}
}

func (s *sim) podEvent(name string) {
	pod, exists := s.pods[name]
	if !exists {
		s.events[1] = append(s.events[1], func() {
			delete(s.parked, name)
			s.w.RemovePod(name)
		})
		return
	}
	add := func() {
		if !s.w.Desired.NodeExists(pod.node) {
			return
		}
		delete(s.parked, name)
		s.w.Pod(name, pod.volume, pod.node)
	}
	s.events[1] = append(s.events[1], func() {
		s.parked[name] = add
		add()
	})
}

// deliver lets the controller hear of the next event of one kind of object, or of all.
func (s *sim) deliver(t *rapid.T) {
	kind := rapid.IntRange(0, 1).Draw(t, "kind")
	if len(s.events[kind]) == 0 {
		kind = 1 - kind
	}
	if len(s.events[kind]) == 0 {
		t.Skip("no events")
	}
	for n := rapid.IntRange(1, len(s.events[kind])).Draw(t, "how many"); n > 0; n-- {
		s.next(kind)
	}
	s.markFed()
}

func (s *sim) next(kind int) {
	event := s.events[kind][0]
	s.events[kind] = s.events[kind][1:]
	event()
}

func (s *sim) markFed() {
	if len(s.events[0])+len(s.events[1]) == 0 && !s.fed {
		s.fed = true
		s.w.Reconciler.MarkSynced()
	}
}

func (s *sim) deliverAll() {
	for kind := range s.events {
		for len(s.events[kind]) > 0 {
			s.next(kind)
		}
	}
	s.markFed()
}

func (s *sim) apiTrouble(t *rapid.T) {
	node := rapid.SampledFrom(simNodes).Draw(t, "node")
	if rapid.Bool().Draw(t, "only the reply is lost") {
		s.w.Reports.Lose(node, errors.New("connection reset"))
	} else {
		s.w.Reports.Fail(node, errors.New("server is down"))
	}
}

func (s *sim) apiRecovers(*rapid.T) {
	for _, n := range simNodes {
		s.w.Reports.Lose(n, nil)
		s.w.Reports.Fail(n, nil)
		s.w.Live.Fail(n, nil)
	}
}

func (s *sim) liveTrouble(t *rapid.T) {
	s.w.Live.Fail(rapid.SampledFrom(simNodes).Draw(t, "node"), errors.New("server is down"))
}
