package populator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/stateofworld/stateofworld/cache"
)

// Pods handles pods.
func (p *Populator) Pods() Handler {
	return handle(p, p.lockedPodChanged, p.lockedPodDeleted)
}

// Claims handles persistent volume claims: the pods that name a claim are looked at again.
func (p *Populator) Claims() Handler {
	return handle(p,
		func(claim *v1.PersistentVolumeClaim) { p.lockedClaim(nameOf(claim)) },
		func(name types.NamespacedName, _ *v1.PersistentVolumeClaim) { p.lockedClaim(name) })
}

// Volumes handles persistent volumes: the pods whose claims name a volume, and the volume
// attachments that wait for it, are looked at again.
func (p *Populator) Volumes() Handler {
	return handle(p,
		func(pv *v1.PersistentVolume) { p.lockedVolume(pv.Name) },
		func(name types.NamespacedName, _ *v1.PersistentVolume) { p.lockedVolume(name.Name) })
}

func (p *Populator) lockedPodChanged(pod *v1.Pod) {
	name, full := podName(pod), nameOf(pod)
	var predecessor cache.UniquePodName
	if e := p.pods.byName[full]; e != nil && e.name != name {
		predecessor = e.name
	}
	if pod.Spec.NodeName == "" || terminated(pod) {
		p.lockedPodGone(name)
		p.lockedPodGone(predecessor)
		return
	}
	e := p.pods.byUID[name]
	if e == nil {
		e = p.pods.add(pod)
	}
	e.pod = pod
	p.lockedApply(e, predecessor)
}

func (p *Populator) lockedPodDeleted(full types.NamespacedName, pod *v1.Pod) {
	if pod != nil {
		p.lockedPodGone(podName(pod))
	} else if e := p.pods.byName[full]; e != nil {
		p.lockedPodGone(e.name)
	}
}

// lockedPodGone removes a pod, which needs no look-up: the desired world knows its volumes.
func (p *Populator) lockedPodGone(name cache.UniquePodName) {
	if name == "" {
		return
	}
	if e := p.pods.byUID[name]; e != nil {
		p.pods.remove(e)
	}
	p.config.Desired.DeletePodFromAll(name)
}

// lockedApply resolves the pod and makes the desired world have what comes of it. If
// predecessor is not empty, the pod takes its place (R4, kubernetes/kubernetes#111327).
func (p *Populator) lockedApply(e *podEntry, predecessor cache.UniquePodName) {
	r := p.resolve(e.pod)
	u := cache.PodUpdate{
		Old: predecessor, Name: e.name, Pod: e.pod, Node: e.node(), Specs: r.specs, Unresolved: len(r.problems) > 0,
	}
	names, err := p.config.Desired.UpdatePod(u)
	parked := errors.Is(err, cache.ErrNodeUnknown)
	switch {
	case err == nil:
		p.lockedFillSpecs(names, r.specs, u.Node)
	case parked:
		// S1, kubernetes/kubernetes#34242: it waits for its node. Nothing was changed, but the
		// predecessor is gone, and being unresolved does not depend on the node.
		if predecessor != "" {
			p.config.Desired.DeletePodFromAll(predecessor)
		}
		p.config.Desired.SetPodUnresolved(e.name, u.Node, u.Unresolved)
	default:
		// A plugin has changed its mind since resolve. Keep what there is.
		r.problems = append(r.problems, Problem{
			Kind: WorldRefused, Err: err, Pod: nameOf(e.pod), PodName: e.name, Node: u.Node,
		})
		u.Specs, u.Unresolved = nil, true
		if _, err := p.config.Desired.UpdatePod(u); err != nil && predecessor != "" {
			p.config.Desired.DeletePodFromAll(predecessor)
		}
	}

	if before := p.pods.byUID[predecessor]; before != nil {
		p.pods.remove(before)
	}
	e.problems = p.lockedReplaced(e.problems, r.problems)
	p.pods.setClaims(e, r.claims)
	p.pods.setUnresolved(e)
	if parked {
		p.pods.park(e, p.config.Clock.Now())
	} else {
		p.pods.unpark(e)
	}
	if len(r.claims) == 0 && len(r.specs) == 0 && len(r.problems) == 0 {
		p.pods.remove(e) // nothing that could ever become a wish
	}
}

// lockedFillSpecs gives attachments that were seeded by name their specs, so that a later
// detach has them. Only until MarkSynced: until then nobody else changes what is Attached.
func (p *Populator) lockedFillSpecs(names []v1.UniqueVolumeName, specs []*cache.VolumeSpec, node types.NodeName) {
	if p.synced {
		return
	}
	for i, name := range names {
		if a, ok := p.config.Actual.GetAttachedVolume(name, node); ok {
			p.lockedFillSpec(a, specs[i])
		}
	}
}

func (p *Populator) lockedFillSpec(a cache.AttachedVolume, spec *cache.VolumeSpec) {
	if a.State != cache.Attached || a.VolumeSpec != nil {
		return
	}
	attached := *spec
	attached.ReadOnly = false // is of one use, not of the attachment
	if err := p.config.Actual.MarkVolumeAsAttached(a.VolumeName, &attached, a.NodeName, a.DevicePath); err != nil {
		p.lockedTell(Problem{Kind: WorldRefused, Node: a.NodeName, PVName: spec.Name(), Err: err, Since: p.config.Clock.Now()})
	}
}

func (p *Populator) lockedClaim(name types.NamespacedName) {
	if c := p.pods.claims[name]; c != nil {
		p.lockedApplyAll(slices.Values(c.pods))
	}
}

func (p *Populator) lockedVolume(name string) {
	pods := make(map[*podEntry]struct{})
	for _, c := range p.pods.volumes[name] {
		for _, e := range c.pods {
			pods[e] = struct{}{}
		}
	}
	p.lockedApplyAll(maps.Keys(pods))
	p.lockedSeedAll(p.attachments.waiting[name])
}

// lockedApplyAll applies pods, the oldest first, as they compete for exclusive volumes.
func (p *Populator) lockedApplyAll(pods iter.Seq[*podEntry]) {
	for _, e := range byAge(pods) {
		p.lockedApply(e, "")
	}
}

func byAge(pods iter.Seq[*podEntry]) []*podEntry {
	return slices.SortedFunc(pods, func(a, b *podEntry) int {
		return cmp.Or(a.pod.CreationTimestamp.Compare(b.pod.CreationTimestamp.Time), cmp.Compare(a.name, b.name))
	})
}

// Resync looks at all pods and waiting volume attachments once more. It is only needed
// when a lister or a plugin answers differently without an event of a claim or volume, for
// instance when a CSI driver was installed. If ctx ends before it is done, the error Is
// ctx.Err().
func (p *Populator) Resync(ctx context.Context) error {
	var pods []*podEntry
	p.update(func() {
		pods = byAge(maps.Values(p.pods.byUID))
		p.lockedSeedAll(p.attachments.parked)
	})
	for i, e := range pods { // one by one, so that the handlers need not wait
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("resync: %d of %d pods done: %w", i, len(pods), err)
		}
		p.update(func() {
			if p.pods.byUID[e.name] == e {
				p.lockedApply(e, "")
			}
		})
	}
	return nil
}
