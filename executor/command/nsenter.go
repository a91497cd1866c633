package command

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Namespace is a kind of namespace, by the name of nsenter's option for it.
type Namespace string

// The namespaces that nsenter can enter.
const (
	Mount   Namespace = "mount"
	IPC     Namespace = "ipc" // lvm2 and udev talk through System V semaphores, so it belongs to Mount
	UTS     Namespace = "uts"
	Network Namespace = "net" // udev's netlink messages are per network namespace
	PID     Namespace = "pid"
	Cgroup  Namespace = "cgroup" // unknown to old kernels
)

// NSEnterOptions says how [NSEnter] gets at the other namespaces. The zero value is right for a privileged container
// that shares the host's PID namespace.
type NSEnterOptions struct {
	// TargetPID is the process whose namespaces are entered, as seen from here. 0 means 1.
	TargetPID int
	// Namespaces are those that are entered. Empty means Mount, IPC, UTS and Network.
	Namespaces []Namespace
	// Program is nsenter itself, looked up in this process' namespaces. Empty means "nsenter".
	Program string
	// Options are those of the runner. [WithPath] holds on both sides.
	Options []HostOption
}

// NSEnterRunner is a [Runner] in the namespaces of another process.
type NSEnterRunner struct {
	host   *HostRunner
	prefix []string
}

var _ Runner = (*NSEnterRunner)(nil)

// NSEnter is the runner for the namespaces of another process, through the program nsenter of util-linux. It needs the
// right to enter them: usually root with CAP_SYS_ADMIN and CAP_SYS_PTRACE, in the host's PID namespace.
func NSEnter(o NSEnterOptions) (*NSEnterRunner, error) {
	if o.TargetPID < 0 {
		return nil, fmt.Errorf("nsenter: target process %d: %w", o.TargetPID, errInvalidOption)
	}
	program, target, namespaces := o.Program, o.TargetPID, o.Namespaces
	if program == "" {
		program = "nsenter"
	}
	if strings.HasPrefix(program, "-") || strings.ContainsRune(program, 0) {
		return nil, fmt.Errorf("nsenter: program %q: %w", program, errInvalidOption)
	}
	if target == 0 {
		target = 1
	}
	if len(namespaces) == 0 {
		namespaces = []Namespace{Mount, IPC, UTS, Network}
	}
	prefix := []string{program, "--target", strconv.Itoa(target)}
	for _, ns := range namespaces {
		switch ns {
		case Mount, IPC, UTS, Network, PID, Cgroup:
			prefix = append(prefix, "--"+string(ns))
		default:
			return nil, fmt.Errorf("nsenter: namespace %q: %w", ns, errInvalidOption)
		}
	}
	return &NSEnterRunner{host: Host(o.Options...), prefix: append(prefix, "--")}, nil
}

var errInvalidOption = errors.New("invalid option")

// Prefix is what is put before every argument list. It ends with "--". The slice belongs to the caller.
func (r *NSEnterRunner) Prefix() []string { return append([]string(nil), r.prefix...) }

// Alive is how many programs are past their deadline and still there; see [HostRunner.Alive].
func (r *NSEnterRunner) Alive() int { return r.host.Alive() }

// Wait returns when nothing that this runner has started is left, or when ctx ends.
func (r *NSEnterRunner) Wait(ctx context.Context) error { return r.host.Wait(ctx) }

// Run implements [Runner].
func (r *NSEnterRunner) Run(ctx context.Context, cmd Command) (Result, error) {
	return r.run(ctx, cmd, r.host.options.outputLimit)
}

func (r *NSEnterRunner) run(ctx context.Context, cmd Command, limit int64) (Result, error) {
	if err := checkArgv(cmd.Argv); err != nil {
		return Result{}, &SpawnError{Argv: cmd.Argv, Err: err}
	}
	argv := append(r.Prefix(), cmd.Argv...)
	result, err := r.host.run(ctx, Command{Argv: argv, Env: cmd.Env}, limit)
	if err != nil {
		return Result{}, err
	}
	if reason := nsenterFailure(result); reason != "" {
		return Result{}, &SpawnError{Argv: argv, Err: spawnReason(reason)}
	}
	return result, nil
}

// nsenterFailure is nsenter's own message where it did not get as far as starting the program. Its exit codes (1, 126,
// 127) alone say nothing, since the program may use them too.
func nsenterFailure(result Result) string {
	switch result.ExitCode {
	case 1, 126, 127:
	default:
		return ""
	}
	if len(result.Stdout) != 0 || !bytes.HasPrefix(result.Stderr, []byte("nsenter: ")) {
		return ""
	}
	return strings.TrimSpace(string(result.Stderr))
}

// spawnReason keeps the meaning of the system error at the end of a message.
func spawnReason(message string) error {
	if errno := errnoOf(message); errno != nil {
		return &textError{text: message, err: errno}
	}
	return errors.New(message)
}

// textError is the message of another program, with the system error that it ends in.
type textError struct {
	text string
	err  error
}

func (e *textError) Error() string { return e.text }
func (e *textError) Unwrap() error { return e.err }
