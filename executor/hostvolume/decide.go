package hostvolume

import "fmt"

// facts are all that the decision about a device depends on.
type facts struct {
	// wanted
	fsType   string
	readOnly bool
	// found
	writeProtected bool
	found          contents
	seen           bool // a filesystem was seen on this device before
	sampled        bool
	data           int64 // offset of the first sampled byte that is not zero, or -1; counts when sampled
	// allowed
	format   FormatPolicy
	fsck     FsckPolicy
	firstUse bool
}

// step is what has to be done with a device before it can be used.
type step int

const (
	stepNone   step = iota // it is mounted where it belongs
	stepMount              // mount it
	stepCheck              // check it, then mount it
	stepFormat             // make a filesystem, then mount it
	stepSample             // read its samples, then decide again
)

// decide is the rule about what may happen to a device. Everything that is not plainly right is an error.
func decide(f facts) (step, error) {
	found := f.found
	switch {
	case found.partitionTable != "" && found.fsType == "":
		return 0, fmt.Errorf("%w (%s), and no partition is chosen", ErrHasPartitions, found.partitionTable)
	case found.partitionTable != "":
		return 0, fmt.Errorf("%w: both a partition table (%s) and %s", ErrAmbiguous, found.partitionTable, found.fsType)
	case found.fsType == f.fsType:
		return decideExisting(f)
	case found.fsType != "":
		return 0, fmt.Errorf("%w: %s, and the spec wants %s", ErrWrongFilesystem, found.fsType, f.fsType)
	default:
		return decideNothingFound(f)
	}
}

func decideExisting(f facts) (step, error) {
	switch {
	case f.readOnly:
		return stepMount, nil
	case f.writeProtected:
		return 0, fmt.Errorf("%w: it is write-protected, and a container mounts it for writing", ErrReadOnlyDevice)
	case f.fsck == FsckNever || f.fsType == "xfs": // xfs repairs itself when it is mounted
		return stepMount, nil
	default:
		return stepCheck, nil
	}
}

func decideNothingFound(f facts) (step, error) {
	switch {
	case f.seen:
		return 0, fmt.Errorf("%w; if this is a new disk of the same name, call ForgetDevice", ErrFilesystemLost)
	case f.readOnly:
		return 0, ErrUnformattedReadOnly
	case f.writeProtected:
		return 0, fmt.Errorf("%w: it is write-protected and has no filesystem", ErrReadOnlyDevice)
	case f.format == FormatNever:
		return 0, ErrFormatNotAllowed
	case !f.sampled:
		return stepSample, nil
	case f.data >= 0 && !f.firstUse:
		return 0, fmt.Errorf("%w: no filesystem is recognised, but there is data at offset %d, perhaps of a damaged filesystem or an interrupted mkfs; "+
			"if it may be overwritten, name the volume in FirstUse", ErrNotBlank, f.data)
	default:
		return stepFormat, nil
	}
}

// judgeFsck reads the exit code of fsck, which is a sum of bits. What it has repaired is fine.
func judgeFsck(exitCode int) error {
	const repaired, reboot, uncorrected = 1, 2, 4
	switch {
	case exitCode < 0 || exitCode&^(repaired|reboot|uncorrected) != 0:
		return ErrCheckFailed
	case exitCode&uncorrected != 0:
		return ErrNeedsRepair
	default:
		return nil
	}
}
