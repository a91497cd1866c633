package lvm

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Create implements [Backend].
//
// A new volume carries a mark until lvcreate has returned success, which is after it was zeroed and wiped; only then
// the mark is taken off and the volume is handed out. What is found with a mark was therefore never handed out and can
// be removed, whenever and wherever the attempt was cut off.
func (c *CLI) Create(ctx context.Context, o CreateOptions) (lv LogicalVolume, err error) {
	const op = "create"
	name := o.name()
	if err := o.Validate(); err != nil {
		return LogicalVolume{}, failure(op, name.String(), ErrInvalid, err)
	}
	release, err := c.lock(ctx, op, name)
	if err != nil {
		return LogicalVolume{}, err
	}
	defer func() { release(err) }()

	found, exists, err := c.lookup(ctx, op, name)
	if err != nil {
		return LogicalVolume{}, err
	}
	if exists && found.Stage == StageCreating {
		if found, exists, err = c.clearHalfMade(ctx, op, found); err != nil {
			return LogicalVolume{}, err
		}
	}
	if exists {
		if err := c.compare(ctx, op, o, found); err != nil {
			return LogicalVolume{}, err
		}
		return found, nil
	}
	if c.options.NoDeviceMapper && o.layout() != Linear && o.layout() != Striped {
		return LogicalVolume{}, failure(op, name.String(), ErrUnsupported, fmt.Errorf("layout %s without device-mapper", o.layout()))
	}
	args, err := c.createArgs(ctx, op, o)
	if err != nil {
		return LogicalVolume{}, err
	}
	lv, err = c.make(ctx, op, name, o.Tags, args)
	if err != nil {
		return LogicalVolume{}, err
	}
	return lv, compareKind(op, o, lv) // another process may have put one of its own there
}

// make runs lvcreate with the mark and the tags, cleans up after it where it failed, and takes the mark off where it
// did not.
func (c *CLI) make(ctx context.Context, op string, name Name, tags, args []string) (LogicalVolume, error) {
	mark := creatingMark + nonce()
	marked := []string{"-y", "--addtag", mark}
	for _, tag := range tags {
		marked = append(marked, "--addtag", tag)
	}
	err := c.change(ctx, op, name, "lvcreate", append(marked, args...)...)
	var failed *Error
	if errors.As(err, &failed) && failed.ExitCode != 0 {
		return LogicalVolume{}, errors.Join(err, c.cleanUp(ctx, op, name, mark))
	}
	if err != nil { // what came of it is not known; the mark tells the next attempt
		return LogicalVolume{}, err
	}
	if err := c.change(ctx, op, name, "lvchange", "--deltag", mark, "--", name.String()); err != nil {
		return LogicalVolume{}, err
	}
	lv, err := c.mustLookup(ctx, op, name)
	if err == nil && lv.Stage != StageReady {
		err = failure(op, name.String(), ErrExists, errAnotherProcess)
	}
	return lv, err
}

// cleanUp removes the volume that a failed lvcreate of this very attempt has left.
func (c *CLI) cleanUp(ctx context.Context, op string, name Name, mark string) error {
	lv, exists, err := c.lookup(ctx, op, name)
	if err != nil || !exists || !lv.HasTag(mark) {
		return err
	}
	return c.removeHalfMade(ctx, op, lv)
}

var errAnotherProcess = errors.New("another process is making it just now")

// clearHalfMade removes a volume that an earlier attempt has left half made, and returns what is there then: nothing, or
// what another process has made meanwhile.
func (c *CLI) clearHalfMade(ctx context.Context, op string, lv LogicalVolume) (LogicalVolume, bool, error) {
	if err := c.removeHalfMade(ctx, op, lv); err != nil {
		return LogicalVolume{}, false, err
	}
	found, exists, err := c.lookup(ctx, op, lv.Name)
	if err == nil && exists && found.Stage == StageCreating {
		err = failure(op, lv.String(), ErrExists, errAnotherProcess)
	}
	return found, exists, err
}

