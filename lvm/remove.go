package lvm

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Remove implements [Backend].
func (c *CLI) Remove(ctx context.Context, name Name, o RemoveOptions) error {
	const op = "remove"
	if err := errors.Join(name.Validate(), o.Validate()); err != nil {
		return failure(op, name.String(), ErrInvalid, err)
	}
	quarantined, err := c.takeAway(ctx, op, name, o)
	if err != nil {
		return err
	}
	// The name is free now. The rest can take long, and nobody need wait for it who does not want the same volume.
	var errs []error
	for _, lv := range quarantined {
		errs = append(errs, c.wipeAndRemove(ctx, op, lv.Name))
	}
	return errors.Join(errs...)
}

// takeAway removes the volume where nothing is to be wiped, or else renames it out of the way and returns it under its
// new name, together with what an earlier attempt has left there.
func (c *CLI) takeAway(ctx context.Context, op string, name Name, o RemoveOptions) (quarantined []LogicalVolume, err error) {
	release, err := c.lock(ctx, op, name)
	if err != nil {
		return nil, err
	}
	defer func() { release(err) }()

	lvs, err := c.look(ctx, op, name, strings.Join([]string{selectName(name.LV), selectOrigin(name.LV), selectPool(name.LV), selectTag(removedMark + name.LV)}, " || "))
	if err != nil {
		return nil, err
	}
	lv, exists := find(lvs, name.LV)
	if !exists {
		for _, other := range lvs {
			if other.Stage == StageRemoving && other.Removed == name.LV && (o.UUID == "" || other.UUID == o.UUID) {
				quarantined = append(quarantined, other)
			}
		}
		return quarantined, nil
	}
	if o.UUID != "" && lv.UUID != o.UUID {
		return nil, failure(op, name.String(), ErrExistsMismatch, &MismatchError{"UUID", lv.UUID, o.UUID})
	}
	if lv.Stage == StageRemoving { // asked for by the name it waits under: what was decided for it holds
		return []LogicalVolume{lv}, nil
	}
	snapshots, err := c.refusal(op, lv, lvs, o)
	if err != nil {
		return nil, err
	}
	// All are looked at before any is touched.
	for _, victim := range append(slices.Clone(snapshots), lv) {
		if err := c.wipeable(op, victim, o.Wipe); err != nil {
			return nil, err
		}
	}
	for _, victim := range append(snapshots, lv) {
		if o.Wipe == WipeNone || zeroedByPool(victim) {
			if err := c.lvremove(ctx, op, victim.Name, selectUUID(victim.UUID)); err != nil {
				return nil, err
			}
			continue
		}
		renamed, err := c.quarantine(ctx, op, victim, o.Wipe)
		if err != nil {
			return nil, err
		}
		quarantined = append(quarantined, renamed)
	}
	return quarantined, nil
}

// refusal is why a volume may not be removed, or the thick snapshots that are to go first.
func (c *CLI) refusal(op string, lv LogicalVolume, lvs []LogicalVolume, o RemoveOptions) (snapshots []LogicalVolume, err error) {
	var names []string
	var inPool []string
	for _, other := range lvs {
		// A thin snapshot stands on its own and stays.
		if other.Origin == lv.LV && other.Layout != Thin {
			snapshots, names = append(snapshots, other), append(names, other.LV)
		}
		if other.Pool == lv.LV {
			inPool = append(inPool, other.LV)
		}
	}
	if len(inPool) > 0 {
		return nil, failure(op, lv.String(), ErrInUse, &DependentsError{inPool})
	}
	if len(snapshots) > 0 && !o.Cascade {
		return nil, failure(op, lv.String(), ErrHasSnapshots, &DependentsError{names})
	}
	for _, victim := range append(slices.Clone(snapshots), lv) {
		if victim.HasTag(c.options.ProtectedTag) {
			return nil, failure(op, victim.String(), ErrProtected, fmt.Errorf("tag %q", c.options.ProtectedTag))
		}
		if inUse(victim) {
			return nil, failure(op, victim.String(), ErrInUse, nil)
		}
	}
	return snapshots, nil
}

// inUse is whether someone other than lvm2 holds the device of a volume. A thin pool is held by its own parts once it
// has had a volume, and lvm2 itself knows whether it still has.
func inUse(lv LogicalVolume) bool { return lv.Open == Yes && lv.Layout != ThinPool }

// lvremove removes exactly one volume, and only if a selection finds it at that moment. That it has gone already, or is
// not the one that was meant, is fine.
func (c *CLI) lvremove(ctx context.Context, op string, name Name, selection string) error {
	// Its argument is never a group alone, nor a tag: those would remove everything in it. No -f: what is in use is to be
	// refused.
	err := c.change(ctx, op, name, "lvremove", "-y", "-S", selection, "--", name.String())
	if errors.Is(err, ErrNotFound) {
		return nil
	}
	return err
}
