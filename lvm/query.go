package lvm

import (
	"context"
	"slices"
	"strconv"

	"github.com/stateofworld/stateofworld/executor/command"
)

// The group is always the positional argument and the volume a selection: then a volume that is absent is an empty list
// with exit code 0, and a group that is absent, exported or another host's is exit code 5. Asked otherwise, lvm2 gives
// both the same exit code, or silently leaves the group out.

func selectName(lv string) string   { return `lv_name="` + lv + `"` }
func selectUUID(uuid string) string { return `lv_uuid="` + uuid + `"` }
func selectOrigin(lv string) string { return `origin="` + lv + `"` }
func selectPool(lv string) string   { return `pool_lv="` + lv + `"` }
func selectTag(tag string) string   { return `lv_tags={"` + tag + `"}` }

// Get implements [Backend].
func (c *CLI) Get(ctx context.Context, name Name) (LogicalVolume, error) {
	const op = "get"
	if err := name.Validate(); err != nil {
		return LogicalVolume{}, failure(op, name.String(), ErrInvalid, err)
	}
	argv := c.reportArgv("lvs", lvFields, selectName(name.LV), name.VG)
	rows, _, err := c.report(ctx, op, name.String(), argv, "lv", name.VG)
	if err != nil {
		return LogicalVolume{}, err
	}
	return one(op, name, argv, rows)
}

// List implements [Backend].
func (c *CLI) List(ctx context.Context, vg string) ([]LogicalVolume, error) {
	const op = "list"
	if err := ValidateVGName(vg); err != nil {
		return nil, failure(op, vg, ErrInvalid, err)
	}
	argv := c.reportArgv("lvs", lvFields, "", vg)
	rows, _, err := c.report(ctx, op, vg, argv, "lv", vg)
	if err != nil {
		return nil, err
	}
	return volumes(op, vg, argv, rows)
}

// VolumeGroup implements [Backend].
func (c *CLI) VolumeGroup(ctx context.Context, vg string) (VolumeGroup, error) {
	return c.volumeGroup(ctx, "volume group", vg, vg, c.report)
}

// VolumeGroups implements [Backend].
func (c *CLI) VolumeGroups(ctx context.Context) ([]VolumeGroup, error) {
	const op = "volume groups"
	argv := c.reportArgv("vgs", vgFields, "", "")
	rows, stderr, err := c.report(ctx, op, "", argv, "vg", "")
	if err != nil {
		return nil, err
	}
	return groups(op, "", argv, rows, stderr)
}

// reporter is report, or fresh.
type reporter func(ctx context.Context, op, object string, argv []string, section, vg string) ([]row, string, error)

// volumeGroup describes one group for an operation on object.
func (c *CLI) volumeGroup(ctx context.Context, op, object, vg string, report reporter) (VolumeGroup, error) {
	if err := ValidateVGName(vg); err != nil {
		return VolumeGroup{}, failure(op, object, ErrInvalid, err)
	}
	argv := c.reportArgv("vgs", vgFields, "", vg)
	rows, stderr, err := report(ctx, op, object, argv, "vg", vg)
	if err != nil {
		return VolumeGroup{}, err
	}
	vgs, err := groups(op, object, argv, rows, stderr)
	if err != nil {
		return VolumeGroup{}, err
	}
	// One name and two groups happens, after disks were moved between machines: nothing may be guessed then.
	if len(vgs) != 1 || vgs[0].Name != vg {
		return VolumeGroup{}, &Error{Op: op, Object: object, Kind: ErrBadOutput, Argv: argv, Err: &MismatchError{"number of groups", strconv.Itoa(len(vgs)), "1"}}
	}
	return vgs[0], nil
}

// freshGroup describes one group as it is now, for an operation that needs it whole.
func (c *CLI) freshGroup(ctx context.Context, op string, name Name) (VolumeGroup, error) {
	return c.volumeGroup(ctx, op, name.String(), name.VG, func(ctx context.Context, op, object string, argv []string, section, _ string) ([]row, string, error) {
		return c.fresh(ctx, op, object, argv, section)
	})
}

// look is a fresh list of the volumes of a group that a selection finds.
func (c *CLI) look(ctx context.Context, op string, name Name, selection string) ([]LogicalVolume, error) {
	argv := c.reportArgv("lvs", lvFields, selection, name.VG)
	rows, _, err := c.fresh(ctx, op, name.String(), argv, "lv")
	if err != nil {
		return nil, err
	}
	return volumes(op, name.String(), argv, rows)
}

// lookup is a fresh look at one volume. It is false where the group was seen without it.
func (c *CLI) lookup(ctx context.Context, op string, name Name) (LogicalVolume, bool, error) {
	lvs, err := c.look(ctx, op, name, selectName(name.LV))
	if err != nil {
		return LogicalVolume{}, false, err
	}
	lv, ok := find(lvs, name.LV)
	return lv, ok, nil
}

// mustLookup is lookup of a volume that has to be there.
func (c *CLI) mustLookup(ctx context.Context, op string, name Name) (LogicalVolume, error) {
	lv, ok, err := c.lookup(ctx, op, name)
	if err == nil && !ok {
		err = failure(op, name.String(), ErrNotFound, nil)
	}
	return lv, err
}

func find(lvs []LogicalVolume, lv string) (LogicalVolume, bool) {
	i := slices.IndexFunc(lvs, func(v LogicalVolume) bool { return v.LV == lv })
	if i < 0 {
		return LogicalVolume{}, false
	}
	return lvs[i], true
}

func one(op string, name Name, argv []string, rows []row) (LogicalVolume, error) {
	lvs, err := volumes(op, name.String(), argv, rows)
	if err != nil {
		return LogicalVolume{}, err
	}
	if lv, ok := find(lvs, name.LV); ok {
		return lv, nil
	}
	return LogicalVolume{}, failure(op, name.String(), ErrNotFound, nil)
}

func volumes(op, object string, argv []string, rows []row) ([]LogicalVolume, error) {
	lvs, err := parseLVs(rows)
	if err != nil {
		return nil, badOutput(op, object, argv, command.Result{}, err)
	}
	return lvs, nil
}

func groups(op, object string, argv []string, rows []row, stderr string) ([]VolumeGroup, error) {
	vgs, err := parseVGs(rows, stderr)
	if err != nil {
		return nil, badOutput(op, object, argv, command.Result{Stderr: []byte(stderr)}, err)
	}
	return vgs, nil
}

// images is over how many physical volumes each segment of a volume goes: the stripes of a striped one, the copies of
// RAID1.
func (c *CLI) images(ctx context.Context, op string, name Name) ([]int, error) {
	argv := c.reportArgv("lvs", "lv_name,stripes", selectName(name.LV), name.VG)
	rows, _, err := c.fresh(ctx, op, name.String(), argv, "lv")
	if err != nil {
		return nil, err
	}
	var out []int
	for _, r := range rows {
		n, err := r.mustSize("stripes")
		if err != nil {
			return nil, badOutput(op, name.String(), argv, command.Result{}, err)
		}
		out = append(out, int(min(n, 1<<30)))
	}
	return out, nil
}
