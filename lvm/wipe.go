package lvm

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// zeroedByPool is whether the data of a volume cannot be read by others after its removal, because its pool zeroes
// blocks before it gives them out again.
func zeroedByPool(lv LogicalVolume) bool { return lv.Layout == Thin && lv.Attr.Zero }

// wipeable refuses what cannot be wiped, before anything has happened to it.
func (c *CLI) wipeable(op string, lv LogicalVolume, policy WipePolicy) error {
	unsupported := func(why string) error {
		return failure(op, lv.String(), ErrUnsupported, fmt.Errorf("wipe policy %s: %s", policy, why))
	}
	switch {
	case policy == WipeNone || zeroedByPool(lv):
		return nil
	case c.options.NoDeviceMapper:
		return unsupported("there is no device-mapper to reach the volume through")
	case lv.Open == Unknown || lv.Active == Unknown:
		return unsupported("whether the volume is in use is not known")
	case lv.Layout == ThinPool:
		return unsupported("the blocks of a thin pool cannot be reached")
	case lv.Layout == Thin && policy == WipeZero:
		return unsupported("the pool does not zero its blocks, and writing zeroes would fill it")
	case lv.Health == HealthPartial:
		return failure(op, lv.String(), ErrPartialVG, errors.New("parts of the volume cannot be reached to be wiped"))
	}
	if _, err := quarantineName(lv); err != nil {
		return unsupported(err.Error())
	}
	return nil
}

// quarantineName is where a volume waits to be wiped and removed.
func quarantineName(lv LogicalVolume) (Name, error) {
	name := Name{lv.VG, removingName + strings.ReplaceAll(lv.UUID, "-", "")}
	return name, name.Validate()
}

// quarantine renames a volume out of the way. The group must be locked, and the volume looked at.
func (c *CLI) quarantine(ctx context.Context, op string, lv LogicalVolume, policy WipePolicy) (LogicalVolume, error) {
	to, err := quarantineName(lv)
	if err != nil {
		return LogicalVolume{}, failure(op, lv.String(), ErrInvalid, err)
	}
	// Deactivating fails while the device is held by anyone, which no look before can promise, and nobody can open it
	// afterwards. (A thick snapshot cannot be deactivated without its origin; splitting it off later fails while it is
	// held.)
	if lv.Active != No && lv.Layout != ThickSnapshot {
		if err := c.change(ctx, op, lv.Name, "lvchange", "-an", "--", lv.String()); err != nil {
			return LogicalVolume{}, err
		}
	}
	tags := []string{"--addtag", removingMark + string(policy), "--addtag", removedMark + lv.LV}
	for _, tag := range lv.Tags { // of an earlier attempt that was cut off here
		if strings.HasPrefix(tag, removingMark) && tag != removingMark+string(policy) {
			tags = append(tags, "--deltag", tag)
		}
	}
	if err := c.change(ctx, op, lv.Name, "lvchange", append(tags, "--", lv.String())...); err != nil {
		return LogicalVolume{}, err
	}
	if err := c.change(ctx, op, lv.Name, "lvrename", "--", lv.VG, lv.LV, to.LV); err != nil {
		return LogicalVolume{}, err
	}
	lv.Name = to
	return lv, nil
}

// FinishRemovals implements [Backend].
func (c *CLI) FinishRemovals(ctx context.Context, vg string) (int, error) {
	const op = "finish removals"
	if err := ValidateVGName(vg); err != nil {
		return 0, failure(op, vg, ErrInvalid, err)
	}
	lvs, err := c.List(ctx, vg)
	if err != nil {
		return 0, reported(op, vg, nil, err)
	}
	var errs []error
	done := 0
	for _, lv := range lvs {
		if lv.Stage != StageRemoving {
			continue
		}
		if err := c.wipeAndRemove(ctx, op, lv.Name); err != nil {
			errs = append(errs, err)
			continue
		}
		done++
	}
	return done, errors.Join(errs...)
}

