package lvm

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// lvFields are what is asked of lvs. All are fields of the volume, none of its segments: those would give one row per
// segment.
const lvFields = "lv_uuid,lv_name,vg_name,lv_size,lv_attr,lv_tags,lv_layout,lv_role,origin,pool_lv,lv_kernel_major,lv_kernel_minor," +
	"data_percent,metadata_percent,lv_metadata_size,lv_health_status,seg_count,vg_extent_size"

// parseLVs reads the rows of lvs: one volume per UUID, sorted by name, without internal ones.
func parseLVs(rows []row) ([]LogicalVolume, error) {
	lvs := make([]LogicalVolume, 0, len(rows))
	index := make(map[string]int, len(rows))
	for i, r := range rows {
		if strings.HasPrefix(string(r["lv_name"]), "[") {
			continue
		}
		lv, err := parseLV(r)
		if err != nil {
			return nil, fmt.Errorf("row %d (lv_name %q): %w", i, r["lv_name"], err)
		}
		if seen, ok := index[lv.UUID]; ok {
			if !reflect.DeepEqual(lvs[seen], lv) {
				return nil, fmt.Errorf("two different rows with the UUID %s", lv.UUID)
			}
			continue
		}
		index[lv.UUID] = len(lvs)
		lvs = append(lvs, lv)
	}
	slices.SortFunc(lvs, func(a, b LogicalVolume) int { return cmp.Or(cmp.Compare(a.VG, b.VG), cmp.Compare(a.LV, b.LV)) })
	for i := 1; i < len(lvs); i++ {
		if lvs[i].Name == lvs[i-1].Name {
			return nil, fmt.Errorf("two different rows with the name %s", lvs[i].Name)
		}
	}
	return lvs, nil
}

// parseLV is strict about what identifies a volume and protects its data, and lenient about the rest: one odd volume
// must not hide all others.
func parseLV(r row) (LogicalVolume, error) {
	var lv LogicalVolume
	var err error
	for _, f := range []struct {
		name string
		to   *string
	}{{"lv_uuid", &lv.UUID}, {"lv_name", &lv.LV}, {"vg_name", &lv.VG}} {
		if *f.to, err = r.must(f.name); err != nil {
			return LogicalVolume{}, err
		}
	}
	if !validUUID(lv.UUID) { // it becomes part of selections
		return LogicalVolume{}, fmt.Errorf("field lv_uuid: %q is not a UUID of lvm2", lv.UUID)
	}
	if lv.Size, err = r.mustSize("lv_size"); err != nil {
		return LogicalVolume{}, err
	}
	attr, err := r.must("lv_attr")
	if err != nil {
		return LogicalVolume{}, err
	}
	if lv.Attr, err = ParseAttr(attr); err != nil {
		return LogicalVolume{}, err
	}
	if _, ok := r["lv_tags"]; !ok { // empty is fine; not there at all would hide a protection
		return LogicalVolume{}, fmt.Errorf("field lv_tags is missing")
	}
	if lv.ExtentSize, err = r.size("vg_extent_size"); err != nil {
		return LogicalVolume{}, err
	}
	lv.Tags = splitTags(string(r["lv_tags"]))
	lv.Origin, lv.Pool = unbracket(r["origin"]), unbracket(r["pool_lv"])
	lv.Layout = layoutOf(lv.Attr, string(r["lv_layout"]))
	lv.Active, lv.Open = lv.Attr.Active(), lv.Attr.Open()
	major, hasMajor := deviceNumber(r["lv_kernel_major"])
	minor, hasMinor := deviceNumber(r["lv_kernel_minor"])
	if hasMajor && hasMinor {
		lv.Major, lv.Minor = major, minor
	}
	lv.ReadOnly = lv.Attr.Permission != PermissionWrite
	lv.DataPercent, lv.MetadataPercent = parsePercent(r["data_percent"]), parsePercent(r["metadata_percent"])
	lv.MetadataSize, _ = r.size("lv_metadata_size")
	segments, _ := r.size("seg_count")
	lv.Segments = int(min(segments, 1<<30))
	lv.Health = healthOf(lv.Attr, string(r["lv_health_status"]))
	lv.Stage, lv.Removed = stageOf(lv.LV, lv.Tags)
	return lv, nil
}

// unbracket is the name of a volume that is shown in brackets because it is hidden.
func unbracket(name field) string {
	return strings.TrimSuffix(strings.TrimPrefix(string(name), "["), "]")
}

// layoutOf tells the layout from lv_layout, which lists words, where the type does not say it all.
func layoutOf(attr Attr, words string) Layout {
	switch attr.Type {
	case TypeThin:
		return Thin
	case TypeThinPool:
		return ThinPool
	case TypeSnapshot, TypeMergingSnapshot:
		return ThickSnapshot
	case TypePlain, TypeRaid, TypeRaidNoSync, TypeMirror, TypeMirrorNoSync, TypeOrigin, TypeMergingOrigin:
	default:
		return OtherLayout
	}
	list := strings.Split(words, ",")
	for _, l := range []struct {
		word   string
		layout Layout
	}{{"raid1", RAID1}, {"mirror", Mirror}, {"striped", Striped}, {"linear", Linear}, {"thin", Thin}} {
		if slices.Contains(list, l.word) {
			return l.layout
		}
	}
	return OtherLayout
}

// healthOf prefers the words, which old versions lack, to the letter.
func healthOf(attr Attr, words string) Health {
	if words != "" {
		return Health(words)
	}
	switch attr.Health {
	case '-', 0:
		return HealthOK
	case 'p':
		return HealthPartial
	case 'r':
		return HealthRefreshNeeded
	case 'm':
		return HealthMismatches
	case 'w':
		return HealthWriteMostly
	case 'F':
		return HealthFailed
	case 'D':
		return HealthOutOfData
	case 'M':
		return HealthMetadataReadOnly
	}
	return HealthUnknown
}

// stageOf reads the state that this package keeps in names and tags.
func stageOf(name string, tags []string) (stage Stage, removed string) {
	var creating, removing bool
	for _, tag := range tags {
		if strings.HasPrefix(tag, creatingMark) {
			creating = true
		}
		if strings.HasPrefix(tag, removingMark) {
			removing = true
		}
		if before, ok := strings.CutPrefix(tag, removedMark); ok {
			removed = before
		}
	}
	switch {
	// The renaming is the point of no return: a volume that was only tagged still belongs to its user.
	case removing && strings.HasPrefix(name, removingName):
		return StageRemoving, removed
	case creating:
		return StageCreating, ""
	}
	return StageReady, ""
}
