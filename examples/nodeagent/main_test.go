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
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
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
	synctest.Test(t, func(t *testing.T) { out = call(t.Context(), stdin, args...) })
	return out
}

func call(ctx context.Context, stdin string, args ...string) output {
	var stdout, stderr bytes.Buffer
	code := run(ctx, args, strings.NewReader(stdin), &stdout, &stderr)
	return output{code, stdout.String(), stderr.String()}
}

// requireGolden compares with a file in testdata.
func requireGolden(t *testing.T, file, got string) {
	t.Helper()
	got = freeExtents.ReplaceAllString(orderMoments(got), "(some extents)")
	path := filepath.Join("testdata", file)
	if *update {
		require.NoError(t, os.WriteFile(path, []byte(got), 0o644))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, string(want), got, "run go test with -update if this is what it should be")
}

// How much room there was is a matter of who came first.
var freeExtents = regexp.MustCompile(`\(\d+ extents\)`)

// orderMoments sorts what the agent has done in one moment, which may come in any order.
func orderMoments(text string) string {
	var ordered, group []string
	flush := func() {
		slices.Sort(group)
		ordered, group = append(ordered, group...), nil
	}
	for line := range strings.Lines(text) {
		if len(group) > 0 && (len(line) < 14 || line[:14] != group[0][:14]) {
			flush()
		}
		if len(line) > 15 && line[7:15] == "s  agent" {
			group = append(group, line)
		} else {
			flush()
			ordered = append(ordered, line)
		}
	}
	flush()
	return strings.Join(ordered, "")
}

func decodeResult(t *testing.T, out output) (r result) {
	t.Helper()
	decoder := json.NewDecoder(strings.NewReader(out.stdout))
	decoder.DisallowUnknownFields()
	require.NoError(t, decoder.Decode(&r), out.stdout)
	require.ErrorIs(t, decoder.Decode(&r), io.EOF, "one document and nothing else")
	return r
}

func TestTheLifeOfAFewClaims(t *testing.T) {
	out := program(t, "")
	require.Equal(t, exitDone, out.code, out.stdout)
	require.Empty(t, out.stderr)
	requireGolden(t, "story.golden", out.stdout)
}

func TestTheStoryTakesOneToThreeSeconds(t *testing.T) {
	r := decodeResult(t, program(t, "", "-o", "json"))
	require.InDelta(t, 2, r.Seconds, 1)
}

func TestJSONIsOneDocumentAndTheEventsAreOnStderr(t *testing.T) {
	out := program(t, "", "-o", "json")
	require.Equal(t, exitDone, out.code)
	requireGolden(t, "story.json.golden", out.stdout)
	require.True(t, decodeResult(t, out).OK)
	table := program(t, "")
	events, _, _ := strings.Cut(table.stdout, "\n\n")
	require.Equal(t, orderMoments(events+"\n"), orderMoments(out.stderr))
}

func TestAFileIsWorkedOff(t *testing.T) {
	out := program(t, "", "-f", "testdata/good.yaml")
	require.Equal(t, exitDone, out.code, out.stdout)
	require.Empty(t, out.stderr)
	requireGolden(t, "good.golden", out.stdout)
}

func TestWhatFailsIsToldWithTheReasonAndTheNextStep(t *testing.T) {
	out := program(t, "", "-f", "testdata/claims.yaml")
	require.Equal(t, exitFailed, out.code)
	require.Empty(t, out.stderr)
	requireGolden(t, "claims.golden", out.stdout)

	r := decodeResult(t, program(t, "", "-f", "testdata/claims.yaml", "-o", "json"))
	require.False(t, r.OK)
	why := map[string]string{}
	for _, p := range r.Problems {
		why[p.Object], _, _ = strings.Cut(p.Why, ":")
	}
	require.Equal(t, map[string]string{
		"claim shop/huge": "NoSpace", "claim shop/evil": "InvalidSpec", "claim shop/taken": "ExistsMismatch", "claim shop/leaving": "Terminating",
		"volume pv-here": "Bound", "volume pv-nowhere": "WrongAffinity",
	}, why)
	for _, o := range r.Objects {
		if o.Name == "huge" {
			require.Contains(t, o.Annotations["pv.csi.alibabacloud.com/volume.error"], `"uid":"`+string(uidOf(claimKind, "shop", "huge"))+`"`)
		}
	}
}

// What is removed makes room for what is created, in whatever order they come.
func TestRemovalsComeFirst(t *testing.T) {
	text, err := os.ReadFile("testdata/good.yaml")
	require.NoError(t, err)
	// 512 GiB are taken, 1 TiB is free, and more than that is asked for.
	full := strings.Replace(string(text), "spec:\n  claimRef", "spec:\n  capacity: {storage: 512Gi}\n  claimRef", 1)
	full = strings.Replace(full, "1073741824", strconv.Itoa(5<<38), 1)
	out := program(t, full, "-f", "-")
	require.Equal(t, exitDone, out.code, out.stdout)
	require.Contains(t, out.stdout, "claim shop/data  created")
}

