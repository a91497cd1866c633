package lvm

import "fmt"

// CheckFormat refuses to have a filesystem made on a volume that is a snapshot: it holds its origin's data, also where
// nothing is recognised on it. The error is ErrWouldFormatClone.
func CheckFormat(lv LogicalVolume) error {
	if lv.Snapshot() {
		return fmt.Errorf("lvm: format %s: %w of %s", lv.Name, ErrWouldFormatClone, lv.Origin)
	}
	return nil
}

// MountOptions are the options that mounting a filesystem needs because of the volume that it is on: a snapshot has the
// UUID of its origin's filesystem, which xfs refuses to mount twice, and its journal cannot be replayed where it takes
// no writes. A snapshot must be mounted by its path, never by UUID or label.
func MountOptions(lv LogicalVolume, fsType string, readOnly bool) []string {
	var options []string
	if readOnly {
		options = append(options, "ro")
	}
	if !lv.Snapshot() {
		return options
	}
	switch fsType {
	case "xfs":
		options = append(options, "nouuid")
		if readOnly {
			options = append(options, "norecovery")
		}
	case "ext3", "ext4":
		if readOnly {
			options = append(options, "noload")
		}
	}
	return options
}
