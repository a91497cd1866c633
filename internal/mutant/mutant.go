// Package mutant runs a test against programs that are broken on purpose: a check that cannot fail is no check. It is for tests only.
package mutant

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

var enabled = flag.Bool("mutants", false, "break the package on purpose, in one place after another, and see that its simulation notices")

// Edit puts one fault into one file, whose path is relative to the package under test. Old must occur in it; its first occurrence becomes New.
type Edit struct{ File, Old, New string }

// Mutant is a broken program. Where two rules guard the same thing, it breaks both.
type Mutant struct {
	Name  string
	Edits []Edit
}

// Run fails for each mutant that the test of the package under test does not notice. args are further arguments for go test. It runs the tests one
// after another, with the source tree left as it is, and only with the flag -mutants, since each compiles the package anew. Without the flag it sees
// that there still is a place for every fault.
func Run(t *testing.T, test string, mutants []Mutant, args ...string) {
	t.Helper()
	if !*enabled {
		for _, m := range mutants {
			breakFiles(t, m.Edits)
		}
		t.Skip("needs -mutants: it compiles the package once for each fault")
	}
	for _, m := range mutants {
		t.Run(m.Name, func(t *testing.T) {
			overlay := overlay(t, m.Edits)
			all := append([]string{"test", "-overlay", overlay, "-vet=off", "-run", "^" + test + "$", "."}, args...)
			out, err := exec.CommandContext(t.Context(), "go", all...).CombinedOutput()
			require.Error(t, err, "the fault was not noticed")
			require.Contains(t, string(out), "--- FAIL: "+test, "it was not the simulation that failed:\n%s", out)
			if _, trace, ok := strings.Cut(string(out), "Error:"); ok {
				t.Logf("noticed by: %.400s", trace)
			}
		})
	}
}

// breakFiles returns what the broken files contain, by path.
func breakFiles(t *testing.T, edits []Edit) map[string]string {
	t.Helper()
	broken := map[string]string{}
	for _, e := range edits {
		path, err := filepath.Abs(e.File)
		require.NoError(t, err)
		if _, ok := broken[path]; !ok {
			source, err := os.ReadFile(path)
			require.NoError(t, err)
			broken[path] = string(source)
		}
		require.Contains(t, broken[path], e.Old, "the place of the fault has changed: mend this test")
		broken[path] = strings.Replace(broken[path], e.Old, e.New, 1)
	}
	return broken
}

// overlay writes the broken files and the file that tells the go command of them.
func overlay(t *testing.T, edits []Edit) string {
	dir, replace := t.TempDir(), map[string]string{}
	for path, source := range breakFiles(t, edits) {
		replace[path] = filepath.Join(dir, strings.ReplaceAll(path, string(filepath.Separator), "_"))
		require.NoError(t, os.WriteFile(replace[path], []byte(source), 0o600))
	}
	text, err := json.Marshal(map[string]any{"Replace": replace})
	require.NoError(t, err)
	name := filepath.Join(dir, "overlay.json")
	require.NoError(t, os.WriteFile(name, text, 0o600))
	return name
}
