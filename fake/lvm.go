package fake

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/stateofworld/stateofworld/executor/command"
	"github.com/stateofworld/stateofworld/lvm"
)

// LVM is an [lvm.Backend] in memory. It is the real backend, [lvm.CLI], on a stand-in for lvm2 that understands the
// commands which that runs, keeps groups, disks and extents in memory, and answers as lvm2 does. So what a test sees
// (errors, idempotence, locking, recovery) is what the real thing does, and a test can fail, hang, or stop at any of
// the commands.
//
//	l := fake.NewLVM()
//	l.AddVG("vg0", 4<<20, fake.Disk{Device: "/dev/sda", Size: 1 << 30})
//	l.FailNext("lvcreate", `Volume group "vg0" has insufficient free space (1 extents): 2 required.`)
//	_, err := l.Create(ctx, lvm.CreateOptions{VG: "vg0", Name: "a", Size: 1 << 20})
//
// What is stored on volumes can be written and read too, extent by extent, so that a test can tell whether it is gone.
//
// Limits: commands other than those that lvm.CLI runs are refused; allocation prefers other extents than lvm2's; how
// full thin pools and snapshots are is what FillPool says and does not follow from what is written. It is safe for
// concurrent use, except for Restart.
type LVM struct {
	*lvm.CLI
	options lvm.Options

	mu      sync.Mutex
	groups  map[string]*lvmGroup
	faults  []*lvmFault
	calls   []string
	stop    *lvmStop
	stopped bool
	serial  int
}

var _ lvm.Backend = (*LVM)(nil)

// Disk is a physical volume to be.
type Disk struct {
	Device string
	Size   uint64 // bytes; what does not fill an extent is lost
}

// NewLVM makes a system without volume groups.
func NewLVM() *LVM { return NewLVMWithOptions(lvm.Options{}) }

// NewLVMWithOptions makes one whose backend has the given options.
func NewLVMWithOptions(o lvm.Options) *LVM {
	l := &LVM{options: o, groups: map[string]*lvmGroup{}}
	l.CLI = lvm.NewCLI(l, o)
	return l
}

// AddVG adds a volume group. An extent size of 0 is 4 MiB.
func (l *LVM) AddVG(name string, extentSize uint64, disks ...Disk) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if extentSize == 0 {
		extentSize = 4 << 20
	}
	g := &lvmGroup{name: name, uuid: l.lockedUUID(), extent: extentSize, lvs: map[string]*lvmVolume{}}
	for _, disk := range disks {
		d := &lvmDisk{device: disk.Device, uuid: l.lockedUUID(), extents: disk.Size / extentSize, cells: map[uint64]*lvmCell{}}
		d.free = []lvmRange{{d, 0, d.extents}}
		g.pvs = append(g.pvs, d)
	}
	l.groups[name] = g
}

// lockedUUID makes one of the form that lvm2's have.
func (l *LVM) lockedUUID() string {
	l.serial++
	s := fmt.Sprintf("fake%028d", l.serial)
	return strings.Join([]string{s[:6], s[6:10], s[10:14], s[14:18], s[18:22], s[22:26], s[26:32]}, "-")
}

// SetMissing takes a disk away, or brings it back.
func (l *LVM) SetMissing(device string, missing bool) {
	l.disk(device, func(d *lvmDisk) { d.missing = missing })
}

// SetDuplicate lets a second device claim to be the same physical volume.
func (l *LVM) SetDuplicate(device string, duplicate bool) {
	l.disk(device, func(d *lvmDisk) { d.duplicate = duplicate })
}

func (l *LVM) disk(device string, f func(*lvmDisk)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, g := range l.groups {
		for _, d := range g.pvs {
			if d.device == device {
				f(d)
			}
		}
	}
}

// SetExported exports a volume group, or imports it.
func (l *LVM) SetExported(vg string, exported bool) {
	l.group(vg, func(g *lvmGroup) { g.exported = exported })
}

// SetForeign gives a volume group the system ID of another host.
func (l *LVM) SetForeign(vg string, foreign bool) {
	l.group(vg, func(g *lvmGroup) { g.foreign = foreign })
}

func (l *LVM) group(vg string, f func(*lvmGroup)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if g := l.groups[vg]; g != nil {
		f(g)
	}
}

// Open holds the device of a volume open once more, as a process does.
func (l *LVM) Open(name lvm.Name) error { return l.open(name, func(v *lvmVolume) { v.opens++ }) }

// Mount holds the device of a volume open as a mounted filesystem does.
func (l *LVM) Mount(name lvm.Name) error { return l.open(name, func(v *lvmVolume) { v.mounts++ }) }

