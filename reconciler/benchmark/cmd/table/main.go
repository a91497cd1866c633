// Command table reads what the benchmarks of this module wrote, from a file or from standard input, and prints the table of
// medians, ratios and bars as Markdown.
//
//	go run ./cmd/table raw.txt
//
// It exits with 1 if a benchmark failed or is missing (the others are in the table), and with 2 if there is nothing to be read.
package main

import (
	"fmt"
	"io"
	"os"

	"github.com/stateofworld/stateofworld/reconciler/benchmark/internal/table"
)

func main() { os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr)) }

func run(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	in := stdin
	switch {
	case len(args) > 1 || len(args) == 1 && len(args[0]) > 1 && args[0][0] == '-':
		fmt.Fprintln(stderr, "usage: table [raw.txt], the output of: go test -run '^$' -bench . -count 3 .")
		return 2
	case len(args) == 1 && args[0] != "-":
		f, err := os.Open(args[0])
		if err != nil {
			fmt.Fprintln(stderr, "table:", err)
			return 2
		}
		defer f.Close()
		in = f
	}
	results, err := table.Parse(in)
	if err != nil {
		fmt.Fprintln(stderr, "table: read the output of the benchmarks:", err)
		return 2
	}
	sum, err := results.Write(stdout)
	if err != nil {
		fmt.Fprintln(stderr, "table:", err)
		return 2
	}
	fmt.Fprintf(stderr, "bars: %d reached, %d missed, %d not measured\n", sum.Reached, sum.Missed, sum.Unknown)
	if len(results.Failed) > 0 || results.Aborted != "" || sum.Unknown > 0 {
		return 1
	}
	return 0
}
