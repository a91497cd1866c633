package fake

import (
	"context"

	"github.com/stateofworld/stateofworld/executor/command"
	"github.com/stateofworld/stateofworld/lvm"
)

// Direct returns a backend on the same volume groups for what the test itself does and looks at: its commands are not among the Calls, meet none of the
// faults that wait for the process, and work while the process is stopped.
func (l *LVM) Direct() *lvm.CLI { return lvm.NewCLI(lvmDirect{l}, l.options) }

// Heal drops the faults that have not happened yet.
func (l *LVM) Heal() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.faults = nil
}

// lvmDirect runs commands as the LVM does, and nothing happens to them.
type lvmDirect struct{ l *LVM }

func (d lvmDirect) Run(_ context.Context, cmd command.Command) (command.Result, error) {
	c, err := parseLVMCommand(cmd.Argv)
	if err != nil {
		return command.Result{ExitCode: 3, Stderr: []byte(err.Error())}, nil
	}
	d.l.mu.Lock()
	defer d.l.mu.Unlock()
	return d.l.lockedExecute(c, false), nil
}