// removeHalfMade removes a volume that was never handed out. lvm2 removes it only if it still has the mark at that moment,
// so that one which another process has finished since we looked, and handed out, stays.
func (c *CLI) removeHalfMade(ctx context.Context, op string, lv LogicalVolume) error {
	if inUse(lv) { // lvm2 itself wipes it just now, or something is very wrong
		return failure(op, lv.String(), ErrInUse, errors.New("left half made by an earlier attempt"))
	}
	i := slices.IndexFunc(lv.Tags, func(tag string) bool { return strings.HasPrefix(tag, creatingMark) })
	if i < 0 || ValidateTag(lv.Tags[i]) != nil {
		return failure(op, lv.String(), ErrExists, errors.New("has no mark of being half made"))
	}
	return c.lvremove(ctx, op, lv.Name, selectTag(lv.Tags[i]))
}

// nonce tells one attempt from all others.
func nonce() string {
	var b [8]byte
	rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

// createArgs are the arguments of lvcreate but for the tags. It looks at the group where the volume depends on it.
func (c *CLI) createArgs(ctx context.Context, op string, o CreateOptions) ([]string, error) {
	size := o.Size
	var layout []string
	switch o.layout() {
	case Linear:
	case RAID1:
		layout = []string{"--type", "raid1", "-m", strconv.Itoa(o.mirrors())}
	case ThinPool:
		layout = []string{"--type", "thin-pool"}
	case Thin:
		if err := c.checkPool(ctx, op, o); err != nil {
			return nil, err
		}
	}
	devices := o.PhysicalVolumes
	if o.layout() == Striped || o.MaxSize != 0 {
		vg, err := c.freshGroup(ctx, op, o.name())
		if err != nil {
			return nil, err
		}
		if err := usableGroup(op, o.name(), vg); err != nil {
			return nil, err
		}
		size = roundUp(size, vg.ExtentSize)
		if o.layout() == Striped {
			plan, err := c.stripes(op, o, vg)
			if err != nil {
				return nil, err
			}
			if plan.Stripes > 1 {
				size, devices = plan.Extents*vg.ExtentSize, plan.Devices
				layout = []string{"-i", strconv.Itoa(plan.Stripes)}
				if o.StripeSize != 0 {
					layout = append(layout, "-I", strconv.FormatUint(o.StripeSize, 10)+"b")
				}
			}
		}
		if o.MaxSize != 0 && size > o.MaxSize {
			return nil, failure(op, o.name().String(), ErrOutOfRange, &MismatchError{"size once rounded", strconv.FormatUint(size, 10), "at most " + strconv.FormatUint(o.MaxSize, 10)})
		}
	}
	args := append(layout, "-n", o.Name)
	if o.layout() == Thin {
		args = append(args, "-V", sizeArg(size), "--thinpool", o.ThinPool)
	} else {
		args = append(args, "-L", sizeArg(size))
	}
	args = append(args, c.wipeArgs(o.layout())...)
	return append(append(args, "--", o.VG), devices...), nil
}

// wipeArgs clear the start of a new volume and the signatures on it, as far as lvm2 takes that for the layout.
func (c *CLI) wipeArgs(layout Layout) []string {
	switch {
	case c.options.NoDeviceMapper:
		return []string{"-an", "-Zn", "-Wn"}
	case layout == ThinPool: // here it means that the pool zeroes new blocks
		return []string{"-Zy"}
	case layout == Thin:
		return []string{"-Wy"}
	}
	return []string{"-Zy", "-Wy"}
}

// stripes plans a striped volume. A plan of one stripe is a linear volume.
func (c *CLI) stripes(op string, o CreateOptions, vg VolumeGroup) (stripePlan, error) {
	pvs, ok := restrict(vg.PVs, o.PhysicalVolumes)
	if !ok {
		return stripePlan{}, failure(op, o.name().String(), ErrInvalid, &InvalidError{"physical volumes", strings.Join(o.PhysicalVolumes, ","), "not all in the group"})
	}
	extents := roundUp(o.Size, vg.ExtentSize) / vg.ExtentSize
	if plan, ok := planStripes(pvs, extents, o.Stripes); ok {
		return plan, nil
	}
	if o.AllowLinear {
		return stripePlan{Stripes: 1, Extents: extents}, nil
	}
	// Too few physical volumes is for ever; too little room may change.
	usable := len(byRoom(pvs))
	wanted := max(o.Stripes, 2)
	reason := fmt.Errorf("%d extents in %d or more stripes: %d physical volumes have room", extents, wanted, usable)
	if o.Stripes != 0 {
		reason = fmt.Errorf("%d extents in %d stripes: %d physical volumes have room", extents, wanted, usable)
	}
	if len(pvs) >= wanted {
		return stripePlan{}, failure(op, o.name().String(), ErrNotStripable, fmt.Errorf("%w: %w", ErrNoSpace, reason))
	}
	return stripePlan{}, failure(op, o.name().String(), ErrNotStripable, reason)
}

// usableGroup refuses a group that lvm2 would refuse to change, before anything is tried.
func usableGroup(op string, name Name, vg VolumeGroup) error {
	switch {
	case vg.Exported:
		return failure(op, name.String(), ErrExported, nil)
	case vg.Partial:
		return failure(op, name.String(), ErrPartialVG, fmt.Errorf("%d missing", vg.MissingPVs))
	case slices.ContainsFunc(vg.PVs, func(pv PhysicalVolume) bool { return pv.Duplicate }):
		return failure(op, name.String(), ErrDuplicatePV, nil)
	}
	return nil
}

// compareKind is whether a volume is of the kind asked for, and large enough.
func compareKind(op string, o CreateOptions, have LogicalVolume) error {
	var mismatch *MismatchError
	least := roundUp(o.Size, max(have.ExtentSize, sectorSize))
	switch {
	case have.Layout != o.layout() && !(o.AllowLinear && have.Layout == Linear):
		mismatch = &MismatchError{"layout", string(have.Layout), string(o.layout())}
	case have.Origin != "":
		mismatch = &MismatchError{"origin", have.Origin, "none"}
	case have.Pool != o.ThinPool:
		mismatch = &MismatchError{"thin pool", have.Pool, o.ThinPool}
	case have.Size < least:
		mismatch = &MismatchError{"size", strconv.FormatUint(have.Size, 10), strconv.FormatUint(least, 10)}
	default:
		return nil
	}
	return failure(op, o.name().String(), ErrExistsMismatch, mismatch)
}

// compare is whether a volume that exists is the one asked for.
func (c *CLI) compare(ctx context.Context, op string, o CreateOptions, have LogicalVolume) error {
	if err := compareKind(op, o, have); err != nil {
		return err
	}
	mismatch := func(field, have, want string) error {
		return failure(op, o.name().String(), ErrExistsMismatch, &MismatchError{field, have, want})
	}
	stripes := uint64(1)
	if have.Layout == Striped || have.Layout == RAID1 {
		images, err := c.images(ctx, op, o.name())
		if err != nil {
			return err
		}
		for _, n := range images {
			if have.Layout == Striped {
				stripes = max(stripes, uint64(n))
			}
			if o.Stripes != 0 && n != o.Stripes {
				return mismatch("stripes", strconv.Itoa(n), strconv.Itoa(o.Stripes))
			}
			if have.Layout == RAID1 && n != o.mirrors()+1 {
				return mismatch("copies", strconv.Itoa(n), strconv.Itoa(o.mirrors()+1))
			}
		}
	}
	// As large as it would be made, give or take one round of stripes.
	extent := max(have.ExtentSize, sectorSize)
	least := roundUp(o.Size, extent)
	if have.Size >= least+stripes*extent {
		return mismatch("size", strconv.FormatUint(have.Size, 10), strconv.FormatUint(least, 10))
	}
	return nil
}
