package lvm

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// vgFields are what is asked of vgs. With the fields of physical volumes among them there is one row for each of those,
// so that one report, taken at one moment, has all.
const vgFields = "vg_uuid,vg_name,vg_attr,vg_size,vg_free,vg_extent_size,vg_extent_count,vg_free_count,vg_missing_pv_count,vg_tags," +
	"pv_uuid,pv_name,pv_attr,pv_size,pv_free,pv_pe_count,pv_pe_alloc_count,pv_tags"

// duplicateWarning is how lvm2 tells, in a report that succeeds, that it has seen a physical volume twice.
var duplicateWarning = regexp.MustCompile(`Not using device \S+ for PV ([A-Za-z0-9-]{32,38})`)

// parseVGs reads the rows of vgs, sorted by name. stderr is where duplicate physical volumes are told of.
func parseVGs(rows []row, stderr string) ([]VolumeGroup, error) {
	duplicates := map[string]bool{}
	for _, match := range duplicateWarning.FindAllStringSubmatch(stderr, -1) {
		duplicates[strings.ReplaceAll(match[1], "-", "")] = true
	}
	vgs := make([]VolumeGroup, 0, len(rows))
	index := map[string]int{}
	for i, r := range rows {
		vg, err := parseVG(r)
		if err != nil {
			return nil, fmt.Errorf("row %d (vg_name %q): %w", i, r["vg_name"], err)
		}
		pv, err := parsePV(r)
		if err != nil {
			return nil, fmt.Errorf("row %d (vg_name %q, pv_name %q): %w", i, r["vg_name"], r["pv_name"], err)
		}
		pv.Duplicate = duplicates[strings.ReplaceAll(pv.UUID, "-", "")]
		at, seen := index[vg.UUID]
		if !seen {
			at = len(vgs)
			index[vg.UUID] = at
			vgs = append(vgs, vg)
		}
		if !slices.ContainsFunc(vgs[at].PVs, func(p PhysicalVolume) bool { return p.UUID == pv.UUID }) {
			vgs[at].PVs = append(vgs[at].PVs, pv)
		}
	}
	slices.SortFunc(vgs, func(a, b VolumeGroup) int { return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.UUID, b.UUID)) })
	for i := range vgs {
		slices.SortFunc(vgs[i].PVs, func(a, b PhysicalVolume) int {
			return cmp.Or(cmp.Compare(a.Device, b.Device), cmp.Compare(a.UUID, b.UUID))
		})
	}
	return vgs, nil
}

func parseVG(r row) (VolumeGroup, error) {
	var vg VolumeGroup
	var err error
	if vg.UUID, err = r.must("vg_uuid"); err != nil {
		return VolumeGroup{}, err
	}
	if vg.Name, err = r.must("vg_name"); err != nil {
		return VolumeGroup{}, err
	}
	for _, f := range []struct {
		name string
		to   *uint64
	}{
		{"vg_size", &vg.Size}, {"vg_free", &vg.Free}, {"vg_extent_size", &vg.ExtentSize}, {"vg_extent_count", &vg.Extents}, {"vg_free_count", &vg.FreeExtents},
	} {
		if *f.to, err = r.mustSize(f.name); err != nil {
			return VolumeGroup{}, err
		}
	}
	// Below a sector there is no extent, and above what a header can say there is none either; later arithmetic relies
	// on it.
	if vg.ExtentSize < sectorSize || vg.ExtentSize > 1<<42 {
		return VolumeGroup{}, fmt.Errorf("field vg_extent_size: %d cannot be", vg.ExtentSize)
	}
	attr, err := r.must("vg_attr")
	if err != nil {
		return VolumeGroup{}, err
	}
	if len(attr) < 6 {
		return VolumeGroup{}, fmt.Errorf("vg_attr %q has fewer than 6 letters", attr)
	}
	missing, err := r.size("vg_missing_pv_count")
	if err != nil {
		return VolumeGroup{}, err
	}
	vg.MissingPVs = int(min(missing, 1<<30))
	vg.Writable, vg.Exported, vg.Partial, vg.Shared = attr[0] == 'w', attr[2] == 'x', attr[3] == 'p' || missing > 0, attr[5] == 's' || attr[5] == 'c'
	vg.Tags = splitTags(string(r["vg_tags"]))
	return vg, nil
}

func parsePV(r row) (PhysicalVolume, error) {
	var pv PhysicalVolume
	var err error
	if pv.UUID, err = r.must("pv_uuid"); err != nil {
		return PhysicalVolume{}, err
	}
	attr, err := r.must("pv_attr")
	if err != nil {
		return PhysicalVolume{}, err
	}
	if len(attr) < 3 {
		return PhysicalVolume{}, fmt.Errorf("pv_attr %q has fewer than 3 letters", attr)
	}
	pv.Device = string(r["pv_name"])
	// The word in brackets is what is printed where there is no device.
	pv.Missing = attr[2] == 'm' || !strings.HasPrefix(pv.Device, "/")
	if !strings.HasPrefix(pv.Device, "/") {
		pv.Device = ""
	}
	pv.Allocatable, pv.Duplicate = attr[0] == 'a', attr[0] == 'd'
	var allocated uint64
	for _, f := range []struct {
		name string
		to   *uint64
	}{{"pv_size", &pv.Size}, {"pv_free", &pv.Free}, {"pv_pe_count", &pv.Extents}, {"pv_pe_alloc_count", &allocated}} {
		if *f.to, err = r.size(f.name); err != nil {
			return PhysicalVolume{}, err
		}
	}
	if allocated > pv.Extents {
		return PhysicalVolume{}, fmt.Errorf("%d of %d extents allocated", allocated, pv.Extents)
	}
	pv.FreeExtents = pv.Extents - allocated
	pv.Tags = splitTags(string(r["pv_tags"]))
	return pv, nil
}
