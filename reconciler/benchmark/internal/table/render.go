package table

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Summary is what a table says in numbers.
type Summary struct {
	// Reached, Missed and Unknown count bars, each at each of its sizes.
	Reached, Missed, Unknown int
}

// Write writes the table, and returns how the bars came out.
func (run *Run) Write(w io.Writer) (Summary, error) {
	var out strings.Builder
	var sum Summary
	run.header(&out)
	out.WriteString("| work | n, m | here | Kubernetes | ÷ here | StateDB | ÷ here | bare map | ÷ here | bar | reached |\n")
	out.WriteString("|---|---:|---:|---:|---:|---:|---:|---:|---:|---|---|\n")
	for _, r := range rows {
		sizes := run.sizesOf(r)
		if len(sizes) == 0 {
			fmt.Fprintf(&out, "| %s | | not measured | | | | | | | | |\n", r.work)
			sum.Unknown += len(r.bars)
		}
		for _, size := range sizes {
			fmt.Fprintf(&out, "| %s | %s | %s", r.work, thousands(size), run.cell(r, size, ours))
			for _, peer := range []string{kubernetes, stateDB, bareMap} {
				ratio := ""
				if v, ok := run.ratio(r, size, peer); ok {
					ratio = number(v)
				}
				fmt.Fprintf(&out, " | %s | %s", run.cell(r, size, peer), ratio)
			}
			text, reached := run.bars(r, size, &sum)
			fmt.Fprintf(&out, " | %s | %s |\n", text, reached)
		}
	}
	run.footer(&out)
	_, err := io.WriteString(w, out.String())
	return sum, err
}

// sizesOf returns the sizes that were measured, and those that should have been.
func (run *Run) sizesOf(r row) []int {
	sizes := slices.Clone(run.sizes[r.bench])
	for _, b := range r.bars {
		if b.at != 0 && !slices.Contains(sizes, b.at) {
			sizes = append(sizes, b.at)
		}
	}
	slices.Sort(sizes)
	return sizes
}

func (run *Run) header(out *strings.Builder) {
	var parts []string
	for _, c := range []struct{ key, name string }{
		{"go", ""}, {"k8s.io/kubernetes", "Kubernetes"}, {"github.com/cilium/statedb", "StateDB"}, {"cpu", ""}, {"gomaxprocs", "GOMAXPROCS"},
	} {
		if v := run.Config[c.key]; v != "" {
			parts = append(parts, strings.TrimSpace(c.name+" "+v))
		}
	}
	fmt.Fprintf(out, "%s. Medians of %d.\n\n", strings.Join(parts, ", "), run.counts)
}

func (run *Run) footer(out *strings.Builder) {
	if len(run.Failed) > 0 {
		failed := slices.Clone(run.Failed)
		slices.Sort(failed)
		fmt.Fprintf(out, "\nFailed: %s.\n", strings.Join(slices.Compact(failed), ", "))
	}
	if run.Aborted != "" {
		fmt.Fprintf(out, "\nThe run ended early: %s\n", run.Aborted)
	}
}

// bars returns the bars of the row at the size and how they came out.
func (run *Run) bars(r row, size int, sum *Summary) (text, reached string) {
	var texts, answers []string
	for _, b := range r.bars {
		if !b.applies(size) {
			continue
		}
		v := b.check(run, r, size)
		answer := ""
		switch {
		case !v.known:
			answer = "not measured"
			sum.Unknown++
		case v.reached:
			answer = "yes, " + v.detail
			sum.Reached++
		default:
			answer = "**no**, " + v.detail
			sum.Missed++
		}
		texts, answers = append(texts, b.text), append(answers, answer)
	}
	return strings.Join(texts, "; "), strings.Join(answers, "; ")
}

func (run *Run) cell(r row, size int, side string) string {
	v, ok := run.median(key{r.bench, size, side, r.unit})
	if !ok {
		return ""
	}
	return format(v, r.unit)
}

// ratio returns how many times better ours is than the peer.
func (run *Run) ratio(r row, size int, peer string) (float64, bool) {
	a, haveOurs := run.median(key{r.bench, size, ours, r.unit})
	b, havePeer := run.median(key{r.bench, size, peer, r.unit})
	if moreIsBetter(r.unit) {
		a, b = b, a
	}
	if !haveOurs || !havePeer || a == 0 {
		return 0, false
	}
	return b / a, true
}

// growth returns by how much the figure is larger at one size than at another.
func (run *Run) growth(k key, from, to int) (float64, bool) {
	k.size = from
	a, okA := run.median(k)
	k.size = to
	b, okB := run.median(k)
	if !okA || !okB || a == 0 {
		return 0, false
	}
	return b / a, true
}

func moreIsBetter(unit string) bool { return unit == "ops/s" }

// format writes a figure as a person would.
func format(v float64, unit string) string {
	ns := map[string]float64{
		"ns/op": 1, "ns/question": 1, "ns/mixed": 1, "ns/attach": 1, "cpu-ns/attach": 1, "us/change": 1e3, "cpu-us/change": 1e3,
		"p50-us": 1e3, "p99-us": 1e3, "ms/read": 1e6, "ms/all": 1e6,
	}
	if scale, ok := ns[unit]; ok {
		return duration(v * scale)
	}
	switch unit {
	case "%core":
		return number(v) + " %"
	case "B/attachment":
		return number(v) + " B"
	case "ops/s":
		return number(v) + "/s"
	}
	return number(v)
}

func duration(ns float64) string {
	for _, u := range []struct {
		ns   float64
		name string
	}{{1e9, "s"}, {1e6, "ms"}, {1e3, "µs"}} {
		if ns >= u.ns {
			return number(ns/u.ns) + " " + u.name
		}
	}
	return number(ns) + " ns"
}

// number keeps three digits where that matters.
func number(v float64) string {
	switch {
	case v >= 100:
		return thousands(int(v + 0.5))
	case v == math.Trunc(v):
		return strconv.Itoa(int(v))
	case v >= 10:
		return strconv.FormatFloat(v, 'f', 1, 64)
	}
	return strconv.FormatFloat(v, 'g', 3, 64)
}

func thousands(n int) string {
	s := strconv.Itoa(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
