//go:build linux

// Command million has one reconciler attach a million volumes to 33,334 nodes, with a driver that answers at once, and prints how
// long that took, what it costs when there is nothing to do, how soon a new wish reaches the driver, and the memory.
//
//	go run ./cmd/million
//
// It exits with 1 if it does not get there in time or needs more memory than the limit, and with 2 for bad flags.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"slices"
	"syscall"
	"time"

	"github.com/stateofworld/stateofworld/reconciler/benchmark/internal/fleet"
)

func main() {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// options are the flags.
type options struct {
	n       int
	samples int
	idle    time.Duration
	timeout time.Duration
	limit   int64 // bytes
}

func parse(args []string, stderr io.Writer) (o options, err error) {
	flags := flag.NewFlagSet("million", flag.ContinueOnError)
	flags.SetOutput(stderr)
	mib := int64(2048)
	flags.IntVar(&o.n, "n", 1_000_000, "how many attachments, thirty on each node")
	flags.IntVar(&o.samples, "samples", 1000, "how many wishes to time after that, one after another")
	flags.DurationVar(&o.idle, "idle", 10*time.Second, "how long to watch it do nothing")
	flags.DurationVar(&o.timeout, "timeout", 10*time.Minute, "how long all of it may take")
	flags.Int64Var(&mib, "memory", mib, "MiB that may be needed at the peak beside the API objects, which are the caller's; 0 = any")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	o.limit = mib << 20
	switch {
	case flags.NArg() > 0:
		err = fmt.Errorf("unexpected argument %q", flags.Arg(0))
	case o.n < 1:
		err = fmt.Errorf("-n %d: at least 1", o.n)
	case o.samples < 1:
		err = fmt.Errorf("-samples %d: at least 1", o.samples)
	case o.idle <= 0 || o.timeout <= 0:
		err = errors.New("-idle and -timeout: more than 0")
	case mib < 0:
		err = fmt.Errorf("-memory %d: at least 0", mib)
	}
	if err != nil {
		fmt.Fprintln(stderr, "million:", err)
	}
	return o, err
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	o, err := parse(args, stderr)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	if err != nil {
		return 2
	}
	ctx, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	ok, err := measure(ctx, o, stdout, newProgress(stderr))
	if err != nil {
		fmt.Fprintln(stderr, "million:", err)
		return 1
	}
	if !ok {
		return 1
	}
	return 0
}

// measure does it, and says whether the memory was within the limit.
func measure(ctx context.Context, o options, out io.Writer, p *progress) (ok bool, err error) {
	line := func(name, format string, args ...any) {
		p.clear()
		fmt.Fprintf(out, "%-20s %s\n", name, fmt.Sprintf(format, args...))
	}
	p.show("making the objects")
	before, start := heap(), time.Now()
	f := fleet.New(o.n + o.samples)
	objects := heap() - before
	line("attachments", "%d on %d nodes; %s, %d processors", o.n, (o.n+fleet.PerNode-1)/fleet.PerNode, runtime.Version(), runtime.GOMAXPROCS(0))
	line("API objects made", "%v, %s", round(time.Since(start)), size(objects))

	if o.limit > 0 {
		// The collector is told a little less: its limit is a soft one, and not for everything.
		defer debug.SetMemoryLimit(debug.SetMemoryLimit(int64(objects) + o.limit/16*15))
	}

	c, err := newController()
	if err != nil {
		return false, err
	}
	start = time.Now()
	if err := c.load(ctx, f, o.n, p); err != nil {
		return false, err
	}
	line("loaded", "%v", round(time.Since(start)))

	start = time.Now()
	c.run()
	defer c.stop()
	if err := c.converge(ctx, o.n, p); err != nil {
		return false, err
	}
	took := time.Since(start)
	line("converged", "%v, %v an attach", round(took), round(took/time.Duration(o.n)))

	kept := heap() - before - objects
	p.show("watching it do nothing")
	busy, err := idle(ctx, o.idle)
	if err != nil {
		return false, err
	}
	line("processor while idle", "%.3f %% of a core, over %v", busy, o.idle)

	waits, err := c.wishes(ctx, f.Attachments[o.n:], p)
	if err != nil {
		return false, err
	}
	slices.Sort(waits)
	line("wish → driver call", "p50 %v, p99 %v, longest %v, of %d", round(waits[len(waits)/2]), round(waits[len(waits)*99/100]), round(waits[len(waits)-1]), len(waits))
	line("memory kept", "%s for both worlds and the reconciler, %.0f B an attachment", size(kept), kept/float64(o.n))
	peak, err := peakMemory()
	if err != nil {
		return false, err
	}
	runtime.KeepAlive(f)
	beside := peak - objects
	within := o.limit == 0 || beside <= float64(o.limit)
	answer := ""
	if o.limit > 0 {
		answer = map[bool]string{true: ", within ", false: ", MORE THAN "}[within] + size(float64(o.limit))
	}
	line("memory at the peak", "%s of the process; %s beside the API objects%s", size(peak), size(beside), answer)
	return within, nil
}

// idle returns how much of a core the process takes while nothing happens, in percent.
func idle(ctx context.Context, d time.Duration) (percent float64, err error) {
	debug.FreeOSMemory() // collects, and gives back at once what would be given back in the background
	if err := pause(ctx, min(d, 2*time.Second)); err != nil {
		return 0, err
	}
	start, cpu := time.Now(), cpuTime()
	if err := pause(ctx, d); err != nil {
		return 0, err
	}
	return 100 * (cpuTime() - cpu).Seconds() / time.Since(start).Seconds(), nil
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
