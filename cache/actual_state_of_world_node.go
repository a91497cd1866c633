package cache

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// SetVolumeMountedByNode says whether the node uses the volume, without the node's whole list at hand. Error:
// [ErrNotAttached].
func (w *ActualStateOfWorld) SetVolumeMountedByNode(volume v1.UniqueVolumeName, node types.NodeName, mounted bool) error {
	inUse := NotInUse
	if mounted {
		inUse = Mounted
	}
	var c changes
	w.mu.Lock()
	p := w.index.pair(volume, node)
	if p == nil {
		w.mu.Unlock()
		return fmt.Errorf("set volume %q as mounted by node %q: %w", volume, node, ErrNotAttached)
	}
	w.lockedSetInUse(p, inUse, &c)
	w.mu.Unlock()
	w.tell(&c)
	return nil
}

// SetVolumesMountedByNode sets the node's whole in-use list. Volumes that have no attachment yet are
// remembered: their attachment begins as Mounted, any other one on this node as NotInUse (U5,
// kubernetes/kubernetes#117042). An empty list is knowledge too. A node that was deleted is there again, with
// unknown health. Empty names are ignored.
func (w *ActualStateOfWorld) SetVolumesMountedByNode(volumes []v1.UniqueVolumeName, node types.NodeName) {
	if node == "" {
		return
	}
	w.mu.RLock()
	same := w.lockedInUseIs(node, volumes)
	w.mu.RUnlock()
	if same {
		return
	}

	now := w.time.now()
	var c changes
	w.mu.Lock()
	n := w.lockedNode(node)
	if n.data.health.Deleted {
		w.lockedSetHealth(n, NodeHealth{}, now, &c)
	}
	n.data.inUseKnown = true
	for _, volume := range volumes {
		if p := w.index.pair(volume, node); p != nil {
			p.data.listed = true
		} else if volume != "" {
			w.lockedRememberInUse(n, volume)
			n.data.inUse[volume] = true
		}
	}
	for _, p := range n.pairs {
		inUse := NotInUse
		if p.data.listed {
			inUse, p.data.listed = Mounted, false
		}
		w.lockedSetInUse(p, inUse, &c)
	}
	for volume, listed := range n.data.inUse {
		if !listed {
			w.lockedForgetInUse(n, volume)
		} else {
			n.data.inUse[volume] = false
		}
	}
	w.mu.Unlock()
	w.tell(&c)
}

// lockedInUseIs says whether the node's in-use list is the given one already, which is the usual case: a node
// sends its whole list with every sign of life. It relies on the list being sorted, as the kubelet's is, and
// says no to any other.
func (w *ActualStateOfWorld) lockedInUseIs(node types.NodeName, volumes []v1.UniqueVolumeName) bool {
	n := w.index.nodes[node]
	if n == nil || !n.data.inUseKnown || len(volumes) != n.data.mounted+len(n.data.inUse) {
		return false
	}
	pairs, ok := n.sorted()
	if !ok {
		return false
	}
	// There are as many names as are known to be in use. If each of them is, and none comes twice, they are
	// the same.
	var lastWithoutPair v1.UniqueVolumeName
	for _, volume := range volumes {
		for len(pairs) > 0 && pairs[0].volume.name != volume && pairs[0].volume.name < volume {
			pairs = pairs[1:]
		}
		if len(pairs) > 0 && pairs[0].volume.name == volume {
			if pairs[0].data.inUse != Mounted {
				return false
			}
			pairs = pairs[1:]
			continue
		}
		if _, listed := n.data.inUse[volume]; !listed || volume <= lastWithoutPair {
			return false
		}
		lastWithoutPair = volume
	}
	return true
}

func (w *ActualStateOfWorld) lockedSetInUse(p *attachmentEntry, inUse InUse, c *changes) {
	if p.data.inUse == inUse {
		return
	}
	if p.data.inUse == Mounted {
		p.node.data.mounted--
	}
	if inUse == Mounted {
		p.node.data.mounted++
	}
	p.data.inUse = inUse
	w.lockedChanged(p, c)
}

