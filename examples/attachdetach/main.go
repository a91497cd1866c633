// Command attachdetach runs the attach/detach loop of this library on a storage that exists in memory only: on a small
// built-in world, or on the dump of a real cluster. Nothing outside the program is changed.
//
// It is also an example of how the library is wired: newSimulation in run.go, the driver in backend.go, and what feeds the
// worlds in seed.go.
package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"github.com/stateofworld/stateofworld/examples/internal/manifest"
)

// The exit codes.
const (
	exitConverged    = 0
	exitNotConverged = 1
	exitBadInput     = 2
)

const usage = `attachdetach shows which volumes would be attached and detached, and why.

It runs the real loop of the library on a storage that exists in memory only.
Nothing outside the program is changed, and no cluster is contacted.

Usage:

  attachdetach [flags]            a small built-in world: three nodes, a few pods
  attachdetach -f FILE [flags]    a dump of a cluster

Flags:

  -f FILE         a dump, JSON or YAML; repeat it for more files; - is standard input
  -o FORMAT       table (default), or json: one document, and what happens on stderr
  -v              a line for everything that happens, also when there are many volumes
  -timeout TIME   how long to try (default 30s)
  -latency TIME   how long the storage takes for a call, on average (default 100ms)
  -fail-rate R    the share of calls that fail, from 0 to 1 (default 0)
  -seed N         another N is another luck: who fails, what takes how long (default 1)
  -h              this text

Examples:

  kubectl get nodes,pods,pvc,pv,volumeattachments,csidrivers -A -o json > dump.json
  attachdetach -f dump.json
  attachdetach -f dump.json -fail-rate 0.2 -seed 7
  kubectl get ... -o yaml | attachdetach -f - -o json | jq '.volumes[] | select(.converged | not)'

A dump of many thousands of pods is better JSON than YAML: it is read in one go,
and most of it is passed over.

What a dump says is taken for the truth of that moment: attached is what the
status of the nodes and the VolumeAttachments say, and what a node has in use
stays in use. So a dump can well end not converged; the table says why.

The table names a volume by its claim, or else by its PersistentVolume.

Exit codes:

  0   converged: volumes are attached where pods use them, and nowhere else
      (pods whose volumes cannot be resolved are listed, and do not count)
  1   not converged
  2   bad flags or bad input: nothing was done
`

// options are what the flags say.
type options struct {
	files    []string
	format   string
	verbose  bool
	timeout  time.Duration
	latency  time.Duration
	failRate float64
	seed     uint64
}

func parseFlags(args []string) (options, error) {
	o := options{format: "table", timeout: 30 * time.Second, latency: 100 * time.Millisecond, seed: 1}
	flags := flag.NewFlagSet("attachdetach", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.Func("f", "", func(file string) error {
		o.files = append(o.files, file)
		return nil
	})
	flags.StringVar(&o.format, "o", o.format, "")
	flags.BoolVar(&o.verbose, "v", false, "")
	value(flags, "timeout", &o.timeout, time.ParseDuration, "must be a time like 30s or 2m")
	value(flags, "latency", &o.latency, time.ParseDuration, "must be a time like 100ms")
	value(flags, "fail-rate", &o.failRate, func(s string) (float64, error) { return strconv.ParseFloat(s, 64) }, "must be a number from 0 to 1")
	value(flags, "seed", &o.seed, func(s string) (uint64, error) { return strconv.ParseUint(s, 10, 64) }, "must be a whole number")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	return o, o.validate(flags.Args())
}

// value defines a flag whose error says what it must be.
func value[T any](flags *flag.FlagSet, name string, to *T, parse func(string) (T, error), must string) {
	flags.Func(name, "", func(text string) error {
		v, err := parse(text)
		if err != nil {
			return errors.New(must)
		}
		*to = v
		return nil
	})
}

func (o *options) validate(rest []string) error {
	seen := map[string]bool{}
	for _, file := range o.files {
		if file == "" {
			return errors.New("-f: the name of the file is empty")
		}
		if seen[file] {
			return fmt.Errorf("-f %s is given twice", file)
		}
		seen[file] = true
	}
	switch {
	case len(rest) > 0:
		return fmt.Errorf("unexpected argument %q: a file is given with -f", rest[0])
	case o.format != "table" && o.format != "json":
		return fmt.Errorf("-o %q: must be table or json", o.format)
	case o.timeout <= 0:
		return fmt.Errorf("-timeout %s: must be more than zero", o.timeout)
	case o.latency < 0:
		return fmt.Errorf("-latency %s: must not be negative", o.latency)
	case !(o.failRate >= 0 && o.failRate <= 1): // so that NaN is neither
		return fmt.Errorf("-fail-rate %v: must be from 0 to 1", o.failRate)
	}
	return nil
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends the program at once
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
		return exitConverged
	case err != nil:
		fmt.Fprintf(stderr, "attachdetach: %s\nRun it with -h for help.\n", manifest.Cleaned(err.Error()))
		return exitBadInput
	}
	line := newProgress(stderr)
	d, err := read(ctx, o, stdin, line)
	line.erase()
	if err != nil {
		fmt.Fprintf(stderr, "attachdetach: %v\n", err)
		if errors.Is(err, errInterrupted) {
			return exitNotConverged
		}
		return exitBadInput
	}
	code, err := reconcile(ctx, d, o, line, stdout, stderr)
	if err != nil {
		line.erase()
		fmt.Fprintf(stderr, "attachdetach: %s\n", manifest.Cleaned(err.Error()))
		return exitNotConverged
	}
	return code
}

