package fake

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/stateofworld/stateofworld/executor/command"
	"github.com/stateofworld/stateofworld/lvm"
)

// lvmCommand is a parsed command line.
type lvmCommand struct {
	program string
	options map[string][]string
	args    []string
}

// lvmOptions are the options that the programs know, with whether they take a value.
var lvmOptions = map[string]map[string]bool{
	"lvs":        {"-o": true, "-S": true, "--reportformat": true, "--units": true, "--nosuffix": false, "-qq": false},
	"vgs":        {"-o": true, "-S": true, "--reportformat": true, "--units": true, "--nosuffix": false, "-qq": false},
	"lvcreate":   {"-y": false, "-n": true, "-L": true, "-V": true, "-i": true, "-I": true, "-m": true, "-s": false, "-a": true, "-Z": true, "-W": true, "--type": true, "--thinpool": true, "--addtag": true},
	"lvremove":   {"-y": false, "-S": true},
	"lvchange":   {"-y": false, "-a": true, "-K": false, "-p": true, "--addtag": true, "--deltag": true},
	"lvextend":   {"-y": false, "-L": true},
	"lvrename":   {},
	"lvconvert":  {"-y": false, "--splitsnapshot": false},
	"wipefs":     {"-a": false},
	"blkdiscard": {"-z": false, "-p": true},
}

// parseLVMCommand understands the option forms that are used: "--long value", "-x value" and "-xvalue".
func parseLVMCommand(argv []string) (*lvmCommand, error) {
	c := &lvmCommand{program: argv[0], options: map[string][]string{}}
	known, ok := lvmOptions[c.program]
	if !ok {
		return nil, fmt.Errorf("fake: no program %s", c.program)
	}
	for rest := argv[1:]; len(rest) > 0; {
		arg := rest[0]
		rest = rest[1:]
		if arg == "--" {
			c.args = append(c.args, rest...)
			break
		}
		if !strings.HasPrefix(arg, "-") {
			c.args = append(c.args, arg)
			continue
		}
		value, option := "", arg
		takes, ok := known[arg]
		switch {
		case arg == "--config" || arg == "--driverloaded" || arg == "--devices" || arg == "--devicesfile":
			takes = true
		case !ok && len(arg) > 2 && arg[1] != '-' && known[arg[:2]]:
			option, value, takes = arg[:2], arg[2:], false
		case !ok:
			return nil, fmt.Errorf("%s: unrecognized option '%s'", c.program, arg)
		}
		if takes {
			if len(rest) == 0 {
				return nil, fmt.Errorf("%s: option requires an argument -- '%s'", c.program, arg)
			}
			value, rest = rest[0], rest[1:]
		}
		c.options[option] = append(c.options[option], value)
	}
	return c, nil
}

// String is the command without what all reports have in common.
func (c *lvmCommand) String() string {
	parts := []string{c.program}
	for _, option := range slices.Sorted(maps.Keys(c.options)) {
		switch option {
		case "-o", "--reportformat", "--units", "--nosuffix", "-qq", "--config", "--driverloaded", "--devices", "--devicesfile":
			continue
		}
		for _, value := range c.options[option] {
			// The number of an attempt is different every time.
			if i := strings.LastIndex(value, "creating."); i >= 0 {
				value = value[:i] + "creating"
			}
			parts = append(parts, strings.TrimSpace(option+" "+value))
		}
	}
	return strings.Join(append(parts, c.args...), " ")
}

func (c *lvmCommand) has(option string) bool { return len(c.options[option]) > 0 }

func (c *lvmCommand) get(option string) string {
	if values := c.options[option]; len(values) > 0 {
		return values[len(values)-1]
	}
	return ""
}

// noDriver is whether the command must do without device-mapper.
func (c *lvmCommand) noDriver() bool { return c.get("--driverloaded") == "n" }

// bytes is the value of a size option.
func (c *lvmCommand) bytes(option string) (uint64, *command.Result) {
	n, err := strconv.ParseUint(strings.TrimSuffix(c.get(option), "b"), 10, 64)
	if err != nil || !strings.HasSuffix(c.get(option), "b") {
		return 0, usage("Invalid argument for %s: %s", option, c.get(option))
	}
	if n == 0 {
		return 0, usage("%s may not be zero.", option)
	}
	if n%512 != 0 {
		return 0, usage("Size is not a multiple of 512. Try using %d or %d.", n/512*512, n/512*512+512)
	}
	return n, nil
}

func failed(format string, args ...any) *command.Result {
	return &command.Result{ExitCode: 5, Stderr: fmt.Appendf(nil, "  "+format+"\n", args...)}
}

func usage(format string, args ...any) *command.Result {
	return &command.Result{ExitCode: 3, Stderr: fmt.Appendf(nil, "  "+format+"\n", args...)}
}

func done(format string, args ...any) *command.Result {
	return &command.Result{Stdout: fmt.Appendf(nil, "  "+format+"\n", args...)}
}

