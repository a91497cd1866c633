package populator

import (
	"errors"
	"maps"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/stateofworld/stateofworld/cache"
)

// nodeState is what is known of a Node object that exists.
type nodeState struct {
	uid     types.UID
	managed bool
}

// Nodes handles nodes.
func (p *Populator) Nodes() Handler {
	return handle(p, p.lockedNodeChanged, p.lockedNodeDeleted)
}

func (p *Populator) lockedNodeChanged(node *v1.Node) {
	name := types.NodeName(node.Name)
	before, known := p.nodes[name]
	recreated := known && before.uid != node.UID
	managed := p.config.ManagesNode(node) || before.managed && !recreated
	if recreated && before.managed && !managed {
		p.lockedNodeGone(name)
	}
	p.nodes[name] = nodeState{uid: node.UID, managed: managed}
	if !managed {
		p.lockedDisown(name)
		return
	}

	// The facts come first, so that whoever acts on the node being known has them.
	p.config.Actual.SetNodeHealth(name, health(node))
	p.config.Actual.SetVolumesMountedByNode(node.Status.VolumesInUse, name)
	if !before.managed {
		p.lockedSeedNode(node)
		p.config.Desired.AddNode(name)
		p.lockedApplyAll(maps.Keys(p.pods.parked[name]))
	}
	if added := p.config.NodeAdded; added != nil && (!before.managed || recreated) {
		p.outbox = append(p.outbox, func() { added(name) })
	}
}

func (p *Populator) lockedNodeDeleted(full types.NamespacedName, node *v1.Node) {
	name := types.NodeName(full.Name)
	before, known := p.nodes[name]
	if !known || node != nil && node.UID != before.uid {
		return // of an older object
	}
	p.lockedNodeGone(name)
}

func (p *Populator) lockedNodeGone(name types.NodeName) {
	before := p.nodes[name]
	delete(p.nodes, name)
	if before.managed {
		err := p.config.Desired.DeleteNode(name)
		if err != nil && !errors.Is(err, cache.ErrNodeHasVolumes) { // which takes effect all the same (N2)
			p.lockedTell(Problem{Kind: WorldRefused, Node: name, Err: err, Since: p.config.Clock.Now()})
		}
		p.config.Actual.DeleteNode(name)
	}
	p.lockedSeedAll(p.attachments.byNode[name]) // those that were not, because the node was not managed
}

// health is what the Node object says of the machine.
func health(node *v1.Node) cache.NodeHealth {
	var h cache.NodeHealth
	for i := range node.Status.Conditions {
		if c := &node.Status.Conditions[i]; c.Type == v1.NodeReady {
			h.Ready = c.Status
		}
	}
	for i := range node.Spec.Taints {
		if node.Spec.Taints[i].Key == v1.TaintNodeOutOfService {
			h.OutOfService = true
		}
	}
	return h
}
