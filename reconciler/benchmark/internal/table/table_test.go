package table

import (
	"bytes"
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write testdata/table.md anew")

func recorded(t *testing.T) string {
	raw, err := os.ReadFile("testdata/raw.txt")
	require.NoError(t, err)
	return string(raw)
}

func render(t *testing.T, raw string) (string, Summary) {
	run, err := Parse(strings.NewReader(raw))
	require.NoError(t, err)
	var out bytes.Buffer
	sum, err := run.Write(&out)
	require.NoError(t, err)
	return out.String(), sum
}

// lineOf returns the cells of the row of a kind of work at a size.
func lineOf(t *testing.T, table, work, size string) []string {
	for line := range strings.Lines(table) {
		if cells := strings.Split(strings.Trim(line, "|\n"), " | "); len(cells) > 1 && strings.TrimSpace(cells[0]) == work && cells[1] == size {
			for i := range cells {
				cells[i] = strings.TrimSpace(cells[i])
			}
			return cells
		}
	}
	t.Fatalf("no row %q at %s in:\n%s", work, size, table)
	return nil
}

func TestTheRecordedRunIsTheRecordedTable(t *testing.T) {
	got, _ := render(t, recorded(t))
	if *update {
		require.NoError(t, os.WriteFile("testdata/table.md", []byte(got), 0o644))
	}
	want, err := os.ReadFile("testdata/table.md")
	require.NoError(t, err)
	require.Equal(t, string(want), got)
}

func TestMediansAndRatios(t *testing.T) {
	table, sum := render(t, recorded(t))
	require.Contains(t, table, "go1.26.8, Kubernetes v1.37.2, StateDB v0.9.4, Some Processor 3.0 GHz, GOMAXPROCS 2. Medians of 3.")
	require.Equal(t,
		[]string{"memory per attachment", "100,000", "539 B", "1,470 B", "2.73", "", "", "", "", "≥ 2× Kubernetes", "yes, 2.73×"},
		lineOf(t, table, "memory per attachment", "100,000"))
	require.Equal(t,
		[]string{"is it attached?", "100,000", "300 ns", "600 ns", "2", "150 ns", "0.5", "270 ns", "0.9", "≥ 1.3× Kubernetes", "yes, 2×"},
		lineOf(t, table, "is it attached?", "100,000"), "a peer that wins has less than 1")
	require.Equal(t, "54.2 ns", lineOf(t, table, "is an operation pending?", "1,000")[2], "of two, the mean")
	require.Equal(t, []string{"≥ 500× Kubernetes", "**no**, 400×"}, lineOf(t, table, "is an operation pending?", "10,000")[9:])
	require.Equal(t, []string{"flat from 1,000", "yes, ×11.0, bare map ×19.8"}, lineOf(t, table, "is an operation pending?", "100,000")[9:])
	require.Equal(t, "1,000", lineOf(t, table, "operations of 10 ms", "1,000")[6], "more in a second is better")
	require.Equal(t, 1, sum.Missed)
	require.NotZero(t, sum.Unknown)
}

func TestAFailedRowDoesNotLoseTheOthers(t *testing.T) {
	table, _ := render(t, recorded(t))
	require.Equal(t, "272 ns", lineOf(t, table, "an idle pass", "1,000")[2])
	require.Contains(t, table, "| processor while idle | | not measured |")
	require.Equal(t, []string{"≥ 2× Kubernetes", "not measured"}, lineOf(t, table, "parallel mix, 9 reads : 1 write", "100,000")[9:],
		"a size that is missing is in the table if it has a bar")
	require.Contains(t, table, "Failed: IdlePass/n=1000/kubernetes.")

	table, _ = render(t, recorded(t)+"panic: test timed out after 10m0s\n")
	require.Contains(t, table, "The run ended early: panic: test timed out after 10m0s")
}

// Several runs, one after another in one file, are one table.
func TestRunsAddUp(t *testing.T) {
	one := func(ns string) string {
		return "go: go1.26.8\ncpu: x\nBenchmarkVolumeExists/n=100000/ours-2 7 " + ns + " ns/op\nBenchmarkVolumeExists/n=100000/kubernetes-2 7 300 ns/op\nPASS\n"
	}
	table, _ := render(t, one("100")+one("900")+one("200"))
	require.Contains(t, table, "Medians of 3.")
	require.Equal(t, "200 ns", lineOf(t, table, "is it wished?", "100,000")[2])
}

func TestFlatIsBesideTheBareMap(t *testing.T) {
	raw := func(large string) string {
		return "BenchmarkConverge/n=1000/ours-2 1 1000 ns/attach\nBenchmarkConverge/n=300000/ours-2 1 " + large + " ns/attach\n"
	}
	table, _ := render(t, raw("2000"))
	require.Equal(t, "yes, 2 µs; yes, ×2", lineOf(t, table, "converge, per attach", "300,000")[10])
	table, _ = render(t, raw("2100"))
	require.Equal(t, "yes, 2.1 µs; **no**, ×2.1", lineOf(t, table, "converge, per attach", "300,000")[10])
}

func TestIdleIsBesideASleepingProcess(t *testing.T) {
	raw := "BenchmarkIdleCPU/n=1000/ours-2 1 0.30 %core\n"
	table, _ := render(t, raw+"BenchmarkIdleCPU/n=1000/floor-2 1 0.21 %core\n")
	require.Equal(t, "yes, 0.09 %", lineOf(t, table, "processor while idle", "1,000")[10])
	table, _ = render(t, raw+"BenchmarkIdleCPU/n=1000/floor-2 1 0.10 %core\n")
	require.Equal(t, "**no**, 0.2 %", lineOf(t, table, "processor while idle", "1,000")[10])
	table, _ = render(t, raw)
	require.Equal(t, "not measured", lineOf(t, table, "processor while idle", "1,000")[10])
}

func TestBadInputIsAnError(t *testing.T) {
	for name, tc := range map[string]struct{ raw, want string }{
		"empty":           {"", "no benchmark result"},
		"something else":  {"hello\nworld: 1\n", "no benchmark result"},
		"names only":      {"BenchmarkMemory/n=1/ours\n", "no benchmark result"},
		"cut off":         {"BenchmarkMemory/n=1/ours-2 1 538\n", "line 1: cut off"},
		"no number":       {"\nBenchmarkMemory/n=1/ours-2 1 many B/attachment\n", `line 2: not a number: "many"`},
		"another module":  {"BenchmarkMemory-2 1 538 B/op\n", "not of the form"},
		"no size":         {"BenchmarkMemory/large/ours-2 1 538 B/op\n", "no size"},
		"size no number":  {"BenchmarkMemory/n=large/ours-2 1 538 B/op\n", "no size"},
		"a line too long": {"BenchmarkMemory/n=1/" + strings.Repeat("x", 2<<20), "too long"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Parse(strings.NewReader(tc.raw))
			require.ErrorContains(t, err, tc.want)
		})
	}
}

// Each row is of a benchmark's name; a row that is there twice would count its bars twice.
func TestRowsAreDifferent(t *testing.T) {
	seen := map[string]bool{}
	for _, r := range rows {
		require.False(t, seen[r.bench+r.unit], r.work)
		seen[r.bench+r.unit] = true
	}
}

func TestNumbers(t *testing.T) {
	for v, want := range map[float64]string{0: "0", 25: "25", 1.3: "1.3", 0.0123456: "0.0123", 12.34: "12.3", 123.4: "123", 1234567: "1,234,567"} {
		require.Equal(t, want, number(v))
	}
	for ns, want := range map[float64]string{2: "2 ns", 1500: "1.5 µs", 2e6: "2 ms", 3.25e9: "3.25 s"} {
		require.Equal(t, want, duration(ns))
	}
}
