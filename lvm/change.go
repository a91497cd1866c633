package lvm

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// Grow implements [Backend].
func (c *CLI) Grow(ctx context.Context, name Name, size uint64) (lv LogicalVolume, err error) {
	const op = "grow"
	if err := errors.Join(name.Validate(), validateSize("size", size)); err != nil {
		return LogicalVolume{}, failure(op, name.String(), ErrInvalid, err)
	}
	return c.modify(ctx, op, name, func(lv LogicalVolume) (string, []string, error) {
		if lv.Size >= size {
			return "", nil, nil
		}
		return "lvextend", []string{"-y", "-L", sizeArg(size), "--", name.String()}, nil
	})
}

// Activate implements [Backend].
func (c *CLI) Activate(ctx context.Context, name Name, o ActivateOptions) (LogicalVolume, error) {
	const op = "activate"
	if err := errors.Join(name.Validate(), o.Validate()); err != nil {
		return LogicalVolume{}, failure(op, name.String(), ErrInvalid, err)
	}
	if o.Access != "" {
		if _, err := c.modify(ctx, op, name, func(lv LogicalVolume) (string, []string, error) {
			permission := map[Access]string{ReadWrite: "rw", ReadOnly: "r"}[o.Access]
			if lv.ReadOnly == (o.Access == ReadOnly) {
				return "", nil, nil
			}
			return "lvchange", []string{"-p", permission, "--", name.String()}, nil
		}); err != nil {
			return LogicalVolume{}, err
		}
	}
	return c.modify(ctx, op, name, func(lv LogicalVolume) (string, []string, error) {
		if lv.Active == Yes {
			return "", nil, nil
		}
		if c.options.NoDeviceMapper {
			return "", nil, failure(op, name.String(), ErrUnsupported, errors.New("activation without device-mapper"))
		}
		return "lvchange", activateArgs(lv), nil
	})
}

// activateArgs activate a volume, also one that is to be skipped when nobody asks for it by name, as thin snapshots
// are.
func activateArgs(lv LogicalVolume) []string {
	args := []string{"-ay"}
	if lv.Attr.SkipActivation {
		args = append(args, "-K")
	}
	if lv.Layout == ThickSnapshot { // yes, its origin too
		args = append(args, "-y")
	}
	return append(args, "--", lv.String())
}

// Deactivate implements [Backend].
func (c *CLI) Deactivate(ctx context.Context, name Name) (LogicalVolume, error) {
	const op = "deactivate"
	if err := name.Validate(); err != nil {
		return LogicalVolume{}, failure(op, name.String(), ErrInvalid, err)
	}
	return c.modify(ctx, op, name, func(lv LogicalVolume) (string, []string, error) {
		switch {
		case lv.Active == No, c.options.NoDeviceMapper:
			return "", nil, nil
		case inUse(lv):
			return "", nil, failure(op, name.String(), ErrInUse, nil)
		case lv.Layout == ThickSnapshot:
			return "", nil, failure(op, name.String(), ErrUnsupported, fmt.Errorf("a thick snapshot comes and goes with its origin %s", lv.Origin))
		}
		return "lvchange", []string{"-an", "--", name.String()}, nil
	})
}

// ChangeTags implements [Backend].
func (c *CLI) ChangeTags(ctx context.Context, name Name, o TagChange) (LogicalVolume, error) {
	const op = "change tags"
	if err := errors.Join(name.Validate(), o.Validate()); err != nil {
		return LogicalVolume{}, failure(op, name.String(), ErrInvalid, err)
	}
	return c.modify(ctx, op, name, func(lv LogicalVolume) (string, []string, error) {
		var args []string
		for _, tag := range o.Add {
			if !lv.HasTag(tag) {
				args = append(args, "--addtag", tag)
			}
		}
		for _, tag := range o.Remove {
			if lv.HasTag(tag) {
				args = append(args, "--deltag", tag)
			}
		}
		if len(args) == 0 {
			return "", nil, nil
		}
		return "lvchange", append(args, "--", name.String()), nil
	})
}

// modify looks at a volume, runs the command that plan finds necessary, if any, and looks again.
func (c *CLI) modify(ctx context.Context, op string, name Name, plan func(lv LogicalVolume) (program string, args []string, err error)) (lv LogicalVolume, err error) {
	release, err := c.lock(ctx, op, name)
	if err != nil {
		return LogicalVolume{}, err
	}
	defer func() { release(err) }()
	lv, err = c.mustLookup(ctx, op, name)
	if err != nil {
		return LogicalVolume{}, err
	}
	if lv.Stage == StageCreating {
		return LogicalVolume{}, failure(op, name.String(), ErrNotFound, errors.New("left half made by an earlier attempt; create it again"))
	}
	program, args, err := plan(lv)
	if err != nil || program == "" {
		return lv, err
	}
	if err := c.change(ctx, op, name, program, args...); err != nil {
		return LogicalVolume{}, err
	}
	after, err := c.mustLookup(ctx, op, name)
	if err != nil {
		return LogicalVolume{}, err
	}
	// lvm2 has been seen to exit with 0 and to have done nothing (a volume that is skipped, for instance).
	again, _, err := plan(after)
	if err == nil && again != "" {
		err = failure(op, name.String(), nil, fmt.Errorf("%s reported success and had no effect", again))
	}
	return after, err
}

// Rename implements [Backend].
func (c *CLI) Rename(ctx context.Context, name Name, newName string) (lv LogicalVolume, err error) {
	const op = "rename"
	to := Name{name.VG, newName}
	if err := errors.Join(name.Validate(), to.Validate()); err != nil {
		return LogicalVolume{}, failure(op, name.String(), ErrInvalid, err)
	}
	if newName == name.LV {
		return LogicalVolume{}, failure(op, name.String(), ErrInvalid, &InvalidError{"new name", newName, "is the old name"})
	}
	release, err := c.lock(ctx, op, name)
	if err != nil {
		return LogicalVolume{}, err
	}
	defer func() { release(err) }()
	lvs, err := c.look(ctx, op, name, selectName(name.LV)+" || "+selectName(newName))
	if err != nil {
		return LogicalVolume{}, err
	}
	lvs = slices.DeleteFunc(lvs, func(lv LogicalVolume) bool { return lv.Stage == StageCreating })
	_, oldThere := find(lvs, name.LV)
	target, newThere := find(lvs, newName)
	switch {
	case oldThere && newThere:
		return LogicalVolume{}, failure(op, name.String(), ErrExists, fmt.Errorf("%s", to))
	case newThere:
		return target, nil
	case !oldThere:
		return LogicalVolume{}, failure(op, name.String(), ErrNotFound, nil)
	}
	if err := c.change(ctx, op, name, "lvrename", "--", name.VG, name.LV, newName); err != nil {
		return LogicalVolume{}, err
	}
	return c.mustLookup(ctx, op, to)
}
