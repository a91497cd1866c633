package lvmtest

import (
	"github.com/stretchr/testify/require"

	"github.com/stateofworld/stateofworld/lvm"
)

func testRAID1(e *env) {
	raid := func(o *lvm.CreateOptions) { o.Layout = lvm.RAID1 }
	lv := e.create("r", 2, raid)
	require.Equal(e.t, lvm.RAID1, lv.Layout)
	require.Equal(e.t, 2*e.extent, lv.Size)
	require.LessOrEqual(e.t, e.group().FreeExtents, e.extents-4, "two copies")
	require.Equal(e.t, lv.UUID, e.create("r", 2, raid).UUID)
	_, err := e.tryCreate("r", 2, raid, func(o *lvm.CreateOptions) { o.Mirrors = 2 })
	require.ErrorIs(e.t, err, lvm.ErrExistsMismatch)
	_, err = e.tryCreate("r9", 1, raid, func(o *lvm.CreateOptions) { o.Mirrors = 9 })
	require.ErrorIs(e.t, err, lvm.ErrNoSpace)
	grown, err := e.Backend.Grow(e.ctx, e.name("r"), 3*e.extent)
	require.NoError(e.t, err)
	require.Equal(e.t, 3*e.extent, grown.Size)
	require.Equal(e.t, []string{"r"}, e.names(), "its parts are not volumes of their own")
}

// pool makes a thin pool of so many extents.
func (e *env) pool(extents uint64) lvm.LogicalVolume {
	e.t.Helper()
	return e.create("pool", extents, func(o *lvm.CreateOptions) { o.Layout = lvm.ThinPool })
}

func thin(o *lvm.CreateOptions) { o.Layout, o.ThinPool = lvm.Thin, "pool" }

// L17, openebs/lvm-localpv#458
func testThin(e *env) {
	pool := e.pool(4)
	require.Equal(e.t, lvm.ThinPool, pool.Layout)
	require.Equal(e.t, 4*e.extent, pool.Size)
	require.True(e.t, pool.DataPercent.Known && pool.MetadataPercent.Known)
	require.NotZero(e.t, pool.MetadataSize)
	require.Equal(e.t, pool.UUID, e.pool(4).UUID)

	lv := e.create("a", 6, thin, func(o *lvm.CreateOptions) { o.Tags = []string{"t"} })
	require.Equal(e.t, lvm.Thin, lv.Layout)
	require.Equal(e.t, "pool", lv.Pool)
	require.Equal(e.t, 6*e.extent, lv.Size, "more than the pool has")
	require.Equal(e.t, []string{"t"}, lv.Tags)
	require.Equal(e.t, lvm.Yes, lv.Active)
	require.True(e.t, lv.Attr.Zero)
	require.Equal(e.t, lv.UUID, e.create("a", 6, thin).UUID)
	_, err := e.tryCreate("b", 1, thin, func(o *lvm.CreateOptions) { o.ThinPool = "nowhere" })
	require.ErrorIs(e.t, err, lvm.ErrNotFound)
	_, err = e.tryCreate("b", 1, thin, func(o *lvm.CreateOptions) { o.ThinPool = "a" })
	require.ErrorIs(e.t, err, lvm.ErrInvalid)

	ratio := func(o *lvm.CreateOptions) { o.Overprovision = 2 }
	capacity, err := e.Backend.Capacity(e.ctx, lvm.CapacityOptions{VG: e.VG, Layout: lvm.Thin, ThinPool: "pool", Overprovision: 2})
	require.NoError(e.t, err)
	require.Equal(e.t, 2*e.extent, capacity.Available)
	require.Equal(e.t, 6*e.extent, capacity.Virtual)
	require.Equal(e.t, 4*e.extent, capacity.Total)
	_, err = e.tryCreate("b", 3, thin, ratio)
	require.ErrorIs(e.t, err, lvm.ErrNoSpace)
	e.create("b", 2, thin, ratio)
	grown, err := e.Backend.Grow(e.ctx, e.name("b"), 3*e.extent)
	require.NoError(e.t, err)
	require.Equal(e.t, 3*e.extent, grown.Size)
	capacity, err = e.Backend.Capacity(e.ctx, lvm.CapacityOptions{VG: e.VG, Layout: lvm.Thin, ThinPool: "pool", Overprovision: 2})
	require.NoError(e.t, err)
	require.Zero(e.t, capacity.Available, "beyond the ratio is 0, not a huge number")

	err = e.Backend.Remove(e.ctx, e.name("pool"), lvm.RemoveOptions{Cascade: true})
	require.ErrorIs(e.t, err, lvm.ErrInUse, "a pool is not removed with its volumes")
	var dependents *lvm.DependentsError
	require.ErrorAs(e.t, err, &dependents)
	require.Equal(e.t, []string{"a", "b"}, dependents.Names)
	require.Equal(e.t, []string{"a", "b", "pool"}, e.names())
	e.remove("a", lvm.RemoveOptions{})
	e.remove("b", lvm.RemoveOptions{Wipe: lvm.WipeZero})
	require.Equal(e.t, []string{"pool"}, e.names())
}

