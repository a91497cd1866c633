package lvm

import (
	"slices"
	"strings"
)

// LogicalVolume is a logical volume as it was seen. It is a copy and belongs to the caller.
type LogicalVolume struct {
	Name
	// UUID stays the same when the volume is renamed, and is never used again.
	UUID string
	// Size is in bytes: of a thin volume the virtual size, of a thick snapshot the size of its store of changes.
	Size   uint64
	Layout Layout
	Attr   Attr
	// Active is whether the device is there; DevicePath tells where.
	Active Known
	// Open is whether the device is in use.
	Open Known
	// Major and Minor are the numbers of the device. They are 0 where it is not there.
	Major, Minor uint32
	// ReadOnly is whether the volume, or at least its present activation, takes no writes.
	ReadOnly bool
	// Tags are sorted. Those that this package keeps its own state in are among them; see Stage.
	Tags []string
	// Origin is the volume that this one is a snapshot of, or empty.
	Origin string
	// Pool is the thin pool that this volume is in, or empty.
	Pool string
	// DataPercent is how full a thin pool or a snapshot is, or how much of a thin volume is allocated.
	DataPercent Percent
	// MetadataPercent is how full the metadata of a thin pool is.
	MetadataPercent Percent
	// MetadataSize is in bytes, of a thin pool.
	MetadataSize uint64
	Health       Health
	// Segments is how many pieces the volume is made of, 0 where that is not known.
	Segments int
	// ExtentSize is that of the group, in bytes.
	ExtentSize uint64
	Stage      Stage
	// Removed is the name that a volume had before it was renamed to be removed (StageRemoving).
	Removed string
}

// HasTag is whether the volume carries the tag.
func (lv LogicalVolume) HasTag(tag string) bool { return slices.Contains(lv.Tags, tag) }

// Snapshot is whether the volume is a snapshot of another, thick or thin.
func (lv LogicalVolume) Snapshot() bool { return lv.Origin != "" }

// Layout is how a volume is laid out.
type Layout string

// The layouts. The first five can be asked for.
const (
	Linear        Layout = "linear"
	Striped       Layout = "striped"
	RAID1         Layout = "raid1"
	ThinPool      Layout = "thin-pool"
	Thin          Layout = "thin" // a volume in a thin pool, or a thin snapshot
	ThickSnapshot Layout = "thick-snapshot"
	Mirror        Layout = "mirror" // the old kind, before RAID1
	OtherLayout   Layout = "other"
)

// Stage is how far a volume is in its life.
type Stage string

// The stages.
const (
	// StageReady: the volume is what it is said to be.
	StageReady Stage = ""
	// StageCreating: the volume is being made, or was left half made by an attempt that was cut off. It has never been
	// handed out. The next Create removes it and begins anew.
	StageCreating Stage = "creating"
	// StageRemoving: the volume was renamed out of the way to be wiped and removed; it is in nobody's use. See
	// FinishRemovals.
	StageRemoving Stage = "removing"
)

// The state that this package keeps in tags, so that it survives a crash at any point.
const (
	markPrefix   = "stateofworld."
	creatingMark = markPrefix + "creating." // and a number of the attempt
	removingMark = markPrefix + "removing." // and the wipe policy
	removedMark  = markPrefix + "removed."  // and the name before
	// removingName begins the name of a volume that is to be wiped and removed; its UUID follows.
	removingName = "sow.rm."
)

// Health is the condition of a volume.
type Health string

// The conditions, as lvm2 calls them.
const (
	HealthOK               Health = ""
	HealthPartial          Health = "partial" // a physical volume that it lies on is missing
	HealthRefreshNeeded    Health = "refresh needed"
	HealthMismatches       Health = "mismatches exist"
	HealthWriteMostly      Health = "writemostly"
	HealthFailed           Health = "failed"
	HealthOutOfData        Health = "out_of_data" // thin pool
	HealthMetadataReadOnly Health = "metadata_read_only"
	HealthUnknown          Health = "unknown"
)

// Percent is a share, from 0 to 100, that may be unknown: of a volume that is not active, for instance.
type Percent struct {
	Value float64
	Known bool
}

// VolumeGroup is a volume group as it was seen. It is a copy and belongs to the caller.
type VolumeGroup struct {
	Name, UUID string
	// Size, Free and ExtentSize are in bytes. Free counts extents of all physical volumes, also of those that nothing
	// can be put on.
	Size, Free, ExtentSize uint64
	Extents, FreeExtents   uint64
	Writable, Exported     bool
	// Partial is whether physical volumes are missing: nothing can be created or grown then.
	Partial bool
	// MissingPVs is how many physical volumes are missing.
	MissingPVs int
	// Shared is whether other hosts use the group too, with lvmlockd.
	Shared bool
	Tags   []string
	PVs    []PhysicalVolume
}

// PhysicalVolume is a physical volume of a group.
type PhysicalVolume struct {
	// Device is empty when the physical volume is missing.
	Device, UUID         string
	Size, Free           uint64 // bytes
	Extents, FreeExtents uint64
	Allocatable, Missing bool
	// Duplicate is whether several devices claim to be this physical volume; lvm2 then refuses changes of the group.
	Duplicate bool
	Tags      []string
}

// usable is how many extents can be put on the physical volume.
func (pv PhysicalVolume) usable() uint64 {
	if pv.Missing || pv.Duplicate || !pv.Allocatable {
		return 0
	}
	return pv.FreeExtents
}

// Capacity is what could be created.
type Capacity struct {
	// Available is the size in bytes of the largest volume of the kind asked for that is sure to fit.
	Available uint64
	// Total and Free are in bytes, of the volume group, or the size and what is not allocated of the thin pool. Free of
	// a thin pool is 0 where it is not known.
	Total, Free uint64
	// Virtual is the sum of the sizes of the volumes and snapshots in the thin pool, in bytes.
	Virtual uint64
	// DataPercent and MetadataPercent are those of the thin pool.
	DataPercent, MetadataPercent Percent
	// Full is whether the thin pool's data or metadata is so full that new volumes are refused.
	Full bool
}

// splitTags splits what lvm2 prints for a list of tags. No tags is an empty list.
func splitTags(s string) []string {
	tags := []string{}
	for tag := range strings.SplitSeq(s, ",") {
		if tag != "" {
			tags = append(tags, tag)
		}
	}
	slices.Sort(tags)
	return slices.Compact(tags)
}
