package cache

import (
	"cmp"
	"iter"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// VolumeExists says whether any pod on the node uses the volume.
func (w *DesiredStateOfWorld) VolumeExists(volume v1.UniqueVolumeName, node types.NodeName) bool {
	w.mu.RLock()
	defer w.mu.RUnlock()
	return w.index.pair(volume, node) != nil
}

// GetWish returns the wish for the volume on the node, and whether there is one.
func (w *DesiredStateOfWorld) GetWish(volume v1.UniqueVolumeName, node types.NodeName) (Wish, bool) {
	w.mu.RLock()
	defer w.mu.RUnlock()
	p := w.index.pair(volume, node)
	if p == nil {
		return Wish{}, false
	}
	return w.lockedWish(p), true
}

// AppendWishes appends the wishes for the volume, on whatever node, to dst, the oldest first. All are of one
// moment.
func (w *DesiredStateOfWorld) AppendWishes(dst []Wish, volume v1.UniqueVolumeName) []Wish {
	begin := len(dst)
	w.mu.RLock()
	if v := w.index.volumes.get(volume); v != nil {
		dst = slices.Grow(dst, v.len())
		v.each(func(p *wishEntry) { dst = append(dst, w.lockedWish(p)) })
	}
	w.mu.RUnlock()
	slices.SortFunc(dst[begin:], func(a, b Wish) int { return cmp.Compare(a.Order, b.Order) })
	return dst
}

func (w *DesiredStateOfWorld) lockedWish(p *wishEntry) Wish {
	return Wish{
		VolumeName:     p.volume.name,
		NodeName:       p.node.name,
		VolumeSpec:     p.data.spec,
		Exclusive:      p.volume.data.exclusive > 0,
		Order:          p.data.order,
		Since:          w.time.time(p.data.since),
		Pods:           len(p.data.users),
		NodeDeleted:    !p.node.data.known,
		NodeUnresolved: len(p.node.data.unresolved),
	}
}

// GetVolumesToAttach returns all wishes but those of deleted nodes, in no order.
func (w *DesiredStateOfWorld) GetVolumesToAttach() []VolumeToAttach {
	w.mu.RLock()
	all := make([]VolumeToAttach, 0, w.index.pairs)
	w.mu.RUnlock()
	return slices.AppendSeq(all, w.VolumesToAttach())
}

// VolumesToAttach yields all wishes but those of deleted nodes, in no order, without copying them all at
// once. The lock is not held while yielding; a wish that is there from beginning to end is yielded exactly
// once.
func (w *DesiredStateOfWorld) VolumesToAttach() iter.Seq[VolumeToAttach] {
	return func(yield func(VolumeToAttach) bool) {
		chunk := make([]VolumeToAttach, 0, chunkSize)
		var pods []*v1.Pod // of the whole chunk; what is yielded may be kept, so each chunk has its own
		w.index.walk(&w.mu, func(p *wishEntry) {
			if p.node.data.known {
				chunk, pods = appendVolumeToAttach(chunk, pods, p)
			}
		}, func() bool {
			for i := range chunk {
				sortPods(chunk[i].ScheduledPods)
			}
			pods = nil
			return flush(&chunk, yield)
		})
	}
}

// Pairs yields the pair of each wish, also of those of deleted nodes, by node. The lock is not held while yielding; a
// wish that is there from beginning to end is yielded exactly once.
func (w *DesiredStateOfWorld) Pairs() iter.Seq[Pair] {
	return func(yield func(Pair) bool) { w.index.walkPairs(&w.mu, yield) }
}

// appendVolumeToAttach appends the wish to chunk, and the pods that use it to pods, of which it gets a part.
func appendVolumeToAttach(chunk []VolumeToAttach, pods []*v1.Pod, wish *wishEntry) ([]VolumeToAttach, []*v1.Pod) {
	if pods == nil {
		pods = make([]*v1.Pod, 0, chunkSize)
	}
	begin := len(pods)
	pods = appendPods(pods, wish)
	return append(chunk, VolumeToAttach{
		VolumeName:               wish.volume.name,
		NodeName:                 wish.node.name,
		VolumeSpec:               wish.data.spec,
		ScheduledPods:            pods[begin:len(pods):len(pods)],
		MultiAttachErrorReported: wish.data.multiAttachErrorReported,
	}), pods
}

// appendPods appends the objects of the pods that use the wish.
func appendPods(dst []*v1.Pod, wish *wishEntry) []*v1.Pod {
	for i := range wish.data.users {
		dst = append(dst, wish.data.users[i].object)
	}
	return dst
}

// sortPods orders pods as people look for them.
func sortPods(pods []*v1.Pod) {
	if len(pods) < 2 {
		return
	}
	slices.SortFunc(pods, func(a, b *v1.Pod) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID))
	})
}

// GetPodToAdd returns every use of a volume on a node by a pod, by pod, volume and node.
func (w *DesiredStateOfWorld) GetPodToAdd() []PodToAdd {
	var all []PodToAdd
	w.index.walk(&w.mu, func(p *wishEntry) { all = appendPodsToAdd(all, p) }, func() bool { return true })
	slices.SortFunc(all, comparePodToAdd)
	return all
}

func appendPodsToAdd(dst []PodToAdd, wish *wishEntry) []PodToAdd {
	for _, u := range wish.data.users {
		dst = append(dst, PodToAdd{PodName: u.pod.name, Pod: u.object, VolumeName: wish.volume.name, NodeName: wish.node.name})
	}
	return dst
}

// PodsOf returns the pods that use the volume on the node, by name.
func (w *DesiredStateOfWorld) PodsOf(volume v1.UniqueVolumeName, node types.NodeName) []PodToAdd {
	var pods []PodToAdd
	w.mu.RLock()
	if p := w.index.pair(volume, node); p != nil {
		pods = appendPodsToAdd(make([]PodToAdd, 0, len(p.data.users)), p)
	}
	w.mu.RUnlock()
	slices.SortFunc(pods, comparePodToAdd)
	return pods
}

// GetVolumePodsOnNodes returns the pods that use the volume on any of the nodes, by namespace and name. A
// node that is named twice counts twice.
func (w *DesiredStateOfWorld) GetVolumePodsOnNodes(nodes []types.NodeName, volume v1.UniqueVolumeName) []*v1.Pod {
	var pods []*v1.Pod
	w.mu.RLock()
	if v := w.index.volumes.get(volume); v != nil {
		for _, node := range nodes {
			if p := v.pair(node); p != nil {
				pods = appendPods(pods, p)
			}
		}
	}
	w.mu.RUnlock()
	sortPods(pods)
	return pods
}

// UnresolvedPods returns the pods on the node that have volumes which could not be resolved, by name.
func (w *DesiredStateOfWorld) UnresolvedPods(node types.NodeName) []UniquePodName {
	var pods []UniquePodName
	w.mu.RLock()
	if n := w.index.nodes[node]; n != nil && len(n.data.unresolved) > 0 {
		pods = make([]UniquePodName, 0, len(n.data.unresolved))
		for name := range n.data.unresolved {
			pods = append(pods, name)
		}
	}
	w.mu.RUnlock()
	slices.Sort(pods)
	return pods
}

// NodeUnresolved returns how many pods on the node have volumes that could not be resolved.
func (w *DesiredStateOfWorld) NodeUnresolved(node types.NodeName) int {
	w.mu.RLock()
	defer w.mu.RUnlock()
	if n := w.index.nodes[node]; n != nil {
		return len(n.data.unresolved)
	}
	return 0
}
