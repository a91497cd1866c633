package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"sigs.k8s.io/yaml"

	"github.com/stateofworld/stateofworld/examples/internal/manifest"
)

var update = flag.Bool("update", false, "write the golden files anew")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// output is what a run of the program leaves behind.
type output struct {
	code           int
	stdout, stderr string
}

// program runs the program in virtual time, so that a run takes none and its times are always the same.
func program(t *testing.T, stdin string, args ...string) (out output) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		var stdout, stderr bytes.Buffer
		out.code = run(t.Context(), args, strings.NewReader(stdin), &stdout, &stderr)
		out.stdout, out.stderr = stdout.String(), stderr.String()
	})
	return out
}

// requireGolden compares with a file in testdata.
func requireGolden(t *testing.T, file, got string) {
	t.Helper()
	got = reportsWritten.ReplaceAllString(orderMoments(got), `"reportsWritten": "some"`)
	path := filepath.Join("testdata", file)
	if *update {
		require.NoError(t, os.WriteFile(path, []byte(got), 0o644))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, string(want), got, "run go test with -update if this is what it should be")
}

var reportsWritten = regexp.MustCompile(`"reportsWritten": \d+`)

// orderMoments sorts the events of each moment, which may come in any order, and leaves only the last report of a node: how
// many changes of a moment go into one report is a matter of luck.
func orderMoments(text string) string {
	var ordered, group []string
	current := ""
	flush := func() {
		slices.Sort(group)
		ordered = append(ordered, group...)
		group = nil
	}
	for line := range strings.Lines(text) {
		at := moment(line)
		if at == "" || at != current {
			flush()
		}
		current = at
		if node := reportOf(line); node != "" {
			group = slices.DeleteFunc(group, func(earlier string) bool { return reportOf(earlier) == node })
		}
		group = append(group, line)
	}
	flush()
	return strings.Join(ordered, "")
}

// moment is the time of an event, as it is printed. Other lines have none.
func moment(line string) string {
	at, _, isEvent := strings.Cut(strings.TrimLeft(line, " "), "s  ")
	if !isEvent || !strings.HasPrefix(line, "  ") {
		return ""
	}
	return at
}

// reportOf is the node that an event says a report was written of.
func reportOf(line string) string {
	if f := strings.Fields(line); moment(line) != "" && len(f) > 2 && f[1] == "report" {
		return f[2]
	}
	return ""
}

func TestTheBuiltinWorldTellsItsStory(t *testing.T) {
	out := program(t, "")
	require.Equal(t, exitConverged, out.code)
	require.Empty(t, out.stderr)
	requireGolden(t, "builtin.golden", out.stdout)
}

func TestTheBuiltinWorldTakesTwoToFourSeconds(t *testing.T) {
	out := program(t, "", "-o", "json")
	require.InDelta(t, 3, decodeResult(t, out).Seconds, 1)
}

func decodeResult(t *testing.T, out output) result {
	t.Helper()
	var r result
	decoder := json.NewDecoder(strings.NewReader(out.stdout))
	decoder.DisallowUnknownFields()
	require.NoError(t, decoder.Decode(&r))
	require.ErrorIs(t, decoder.Decode(&r), io.EOF, "one document and nothing else")
	return r
}

func TestJSONIsOneDocumentAndTheEventsAreOnStderr(t *testing.T) {
	out := program(t, "", "-o", "json")
	require.Equal(t, exitConverged, out.code)
	requireGolden(t, "builtin.json.golden", out.stdout)
	r := decodeResult(t, out)
	require.True(t, r.Converged)
	require.Equal(t, map[string]int{"done": 8, "failed for certain": 2}, r.Events.Attach)
	require.Equal(t, map[string]int{"done": 3}, r.Events.Detach)

	table := program(t, "")
	events, _, _ := strings.Cut(table.stdout, "\n\n")
	require.Equal(t, orderMoments(events+"\n"), orderMoments(out.stderr))
}

