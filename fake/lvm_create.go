package fake

import (
	"slices"
	"strconv"
	"strings"

	"github.com/stateofworld/stateofworld/executor/command"
	"github.com/stateofworld/stateofworld/lvm"
)

// lockedCreate is lvcreate. cut leaves the volume as it is before it is activated and wiped.
func (l *LVM) lockedCreate(c *lvmCommand, cut bool) *command.Result {
	if len(c.args) == 0 {
		return usage("Please provide a volume group name")
	}
	vg, origin, _ := strings.Cut(c.args[0], "/")
	g, bad := l.lockedGroup(vg)
	if bad != nil {
		return bad
	}
	name := c.get("-n")
	if g.lvs[name] != nil {
		return failed("Logical Volume %q already exists in volume group %q", name, vg)
	}
	if bad := g.changeable(); bad != nil {
		return bad
	}
	v := &lvmVolume{group: g, name: name, tags: slices.Clone(c.options["--addtag"]), layout: lvm.Linear}
	slices.Sort(v.tags)
	v.tags = slices.Compact(v.tags)
	switch {
	case c.has("-s"):
		bad = createSnapshot(c, g, v, origin)
	case c.has("--thinpool"):
		bad = createThin(c, g, v)
	default:
		bad = createThick(c, g, v)
	}
	if bad != nil {
		return bad
	}
	v.uuid = l.lockedUUID()
	g.lvs[name] = v
	if cut {
		return done("")
	}
	if c.get("-a") != "n" && !v.skip && !c.noDriver() {
		l.lockedActivate(v)
	}
	if c.get("-W") == "y" || c.get("-Z") == "y" && v.layout != lvm.ThinPool {
		v.cells(func(index uint64, cell *lvmCell) {
			if index == 0 {
				cell.signature = ""
			}
		})
	}
	return done("Logical volume %q created.", name)
}

func createThick(c *lvmCommand, g *lvmGroup, v *lvmVolume) *command.Result {
	size, bad := c.bytes("-L")
	if bad != nil {
		return bad
	}
	if c.noDriver() && c.has("--type") {
		return failed("Can't create %s without using device-mapper kernel driver.", c.get("--type"))
	}
	v.extents = (size + g.extent - 1) / g.extent
	disks := g.usable(c.args[1:])
	short := func(needed uint64) *command.Result {
		if free := g.freeExtents(); free < needed {
			return failed("Volume group %q has insufficient free space (%d extents): %d required.", g.name, free, needed)
		}
		return failed("Insufficient suitable allocatable extents for logical volume %s: %d more required", v.name, needed)
	}
	number := func(option string, otherwise int) int {
		if n, err := strconv.Atoi(c.get(option)); err == nil {
			return n
		}
		return otherwise
	}
	switch {
	case c.has("-i") && number("-i", 1) > 1:
		stripes := number("-i", 1)
		if stripes > len(disks) {
			return failed("Number of stripes (%d) must not exceed number of physical volumes (%d)", stripes, len(disks))
		}
		v.layout = lvm.Striped
		v.extents = (v.extents + uint64(stripes) - 1) / uint64(stripes) * uint64(stripes)
		areas := parallel(disks, stripes, v.extents/uint64(stripes))
		if areas == nil {
			return short(v.extents)
		}
		v.segments = []lvmSegment{{areas}}
	case c.get("--type") == "raid1":
		v.layout = lvm.RAID1
		copies := number("-m", 1) + 1
		areas := parallel(disks, copies, v.extents+1)
		if areas == nil {
			return short((v.extents + 1) * uint64(copies))
		}
		for i, area := range areas { // the last extent of each is its metadata
			last := &area[len(area)-1]
			last.count--
			v.meta = append(v.meta, lvmRange{last.pv, last.start + last.count, 1})
			if last.count == 0 {
				areas[i] = area[:len(area)-1]
			}
		}
		v.segments = []lvmSegment{{areas}}
	case c.get("--type") == "thin-pool":
		v.layout, v.zero, v.metaExtents = lvm.ThinPool, c.get("-Z") == "y", max(1, (v.extents*g.extent/1000+g.extent-1)/g.extent)
		spare := uint64(0)
		if g.spare == nil {
			spare = v.metaExtents
		}
		if g.freeExtents() < v.extents+v.metaExtents+spare {
			return short(v.extents + v.metaExtents + spare)
		}
		v.meta = linear(disks, v.metaExtents)
		if spare > 0 {
			g.spare = linear(disks, spare)
		}
		v.segments = []lvmSegment{{[][]lvmRange{linear(disks, v.extents)}}}
	default:
		area := linear(disks, v.extents)
		if area == nil {
			return short(v.extents)
		}
		v.segments = []lvmSegment{{[][]lvmRange{area}}}
	}
	return nil
}

func createThin(c *lvmCommand, g *lvmGroup, v *lvmVolume) *command.Result {
	size, bad := c.bytes("-V")
	if bad != nil {
		return bad
	}
	pool := g.lvs[c.get("--thinpool")]
	switch {
	case pool == nil:
		return failed("Pool %s not found in Volume group %s.", c.get("--thinpool"), g.name)
	case pool.layout != lvm.ThinPool:
		return failed("Logical volume %s is not a thin pool.", pool.id())
	}
	v.layout, v.pool, v.zero, v.extents, v.virtual = lvm.Thin, pool.name, pool.zero, (size+g.extent-1)/g.extent, map[uint64]*lvmCell{}
	pool.active = true
	return nil
}

func createSnapshot(c *lvmCommand, g *lvmGroup, v *lvmVolume, origin string) *command.Result {
	o := g.lvs[origin]
	if o == nil {
		return failed("Snapshot origin LV %s not found in Volume group %s.", origin, g.name)
	}
	if c.has("-W") {
		return usage("Option --wipesignatures is unsupported with snapshots.")
	}
	v.origin, v.virtual = origin, map[uint64]*lvmCell{}
	o.cells(func(index uint64, cell *lvmCell) {
		copied := *cell
		v.virtual[index] = &copied
	})
	v.extents = o.extents
	if !c.has("-L") {
		if o.layout != lvm.Thin {
			return failed("Please specify either size or extents with snapshots.")
		}
		v.layout, v.pool, v.zero, v.skip = lvm.Thin, o.pool, o.zero, true
		return nil
	}
	size, bad := c.bytes("-L")
	if bad != nil {
		return bad
	}
	// A snapshot never needs more than its origin, with 16 bytes for each chunk of 4 KiB and two more chunks.
	most := ((o.extents*g.extent/4096)*257/256*4096 + 2*4096 + g.extent - 1) / g.extent
	v.layout = lvm.ThickSnapshot
	store := min((size+g.extent-1)/g.extent, most)
	area := linear(g.usable(nil), store)
	if area == nil {
		return failed("Volume group %q has insufficient free space (%d extents): %d required.", g.name, g.freeExtents(), store)
	}
	v.segments = []lvmSegment{{[][]lvmRange{area}}}
	return nil
}
