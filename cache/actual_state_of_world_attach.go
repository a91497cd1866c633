package cache

import (
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// AddVolumeNode says that the volume of the spec was seen attached to the node, and returns the volume's
// name. If the pair was not Attached it becomes so: it enters the report, and a detach request is dropped. If
// it was, spec and device path are refreshed, an empty path being no news, and nothing else: what is being
// detached stays out of the report.
//
// Errors, with nothing changed: [*InvalidError] for an empty node name or a bad spec; those of
// [VolumePluginMgr.UniqueVolumeName].
func (w *ActualStateOfWorld) AddVolumeNode(spec *VolumeSpec, node types.NodeName, devicePath string) (v1.UniqueVolumeName, error) {
	err := requireName("node name", node)
	var volume v1.UniqueVolumeName
	if err == nil {
		volume, err = w.plugins.UniqueVolumeName(spec)
	}
	if err != nil {
		return "", fmt.Errorf("add volume %q to node %q: %w", spec.Name(), node, err)
	}
	return w.set(volume, node, func(s attachmentState, now moment) attachmentState {
		path := devicePath
		if s.state == Attached && path == "" {
			path = s.devicePath
		}
		s.become(Attached, now)
		s.refresh(spec, path)
		return s
	}), nil
}

// MarkVolumeAsAttached says that an attach succeeded. The pair becomes Attached, enters the report, and a
// detach request is dropped. The device path is the one given, even if empty. The spec may be nil, which
// leaves a known one as it is.
//
// Errors, with nothing changed: [*InvalidError] for an empty name or a bad spec.
func (w *ActualStateOfWorld) MarkVolumeAsAttached(volume v1.UniqueVolumeName, spec *VolumeSpec, node types.NodeName, devicePath string) error {
	if err := validateAttachment(volume, spec, node); err != nil {
		return fmt.Errorf("mark volume %q on node %q as attached: %w", volume, node, err)
	}
	w.set(volume, node, func(s attachmentState, now moment) attachmentState {
		s.become(Attached, now)
		s.withdrawn = false
		s.resetDetachRequest()
		s.refresh(spec, devicePath)
		return s
	})
	return nil
}

// MarkVolumeAsUncertain says that nobody knows whether the volume is attached to the node, as after an attach
// or a detach with an unknown outcome. The pair leaves the report in the same step. Device path and detach
// request stay. The spec may be nil, which leaves a known one as it is.
//
// Errors, with nothing changed: [*InvalidError] for an empty name or a bad spec.
func (w *ActualStateOfWorld) MarkVolumeAsUncertain(volume v1.UniqueVolumeName, spec *VolumeSpec, node types.NodeName) error {
	if err := validateAttachment(volume, spec, node); err != nil {
		return fmt.Errorf("mark volume %q on node %q as uncertain: %w", volume, node, err)
	}
	w.set(volume, node, func(s attachmentState, now moment) attachmentState {
		s.become(Uncertain, now)
		s.refresh(spec, s.devicePath)
		return s
	})
	return nil
}

func validateAttachment(volume v1.UniqueVolumeName, spec *VolumeSpec, node types.NodeName) error {
	if err := requireName("volume name", volume); err != nil {
		return err
	}
	if err := requireName("node name", node); err != nil {
		return err
	}
	if spec != nil {
		return spec.Validate()
	}
	return nil
}

// MarkVolumeAsDetached says that a detach succeeded. It is DeleteVolumeNode.
func (w *ActualStateOfWorld) MarkVolumeAsDetached(volume v1.UniqueVolumeName, node types.NodeName) {
	w.DeleteVolumeNode(volume, node)
}

// DeleteVolumeNode says that the volume is not attached to the node. The pair's entry goes, and so do those
// of its volume and its node if nothing else is known of them. It does nothing when there is no entry.
func (w *ActualStateOfWorld) DeleteVolumeNode(volume v1.UniqueVolumeName, node types.NodeName) {
	var c changes
	w.mu.Lock()
	if p := w.index.pair(volume, node); p != nil {
		w.lockedRemove(p, &c)
	}
	w.mu.Unlock()
	w.tell(&c)
}

// MarkDetachedIfEpoch is MarkVolumeAsDetached if the epoch of the pair is still the given one, so that an
// answer about an older state does no harm. False means that the pair has changed and nothing was done.
// (Epoch 0 is the one of an absent pair: it is detached.)
func (w *ActualStateOfWorld) MarkDetachedIfEpoch(volume v1.UniqueVolumeName, node types.NodeName, epoch uint64) bool {
	var c changes
	w.mu.Lock()
	p := w.index.pair(volume, node)
	same := epochOf(p) == epoch
	if same && p != nil {
		w.lockedRemove(p, &c)
	}
	w.mu.Unlock()
	w.tell(&c)
	return same
}

// MarkUncertainIfEpoch is MarkVolumeAsUncertain if the epoch of the pair is still the given one. False means
// that the pair has changed, or that a name is empty, and nothing was done. (Epoch 0 is the one of an absent
// pair: an entry is made if there still is none.)
func (w *ActualStateOfWorld) MarkUncertainIfEpoch(volume v1.UniqueVolumeName, node types.NodeName, epoch uint64) bool {
	if volume == "" || node == "" {
		return false
	}
	now := w.time.now()
	var c changes
	w.mu.Lock()
	p := w.index.pair(volume, node)
	same := epochOf(p) == epoch
	if same {
		w.lockedSet(p, volume, node, func(s attachmentState, now moment) attachmentState {
			s.become(Uncertain, now)
			return s
		}, now, &c)
	}
	w.mu.Unlock()
	w.tell(&c)
	return same
}

func epochOf(p *attachmentEntry) uint64 {
	if p == nil {
		return 0
	}
	return p.data.epoch
}

// stateChange returns the state after the change. It may be called several times.
type stateChange func(before attachmentState, now moment) (after attachmentState)

// set changes the entry of the pair, making it when there is none, and returns the volume's name as the world
// keeps it. Much that is told is known already: it is looked up first, without keeping readers out.
func (w *ActualStateOfWorld) set(volume v1.UniqueVolumeName, node types.NodeName, change stateChange) v1.UniqueVolumeName {
	now := w.time.now()
	w.mu.RLock()
	if p := w.index.pair(volume, node); p != nil && change(p.data, now) == p.data {
		volume = p.volume.name
		w.mu.RUnlock()
		return volume
	}
	w.mu.RUnlock()

	var c changes
	w.mu.Lock()
	volume = w.lockedSet(w.index.pair(volume, node), volume, node, change, now, &c)
	w.mu.Unlock()
	w.tell(&c)
	return volume
}

// lockedSet is the one place where attachments come into being and change state, spec or device path. It
// keeps epochs, report and subscribers in step with them. p is the entry of the pair, or nil.
func (w *ActualStateOfWorld) lockedSet(p *attachmentEntry, volume v1.UniqueVolumeName, node types.NodeName, change stateChange, now moment, c *changes) v1.UniqueVolumeName {
	if p == nil {
		p = w.lockedAdd(volume, node)
	}
	before := p.data
	p.data = change(before, now)
	if p.data.state != before.state || p.data.spec != before.spec || p.data.devicePath != before.devicePath {
		w.epoch++
		p.data.epoch, p.volume.data.epoch = w.epoch, w.epoch
	}
	if p.data.epoch != before.epoch || p.data.hasDetachRequest != before.hasDetachRequest {
		w.lockedChanged(p, c)
	}
	if p.data.reported() != before.reported() || p.data.reported() && p.data.devicePath != before.devicePath {
		w.lockedReportChanged(p.node, c)
	}
	return p.volume.name
}

// lockedAdd makes an entry for a pair that has none, in no state yet, with what its node said about the
// volume before.
func (w *ActualStateOfWorld) lockedAdd(volume v1.UniqueVolumeName, node types.NodeName) *attachmentEntry {
	n := w.lockedNode(node)
	p := w.index.add(volume, n)
	if !n.data.inUseKnown {
		return p
	}
	p.data.inUse = NotInUse
	if _, listed := n.data.inUse[volume]; listed {
		p.data.inUse = Mounted
		n.data.mounted++
		w.lockedForgetInUse(n, volume)
	}
	return p
}

// lockedRemove removes the entry of the pair.
func (w *ActualStateOfWorld) lockedRemove(p *attachmentEntry, c *changes) {
	v, n := p.volume, p.node
	w.lockedChanged(p, c)
	if p.data.reported() {
		w.lockedReportChanged(n, c)
	}
	if p.data.inUse == Mounted {
		n.data.mounted--
		if n.data.inUseKnown {
			w.lockedRememberInUse(n, v.name)
		}
	}
	w.epoch++
	v.data.epoch = w.epoch
	w.index.remove(p)
	w.lockedDropNode(n)
}

func (w *ActualStateOfWorld) lockedChanged(p *attachmentEntry, c *changes) {
	c.pairs.add(&w.pairSubscribers, Pair{Volume: p.volume.name, Node: p.node.name})
}

// become changes the state. What was withdrawn from the report was so for a detach that is over by then. A
// detach request ends when the volume turns out to be attached after all.
func (s *attachmentState) become(state AttachState, now moment) {
	if s.state == state {
		return
	}
	s.state, s.since, s.withdrawn = state, now, false
	if state == Attached {
		s.resetDetachRequest()
	}
}

// refresh sets spec and device path. A nil spec is unknown, and does not replace a known one.
func (s *attachmentState) refresh(spec *VolumeSpec, devicePath string) {
	if spec != nil && !s.spec.same(spec) {
		s.spec = spec
	}
	s.devicePath = devicePath
}

func (s *attachmentState) resetDetachRequest() {
	s.detachRequested, s.hasDetachRequest = 0, false
}

// reported says whether the volume is in the report of its node.
func (s *attachmentState) reported() bool { return s.state == Attached && !s.withdrawn }

// SetDetachRequestTime says that a detach is wanted, and returns for how long it has been: zero the first
// time. It keeps the first time until ResetDetachRequestTime, or until the volume is attached again. Error:
// [ErrNotAttached].
func (w *ActualStateOfWorld) SetDetachRequestTime(volume v1.UniqueVolumeName, node types.NodeName) (time.Duration, error) {
	now := w.time.now()
	w.mu.RLock()
	p := w.index.pair(volume, node)
	if p != nil && p.data.hasDetachRequest {
		elapsed := max(0, now-p.data.detachRequested)
		w.mu.RUnlock()
		return time.Duration(elapsed), nil
	}
	w.mu.RUnlock()

	var c changes
	w.mu.Lock()
	p = w.index.pair(volume, node)
	if p == nil {
		w.mu.Unlock()
		return 0, fmt.Errorf("set detach request time of volume %q on node %q: %w", volume, node, ErrNotAttached)
	}
	if !p.data.hasDetachRequest {
		p.data.detachRequested, p.data.hasDetachRequest = now, true
		w.lockedChanged(p, &c)
	}
	elapsed := max(0, now-p.data.detachRequested)
	w.mu.Unlock()
	w.tell(&c)
	return time.Duration(elapsed), nil
}

// ResetDetachRequestTime says that no detach is wanted any more, whatever the state of the pair (F2,
// kubernetes/kubernetes#65392). It does nothing when there is no entry.
func (w *ActualStateOfWorld) ResetDetachRequestTime(volume v1.UniqueVolumeName, node types.NodeName) {
	w.mu.RLock()
	p := w.index.pair(volume, node)
	requested := p != nil && p.data.hasDetachRequest
	w.mu.RUnlock()
	if !requested {
		return
	}

	var c changes
	w.mu.Lock()
	if p := w.index.pair(volume, node); p != nil && p.data.hasDetachRequest {
		p.data.resetDetachRequest()
		w.lockedChanged(p, &c)
	}
	w.mu.Unlock()
	w.tell(&c)
}