// lockedExecute does what a command does. cut leaves it half done.
func (l *LVM) lockedExecute(c *lvmCommand, cut bool) command.Result {
	var r *command.Result
	switch c.program {
	case "lvs":
		r = l.lockedLVS(c)
	case "vgs":
		r = l.lockedVGS(c)
	case "lvcreate":
		r = l.lockedCreate(c, cut)
	case "lvremove":
		r = l.lockedRemove(c)
	case "lvchange":
		r = l.lockedOn(c, func(v *lvmVolume) *command.Result { return l.lockedChange(c, v) })
	case "lvextend":
		r = l.lockedOn(c, func(v *lvmVolume) *command.Result { return extend(c, v) })
	case "lvrename":
		r = l.lockedRename(c)
	case "lvconvert":
		r = l.lockedOn(c, splitSnapshot)
	case "wipefs", "blkdiscard":
		r = l.lockedWipe(c, cut)
	}
	return *r
}

// lockedGroup finds a group that may be looked into, or says why not.
func (l *LVM) lockedGroup(name string) (*lvmGroup, *command.Result) {
	g := l.groups[name]
	switch {
	case g == nil:
		return nil, failed("Volume group %q not found\n  Cannot process volume group %s", name, name)
	case g.foreign:
		return nil, failed("Cannot access VG %s with system ID other with unknown local system ID.\n  Cannot process volume group %s", name, name)
	case g.exported:
		return nil, failed("Volume group %s is exported\n  Cannot process volume group %s", name, name)
	}
	return g, nil
}

// changeable is why a group may not be changed.
func (g *lvmGroup) changeable() *command.Result {
	if g.partial() {
		return failed("Cannot change VG %s while PVs are missing.\n  See vgreduce --removemissing and vgextend --restoremissing.\n  Cannot process volume group %s", g.name, g.name)
	}
	if slices.ContainsFunc(g.pvs, func(d *lvmDisk) bool { return d.duplicate }) {
		return failed("Cannot update volume group %s with duplicate PV devices.", g.name)
	}
	return nil
}

// lockedOn does something to the one volume that is named.
func (l *LVM) lockedOn(c *lvmCommand, f func(v *lvmVolume) *command.Result) *command.Result {
	if len(c.args) != 1 {
		return usage("fake: one volume expected, not %q", c.args)
	}
	vg, lv, _ := strings.Cut(c.args[0], "/")
	g, bad := l.lockedGroup(vg)
	if bad != nil {
		return bad
	}
	v := g.lvs[lv]
	if v == nil {
		return failed("Failed to find logical volume %q", c.args[0])
	}
	if bad := g.changeable(); bad != nil {
		return bad
	}
	return f(v)
}

// lockedRemove removes what is named. Like lvm2's it takes a group alone for all that is in it.
func (l *LVM) lockedRemove(c *lvmCommand) *command.Result {
	selected, err := selection(c.get("-S"))
	if err != nil {
		return usage("%v", err)
	}
	for _, arg := range c.args {
		vg, lv, one := strings.Cut(arg, "/")
		g, bad := l.lockedGroup(vg)
		if bad != nil {
			return bad
		}
		if slices.ContainsFunc(g.pvs, func(d *lvmDisk) bool { return d.duplicate }) {
			return failed("Cannot update volume group %s with duplicate PV devices.", g.name)
		}
		names := []string{lv}
		if !one {
			names = slices.Sorted(maps.Keys(g.lvs))
		}
		for _, name := range names {
			v := g.lvs[name]
			if v == nil {
				return failed("Failed to find logical volume %q", arg)
			}
			if !selected(v) { // and success all the same
				continue
			}
			// Whatever depends on it goes with it.
			victims := append(append(g.snapshotsOf(v), g.members(v)...), v)
			for _, victim := range victims {
				if bad := victim.inUse(); bad != nil {
					return bad
				}
			}
			for _, victim := range victims {
				g.drop(victim)
			}
		}
	}
	return done("Logical volume successfully removed")
}

func (v *lvmVolume) inUse() *command.Result {
	switch {
	case v.mounts > 0:
		return failed("Logical volume %s contains a filesystem in use.", v.id())
	case v.opens > 0:
		return failed("Logical volume %s in use.", v.id())
	}
	return nil
}

func (l *LVM) lockedChange(c *lvmCommand, v *lvmVolume) *command.Result {
	for _, tag := range c.options["--addtag"] {
		if !slices.Contains(v.tags, tag) {
			v.tags = append(v.tags, tag)
		}
	}
	for _, tag := range c.options["--deltag"] {
		v.tags = slices.DeleteFunc(v.tags, func(t string) bool { return t == tag })
	}
	slices.Sort(v.tags)
	if p := c.get("-p"); p != "" {
		if v.readOnly == (p == "r") {
			return failed("Logical volume %q is already %s.", v.id(), map[bool]string{true: "read only", false: "writable"}[v.readOnly])
		}
		v.readOnly = p == "r"
	}
	if on := c.get("-a"); on != "" {
		// An origin and its thick snapshots are one.
		origin := v
		if v.layout == lvm.ThickSnapshot {
			if origin = v.group.lvs[v.origin]; !c.has("-y") { // the question whether the origin is meant too is answered with no
				return failed("Logical volume %s not changed.", v.id())
			}
		}
		all := append(v.group.snapshotsOf(origin), origin)
		for _, member := range all {
			if bad := member.inUse(); on == "n" && bad != nil {
				return bad
			}
		}
		for _, member := range all {
			switch {
			case on == "n":
				member.active = false
			case member.skip && !c.has("-K"): // and success all the same
			case !member.active:
				l.lockedActivate(member)
			}
		}
	}
	return done("Logical volume %s changed.", v.id())
}