func TestTheStoryStaysTheSameWithAStorageThatIsSlowOrFails(t *testing.T) {
	want := decodeResult(t, program(t, "", "-o", "json"))
	for _, args := range [][]string{
		{"-latency", "0s"}, {"-latency", "3s", "-timeout", "5m"}, {"-fail-rate", "0.5", "-timeout", "1h"}, {"-seed", "99"},
	} {
		out := program(t, "", append(args, "-o", "json")...)
		require.Equal(t, exitConverged, out.code, args)
		got := decodeResult(t, out)
		require.Equal(t, want.Volumes, got.Volumes, args)
	}
}

func TestADumpIsReconciledToTheEnd(t *testing.T) {
	out := program(t, "", "-f", "testdata/cluster.yaml")
	require.Equal(t, exitConverged, out.code)
	require.Empty(t, out.stderr)
	requireGolden(t, "cluster.golden", out.stdout)
}

func TestADumpThatCannotConvergeSaysWhyAtOnce(t *testing.T) {
	out := program(t, "", "-f", "testdata/stuck.json")
	require.Equal(t, exitNotConverged, out.code)
	requireGolden(t, "stuck.golden", out.stdout)

	r := decodeResult(t, program(t, "", "-f", "testdata/stuck.json", "-o", "json"))
	require.Less(t, r.Seconds, 1.0, "nothing is due before the timeout, so there is nothing to wait for")
	reasons := map[string]string{}
	for _, row := range r.Volumes {
		if !row.Converged {
			reasons[row.name()+" "+string(row.Node)] = row.Reason
		}
	}
	require.Equal(t, map[string]string{
		"pvc-old worker-4":            "NodeUnresolved",
		"shop/data-cache-0 worker-2":  "AttachedElsewhere",
		"shop/data-cache-0 worker-3":  "UnmountTimeout",
		"shop/data-mysql-0 worker-1":  "InUse",
		"shop/data-mysql-0 worker-2":  "AttachedElsewhere",
		"shop/data-search-0 worker-2": "UncertainElsewhere",
		"shop/data-search-0 worker-8": "InUseOnDeletedNode",
	}, reasons)
}

func TestWhatIsDueBeforeTheTimeoutIsWaitedFor(t *testing.T) {
	// The unmount wait of six minutes is over by then: what is held by dead nodes is forced.
	r := decodeResult(t, program(t, "", "-f", "testdata/stuck.json", "-o", "json", "-timeout", "10m"))
	require.Equal(t, map[string]uint64{"ForceTimeout": 1, "ForceNodeDeleted": 1}, r.Events.Forced)
	require.False(t, r.Converged, "the volume that a healthy node uses is left alone")

	events := program(t, "", "-f", "testdata/stuck.json", "-timeout", "10m").stdout
	require.Contains(t, events, "  360.00s  force    shop/data-cache-0   worker-3  ")
}

// The same cluster, however it is written down.
func TestAllFormsOfADumpMeanTheSame(t *testing.T) {
	text, err := os.ReadFile("testdata/cluster.yaml")
	require.NoError(t, err)
	var list struct{ Items []map[string]any }
	require.NoError(t, yaml.Unmarshal(text, &list))
	marshal := func(v any, indent string) string {
		data, err := json.MarshalIndent(v, "", indent)
		require.NoError(t, err)
		return string(data)
	}

	var documents, stream strings.Builder
	for _, item := range list.Items {
		data, err := yaml.Marshal(item)
		require.NoError(t, err)
		documents.WriteString("# one of many\n---\n" + string(data) + "...\n")
		stream.WriteString(marshal(item, "") + "\n")
	}
	typed := ""
	byKind := map[string][]any{}
	for _, item := range list.Items {
		kind := item["kind"].(string)
		bare := map[string]any{"metadata": item["metadata"], "spec": item["spec"], "status": item["status"]}
		byKind[kind] = append(byKind[kind], bare)
	}
	for kind, items := range byKind {
		version := map[string]string{"VolumeAttachment": "storage.k8s.io/v1", "StatefulSet": "apps/v1"}[kind]
		if version == "" {
			version = "v1"
		}
		// As kubectl sorts, the kind comes after the items; as the API server writes, before.
		if kind < "P" {
			typed += `{"kind":"` + kind + `List","apiVersion":"` + version + `","items":` + marshal(items, " ") + "}"
		} else {
			typed += marshal(map[string]any{"kind": kind + "List", "apiVersion": version, "items": items}, "\t")
		}
	}
	nested := map[string]any{"kind": "List", "apiVersion": "v1", "items": []any{
		map[string]any{"kind": "List", "apiVersion": "v1", "items": list.Items[:4]},
		map[string]any{"kind": "List", "apiVersion": "v1", "items": list.Items[4:]},
	}}

	want := decodeResult(t, program(t, string(text), "-f", "-", "-o", "json"))
	for form, dump := range map[string]string{
		"YAML documents":     documents.String(),
		"YAML with a mark":   "\ufeff" + string(text),
		"YAML, Windows":      strings.ReplaceAll(string(text), "\n", "\r\n"),
		"a JSON list":        marshal(map[string]any{"apiVersion": "v1", "kind": "List", "items": list.Items}, "    "),
		"a compact list":     marshal(map[string]any{"apiVersion": "v1", "kind": "List", "items": list.Items}, ""),
		"a JSON stream":      stream.String(),
		"typed lists":        typed,
		"lists within lists": marshal(nested, " "),
	} {
		got := decodeResult(t, program(t, dump, "-f", "-", "-o", "json"))
		require.Equal(t, want.Volumes, got.Volumes, form)
		require.ElementsMatch(t, reasons(want.Skipped), reasons(got.Skipped), form)
		require.Equal(t, want.Loaded, got.Loaded, form)
	}
}

