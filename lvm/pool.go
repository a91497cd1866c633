package lvm

import (
	"context"
	"fmt"
	"math"
)

// Capacity implements [Backend].
func (c *CLI) Capacity(ctx context.Context, o CapacityOptions) (Capacity, error) {
	const op = "capacity"
	if err := o.Validate(); err != nil {
		return Capacity{}, failure(op, o.VG, ErrInvalid, err)
	}
	if o.Layout == Thin {
		name := Name{o.VG, o.ThinPool}
		argv := c.reportArgv("lvs", lvFields, selectName(o.ThinPool)+" || "+selectPool(o.ThinPool), o.VG)
		rows, _, err := c.report(ctx, op, name.String(), argv, "lv", o.VG)
		if err != nil {
			return Capacity{}, err
		}
		lvs, err := volumes(op, name.String(), argv, rows)
		if err != nil {
			return Capacity{}, err
		}
		pool, members, err := poolAmong(op, name, o.ThinPool, lvs)
		if err != nil {
			return Capacity{}, err
		}
		return c.poolCapacity(pool, members, o.Overprovision), nil
	}
	vg, err := c.volumeGroup(ctx, op, o.VG, o.VG, c.report)
	if err != nil {
		return Capacity{}, err
	}
	if err := usableGroup(op, Name{VG: o.VG}, vg); err != nil {
		return Capacity{}, err
	}
	return Capacity{Available: largest(vg.PVs, o.Layout, o.Stripes, o.Mirrors) * vg.ExtentSize, Total: vg.Size, Free: vg.Free}, nil
}

// poolCapacity is what fits into a thin pool, whose volumes may have ratio times its size together.
func (c *CLI) poolCapacity(pool LogicalVolume, members []LogicalVolume, ratio float64) Capacity {
	if ratio == 0 {
		ratio = 1
	}
	out := Capacity{Total: pool.Size, DataPercent: pool.DataPercent, MetadataPercent: pool.MetadataPercent}
	for _, lv := range members {
		out.Virtual += min(lv.Size, math.MaxUint64-out.Virtual)
	}
	out.Full = c.full(pool.DataPercent) || c.full(pool.MetadataPercent)
	if pool.DataPercent.Known {
		out.Free = uint64(float64(pool.Size) * (100 - pool.DataPercent.Value) / 100)
	}
	budget := uint64(min(float64(pool.Size)*ratio, maxSize))
	if !out.Full && budget > out.Virtual {
		out.Available = budget - out.Virtual
	}
	return out
}

func (c *CLI) full(p Percent) bool { return p.Known && p.Value >= c.options.PoolFullPercent }

// checkPool is whether a new thin volume may be made in its pool.
func (c *CLI) checkPool(ctx context.Context, op string, o CreateOptions) error {
	pool, members, err := c.pool(ctx, op, o.name(), o.ThinPool)
	if err != nil {
		return err
	}
	return c.roomInPool(op, o.name(), pool, members, roundUp(o.Size, max(pool.ExtentSize, sectorSize)), o.Overprovision)
}

// pool is a fresh look at a thin pool and all that is in it.
func (c *CLI) pool(ctx context.Context, op string, name Name, pool string) (LogicalVolume, []LogicalVolume, error) {
	lvs, err := c.look(ctx, op, name, selectName(pool)+" || "+selectPool(pool))
	if err != nil {
		return LogicalVolume{}, nil, err
	}
	return poolAmong(op, name, pool, lvs)
}

func poolAmong(op string, name Name, pool string, lvs []LogicalVolume) (LogicalVolume, []LogicalVolume, error) {
	found, ok := find(lvs, pool)
	if !ok || found.Stage == StageCreating {
		return LogicalVolume{}, nil, failure(op, name.String(), ErrNotFound, fmt.Errorf("thin pool %s/%s", name.VG, pool))
	}
	if found.Layout != ThinPool {
		return LogicalVolume{}, nil, failure(op, name.String(), ErrInvalid, &InvalidError{"thin pool", pool, "is a " + string(found.Layout) + " volume"})
	}
	var members []LogicalVolume
	for _, lv := range lvs {
		if lv.Pool == pool {
			members = append(members, lv)
		}
	}
	return found, members, nil
}

// roomInPool refuses what a pool near its end cannot be trusted with, or, where there is a ratio, what would be
// promised beyond it.
func (c *CLI) roomInPool(op string, name Name, pool LogicalVolume, members []LogicalVolume, size uint64, ratio float64) error {
	capacity := c.poolCapacity(pool, members, ratio)
	if capacity.Full {
		return failure(op, name.String(), ErrNoSpace, fmt.Errorf("thin pool %s is nearly full: data %.1f %%, metadata %.1f %%", pool.Name, pool.DataPercent.Value, pool.MetadataPercent.Value))
	}
	if ratio != 0 && size > capacity.Available {
		return failure(op, name.String(), ErrNoSpace, fmt.Errorf("thin pool %s: %d bytes wanted, %d left of %g times its size", pool.Name, size, capacity.Available, ratio))
	}
	return nil
}
