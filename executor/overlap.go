package executor

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/stateofworld/stateofworld/cache"
)

// overlapIndex holds operations that do not overlap each other, and finds one that overlaps a given key without looking
// at the others: a key is asked for in its projections onto (volume, pod, node), (volume, pod), (volume, node) and (volume).
//
// Almost every volume has one operation at a time, so that one is kept in the first map itself and costs a single look-up;
// the projections are built for a volume with its second operation, and go with its last.
type overlapIndex struct {
	volumes map[v1.UniqueVolumeName]volumeOperations
}

type volumeOperations struct {
	one  *operation // the only one, while there was never more than one; else nil
	many *projections
}

// projections are the operations of one volume by the parts of their keys.
// Invariant, as they do not overlap: an operation for any node is alone in its byPod list, one for any pod in its byNode list.
type projections struct {
	exact  map[podNode]*operation                  // those that name both
	byPod  map[cache.UniquePodName]list[operation] // "": those for any pod
	byNode map[types.NodeName]list[operation]      // "": those for any node
}

type podNode struct {
	pod  cache.UniquePodName
	node types.NodeName
}

func byPodLinks(op *operation) *links[operation]  { return &op.byPod }
func byNodeLinks(op *operation) *links[operation] { return &op.byNode }

func newOverlapIndex() overlapIndex {
	return overlapIndex{volumes: map[v1.UniqueVolumeName]volumeOperations{}}
}

// find returns an operation whose key overlaps key, or nil.
func (x *overlapIndex) find(key Key) *operation {
	v := x.volumes[key.Volume]
	switch {
	case v.many != nil:
		return v.many.find(key.Pod, key.Node)
	case v.one != nil && v.one.Key.overlapsWithinVolume(key):
		return v.one
	}
	return nil
}

// add puts op in; nothing in the index may overlap it.
func (x *overlapIndex) add(op *operation) {
	v := x.volumes[op.Key.Volume]
	switch {
	case v.many != nil:
		v.many.add(op)
		return
	case v.one != nil:
		v.many = &projections{
			exact:  map[podNode]*operation{},
			byPod:  map[cache.UniquePodName]list[operation]{},
			byNode: map[types.NodeName]list[operation]{},
		}
		v.many.add(v.one)
		v.many.add(op)
		v.one = nil
	default:
		v.one = op
	}
	x.volumes[op.Key.Volume] = v
}

// remove takes out op itself, and nothing else; it must be in the index.
func (x *overlapIndex) remove(op *operation) {
	if v := x.volumes[op.Key.Volume]; v.many != nil {
		v.many.remove(op)
		if len(v.many.byPod) > 0 {
			return
		}
	}
	delete(x.volumes, op.Key.Volume)
}

func (p *projections) find(pod cache.UniquePodName, node types.NodeName) *operation {
	switch {
	case pod == "" && node == "":
		for _, l := range p.byPod {
			return l.first
		}
		return nil
	case node == "":
		if op := p.byPod[pod].first; op != nil {
			return op
		}
		return p.byPod[""].first
	case pod == "":
		if op := p.byNode[node].first; op != nil {
			return op
		}
		return p.byNode[""].first
	}
	if op := p.exact[podNode{pod, node}]; op != nil {
		return op
	}
	if op := p.byPod[pod].first; op != nil && op.Key.Node == "" {
		return op
	}
	if op := p.byNode[node].first; op != nil && op.Key.Pod == "" {
		return op
	}
	return nil
}

func (p *projections) add(op *operation) {
	k := op.Key
	if k.Pod != "" && k.Node != "" {
		p.exact[podNode{k.Pod, k.Node}] = op
	}
	pods := p.byPod[k.Pod]
	pods.push(op, byPodLinks)
	p.byPod[k.Pod] = pods
	nodes := p.byNode[k.Node]
	nodes.push(op, byNodeLinks)
	p.byNode[k.Node] = nodes
}

func (p *projections) remove(op *operation) {
	k := op.Key
	if k.Pod != "" && k.Node != "" {
		delete(p.exact, podNode{k.Pod, k.Node})
	}
	pods := p.byPod[k.Pod]
	if pods.remove(op, byPodLinks); pods.n == 0 {
		delete(p.byPod, k.Pod)
	} else {
		p.byPod[k.Pod] = pods
	}
	nodes := p.byNode[k.Node]
	if nodes.remove(op, byNodeLinks); nodes.n == 0 {
		delete(p.byNode, k.Node)
	} else {
		p.byNode[k.Node] = nodes
	}
}
