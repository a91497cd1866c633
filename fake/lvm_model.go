package fake

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/stateofworld/stateofworld/lvm"
)

// lvmGroup is a volume group in memory.
type lvmGroup struct {
	name, uuid        string
	extent            uint64 // bytes
	pvs               []*lvmDisk
	lvs               map[string]*lvmVolume
	exported, foreign bool
	spare             []lvmRange // where the metadata of a thin pool could be repaired to
}

// lvmDisk is a physical volume in memory.
type lvmDisk struct {
	device, uuid       string
	extents            uint64
	free               []lvmRange // sorted, not touching
	missing, duplicate bool
	cells              map[uint64]*lvmCell
}

// lvmRange are extents of one disk.
type lvmRange struct {
	pv           *lvmDisk
	start, count uint64
}

// lvmCell is what is stored in an extent.
type lvmCell struct {
	data      string
	signature string // of a filesystem or partition table, in the first extent of a volume
}

// lvmSegment is a piece of a volume: its extents lie on the areas one after the other, in stripes, or all on each
// (RAID1).
type lvmSegment struct {
	areas [][]lvmRange
}

// lvmVolume is a logical volume in memory.
type lvmVolume struct {
	group          *lvmGroup
	name, uuid     string
	layout         lvm.Layout
	extents        uint64 // virtual ones of a thin volume
	segments       []lvmSegment
	meta           []lvmRange // RAID1 and thin pool metadata
	metaExtents    uint64     // of the thin pool
	tags           []string
	readOnly, skip bool
	active         bool
	minor          uint32
	opens, mounts  int
	origin, pool   string
	zero           bool // the pool zeroes new blocks
	data, metadata float64
	virtual        map[uint64]*lvmCell // of thin volumes, and what a thick snapshot shows
}

func (v *lvmVolume) id() lvm.Name { return lvm.Name{VG: v.group.name, LV: v.name} }

// partial is whether a disk that the volume needs is missing.
func (v *lvmVolume) partial() bool {
	missing := func(ranges []lvmRange) bool {
		return slices.ContainsFunc(ranges, func(r lvmRange) bool { return r.pv.missing })
	}
	for _, segment := range v.segments {
		if slices.ContainsFunc(segment.areas, missing) {
			return true
		}
	}
	if pool := v.group.lvs[v.pool]; v.pool != "" && pool != nil {
		return pool.partial()
	}
	return missing(v.meta)
}

// stripes is over how many areas each segment goes.
func (v *lvmVolume) stripes() int {
	if len(v.segments) == 0 {
		return 0
	}
	return len(v.segments[0].areas)
}

// ranges are all extents that the volume holds.
func (v *lvmVolume) ranges() []lvmRange {
	var out []lvmRange
	for _, segment := range v.segments {
		for _, area := range segment.areas {
			out = append(out, area...)
		}
	}
	return append(out, v.meta...)
}

// cells calls f with every place where a block of the volume's data is stored.
func (v *lvmVolume) cells(f func(index uint64, cell *lvmCell)) {
	if v.layout == lvm.Thin || v.layout == lvm.ThickSnapshot {
		for index := range v.extents {
			if v.virtual[index] == nil {
				v.virtual[index] = &lvmCell{}
			}
			f(index, v.virtual[index])
		}
		return
	}
	v.stored(f)
}

// stored calls f with every extent that the volume holds on disks, but for metadata.
func (v *lvmVolume) stored(f func(index uint64, cell *lvmCell)) {
	index := uint64(0)
	for _, segment := range v.segments {
		next := index
		for _, area := range segment.areas {
			at := next
			if v.layout == lvm.RAID1 { // every area has all of it
				at = index
			}
			for _, r := range area {
				for e := r.start; e < r.start+r.count; e++ {
					f(at, r.pv.cell(e))
					at++
				}
			}
			next = at
		}
		index = next
	}
}

func (d *lvmDisk) cell(extent uint64) *lvmCell {
	c := d.cells[extent]
	if c == nil {
		c = &lvmCell{}
		d.cells[extent] = c
	}
	return c
}

func (d *lvmDisk) freeExtents() uint64 {
	var sum uint64
	for _, r := range d.free {
		sum += r.count
	}
	return sum
}

// take takes count extents from the disk.
func (d *lvmDisk) take(count uint64) []lvmRange {
	var out []lvmRange
	for count > 0 && len(d.free) > 0 {
		r := &d.free[0]
		n := min(count, r.count)
		out = append(out, lvmRange{d, r.start, n})
		r.start, r.count, count = r.start+n, r.count-n, count-n
		if r.count == 0 {
			d.free = d.free[1:]
		}
	}
	return out
}

