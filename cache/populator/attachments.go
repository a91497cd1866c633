package populator

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/stateofworld/stateofworld/cache"
)

// attachmentIndex holds the VolumeAttachment objects of the initial list. After MarkSynced
// only those remain that wait for something.
type attachmentIndex struct {
	byName  map[string]*attachment
	byNode  map[types.NodeName]map[*attachment]struct{}
	parked  map[*attachment]struct{}            // those that could not be resolved ...
	waiting map[string]map[*attachment]struct{} // ... by their persistent volume
}

type attachment struct {
	object   *storagev1.VolumeAttachment
	problems []Problem
	waitsFor string // the persistent volume; empty: does not wait for one

	// What it was seeded as, and the epoch that this gave the pair; zero: not seeded. While
	// the epoch is the same, nobody else has said anything about the pair.
	volume v1.UniqueVolumeName
	epoch  uint64
}

func newAttachmentIndex() attachmentIndex {
	return attachmentIndex{
		byName:  make(map[string]*attachment),
		byNode:  make(map[types.NodeName]map[*attachment]struct{}),
		parked:  make(map[*attachment]struct{}),
		waiting: make(map[string]map[*attachment]struct{}),
	}
}

func (a *attachment) node() types.NodeName { return types.NodeName(a.object.Spec.NodeName) }

// Attachments handles VolumeAttachment objects. They are the record of what was attached,
// or tried to, before the start: what they name, and the node's status does not, is seeded
// as Uncertain, whether they say attached, not yet, failed, or being deleted (S2,
// kubernetes/kubernetes#77324). What comes after MarkSynced is the work of the present,
// and ignored.
func (p *Populator) Attachments() Handler {
	return handle(p, p.lockedAttachmentChanged,
		func(name types.NamespacedName, _ *storagev1.VolumeAttachment) { p.lockedAttachmentDeleted(name.Name) })
}

func (p *Populator) lockedAttachmentChanged(object *storagev1.VolumeAttachment) {
	a := p.attachments.byName[object.Name]
	if a != nil && a.node() != types.NodeName(object.Spec.NodeName) { // another object of the same name
		p.lockedAttachmentDeleted(object.Name)
		a = nil
	}
	if a == nil {
		if p.synced {
			return
		}
		a = &attachment{object: object}
		p.attachments.byName[object.Name] = a
		addTo(p.attachments.byNode, a.node(), a)
	}
	a.object = object
	p.lockedSeed(a)
}

// lockedAttachmentDeleted forgets the record. What was seeded stays: detaching it once
// more does no harm, and that it was detached is not proven.
func (p *Populator) lockedAttachmentDeleted(name string) {
	if a := p.attachments.byName[name]; a != nil {
		p.attachments.remove(a)
	}
}

func (x *attachmentIndex) remove(a *attachment) {
	x.unpark(a)
	delete(x.byName, a.object.Name)
	removeFrom(x.byNode, a.node(), a)
}

func (x *attachmentIndex) park(a *attachment, pvName string) {
	x.parked[a] = struct{}{}
	if pvName != "" {
		a.waitsFor = pvName
		addTo(x.waiting, pvName, a)
	}
}

func (x *attachmentIndex) unpark(a *attachment) {
	a.problems = nil
	delete(x.parked, a)
	if a.waitsFor != "" {
		removeFrom(x.waiting, a.waitsFor, a)
		a.waitsFor = ""
	}
}

// lockedSeed puts into the actual world what the object is evidence of, unless more is
// known of the pair.
func (p *Populator) lockedSeed(a *attachment) {
	if state, exists := p.nodes[a.node()]; a.epoch != 0 || exists && !state.managed {
		p.lockedSettled(a)
		return
	}
	spec, pvName, bad := p.attachmentSpec(a.object)
	var volume v1.UniqueVolumeName
	if bad == nil {
		volume, bad = p.uniqueName(spec)
	}
	if bad == nil {
		bad = p.lockedSeedVolume(a, volume, spec)
	}
	if bad == nil || bad == notOurs {
		p.lockedSettled(a)
		return
	}
	had := a.problems
	p.attachments.unpark(a)
	a.problems = p.lockedReplaced(had, []Problem{{
		Kind: bad.kind, Err: bad.err, Attachment: a.object.Name, Node: a.node(), PVName: pvName,
	}})
	p.attachments.park(a, pvName)
}

