package cache

import (
	"cmp"
	"fmt"
	"iter"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// DesiredStateOfWorld holds which volume ought to be attached to which node, because pods on the node use it:
//
//	nodes -> volumes -> pods        each (volume, node) with a pod is a wish
//	pods  -> their (volume, node)s
//
// A node is known from AddNode to DeleteNode, and pods are only taken for known nodes. A wish begins with its
// first pod and ends with its last, on whatever way that goes; nothing is left behind.
//
// All methods are safe for concurrent use. They hold the lock for what they touch, never while a plugin or a
// subscriber runs.
type DesiredStateOfWorld struct {
	plugins *VolumePluginMgr
	time    timeline

	mu         sync.RWMutex
	index      index[desiredVolume, desiredNode, wishState]
	pods       map[UniquePodName]*podEntry        // pods that use a volume
	unresolved map[UniquePodName][]types.NodeName // pods with unresolved volumes, and where
	marks      int                                // (pod, node)s in unresolved
	order      uint64                             // of the latest wish

	pairSubscribers subscribers[Pair]
	nodeSubscribers subscribers[types.NodeName]
}

// desiredVolume is what the desired world keeps of a volume.
type desiredVolume struct {
	exclusive int // how many of its uses, on any node, are exclusive
}

// desiredNode is what the desired world keeps of a node. The entry stays while the node is known, has wishes,
// or has unresolved pods.
type desiredNode struct {
	known      bool
	unresolved map[UniquePodName]struct{}
}

// wishState is what the desired world keeps of a (volume, node).
type wishState struct {
	spec                     *VolumeSpec // the latest one given
	order                    uint64
	since                    moment
	multiAttachErrorReported bool
	users                    []wishUser  // never empty, in no order
	oneUser                  [1]wishUser // where users begins: mostly there is one
}

// wishUser is the use of one volume on one node by one pod.
type wishUser struct {
	pod       *podEntry
	object    *v1.Pod
	exclusive bool
}

// podEntry is a pod and what it uses.
type podEntry struct {
	name   UniquePodName
	uses   []*wishEntry  // in no order
	oneUse [1]*wishEntry // where uses begins: mostly there is one
}

type (
	wishEntry        = pairEntry[desiredVolume, desiredNode, wishState]
	desiredNodeEntry = nodeEntry[desiredVolume, desiredNode, wishState]
)

// NewDesiredStateOfWorld returns an empty desired world. The plugins name the volumes of the specs; errors of
// their registration come back from AddPod and UpdatePod.
func NewDesiredStateOfWorld(plugins *VolumePluginMgr, opts ...Option) *DesiredStateOfWorld {
	return &DesiredStateOfWorld{
		plugins:    plugins,
		time:       newTimeline(newOptions(opts).clock),
		index:      newIndex[desiredVolume, desiredNode, wishState](),
		pods:       make(map[UniquePodName]*podEntry),
		unresolved: make(map[UniquePodName][]types.NodeName),
	}
}

// Wish is one (volume, node) that pods ask for.
type Wish struct {
	VolumeName v1.UniqueVolumeName
	NodeName   types.NodeName
	// VolumeSpec is the one given last.
	VolumeSpec *VolumeSpec
	// Exclusive is of the volume: true while any current use of it, by any pod on any node, is exclusive.
	Exclusive bool
	// Order is smaller for the older wish. It is never used twice, and kept while the wish lasts.
	Order uint64
	// Since is when the wish began, that is, when its first pod came.
	Since time.Time
	// Pods is the number of pods that use the volume on the node; at least 1.
	Pods int
	// NodeDeleted says that the node was deleted: nothing is to be attached to it any more.
	NodeDeleted bool
	// NodeUnresolved is how many pods on the node have volumes that could not be resolved.
	NodeUnresolved int
}

// VolumeToAttach is a wish as an attacher wants it.
type VolumeToAttach struct {
	VolumeName v1.UniqueVolumeName
	NodeName   types.NodeName
	VolumeSpec *VolumeSpec
	// ScheduledPods are the pods that use the volume on the node, by namespace and name. The slice is the
	// caller's, the objects are shared.
	ScheduledPods []*v1.Pod
	// MultiAttachErrorReported is what SetMultiAttachError set.
	MultiAttachErrorReported bool
}

// PodToAdd is one pod's use of one volume on one node.
type PodToAdd struct {
	PodName    UniquePodName
	Pod        *v1.Pod
	VolumeName v1.UniqueVolumeName
	NodeName   types.NodeName
}

func comparePodToAdd(a, b PodToAdd) int {
	return cmp.Or(cmp.Compare(a.PodName, b.PodName), cmp.Compare(a.VolumeName, b.VolumeName), cmp.Compare(a.NodeName, b.NodeName))
}

// AddNode makes the node known: pods on it are taken from now on. It does nothing when the node is known, and
// revives one that was deleted while pods still used volumes on it. An empty name is ignored.
func (w *DesiredStateOfWorld) AddNode(node types.NodeName) {
	if node == "" {
		return
	}
	var c changes
	w.mu.Lock()
	if n, _ := w.index.node(node); !n.data.known {
		w.lockedSetKnown(n, true, &c)
	}
	w.mu.Unlock()
	w.tell(&c)
}

// DeleteNode makes the node unknown, for good or until AddNode: NodeExists is false and no pod is taken,
// whatever is returned. While pods on it use volumes the error is [ErrNodeHasVolumes]; their wishes stay,
// with NodeDeleted, until the pods go. An absent or already deleted node without wishes is no error.
func (w *DesiredStateOfWorld) DeleteNode(node types.NodeName) error {
	var c changes
	volumes := 0
	w.mu.Lock()
	if n := w.index.nodes[node]; n != nil {
		volumes = len(n.pairs)
		if n.data.known {
			w.lockedSetKnown(n, false, &c)
			w.lockedDropNode(n)
		}
	}
	w.mu.Unlock()
	w.tell(&c)
	if volumes > 0 {
		return fmt.Errorf("delete node %q with %d volumes: %w", node, volumes, ErrNodeHasVolumes)
	}
	return nil
}

// lockedSetKnown sets whether the node is known, which is a change of each of its wishes too.
func (w *DesiredStateOfWorld) lockedSetKnown(n *desiredNodeEntry, known bool, c *changes) {
	n.data.known = known
	c.nodes.add(&w.nodeSubscribers, n.name)
	for _, p := range n.pairs {
		c.pairs.add(&w.pairSubscribers, Pair{Volume: p.volume.name, Node: n.name})
	}
}

// lockedDropNode forgets the node when there is nothing left to know of it.
func (w *DesiredStateOfWorld) lockedDropNode(n *desiredNodeEntry) {
	if !n.data.known && len(n.pairs) == 0 && len(n.data.unresolved) == 0 {
		delete(w.index.nodes, n.name)
	}
}

// NodeExists says whether the node is known: added and not deleted.
func (w *DesiredStateOfWorld) NodeExists(node types.NodeName) bool {
	w.mu.RLock()
	defer w.mu.RUnlock()
	n := w.index.nodes[node]
	return n != nil && n.data.known
}

// Nodes yields the known nodes, in the order of their names. The lock is not held while yielding; a node that is
// known from beginning to end is yielded exactly once.
func (w *DesiredStateOfWorld) Nodes() iter.Seq[types.NodeName] {
	return func(yield func(types.NodeName) bool) {
		for _, name := range sortedNodes(&w.mu, w.index.nodes, func(n *desiredNodeEntry) bool { return n.data.known }) {
			if !yield(name) {
				return
			}
		}
	}
}

// Subscribe has fn called after each change of a wish: its beginning and end, its number of pods, spec,
// exclusiveness, and whether its node is deleted. (A new pod object alone is no change of the wish.) fn runs
// in the goroutine that made the change, after the change, once per changed pair, and may use the world.
// cancel may be called any number of times; a call that has begun by then may still be running.
func (w *DesiredStateOfWorld) Subscribe(fn func(Pair)) (cancel func()) {
	return w.pairSubscribers.add(fn)
}

// SubscribeNodes has fn called, as Subscribe does, when a node was added, revived or deleted, and when the
// number of its unresolved pods became zero or not zero.
func (w *DesiredStateOfWorld) SubscribeNodes(fn func(types.NodeName)) (cancel func()) {
	return w.nodeSubscribers.add(fn)
}

// tell calls the subscribers. The world must not be locked.
func (w *DesiredStateOfWorld) tell(c *changes) {
	c.nodes.tell(&w.nodeSubscribers, cmp.Compare)
	c.pairs.tell(&w.pairSubscribers, Pair.compare)
}
