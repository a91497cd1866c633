package lvm

import (
	"fmt"
	"math"
	"slices"
	"strconv"
)

// CreateOptions say what volume is to be made.
type CreateOptions struct {
	VG, Name string
	// Size is in bytes and is rounded up to whole extents (and stripes). Of a thin volume it is the virtual size.
	Size uint64
	// MaxSize, where not 0, is what the size may not exceed once rounded: ErrOutOfRange.
	MaxSize uint64
	// Layout is Linear where empty. Also Striped, RAID1, ThinPool and Thin can be created.
	Layout Layout
	// Stripes is over how many physical volumes a striped volume goes. 0 means as many as have room for it, at least 2.
	Stripes int
	// StripeSize is in bytes, a power of two from 4096 on. 0 leaves it to lvm2.
	StripeSize uint64
	// AllowLinear lets a striped volume be made linear where there are not enough physical volumes with room. The
	// Layout of the result tells.
	AllowLinear bool
	// Mirrors is how many further copies a RAID1 volume has. 0 means 1.
	Mirrors int
	// ThinPool is the pool that a thin volume is made in.
	ThinPool string
	// Overprovision, where not 0, is how many times the size of the thin pool all volumes in it may have together; more
	// is ErrNoSpace.
	Overprovision float64
	// PhysicalVolumes are the devices to use. Empty leaves it to lvm2.
	PhysicalVolumes []string
	Tags            []string
}

func (o CreateOptions) name() Name { return Name{o.VG, o.Name} }

func (o CreateOptions) layout() Layout {
	if o.Layout == "" {
		return Linear
	}
	return o.Layout
}

func (o CreateOptions) mirrors() int { return max(o.Mirrors, 1) }

// Validate checks all that can be known beforehand. The error is an [*InvalidError].
func (o CreateOptions) Validate() error {
	if err := o.name().Validate(); err != nil {
		return err
	}
	if err := validateSize("size", o.Size); err != nil {
		return err
	}
	layout := o.layout()
	switch layout {
	case Linear, Striped, RAID1, ThinPool, Thin:
	default:
		return &InvalidError{"layout", string(o.Layout), "cannot be created"}
	}
	only := func(set bool, of Layout, field, value string) error {
		if set && layout != of {
			return &InvalidError{field, value, fmt.Sprintf("only for the layout %s, not %s", of, layout)}
		}
		return nil
	}
	for _, err := range []error{
		only(o.Stripes != 0, Striped, "stripes", strconv.Itoa(o.Stripes)),
		only(o.StripeSize != 0, Striped, "stripe size", strconv.FormatUint(o.StripeSize, 10)),
		only(o.AllowLinear, Striped, "linear fallback", "true"),
		only(o.Mirrors != 0, RAID1, "mirrors", strconv.Itoa(o.Mirrors)),
		only(o.ThinPool != "", Thin, "thin pool", o.ThinPool),
		only(o.Overprovision != 0, Thin, "overprovision", fmt.Sprint(o.Overprovision)),
	} {
		if err != nil {
			return err
		}
	}
	if o.Stripes < 0 || o.Stripes == 1 || o.Stripes > 128 {
		return &InvalidError{"stripes", strconv.Itoa(o.Stripes), "from 2 to 128, or 0 for as many as fit"}
	}
	if o.StripeSize != 0 && (o.StripeSize < 4096 || o.StripeSize > 1<<30 || o.StripeSize&(o.StripeSize-1) != 0) {
		return &InvalidError{"stripe size", strconv.FormatUint(o.StripeSize, 10), "must be a power of two, at least 4096 bytes"}
	}
	if o.Mirrors < 0 || o.Mirrors > 9 {
		return &InvalidError{"mirrors", strconv.Itoa(o.Mirrors), "from 1 to 9, or 0 for 1"}
	}
	if layout == Thin {
		if err := (Name{o.VG, o.ThinPool}).Validate(); err != nil {
			return err
		}
		if o.ThinPool == o.Name {
			return &InvalidError{"thin pool", o.ThinPool, "is the name of the volume itself"}
		}
		if len(o.PhysicalVolumes) > 0 {
			return &InvalidError{"physical volumes", fmt.Sprint(o.PhysicalVolumes), "a thin volume lies where its pool does"}
		}
	}
	if err := validateRatio(o.Overprovision); err != nil {
		return err
	}
	for i, device := range o.PhysicalVolumes {
		if err := validateDevice(device); err != nil {
			return err
		}
		if slices.Contains(o.PhysicalVolumes[:i], device) {
			return &InvalidError{"physical volume", device, "named twice"}
		}
	}
	return validateUserTags(o.Tags)
}

func validateRatio(ratio float64) error {
	if ratio < 0 || math.IsNaN(ratio) || ratio > 1e6 {
		return &InvalidError{"overprovision", fmt.Sprint(ratio), "must be a ratio from 0 to 1000000"}
	}
	return nil
}

// SnapshotOptions say what snapshot is to be made.
type SnapshotOptions struct {
	// VG is the group of both.
	VG, Name string
	// Origin is the volume that the snapshot is of.
	Origin string
	// Size is the room for changes of a thick snapshot, in bytes; lvm2 reduces it to what can ever be needed. Of a thin
	// volume a thin snapshot is made, which has no size of its own: it must be 0 then.
	Size uint64
	Tags []string
}