// give gives extents back.
func give(ranges []lvmRange) {
	for _, r := range ranges {
		d := r.pv
		i, _ := slices.BinarySearchFunc(d.free, r.start, func(f lvmRange, start uint64) int { return cmp.Compare(f.start, start) })
		d.free = slices.Insert(d.free, i, r)
		if i+1 < len(d.free) && d.free[i].start+d.free[i].count == d.free[i+1].start {
			d.free[i].count += d.free[i+1].count
			d.free = slices.Delete(d.free, i+1, i+2)
		}
		if i > 0 && d.free[i-1].start+d.free[i-1].count == d.free[i].start {
			d.free[i-1].count += d.free[i].count
			d.free = slices.Delete(d.free, i, i+1)
		}
	}
}

func (g *lvmGroup) partial() bool {
	return slices.ContainsFunc(g.pvs, func(d *lvmDisk) bool { return d.missing })
}

func (g *lvmGroup) freeExtents() uint64 {
	var sum uint64
	for _, d := range g.pvs {
		sum += d.freeExtents()
	}
	return sum
}

// usable are the disks that may be allocated from, those named if any is.
func (g *lvmGroup) usable(devices []string) []*lvmDisk {
	var out []*lvmDisk
	for _, d := range g.pvs {
		if !d.missing && (len(devices) == 0 || slices.Contains(devices, d.device)) {
			out = append(out, d)
		}
	}
	return out
}

// linear takes extents wherever they are. It is nil where there are not enough.
func linear(disks []*lvmDisk, extents uint64) []lvmRange {
	var room uint64
	for _, d := range disks {
		room += d.freeExtents()
	}
	if room < extents {
		return nil
	}
	var out []lvmRange
	for _, d := range disks {
		got := d.take(extents)
		for _, r := range got {
			extents -= r.count
		}
		out = append(out, got...)
	}
	return out
}

// parallel takes the same number of extents from each of n disks, those with the most room. It is nil where there are
// not so many.
func parallel(disks []*lvmDisk, n int, each uint64) [][]lvmRange {
	disks = slices.Clone(disks)
	slices.SortStableFunc(disks, func(a, b *lvmDisk) int { return cmp.Compare(b.freeExtents(), a.freeExtents()) })
	if len(disks) < n || disks[n-1].freeExtents() < each {
		return nil
	}
	var out [][]lvmRange
	for _, d := range disks[:n] {
		out = append(out, d.take(each))
	}
	return out
}

// snapshotsOf are the thick snapshots of a volume.
func (g *lvmGroup) snapshotsOf(v *lvmVolume) []*lvmVolume {
	return g.which(func(s *lvmVolume) bool { return s.layout == lvm.ThickSnapshot && s.origin == v.name })
}

// members are the volumes in a thin pool.
func (g *lvmGroup) members(pool *lvmVolume) []*lvmVolume {
	return g.which(func(m *lvmVolume) bool { return m.layout == lvm.Thin && m.pool == pool.name })
}

// which are the volumes that something holds for, by name.
func (g *lvmGroup) which(holds func(*lvmVolume) bool) []*lvmVolume {
	var out []*lvmVolume
	for _, v := range g.lvs {
		if holds(v) {
			out = append(out, v)
		}
	}
	slices.SortFunc(out, func(a, b *lvmVolume) int { return cmp.Compare(a.name, b.name) })
	return out
}

// drop takes a volume out of the group and gives its extents back, with what is stored in them.
func (g *lvmGroup) drop(v *lvmVolume) {
	give(v.ranges())
	delete(g.lvs, v.name)
	pools := 0
	for _, other := range g.lvs {
		if other.layout == lvm.Thin && other.origin == v.name {
			other.origin = ""
		}
		if other.layout == lvm.ThinPool {
			pools++
		}
	}
	if pools == 0 {
		give(g.spare)
		g.spare = nil
	}
}

// check finds extents that are held twice or by nobody.
func (g *lvmGroup) check() error {
	type place struct {
		d *lvmDisk
		e uint64
	}
	owner := map[place]string{}
	claim := func(who string, ranges []lvmRange) error {
		for _, r := range ranges {
			for e := r.start; e < r.start+r.count; e++ {
				if other, taken := owner[place{r.pv, e}]; taken {
					return fmt.Errorf("extent %d of %s belongs to %s and to %s", e, r.pv.device, other, who)
				}
				owner[place{r.pv, e}] = who
			}
		}
		return nil
	}
	for _, v := range g.lvs {
		if err := claim(v.id().String(), v.ranges()); err != nil {
			return err
		}
	}
	if err := claim("the spare of "+g.name, g.spare); err != nil {
		return err
	}
	var total uint64
	for _, d := range g.pvs {
		if err := claim("nobody", d.free); err != nil {
			return err
		}
		total += d.extents
	}
	if uint64(len(owner)) != total {
		return fmt.Errorf("%d of %d extents of %s are accounted for", len(owner), total, g.name)
	}
	return nil
}