// L28, sodafoundation/api#356
func testThickSnapshot(e *env) {
	a := e.create("a", 2)
	e.create("a1", 1)
	o := lvm.SnapshotOptions{VG: e.VG, Name: "s", Origin: "a", Size: e.extent, Tags: []string{"t"}}
	_, err := e.Backend.Snapshot(e.ctx, lvm.SnapshotOptions{VG: e.VG, Name: "s", Origin: "a"})
	require.ErrorIs(e.t, err, lvm.ErrInvalid, "a thick one needs room")
	s, err := e.Backend.Snapshot(e.ctx, o)
	require.NoError(e.t, err)
	require.Equal(e.t, lvm.ThickSnapshot, s.Layout)
	require.Equal(e.t, "a", s.Origin)
	require.Equal(e.t, []string{"t"}, s.Tags)
	require.True(e.t, s.Snapshot())
	again, err := e.Backend.Snapshot(e.ctx, o)
	require.NoError(e.t, err)
	require.Equal(e.t, s.UUID, again.UUID)
	_, err = e.Backend.Snapshot(e.ctx, lvm.SnapshotOptions{VG: e.VG, Name: "s", Origin: "a1", Size: e.extent})
	require.ErrorIs(e.t, err, lvm.ErrExistsMismatch)
	_, err = e.tryCreate("s", 1)
	require.ErrorIs(e.t, err, lvm.ErrExistsMismatch, "a snapshot is no volume of its own")
	_, err = e.Backend.Snapshot(e.ctx, lvm.SnapshotOptions{VG: e.VG, Name: "x", Origin: "nowhere", Size: e.extent})
	require.ErrorIs(e.t, err, lvm.ErrNotFound)
	same, err := e.Backend.Get(e.ctx, a.Name)
	require.NoError(e.t, err)
	require.Equal(e.t, lvm.Linear, same.Layout, "the origin is what it was")

	// The two come and go together.
	_, err = e.Backend.Deactivate(e.ctx, s.Name)
	require.ErrorIs(e.t, err, lvm.ErrUnsupported)
	_, err = e.Backend.Deactivate(e.ctx, a.Name)
	require.NoError(e.t, err)
	off, err := e.Backend.Get(e.ctx, s.Name)
	require.NoError(e.t, err)
	require.Equal(e.t, lvm.No, off.Active)
	on, err := e.Backend.Activate(e.ctx, s.Name, lvm.ActivateOptions{})
	require.NoError(e.t, err)
	require.Equal(e.t, lvm.Yes, on.Active)

	err = e.Backend.Remove(e.ctx, e.name("a"), lvm.RemoveOptions{})
	require.ErrorIs(e.t, err, lvm.ErrHasSnapshots)
	var dependents *lvm.DependentsError
	require.ErrorAs(e.t, err, &dependents)
	require.Equal(e.t, []string{"s"}, dependents.Names)
	e.remove("a1", lvm.RemoveOptions{})
	require.Equal(e.t, []string{"a", "s"}, e.names())
	e.remove("a", lvm.RemoveOptions{Cascade: true})
	require.Empty(e.t, e.names())
}