var errInterrupted = errors.New("interrupted while reading; nothing was done")

// read loads the dump, or returns the built-in world.
func read(ctx context.Context, o options, stdin io.Reader, line *progress) (*dump, error) {
	if len(o.files) == 0 {
		return builtinWorld(), nil
	}
	type loadedDump struct {
		dump *dump
		err  error
	}
	// In a goroutine of its own, since a read from a pipe or a terminal cannot be interrupted.
	var soFar loading
	done := make(chan loadedDump, 1)
	go func() {
		d, err := load(ctx, o.files, stdin, &soFar)
		done <- loadedDump{d, err}
	}()
	ticker := time.NewTicker(progressPeriod)
	defer ticker.Stop()
	for {
		select {
		case l := <-done:
			if ctx.Err() != nil {
				return nil, errInterrupted
			}
			return l.dump, l.err
		case <-ctx.Done():
			return nil, errInterrupted
		case <-ticker.C:
			line.show(func() string {
				return fmt.Sprintf("reading: %d objects, %d MB", soFar.objects.Load(), soFar.bytes.Load()>>20)
			})
		}
	}
}

// reconcile runs the loop and prints what comes of it.
func reconcile(ctx context.Context, d *dump, o options, line *progress, stdout, stderr io.Writer) (int, error) {
	s, err := newSimulation(d, o)
	if err != nil {
		return 0, err
	}
	out := bufio.NewWriter(stdout)
	log := stdout
	if o.format == "json" {
		log = stderr
	}
	p := s.printer(log, line)
	unresolved := s.worlds.unresolved()
	from := "built in; see -h for how to load your own"
	if len(o.files) > 0 {
		from = "from"
		for _, file := range o.files {
			from += " " + manifest.FileName(file)
		}
	}
	p.say("loaded", "%s (%s)", d.size(), from)
	p.skipped(d.skipped.list(), unresolved)

	v, err := s.run(ctx, o.timeout, func() { s.tick(p) })
	if err != nil {
		return 0, err
	}
	line.erase()
	r := result{
		Converged: v.converged, Why: v.why, Seconds: v.took.Seconds(), Volumes: v.rows, Events: v.events,
		Loaded:  loaded{len(d.nodes), len(d.pods), len(d.claims), len(d.volumes), len(d.attachments)},
		Skipped: d.skipped.list(), Unresolved: unresolved,
	}
	if o.format == "json" {
		err = printJSON(out, r)
	} else {
		fmt.Fprintln(out)
		printTable(out, r.Volumes)
		fmt.Fprintf(out, "\n%s\n", conclusion(r))
	}
	if err := errors.Join(err, out.Flush()); err != nil {
		return 0, fmt.Errorf("write the result: %w", err)
	}
	if !v.converged {
		return exitNotConverged, nil
	}
	return exitConverged, nil
}
