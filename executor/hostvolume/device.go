package hostvolume

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/stateofworld/stateofworld/executor/command"
)

// blockDevice is a device node with all links resolved. Every command about the device gets this path, so that no link
// can lead elsewhere in between.
type blockDevice struct {
	path   string
	number devNumber
}

const (
	firstLook = 50 * time.Millisecond
	maxLook   = time.Second
)

// findDevice resolves the path of a device. A node that is not there yet is waited for until deadline.
func (e *Env) findDevice(ctx context.Context, asked string, deadline time.Time) (blockDevice, error) {
	for delay := firstLook; ; delay = min(2*delay, maxLook) {
		device, err := e.lookUpDevice(ctx, asked)
		if !errors.Is(err, ErrNoDevice) {
			return device, err
		}
		left := deadline.Sub(e.clock().Now())
		if left <= 0 {
			return blockDevice{}, err
		}
		timer := e.clock().NewTimer(min(delay, left))
		select {
		case <-timer.C():
		case <-ctx.Done():
			timer.Stop()
			return blockDevice{}, fmt.Errorf("%w: %w", err, ctx.Err())
		}
	}
}

func (e *Env) lookUpDevice(ctx context.Context, asked string) (blockDevice, error) {
	resolved, err := e.Runner.EvalSymlinks(ctx, asked)
	var info command.FileInfo
	if err == nil {
		info, err = e.Runner.Stat(ctx, resolved)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return blockDevice{}, fmt.Errorf("%w: %w", ErrNoDevice, err)
	case err != nil:
		return blockDevice{}, hostError(err)
	case !isBlockDevice(info.Mode):
		return blockDevice{}, fmt.Errorf("%w: %s is %v", ErrNotBlockDevice, resolved, info.Mode)
	}
	return blockDevice{path: resolved, number: devNumber{info.Major, info.Minor}}, nil
}

func isBlockDevice(mode fs.FileMode) bool {
	return mode&fs.ModeDevice != 0 && mode&fs.ModeCharDevice == 0
}

// inspectDisk looks at a device, without changing anything, and says what has to be done with it.
func (p *preparation) inspectDisk(ctx context.Context, v *volume) (step, error) {
	device := p.devices[v]
	if err := p.env.flights.join(ctx, device.number); err != nil {
		return 0, err
	}
	target := v.mountPoint(p.base)
	if m, ok := p.before.at(target); ok {
		if err := checkDiskMount(m, v, device); err != nil {
			return 0, err
		}
		return stepNone, nil
	}
	if place, ok := p.before.elsewhere(device.number, target); ok {
		return 0, &placeError{place, fmt.Errorf("%w: it is mounted at %s", ErrDeviceBusy, place)}
	}
	return p.examine(ctx, v, device)
}

// examine reads what is on a device and decides.
func (p *preparation) examine(ctx context.Context, v *volume, device blockDevice) (step, error) {
	f := facts{
		fsType: v.disk.fsType, readOnly: v.disk.readOnly,
		format: p.settings.Format, fsck: p.settings.Fsck, firstUse: p.settings.firstUse[v.name],
	}
	size, writeProtected, err := p.env.geometry(ctx, device.path)
	if err != nil {
		return 0, err
	}
	f.writeProtected = writeProtected
	if f.found, err = p.env.probe(ctx, device.path); err != nil {
		return 0, err
	}
	if f.found.nothing() {
		if f.seen, err = p.env.wasSeen(ctx, p.settings.StateDir, v.disk.path); err != nil {
			return 0, err
		}
	}
	next, err := decide(f)
	if next == stepSample {
		f.sampled = true
		if f.data, err = p.env.firstData(ctx, device.path, size); err != nil {
			return 0, err
		}
		next, err = decide(f)
	}
	return next, err
}

// checkDiskMount reports whether a mount is the one that a volume wants.
func checkDiskMount(m mount, v *volume, device blockDevice) error {
	taken := func(format string, args ...any) error {
		return &placeError{m.path, fmt.Errorf("%w: "+format, append([]any{ErrTargetInUse}, args...)...)}
	}
	switch {
	case m.device != device.number || m.root != "/":
		return taken("%s (%s, device %v) is mounted at %s", m.source, m.fsType, m.device, m.path)
	case m.fsType != v.disk.fsType:
		return taken("it is mounted at %s as %s, and the spec wants %s", m.path, m.fsType, v.disk.fsType)
	case m.readOnly && !v.disk.readOnly:
		return &placeError{m.path, fmt.Errorf("%w: it is mounted read-only at %s, and a container mounts it for writing", ErrReadOnlyDevice, m.path)}
	case !m.readOnly && v.disk.readOnly:
		return taken("it is mounted for writing at %s, and the spec only reads it", m.path)
	}
	return nil
}

// placeError carries the place of a VolumeError up to where the volume is known.
type placeError struct {
	place string
	err   error
}

func (e *placeError) Error() string { return e.err.Error() }
func (e *placeError) Unwrap() error { return e.err }
