package fake

import (
	"context"
	"errors"
	"strings"
	"sync"
)

// ErrStopped is what every command of a stopped process ends in. The process would not see it: it is gone.
var ErrStopped = errors.New("fake: the process was stopped here")

// StopWhen is where, relative to a command, a process stops.
type StopWhen string

// The moments.
const (
	// StopBefore: the command is not run.
	StopBefore StopWhen = "before"
	// StopDuring: the command is killed with the process. An lvcreate has made the volume and not yet wiped it; a wipe
	// has done half; the others have done their work.
	StopDuring StopWhen = "during"
	// StopAfter: the command is done, and nobody hears of it.
	StopAfter StopWhen = "after"
)

type lvmStop struct {
	in   int
	when StopWhen
}

// StopAt stops the process that uses the backend at the n-th command from now on, counted from 1: that command and all
// later ones end in ErrStopped, until Restart.
func (l *LVM) StopAt(n int, when StopWhen) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stop = &lvmStop{n, when}
}

// Stopped is whether StopAt has stopped the process.
func (l *LVM) Stopped() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.stopped
}

// lvmFault is what happens to one command to come.
type lvmFault struct {
	program, vg string
	stderr      string
	lose        bool
	hold, hang  bool
	always      bool
	started     chan struct{}
	release     chan struct{}
	start, free sync.Once
}

// FailNext lets the next command of a program ("lvcreate", "lvs", ...) fail with exit code 5 and a message, without any
// effect.
func (l *LVM) FailNext(program, stderr string) {
	l.addFault(&lvmFault{program: program, stderr: stderr})
}

// LoseReply lets the next command of a program have its effect and be reported as one that passed its deadline.
func (l *LVM) LoseReply(program string) { l.addFault(&lvmFault{program: program, lose: true}) }

// Held is a command, or several, that do not go on.
type Held struct{ fault *lvmFault }

// Started is closed when the first of them has come.
func (h *Held) Started() <-chan struct{} { return h.fault.started }

// Release lets them go on. It may be called more than once.
func (h *Held) Release() { h.fault.free.Do(func() { close(h.fault.release) }) }

// Hold lets the next command of a program wait until Release, and then go on. When the context ends before, the program
// is killed and has no effect.
func (l *LVM) Hold(program string) *Held {
	f := &lvmFault{program: program, hold: true}
	l.addFault(f)
	return &Held{f}
}

// Hang lets every command about a volume group wait until Release, in such a way that it cannot be killed, as on a disk
// that does not answer.
func (l *LVM) Hang(vg string) *Held {
	f := &lvmFault{vg: vg, hold: true, hang: true, always: true}
	l.addFault(f)
	return &Held{f}
}

func (l *LVM) addFault(f *lvmFault) {
	f.started, f.release = make(chan struct{}), make(chan struct{})
	l.mu.Lock()
	defer l.mu.Unlock()
	l.faults = append(l.faults, f)
}

// arrive records a command and finds what is to happen to it.
func (l *LVM) arrive(c *lvmCommand) (*lvmFault, StopWhen, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stopped {
		return nil, "", ErrStopped
	}
	l.calls = append(l.calls, c.String())
	var stop StopWhen
	if l.stop != nil {
		if l.stop.in--; l.stop.in == 0 {
			stop, l.stopped = l.stop.when, true
			if stop == StopBefore {
				return nil, "", ErrStopped
			}
		}
	}
	for i, f := range l.faults {
		if f.program != "" && f.program != c.program || f.vg != "" && f.vg != c.vg() {
			continue
		}
		if !f.always {
			l.faults = append(l.faults[:i:i], l.faults[i+1:]...)
		}
		f.start.Do(func() { close(f.started) })
		return f, stop, nil
	}
	return nil, stop, nil
}

// wait holds a command until its release, or the end of its context.
func (f *lvmFault) wait(ctx context.Context, argv []string) error {
	select {
	case <-f.release:
		return nil
	case <-ctx.Done():
	}
	exited := f.release
	if !f.hang {
		exited = make(chan struct{})
		close(exited)
	}
	return runnerTimeout(ctx, argv, true, exited)
}

// vg is the group that a command is about, or empty.
func (c *lvmCommand) vg() string {
	if len(c.args) == 0 {
		return ""
	}
	vg, _, _ := strings.Cut(strings.TrimPrefix(c.args[0], "/dev/"), "/")
	return vg
}
