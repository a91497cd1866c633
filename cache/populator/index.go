package populator

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/stateofworld/stateofworld/cache"
)

// podIndex holds the pods that may have wishes, and what they depend on:
//
//	byUID, byName -> pod <-> claims <- volumes
//	parked[node]  -> pod
//
// An entry goes with the last pod that needs it.
type podIndex struct {
	byUID      map[cache.UniquePodName]*podEntry
	byName     map[types.NamespacedName]*podEntry
	claims     map[types.NamespacedName]*claimEntry
	volumes    map[string][]*claimEntry // by the name of the persistent volume; more than one is a mistake
	unresolved map[*podEntry]struct{}
	parked     map[types.NodeName]map[*podEntry]struct{}
}

type podEntry struct {
	name     cache.UniquePodName
	pod      *v1.Pod
	claims   []claimUse
	problems []Problem
	parking  *parking // nil: not parked
}

// claimUse is one claim that a pod names.
type claimUse struct {
	claim *claimEntry
	pos   int // of the pod in claim.pods
}

type claimEntry struct {
	name   types.NamespacedName
	volume string      // that it names; empty: none
	pods   []*podEntry // in no order
}

// parking is where a pod waits for its node.
type parking struct {
	node  types.NodeName
	since time.Time
}

func newPodIndex() podIndex {
	return podIndex{
		byUID:      make(map[cache.UniquePodName]*podEntry),
		byName:     make(map[types.NamespacedName]*podEntry),
		claims:     make(map[types.NamespacedName]*claimEntry),
		volumes:    make(map[string][]*claimEntry),
		unresolved: make(map[*podEntry]struct{}),
		parked:     make(map[types.NodeName]map[*podEntry]struct{}),
	}
}

func (e *podEntry) node() types.NodeName { return types.NodeName(e.pod.Spec.NodeName) }

func (x *podIndex) add(pod *v1.Pod) *podEntry {
	e := &podEntry{name: podName(pod), pod: pod}
	x.byUID[e.name], x.byName[nameOf(pod)] = e, e
	return e
}

// remove forgets the pod and whatever only it depended on.
func (x *podIndex) remove(e *podEntry) {
	e.problems = nil
	x.setClaims(e, nil)
	x.setUnresolved(e)
	x.unpark(e)
	delete(x.byUID, e.name)
	if full := nameOf(e.pod); x.byName[full] == e {
		delete(x.byName, full)
	}
}

// setClaims makes the pod depend on exactly these claims.
func (x *podIndex) setClaims(e *podEntry, refs []claimRef) {
	for _, ref := range refs {
		c := x.claims[ref.name]
		if c == nil {
			c = &claimEntry{name: ref.name}
			x.claims[ref.name] = c
		}
		x.setVolume(c, ref.volume)
		if e.use(c) == nil {
			e.claims = append(e.claims, claimUse{claim: c, pos: len(c.pods)})
			c.pods = append(c.pods, e)
		}
	}
	e.claims = slices.DeleteFunc(e.claims, func(u claimUse) bool {
		needed := slices.ContainsFunc(refs, func(ref claimRef) bool { return ref.name == u.claim.name })
		if !needed {
			x.endUse(u)
		}
		return !needed
	})
}

// use returns the pod's use of the claim, or nil.
func (e *podEntry) use(c *claimEntry) *claimUse {
	for i := range e.claims {
		if e.claims[i].claim == c {
			return &e.claims[i]
		}
	}
	return nil
}

// endUse takes a pod out of a claim, and forgets the claim with its last pod.
func (x *podIndex) endUse(u claimUse) {
	c, last := u.claim, len(u.claim.pods)-1
	if moved := c.pods[last]; u.pos != last {
		c.pods[u.pos] = moved
		moved.use(c).pos = u.pos
	}
	c.pods[last] = nil
	c.pods = c.pods[:last]
	if last == 0 {
		x.setVolume(c, "")
		delete(x.claims, c.name)
	}
}

// setVolume says which persistent volume the claim names.
func (x *podIndex) setVolume(c *claimEntry, volume string) {
	if c.volume == volume {
		return
	}
	if c.volume != "" {
		left := slices.DeleteFunc(x.volumes[c.volume], func(o *claimEntry) bool { return o == c })
		if len(left) > 0 {
			x.volumes[c.volume] = left
		} else {
			delete(x.volumes, c.volume)
		}
	}
	c.volume = volume
	if volume != "" {
		x.volumes[volume] = append(x.volumes[volume], c)
	}
}

func (x *podIndex) setUnresolved(e *podEntry) {
	if len(e.problems) > 0 {
		x.unresolved[e] = struct{}{}
	} else {
		delete(x.unresolved, e)
	}
}

// park has the pod wait for its node. It keeps the time if it does already.
func (x *podIndex) park(e *podEntry, now time.Time) {
	if e.parking != nil && e.parking.node == e.node() {
		return
	}
	x.unpark(e)
	e.parking = &parking{node: e.node(), since: now}
	addTo(x.parked, e.parking.node, e)
}

func (x *podIndex) unpark(e *podEntry) {
	if e.parking != nil {
		removeFrom(x.parked, e.parking.node, e)
		e.parking = nil
	}
}

func (x *podIndex) parkedCount() int {
	n := 0
	for _, pods := range x.parked {
		n += len(pods)
	}
	return n
}

// addTo and removeFrom keep a map of sets without empty sets.
func addTo[K, E comparable](sets map[K]map[E]struct{}, key K, e E) {
	set := sets[key]
	if set == nil {
		set = make(map[E]struct{}, 1)
		sets[key] = set
	}
	set[e] = struct{}{}
}

func removeFrom[K, E comparable](sets map[K]map[E]struct{}, key K, e E) {
	delete(sets[key], e)
	if len(sets[key]) == 0 {
		delete(sets, key)
	}
}