func (o SnapshotOptions) name() Name { return Name{o.VG, o.Name} }

// Validate checks all that can be known beforehand. The error is an [*InvalidError].
func (o SnapshotOptions) Validate() error {
	if err := o.name().Validate(); err != nil {
		return err
	}
	if err := (Name{o.VG, o.Origin}).Validate(); err != nil {
		return err
	}
	if o.Name == o.Origin {
		return &InvalidError{"origin", o.Origin, "is the name of the snapshot itself"}
	}
	if o.Size != 0 {
		if err := validateSize("size", o.Size); err != nil {
			return err
		}
	}
	return validateUserTags(o.Tags)
}

// RemoveOptions say how a volume is to be removed. The zero value removes it as it is, unless something speaks against
// it.
type RemoveOptions struct {
	// UUID, where not empty, is the volume that is meant: another one of the same name is ErrExistsMismatch.
	UUID string
	// Cascade removes thick snapshots of the volume first, instead of refusing with ErrHasSnapshots.
	Cascade bool
	// Wipe is what is done so that the data cannot be read from the extents once they are used again.
	Wipe WipePolicy
}

// WipePolicy is what is done to the data of a volume before its extents go back to the group.
//
// A volume in a thin pool that zeroes new blocks (as they do by default) needs none of it: its data cannot be read
// through another volume.
type WipePolicy string

// The policies.
const (
	WipeNone       WipePolicy = ""           // the data stays and can be read by who gets the extents; Create clears the first sectors and known signatures
	WipeSignatures WipePolicy = "signatures" // filesystem, RAID and partition table signatures are erased
	WipeZero       WipePolicy = "zero"       // every block is written with zeroes, or told by the device to read as such
	WipeDiscard    WipePolicy = "discard"    // every block is discarded; what is read afterwards is up to the device
)

func (p WipePolicy) valid() bool {
	switch p {
	case WipeNone, WipeSignatures, WipeZero, WipeDiscard:
		return true
	}
	return false
}

// Validate checks all that can be known beforehand. The error is an [*InvalidError].
func (o RemoveOptions) Validate() error {
	if !o.Wipe.valid() {
		return &InvalidError{"wipe policy", string(o.Wipe), "is none of signatures, zero, discard, or empty for none"}
	}
	if o.UUID != "" && !validUUID(o.UUID) {
		return &InvalidError{"UUID", o.UUID, "is not one of lvm2"}
	}
	return nil
}

// ActivateOptions say how a volume is to be activated.
type ActivateOptions struct {
	// Access changes whether the volume takes writes, for this and later activations. Empty leaves it.
	Access Access
}

// Access is whether a volume takes writes.
type Access string

// The accesses.
const (
	ReadWrite Access = "rw"
	ReadOnly  Access = "ro"
)

// Validate checks all that can be known beforehand. The error is an [*InvalidError].
func (o ActivateOptions) Validate() error {
	switch o.Access {
	case "", ReadWrite, ReadOnly:
		return nil
	}
	return &InvalidError{"access", string(o.Access), "is none of rw, ro, or empty"}
}

// TagChange says which tags are to be added and removed.
type TagChange struct {
	Add, Remove []string
}

// Validate checks all that can be known beforehand. The error is an [*InvalidError].
func (o TagChange) Validate() error {
	if err := validateUserTags(o.Add); err != nil {
		return err
	}
	if err := validateUserTags(o.Remove); err != nil {
		return err
	}
	for _, tag := range o.Add {
		if slices.Contains(o.Remove, tag) {
			return &InvalidError{"tag", tag, "is to be added and removed"}
		}
	}
	return nil
}

// CapacityOptions say of what the capacity is asked.
type CapacityOptions struct {
	VG string
	// Layout is Linear where empty. Also Striped, RAID1 and Thin.
	Layout Layout
	// Stripes and Mirrors are as in CreateOptions.
	Stripes, Mirrors int
	// ThinPool is the pool, for the layout Thin.
	ThinPool string
	// Overprovision is how many times the pool's size all its volumes may have together. 0 means 1.
	Overprovision float64
}

// Validate checks all that can be known beforehand. The error is an [*InvalidError].
func (o CapacityOptions) Validate() error {
	layout := o.Layout
	if layout == ThinPool {
		return &InvalidError{"layout", string(layout), "has no capacity of its own"}
	}
	// The rules are those of a volume of that kind, whatever its name.
	name := "x"
	if o.ThinPool == name {
		name = "y"
	}
	return CreateOptions{VG: o.VG, Name: name, Size: 1, Layout: layout, Stripes: o.Stripes, Mirrors: o.Mirrors, ThinPool: o.ThinPool, Overprovision: o.Overprovision}.Validate()
}

// validUUID is whether s has the form of lvm2's UUIDs, so that it can be put into a selection.
func validUUID(s string) bool {
	if len(s) != 38 {
		return false
	}
	for _, c := range []byte(s) {
		if !(nameChar(c) && c != '_' && c != '+' && c != '.') {
			return false
		}
	}
	return true
}
