// Package table turns the output of this module's benchmarks into a Markdown table with medians, ratios and bars.
package table

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
)

// Run is what one `go test -bench` wrote.
type Run struct {
	// Config holds the lines "key: value": goos, goarch, cpu, and the versions that TestMain writes.
	Config map[string]string
	// Failed are benchmarks that failed, by their full name.
	Failed []string
	// Aborted is the reason why the run ended early; empty when it did not.
	Aborted string

	results map[key][]float64
	sizes   map[string][]int // of a benchmark
	counts  int              // results of one benchmark
}

// key names a figure.
type key struct {
	bench string // GetAttachState
	size  int    // 1000, of "n=1000" or "m=1000"
	side  string // ours
	unit  string // ns/op
}

// Parse reads the output of `go test -bench`. Lines that are not its own, as what a benchmark logs, are passed over; a result that
// cannot be read is an error, and so is no result at all.
func Parse(r io.Reader) (*Run, error) {
	run := &Run{Config: map[string]string{}, results: map[key][]float64{}, sizes: map[string][]int{}}
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	for n := 1; lines.Scan(); n++ {
		line := lines.Text()
		switch {
		case strings.HasPrefix(line, "Benchmark"):
			if err := run.result(line); err != nil {
				return nil, fmt.Errorf("line %d: %w", n, err)
			}
		case strings.HasPrefix(strings.TrimSpace(line), "--- FAIL: Benchmark"):
			name := strings.Fields(line)[2]
			run.Failed = append(run.Failed, strings.TrimPrefix(name, "Benchmark"))
		case strings.HasPrefix(line, "panic: "), strings.HasPrefix(line, "fatal error: "):
			run.Aborted = line
		default:
			if k, v, ok := strings.Cut(line, ": "); ok && !strings.ContainsAny(k, " \t") {
				if _, have := run.Config[k]; !have {
					run.Config[k] = strings.TrimSpace(v)
				}
			}
		}
	}
	if err := lines.Err(); err != nil {
		return nil, err
	}
	if len(run.results) == 0 {
		return nil, fmt.Errorf("no benchmark result in it: pass the output of `go test -bench`")
	}
	return run, nil
}

// result reads "BenchmarkGetAttachState/n=1000/ours-2   2549727   52.47 ns/op ...".
func (run *Run) result(line string) error {
	fields := strings.Fields(line)
	if len(fields) == 1 {
		return nil // the name alone, as it is written before a benchmark that logs something
	}
	if _, err := strconv.Atoi(fields[1]); err != nil {
		return nil // something that was logged after the name
	}
	if len(fields)%2 != 0 || len(fields) < 4 {
		return fmt.Errorf("cut off: %q", line)
	}
	parts := strings.Split(strings.TrimPrefix(fields[0], "Benchmark"), "/")
	if len(parts) != 3 {
		return fmt.Errorf("the name is not of the form name/n=size/side: %q", fields[0])
	}
	_, digits, ok := strings.Cut(parts[1], "=")
	size, err := strconv.Atoi(digits)
	if !ok || err != nil {
		return fmt.Errorf("no size in the name: %q", fields[0])
	}
	side, _, _ := strings.Cut(parts[2], "-") // without the number of processors
	for i := 2; i < len(fields); i += 2 {
		value, err := strconv.ParseFloat(fields[i], 64)
		if err != nil {
			return fmt.Errorf("not a number: %q", fields[i])
		}
		k := key{parts[0], size, side, fields[i+1]}
		run.results[k] = append(run.results[k], value)
		run.counts = max(run.counts, len(run.results[k]))
	}
	if !slices.Contains(run.sizes[parts[0]], size) {
		run.sizes[parts[0]] = append(run.sizes[parts[0]], size)
	}
	return nil
}

// median returns the median of what was measured, and whether anything was.
func (run *Run) median(k key) (float64, bool) {
	values := slices.Clone(run.results[k])
	if len(values) == 0 {
		return 0, false
	}
	slices.Sort(values)
	middle := len(values) / 2
	if len(values)%2 == 0 {
		return (values[middle-1] + values[middle]) / 2, true
	}
	return values[middle], true
}