func (l *LVM) open(name lvm.Name, f func(*lvmVolume)) error {
	return l.volume(name, func(v *lvmVolume) error {
		if !v.active {
			return fmt.Errorf("%s is not active", name)
		}
		f(v)
		return nil
	})
}

// Close undoes every Open and Mount of a volume.
func (l *LVM) Close(name lvm.Name) error {
	return l.volume(name, func(v *lvmVolume) error { v.opens, v.mounts = 0, 0; return nil })
}

// FillPool says how full a thin pool is, in percent.
func (l *LVM) FillPool(pool lvm.Name, data, metadata float64) error {
	return l.volume(pool, func(v *lvmVolume) error { v.data, v.metadata = data, metadata; return nil })
}

// Write stores data in every extent of an active volume, and a signature in the first, where that is not empty.
func (l *LVM) Write(name lvm.Name, data, signature string) error {
	return l.volume(name, func(v *lvmVolume) error {
		if !v.active || v.readOnly {
			return fmt.Errorf("%s is not active and writable", name)
		}
		for _, s := range v.group.snapshotsOf(v) { // what was there before goes to the snapshots
			v.cells(func(_ uint64, c *lvmCell) {
				if before := c.data; before != "" {
					s.stored(func(_ uint64, c *lvmCell) { c.data = before })
				}
			})
		}
		v.cells(func(index uint64, c *lvmCell) {
			c.data = data
			if index == 0 {
				c.signature = signature
			}
		})
		return nil
	})
}

// Read returns what is stored on an active volume: every different content once, signatures too.
func (l *LVM) Read(name lvm.Name) (contents []string, err error) {
	err = l.volume(name, func(v *lvmVolume) error {
		if !v.active {
			return fmt.Errorf("%s is not active", name)
		}
		v.cells(func(_ uint64, c *lvmCell) {
			for _, s := range []string{c.data, c.signature} {
				if s != "" && !slices.Contains(contents, s) {
					contents = append(contents, s)
				}
			}
		})
		return nil
	})
	return contents, err
}

func (l *LVM) volume(name lvm.Name, f func(*lvmVolume) error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if g := l.groups[name.VG]; g != nil {
		if v := g.lvs[name.LV]; v != nil {
			return f(v)
		}
	}
	return fmt.Errorf("%s is not there", name)
}

// Reboot restarts the machine: every volume is inactive afterwards, and nothing is open. The process that used the
// backend is gone with it: see Restart.
func (l *LVM) Reboot() {
	l.mu.Lock()
	for _, g := range l.groups {
		for _, v := range g.lvs {
			v.active, v.opens, v.mounts = false, 0, 0
		}
	}
	l.mu.Unlock()
	l.Restart()
}

// Restart restarts the process that uses the backend: after it commands work again that StopAt has stopped, and nothing
// is remembered but what is in the volume groups. No call may be under way.
func (l *LVM) Restart() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stopped, l.stop = false, nil
	l.CLI = lvm.NewCLI(l, l.options)
}

// Calls are the commands that came, without the options that all of one program have.
func (l *LVM) Calls() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.calls)
}

// ForgetCalls empties Calls.
func (l *LVM) ForgetCalls() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.calls = nil
}

// Check is whether every extent belongs to exactly one volume, or is free.
func (l *LVM) Check() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(l.groups)) {
		errs = append(errs, l.groups[name].check())
	}
	return errors.Join(errs...)
}

// Run is the stand-in for lvm2: it implements [lvm.Runner].
func (l *LVM) Run(ctx context.Context, cmd command.Command) (command.Result, error) {
	if ctx.Err() != nil {
		return command.Result{}, runnerTimeout(ctx, cmd.Argv, false, nil)
	}
	c, err := parseLVMCommand(cmd.Argv)
	if err != nil {
		return command.Result{ExitCode: 3, Stderr: []byte("  " + err.Error() + "\n")}, nil
	}
	fault, stop, err := l.arrive(c)
	if err != nil {
		return command.Result{}, err
	}
	if fault != nil && fault.hold {
		if err := fault.wait(ctx, cmd.Argv); err != nil {
			return command.Result{}, err
		}
	}
	if fault != nil && fault.stderr != "" {
		return command.Result{ExitCode: 5, Stderr: []byte("  " + fault.stderr + "\n")}, nil
	}
	l.mu.Lock()
	result := l.lockedExecute(c, stop == StopDuring)
	l.mu.Unlock()
	switch {
	case stop != "":
		return command.Result{}, ErrStopped
	case fault != nil && fault.lose:
		gone := make(chan struct{})
		close(gone)
		return command.Result{}, &command.TimeoutError{Argv: cmd.Argv, Started: true, Err: context.DeadlineExceeded, Exited: gone}
	}
	return result, nil
}
