package reconciler_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
	"github.com/stretchr/testify/require"

	"github.com/stateofworld/stateofworld/fake"
)

// Each section of each file is a scenario of its own; its name says the behaviour. The language is that of fake.RunScript.
func TestScenarios(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		archive, err := txtar.ParseFile(file)
		require.NoError(t, err)
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			for _, scenario := range archive.Files {
				t.Run(scenario.Name, func(t *testing.T) { fake.RunScript(t, string(scenario.Data)) })
			}
		})
	}
}
