package lvm

import (
	"context"
	"errors"
)

// Backend makes, changes, removes and lists logical volumes. [CLI] is the one over lvm2; fake.LVM is one in memory;
// package lvmtest checks any.
//
// Every method may be called concurrently, returns when its context ends, and is idempotent: called again after an
// unknown outcome (a time-out, a crash) it finishes what was begun and returns what the first call would have. Errors
// are found with errors.Is (ErrNotFound, ErrVGNotFound, ErrNoSpace, ...); all come as an [*Error], which carries the
// command, its exit code and its messages. Names, tags and sizes are validated before anything is run: ErrInvalid means
// that nothing has happened.
type Backend interface {
	// Create makes a volume: zeroed at its start, wiped of old signatures, active. One that is there already and fits
	// is returned as it is; one that does not fit is ErrExistsMismatch. One that an earlier attempt left half made is
	// removed and made anew. Further errors: ErrVGNotFound, ErrNoSpace, ErrPartialVG, ErrNotStripable, ErrOutOfRange,
	// ErrNotFound (the thin pool).
	Create(ctx context.Context, o CreateOptions) (LogicalVolume, error)
	// Snapshot makes a snapshot of a volume. One that is there already with that origin is returned as it is. A thin
	// snapshot is not activated. Errors are those of Create; ErrNotFound is about the origin.
	Snapshot(ctx context.Context, o SnapshotOptions) (LogicalVolume, error)
	// Remove removes a volume, after wiping it if asked. A volume that is not there is removed: nil; a volume group
	// that is not there is ErrVGNotFound. Errors: ErrInUse, ErrHasSnapshots, ErrProtected, ErrExistsMismatch (other
	// UUID), ErrUnsupported (the wipe policy). Nothing is destroyed before the volume is known not to be in use. With a
	// wipe policy the volume is first renamed out of the way, so that its name is free; when the context ends during
	// the wipe, the next Remove of that name, or FinishRemovals, goes on.
	Remove(ctx context.Context, name Name, o RemoveOptions) error
	// FinishRemovals wipes and removes what earlier Removes of a volume group have renamed out of the way and not
	// finished, for instance because the process ended. It returns how many volumes it removed. It is meant to be
	// called once at start.
	FinishRemovals(ctx context.Context, vg string) (int, error)
	// Grow makes a volume at least size bytes. It never makes one smaller, and is a no-op where the volume is large
	// enough. What is on the volume is not touched. Errors: ErrNotFound, ErrNoSpace.
	Grow(ctx context.Context, name Name, size uint64) (LogicalVolume, error)
	// Get describes one volume. Errors: ErrNotFound, ErrVGNotFound.
	Get(ctx context.Context, name Name) (LogicalVolume, error)
	// List describes all volumes of a group, sorted by name: also those that are half made or being removed (see
	// Stage), without lvm2's internal ones.
	List(ctx context.Context, vg string) ([]LogicalVolume, error)
	// Activate makes the device of a volume appear. It is a no-op where it is there already with the access asked for.
	// The devices of an origin and its thick snapshots come and go together.
	Activate(ctx context.Context, name Name, o ActivateOptions) (LogicalVolume, error)
	// Deactivate makes the device of a volume go away. It is a no-op where it is not there. Errors: ErrInUse,
	// ErrUnsupported (a thick snapshot alone).
	Deactivate(ctx context.Context, name Name) (LogicalVolume, error)
	// Rename gives a volume another name within its group. When name is not there and newName is, the renaming is taken
	// as done earlier and the volume is returned: compare its UUID when that matters. When both are there it is
	// ErrExists.
	Rename(ctx context.Context, name Name, newName string) (LogicalVolume, error)
	// ChangeTags adds and removes tags. Adding one that is there, or removing one that is not, changes nothing.
	ChangeTags(ctx context.Context, name Name, o TagChange) (LogicalVolume, error)
	// VolumeGroup describes one group and its physical volumes. Errors: ErrVGNotFound, ErrForeign. A group that is
	// partial or exported is described as such.
	VolumeGroup(ctx context.Context, vg string) (VolumeGroup, error)
	// VolumeGroups describes all groups that this host may see, sorted by name. Groups of other hosts (by system ID)
	// are not among them.
	VolumeGroups(ctx context.Context) ([]VolumeGroup, error)
	// Capacity tells what could be created. Errors: ErrVGNotFound, ErrNotFound (the thin pool), ErrPartialVG.
	Capacity(ctx context.Context, o CapacityOptions) (Capacity, error)
}

// The kinds of errors. They are found with errors.Is in what a Backend returns.
var (
	// ErrNotFound: the logical volume (the thin pool, the origin) is not there. It is only returned when the volume
	// group was seen without it.
	ErrNotFound = errors.New("logical volume not found")
	// ErrVGNotFound: the volume group is not there. Its disk may be missing; it says nothing about the volumes on it.
	ErrVGNotFound = errors.New("volume group not found")
	// ErrExists: another logical volume has that name.
	ErrExists = errors.New("logical volume exists")
	// ErrExistsMismatch: a logical volume of that name exists and is not what was asked for. See MismatchError.
	ErrExistsMismatch = errors.New("logical volume exists and differs")
	// ErrNoSpace: the volume group, or the thin pool, has no room for it.
	ErrNoSpace = errors.New("not enough free space")
	// ErrInUse: the logical volume is open: mounted, held by a process, or part of another device. To be tried again.
	ErrInUse = errors.New("logical volume in use")
	// ErrInvalid: the request can never work. See InvalidError. Nothing was run.
	ErrInvalid = errors.New("invalid request")
	// ErrOutOfRange: the size, once rounded up, is above the limit given. Nothing was changed.
	ErrOutOfRange = errors.New("size out of range")
	// ErrPartialVG: physical volumes of the group are missing, so it cannot be changed.
	ErrPartialVG = errors.New("volume group has missing physical volumes")
	// ErrDuplicatePV: a physical volume of the group is seen on two devices, so it cannot be changed.
	ErrDuplicatePV = errors.New("volume group has duplicate physical volumes")
	// ErrExported: the volume group is exported: on its way to another host.
	ErrExported = errors.New("volume group is exported")
	// ErrForeign: the volume group belongs to another host, by its system ID.
	ErrForeign = errors.New("volume group belongs to another system")
	// ErrHasSnapshots: the logical volume has thick snapshots, which would go with it. See DependentsError.
	ErrHasSnapshots = errors.New("logical volume has snapshots")
	// ErrProtected: the logical volume carries the tag that protects it from removal.
	ErrProtected = errors.New("logical volume is protected by its tag")
	// ErrNotStripable: there are not enough physical volumes with room for the stripes.
	ErrNotStripable = errors.New("cannot be striped")
	// ErrUnsupported: this backend, or this kind of volume, does not allow it. Nothing was changed.
	ErrUnsupported = errors.New("not supported")
	// ErrBadOutput: lvm2 said something that cannot be read. Nothing follows from it, least of all that something is absent.
	ErrBadOutput = errors.New("unreadable output of lvm2")
	// ErrWouldFormatClone: a filesystem is not to be made on a snapshot or clone. See CheckFormat.
	ErrWouldFormatClone = errors.New("refusing to format a snapshot")
)
