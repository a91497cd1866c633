// Command nodeagent runs the agent and the provisioner of package lvm/lifecycle against an API server in memory, and either against an lvm2 in memory or
// against the real one of this machine.
//
// It is also an example of how the two are wired: newNode in node.go. What keeps the program off logical volumes that are not its own is in guard.go.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/stateofworld/stateofworld/examples/internal/manifest"
	"github.com/stateofworld/stateofworld/lvm"
)

// The exit codes.
const (
	exitDone     = 0
	exitFailed   = 1
	exitBadInput = 2
)

const usage = `nodeagent shows how logical volumes are made and removed on a node, as annotations
on claims and volumes ask for it.

It runs the real agent and provisioner of the library. The API server is always one
in memory: no cluster is contacted. Unless -vg is given, so is lvm2.

Usage:

  nodeagent [flags]            the life of a few claims
  nodeagent -f FILE [flags]    works off what is asked for in a file

Flags:

  -f FILE            PersistentVolumeClaims, PersistentVolumes and lists of them, YAML or
                     JSON; repeat it for more files; - is standard input
  -node NAME         the node whose agent this is (default node-a)
  -vg NAME           use the real lvm2 of this machine, in this volume group only
  -lvm-config TEXT   text for lvm2's --config, with -vg
  -no-device-mapper  do without device-mapper, with -vg: logical volumes are made in the
                     metadata and stay inactive
  -o FORMAT          table (default), or json: one document, and what happens on stderr
  -timeout TIME      how long to try (default 1m)
  -h                 this text

Examples:

  nodeagent
  nodeagent -f claims.yaml
  kubectl get pvc,pv -A -o json | nodeagent -f - -node worker-1 -o json
  sudo nodeagent -vg vg0
  sudo nodeagent -vg vg0 -f claims.yaml
  sudo nodeagent -vg vg0 -lvm-config 'activation{udev_sync=0 udev_rules=0}'   in a container

A claim asks with annotations (so does a volume, with "deleting" and "vg0/pvc-1"):

  volume.kubernetes.io/selected-node:       node-a
  pv.csi.alibabacloud.com/volume.lifecycle: creating
  pv.csi.alibabacloud.com/volume.spec:      '{"volumeGroup":"vg0","name":"pvc-1","size":1073741824}'

With -f, volumes come first, so that what is removed makes room for what is created. In
memory, the groups that are named are there, and in them the logical volumes of the
claims that say "created" and of the volumes.

With -vg, only logical volumes that this program has made are changed or removed: they
carry the tag nodeagent. Without -f all are removed again before the end. With -f they
stay; a later run knows its own again, by the namespaces and names of the claims.
LVM_SYSTEM_DIR is handed on to lvm2. Ctrl-C stops and cleans up; another one does not.

Exit codes:

  0   everything is as it should be
  1   something failed, or was not finished in time; the reason is printed
  2   bad flags or bad input: nothing was done
`

// options are what the flags say.
type options struct {
	files          []string
	node           string
	vg             string
	lvmConfig      string
	noDeviceMapper bool
	format         string
	timeout        time.Duration
}

// real is whether logical volumes are made on this machine.
func (o options) real() bool { return o.vg != "" }

func parseFlags(args []string) (options, error) {
	o := options{node: "node-a", format: "table", timeout: time.Minute}
	flags := flag.NewFlagSet("nodeagent", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.Func("f", "", func(file string) error {
		o.files = append(o.files, file)
		return nil
	})
	flags.StringVar(&o.node, "node", o.node, "")
	flags.StringVar(&o.vg, "vg", "", "")
	flags.StringVar(&o.lvmConfig, "lvm-config", "", "")
	flags.BoolVar(&o.noDeviceMapper, "no-device-mapper", false, "")
	flags.StringVar(&o.format, "o", o.format, "")
	flags.Func("timeout", "", func(text string) (err error) {
		if o.timeout, err = time.ParseDuration(text); err != nil {
			return errors.New("must be a time like 30s or 2m")
		}
		return nil
	})
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	given := map[string]bool{}
	flags.Visit(func(f *flag.Flag) { given[f.Name] = true })
	return o, o.validate(flags.Args(), given)
}

func (o options) validate(rest []string, given map[string]bool) error {
	for i, file := range o.files {
		switch {
		case file == "":
			return errors.New("-f: the name of the file is empty")
		case slices.Contains(o.files[:i], file):
			return fmt.Errorf("-f %s is given twice", file)
		}
	}
	if reasons := validation.IsDNS1123Subdomain(o.node); len(reasons) > 0 {
		return fmt.Errorf("-node %q: cannot be the name of a node: %s", o.node, reasons[0])
	}
	if given["vg"] {
		if err := lvm.ValidateVGName(o.vg); err != nil {
			return fmt.Errorf("-vg: %w", err)
		}
	}
	for _, name := range []string{"lvm-config", "no-device-mapper"} {
		if given[name] && !given["vg"] {
			return fmt.Errorf("-%s is for the real lvm2: it needs -vg", name)
		}
	}
	switch {
	case len(rest) > 0:
		return fmt.Errorf("unexpected argument %q: a file is given with -f", rest[0])
	case o.format != "table" && o.format != "json":
		return fmt.Errorf("-o %q: must be table or json", o.format)
	case o.timeout <= 0:
		return fmt.Errorf("-timeout %s: must be more than zero", o.timeout)
	}
	return nil
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// A second Ctrl-C ends the program at once and leaves behind what it has made; but the same signal may come twice, as from timeout(1).
	context.AfterFunc(ctx, func() { time.AfterFunc(time.Second, stop) })
	code := run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// run is the whole program but for the process around it. It returns the exit code.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	o, err := parseFlags(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprint(stdout, usage)
		return exitDone
	case err != nil:
		fmt.Fprintf(stderr, "nodeagent: %s\nRun it with -h for help.\n", manifest.Cleaned(err.Error()))
		return exitBadInput
	}
	var input []object
	if len(o.files) > 0 {
		if input, err = read(ctx, o, stdin); err != nil {
			fmt.Fprintf(stderr, "nodeagent: %v\n", err)
			if errors.Is(err, errInterrupted) {
				return exitFailed
			}
			return exitBadInput
		}
	}
	if err := work(ctx, o, input, stdout, stderr); err != nil {
		if errors.Is(err, errNotAsItShall) { // which says why by itself
			return exitFailed
		}
		fmt.Fprintf(stderr, "nodeagent: %s\n", manifest.Cleaned(err.Error()))
		var hint *hintError
		if errors.As(err, &hint) {
			fmt.Fprintln(stderr, hint.next)
		}
		return exitFailed
	}
	return exitDone
}

var errInterrupted = errors.New("interrupted while reading; nothing was done")

// read loads the files, in a goroutine of its own, since a read from a pipe or a terminal cannot be interrupted.
func read(ctx context.Context, o options, stdin io.Reader) ([]object, error) {
	type loaded struct {
		objects []object
		err     error
	}
	done := make(chan loaded, 1)
	go func() {
		objects, err := load(o.files, stdin)
		done <- loaded{objects, err}
	}()
	select {
	case l := <-done:
		return l.objects, l.err
	case <-ctx.Done():
		return nil, errInterrupted
	}
}
