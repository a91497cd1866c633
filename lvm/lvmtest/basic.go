package lvmtest

import (
	"context"
	"errors"
	"math"
	"sync"

	"github.com/stretchr/testify/require"

	"github.com/stateofworld/stateofworld/executor/command"
	"github.com/stateofworld/stateofworld/lvm"
)

func testCreateLinear(e *env) {
	o := lvm.CreateOptions{VG: e.VG, Name: "a", Size: 2*e.extent + 1, Tags: []string{"owner/1", "b", "b"}}
	lv, err := e.Backend.Create(e.ctx, o)
	require.NoError(e.t, err)
	require.Equal(e.t, e.name("a"), lv.Name)
	require.Equal(e.t, 3*e.extent, lv.Size, "rounded up to extents")
	require.Equal(e.t, lvm.Linear, lv.Layout)
	require.Equal(e.t, []string{"b", "owner/1"}, lv.Tags)
	require.Equal(e.t, lvm.StageReady, lv.Stage)
	require.Equal(e.t, lvm.HealthOK, lv.Health)
	require.NotEmpty(e.t, lv.UUID)
	require.False(e.t, lv.ReadOnly)
	require.False(e.t, lv.Snapshot())
	if e.DeviceMapper {
		require.Equal(e.t, lvm.Yes, lv.Active)
		require.Equal(e.t, lvm.No, lv.Open)
		require.NotZero(e.t, lv.Major)
	}
	if e.DeviceExists != nil {
		require.True(e.t, e.DeviceExists(e.t, lv.Name), "the device is there when Create returns")
	}

	again, err := e.Backend.Create(e.ctx, o)
	require.NoError(e.t, err)
	require.Equal(e.t, lv, again)
	got, err := e.Backend.Get(e.ctx, e.name("a"))
	require.NoError(e.t, err)
	require.Equal(e.t, lv, got)
	e.create("aa", 1)
	require.Equal(e.t, []string{"a", "aa"}, e.names())
	require.Equal(e.t, e.extents-4, e.group().FreeExtents)
}

// L22, harvester/harvester#11328
func testMismatch(e *env) {
	lv := e.create("a", 4)
	for what, change := range map[string]func(*lvm.CreateOptions){
		"smaller":   func(o *lvm.CreateOptions) { o.Size = 3 * e.extent },
		"larger":    func(o *lvm.CreateOptions) { o.Size = 4*e.extent + 1 },
		"striped":   func(o *lvm.CreateOptions) { o.Layout = lvm.Striped },
		"mirrored":  func(o *lvm.CreateOptions) { o.Layout = lvm.RAID1 },
		"thin pool": func(o *lvm.CreateOptions) { o.Layout = lvm.ThinPool },
		"thin":      func(o *lvm.CreateOptions) { o.Layout, o.ThinPool = lvm.Thin, "pool" },
	} {
		_, err := e.tryCreate("a", 4, change)
		require.ErrorIs(e.t, err, lvm.ErrExistsMismatch, what)
		var mismatch *lvm.MismatchError
		require.ErrorAs(e.t, err, &mismatch, what)
	}
	// What is only larger because it was rounded up is the same.
	again, err := e.tryCreate("a", 4, func(o *lvm.CreateOptions) { o.Size -= e.extent - 1 })
	require.NoError(e.t, err)
	require.Equal(e.t, lv.UUID, again.UUID)
}

