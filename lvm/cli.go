package lvm

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/stateofworld/stateofworld/executor/command"
)

// Runner runs programs. It is the part of [command.Runner] that is needed here.
type Runner interface {
	Run(ctx context.Context, cmd command.Command) (command.Result, error)
}

// Options configure a [CLI]. The zero value is right for lvm2 run on the host, be it through nsenter.
type Options struct {
	// GlobalArgs are put first among the arguments of every lvm2 command: "--devices /dev/sdb", for instance, in two
	// elements. They are not validated.
	GlobalArgs []string
	// Config is configuration text as for lvm2's --config, which is added to this backend's own and cannot override it.
	Config string
	// Env are entries "NAME=value" that are added to the environment of every command, for instance LVM_SYSTEM_DIR.
	Env []string
	// InContainer is for lvm2 that runs in a container instead of the host's namespaces: it does not wait for a udev
	// that is not there, and makes the device nodes itself. The container then needs the host's /dev and, where
	// anything else uses lvm2 too, its /run/lock/lvm, without which the two do not exclude each other.
	InContainer bool
	// NoDeviceMapper is for kernels without device-mapper, as in tests: volumes are only written into the metadata.
	// They are made inactive and are neither zeroed nor wiped; only Linear and Striped ones can be made, and what needs
	// a device is ErrUnsupported.
	NoDeviceMapper bool
	// ReportTimeout is the deadline of one report, ChangeTimeout that of one command that changes something. 0 means 1
	// minute and 3 minutes; negative means none but the caller's. Wiping has none but the caller's.
	ReportTimeout, ChangeTimeout time.Duration
	// ProtectedTag is the tag that keeps a volume from being removed. Empty means "protected".
	ProtectedTag string
	// PoolFullPercent is from where on, of its data or its metadata, a thin pool takes no new volumes. 0 means 95.
	PoolFullPercent float64
}

// CLI is the [Backend] that runs lvm2's commands. Make it with [NewCLI].
type CLI struct {
	runner  Runner
	options Options
	config  string
	// changes has one key per volume group; it is held for everything that changes it. wipes has one per volume that is
	// being wiped.
	changes, wipes locks
	reports        flights
}

var _ Backend = (*CLI)(nil)

// NewCLI is the backend over lvm2 as the runner finds it. Several of them, in one process or many, may work on the same
// groups as far as lvm2's own locking goes, but only within one is checking and changing one step.
func NewCLI(runner Runner, o Options) *CLI {
	c := &CLI{runner: runner, options: o}
	c.options.GlobalArgs, c.options.Env = slices.Clone(o.GlobalArgs), slices.Clone(o.Env)
	if o.ReportTimeout == 0 {
		c.options.ReportTimeout = time.Minute
	}
	if o.ChangeTimeout == 0 {
		c.options.ChangeTimeout = 3 * time.Minute
	}
	if o.ProtectedTag == "" {
		c.options.ProtectedTag = "protected"
	}
	if o.PoolFullPercent == 0 {
		c.options.PoolFullPercent = 95
	}
	// The option may not be repeated, and of two values of one key the first counts.
	config := []string{`log{prefix="" command_names=0 report_command_log=0}`}
	if o.InContainer {
		config = append(config, "activation{udev_sync=0 udev_rules=0}")
	}
	if o.Config != "" {
		config = append(config, o.Config)
	}
	c.config = strings.Join(config, " ")
	return c
}

// argv is a whole lvm2 command.
func (c *CLI) argv(program string, args ...string) []string {
	argv := append([]string{program}, c.options.GlobalArgs...)
	if c.options.NoDeviceMapper {
		argv = append(argv, "--driverloaded", "n")
	}
	return append(append(argv, "--config", c.config), args...)
}

