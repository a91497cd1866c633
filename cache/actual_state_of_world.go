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

// ActualStateOfWorld holds which volume is attached to which node, as far as is known. Each (volume, node) is
// in one of three states:
//
//	           attach succeeded, or seen attached
//	Detached ------------------------------------> Attached
//	   |  ^ <------------------------------------    |  ^
//	   |  |    detach succeeded, or seen detached    |  |
//	   |  |                                          |  | attach succeeded,
//	   |  | detach succeeded,      outcome of detach |  | or seen attached
//	   |  | or seen detached       is unknown        v  |
//	   |  '------------------------------------- Uncertain
//	   '---------------------------------------->
//	           outcome of attach is unknown
//
// Detached is the absence of an entry. Everything else is kept per (volume, node): spec, device path, detach
// request, whether the node says that it uses the volume. What nodes say, and their health, is kept per node.
//
// It also keeps, for each node, the report: the list of volumes that the node may use, to be published in its
// status. The report holds only what is Attached (U3, kubernetes/kubernetes#109951), and a volume is taken
// out of it before it is detached.
//
// All methods are safe for concurrent use. They hold the lock for what they touch, never while a plugin or a
// subscriber runs.
type ActualStateOfWorld struct {
	plugins *VolumePluginMgr
	time    timeline

	mu    sync.RWMutex
	index index[actualVolume, actualNode, attachmentState]
	epoch uint64 // the latest one given to a pair or a volume
	// dirty are the nodes whose report changed since it was handed out. A node need not have an entry for
	// that: an empty report has to be handed out too.
	dirty map[types.NodeName]struct{}
	// forgottenVersion is the highest report version of any node whose entry was dropped. New entries go on
	// from it, so that the versions of one node never go back.
	forgottenVersion uint64
	remembered       int // names in all actualNode.inUse

	pairSubscribers   subscribers[Pair]
	nodeSubscribers   subscribers[types.NodeName]
	reportSubscribers subscribers[types.NodeName]
}

// actualVolume is what the actual world keeps of a volume.
type actualVolume struct {
	epoch uint64
}

// actualNode is what the actual world keeps of a node. The entry stays while the node has attachments or
// anything is known of it that only DeleteNode makes obsolete.
type actualNode struct {
	health        NodeHealth
	since         time.Time // of health; zero when it was never set
	reportVersion uint64
	// inUse are the names from the node's in-use list that have no attachment here. The others are marked at
	// their attachment. Only kept while inUseKnown.
	inUse      map[v1.UniqueVolumeName]bool
	inUseKnown bool
	mounted    int // how many attachments are Mounted
}

// attachmentState is what the actual world keeps of a (volume, node). What point reads ask for comes first,
// to be found next to the names.
type attachmentState struct {
	state            AttachState
	inUse            InUse
	hasDetachRequest bool
	withdrawn        bool // Attached, but taken out of the report
	listed           bool // scratch of SetVolumesMountedByNode
	epoch            uint64
	spec             *VolumeSpec // nil while unknown
	devicePath       string
	since            moment // of state
	detachRequested  moment // valid if hasDetachRequest
}

type (
	attachmentEntry = pairEntry[actualVolume, actualNode, attachmentState]
	actualNodeEntry = nodeEntry[actualVolume, actualNode, attachmentState]
)

// NewActualStateOfWorld returns an empty actual world. The plugins name the volumes of AddVolumeNode; errors
// of their registration come back from there.
func NewActualStateOfWorld(plugins *VolumePluginMgr, opts ...Option) *ActualStateOfWorld {
	return &ActualStateOfWorld{
		plugins: plugins,
		time:    newTimeline(newOptions(opts).clock),
		index:   newIndex[actualVolume, actualNode, attachmentState](),
		dirty:   make(map[types.NodeName]struct{}),
	}
}

// AttachState is the state of a (volume, node).
type AttachState uint8

const (
	// Detached means that there is no entry: the volume is not attached to the node as far as anybody knows.
	Detached AttachState = iota
	// Uncertain means that the volume may be attached: an operation ended without a clear answer.
	Uncertain
	// Attached means that the volume is known to be attached.
	Attached
)

