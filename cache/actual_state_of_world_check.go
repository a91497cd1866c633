package cache

import "fmt"

// ActualSizes is how much an actual world holds. Everything is zero after every volume was detached and every
// node deleted.
type ActualSizes struct {
	// Volumes counts volumes that are Attached or Uncertain anywhere.
	Volumes int
	// Nodes counts nodes with attachments, and those of which health or in-use list are known.
	Nodes int
	// Pairs counts (volume, node)s that are Attached or Uncertain.
	Pairs int
	// Dirty counts nodes whose report changed and was not handed out.
	Dirty int
	// InUse counts volumes, per node, that the node uses and that are not attached to it as far as is known.
	InUse int
}

// Sizes returns how much the world holds.
func (w *ActualStateOfWorld) Sizes() ActualSizes {
	w.mu.RLock()
	defer w.mu.RUnlock()
	return ActualSizes{
		Volumes: w.index.volumes.len,
		Nodes:   len(w.index.nodes),
		Pairs:   w.index.pairs,
		Dirty:   len(w.dirty),
		InUse:   w.remembered,
	}
}

// CheckInvariants walks everything and returns an error when two places contradict each other, which would be
// a fault of this package. It is for tests: the world is locked meanwhile.
func (w *ActualStateOfWorld) CheckInvariants() error {
	w.mu.RLock()
	defer w.mu.RUnlock()
	if err := w.index.check(); err != nil {
		return fmt.Errorf("actual state of world: %w", err)
	}
	if err := w.lockedCheckAttachments(); err != nil {
		return fmt.Errorf("actual state of world: %w", err)
	}
	if err := w.lockedCheckNodes(); err != nil {
		return fmt.Errorf("actual state of world: %w", err)
	}
	return nil
}

func (w *ActualStateOfWorld) lockedCheckAttachments() (err error) {
	epochs := make(map[uint64]bool, w.index.pairs)
	w.index.volumes.each(func(v *volumeEntry[actualVolume, actualNode, attachmentState]) bool {
		v.each(func(p *attachmentEntry) {
			d := p.data
			switch {
			case d.state != Attached && d.state != Uncertain:
				err = fmt.Errorf("volume %q on node %q has an entry, but is %v", v.name, p.node.name, d.state)
			case d.withdrawn && d.state != Attached:
				err = fmt.Errorf("volume %q on node %q is withdrawn from the report, but %v", v.name, p.node.name, d.state)
			case d.epoch == 0 || d.epoch > v.data.epoch || v.data.epoch > w.epoch || epochs[d.epoch]:
				err = fmt.Errorf("volume %q on node %q has the epoch %d, the volume %d, the world %d", v.name, p.node.name, d.epoch, v.data.epoch, w.epoch)
			case d.listed || p.node.data.inUseKnown && d.inUse == InUseUnknown:
				err = fmt.Errorf("volume %q on node %q: in use is %v", v.name, p.node.name, d.inUse)
			case !d.hasDetachRequest && d.detachRequested != 0:
				err = fmt.Errorf("volume %q on node %q keeps the time of a detach request that is over", v.name, p.node.name)
			}
			epochs[d.epoch] = true
		})
		return err == nil
	})
	return err
}

func (w *ActualStateOfWorld) lockedCheckNodes() error {
	remembered := 0
	for name, n := range w.index.nodes {
		d := &n.data
		if len(n.pairs) == 0 && !d.inUseKnown && (d.health == NodeHealth{} || d.health.Deleted) {
			return fmt.Errorf("node %q is kept without a reason", name)
		}
		if len(d.inUse) > 0 && !d.inUseKnown || d.inUse != nil && len(d.inUse) == 0 {
			return fmt.Errorf("node %q keeps %d names in use, known: %t", name, len(d.inUse), d.inUseKnown)
		}
		mounted := 0
		for _, p := range n.pairs {
			if p.data.inUse == Mounted {
				mounted++
			}
		}
		if mounted != d.mounted {
			return fmt.Errorf("node %q has %d volumes mounted, counted are %d", name, mounted, d.mounted)
		}
		remembered += len(d.inUse)
		for volume, listed := range d.inUse {
			if listed || w.index.pair(volume, name) != nil {
				return fmt.Errorf("node %q keeps the name %q as in use beside its attachment", name, volume)
			}
		}
		if _, dirty := w.dirty[name]; dirty && d.health.Deleted {
			return fmt.Errorf("node %q is deleted, and yet its report waits", name)
		}
	}
	if remembered != w.remembered {
		return fmt.Errorf("%d names in use are counted, %d found", w.remembered, remembered)
	}
	return nil
}