// run runs one command within a deadline of its own. What is not success is an *Error.
func (c *CLI) run(ctx context.Context, op, object string, timeout time.Duration, argv []string) (command.Result, error) {
	runCtx, cancel := ctx, context.CancelFunc(func() {})
	if timeout > 0 {
		runCtx, cancel = context.WithTimeout(ctx, timeout)
	}
	defer cancel()
	env := append([]string{"LVM_SUPPRESS_FD_WARNINGS=1"}, c.options.Env...)
	result, err := c.runner.Run(runCtx, command.Command{Argv: argv, Env: env})
	if err != nil {
		return command.Result{}, &Error{Op: op, Object: object, Argv: argv, Err: err}
	}
	if result.ExitCode != 0 {
		return command.Result{}, describe(op, object, argv, result)
	}
	return result, nil
}

// change runs one command that changes a volume group. The group must be locked.
func (c *CLI) change(ctx context.Context, op string, name Name, program string, args ...string) error {
	c.reports.forget(name.VG)
	_, err := c.run(ctx, op, name.String(), c.options.ChangeTimeout, c.argv(program, args...))
	c.reports.forget(name.VG)
	return err
}

// lock takes a volume group for changes. release is to be called with the error that came of them.
func (c *CLI) lock(ctx context.Context, op string, name Name) (release func(err error), err error) {
	free, err := c.changes.acquire(ctx, name.VG)
	if err != nil {
		return nil, failure(op, name.String(), nil, err)
	}
	return func(err error) { free(stuckIn(err)) }, nil
}

// stuckIn is the end of a command that has outlived its deadline, or nil.
func stuckIn(err error) <-chan struct{} {
	var timeout *command.TimeoutError
	if errors.As(err, &timeout) && !timeout.Gone() {
		return timeout.Exited
	}
	return nil
}

// reportArgv is a whole report command about one group, or about all where vg is empty.
func (c *CLI) reportArgv(program, fields, selection, vg string) []string {
	args := []string{"--reportformat", "json", "--units", "b", "--nosuffix", "-qq", "-o", fields}
	if selection != "" {
		args = append(args, "-S", selection)
	}
	if vg != "" {
		args = append(args, "--", vg)
	}
	return c.argv(program, args...)
}

// report runs a report, shared with others who ask the same, and returns its rows and its warnings.
func (c *CLI) report(ctx context.Context, op, object string, argv []string, section, vg string) ([]row, string, error) {
	result, err := c.reports.do(ctx, argv, vg, func(ctx context.Context) (command.Result, error) {
		return c.run(ctx, op, object, c.options.ReportTimeout, argv)
	})
	if err != nil {
		return nil, "", reported(op, object, argv, err)
	}
	rows, err := readRows(op, object, argv, result, section)
	return rows, string(result.Stderr), err
}

// fresh runs a report that begins now. It is for decisions: it sees what others have changed.
func (c *CLI) fresh(ctx context.Context, op, object string, argv []string, section string) ([]row, string, error) {
	result, err := c.run(ctx, op, object, c.options.ReportTimeout, argv)
	if err != nil {
		return nil, "", err
	}
	rows, err := readRows(op, object, argv, result, section)
	return rows, string(result.Stderr), err
}

// reported gives the error of a shared report the name of what this caller wanted.
func reported(op, object string, argv []string, err error) error {
	var e *Error
	if !errors.As(err, &e) {
		return &Error{Op: op, Object: object, Argv: argv, Err: err}
	}
	own := *e
	own.Op, own.Object = op, object
	return &own
}

func readRows(op, object string, argv []string, result command.Result, section string) ([]row, error) {
	doc, err := decodeDocument(result.Stdout)
	if err != nil {
		return nil, badOutput(op, object, argv, result, err)
	}
	rows, err := doc.rows(section)
	if err != nil {
		return nil, badOutput(op, object, argv, result, err)
	}
	return rows, nil
}

func badOutput(op, object string, argv []string, result command.Result, err error) error {
	return &Error{Op: op, Object: object, Kind: ErrBadOutput, Argv: argv, Stderr: string(result.Stderr), Err: err}
}