// L16, alibaba/open-local#5
func testStriped(e *env) {
	striped := func(o *lvm.CreateOptions) { o.Layout = lvm.Striped }
	stripes := func(n int) func(*lvm.CreateOptions) { return func(o *lvm.CreateOptions) { o.Stripes = n } }
	lv := e.create("all", 4, striped)
	require.Equal(e.t, lvm.Striped, lv.Layout)
	require.Equal(e.t, 6*e.extent, lv.Size, "three stripes of two extents")
	require.Equal(e.t, lv.UUID, e.create("all", 4, striped).UUID)
	require.Equal(e.t, lv.UUID, e.create("all", 4, striped, stripes(3)).UUID)
	_, err := e.tryCreate("all", 4, striped, stripes(2))
	require.ErrorIs(e.t, err, lvm.ErrExistsMismatch)

	two := e.create("two", 2, striped, stripes(2), func(o *lvm.CreateOptions) {
		o.PhysicalVolumes, o.StripeSize = []string{e.pvs[0].Device, e.pvs[1].Device}, 128<<10
	})
	require.Equal(e.t, 2*e.extent, two.Size)
	group := e.group()
	require.Equal(e.t, e.pvs[2].FreeExtents-2, group.PVs[2].FreeExtents, "not on the one that was not named")

	// One that is full does not keep the others from being used.
	full := e.create("fill", group.PVs[0].FreeExtents, func(o *lvm.CreateOptions) { o.PhysicalVolumes = []string{e.pvs[0].Device} })
	require.Equal(e.t, lvm.Linear, full.Layout)
	require.Zero(e.t, e.group().PVs[0].FreeExtents)
	rest := e.create("rest", 2, striped)
	require.Equal(e.t, 2*e.extent, rest.Size)

	for _, n := range []int{3, 4} {
		_, err = e.tryCreate("more", 3, striped, stripes(n))
		require.ErrorIs(e.t, err, lvm.ErrNotStripable)
	}
	one := func(o *lvm.CreateOptions) { o.PhysicalVolumes = []string{e.pvs[1].Device} }
	_, err = e.tryCreate("one", 2, striped, one)
	require.ErrorIs(e.t, err, lvm.ErrNotStripable)
	fallback := func(o *lvm.CreateOptions) { o.AllowLinear = true }
	lv = e.create("one", 2, striped, one, fallback)
	require.Equal(e.t, lvm.Linear, lv.Layout, "said so")
	require.Equal(e.t, lv.UUID, e.create("one", 2, striped, one, fallback).UUID)
	_, err = e.tryCreate("nowhere", 2, striped, func(o *lvm.CreateOptions) { o.PhysicalVolumes = []string{e.pvs[0].Device, "/dev/nowhere"} })
	require.ErrorIs(e.t, err, lvm.ErrInvalid)
}

// L35, openebs/lvm-localpv#18
func testNoSpace(e *env) {
	_, err := e.tryCreate("a", e.extents+1)
	require.ErrorIs(e.t, err, lvm.ErrNoSpace)
	var failure *lvm.Error
	require.ErrorAs(e.t, err, &failure)
	require.Equal(e.t, "create", failure.Op)
	require.Equal(e.t, e.name("a").String(), failure.Object)
	_, err = e.tryCreate("a", e.extents+1, func(o *lvm.CreateOptions) { o.Layout = lvm.Striped })
	require.ErrorIs(e.t, err, lvm.ErrNoSpace)
	_, err = e.Backend.Get(e.ctx, e.name("a"))
	require.ErrorIs(e.t, err, lvm.ErrNotFound)
	require.Equal(e.t, e.extents, e.group().FreeExtents)
	e.create("a", e.extents)
}

// L14, topolvm PR#844
func testMaxSize(e *env) {
	limit := func(n uint64) func(*lvm.CreateOptions) { return func(o *lvm.CreateOptions) { o.MaxSize = n } }
	one := func(o *lvm.CreateOptions) { o.Size = 1 }
	_, err := e.tryCreate("a", 1, one, limit(e.extent-1))
	require.ErrorIs(e.t, err, lvm.ErrOutOfRange)
	require.Empty(e.t, e.names())
	require.Equal(e.t, e.extent, e.create("a", 1, one, limit(e.extent)).Size)
}

func testCapacity(e *env) {
	capacity := func(o lvm.CapacityOptions) lvm.Capacity {
		e.t.Helper()
		o.VG = e.VG
		c, err := e.Backend.Capacity(e.ctx, o)
		require.NoError(e.t, err)
		return c
	}
	all := capacity(lvm.CapacityOptions{})
	require.Equal(e.t, e.extents*e.extent, all.Available)
	require.Equal(e.t, all.Available, all.Free)
	require.Equal(e.t, all.Available, all.Total)
	each := e.pvs[0].FreeExtents
	require.Equal(e.t, 2*each*e.extent, capacity(lvm.CapacityOptions{Layout: lvm.Striped, Stripes: 2}).Available)
	require.Equal(e.t, (each-1)*e.extent, capacity(lvm.CapacityOptions{Layout: lvm.RAID1}).Available)
	require.Zero(e.t, capacity(lvm.CapacityOptions{Layout: lvm.RAID1, Mirrors: 3}).Available)

	e.create("fill", each-2, func(o *lvm.CreateOptions) { o.PhysicalVolumes = []string{e.pvs[0].Device} })
	require.Equal(e.t, (e.extents-each+2)*e.extent, capacity(lvm.CapacityOptions{}).Available)
	striped := capacity(lvm.CapacityOptions{Layout: lvm.Striped})
	require.Equal(e.t, 2*each*e.extent, striped.Available)
	_, err := e.tryCreate("more", 2*each+1, func(o *lvm.CreateOptions) { o.Layout = lvm.Striped })
	require.ErrorIs(e.t, err, lvm.ErrNoSpace)
	e.create("most", 2*each, func(o *lvm.CreateOptions) { o.Layout = lvm.Striped })
	require.Equal(e.t, 2*e.extent, capacity(lvm.CapacityOptions{}).Available)
	require.Zero(e.t, capacity(lvm.CapacityOptions{Layout: lvm.Striped}).Available)

	_, err = e.Backend.Capacity(e.ctx, lvm.CapacityOptions{VG: e.VG, Layout: lvm.Thin, ThinPool: "nowhere"})
	require.ErrorIs(e.t, err, lvm.ErrNotFound)
	_, err = e.Backend.Capacity(e.ctx, lvm.CapacityOptions{VG: e.VG, Layout: lvm.Thin, ThinPool: "most"})
	require.ErrorIs(e.t, err, lvm.ErrInvalid)
}