// String returns "detached", "uncertain" or "attached".
func (s AttachState) String() string {
	switch s {
	case Detached:
		return "detached"
	case Uncertain:
		return "uncertain"
	case Attached:
		return "attached"
	}
	return fmt.Sprintf("AttachState(%d)", int(s))
}

// InUse is what the node said last about a volume.
type InUse uint8

const (
	// InUseUnknown means that the node has said nothing yet.
	InUseUnknown InUse = iota
	// NotInUse means that the node does not list the volume as in use.
	NotInUse
	// Mounted means that the node lists the volume as in use.
	Mounted
)

// String returns "unknown", "not in use" or "mounted".
func (u InUse) String() string {
	switch u {
	case InUseUnknown:
		return "unknown"
	case NotInUse:
		return "not in use"
	case Mounted:
		return "mounted"
	}
	return fmt.Sprintf("InUse(%d)", int(u))
}

// AttachedVolume is one (volume, node) that is Attached or Uncertain.
type AttachedVolume struct {
	VolumeName v1.UniqueVolumeName
	NodeName   types.NodeName
	// VolumeSpec is nil while only the name is known, as after a restart.
	VolumeSpec *VolumeSpec
	// DevicePath is what the driver returned, or the node's status said. It may be empty.
	DevicePath string
	// Since is when the pair came into its state.
	Since time.Time
	// DetachRequestedTime is when a detach was first asked for; zero when none is asked for.
	DetachRequestedTime time.Time
	// Epoch changes with every change of state, spec or device path, and never repeats within a world, not
	// even when a volume is attached again.
	Epoch uint64
	State AttachState
	InUse InUse
	// Reported says that the volume is in the report of the node.
	Reported bool
}

// NodeHealth is what is known of a node as a machine. The zero value means that nothing is.
type NodeHealth struct {
	// Ready is the status of the node's Ready condition; empty when there is none.
	Ready v1.ConditionStatus
	// OutOfService says that an administrator tainted the node as out of service.
	OutOfService bool
	// Deleted says that the node object is gone.
	Deleted bool
}

// NodeFacts is what is known of a node.
type NodeFacts struct {
	NodeHealth
	// Since is when NodeHealth became what it is; zero when it was never set.
	Since time.Time
	// InUseKnown says that the node has reported its in-use list.
	InUseKnown bool
}

// Subscribe has fn called after each change of a pair: state, spec, device path, in-use mark, detach request.
// (Whether it is reported is told by SubscribeReports.) fn runs in the goroutine that made the change, after
// the change, once per changed pair, and may use the world. cancel may be called any number of times; a call
// that has begun by then may still be running.
func (w *ActualStateOfWorld) Subscribe(fn func(Pair)) (cancel func()) {
	return w.pairSubscribers.add(fn)
}

// SubscribeReports has fn called, as Subscribe does, when the report of a node has a new version.
func (w *ActualStateOfWorld) SubscribeReports(fn func(types.NodeName)) (cancel func()) {
	return w.reportSubscribers.add(fn)
}

// SubscribeNodes has fn called, as Subscribe does, when the health of a node changed or the node was deleted.
func (w *ActualStateOfWorld) SubscribeNodes(fn func(types.NodeName)) (cancel func()) {
	return w.nodeSubscribers.add(fn)
}

// tell calls the subscribers. The world must not be locked.
func (w *ActualStateOfWorld) tell(c *changes) {
	c.nodes.tell(&w.nodeSubscribers, cmp.Compare)
	c.pairs.tell(&w.pairSubscribers, Pair.compare)
	c.reports.tell(&w.reportSubscribers, cmp.Compare)
}

// Nodes yields the nodes that have attachments or of which anything is known, in the order of their names. The
// lock is not held while yielding; a node that is there from beginning to end is yielded exactly once.
func (w *ActualStateOfWorld) Nodes() iter.Seq[types.NodeName] {
	return func(yield func(types.NodeName) bool) {
		for _, name := range sortedNodes(&w.mu, w.index.nodes, func(*actualNodeEntry) bool { return true }) {
			if !yield(name) {
				return
			}
		}
	}
}