func testThinSnapshot(e *env) {
	e.pool(4)
	e.create("a", 2, thin)
	o := lvm.SnapshotOptions{VG: e.VG, Name: "s", Origin: "a"}
	s, err := e.Backend.Snapshot(e.ctx, o)
	require.NoError(e.t, err)
	require.Equal(e.t, lvm.Thin, s.Layout)
	require.Equal(e.t, "a", s.Origin)
	require.Equal(e.t, "pool", s.Pool)
	require.Equal(e.t, lvm.No, s.Active)
	again, err := e.Backend.Snapshot(e.ctx, o)
	require.NoError(e.t, err)
	require.Equal(e.t, s.UUID, again.UUID)
	_, err = e.tryCreate("s", 2, thin)
	require.ErrorIs(e.t, err, lvm.ErrExistsMismatch)

	// L34, LINBIT/linstor-server#39: it is skipped unless that is overridden.
	active, err := e.Backend.Activate(e.ctx, s.Name, lvm.ActivateOptions{})
	require.NoError(e.t, err)
	require.Equal(e.t, lvm.Yes, active.Active)
	if e.DeviceExists != nil {
		require.True(e.t, e.DeviceExists(e.t, s.Name))
	}
	e.remove("a", lvm.RemoveOptions{})
	left, err := e.Backend.Get(e.ctx, s.Name)
	require.NoError(e.t, err)
	require.Equal(e.t, s.UUID, left.UUID)
	require.Empty(e.t, left.Origin)
}

// L34, metal-stack/csi-driver-lvm PR#153
func testActivation(e *env) {
	lv := e.create("a", 1)
	same, err := e.Backend.Activate(e.ctx, lv.Name, lvm.ActivateOptions{})
	require.NoError(e.t, err)
	require.Equal(e.t, lv, same)
	for range 2 {
		off, err := e.Backend.Deactivate(e.ctx, lv.Name)
		require.NoError(e.t, err)
		require.Equal(e.t, lvm.No, off.Active)
		require.Zero(e.t, off.Major)
		if e.DeviceExists != nil {
			require.False(e.t, e.DeviceExists(e.t, lv.Name))
		}
	}
	require.Equal(e.t, lv.UUID, e.create("a", 1).UUID, "inactive is not absent")
	for _, access := range []lvm.Access{lvm.ReadOnly, "", lvm.ReadWrite} {
		on, err := e.Backend.Activate(e.ctx, lv.Name, lvm.ActivateOptions{Access: access})
		require.NoError(e.t, err)
		require.Equal(e.t, lvm.Yes, on.Active)
		require.Equal(e.t, access != lvm.ReadWrite, on.ReadOnly)
		if e.DeviceExists != nil {
			require.True(e.t, e.DeviceExists(e.t, lv.Name))
		}
	}
	_, err = e.Backend.Deactivate(e.ctx, lv.Name)
	require.NoError(e.t, err)
	e.remove("a", lvm.RemoveOptions{})
}

// L09, topolvm/topolvm#889
func testInUse(e *env) {
	if e.Hold == nil {
		e.t.Skip("no means to open a device")
	}
	lv := e.create("a", 4)
	release := e.Hold(e.t, lv.Name)
	held, err := e.Backend.Get(e.ctx, lv.Name)
	require.NoError(e.t, err)
	require.Equal(e.t, lvm.Yes, held.Open)
	for _, policy := range []lvm.WipePolicy{lvm.WipeNone, lvm.WipeSignatures, lvm.WipeZero, lvm.WipeDiscard} {
		err := e.Backend.Remove(e.ctx, lv.Name, lvm.RemoveOptions{Wipe: policy})
		require.ErrorIs(e.t, err, lvm.ErrInUse)
		require.NotErrorIs(e.t, err, lvm.ErrNotFound)
	}
	_, err = e.Backend.Deactivate(e.ctx, lv.Name)
	require.ErrorIs(e.t, err, lvm.ErrInUse)
	same, err := e.Backend.Get(e.ctx, lv.Name)
	require.NoError(e.t, err)
	require.Equal(e.t, held, same, "nothing was done to it")
	grown, err := e.Backend.Grow(e.ctx, lv.Name, 5*e.extent)
	require.NoError(e.t, err)
	require.Equal(e.t, 5*e.extent, grown.Size)
	release()
	e.remove("a", lvm.RemoveOptions{})
}

