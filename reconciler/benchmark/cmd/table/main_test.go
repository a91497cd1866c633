package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const recorded = "../../internal/table/testdata/raw.txt"

func call(stdin string, args ...string) (code int, stdout, stderr string) {
	var out, errs bytes.Buffer
	code = run(args, strings.NewReader(stdin), &out, &errs)
	return code, out.String(), errs.String()
}

func TestAFileOrStandardInput(t *testing.T) {
	raw, err := os.ReadFile(recorded)
	require.NoError(t, err)
	code, fromFile, stderr := call("", recorded)
	require.Equal(t, 1, code, "a benchmark in it failed")
	require.Contains(t, fromFile, "| memory per attachment | 100,000 | 539 B |")
	require.Contains(t, stderr, "1 missed")
	for _, args := range [][]string{nil, {"-"}} {
		_, fromInput, _ := call(string(raw), args...)
		require.Equal(t, fromFile, fromInput)
	}
}

func TestBadInput(t *testing.T) {
	empty := filepath.Join(t.TempDir(), "empty.txt")
	require.NoError(t, os.WriteFile(empty, nil, 0o600))
	for name, args := range map[string][]string{
		"no such file":   {"testdata/nothing.txt"},
		"nothing in it":  {empty},
		"unknown flag":   {"-x"},
		"two files":      {recorded, recorded},
		"a folder":       {t.TempDir()},
		"standard input": nil,
	} {
		t.Run(name, func(t *testing.T) {
			code, stdout, stderr := call("no results\n", args...)
			require.Equal(t, 2, code)
			require.Empty(t, stdout)
			require.NotEmpty(t, stderr)
		})
	}
}