// lockedRememberInUse keeps that the node uses a volume that has no attachment.
func (w *ActualStateOfWorld) lockedRememberInUse(n *actualNodeEntry, volume v1.UniqueVolumeName) {
	if n.data.inUse == nil {
		n.data.inUse = make(map[v1.UniqueVolumeName]bool, 1)
	}
	if _, known := n.data.inUse[volume]; !known {
		n.data.inUse[volume] = false
		w.remembered++
	}
}

func (w *ActualStateOfWorld) lockedForgetInUse(n *actualNodeEntry, volume v1.UniqueVolumeName) {
	delete(n.data.inUse, volume)
	w.remembered--
	if len(n.data.inUse) == 0 {
		n.data.inUse = nil
	}
}

// SetNodeHealth sets what is known of the node as a machine. Since is kept when nothing changes. Deleted is
// the same as DeleteNode; without it, a node that was deleted is there again. An empty name is ignored.
func (w *ActualStateOfWorld) SetNodeHealth(node types.NodeName, health NodeHealth) {
	if health.Deleted {
		w.DeleteNode(node)
		return
	}
	if node == "" {
		return
	}
	now := w.time.now()
	var c changes
	w.mu.Lock()
	if n := w.index.nodes[node]; n != nil || health != (NodeHealth{}) {
		n = w.lockedNode(node)
		w.lockedSetHealth(n, health, now, &c)
		w.lockedDropNode(n)
	}
	w.mu.Unlock()
	w.tell(&c)
}

// DeleteNode says that the node object is gone. What the node said about its volumes is forgotten, and no
// change of its report is handed out: nobody could read it. Its attachments stay; the entry of the node, with
// NodeHealth{Deleted: true}, goes with the last of them. SetNodeHealth and SetVolumesMountedByNode bring the
// node back.
func (w *ActualStateOfWorld) DeleteNode(node types.NodeName) {
	now := w.time.now()
	var c changes
	w.mu.Lock()
	delete(w.dirty, node)
	if n := w.index.nodes[node]; n != nil {
		for _, p := range n.pairs {
			w.lockedSetInUse(p, InUseUnknown, &c)
		}
		w.remembered -= len(n.data.inUse)
		n.data.inUse, n.data.inUseKnown = nil, false
		w.lockedSetHealth(n, NodeHealth{Deleted: true}, now, &c)
		w.lockedDropNode(n)
	}
	w.mu.Unlock()
	w.tell(&c)
}

// lockedSetHealth sets the node's health. A node that comes back gets its report published anew: the new
// object knows nothing of it (N1, kubernetes/kubernetes#50721).
func (w *ActualStateOfWorld) lockedSetHealth(n *actualNodeEntry, health NodeHealth, now moment, c *changes) {
	if n.data.health == health {
		return
	}
	revived := n.data.health.Deleted && !health.Deleted
	n.data.health = health
	n.data.since = w.time.time(now)
	c.nodes.add(&w.nodeSubscribers, n.name)
	if revived && hasReport(n) {
		w.lockedReportChanged(n, c)
	}
}

// GetNodeFacts returns what is known of the node; the zero value when nothing is.
func (w *ActualStateOfWorld) GetNodeFacts(node types.NodeName) NodeFacts {
	w.mu.RLock()
	defer w.mu.RUnlock()
	n := w.index.nodes[node]
	if n == nil {
		return NodeFacts{}
	}
	return NodeFacts{NodeHealth: n.data.health, Since: n.data.since, InUseKnown: n.data.inUseKnown}
}

// lockedNode returns the entry of the node, making it when there is none.
func (w *ActualStateOfWorld) lockedNode(node types.NodeName) *actualNodeEntry {
	n, made := w.index.node(node)
	if made {
		n.data.reportVersion = w.forgottenVersion
	}
	return n
}

// lockedDropNode forgets the node when there is nothing left to know of it. That it is deleted is not worth
// an entry.
func (w *ActualStateOfWorld) lockedDropNode(n *actualNodeEntry) {
	health := n.data.health
	health.Deleted = false
	if len(n.pairs) > 0 || n.data.inUseKnown || health != (NodeHealth{}) {
		return
	}
	delete(w.index.nodes, n.name)
	w.forgottenVersion = max(w.forgottenVersion, n.data.reportVersion)
}
