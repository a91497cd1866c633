package cache

import (
	"fmt"
	"slices"
)

// DesiredSizes is how much a desired world holds. Everything is zero after everything was removed.
type DesiredSizes struct {
	// Nodes counts known nodes, and deleted ones that still have wishes or unresolved pods.
	Nodes int
	// Volumes counts volumes with a wish.
	Volumes int
	// Pairs counts wishes.
	Pairs int
	// Pods counts pods that use a volume.
	Pods int
	// Unresolved counts (pod, node)s that are unresolved.
	Unresolved int
}

// Sizes returns how much the world holds.
func (w *DesiredStateOfWorld) Sizes() DesiredSizes {
	w.mu.RLock()
	defer w.mu.RUnlock()
	return DesiredSizes{
		Nodes:      len(w.index.nodes),
		Volumes:    w.index.volumes.len,
		Pairs:      w.index.pairs,
		Pods:       len(w.pods),
		Unresolved: w.marks,
	}
}

// CheckInvariants walks everything and returns an error when two places contradict each other, which would be
// a fault of this package. It is for tests: the world is locked meanwhile.
func (w *DesiredStateOfWorld) CheckInvariants() error {
	w.mu.RLock()
	defer w.mu.RUnlock()
	if err := w.index.check(); err != nil {
		return fmt.Errorf("desired state of world: %w", err)
	}
	for _, check := range []func() error{w.lockedCheckUsers, w.lockedCheckPods, w.lockedCheckNodes} {
		if err := check(); err != nil {
			return fmt.Errorf("desired state of world: %w", err)
		}
	}
	return nil
}

func (w *DesiredStateOfWorld) lockedCheckUsers() (err error) {
	w.index.volumes.each(func(v *volumeEntry[desiredVolume, desiredNode, wishState]) bool {
		exclusive := 0
		v.each(func(p *wishEntry) {
			if len(p.data.users) == 0 || p.data.spec == nil || p.data.order == 0 || p.data.order > w.order {
				err = fmt.Errorf("wish %q on %q: %d users, spec %q, order %d of %d", v.name, p.node.name, len(p.data.users), p.data.spec.Name(), p.data.order, w.order)
			}
			for _, u := range p.data.users {
				if w.pods[u.pod.name] != u.pod || !slices.Contains(u.pod.uses, p) || u.object == nil {
					err = fmt.Errorf("wish %q on %q: its pod %q does not agree", v.name, p.node.name, u.pod.name)
				}
				if u.exclusive {
					exclusive++
				}
			}
		})
		if err == nil && exclusive != v.data.exclusive {
			err = fmt.Errorf("volume %q has %d exclusive uses, counted are %d", v.name, exclusive, v.data.exclusive)
		}
		return err == nil
	})
	return err
}

func (w *DesiredStateOfWorld) lockedCheckPods() error {
	for name, pod := range w.pods {
		if pod.name != name || len(pod.uses) == 0 {
			return fmt.Errorf("pod %q, kept under %q, has %d uses", pod.name, name, len(pod.uses))
		}
		seen := make(map[*wishEntry]bool, len(pod.uses))
		for _, wish := range pod.uses {
			if wish.node == nil || seen[wish] || !slices.ContainsFunc(wish.data.users, func(u wishUser) bool { return u.pod == pod }) {
				return fmt.Errorf("pod %q uses a wish twice, or one that does not know it", name)
			}
			seen[wish] = true
		}
	}
	return nil
}

func (w *DesiredStateOfWorld) lockedCheckNodes() error {
	marks := 0
	for name, n := range w.index.nodes {
		if !n.data.known && len(n.pairs) == 0 && len(n.data.unresolved) == 0 {
			return fmt.Errorf("node %q is kept without a reason", name)
		}
		if n.data.unresolved != nil && len(n.data.unresolved) == 0 {
			return fmt.Errorf("node %q keeps an empty set of unresolved pods", name)
		}
		for pod := range n.data.unresolved {
			marks++
			if !slices.Contains(w.unresolved[pod], name) {
				return fmt.Errorf("node %q has the unresolved pod %q, which does not know", name, pod)
			}
		}
	}
	byPod := 0
	for _, nodes := range w.unresolved {
		byPod += len(nodes)
	}
	if marks != w.marks || byPod != w.marks {
		return fmt.Errorf("%d unresolved (pod, node)s are counted, %d found by node, %d by pod", w.marks, marks, byPod)
	}
	return nil
}
