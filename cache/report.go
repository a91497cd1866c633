package cache

import (
	"cmp"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// NodeReport is the list of volumes that a node may use, to be published in its status: what is Attached to
// it and not withdrawn for a detach.
type NodeReport struct {
	Node types.NodeName
	// Version grows with every change of the list, and with SetNodeStatusUpdateNeeded. It never goes back,
	// not even when the world forgot the node in between. It is 1 with the first content, or higher when
	// other nodes were forgotten before.
	Version uint64
	// Volumes is sorted by name, so that an unchanged set makes an unchanged list. It is the caller's.
	Volumes []v1.AttachedVolume
}

// Report returns the report of the node. A node without an entry has an empty one, of a version that is no
// lower than any it had.
func (w *ActualStateOfWorld) Report(node types.NodeName) NodeReport {
	w.mu.RLock()
	r := NodeReport{Node: node, Version: w.lockedReportVersion(node), Volumes: w.lockedReport(node)}
	w.mu.RUnlock()
	sortReport(r.Volumes)
	return r
}

// ReportVersion returns the version of the node's report.
func (w *ActualStateOfWorld) ReportVersion(node types.NodeName) uint64 {
	w.mu.RLock()
	defer w.mu.RUnlock()
	return w.lockedReportVersion(node)
}

func (w *ActualStateOfWorld) lockedReportVersion(node types.NodeName) uint64 {
	if n := w.index.nodes[node]; n != nil {
		return n.data.reportVersion
	}
	return w.forgottenVersion
}

// lockedReport returns the report's volumes. They are mostly in order; sortReport makes sure of it without
// the lock.
func (w *ActualStateOfWorld) lockedReport(node types.NodeName) []v1.AttachedVolume {
	n := w.index.nodes[node]
	if n == nil {
		return []v1.AttachedVolume{}
	}
	pairs, ok := n.sorted()
	if !ok {
		pairs = n.pairs
	}
	volumes := make([]v1.AttachedVolume, 0, len(pairs))
	for _, p := range pairs {
		if p.data.reported() {
			volumes = append(volumes, v1.AttachedVolume{Name: p.volume.name, DevicePath: p.data.devicePath})
		}
	}
	return volumes
}

func sortReport(volumes []v1.AttachedVolume) {
	slices.SortFunc(volumes, func(a, b v1.AttachedVolume) int { return cmp.Compare(a.Name, b.Name) })
}

// hasReport says whether any volume is in the report of the node.
func hasReport(n *actualNodeEntry) bool {
	return slices.ContainsFunc(n.pairs, func(p *attachmentEntry) bool { return p.data.reported() })
}

// lockedReportChanged gives the report a new version, to be handed out unless nobody can read it.
func (w *ActualStateOfWorld) lockedReportChanged(n *actualNodeEntry, c *changes) {
	n.data.reportVersion++
	if !n.data.health.Deleted {
		w.dirty[n.name] = struct{}{}
	}
	c.reports.add(&w.reportSubscribers, n.name)
}

// RemoveVolumeFromReportAsAttached withdraws the volume from the report of the node, as the first step of a
// detach. It does nothing when it is not in there. It comes back with AddVolumeToReportAsAttached or
// MarkVolumeAsAttached. Error: [ErrNotAttached].
func (w *ActualStateOfWorld) RemoveVolumeFromReportAsAttached(volume v1.UniqueVolumeName, node types.NodeName) error {
	if !w.setWithdrawn(volume, node, true) {
		return fmt.Errorf("remove volume %q from the report of node %q: %w", volume, node, ErrNotAttached)
	}
	return nil
}

// AddVolumeToReportAsAttached takes a withdrawal back. It does nothing unless the pair is Attached (U3,
// kubernetes/kubernetes#109951).
func (w *ActualStateOfWorld) AddVolumeToReportAsAttached(volume v1.UniqueVolumeName, node types.NodeName) {
	w.setWithdrawn(volume, node, false)
}

// setWithdrawn returns whether there is an entry.
func (w *ActualStateOfWorld) setWithdrawn(volume v1.UniqueVolumeName, node types.NodeName, withdrawn bool) bool {
	var c changes
	w.mu.Lock()
	p := w.index.pair(volume, node)
	if p != nil && p.data.state == Attached && p.data.withdrawn != withdrawn {
		p.data.withdrawn = withdrawn
		w.lockedReportChanged(p.node, &c)
	}
	w.mu.Unlock()
	w.tell(&c)
	return p != nil
}

// GetVolumesToReportAttached hands out the reports that changed since they were handed out last, each change
// once. If the report of a node could not be written, SetNodeStatusUpdateNeeded has it handed out again; for
// a node whose list was empty keep the list and write it again, as the world may know nothing more of that
// node. It costs as much as the nodes it returns.
//
// It is for a loop that writes reports itself; one that follows versions uses SubscribeReports and Report.
func (w *ActualStateOfWorld) GetVolumesToReportAttached() map[types.NodeName][]v1.AttachedVolume {
	reports := make(map[types.NodeName][]v1.AttachedVolume)
	copied := 0
	w.mu.Lock()
	for node := range w.dirty {
		delete(w.dirty, node)
		report := w.lockedReport(node)
		reports[node] = report
		if copied += 1 + len(report); copied >= chunkSize {
			w.mu.Unlock()
			copied = 0
			w.mu.Lock()
		}
	}
	if len(w.dirty) == 0 && len(reports) > chunkSize {
		w.dirty = make(map[types.NodeName]struct{}) // ranging over a map costs what it once held
	}
	w.mu.Unlock()
	for _, report := range reports {
		sortReport(report)
	}
	return reports
}

// GetVolumesToReportAttachedForNode is GetVolumesToReportAttached for one node. False, and no list, means
// that nothing changed.
func (w *ActualStateOfWorld) GetVolumesToReportAttachedForNode(node types.NodeName) (bool, []v1.AttachedVolume) {
	w.mu.Lock()
	if _, dirty := w.dirty[node]; !dirty {
		w.mu.Unlock()
		return false, nil
	}
	delete(w.dirty, node)
	report := w.lockedReport(node)
	w.mu.Unlock()
	sortReport(report)
	return true, report
}

// SetNodeStatusUpdateNeeded forces the report of the node to be written once more: it gets a new version. It
// does nothing for a node that the world knows nothing of, as there is nothing to report.
func (w *ActualStateOfWorld) SetNodeStatusUpdateNeeded(node types.NodeName) {
	var c changes
	w.mu.Lock()
	if n := w.index.nodes[node]; n != nil {
		w.lockedReportChanged(n, &c)
	}
	w.mu.Unlock()
	w.tell(&c)
}

// ResetNodeStatusUpdateNeeded says that the report of the node need not be handed out. Error:
// [ErrNodeUnknown] when the world knows nothing of the node.
func (w *ActualStateOfWorld) ResetNodeStatusUpdateNeeded(node types.NodeName) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, dirty := w.dirty[node]
	if !dirty && w.index.nodes[node] == nil {
		return fmt.Errorf("reset status update of node %q: %w", node, ErrNodeUnknown)
	}
	delete(w.dirty, node)
	return nil
}