// L32, metal-stack/csi-lvm PR#22
func testConcurrentSpace(e *env) {
	errs := make([]error, 2)
	var group sync.WaitGroup
	for i, name := range []string{"a", "b"} {
		group.Go(func() { _, errs[i] = e.tryCreate(name, e.extents*6/10) })
	}
	group.Wait()
	if errs[0] != nil {
		errs[0], errs[1] = errs[1], errs[0]
	}
	require.NoError(e.t, errs[0])
	require.ErrorIs(e.t, errs[1], lvm.ErrNoSpace)
	require.Len(e.t, e.names(), 1)
}

func testConcurrentName(e *env) {
	const callers = 4
	lvs := make([]lvm.LogicalVolume, callers)
	errs := make([]error, callers)
	var group sync.WaitGroup
	for i := range callers {
		group.Go(func() { lvs[i], errs[i] = e.tryCreate("a", 1) })
	}
	group.Wait()
	require.NoError(e.t, errors.Join(errs...))
	for _, lv := range lvs {
		require.Equal(e.t, lvs[0].UUID, lv.UUID)
	}
	require.Equal(e.t, []string{"a"}, e.names())
}

func testGrow(e *env) {
	lv := e.create("a", 2)
	for _, size := range []uint64{1, 2 * e.extent} {
		same, err := e.Backend.Grow(e.ctx, e.name("a"), size)
		require.NoError(e.t, err)
		require.Equal(e.t, lv, same, "never smaller")
	}
	grown, err := e.Backend.Grow(e.ctx, e.name("a"), 3*e.extent+1)
	require.NoError(e.t, err)
	require.Equal(e.t, 4*e.extent, grown.Size)
	require.Equal(e.t, lv.UUID, grown.UUID)
	require.Equal(e.t, e.extents-4, e.group().FreeExtents)
	_, err = e.Backend.Grow(e.ctx, e.name("a"), (e.extents+1)*e.extent)
	require.ErrorIs(e.t, err, lvm.ErrNoSpace)
	_, err = e.Backend.Grow(e.ctx, e.name("b"), e.extent)
	require.ErrorIs(e.t, err, lvm.ErrNotFound)

	// L06, topolvm/topolvm#126: a volume in several pieces is still one.
	e.create("between", 1)
	_, err = e.Backend.Grow(e.ctx, e.name("a"), 6*e.extent)
	require.NoError(e.t, err)
	require.Equal(e.t, []string{"a", "between"}, e.names())
	striped := e.create("striped", 3, func(o *lvm.CreateOptions) { o.Layout, o.Stripes = lvm.Striped, 3 })
	more, err := e.Backend.Grow(e.ctx, e.name("striped"), striped.Size+1)
	require.NoError(e.t, err)
	require.Equal(e.t, striped.Size+3*e.extent, more.Size)
	require.Equal(e.t, lvm.Striped, more.Layout)
}

