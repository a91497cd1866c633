package main

import (
	"cmp"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/stateofworld/stateofworld/cache"
	"github.com/stateofworld/stateofworld/reconciler"
)

// row is what there is to say in the end about one volume on one node.
type row struct {
	Volume           v1.UniqueVolumeName `json:"volume"`
	PersistentVolume string              `json:"persistentVolume,omitempty"`
	Claim            string              `json:"claim,omitempty"` // namespace/name
	Node             types.NodeName      `json:"node,omitempty"`  // empty: the volume is attached nowhere, and not wished
	State            string              `json:"state"`
	InUse            string              `json:"inUse,omitempty"`
	DevicePath       string              `json:"devicePath,omitempty"`
	Pods             []string            `json:"pods"` // that wish it on the node
	Converged        bool                `json:"converged"`
	Reason           string              `json:"reason,omitempty"` // why it is not converged, in a word
	Explanation      string              `json:"explanation,omitempty"`
	Until            *time.Time          `json:"until,omitempty"` // when that is looked at again
	Attempts         int                 `json:"attempts,omitempty"`
	LastError        string              `json:"lastError,omitempty"`

	moves bool // an operation on it is under way, or about to start
}

// rows returns a row for each (volume, node) of either world, and for each volume that is in neither.
func (s *simulation) rows() []row {
	var rows []row
	open := map[v1.UniqueVolumeName]bool{}
	seen := map[v1.UniqueVolumeName]bool{}
	add := func(volume v1.UniqueVolumeName, node types.NodeName) {
		r := s.row(volume, node)
		rows = append(rows, r)
		seen[volume], open[volume] = true, open[volume] || !r.Converged
	}
	for wish := range s.worlds.desired.VolumesToAttach() {
		add(wish.VolumeName, wish.NodeName)
	}
	for attached := range s.worlds.actual.AttachedVolumes() {
		if !s.worlds.desired.VolumeExists(attached.VolumeName, attached.NodeName) {
			add(attached.VolumeName, attached.NodeName)
		}
	}
	for name := range s.names {
		if !seen[name] {
			rows = append(rows, s.row(name, ""))
		}
	}
	// What is not as it should be comes last: that is what one sees first.
	slices.SortFunc(rows, func(a, b row) int {
		return cmp.Or(compareBools(open[a.Volume], open[b.Volume]), cmp.Compare(a.name(), b.name()), cmp.Compare(a.Volume, b.Volume), cmp.Compare(a.Node, b.Node))
	})
	return rows
}

func compareBools(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

func (s *simulation) row(volume v1.UniqueVolumeName, node types.NodeName) row {
	r := row{Volume: volume, Node: node, State: cache.Detached.String(), Pods: []string{}, Converged: true}
	if named, ok := s.names[volume]; ok {
		r.PersistentVolume, r.Claim = named.volume, named.claim
	}
	if node == "" {
		return r
	}
	e := s.rc.Explain(volume, node)
	r.State, r.Converged = e.State.String(), e.Converged()
	r.Pods = append(r.Pods, e.Pods...)
	if attached, ok := s.worlds.actual.GetAttachedVolume(volume, node); ok {
		r.InUse, r.DevicePath = attached.InUse.String(), attached.DevicePath
	}
	if r.Converged {
		return r
	}
	s.nameUnresolved(&e)
	d := e.Decision
	r.Reason, r.Explanation, r.Attempts = d.Reason.String(), e.String(), d.Attempts
	if !d.Until.IsZero() {
		r.Until = &d.Until
	}
	if d.LastErr != nil {
		r.LastError = d.LastErr.Error()
	}
	r.moves = d.Action != reconciler.Wait || underWay(d.Reason)
	return r
}

// nameUnresolved puts the names of pods in the place of their UIDs.
func (s *simulation) nameUnresolved(e *reconciler.Explanation) {
	for ; e != nil; e = e.Blocker {
		for i, uid := range e.Unresolved {
			if name, ok := s.podNames[uid]; ok {
				e.Unresolved[i] = cache.UniquePodName(name)
			}
		}
	}
}

// name is the name that a user knows: that of the claim, else of the persistent volume, else the one in the worlds.
func (r *row) name() string { return cmp.Or(r.Claim, r.PersistentVolume, string(r.Volume)) }

// names are the objects behind a volume.
type names struct{ volume, claim string }

// volumeNames names the volumes of the dump.
func volumeNames(d *dump, plugins *cache.VolumePluginMgr) map[v1.UniqueVolumeName]names {
	all := make(map[v1.UniqueVolumeName]names, len(d.volumes))
	for _, pv := range sorted(d.volumes, volumeName) {
		unique, err := plugins.UniqueVolumeName(cache.NewSpecFromPersistentVolume(pv, false))
		if err != nil {
			continue // not ours
		}
		n := names{volume: pv.Name}
		if ref := pv.Spec.ClaimRef; ref != nil {
			// A claim that has another volume by now is not this one's.
			claim := d.claims[types.NamespacedName{Namespace: ref.Namespace, Name: ref.Name}]
			if claim != nil && claim.UID == ref.UID && claim.Spec.VolumeName == pv.Name {
				n.claim = ref.Namespace + "/" + ref.Name
			}
		}
		all[unique] = n
	}
	return all
}

// podNames are the names behind those that the populator gives pods in the desired world.
func podNames(d *dump) map[cache.UniquePodName]string {
	all := make(map[cache.UniquePodName]string, len(d.pods))
	for key, pod := range d.pods {
		all[uniquePodName(pod)] = key.String()
	}
	return all
}