func (l *LVM) lockedActivate(v *lvmVolume) {
	l.serial++
	v.active, v.minor = true, uint32(l.serial)
}

func extend(c *lvmCommand, v *lvmVolume) *command.Result {
	size, bad := c.bytes("-L")
	if bad != nil {
		return bad
	}
	g := v.group
	want := (size + g.extent - 1) / g.extent
	stripes := uint64(1)
	if v.layout == lvm.Striped {
		stripes = uint64(v.stripes())
		want = (want + stripes - 1) / stripes * stripes
	}
	switch {
	case want == v.extents:
		return failed("New size (%d extents) matches existing size (%d extents).", want, v.extents)
	case want < v.extents:
		return failed("New size given (%d extents) not larger than existing size (%d extents)", want, v.extents)
	}
	more := want - v.extents
	short := failed("Insufficient free space: %d extents needed, but only %d available", more, g.freeExtents())
	switch v.layout {
	case lvm.Thin:
	case lvm.RAID1:
		areas := parallel(g.usable(nil), v.stripes(), more)
		if areas == nil {
			return short
		}
		for i := range areas {
			v.segments[0].areas[i] = append(v.segments[0].areas[i], areas[i]...)
		}
	case lvm.Striped:
		areas := parallel(g.usable(nil), int(stripes), more/stripes)
		if areas == nil {
			return short
		}
		v.segments = append(v.segments, lvmSegment{areas})
	default:
		area := linear(g.usable(nil), more)
		if area == nil {
			return short
		}
		v.segments = append(v.segments, lvmSegment{[][]lvmRange{area}})
	}
	v.extents = want
	return done("Logical volume %s successfully resized.", v.id())
}

func (l *LVM) lockedRename(c *lvmCommand) *command.Result {
	if len(c.args) != 3 {
		return usage("fake: group, old and new name expected, not %q", c.args)
	}
	g, bad := l.lockedGroup(c.args[0])
	if bad != nil {
		return bad
	}
	from, to := c.args[1], c.args[2]
	v := g.lvs[from]
	switch {
	case g.lvs[to] != nil:
		return failed("Logical volume %q already exists in volume group %q", to, g.name)
	case v == nil:
		return failed("Existing logical volume %q not found in volume group %q", from, g.name)
	}
	if bad := g.changeable(); bad != nil {
		return bad
	}
	delete(g.lvs, from)
	v.name = to
	g.lvs[to] = v
	for _, other := range g.lvs {
		if other.origin == from {
			other.origin = to
		}
		if other.pool == from {
			other.pool = to
		}
	}
	return done("Renamed %q to %q in volume group %q", from, to, g.name)
}

// splitSnapshot makes a thick snapshot a plain volume with its store of changes on it.
func splitSnapshot(v *lvmVolume) *command.Result {
	if v.layout != lvm.ThickSnapshot {
		return failed("Command on LV %s does not accept LV type %s.", v.id(), v.layout)
	}
	if bad := v.inUse(); bad != nil {
		return bad
	}
	v.layout, v.origin, v.virtual = lvm.Linear, "", nil
	v.extents = 0
	for _, r := range v.ranges() {
		v.extents += r.count
	}
	return done("Logical Volume %s split from its origin.", v.id())
}

// lockedWipe is wipefs and blkdiscard, of util-linux.
func (l *LVM) lockedWipe(c *lvmCommand, cut bool) *command.Result {
	refuse := func(reason string) *command.Result {
		return &command.Result{ExitCode: 1, Stderr: fmt.Appendf(nil, "%s: %q: %s\n", c.program, c.args, reason)}
	}
	if len(c.args) != 1 {
		return refuse("one device expected")
	}
	vg, lv, _ := strings.Cut(strings.TrimPrefix(c.args[0], "/dev/"), "/")
	g := l.groups[vg]
	if g == nil || g.lvs[lv] == nil || !g.lvs[lv].active {
		return refuse("No such file or directory")
	}
	v := g.lvs[lv]
	switch {
	case v.mounts+v.opens > 0:
		return refuse("Device or resource busy")
	case v.readOnly:
		return refuse("Operation not permitted")
	case v.partial():
		return refuse("Input/output error")
	}
	v.cells(func(index uint64, cell *lvmCell) {
		if cut && index >= v.extents/2 {
			return
		}
		cell.signature = ""
		if c.program == "blkdiscard" {
			cell.data = ""
		}
	})
	return &command.Result{}
}