func TestNothingToDoIsSaid(t *testing.T) {
	out := program(t, `{"apiVersion":"v1","kind":"PersistentVolumeClaim","metadata":{"name":"a"}}`, "-f", "-")
	require.Equal(t, exitDone, out.code)
	require.Contains(t, out.stdout, "nothing to do: no object has the annotation pv.csi.alibabacloud.com/volume.lifecycle\n")

	out = program(t, "", "-f", "testdata/good.yaml", "-node", "node-x")
	require.Equal(t, exitFailed, out.code)
	require.Contains(t, out.stdout, "FAILED  nothing is asked of node node-x\n        Name another node with -node\n")
}

func TestWhatIsNotFinishedInTimeSaysWhatItWaitsFor(t *testing.T) {
	for _, args := range [][]string{nil, {"-f", "testdata/good.yaml"}} {
		out := program(t, "", append(args, "-timeout", "100ms")...)
		require.Equal(t, exitFailed, out.code)
		require.Contains(t, out.stdout, "FAILED  not finished after 100ms\n        See what it waits for in the table, or give it more time with -timeout\n")
	}
}

func TestAnInterruptStopsAndPrintsTheTable(t *testing.T) {
	for _, args := range [][]string{nil, {"-f", "testdata/good.yaml"}} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(300*time.Millisecond, cancel)
			out := call(ctx, "", args...)
			require.Equal(t, exitFailed, out.code)
			require.Empty(t, out.stderr)
			require.Contains(t, out.stdout, "FAILED  interrupted\n")
			require.Contains(t, out.stdout, "\nOBJECT ")
			require.Contains(t, out.stdout, "\nclaim shop/data ", "also what was not begun")
		})
	}
}

func TestAnInterruptEndsAReadThatWaits(t *testing.T) {
	in, writer := io.Pipe()
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		_, err := io.WriteString(writer, "apiVersion: v1\n")
		if err == nil {
			cancel()
		}
	}()
	var stdout, stderr bytes.Buffer
	require.Equal(t, exitFailed, run(ctx, []string{"-f", "-"}, in, &stdout, &stderr))
	require.Empty(t, stdout.String())
	require.Equal(t, "nodeagent: interrupted while reading; nothing was done\n", stderr.String())
	require.NoError(t, writer.Close())
}

// fullDisk fails like a file on a full disk.
type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, errors.New("no space left on device") }

func TestAResultThatCannotBeWrittenIsNoSuccess(t *testing.T) {
	for _, format := range []string{"table", "json"} {
		synctest.Test(t, func(t *testing.T) {
			var stderr bytes.Buffer
			require.Equal(t, exitFailed, run(t.Context(), []string{"-o", format}, nil, fullDisk{}, &stderr))
			require.Contains(t, stderr.String(), "nodeagent: write the result: no space left on device\n")
		})
	}
}

func TestHelpIsOnStdout(t *testing.T) {
	require.Equal(t, output{code: exitDone, stdout: usage}, program(t, "", "-h"))
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
		{[]string{"-timeout", "0s"}, `-timeout 0s: must be more than zero`},
		{[]string{"-timeout", "soon"}, `invalid value "soon" for flag -timeout: must be a time like 30s or 2m`},
		{[]string{"-f", ""}, `-f: the name of the file is empty`},
		{[]string{"-f", "-", "-f", "-"}, `-f - is given twice`},
		{[]string{"claims.yaml"}, `unexpected argument "claims.yaml": a file is given with -f`},
		{[]string{"-vg", ""}, `-vg: invalid volume group name "": empty`},
		{[]string{"-vg", "vg0/a"}, `-vg: invalid volume group name "vg0/a": character '/' is not one of A-Z a-z 0-9 _ + . -`},
		{[]string{"-vg", "--all"}, `-vg: invalid volume group name "--all": begins with a hyphen`},
		{[]string{"-lvm-config", "x"}, `-lvm-config is for the real lvm2: it needs -vg`},
		{[]string{"-no-device-mapper"}, `-no-device-mapper is for the real lvm2: it needs -vg`},
		{[]string{"-x\x1b[2J"}, `flag provided but not defined: -x\x1b[2J`},
	} {
		require.Equal(t, output{code: exitBadInput, stderr: "nodeagent: " + c.want + "\nRun it with -h for help.\n"}, program(t, "", c.args...))
	}
	out := program(t, "", "-node", "Node A")
	require.Equal(t, exitBadInput, out.code)
	require.Contains(t, out.stderr, `nodeagent: -node "Node A": cannot be the name of a node: `)
}

// However large the volumes of a real cluster are, they find room in memory.
func TestWhatIsThereAlreadyFitsIntoMemory(t *testing.T) {
	text, err := os.ReadFile("testdata/good.yaml")
	require.NoError(t, err)
	large := strings.Replace(string(text), "spec:\n  claimRef", "spec:\n  capacity: {storage: 7Ei}\n  claimRef", 1)
	large = strings.Replace(large, "creating", "created", 1)
	large = strings.Replace(large, "1073741824", strconv.Itoa(1<<62), 1)
	out := program(t, large, "-f", "-")
	require.Equal(t, exitDone, out.code, out)
}
