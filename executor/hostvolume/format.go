package hostvolume

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"

	"github.com/stateofworld/stateofworld/executor/command"
)

// format makes a filesystem on a device that decide has called blank, and looks once more right before. It goes on when
// ctx ends.
func (p *preparation) format(ctx context.Context, v *volume) error {
	device := p.devices[v]
	return p.env.flights.run(ctx, device.number, p.settings.DeviceTimeout, func(ctx context.Context) error {
		if err := p.stillBlank(ctx, v, device); err != nil {
			return err
		}
		logr.FromContextOrDiscard(ctx).Info("Making a filesystem", "volume", v.name, "device", device.path, "type", v.disk.fsType)
		argv := slices.Concat([]string{"mkfs." + v.disk.fsType, "-q"}, p.settings.MkfsOptions[v.disk.fsType], []string{device.path})
		result, err := p.env.Runner.Run(ctx, command.Command{Argv: argv})
		if err != nil {
			return programError(ErrFormatFailed, err)
		}
		if result.ExitCode != 0 {
			return fmt.Errorf("%w: %w", ErrFormatFailed, commandError(argv, result))
		}
		found, err := p.env.probe(ctx, device.path)
		if err != nil {
			return err
		}
		if found != (contents{fsType: v.disk.fsType}) {
			return fmt.Errorf("%w: after %s the device holds %+v", ErrFormatFailed, command.Command{Argv: argv}, found)
		}
		return p.env.remember(ctx, p.settings.StateDir, v.disk.path)
	})
}

// stillBlank repeats the whole decision: other devices may have taken a long time since it was made.
func (p *preparation) stillBlank(ctx context.Context, v *volume, device blockDevice) error {
	now, err := p.env.lookUpDevice(ctx, v.disk.path)
	if err != nil {
		return err
	}
	if now != device {
		return fmt.Errorf("%w: %s has become another device", ErrNoDevice, v.disk.path)
	}
	table, err := p.env.readMounts(ctx)
	if err != nil {
		return err
	}
	if place, ok := table.elsewhere(device.number, ""); ok {
		return &placeError{place, fmt.Errorf("%w: it has been mounted at %s meanwhile", ErrDeviceBusy, place)}
	}
	next, err := p.examine(ctx, v, device)
	if err == nil && next != stepFormat {
		err = fmt.Errorf("%w: someone has made a filesystem on it meanwhile", ErrDeviceBusy)
	}
	return err
}

// check runs fsck, which goes on when ctx ends.
func (p *preparation) check(ctx context.Context, v *volume) error {
	device := p.devices[v]
	return p.env.flights.run(ctx, device.number, p.settings.DeviceTimeout, func(ctx context.Context) error {
		argv := []string{"fsck." + v.disk.fsType, "-p", device.path}
		result, err := p.env.Runner.Run(ctx, command.Command{Argv: argv})
		if err != nil {
			return programError(ErrCheckFailed, err)
		}
		if err := judgeFsck(result.ExitCode); err != nil {
			return fmt.Errorf("%w: %w", err, commandError(argv, result))
		}
		if result.ExitCode != 0 {
			logr.FromContextOrDiscard(ctx).Info("Filesystem was repaired", "volume", v.name, "device", device.path, "exitCode", result.ExitCode, "output", string(result.Stdout))
		}
		return nil
	})
}

// flights are the programs that must not be ended by the deadline of the call that started them, one at most for each
// device. The zero value is ready for use.
type flights struct {
	mu      sync.Mutex
	running map[devNumber]*flight
}

type flight struct {
	err   error         // set before done is closed
	done  chan struct{} // the work has returned
	ended chan struct{} // nothing of it is left, and the device is free
}

// run calls work in a goroutine of its own, which wait waits for, with a context that ends only after timeout. It
// returns when work does, or when ctx ends. Two calls for one device at a time are prevented by the turn of the Env.
func (fs *flights) run(ctx context.Context, device devNumber, timeout time.Duration, work func(context.Context) error) error {
	if err := fs.join(ctx, device); err != nil {
		return err
	}
	f := &flight{done: make(chan struct{}), ended: make(chan struct{})}
	fs.mu.Lock()
	if fs.running == nil {
		fs.running = map[devNumber]*flight{}
	}
	fs.running[device] = f
	fs.mu.Unlock()
	go func() {
		detached, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
		defer cancel()
		f.err = work(detached)
		if f.err != nil && ctx.Err() != nil { // the caller has left
			logr.FromContextOrDiscard(ctx).Error(f.err, "Device could not be made ready", "device", device.String())
		}
		var late *command.TimeoutError
		if errors.As(f.err, &late) && !late.Gone() { // it waits in the kernel, and may still write: the device stays taken
			close(f.done)
			<-late.Exited
		}
		fs.mu.Lock()
		delete(fs.running, device)
		fs.mu.Unlock()
		close(f.ended)
	}()
	return f.wait(ctx)
}

// wait returns when the work has returned, or when ctx ends.
func (f *flight) wait(ctx context.Context) error {
	select {
	case <-f.ended:
		return f.err
	case <-f.done:
		return f.err
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", ErrInProgress, ctx.Err())
	}
}

// join waits for what runs on a device. Its error is the flight's, whose caller may have left before he could see it.
func (fs *flights) join(ctx context.Context, device devNumber) error {
	fs.mu.Lock()
	f := fs.running[device]
	fs.mu.Unlock()
	if f == nil {
		return nil
	}
	select {
	case <-f.done:
		return fmt.Errorf("%w: a program of an earlier call was killed and is still there: %w", ErrInProgress, f.err)
	default:
		return f.wait(ctx)
	}
}

// wait returns when nothing is left on any device, or when ctx ends.
func (fs *flights) wait(ctx context.Context) error {
	for {
		var one *flight
		fs.mu.Lock()
		for _, f := range fs.running {
			one = f
			break
		}
		fs.mu.Unlock()
		if one == nil {
			return nil
		}
		select {
		case <-one.ended:
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", ErrInProgress, ctx.Err())
		}
	}
}
