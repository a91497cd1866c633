package fake

import (
	"context"
	"errors"
	"io/fs"
	"strings"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/stateofworld/stateofworld/executor/command"
)

// Host is a machine in memory behind a [command.Runner]: directories, links and device nodes, block devices with
// contents, filesystems, and a mount table that stacks, nests and hides as Linux' does. On it run blkid, blockdev,
// mkfs, fsck, mount, umount and chmod, with the exit codes and messages of util-linux, e2fsprogs and xfsprogs. Code
// that prepares volumes can so be tested without root, and with a fault at any call.
//
// What a probe finds is read from the contents of the device: whoever overwrites the superblock gets a device that no
// probe recognises and that is not blank.
//
// The methods of command.Runner are calls: they are recorded, counted, and subject to [Host.Inject] and [Host.StopAt].
// All others arrange or look at the machine, and panic on what makes no sense, such as a path whose directory does not
// exist: that is a mistake in the test.
//
// A Host is safe for concurrent use. Its limits: one user, no permissions, no hard links, no quota; files and
// directories only, as far as the Runner reaches; and filesystems are ext2, ext3, ext4, xfs and tmpfs.
type Host struct {
	mu      sync.Mutex
	clock   clock.PassiveClock
	mounts  []*hostMount // in the order in which they were made; the first is the root
	devices map[hostNumber]*hostDevice
	held    map[*hostMount]int
	formats []HostFormat

	lastMount, lastAnonymous, lastDisk int

	calls   []HostCall
	faults  []*HostFault
	stopAt  int // index of a call, or -1
	stopEnd bool
	stopped bool
}

var _ command.Runner = (*Host)(nil)

// HostOption changes a default of [NewHost].
type HostOption func(*Host)

// HostClock sets the clock that says when a disk with a Delay appears, instead of the real one.
func HostClock(c clock.PassiveClock) HostOption { return func(h *Host) { h.clock = c } }

// NewHost returns a machine with an empty root filesystem that has /dev/disk/by-id, /etc, /mnt, /proc, /run, /tmp and
// /var.
func NewHost(opts ...HostOption) *Host {
	h := &Host{clock: clock.RealClock{}, devices: map[hostNumber]*hostDevice{}, held: map[*hostMount]int{}, stopAt: -1}
	for _, opt := range opts {
		opt(h)
	}
	root := &hostFS{fsType: "ext4", source: "/dev/root", super: "rw", number: hostNumber{254, 0}, root: newHostDir(0o755)}
	h.lastMount++
	h.mounts = []*hostMount{{id: h.lastMount, fs: root, node: root.root, path: "/"}}
	for _, dir := range []string{"/dev/disk/by-id", "/etc", "/mnt", "/proc", "/run", "/tmp", "/var"} {
		h.Mkdir(dir)
	}
	return h
}

// HostCall is one call of a method of command.Runner.
type HostCall struct {
	// Op is the name of the program for Run, else the name of the method.
	Op string
	// Argv is the command, or the name of the method and its path.
	Argv []string
	// Program is set for Run.
	Program bool
}

func (c HostCall) String() string { return command.Command{Argv: c.Argv}.String() }

// HostFault is what goes wrong with some calls. The zero value of every field but one of Err, Result and Gate is
// usable.
type HostFault struct {
	// Op matches the call's Op. Empty matches every call.
	Op string
	// Text must occur in the call's text, for instance a path.
	Text string
	// Skip is how many matching calls are spared first.
	Skip int
	// Times is how many matching calls fail after that. 0 means one, negative means all.
	Times int
	// Err is what the call fails with.
	Err error
	// Result is what a program ends with instead, if Err is nil.
	Result *command.Result
	// After lets the call have its effect first: the answer is lost, not the work.
	After bool
	// Gate holds the call until it is closed or the call's context ends, in which case there is no effect. Without Err
	// and Result the call then goes on as usual.
	Gate <-chan struct{}
}

// ErrHostStopped is what every call fails with after [Host.StopAt].
var ErrHostStopped = errors.New("fake host: the calling process has been stopped")

// Inject adds a fault. Of several that match a call, the first that was added counts.
func (h *Host) Inject(f HostFault) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if f.Times == 0 {
		f.Times = 1
	}
	h.faults = append(h.faults, &f)
}

