package fake

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/stateofworld/stateofworld/executor/command"
	"github.com/stateofworld/stateofworld/lvm"
)

func (l *LVM) lockedLVS(c *lvmCommand) *command.Result {
	if len(c.args) != 1 {
		return usage("fake: lvs is expected to be about one group, not %q", c.args)
	}
	g, bad := l.lockedGroup(c.args[0])
	if bad != nil {
		bad.Stdout = report("lv", nil)
		return bad
	}
	selected, err := selection(c.get("-S"))
	if err != nil {
		return usage("%v", err)
	}
	var rows []map[string]string
	for _, v := range g.which(selected) {
		all := v.fields(c.noDriver())
		if slices.Contains(strings.Split(c.get("-o"), ","), "stripes") { // a field of segments
			for range v.segments {
				all["stripes"] = strconv.Itoa(v.stripes())
				rows = append(rows, pick(all, c.get("-o")))
			}
			continue
		}
		rows = append(rows, pick(all, c.get("-o")))
	}
	return &command.Result{Stdout: report("lv", rows), Stderr: g.warnings()}
}

func (l *LVM) lockedVGS(c *lvmCommand) *command.Result {
	names := c.args
	if len(names) == 0 {
		names = slices.Sorted(maps.Keys(l.groups))
	}
	var rows []map[string]string
	var warnings []byte
	for _, name := range names {
		g := l.groups[name]
		if g == nil || g.foreign {
			if len(c.args) == 0 {
				continue
			}
			_, bad := l.lockedGroup(name)
			bad.Stdout = report("vg", nil)
			return bad
		}
		warnings = append(warnings, g.warnings()...)
		for _, d := range g.pvs {
			rows = append(rows, pick(g.fields(d), c.get("-o")))
		}
	}
	return &command.Result{Stdout: report("vg", rows), Stderr: warnings}
}

func report(section string, rows []map[string]string) []byte {
	if rows == nil {
		rows = []map[string]string{}
	}
	out, err := json.MarshalIndent(map[string]any{"report": []any{map[string]any{section: rows}}}, "", "    ")
	if err != nil {
		panic(err) // maps of strings
	}
	return append(out, '\n')
}

func pick(all map[string]string, fields string) map[string]string {
	row := map[string]string{}
	for name := range strings.SplitSeq(fields, ",") {
		row[name] = all[name]
	}
	return row
}

// selection understands the selections that are used: a list of comparisons of which one must hold.
func selection(text string) (func(*lvmVolume) bool, error) {
	var terms []func(*lvmVolume) bool
	for term := range strings.SplitSeq(text, " || ") {
		field, value, _ := strings.Cut(term, "=")
		plain := strings.Trim(value, `{"}`)
		switch field {
		case "":
			terms = append(terms, func(*lvmVolume) bool { return true })
		case "lv_name":
			terms = append(terms, func(v *lvmVolume) bool { return v.name == plain })
		case "lv_uuid":
			terms = append(terms, func(v *lvmVolume) bool { return v.uuid == plain })
		case "origin":
			terms = append(terms, func(v *lvmVolume) bool { return v.origin == plain })
		case "pool_lv":
			terms = append(terms, func(v *lvmVolume) bool { return v.pool == plain })
		case "lv_tags":
			terms = append(terms, func(v *lvmVolume) bool { return slices.Contains(v.tags, plain) })
		default:
			return nil, fmt.Errorf("fake: selection %q", term)
		}
	}
	return func(v *lvmVolume) bool {
		return slices.ContainsFunc(terms, func(holds func(*lvmVolume) bool) bool { return holds(v) })
	}, nil
}

func (g *lvmGroup) warnings() []byte {
	var out []byte
	for _, d := range g.pvs {
		if d.missing {
			out = fmt.Appendf(out, "  WARNING: Couldn't find device with uuid %s.\n  WARNING: VG %s is missing PV %s (last written to %s).\n", d.uuid, g.name, d.uuid, d.device)
		}
		if d.duplicate {
			out = fmt.Appendf(out, "  WARNING: Not using device %s-copy for PV %s.\n", d.device, d.uuid)
		}
	}
	return out
}

