package lvm

import (
	"math"
	"strconv"
)

// maxSize is the largest size that is taken: 8 EiB minus an extent of the largest kind, below what lvm2 and the kernel
// can address, so that no rounding overflows.
const maxSize = math.MaxInt64 - 1<<40

const sectorSize = 512

func validateSize(field string, size uint64) error {
	if size == 0 {
		return &InvalidError{field, "0", "must be more than 0 bytes"}
	}
	if size > maxSize {
		return &InvalidError{field, strconv.FormatUint(size, 10), "too large"}
	}
	return nil
}

// roundUp is the smallest multiple of unit that is not below size. Both are at most maxSize.
func roundUp(size, unit uint64) uint64 {
	if unit == 0 {
		return size
	}
	if rest := size % unit; rest != 0 {
		return size - rest + unit
	}
	return size
}

// sizeArg is a size as an argument: bytes, rounded up to sectors, since lvm2 refuses others.
func sizeArg(size uint64) string { return strconv.FormatUint(roundUp(size, sectorSize), 10) + "b" }