// ClearFaults removes all faults.
func (h *Host) ClearFaults() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.faults = nil
}

// StopAt plays a process that is killed: from the call with index n on (counted from now, from 0), calls have no effect
// and fail with [ErrHostStopped]. With afterEffect the first of them still has its effect. The machine itself lives on;
// [Host.Restart] lets the next process in.
func (h *Host) StopAt(n int, afterEffect bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.stopAt, h.stopEnd, h.stopped = len(h.calls)+n, afterEffect, false
}

// Restart undoes StopAt and reports whether the process had been stopped.
func (h *Host) Restart() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	stopped := h.stopped
	h.stopAt, h.stopped = -1, false
	return stopped
}

// Calls are all calls until now.
func (h *Host) Calls() []HostCall {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]HostCall(nil), h.calls...)
}

// Commands are the programs that were run until now, as one would type them.
func (h *Host) Commands() []string {
	var out []string
	for _, call := range h.Calls() {
		if call.Program {
			out = append(out, call.String())
		}
	}
	return out
}

// ResetCalls forgets the calls until now.
func (h *Host) ResetCalls() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.stopAt >= 0 {
		h.stopAt -= len(h.calls)
	}
	h.calls = nil
}

// hostDo is the frame of every call: it records it, applies faults, and has the effect take place.
func hostDo[T any](ctx context.Context, h *Host, call HostCall, effect func() (T, error)) (T, error) {
	var none T
	if ctx.Err() != nil {
		return none, &command.TimeoutError{Argv: call.Argv, Err: ctx.Err(), Cause: context.Cause(ctx)}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	index := len(h.calls)
	h.calls = append(h.calls, call)
	if h.stopped {
		return none, ErrHostStopped
	}
	if h.stopAt >= 0 && index >= h.stopAt {
		h.stopped = true
		if h.stopEnd {
			_, _ = effect()
		}
		return none, ErrHostStopped
	}
	fault := h.match(call)
	if fault == nil {
		return effect()
	}
	if fault.Gate != nil {
		h.mu.Unlock()
		select {
		case <-fault.Gate:
			h.mu.Lock()
		case <-ctx.Done():
			h.mu.Lock()
			return none, &command.TimeoutError{Argv: call.Argv, Started: true, Err: ctx.Err(), Cause: context.Cause(ctx)}
		}
		if fault.Err == nil && fault.Result == nil {
			return effect()
		}
	}
	if fault.After {
		_, _ = effect()
	}
	if fault.Err == nil && fault.Result != nil {
		if result, ok := any(*fault.Result).(T); ok {
			return result, nil
		}
	}
	return none, fault.Err
}

func (h *Host) match(call HostCall) *HostFault {
	for _, f := range h.faults {
		if f.Op != "" && f.Op != call.Op || !strings.Contains(call.String(), f.Text) || f.Times == 0 {
			continue
		}
		if f.Skip > 0 {
			f.Skip--
			continue
		}
		if f.Times > 0 {
			f.Times--
		}
		found := *f
		return &found
	}
	return nil
}

// Run implements [command.Runner]. A program that the machine does not have is a [*command.SpawnError].
func (h *Host) Run(ctx context.Context, cmd command.Command) (command.Result, error) {
	if len(cmd.Argv) == 0 {
		return command.Result{}, &command.SpawnError{Err: errors.New("no program given")}
	}
	argv := append([]string(nil), cmd.Argv...)
	return hostDo(ctx, h, HostCall{Op: argv[0], Argv: argv, Program: true}, func() (command.Result, error) {
		program, ok := hostPrograms[argv[0]]
		if !ok {
			return command.Result{}, &command.SpawnError{Argv: argv, Err: fs.ErrNotExist}
		}
		return program(h, argv), nil
	})
}

// HoldOpen keeps the filesystem that one sees at a mount point in use, as an open file does: it cannot be unmounted
// until release is called.
func (h *Host) HoldOpen(mountPoint string) (release func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	m := h.mustWalk(mountPoint).mount
	h.held[m]++
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.held[m]--
	}
}

func hostTime(h *Host, delay time.Duration) time.Time {
	if delay <= 0 {
		return time.Time{}
	}
	return h.clock.Now().Add(delay)
}
