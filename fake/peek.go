package fake

import (
	"context"

	"github.com/stateofworld/stateofworld/executor/command"
	"github.com/stateofworld/stateofworld/lvm"
)

// Peek lists the logical volumes of a group as they are. It is the test that looks, not the process: it is not among the Calls, meets none of the faults that
// wait for the process, and works while the process is stopped.
func (l *LVM) Peek(ctx context.Context, vg string) ([]lvm.LogicalVolume, error) {
	return lvm.NewCLI(lvmPeek{l}, l.options).List(ctx, vg)
}

// Heal drops the faults that have not happened yet.
func (l *LVM) Heal() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.faults = nil
}

type lvmPeek struct{ l *LVM }

func (p lvmPeek) Run(_ context.Context, cmd command.Command) (command.Result, error) {
	c, err := parseLVMCommand(cmd.Argv)
	if err != nil {
		return command.Result{ExitCode: 3, Stderr: []byte(err.Error())}, nil
	}
	p.l.mu.Lock()
	defer p.l.mu.Unlock()
	return p.l.lockedExecute(c, false), nil
}
