package lifecycle

import (
	"fmt"

	"k8s.io/apimachinery/pkg/types"

	"github.com/stateofworld/stateofworld/lvm"
)

// Kind is what an object is. For claims and volumes it is the kind of the API object, for events.
type Kind string

// The kinds.
const (
	KindClaim         Kind = "PersistentVolumeClaim"
	KindVolume        Kind = "PersistentVolume"
	KindLogicalVolume Kind = "LogicalVolume"
	KindVolumeGroup   Kind = "VolumeGroup"
	KindNode          Kind = "Node"
)

// NoticeType says what a notice is about. It may be used as an event's reason.
type NoticeType string

// The types of notices.
const (
	NoticeCreated    NoticeType = "LogicalVolumeCreated" // "created" was written
	NoticeDeleted    NoticeType = "LogicalVolumeRemoved" // "deleted" was written
	NoticeFailed     NoticeType = "Failed"               // an attempt failed; once per change of the failure
	NoticeWithdrawn  NoticeType = "Withdrawn"            // a logical volume was removed again whose claim did not want it any more
	NoticeElsewhere  NoticeType = "Elsewhere"            // a volume that may be on several nodes is not on this one
	NoticeHeld       NoticeType = "Held"                 // a volume that somebody deletes is held by the finalizer
	NoticeOrphan     NoticeType = "Orphan"               // a logical volume has no owner any more
	NoticeCollected  NoticeType = "OrphanRemoved"        // and was removed
	NoticeUnexpected NoticeType = "Unexpected"           // a handler was given something that is no such object
)

// Notice tells a person something. It becomes an event of the object that Kind, Namespace, Name and UID name.
type Notice struct {
	Type            NoticeType
	Kind            Kind
	Namespace, Name string
	UID             types.UID
	LV              lvm.Name // where known
	Failure         Failure  // of NoticeFailed
	// Message is a sentence.
	Message string
}

func (n Notice) String() string { return fmt.Sprintf("%s: %s", n.Type, n.Message) }

// kind is what an engine key stands for.
type kind uint8

const (
	claimKind    kind = iota // namespace and name
	volumeKind               // name
	leftoverKind             // group and logical volume
	groupKind                // a volume group to be recovered once
	orphanKind               // a volume group to be searched for orphans
	hostKind                 // all volume groups to be found once
)

// key names what is evaluated.
type key struct {
	kind            kind
	namespace, name string
}

func claimKey(n types.NamespacedName) key { return key{claimKind, n.Namespace, n.Name} }
func leftoverKey(n lvm.Name) key          { return key{leftoverKind, n.VG, n.LV} }

func (k key) claim() types.NamespacedName {
	return types.NamespacedName{Namespace: k.namespace, Name: k.name}
}
func (k key) lv() lvm.Name { return lvm.Name{VG: k.namespace, LV: k.name} }

// String names the object in messages.
func (k key) String() string {
	switch k.kind {
	case claimKind:
		return "claim " + k.namespace + "/" + k.name
	case volumeKind:
		return "volume " + k.name
	case leftoverKind:
		return "logical volume " + k.namespace + "/" + k.name
	case groupKind, orphanKind:
		return "volume group " + k.name
	}
	return "this host"
}

func (k key) notice(t NoticeType) Notice {
	n := Notice{Type: t, Name: k.name}
	switch k.kind {
	case claimKind:
		n.Kind, n.Namespace = KindClaim, k.namespace
	case volumeKind:
		n.Kind = KindVolume
	case leftoverKind:
		n.Kind, n.LV, n.Name = KindLogicalVolume, k.lv(), k.lv().String()
	case groupKind, orphanKind:
		n.Kind = KindVolumeGroup
	case hostKind:
		n.Kind = KindNode
	}
	return n
}

func (a *Agent) notify(n Notice) {
	if a.cfg.Notices != nil {
		a.cfg.Notices(n)
	}
}

// notifyFailure tells of a failed attempt, once per change of its text.
func (a *Agent) notifyFailure(k key, uid types.UID, lv lvm.Name, f Failure) {
	if !a.book.news(k, string(f.Reason)+f.Message) {
		return
	}
	n := k.notice(NoticeFailed)
	n.UID, n.LV, n.Failure, n.Message = uid, lv, f, fmt.Sprintf("%s: %s: %s", k, f.Reason, f.Message)
	a.notify(n)
}