func testRename(e *env) {
	a, b := e.create("a", 1), e.create("b", 1)
	_, err := e.Backend.Rename(e.ctx, e.name("a"), "b")
	require.ErrorIs(e.t, err, lvm.ErrExists)
	got, err := e.Backend.Rename(e.ctx, e.name("a"), "c")
	require.NoError(e.t, err)
	require.Equal(e.t, e.name("c"), got.Name)
	require.Equal(e.t, a.UUID, got.UUID)
	again, err := e.Backend.Rename(e.ctx, e.name("a"), "c")
	require.NoError(e.t, err)
	require.Equal(e.t, got, again)
	_, err = e.Backend.Rename(e.ctx, e.name("x"), "y")
	require.ErrorIs(e.t, err, lvm.ErrNotFound)
	require.Equal(e.t, []string{"b", "c"}, e.names())
	same, err := e.Backend.Get(e.ctx, e.name("b"))
	require.NoError(e.t, err)
	require.Equal(e.t, b, same)
}

func testTags(e *env) {
	require.Empty(e.t, e.create("a", 1).Tags)
	odd := "k8s.io/claim=ns/name:1!&#x"
	lv, err := e.Backend.ChangeTags(e.ctx, e.name("a"), lvm.TagChange{Add: []string{"z", odd}, Remove: []string{"absent"}})
	require.NoError(e.t, err)
	require.Equal(e.t, []string{odd, "z"}, lv.Tags)
	lv, err = e.Backend.ChangeTags(e.ctx, e.name("a"), lvm.TagChange{Add: []string{"z", "y"}, Remove: []string{odd}})
	require.NoError(e.t, err)
	require.Equal(e.t, []string{"y", "z"}, lv.Tags)
	again, err := e.Backend.ChangeTags(e.ctx, e.name("a"), lvm.TagChange{Add: []string{"z", "y"}, Remove: []string{odd}})
	require.NoError(e.t, err)
	require.Equal(e.t, lv, again)
	_, err = e.Backend.ChangeTags(e.ctx, e.name("b"), lvm.TagChange{Add: []string{"z"}})
	require.ErrorIs(e.t, err, lvm.ErrNotFound)
}

// L10, openebs/lvm-localpv#15
func testRemove(e *env) {
	a := e.create("a", 1)
	other := e.create("other", 1)
	err := e.Backend.Remove(e.ctx, e.name("a"), lvm.RemoveOptions{UUID: other.UUID})
	require.ErrorIs(e.t, err, lvm.ErrExistsMismatch)
	_, err = e.Backend.ChangeTags(e.ctx, e.name("a"), lvm.TagChange{Add: []string{"protected"}})
	require.NoError(e.t, err)
	require.ErrorIs(e.t, e.Backend.Remove(e.ctx, e.name("a"), lvm.RemoveOptions{}), lvm.ErrProtected)
	_, err = e.Backend.ChangeTags(e.ctx, e.name("a"), lvm.TagChange{Remove: []string{"protected"}})
	require.NoError(e.t, err)
	require.Equal(e.t, []string{"a", "other"}, e.names())

	e.remove("a", lvm.RemoveOptions{UUID: a.UUID})
	e.remove("a", lvm.RemoveOptions{UUID: a.UUID})
	e.remove("never", lvm.RemoveOptions{Cascade: true})
	require.Equal(e.t, []string{"other"}, e.names())
	_, err = e.Backend.Get(e.ctx, e.name("a"))
	require.ErrorIs(e.t, err, lvm.ErrNotFound)
	require.NotEqual(e.t, a.UUID, e.create("a", 1).UUID)
	n, err := e.Backend.FinishRemovals(e.ctx, e.VG)
	require.NoError(e.t, err)
	require.Zero(e.t, n)
}

func testAbsentGroup(e *env) {
	gone := lvm.Name{VG: e.VG + "-gone", LV: "a"}
	for what, err := range e.everyCall(gone, true) {
		require.ErrorIs(e.t, err, lvm.ErrVGNotFound, what)
		require.NotErrorIs(e.t, err, lvm.ErrNotFound, what)
	}
}

