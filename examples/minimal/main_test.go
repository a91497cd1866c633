package main

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/stateofworld/stateofworld/fake"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestMoves(t *testing.T) {
	w := fake.NewWorld(t) // worlds, scripted driver, clock, reconciler; invariants are checked at the end
	w.Node("a", "b")
	w.Pod("web-0", "vol-1", "a")
	w.Settle()
	w.Driver.FailNext(fake.Detach, errors.New("busy"))
	w.Move("web-0", "b")
	w.Settle()
	require.Equal(t, []string{"attach vol-1 a", "detach vol-1 a: busy", "detach vol-1 a", "attach vol-1 b"}, w.Driver.Calls())
}

func TestTheProgramRuns(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	require.ErrorIs(t, run(ctx, cancel), context.Canceled, "the driver ends it")
}

// What the README shows is this program and the first test here, to the letter.
func TestTheReadmeShowsCodeThatCompiles(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	require.NoError(t, err)
	for file, from := range map[string]string{"main.go": "func run(", "main_test.go": "func TestMoves("} {
		source, err := os.ReadFile(file)
		require.NoError(t, err)
		_, code, ok := strings.Cut(string(source), from)
		require.True(t, ok)
		code = from + code
		if end := "\nfunc TestTheProgramRuns"; strings.Contains(code, end) {
			code, _, _ = strings.Cut(code, end)
		}
		require.Contains(t, string(readme), strings.TrimSpace(code), "README.md does not show %s as it is", file)
	}
}
