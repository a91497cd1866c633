package cache

import (
	"cmp"
	"iter"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// VolumeNodeExists says whether there is an entry for the pair, that is, whether it is Attached or Uncertain.
func (w *ActualStateOfWorld) VolumeNodeExists(volume v1.UniqueVolumeName, node types.NodeName) bool {
	return w.GetAttachState(volume, node) != Detached
}

// GetAttachState returns the state of the pair.
func (w *ActualStateOfWorld) GetAttachState(volume v1.UniqueVolumeName, node types.NodeName) AttachState {
	w.mu.RLock()
	defer w.mu.RUnlock()
	if p := w.index.pair(volume, node); p != nil {
		return p.data.state
	}
	return Detached
}

// Epoch returns the epoch of the pair, 0 when it has no entry.
func (w *ActualStateOfWorld) Epoch(volume v1.UniqueVolumeName, node types.NodeName) uint64 {
	w.mu.RLock()
	defer w.mu.RUnlock()
	return epochOf(w.index.pair(volume, node))
}

// HasPlugin says whether a plugin is registered for volumes of such names. A volume that was seeded by name may have none: then nobody can
// tell which pods use it.
func (w *ActualStateOfWorld) HasPlugin(volume v1.UniqueVolumeName) bool {
	_, err := w.plugins.FindPluginByName(volume)
	return err == nil
}

// VolumeEpoch returns a number that changes whenever the epoch of any pair of the volume does, and when one
// of them goes; 0 when the volume has no entry. It never repeats within a world.
func (w *ActualStateOfWorld) VolumeEpoch(volume v1.UniqueVolumeName) uint64 {
	w.mu.RLock()
	defer w.mu.RUnlock()
	if v := w.index.volumes.get(volume); v != nil {
		return v.data.epoch
	}
	return 0
}

// GetAttachedVolume returns the pair, and whether it has an entry.
func (w *ActualStateOfWorld) GetAttachedVolume(volume v1.UniqueVolumeName, node types.NodeName) (a AttachedVolume, exists bool) {
	w.mu.RLock()
	defer w.mu.RUnlock()
	p := w.index.pair(volume, node)
	if p == nil {
		return a, false
	}
	w.lockedFill(&a, p)
	return a, true
}

// lockedFill writes what is kept of the pair into an empty AttachedVolume.
func (w *ActualStateOfWorld) lockedFill(a *AttachedVolume, p *attachmentEntry) {
	a.VolumeName = p.volume.name
	a.NodeName = p.node.name
	a.VolumeSpec = p.data.spec
	a.DevicePath = p.data.devicePath
	a.Since = w.time.time(p.data.since)
	if p.data.hasDetachRequest {
		a.DetachRequestedTime = w.time.time(p.data.detachRequested)
	}
	a.Epoch = p.data.epoch
	a.State = p.data.state
	a.InUse = p.data.inUse
	a.Reported = p.data.reported()
}

// lockedAppend appends what is kept of the pair. The element is filled where it lies, as it is large.
func (w *ActualStateOfWorld) lockedAppend(dst []AttachedVolume, p *attachmentEntry) []AttachedVolume {
	dst = append(dst, AttachedVolume{})
	w.lockedFill(&dst[len(dst)-1], p)
	return dst
}

// GetAttachedVolumes returns all pairs that are Attached or Uncertain, in no order.
func (w *ActualStateOfWorld) GetAttachedVolumes() []AttachedVolume {
	w.mu.RLock()
	all := make([]AttachedVolume, 0, w.index.pairs)
	w.mu.RUnlock()
	w.index.walk(&w.mu, func(p *attachmentEntry) { all = w.lockedAppend(all, p) }, func() bool { return true })
	return all
}

// AttachedVolumes yields all pairs that are Attached or Uncertain, in no order, without copying them all at
// once. The lock is not held while yielding; a pair that is there from beginning to end is yielded exactly
// once.
func (w *ActualStateOfWorld) AttachedVolumes() iter.Seq[AttachedVolume] {
	return func(yield func(AttachedVolume) bool) {
		chunk := make([]AttachedVolume, 0, chunkSize)
		w.index.walk(&w.mu, func(p *attachmentEntry) { chunk = w.lockedAppend(chunk, p) }, func() bool { return flush(&chunk, yield) })
	}
}

// Pairs yields all pairs that are Attached or Uncertain, by node. The lock is not held while yielding; a pair that is
// there from beginning to end is yielded exactly once.
func (w *ActualStateOfWorld) Pairs() iter.Seq[Pair] {
	return func(yield func(Pair) bool) { w.index.walkPairs(&w.mu, yield) }
}

// AttachedVolumesForNode is AttachedVolumes for one node.
func (w *ActualStateOfWorld) AttachedVolumesForNode(node types.NodeName) iter.Seq[AttachedVolume] {
	return func(yield func(AttachedVolume) bool) {
		w.mu.RLock()
		n := w.index.nodes[node]
		if n == nil {
			w.mu.RUnlock()
			return
		}
		chunk := make([]AttachedVolume, 0, min(len(n.pairs), chunkSize))
		pause := func() bool { return flush(&chunk, yield) }
		if n.walk(&w.mu, func(p *attachmentEntry) { chunk = w.lockedAppend(chunk, p) }, pause) {
			w.mu.RUnlock()
			pause()
		}
	}
}

// flush yields the chunk and empties it.
func flush[T any](chunk *[]T, yield func(T) bool) bool {
	all := *chunk
	for i := range all {
		if !yield(all[i]) {
			return false
		}
	}
	*chunk = all[:0]
	return true
}

// GetAttachedVolumesForNode returns the pairs of the node that are Attached or Uncertain, by volume. It costs
// as much as the node has.
func (w *ActualStateOfWorld) GetAttachedVolumesForNode(node types.NodeName) []AttachedVolume {
	w.mu.RLock()
	n := w.index.nodes[node]
	if n == nil {
		w.mu.RUnlock()
		return nil
	}
	if pairs, ok := n.sorted(); ok {
		var all []AttachedVolume
		if len(pairs) > 0 {
			all = make([]AttachedVolume, len(pairs))
		}
		for i, p := range pairs {
			w.lockedFill(&all[i], p)
		}
		w.mu.RUnlock()
		return all
	}
	w.mu.RUnlock()
	return slices.SortedFunc(w.AttachedVolumesForNode(node), compareAttachedVolume)
}

// GetAttachedVolumesPerNode returns what is Attached (not what is Uncertain), for each node that has any, by
// volume.
func (w *ActualStateOfWorld) GetAttachedVolumesPerNode() map[types.NodeName][]AttachedVolume {
	perNode := make(map[types.NodeName][]AttachedVolume)
	for a := range w.AttachedVolumes() {
		if a.State == Attached {
			perNode[a.NodeName] = append(perNode[a.NodeName], a)
		}
	}
	for _, all := range perNode {
		slices.SortFunc(all, compareAttachedVolume)
	}
	return perNode
}

// GetNodesForAttachedVolume returns the nodes on which the volume is Attached or Uncertain, sorted.
func (w *ActualStateOfWorld) GetNodesForAttachedVolume(volume v1.UniqueVolumeName) []types.NodeName {
	var nodes []types.NodeName
	w.mu.RLock()
	if v := w.index.volumes.get(volume); v != nil {
		nodes = make([]types.NodeName, 0, v.len())
		v.each(func(p *attachmentEntry) { nodes = append(nodes, p.node.name) })
	}
	w.mu.RUnlock()
	slices.Sort(nodes)
	return nodes
}

// AppendAttachments appends the pairs of the volume that are Attached or Uncertain to dst, by node. All are
// of one moment.
func (w *ActualStateOfWorld) AppendAttachments(dst []AttachedVolume, volume v1.UniqueVolumeName) []AttachedVolume {
	begin := len(dst)
	w.mu.RLock()
	if v := w.index.volumes.get(volume); v != nil {
		dst = slices.Grow(dst, v.len())
		v.each(func(p *attachmentEntry) { dst = w.lockedAppend(dst, p) })
	}
	w.mu.RUnlock()
	slices.SortFunc(dst[begin:], compareAttachedVolume)
	return dst
}

// compareAttachedVolume orders by volume, then node.
func compareAttachedVolume(a, b AttachedVolume) int {
	return cmp.Or(cmp.Compare(a.VolumeName, b.VolumeName), cmp.Compare(a.NodeName, b.NodeName))
}