func (g *lvmGroup) fields(d *lvmDisk) map[string]string {
	number := func(n uint64) string { return strconv.FormatUint(n, 10) }
	attr := []byte("wz--n-")
	missing, extents := 0, uint64(0)
	for _, pv := range g.pvs {
		extents += pv.extents
		if pv.missing {
			missing++
		}
	}
	if g.exported {
		attr[2] = 'x'
	}
	if missing > 0 {
		attr[3] = 'p'
	}
	pvAttr, device := []byte("a--"), d.device
	if g.exported {
		pvAttr[1] = 'x'
	}
	if d.missing {
		pvAttr[2], device = 'm', "[unknown]"
	}
	return map[string]string{
		"vg_uuid": g.uuid, "vg_name": g.name, "vg_attr": string(attr), "vg_size": number(extents * g.extent), "vg_free": number(g.freeExtents() * g.extent),
		"vg_extent_size": number(g.extent), "vg_extent_count": number(extents), "vg_free_count": number(g.freeExtents()), "vg_missing_pv_count": strconv.Itoa(missing),
		"pv_uuid": d.uuid, "pv_name": device, "pv_attr": string(pvAttr), "pv_size": number(d.extents * g.extent), "pv_free": number(d.freeExtents() * g.extent),
		"pv_pe_count": number(d.extents), "pv_pe_alloc_count": number(d.extents - d.freeExtents()),
	}
}

// fields are the columns of lvs for a volume.
func (v *lvmVolume) fields(noDriver bool) map[string]string {
	size := v.extents
	if v.layout == lvm.ThickSnapshot {
		size = 0
		for _, r := range v.ranges() {
			size += r.count
		}
	}
	out := map[string]string{
		"lv_uuid": v.uuid, "lv_name": v.name, "vg_name": v.group.name, "lv_size": strconv.FormatUint(size*v.group.extent, 10), "lv_attr": v.attr(noDriver),
		"lv_tags": strings.Join(v.tags, ","), "lv_layout": "linear", "lv_role": "public", "origin": v.origin, "pool_lv": v.pool,
		"lv_kernel_major": "-1", "lv_kernel_minor": "-1", "seg_count": strconv.Itoa(max(1, len(v.segments))), "vg_extent_size": strconv.FormatUint(v.group.extent, 10),
	}
	if v.active && !noDriver {
		out["lv_kernel_major"], out["lv_kernel_minor"] = "253", strconv.FormatUint(uint64(v.minor), 10)
	}
	switch v.layout {
	case lvm.Striped:
		out["lv_layout"] = "striped"
	case lvm.RAID1:
		out["lv_layout"] = "raid,raid1"
	case lvm.ThinPool:
		out["lv_layout"], out["lv_role"], out["lv_metadata_size"] = "thin,pool", "private", strconv.FormatUint(v.metaExtents*v.group.extent, 10)
		if v.active {
			out["data_percent"], out["metadata_percent"] = fmt.Sprintf("%.2f", v.data), fmt.Sprintf("%.2f", v.metadata)
		}
	case lvm.Thin:
		out["lv_layout"] = "thin,sparse"
		if v.active {
			out["data_percent"] = "0.00"
		}
	case lvm.ThickSnapshot:
		if v.active {
			out["data_percent"] = "0.00"
		}
	}
	if v.partial() {
		out["lv_health_status"] = "partial"
	}
	return out
}

// attr are the letters of lv_attr.
func (v *lvmVolume) attr(noDriver bool) string {
	a := []byte("-wi-------")
	switch v.layout {
	case lvm.RAID1:
		a[0], a[6] = 'r', 'r'
	case lvm.ThinPool:
		a[0], a[6] = 't', 't'
	case lvm.Thin:
		a[0], a[6] = 'V', 't'
	case lvm.ThickSnapshot:
		a[0], a[6] = 's', 's'
	}
	if len(v.group.snapshotsOf(v)) > 0 {
		a[0], a[6] = 'o', 's'
	}
	if v.readOnly {
		a[1] = 'r'
	}
	if v.active {
		a[4] = 'a'
	}
	if v.opens+v.mounts > 0 || v.active && v.layout == lvm.ThinPool {
		a[5] = 'o'
	}
	if noDriver {
		a[4], a[5] = 'X', 'X'
	}
	if v.zero {
		a[7] = 'z'
	}
	if v.partial() {
		a[8] = 'p'
	}
	if v.skip {
		a[9] = 'k'
	}
	return string(a)
}
