// Command hostvolumes prepares the volumes of a pod on this machine, or shows what it would do.
//
//	hostvolumes -f pod.yaml                      shows the plan and the bindings, on a host in memory
//	hostvolumes -f pod.yaml -apply -base DIR     does it, as root, below DIR
//	hostvolumes -unmount -base DIR               takes down everything that is mounted below DIR
//
// The file holds a Pod, or a bare declaration as konlet takes it: spec: {containers, volumes}. With -o the bindings are
// written as a table, as JSON, or as arguments for docker run.
//
// Exit codes: 0 done, 1 failed for good, 2 wrong usage, 3 the file or the spec is invalid, 4 failed in a way that may
// pass: try again.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/stateofworld/stateofworld/executor/command"
	"github.com/stateofworld/stateofworld/executor/hostvolume"
)

const (
	exitDone = iota
	exitFailed
	exitUsage
	exitInvalid
	exitTryAgain
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the program
	os.Exit(run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// arguments are the command line.
type arguments struct {
	file, base, output     string
	dryRun, apply, unmount bool
}

// run is the program. It returns the exit code.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	a, err := parse(args, stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return exitDone
	case err != nil:
		return exitUsage // parse has said why
	}
	if a.unmount {
		env := newEnv(a.base)
		return report(stderr, env.UnmountExistingVolumes(ctx))
	}
	spec, err := load(a.file, stdin)
	if err != nil {
		fmt.Fprintln(stderr, err)
		return exitInvalid
	}
	result := &result{spec: spec}
	if a.apply {
		env := newEnv(a.base)
		result.Bindings, err = env.PrepareVolumesAndGetBindings(ctx, spec)
		if waitErr := env.Wait(context.WithoutCancel(ctx)); err == nil { // a mkfs that was begun is seen to its end
			err = waitErr
		}
	} else {
		result.Bindings, result.Plan, err = dryRun(ctx, a.base, spec)
	}
	if err != nil {
		return report(stderr, err)
	}
	if err := result.write(stdout, a.output); err != nil {
		return report(stderr, err)
	}
	return exitDone
}

func newEnv(base string) *hostvolume.Env {
	return &hostvolume.Env{
		Runner: command.Host(), Metadata: &hostvolume.HTTPMetadata{}, Options: hostvolume.Options{BaseDir: base},
	}
}

func parse(args []string, stderr io.Writer) (arguments, error) {
	var a arguments
	flags := flag.NewFlagSet("hostvolumes", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&a.file, "f", "", "`file` with a Pod or a konlet-style declaration; - is standard input")
	flags.BoolVar(&a.dryRun, "dry-run", false, "show the plan and the bindings on a host in memory (default)")
	flags.BoolVar(&a.apply, "apply", false, "prepare the volumes on this machine, below -base")
	flags.BoolVar(&a.unmount, "unmount", false, "unmount everything below -base")
	flags.StringVar(&a.base, "base", "", "`directory` below which everything is mounted; with -dry-run "+hostvolume.DefaultBaseDir+" unless given")
	flags.StringVar(&a.output, "o", "table", "`format` of the bindings: table, json or docker")
	if err := flags.Parse(args); err != nil {
		return a, err
	}
	if fault := a.fault(flags.Args()); fault != "" {
		err := errors.New("hostvolumes: " + fault)
		fmt.Fprintln(stderr, err)
		flags.Usage()
		return a, err
	}
	return a, nil
}

// fault is what is wrong with the arguments as a whole.
func (a arguments) fault(rest []string) string {
	modes := 0
	for _, mode := range []bool{a.dryRun, a.apply, a.unmount} {
		if mode {
			modes++
		}
	}
	switch {
	case len(rest) > 0:
		return "unexpected argument: " + strings.Join(rest, " ")
	case modes > 1:
		return "only one of -dry-run, -apply and -unmount can be given"
	case (a.apply || a.unmount) && a.base == "":
		return "-apply and -unmount need -base"
	case a.unmount && a.file != "":
		return "-unmount takes no -f: it unmounts everything below -base"
	case !a.unmount && a.file == "":
		return "-f is required"
	case !isFormat(a.output):
		return "unknown output format: " + a.output
	}
	return ""
}

// report writes an error, one line for each of its parts, and returns the exit code that goes with it.
func report(stderr io.Writer, err error) int {
	if err == nil {
		return exitDone
	}
	for _, line := range parts(err) {
		fmt.Fprintln(stderr, "hostvolumes:", line)
	}
	switch {
	case errors.Is(err, hostvolume.ErrInvalidSpec):
		return exitInvalid
	case errors.Is(err, hostvolume.ErrInvalidOptions):
		return exitUsage
	case hostvolume.Retryable(err):
		return exitTryAgain
	default:
		return exitFailed
	}
}

func parts(err error) []string {
	var lines []string
	if invalid, ok := err.(*hostvolume.InvalidSpecError); ok { //nolint:errorlint // one that is inside another is come to below
		for _, fault := range invalid.Faults {
			lines = append(lines, fmt.Sprintf("%v: %v", hostvolume.ErrInvalidSpec, fault))
		}
		return lines
	}
	var unmount *hostvolume.UnmountError
	if errors.As(err, &unmount) {
		for _, one := range unmount.Errs {
			lines = append(lines, one.Error())
		}
		return lines
	}
	var prepare *hostvolume.PrepareError
	if !errors.As(err, &prepare) {
		return []string{err.Error()}
	}
	for _, one := range prepare.Errs {
		lines = append(lines, parts(one)...)
	}
	for _, path := range prepare.Undone {
		lines = append(lines, "unmounted again: "+path)
	}
	for _, path := range prepare.Left {
		lines = append(lines, "left mounted: "+path)
	}
	return lines
}