// everyCall tries every method on one name, those about the whole group only if told to, and returns the errors.
func (e *env) everyCall(name lvm.Name, group bool) map[string]error {
	errs := map[string]error{}
	_, errs["Create"] = e.Backend.Create(e.ctx, lvm.CreateOptions{VG: name.VG, Name: name.LV, Size: 1})
	_, errs["Create striped"] = e.Backend.Create(e.ctx, lvm.CreateOptions{VG: name.VG, Name: name.LV, Size: 1, Layout: lvm.Striped})
	_, errs["Snapshot"] = e.Backend.Snapshot(e.ctx, lvm.SnapshotOptions{VG: name.VG, Name: name.LV, Origin: "origin", Size: 1})
	errs["Remove"] = e.Backend.Remove(e.ctx, name, lvm.RemoveOptions{})
	errs["Remove and wipe"] = e.Backend.Remove(e.ctx, name, lvm.RemoveOptions{Wipe: lvm.WipeZero, Cascade: true})
	_, errs["Grow"] = e.Backend.Grow(e.ctx, name, 1)
	_, errs["Get"] = e.Backend.Get(e.ctx, name)
	_, errs["Activate"] = e.Backend.Activate(e.ctx, name, lvm.ActivateOptions{Access: lvm.ReadOnly})
	_, errs["Deactivate"] = e.Backend.Deactivate(e.ctx, name)
	_, errs["Rename"] = e.Backend.Rename(e.ctx, name, "new")
	_, errs["ChangeTags"] = e.Backend.ChangeTags(e.ctx, name, lvm.TagChange{Add: []string{"t"}})
	if !group {
		return errs
	}
	_, errs["FinishRemovals"] = e.Backend.FinishRemovals(e.ctx, name.VG)
	_, errs["List"] = e.Backend.List(e.ctx, name.VG)
	_, errs["VolumeGroup"] = e.Backend.VolumeGroup(e.ctx, name.VG)
	_, errs["Capacity"] = e.Backend.Capacity(e.ctx, lvm.CapacityOptions{VG: name.VG})
	return errs
}

// L36, kubernetes/kubernetes#16971
func testInvalid(e *env) {
	e.create("a", 1)
	// A volume group that cannot be makes all methods fail.
	for _, vg := range []string{"", "-f", "@all", "$(id)", e.VG + "; rm -rf /", ".", "..", e.VG + "/a"} {
		for what, err := range e.everyCall(lvm.Name{VG: vg, LV: "a"}, true) {
			require.ErrorIs(e.t, err, lvm.ErrInvalid, "%s %q", what, vg)
		}
	}
	for _, lv := range []string{"", "-a", ".", "..", "snapshot-1", "a_tdata", "é", "a b", "@a", "a/b", "a;b"} {
		for what, err := range e.everyCall(e.name(lv), false) {
			require.ErrorIs(e.t, err, lvm.ErrInvalid, "%s %q", what, lv)
		}
	}
	for _, size := range []uint64{0, math.MaxUint64, math.MaxUint64 - 511} {
		_, err := e.tryCreate("b", 1, func(o *lvm.CreateOptions) { o.Size = size })
		require.ErrorIs(e.t, err, lvm.ErrInvalid)
		_, err = e.Backend.Grow(e.ctx, e.name("a"), size)
		require.ErrorIs(e.t, err, lvm.ErrInvalid)
	}
	_, err := e.tryCreate("b", 1, func(o *lvm.CreateOptions) { o.Tags = []string{"a b"} })
	require.ErrorIs(e.t, err, lvm.ErrInvalid)
	require.ErrorIs(e.t, e.Backend.Remove(e.ctx, e.name("a"), lvm.RemoveOptions{Wipe: "shred"}), lvm.ErrInvalid)
	require.Equal(e.t, []string{"a"}, e.names())
}

func testGroups(e *env) {
	e.create("a", 2)
	want := e.group()
	require.Equal(e.t, e.VG, want.Name)
	require.True(e.t, want.Writable)
	require.False(e.t, want.Partial || want.Exported || want.Shared)
	require.Equal(e.t, want.Extents*want.ExtentSize, want.Size)
	require.Equal(e.t, want.FreeExtents*want.ExtentSize, want.Free)
	var extents, free uint64
	for _, pv := range want.PVs {
		require.True(e.t, pv.Allocatable)
		require.False(e.t, pv.Missing || pv.Duplicate)
		require.NotEmpty(e.t, pv.UUID)
		extents, free = extents+pv.Extents, free+pv.FreeExtents
	}
	require.Equal(e.t, want.Extents, extents)
	require.Equal(e.t, want.FreeExtents, free)
	all, err := e.Backend.VolumeGroups(e.ctx)
	require.NoError(e.t, err)
	require.Contains(e.t, all, want)
}

func testContext(e *env) {
	e.create("a", 1)
	ended := *e
	var cancel context.CancelFunc
	ended.ctx, cancel = context.WithCancel(e.ctx)
	cancel()
	for what, err := range ended.everyCall(e.name("a"), true) {
		require.ErrorIs(e.t, err, context.Canceled, what)
		var timeout *command.TimeoutError
		if errors.As(err, &timeout) {
			require.False(e.t, timeout.Started, what)
		}
	}
	require.Equal(e.t, []string{"a"}, e.names())
}
