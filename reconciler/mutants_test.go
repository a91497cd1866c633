package reconciler_test

import (
	"encoding/json"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var withMutants = flag.Bool("mutants", false, "break the reconciler on purpose, in one place after another, and see that the simulated cluster notices")

// edit puts one fault into one file.
type edit struct{ file, old, new string }

// A check that cannot fail is no check: each of these faults must be found by TestSimulatedCluster. Where two rules guard the
// same thing, both are broken. What only one of them breaks, TestDecide and TestScenarios find.
var mutants = []struct {
	name  string
	edits []edit
}{
	{"detaches what a pod uses", []edit{{"decide.go", "case f.Wished:\n\t\treturn decideAttach(f, p)", "case f.Wished && f.State == cache.Detached:\n\t\treturn decideAttach(f, p)"}}},
	{"attaches an exclusive volume that is attached elsewhere", []edit{{"decide.go", "if e := f.Elsewhere; e.Node != \"\" && !mayAttachBeside(f, p) {", "if e := f.Elsewhere; false {"}}},
	{"attaches an exclusive volume that is uncertain elsewhere", []edit{{"decide.go", "if e := f.Elsewhere; e.Node != \"\" && !mayAttachBeside(f, p) {", "if e := f.Elsewhere; e.State == cache.Attached {"}}},
	{"detaches before it is synced", []edit{{"decide.go", "if !f.Synced {\n\t\treturn Decision{Action: Wait, Reason: NotSynced, Since: f.StateSince}\n\t}", ""}}},
	{"attaches before it is synced", []edit{{"decide.go", "if !f.Synced {\n\t\t\t// An", "if false {\n\t\t\t// An"}}},
	{"forces on a healthy node", []edit{
		{"decide.go", "case knownNotReady(f.Node.NodeHealth):", "case true:"},
		{"operate.go", "if !confirmed {", "if !confirmed && false {"},
	}},
	{"does not confirm force", []edit{{"operate.go", "if !confirmed {", "if !confirmed && false {"}}},
	{"does not confirm that it is free", []edit{{"operate.go", "if inUse {", "if inUse && false {"}}},
	{"does not take it out of the report", []edit{{"operate.go", "if err := r.actual.RemoveVolumeFromReportAsAttached(pair.Volume, pair.Node); err != nil {", "if err := error(nil); err != nil {"}}},
	{"does not wait for the report", []edit{{"operate.go", "if err := r.writer.Flush(ctx, pair.Node, version); err != nil {", "if err := error(nil); err != nil {"}}},
	{"reports what is uncertain", []edit{{"../cache/actual_state_of_world_attach.go", "return s.state == Attached && !s.withdrawn", "return s.state != Detached && !s.withdrawn"}}},
	{"forgets who waits", []edit{{"operate.go", "r.engine.Add(pair)\n\tr.wakeWaiting(pair.Volume)", "r.engine.Add(pair)"}}},
	{"forgets an unknown outcome of an attach", []edit{{"../executor/operation_executor.go", "case Unknown:\n\t\ta.record(a.executor.actual.MarkVolumeAsUncertain(a.volume, a.spec, a.node))", "case Unknown:"}}},
	{"takes an unknown outcome of a detach for done", []edit{{"../executor/operation_executor.go", "d.record(d.executor.actual.MarkVolumeAsUncertain(d.volume, d.spec, d.node))", "d.executor.actual.MarkVolumeAsDetached(d.volume, d.node)"}}},
}

func TestTheSimulatedClusterNoticesFaults(t *testing.T) {
	if !*withMutants {
		t.Skip("needs -mutants: it compiles the package once for each fault")
	}
	for _, m := range mutants {
		t.Run(m.name, func(t *testing.T) {
			dir, replace := t.TempDir(), map[string]string{}
			for _, e := range m.edits {
				path, err := filepath.Abs(e.file)
				require.NoError(t, err)
				source, err := os.ReadFile(path)
				require.NoError(t, err)
				require.Contains(t, string(source), e.old, "the place of the fault has changed: mend this test")
				broken := filepath.Join(dir, filepath.Base(e.file))
				require.NoError(t, os.WriteFile(broken, []byte(strings.Replace(string(source), e.old, e.new, 1)), 0o600))
				replace[path] = broken
			}
			overlay, err := json.Marshal(map[string]any{"Replace": replace})
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(filepath.Join(dir, "overlay.json"), overlay, 0o600))

			cmd := exec.CommandContext(t.Context(), "go", "test", "-overlay", filepath.Join(dir, "overlay.json"), "-vet=off",
				"-run", "^TestSimulatedCluster$", ".", "-rapid.checks=3000", "-rapid.steps=60", "-rapid.nofailfile", "-rapid.shrinktime=1s")
			out, err := cmd.CombinedOutput()
			require.Error(t, err, "the fault was not noticed")
			require.Contains(t, string(out), "--- FAIL: TestSimulatedCluster", "it was not the simulation that failed:\n%s", out)
		})
	}
}
