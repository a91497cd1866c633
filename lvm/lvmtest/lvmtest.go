// Package lvmtest checks that an [lvm.Backend] behaves as its documentation says. It is run against fake.LVM, and
// against lvm.CLI over real lvm2 on loop devices with and without device-mapper; whoever writes a backend of his own
// can run it too:
//
//	func TestBackend(t *testing.T) {
//		lvmtest.Run(t, func(t *testing.T) lvmtest.Setup {
//			return lvmtest.Setup{Backend: newBackend(t), VG: "vg0"}
//		})
//	}
//
// What a backend cannot do, or a Setup gives no means to try, is skipped with a word.
package lvmtest

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stateofworld/stateofworld/lvm"
)

// Setup is what one test works on. The tests run in parallel, so each needs volume groups of its own; cleaning up is
// the Setup's affair (t.Cleanup).
type Setup struct {
	Backend lvm.Backend
	// VG is an empty volume group of three physical volumes of the same size, at least 8 extents each.
	VG string
	// DeviceMapper is whether volumes can be activated, and have layouts other than linear and striped.
	DeviceMapper bool
	// Hold opens the device of a volume, or mounts it, and returns the function that lets go. Nil: what is in use
	// cannot be tried.
	Hold func(t *testing.T, name lvm.Name) (release func())
	// Write stores data all over a volume, and Contains tells whether it is found anywhere on another. Nil: wiping
	// cannot be tried.
	Write    func(t *testing.T, name lvm.Name, data string)
	Contains func(t *testing.T, name lvm.Name, data string) bool
	// DeviceExists is whether the device of a volume is there. Nil: that is not looked at.
	DeviceExists func(t *testing.T, name lvm.Name) bool
	// Reboot leaves all volumes inactive, as the start of a machine may. Nil: that cannot be tried.
	Reboot func(t *testing.T)
}

// Run runs all tests, each with a Setup of its own.
func Run(t *testing.T, newSetup func(t *testing.T) Setup) {
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			e := &env{Setup: newSetup(t), t: t, ctx: t.Context()}
			group := e.group()
			require.GreaterOrEqual(t, len(group.PVs), 3, "the suite needs a group of three physical volumes")
			require.Equal(t, group.Extents, group.FreeExtents, "the suite needs an empty group")
			for _, pv := range group.PVs {
				require.GreaterOrEqual(t, pv.FreeExtents, uint64(8), "the suite needs 8 extents on each physical volume")
			}
			e.extent, e.extents, e.pvs = group.ExtentSize, group.Extents, group.PVs
			if test.deviceMapper && !e.DeviceMapper {
				t.Skip("needs device-mapper, which this backend does without")
			}
			test.run(e)
			if !t.Failed() {
				e.clean()
			}
		})
	}
}

type test struct {
	name         string
	deviceMapper bool
	run          func(e *env)
}

var tests = []test{
	{"a linear volume is made once and rounded up", false, testCreateLinear},
	{"a volume that differs is a mismatch", false, testMismatch},
	{"a striped volume goes over the physical volumes with room", false, testStriped},
	{"too large is no space and leaves nothing", false, testNoSpace},
	{"too large is found before anything is made", false, testMaxSize},
	{"the capacity is what can be made", false, testCapacity},
	{"checking and making are one step", false, testConcurrentSpace},
	{"one name is made once", false, testConcurrentName},
	{"a volume grows and never shrinks", false, testGrow},
	{"a volume is renamed", false, testRename},
	{"tags are added and removed", false, testTags},
	{"removing is idempotent and careful", false, testRemove},
	{"an absent group is never an absent volume", false, testAbsentGroup},
	{"what is invalid is refused", false, testInvalid},
	{"groups are described", false, testGroups},
	{"an ended context changes nothing", false, testContext},
	{"a mirrored volume has copies", true, testRAID1},
	{"a thin pool holds more than it has", true, testThin},
	{"thick snapshots keep their origin", true, testThickSnapshot},
	{"thin snapshots outlive their origin", true, testThinSnapshot},
	{"volumes are activated and deactivated", true, testActivation},
	{"what is in use stays", true, testInUse},
	{"wiped data cannot be read again", true, testWipe},
	{"what cannot be wiped is refused", true, testUnwipeable},
	{"volumes survive a reboot", true, testReboot},
}

// env is one test's means.
type env struct {
	Setup
	t       *testing.T
	ctx     context.Context
	extent  uint64
	extents uint64 // of the empty group
	pvs     []lvm.PhysicalVolume
}

func (e *env) name(lv string) lvm.Name { return lvm.Name{VG: e.VG, LV: lv} }

func (e *env) group() lvm.VolumeGroup {
	e.t.Helper()
	vg, err := e.Backend.VolumeGroup(e.ctx, e.VG)
	require.NoError(e.t, err)
	return vg
}

// create makes a volume of so many extents.
func (e *env) create(lv string, extents uint64, change ...func(*lvm.CreateOptions)) lvm.LogicalVolume {
	e.t.Helper()
	out, err := e.tryCreate(lv, extents, change...)
	require.NoError(e.t, err)
	return out
}

func (e *env) tryCreate(lv string, extents uint64, change ...func(*lvm.CreateOptions)) (lvm.LogicalVolume, error) {
	o := lvm.CreateOptions{VG: e.VG, Name: lv, Size: extents * e.extent}
	for _, f := range change {
		f(&o)
	}
	return e.Backend.Create(e.ctx, o)
}

func (e *env) remove(lv string, o lvm.RemoveOptions) {
	e.t.Helper()
	require.NoError(e.t, e.Backend.Remove(e.ctx, e.name(lv), o))
}

// names are those of all volumes of the group.
func (e *env) names() []string {
	e.t.Helper()
	lvs, err := e.Backend.List(e.ctx, e.VG)
	require.NoError(e.t, err)
	names := []string{}
	for _, lv := range lvs {
		names = append(names, lv.LV)
	}
	return names
}

// clean removes what the test has left and checks that nothing has leaked.
func (e *env) clean() {
	e.t.Helper()
	var lvs []lvm.LogicalVolume
	for range 4 { // snapshots and volumes of pools first, whatever the order of names
		var err error
		lvs, err = e.Backend.List(e.ctx, e.VG)
		require.NoError(e.t, err)
		if len(lvs) == 0 {
			break
		}
		for _, lv := range lvs {
			if err := e.Backend.Remove(e.ctx, lv.Name, lvm.RemoveOptions{Cascade: true}); err != nil {
				require.ErrorIs(e.t, err, lvm.ErrInUse)
			}
		}
	}
	require.Empty(e.t, lvs)
	require.Equal(e.t, e.extents, e.group().FreeExtents, "extents have leaked")
}
