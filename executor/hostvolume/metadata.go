package hostvolume

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Metadata says which disks are attached to this machine. It is asked anew by every call that needs it, so a disk that
// is attached later is found.
type Metadata interface {
	Disks(ctx context.Context) ([]AttachedDisk, error)
}

// AttachedDisk is one entry of the list of attached disks.
type AttachedDisk struct {
	// DeviceName is the name that was chosen when the disk was attached. It need not be the name of the disk.
	DeviceName string `json:"deviceName"`
	// Mode is READ_WRITE or READ_ONLY.
	Mode DiskMode `json:"mode"`
}

// DiskMode is how a disk is attached.
type DiskMode string

// The modes of attachment.
const (
	DiskReadWrite DiskMode = "READ_WRITE"
	DiskReadOnly  DiskMode = "READ_ONLY"
)

// StaticMetadata is a fixed list of attached disks.
type StaticMetadata []AttachedDisk

// Disks implements [Metadata].
func (m StaticMetadata) Disks(context.Context) ([]AttachedDisk, error) { return slices.Clone(m), nil }

// attachModes looks the persistent disks of a plan up in the list of attached disks, and makes those read-only that are
// attached so. Only the entries of disks that the plan uses have to be understood.
func (e *Env) attachModes(ctx context.Context, volumes []*volume) []error {
	var disks []*volume
	for _, v := range volumes {
		if v.kind == kindDisk && v.disk.deviceName != "" {
			disks = append(disks, v)
		}
	}
	if len(disks) == 0 {
		return nil
	}
	if e.Metadata == nil {
		return []error{fmt.Errorf("%w: Metadata is required for gcePersistentDisk volumes", ErrInvalidOptions)}
	}
	attached, err := e.Metadata.Disks(ctx)
	if err != nil {
		if known := (*kind)(nil); !errors.As(err, &known) {
			err = fmt.Errorf("%w: %w", ErrMetadata, err)
		}
		return []error{err}
	}
	var errs []error
	for _, v := range disks {
		if err := attachMode(v, attached); err != nil {
			errs = append(errs, &VolumeError{Volume: v.name, Device: v.disk.path, Err: err})
		}
	}
	return errs
}

func attachMode(v *volume, attached []AttachedDisk) error {
	var names []string
	var found []AttachedDisk
	for _, d := range attached {
		names = append(names, d.DeviceName)
		if d.DeviceName == v.disk.deviceName {
			found = append(found, d)
		}
	}
	switch {
	case len(found) == 0:
		slices.Sort(names)
		return fmt.Errorf("%w: no disk is attached under the device name %q; attached are: %s", ErrNoDevice, v.disk.deviceName, orNone(names))
	case len(found) > 1:
		return fmt.Errorf("%w: device name %q is listed %d times", ErrBadMetadata, v.disk.deviceName, len(found))
	}
	switch found[0].Mode {
	case DiskReadWrite:
	case DiskReadOnly:
		v.disk.readOnly = true
		if v.written {
			return fmt.Errorf("%w: the disk is attached %s and a container mounts it for writing", ErrReadOnlyDevice, DiskReadOnly)
		}
	default:
		return fmt.Errorf("%w: device name %q has mode %q, neither %s nor %s", ErrBadMetadata, v.disk.deviceName, found[0].Mode, DiskReadWrite, DiskReadOnly)
	}
	return nil
}

func orNone(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}