// wipeAndRemove finishes the removal of a volume that was renamed out of the way, from wherever it was cut off.
func (c *CLI) wipeAndRemove(ctx context.Context, op string, name Name) (err error) {
	free, err := c.wipes.acquire(ctx, name.String())
	if err != nil {
		return failure(op, name.String(), nil, err)
	}
	defer func() { free(stuckIn(err)) }()

	lvs, err := c.look(ctx, op, name, selectName(name.LV)+" || "+selectOrigin(name.LV))
	if err != nil {
		return err
	}
	lv, exists := find(lvs, name.LV)
	if !exists {
		return nil
	}
	// Thick snapshots would go with it, and not be wiped. Those that are to go as well are finished first.
	for _, other := range lvs {
		switch {
		case other.LV == name.LV || other.Layout == Thin:
		case other.Stage != StageRemoving:
			return failure(op, name.String(), ErrHasSnapshots, &DependentsError{[]string{other.LV}})
		default:
			if err := c.wipeAndRemove(ctx, op, other.Name); err != nil {
				return err
			}
		}
	}
	policy, err := policyOf(lv)
	if err != nil {
		return failure(op, name.String(), ErrUnsupported, err)
	}
	if inUse(lv) {
		return failure(op, name.String(), ErrInUse, nil)
	}
	if err := c.locked(ctx, op, name, func() error { return c.prepareWipe(ctx, op, lv) }); err != nil {
		return err
	}
	if err := c.wipe(ctx, op, name, policy); err != nil {
		return err
	}
	return c.locked(ctx, op, name, func() error { return c.lvremove(ctx, op, name, selectUUID(lv.UUID)) })
}

// locked does something while the group is locked.
func (c *CLI) locked(ctx context.Context, op string, name Name, f func() error) error {
	release, err := c.lock(ctx, op, name)
	if err != nil {
		return err
	}
	err = f()
	release(err)
	return err
}

// policyOf reads the wipe policy from the mark of a volume.
func policyOf(lv LogicalVolume) (WipePolicy, error) {
	for _, tag := range lv.Tags {
		if text, ok := strings.CutPrefix(tag, removingMark); ok {
			if policy := WipePolicy(text); policy != WipeNone && policy.valid() {
				return policy, nil
			}
			return "", fmt.Errorf("unknown wipe policy in the tag %q", tag)
		}
	}
	return "", fmt.Errorf("no tag %q and a wipe policy", removingMark)
}

// prepareWipe makes the device appear, writable.
func (c *CLI) prepareWipe(ctx context.Context, op string, lv LogicalVolume) error {
	if lv.Layout == ThickSnapshot {
		// The device of a snapshot shows the origin's data. What is to be wiped is its store of changes, which is a
		// plain volume once split off.
		if err := c.change(ctx, op, lv.Name, "lvconvert", "-y", "--splitsnapshot", "--", lv.String()); err != nil {
			return err
		}
		lv.Active = Unknown
	}
	if lv.ReadOnly {
		if err := c.change(ctx, op, lv.Name, "lvchange", "-p", "rw", "--", lv.String()); err != nil {
			return err
		}
	}
	if lv.Active == Yes {
		return nil
	}
	return c.change(ctx, op, lv.Name, "lvchange", activateArgs(lv)...)
}

// wipe runs the tool for a policy. The tools open the device exclusively, so that one in use is not wiped.
func (c *CLI) wipe(ctx context.Context, op string, name Name, policy WipePolicy) error {
	// In steps, so that it can be stopped between them.
	const step = "67108864"
	argv := map[WipePolicy][]string{
		WipeSignatures: {"wipefs", "-a", "--", name.DevicePath()},
		WipeZero:       {"blkdiscard", "-z", "-p", step, "--", name.DevicePath()},
		WipeDiscard:    {"blkdiscard", "-p", step, "--", name.DevicePath()},
	}[policy]
	_, err := c.run(ctx, op, name.String(), 0, argv)
	return err
}