// lockedSettled says that the object has nothing to wait for.
func (p *Populator) lockedSettled(a *attachment) {
	if p.synced {
		p.attachments.remove(a)
	} else {
		p.attachments.unpark(a)
	}
}

// lockedSeedAll seeds objects in the order of their names: what happens must not depend on
// the order of a map.
func (p *Populator) lockedSeedAll(set map[*attachment]struct{}) {
	all := slices.SortedFunc(maps.Keys(set), func(a, b *attachment) int { return cmp.Compare(a.object.Name, b.object.Name) })
	for _, a := range all {
		p.lockedSeed(a)
	}
}

func (p *Populator) lockedSeedVolume(a *attachment, volume v1.UniqueVolumeName, spec *cache.VolumeSpec) *trouble {
	if present, ok := p.config.Actual.GetAttachedVolume(volume, a.node()); ok {
		if !p.synced {
			p.lockedFillSpec(present, spec)
		}
		return nil
	}
	if err := p.config.Actual.MarkVolumeAsUncertain(volume, spec, a.node()); err != nil {
		return &trouble{WorldRefused, err}
	}
	a.volume, a.epoch = volume, p.config.Actual.Epoch(volume, a.node())
	return nil
}

// attachmentSpec returns the spec of the volume that the object is about, and the name of
// the persistent volume, if there is one.
func (p *Populator) attachmentSpec(object *storagev1.VolumeAttachment) (*cache.VolumeSpec, string, *trouble) {
	switch source := object.Spec.Source; {
	case source.PersistentVolumeName != nil:
		pv, bad := p.volume(*source.PersistentVolumeName)
		if bad != nil {
			return nil, *source.PersistentVolumeName, bad
		}
		return cache.NewSpecFromPersistentVolume(pv, false), pv.Name, nil
	case source.InlineVolumeSpec != nil:
		pv := &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: object.Name}, Spec: *source.InlineVolumeSpec}
		return cache.NewSpecFromPersistentVolume(pv, false), "", nil
	default:
		return nil, "", &trouble{NoSource, fmt.Errorf("names neither a persistent volume nor an inline one")}
	}
}

// lockedSeedNode seeds what the status of a node says is attached. That is done when the
// node is seen for the first time; later the status only has what was written from here.
func (p *Populator) lockedSeedNode(node *v1.Node) {
	name := types.NodeName(node.Name)
	records := p.attachments.byNode[name]
	seeded := make(map[v1.UniqueVolumeName]uint64, len(records))
	for a := range records {
		if a.epoch != 0 {
			seeded[a.volume] = a.epoch
		}
	}
	for _, volume := range node.Status.VolumesAttached {
		present, ok := p.config.Actual.GetAttachedVolume(volume.Name, name)
		if ok && present.Epoch != seeded[volume.Name] {
			continue // someone knows better
		}
		if err := p.config.Actual.MarkVolumeAsAttached(volume.Name, nil, name, volume.DevicePath); err != nil {
			p.lockedTell(Problem{Kind: WorldRefused, Node: name, Err: err, Since: p.config.Clock.Now()})
		}
	}
	p.lockedSeedAll(records)
}

// lockedDisown takes back what was seeded for a node that turns out not to be managed:
// nobody here may detach it.
func (p *Populator) lockedDisown(node types.NodeName) {
	for a := range p.attachments.byNode[node] {
		if a.epoch != 0 {
			p.config.Actual.MarkDetachedIfEpoch(a.volume, node, a.epoch)
			a.volume, a.epoch = "", 0
		}
		p.lockedSettled(a)
	}
}

// MarkSynced says that the initial lists are through the handlers. Volume attachments are
// no evidence of the past from now on, and problems are told. Call it once, before the
// reconciler runs; again it does nothing.
func (p *Populator) MarkSynced() {
	p.update(func() {
		if p.synced {
			return
		}
		p.synced = true
		for _, a := range p.attachments.byName {
			if _, parked := p.attachments.parked[a]; !parked {
				p.attachments.remove(a)
			}
		}
		for _, problem := range p.lockedUnresolved() {
			p.lockedTell(problem)
		}
	})
}

// Synced says whether MarkSynced was called.
func (p *Populator) Synced() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.synced
}