// L13, topolvm/topolvm#1150
func testWipe(e *env) {
	if e.Write == nil || e.Contains == nil {
		e.t.Skip("no means to write to a device")
	}
	const secret = "data of the tenant before"
	whole := func(o *lvm.CreateOptions) { o.PhysicalVolumes = []string{e.pvs[0].Device} }
	extents := e.pvs[0].FreeExtents // so that the next volume gets the same extents
	leaks := func(policy lvm.WipePolicy) bool {
		lv := e.create("a", extents, whole)
		e.Write(e.t, lv.Name, secret)
		require.True(e.t, e.Contains(e.t, lv.Name, secret))
		e.remove("a", lvm.RemoveOptions{Wipe: policy})
		require.Empty(e.t, e.names())
		next := e.create("b", extents, whole)
		leaked := e.Contains(e.t, next.Name, secret)
		e.remove("b", lvm.RemoveOptions{})
		return leaked
	}
	require.True(e.t, leaks(lvm.WipeNone), "else this test shows nothing")
	require.False(e.t, leaks(lvm.WipeZero))

	// What a snapshot has kept of its origin is wiped with it.
	a := e.create("a", 2)
	e.Write(e.t, a.Name, secret)
	s, err := e.Backend.Snapshot(e.ctx, lvm.SnapshotOptions{VG: e.VG, Name: "s", Origin: "a", Size: 4 * e.extent})
	require.NoError(e.t, err)
	e.Write(e.t, a.Name, "something else")
	require.True(e.t, e.Contains(e.t, s.Name, secret))
	e.remove("a", lvm.RemoveOptions{Wipe: lvm.WipeZero, Cascade: true})
	require.Empty(e.t, e.names())
	all := e.create("all", e.extents)
	require.False(e.t, e.Contains(e.t, all.Name, secret))
	e.remove("all", lvm.RemoveOptions{Wipe: lvm.WipeDiscard})

	// Inactive and read-only ones are wiped too.
	a = e.create("a", 2)
	e.Write(e.t, a.Name, secret)
	_, err = e.Backend.Activate(e.ctx, a.Name, lvm.ActivateOptions{Access: lvm.ReadOnly})
	require.NoError(e.t, err)
	_, err = e.Backend.Deactivate(e.ctx, a.Name)
	require.NoError(e.t, err)
	e.remove("a", lvm.RemoveOptions{Wipe: lvm.WipeZero})
	all = e.create("all", e.extents)
	require.False(e.t, e.Contains(e.t, all.Name, secret))
}

func testUnwipeable(e *env) {
	e.pool(4)
	err := e.Backend.Remove(e.ctx, e.name("pool"), lvm.RemoveOptions{Wipe: lvm.WipeZero})
	require.ErrorIs(e.t, err, lvm.ErrUnsupported)
	require.Equal(e.t, []string{"pool"}, e.names())
	// A pool that zeroes its blocks leaves nothing to wipe.
	e.create("a", 2, thin)
	e.remove("a", lvm.RemoveOptions{Wipe: lvm.WipeZero})
	require.Equal(e.t, []string{"pool"}, e.names())
}

// L34: after the start of a machine the group is there and its volumes are inactive.
func testReboot(e *env) {
	if e.Reboot == nil {
		e.t.Skip("no means to reboot")
	}
	lv := e.create("a", 2)
	e.pool(4)
	e.create("thin", 2, thin)
	e.Reboot(e.t)
	lvs, err := e.Backend.List(e.ctx, e.VG)
	require.NoError(e.t, err)
	require.Len(e.t, lvs, 3)
	for _, lv := range lvs {
		require.Equal(e.t, lvm.No, lv.Active, lv.LV)
		require.False(e.t, lv.DataPercent.Known, "unknown is not empty")
	}
	require.Equal(e.t, lv.UUID, e.create("a", 2).UUID)
	for _, lv := range lvs {
		on, err := e.Backend.Activate(e.ctx, lv.Name, lvm.ActivateOptions{})
		require.NoError(e.t, err)
		require.Equal(e.t, lvm.Yes, on.Active)
		if e.DeviceExists != nil && lv.Layout != lvm.ThinPool {
			require.True(e.t, e.DeviceExists(e.t, lv.Name))
		}
	}
	e.remove("a", lvm.RemoveOptions{Wipe: lvm.WipeSignatures})
}
