package lvm

import (
	"cmp"
	"slices"
)

// stripePlan is over which physical volumes a striped volume goes.
type stripePlan struct {
	Stripes int
	Extents uint64 // of the whole volume: a multiple of Stripes
	Devices []string
}

// planStripes finds the physical volumes for a striped volume of at least extents: those with the most room, so many
// that each has room for its share. want is the number of stripes, or 0 for as many as possible. It is false where
// there are not enough.
func planStripes(pvs []PhysicalVolume, extents uint64, want int) (stripePlan, bool) {
	candidates := byRoom(pvs)
	most, least := min(len(candidates), 128), 2
	if want != 0 {
		most, least = min(most, want), want
	}
	for n := most; n >= least; n-- {
		share := (extents + uint64(n) - 1) / uint64(n)
		if candidates[n-1].usable() < share {
			continue
		}
		plan := stripePlan{Stripes: n, Extents: share * uint64(n)}
		for _, pv := range candidates[:n] {
			plan.Devices = append(plan.Devices, pv.Device)
		}
		slices.Sort(plan.Devices)
		return plan, true
	}
	return stripePlan{}, false
}

// byRoom are the physical volumes that something can be put on, those with the most room first.
func byRoom(pvs []PhysicalVolume) []PhysicalVolume {
	var out []PhysicalVolume
	for _, pv := range pvs {
		if pv.usable() > 0 {
			out = append(out, pv)
		}
	}
	slices.SortStableFunc(out, func(a, b PhysicalVolume) int {
		return cmp.Or(cmp.Compare(b.usable(), a.usable()), cmp.Compare(a.Device, b.Device))
	})
	return out
}

// restrict keeps the physical volumes named, or all where none is. It is false where one that is named is not there.
func restrict(pvs []PhysicalVolume, devices []string) ([]PhysicalVolume, bool) {
	if len(devices) == 0 {
		return pvs, true
	}
	var out []PhysicalVolume
	for _, pv := range pvs {
		if slices.Contains(devices, pv.Device) {
			out = append(out, pv)
		}
	}
	return out, len(out) == len(devices)
}

// largest is how many extents the largest volume of a layout has that is sure to fit. stripes and mirrors are as in
// CreateOptions.
func largest(pvs []PhysicalVolume, layout Layout, stripes, mirrors int) uint64 {
	candidates := byRoom(pvs)
	switch layout {
	case Striped:
		var best uint64
		for n := 2; n <= min(len(candidates), 128); n++ {
			if stripes == 0 || n == stripes {
				best = max(best, candidates[n-1].usable()*uint64(n))
			}
		}
		return best
	case RAID1:
		copies := max(mirrors, 1) + 1
		if len(candidates) < copies {
			return 0
		}
		// Each copy needs an extent for its metadata too.
		return candidates[copies-1].usable() - 1
	}
	var sum uint64
	for _, pv := range candidates {
		sum += pv.usable()
	}
	return sum
}