func reasons(list []tallied) []string {
	var all []string
	for _, t := range list {
		all = append(all, t.Reason)
	}
	return all
}

func TestSeveralFilesAreOneDump(t *testing.T) {
	text, err := os.ReadFile("testdata/cluster.yaml")
	require.NoError(t, err)
	first, second := filepath.Join(t.TempDir(), "a.yaml"), filepath.Join(t.TempDir(), "b.json")
	half := strings.Index(string(text), "- apiVersion: v1\n  kind: PersistentVolume\n")
	require.NoError(t, os.WriteFile(first, text[:half], 0o600))
	rest, err := yaml.YAMLToJSON([]byte("apiVersion: v1\nkind: List\nitems:\n" + string(text[half:strings.LastIndex(string(text), "kind: List")])))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(second, rest, 0o600))
	require.NoError(t, os.WriteFile(first, append([]byte("kind: List\n"), text[:half]...), 0o600))

	want := decodeResult(t, program(t, "", "-f", "testdata/cluster.yaml", "-o", "json"))
	got := decodeResult(t, program(t, "", "-f", first, "-f", second, "-o", "json"))
	require.Equal(t, want.Volumes, got.Volumes)

	// The same object twice is no contradiction.
	again := program(t, "", "-f", "testdata/cluster.yaml", "-f", second, "-o", "json")
	require.Equal(t, exitConverged, again.code)
	require.Contains(t, reasons(decodeResult(t, again).Skipped), "PersistentVolume given more than once: the last one counts")
}

func TestHelpIsOnStdout(t *testing.T) {
	out := program(t, "", "-h")
	require.Equal(t, output{code: exitConverged, stdout: usage}, out)
	for line := range strings.Lines(usage) {
		require.LessOrEqual(t, len(line), 101, line)
	}
}

func TestBadFlagsAreRefusedWithTheReason(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"-o", "xml"}, `-o "xml": must be table or json`},
		{[]string{"-fail-rate", "1.5"}, `-fail-rate 1.5: must be from 0 to 1`},
		{[]string{"-fail-rate", "-0.1"}, `-fail-rate -0.1: must be from 0 to 1`},
		{[]string{"-fail-rate", "NaN"}, `-fail-rate NaN: must be from 0 to 1`},
		{[]string{"-fail-rate", "often"}, `invalid value "often" for flag -fail-rate: must be a number from 0 to 1`},
		{[]string{"-latency", "-1s"}, `-latency -1s: must not be negative`},
		{[]string{"-latency", "5"}, `invalid value "5" for flag -latency: must be a time like 100ms`},
		{[]string{"-timeout", "0s"}, `-timeout 0s: must be more than zero`},
		{[]string{"-timeout", "soon"}, `invalid value "soon" for flag -timeout: must be a time like 30s or 2m`},
		{[]string{"-seed", "-1"}, `invalid value "-1" for flag -seed: must be a whole number`},
		{[]string{"-f", ""}, `-f: the name of the file is empty`},
		{[]string{"-f", "-", "-f", "-"}, `-f - is given twice`},
		{[]string{"dump.json"}, `unexpected argument "dump.json": a file is given with -f`},
		{[]string{"-x\x1b[2J"}, `flag provided but not defined: -x\x1b[2J`},
	} {
		out := program(t, "", c.args...)
		require.Equal(t, output{code: exitBadInput, stderr: "attachdetach: " + c.want + "\nRun it with -h for help.\n"}, out)
	}
}

