package cache

import (
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// resolvedSpec is a spec with what its plugin said, so that no plugin is asked under the lock.
type resolvedSpec struct {
	spec      *VolumeSpec
	volume    v1.UniqueVolumeName
	exclusive bool
}

func (w *DesiredStateOfWorld) resolve(spec *VolumeSpec) (resolvedSpec, error) {
	plugin, name, err := w.plugins.resolve(spec)
	if err != nil {
		return resolvedSpec{}, err
	}
	return resolvedSpec{spec: spec, volume: name, exclusive: !plugin.CanMultiAttach(spec)}, nil
}

// AddPod says that the pod uses the volume on the node, and returns the volume's name. Adding it again
// refreshes the pod object, the spec, and whether this use is exclusive; the wish keeps its place and its
// age. The volume must be attachable.
//
// Errors, with nothing changed: [*InvalidError] for an empty name, a nil pod or a bad spec; those of
// [VolumePluginMgr.UniqueVolumeName]; [ErrNodeUnknown] when the node is not known.
func (w *DesiredStateOfWorld) AddPod(name UniquePodName, pod *v1.Pod, spec *VolumeSpec, node types.NodeName) (v1.UniqueVolumeName, error) {
	fail := func(err error) (v1.UniqueVolumeName, error) {
		return "", fmt.Errorf("add pod %q to node %q: %w", name, node, err)
	}
	if err := validatePod(name, pod, node); err != nil {
		return fail(err)
	}
	r, err := w.resolve(spec)
	if err != nil {
		return fail(err)
	}
	now := w.time.now()

	var c changes
	w.mu.Lock()
	n := w.index.nodes[node]
	if n == nil || !n.data.known {
		w.mu.Unlock()
		return fail(ErrNodeUnknown)
	}
	volume := w.lockedAddUse(name, pod, r, n, now, &c)
	w.mu.Unlock()
	w.tell(&c)
	return volume, nil
}

func validatePod(name UniquePodName, pod *v1.Pod, node types.NodeName) error {
	if err := requireName("pod name", name); err != nil {
		return err
	}
	if err := requireName("node name", node); err != nil {
		return err
	}
	if pod == nil {
		return &InvalidError{Field: "pod", Reason: "must not be nil"}
	}
	return nil
}

// DeletePod says that the pod no longer uses the volume on the node. It does nothing when it did not. The
// wish ends with its last pod.
func (w *DesiredStateOfWorld) DeletePod(name UniquePodName, volume v1.UniqueVolumeName, node types.NodeName) {
	var c changes
	w.mu.Lock()
	if pod := w.pods[name]; pod != nil {
		w.lockedRemoveUses(pod, func(wish *wishEntry) bool {
			return wish.volume.name == volume && wish.node.name == node
		}, &c)
	}
	w.mu.Unlock()
	w.tell(&c)
}

// DeletePodFromAll says that the pod is gone: it uses no volume on any node, and none of its volumes is
// unresolved.
func (w *DesiredStateOfWorld) DeletePodFromAll(name UniquePodName) {
	var c changes
	w.mu.Lock()
	w.lockedDeletePod(name, &c)
	w.mu.Unlock()
	w.tell(&c)
}

// PodUpdate is the whole wish of one pod, for [DesiredStateOfWorld.UpdatePod].
type PodUpdate struct {
	// Old is the pod that Name takes the place of, when it has another name; empty when there is none.
	Old UniquePodName
	// Name is the pod.
	Name UniquePodName
	// Pod is its object; may be nil only without Specs.
	Pod *v1.Pod
	// Node is where it runs; may be empty only without Specs and Unresolved.
	Node types.NodeName
	// Specs are all of its attachable volumes that could be resolved.
	Specs []*VolumeSpec
	// Unresolved says that there are others that could not: what the pod used until now is kept, and the node
	// is marked as by SetPodUnresolved.
	Unresolved bool
}

// UpdatePod makes the whole wish of a pod true in one step; no reader sees a moment between. Old, if set and
// not Name, is removed everywhere. Name uses exactly the volumes of Specs on Node; whatever else it used, on
// any node, goes, unless Unresolved: then it is kept, since "could not be resolved" does not mean "no longer
// wanted". Name is unresolved on Node if Unresolved, and nowhere else. A wish that has a user before and
// after keeps its place and its age.
//
// It returns the names of the volumes in the order of Specs. Errors are those of AddPod, and [ErrNodeUnknown]
// only when there are Specs. On an error nothing is changed.
func (w *DesiredStateOfWorld) UpdatePod(u PodUpdate) ([]v1.UniqueVolumeName, error) {
	resolved, err := w.resolveUpdate(u)
	if err != nil {
		return nil, fmt.Errorf("update pod %q on node %q: %w", u.Name, u.Node, err)
	}
	now := w.time.now()

	var c changes
	w.mu.Lock()
	n := w.index.nodes[u.Node]
	if len(resolved) > 0 && (n == nil || !n.data.known) {
		w.mu.Unlock()
		return nil, fmt.Errorf("update pod %q on node %q: %w", u.Name, u.Node, ErrNodeUnknown)
	}
	// What is new comes first, so that a wish that only changes its user does not end in between.
	names := make([]v1.UniqueVolumeName, len(resolved))
	for i, r := range resolved {
		names[i] = w.lockedAddUse(u.Name, u.Pod, r, n, now, &c)
	}
	if u.Unresolved {
		w.lockedMark(u.Name, u.Node, &c)
	}
	if pod := w.pods[u.Name]; pod != nil && !u.Unresolved {
		w.lockedRemoveUses(pod, func(wish *wishEntry) bool {
			return wish.node != n || !slices.ContainsFunc(resolved, func(r resolvedSpec) bool { return r.volume == wish.volume.name })
		}, &c)
	}
	w.lockedUnmark(u.Name, func(node types.NodeName) bool { return !u.Unresolved || node != u.Node }, &c)
	if u.Old != u.Name {
		w.lockedDeletePod(u.Old, &c)
	}
	w.mu.Unlock()
	w.tell(&c)
	return names, nil
}

// resolveUpdate checks the update and resolves its specs.
func (w *DesiredStateOfWorld) resolveUpdate(u PodUpdate) ([]resolvedSpec, error) {
	if err := requireName("pod name", u.Name); err != nil {
		return nil, err
	}
	if len(u.Specs) > 0 {
		if err := validatePod(u.Name, u.Pod, u.Node); err != nil {
			return nil, err
		}
	}
	if u.Unresolved {
		if err := requireName("node name", u.Node); err != nil {
			return nil, err
		}
	}
	resolved := make([]resolvedSpec, len(u.Specs))
	for i, spec := range u.Specs {
		r, err := w.resolve(spec)
		if err != nil {
			return nil, err
		}
		// A pod may name a volume twice; the use is exclusive if either says so.
		for j := range resolved[:i] {
			if resolved[j].volume == r.volume {
				r.exclusive = r.exclusive || resolved[j].exclusive
				resolved[j].exclusive = r.exclusive
			}
		}
		resolved[i] = r
	}
	return resolved, nil
}

// lockedAddUse makes the pod a user of the volume on the node, or refreshes that use. It returns the volume's
// name as the world keeps it, so that callers that remember names share the string.
func (w *DesiredStateOfWorld) lockedAddUse(name UniquePodName, object *v1.Pod, r resolvedSpec, n *desiredNodeEntry, now moment, c *changes) v1.UniqueVolumeName {
	wish := w.index.pair(r.volume, n.name)
	changed := wish == nil
	if wish == nil {
		wish = w.index.add(r.volume, n)
		w.order++
		wish.data.order, wish.data.since = w.order, now
	}
	if !wish.data.spec.same(r.spec) {
		wish.data.spec = r.spec
		changed = true
	}
	pod := w.pods[name]
	if pod == nil {
		pod = &podEntry{name: name}
		pod.uses = pod.oneUse[:0]
		w.pods[name] = pod
	}
	if !slices.Contains(pod.uses, wish) {
		pod.uses = append(pod.uses, wish)
		if wish.data.users == nil {
			wish.data.users = wish.data.oneUser[:0]
		}
		wish.data.users = append(wish.data.users, wishUser{pod: pod})
		changed = true
	}
	user := wish.data.user(pod)
	user.object = object
	if user.exclusive != r.exclusive {
		user.exclusive = r.exclusive
		w.lockedCountExclusive(wish, r.exclusive, c)
	}
	if changed {
		w.lockedChanged(wish, c)
	}
	return wish.volume.name
}

// user returns the pod's use of the wish, which it must have.
func (s *wishState) user(pod *podEntry) *wishUser {
	return &s.users[slices.IndexFunc(s.users, func(u wishUser) bool { return u.pod == pod })]
}

// lockedRemoveUses removes the uses of the pod that go, and then the pod if it has none left.
func (w *DesiredStateOfWorld) lockedRemoveUses(pod *podEntry, goes func(*wishEntry) bool, c *changes) {
	pod.uses = slices.DeleteFunc(pod.uses, func(wish *wishEntry) bool {
		if !goes(wish) {
			return false
		}
		w.lockedEndUse(pod, wish, c)
		return true
	})
	if len(pod.uses) == 0 {
		delete(w.pods, pod.name)
	}
}

// lockedEndUse takes the pod out of the users of the wish. The wish ends with the last of them.
func (w *DesiredStateOfWorld) lockedEndUse(pod *podEntry, wish *wishEntry, c *changes) {
	user := wish.data.user(pod)
	exclusive := user.exclusive
	last := len(wish.data.users) - 1
	*user = wish.data.users[last]
	wish.data.users[last] = wishUser{}
	wish.data.users = wish.data.users[:last]

	w.lockedChanged(wish, c)
	if exclusive {
		w.lockedCountExclusive(wish, false, c)
	}
	if last == 0 {
		n := wish.node
		w.index.remove(wish)
		w.lockedDropNode(n)
	}
}

// lockedCountExclusive counts one exclusive use of the volume more or less. With the first and the last one
// the volume itself changes, and that is a change of all of its wishes.
func (w *DesiredStateOfWorld) lockedCountExclusive(wish *wishEntry, more bool, c *changes) {
	v := wish.volume
	was := v.data.exclusive > 0
	if more {
		v.data.exclusive++
	} else {
		v.data.exclusive--
	}
	if was != (v.data.exclusive > 0) && w.pairSubscribers.active() {
		v.each(func(p *wishEntry) { w.lockedChanged(p, c) })
	}
}

func (w *DesiredStateOfWorld) lockedChanged(wish *wishEntry, c *changes) {
	c.pairs.add(&w.pairSubscribers, Pair{Volume: wish.volume.name, Node: wish.node.name})
}

// lockedDeletePod removes all uses and marks of the pod.
func (w *DesiredStateOfWorld) lockedDeletePod(name UniquePodName, c *changes) {
	if pod := w.pods[name]; pod != nil {
		w.lockedRemoveUses(pod, func(*wishEntry) bool { return true }, c)
	}
	w.lockedUnmark(name, func(types.NodeName) bool { return true }, c)
}

// SetPodUnresolved says whether the pod, which runs on the node, has volumes that could not be resolved. Such
// a pod may use any volume that is attached to its node, so it counts for the node (see Wish.NodeUnresolved)
// until this is taken back, by this method, DeletePodFromAll, or UpdatePod. The node need not be known. Empty
// names are ignored.
func (w *DesiredStateOfWorld) SetPodUnresolved(name UniquePodName, node types.NodeName, unresolved bool) {
	if name == "" || node == "" {
		return
	}
	var c changes
	w.mu.Lock()
	if unresolved {
		w.lockedMark(name, node, &c)
	} else {
		w.lockedUnmark(name, func(n types.NodeName) bool { return n == node }, &c)
	}
	w.mu.Unlock()
	w.tell(&c)
}

// lockedMark marks the pod as unresolved on the node.
func (w *DesiredStateOfWorld) lockedMark(name UniquePodName, node types.NodeName, c *changes) {
	if slices.Contains(w.unresolved[name], node) {
		return
	}
	n, _ := w.index.node(node)
	w.unresolved[name] = append(w.unresolved[name], n.name)
	w.marks++
	if n.data.unresolved == nil {
		n.data.unresolved = make(map[UniquePodName]struct{}, 1)
		c.nodes.add(&w.nodeSubscribers, n.name)
	}
	n.data.unresolved[name] = struct{}{}
}

// lockedUnmark removes the marks of the pod on the nodes that match.
func (w *DesiredStateOfWorld) lockedUnmark(name UniquePodName, match func(types.NodeName) bool, c *changes) {
	marked := w.unresolved[name]
	if len(marked) == 0 {
		return
	}
	left := slices.DeleteFunc(marked, func(node types.NodeName) bool {
		if !match(node) {
			return false
		}
		n := w.index.nodes[node]
		delete(n.data.unresolved, name)
		w.marks--
		if len(n.data.unresolved) == 0 {
			n.data.unresolved = nil
			c.nodes.add(&w.nodeSubscribers, node)
			w.lockedDropNode(n)
		}
		return true
	})
	if len(left) == 0 {
		delete(w.unresolved, name)
		return
	}
	w.unresolved[name] = left
}

// SetMultiAttachError remembers that it was reported that the wish has to wait for another node. It does
// nothing when there is no such wish, and is forgotten with the wish.
func (w *DesiredStateOfWorld) SetMultiAttachError(volume v1.UniqueVolumeName, node types.NodeName) {
	w.setMultiAttachError(volume, node, true)
}

// ResetMultiAttachError forgets what SetMultiAttachError remembers, so that the next conflict is reported
// again.
func (w *DesiredStateOfWorld) ResetMultiAttachError(volume v1.UniqueVolumeName, node types.NodeName) {
	w.setMultiAttachError(volume, node, false)
}

func (w *DesiredStateOfWorld) setMultiAttachError(volume v1.UniqueVolumeName, node types.NodeName, reported bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if wish := w.index.pair(volume, node); wish != nil {
		wish.data.multiAttachErrorReported = reported
	}
}
