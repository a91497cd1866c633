package lvm

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// disks are physical volumes with so many free extents.
func disks(free ...uint64) []PhysicalVolume {
	var pvs []PhysicalVolume
	for i, n := range free {
		pvs = append(pvs, PhysicalVolume{Device: fmt.Sprintf("/dev/sd%c", 'a'+i), Allocatable: true, Extents: n, FreeExtents: n})
	}
	return pvs
}

// L16, alibaba/open-local#5
func TestStripesGoOverThePhysicalVolumesWithRoom(t *testing.T) {
	mixed := disks(135, 2688, 7680) // 540 MiB, 10.5 GiB, 30 GiB
	plan, ok := planStripes(mixed, 768, 0)
	require.True(t, ok)
	require.Equal(t, stripePlan{2, 768, []string{"/dev/sdb", "/dev/sdc"}}, plan)
	plan, ok = planStripes(mixed, 404, 0)
	require.True(t, ok)
	require.Equal(t, 3, plan.Stripes)
	require.EqualValues(t, 405, plan.Extents, "whole rounds of stripes")

	_, ok = planStripes(mixed, 768, 3)
	require.False(t, ok, "honoured or refused")
	_, ok = planStripes(disks(100), 1, 0)
	require.False(t, ok, "one is no stripe")
	_, ok = planStripes(disks(100, 100), 1, 3)
	require.False(t, ok)
	_, ok = planStripes(nil, 1, 0)
	require.False(t, ok)

	broken := disks(100, 100, 100, 100)
	broken[0].Missing, broken[1].Allocatable, broken[2].Duplicate = true, false, true
	_, ok = planStripes(broken, 1, 0)
	require.False(t, ok, "only one can be used")
}

// The plan fits, and no plan with more stripes would.
func TestStripePlansAreTheWidestThatFit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pvs := disks(rapid.SliceOfN(rapid.Uint64Range(0, 40), 0, 7).Draw(t, "free")...)
		extents := rapid.Uint64Range(1, 120).Draw(t, "extents")
		want := rapid.SampledFrom([]int{0, 0, 2, 3, 5}).Draw(t, "want")
		fits := func(n int) bool {
			room := 0
			for _, pv := range pvs {
				if pv.FreeExtents >= (extents+uint64(n)-1)/uint64(n) {
					room++
				}
			}
			return room >= n
		}
		plan, ok := planStripes(pvs, extents, want)
		widest := 0
		for n := 2; n <= len(pvs); n++ {
			if fits(n) && (want == 0 || n == want) {
				widest = n
			}
		}
		require.Equal(t, widest != 0, ok)
		if !ok {
			return
		}
		require.Equal(t, widest, plan.Stripes)
		require.Len(t, plan.Devices, widest)
		require.Zero(t, plan.Extents%uint64(widest))
		require.GreaterOrEqual(t, plan.Extents, extents)
		require.Less(t, plan.Extents-extents, uint64(widest))
		for _, pv := range pvs {
			for _, device := range plan.Devices {
				if pv.Device == device {
					require.GreaterOrEqual(t, pv.FreeExtents, plan.Extents/uint64(widest))
				}
			}
		}
	})
}

// What is promised fits; for stripes and mirrors one extent more does not.
func TestCapacityOfPhysicalVolumes(t *testing.T) {
	pvs := disks(10, 30, 20)
	require.EqualValues(t, 60, largest(pvs, "", 0, 0))
	require.EqualValues(t, 40, largest(pvs, Striped, 0, 0))
	require.EqualValues(t, 40, largest(pvs, Striped, 2, 0))
	require.EqualValues(t, 30, largest(pvs, Striped, 3, 0))
	require.Zero(t, largest(pvs, Striped, 4, 0))
	require.EqualValues(t, 19, largest(pvs, RAID1, 0, 0))
	require.EqualValues(t, 9, largest(pvs, RAID1, 0, 2))
	require.Zero(t, largest(pvs, RAID1, 0, 3))
	rapid.Check(t, func(t *rapid.T) {
		pvs := disks(rapid.SliceOfN(rapid.Uint64Range(0, 40), 0, 7).Draw(t, "free")...)
		most := largest(pvs, Striped, 0, 0)
		if most > 0 {
			_, ok := planStripes(pvs, most, 0)
			require.True(t, ok)
		}
		_, ok := planStripes(pvs, most+1, 0)
		require.False(t, ok)
	})
}