func TestAStorageThatAlwaysFailsIsTriedForAsLongAsATryFitsIn(t *testing.T) {
	out := program(t, "", "-fail-rate", "1", "-f", "testdata/cluster.yaml", "-o", "json")
	require.Equal(t, exitNotConverged, out.code)
	r := decodeResult(t, out)
	require.Equal(t, "nothing more would happen before the timeout", r.Why)
	require.InDelta(t, 20, r.Seconds, 10)
	for _, row := range r.Volumes {
		if row.Reason == "AttachBackoff" {
			require.Greater(t, row.Attempts, 3)
			require.NotEmpty(t, row.LastError)
			require.NotNil(t, row.Until)
			return
		}
	}
	require.Fail(t, "no attach is in back-off", "%+v", r.Volumes)
}

func TestAnInterruptStopsAndPrintsTheTable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		var stdout, stderr bytes.Buffer
		code := run(ctx, nil, nil, &stdout, &stderr)
		require.Equal(t, exitNotConverged, code)
		require.Empty(t, stderr.String())
		requireGolden(t, "interrupted.golden", stdout.String())
	})
}

func TestAnInterruptEndsAReadThatWaits(t *testing.T) {
	in, writer := io.Pipe()
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		_, err := io.WriteString(writer, `{"apiVersion":"v1","kind":"List","items":[`)
		if err == nil {
			cancel()
		}
	}()
	var stdout, stderr bytes.Buffer
	require.Equal(t, exitNotConverged, run(ctx, []string{"-f", "-"}, in, &stdout, &stderr))
	require.Empty(t, stdout.String())
	require.Equal(t, "attachdetach: interrupted while reading; nothing was done\n", stderr.String())
	require.NoError(t, writer.Close())
}

// fullDisk fails like a file on a full disk.
type fullDisk struct{}

var errFull = errors.New("no space left on device")

func (fullDisk) Write([]byte) (int, error) { return 0, errFull }

func TestAResultThatCannotBeWrittenIsNoSuccess(t *testing.T) {
	for _, format := range []string{"table", "json"} {
		synctest.Test(t, func(t *testing.T) {
			var stderr bytes.Buffer
			code := run(t.Context(), []string{"-o", format}, nil, fullDisk{}, &stderr)
			require.Equal(t, exitNotConverged, code)
			require.Contains(t, stderr.String(), "attachdetach: write the result: no space left on device\n")
		})
	}
}

func TestNamesCannotWriteToTheTerminal(t *testing.T) {
	evil := "\u001b[2J\u202egnp\r\n\u009b1A"
	text, err := os.ReadFile("testdata/stuck.json")
	require.NoError(t, err)
	quoted, err := json.Marshal(evil)
	require.NoError(t, err)
	inName := strings.Trim(string(quoted), `"`)
	dump := string(text)
	for _, name := range []string{"worker-1", "worker-8", "mysql-0", "shop", "pvc-mysql", "pvc-old", "legacy-0", "pvc-deleted", "results", "awsElastic"} {
		dump = strings.ReplaceAll(dump, name, name+inName)
	}
	for _, format := range []string{"table", "json"} {
		out := program(t, dump, "-f", "-", "-o", format, "-v")
		require.Equal(t, exitNotConverged, out.code)
		printed := out.stderr
		if format == "table" {
			printed += out.stdout
		} else {
			require.NotEmpty(t, decodeResult(t, out).Volumes)
		}
		for line := range strings.Lines(printed) {
			require.True(t, manifest.IsPlain(strings.TrimSuffix(line, "\n")), "%q", line)
		}
		require.Contains(t, printed, `\x1b[2J`)
	}
}
