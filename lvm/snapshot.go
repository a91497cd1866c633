package lvm

import (
	"context"
	"fmt"
)

// Snapshot implements [Backend].
func (c *CLI) Snapshot(ctx context.Context, o SnapshotOptions) (lv LogicalVolume, err error) {
	const op = "snapshot"
	name := o.name()
	if err := o.Validate(); err != nil {
		return LogicalVolume{}, failure(op, name.String(), ErrInvalid, err)
	}
	release, err := c.lock(ctx, op, name)
	if err != nil {
		return LogicalVolume{}, err
	}
	defer func() { release(err) }()

	lvs, err := c.look(ctx, op, name, selectName(o.Name)+" || "+selectName(o.Origin))
	if err != nil {
		return LogicalVolume{}, err
	}
	found, exists := find(lvs, o.Name)
	if exists && found.Stage == StageCreating {
		if found, exists, err = c.clearHalfMade(ctx, op, found); err != nil {
			return LogicalVolume{}, err
		}
	}
	if exists {
		return found, compareSnapshot(op, o, found)
	}
	origin, exists := find(lvs, o.Origin)
	if !exists || origin.Stage == StageCreating {
		return LogicalVolume{}, failure(op, name.String(), ErrNotFound, fmt.Errorf("origin %s/%s", o.VG, o.Origin))
	}
	if c.options.NoDeviceMapper {
		return LogicalVolume{}, failure(op, name.String(), ErrUnsupported, fmt.Errorf("snapshots without device-mapper"))
	}
	args := []string{"-s", "-n", o.Name}
	switch {
	case o.Size != 0:
		args = append(args, "-L", sizeArg(o.Size))
	case origin.Layout != Thin:
		return LogicalVolume{}, failure(op, name.String(), ErrInvalid, &InvalidError{"size", "0", fmt.Sprintf("a snapshot of a %s volume needs room for its changes", origin.Layout)})
	default:
		pool, others, err := c.pool(ctx, op, name, origin.Pool)
		if err != nil {
			return LogicalVolume{}, err
		}
		if err := c.roomInPool(op, name, pool, others, 0, 0); err != nil {
			return LogicalVolume{}, err
		}
	}
	lv, err = c.make(ctx, op, name, o.Tags, append(args, "--", Name{o.VG, o.Origin}.String()))
	if err != nil {
		return LogicalVolume{}, err
	}
	return lv, compareSnapshot(op, o, lv)
}

// compareSnapshot is whether a volume is the snapshot asked for.
func compareSnapshot(op string, o SnapshotOptions, have LogicalVolume) error {
	var mismatch *MismatchError
	switch thick := have.Layout == ThickSnapshot; {
	case have.Origin != o.Origin:
		mismatch = &MismatchError{"origin", have.Origin, o.Origin}
	case thick != (o.Size != 0):
		mismatch = &MismatchError{"layout", string(have.Layout), "the other kind of snapshot"}
	default:
		return nil
	}
	return failure(op, o.name().String(), ErrExistsMismatch, mismatch)
}
