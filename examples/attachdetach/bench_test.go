package main

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestADumpOfTwoThousandPodsConverges(t *testing.T) {
	var dump bytes.Buffer
	require.NoError(t, generateDump(&dump, 2000))
	out := program(t, dump.String(), "-f", "-", "-o", "json")
	require.Equal(t, exitConverged, out.code)
	require.Equal(t, "loaded      67 nodes, 2000 pods, 2000 claims, 2000 volumes, 0 attachments (from standard input)\n", out.stderr,
		"with so many volumes there is no line for each event")
	r := decodeResult(t, out)
	require.Len(t, r.Volumes, 2000)
	require.Equal(t, map[string]int{"done": 1333}, r.Events.Attach)
	require.Equal(t, map[string]int{"done": 667}, r.Events.Detach)

}

func TestVerboseIsALineForEachEventHoweverMany(t *testing.T) {
	var dump bytes.Buffer
	require.NoError(t, generateDump(&dump, 90))
	out := program(t, dump.String(), "-f", "-", "-v")
	require.Equal(t, 60, strings.Count(out.stdout, "  attach "))
	require.Equal(t, 30, strings.Count(out.stdout, "  detach "))
}

// BenchmarkDump is the whole program on a dump of 100,000 pods, a file of several hundred megabytes.
func BenchmarkDump(b *testing.B) {
	file := filepath.Join(b.TempDir(), "dump.json")
	f, err := os.Create(file)
	require.NoError(b, err)
	require.NoError(b, generateDump(f, 100_000))
	info, err := f.Stat()
	require.NoError(b, err)
	require.NoError(b, f.Close())
	b.SetBytes(info.Size())
	for b.Loop() {
		start := time.Now()
		d, err := load(context.Background(), []string{file}, nil, &loading{})
		require.NoError(b, err)
		b.ReportMetric(time.Since(start).Seconds(), "s-to-load")
		code, err := reconcile(context.Background(), d, options{files: []string{file}, format: "table", timeout: 10 * time.Minute, latency: 100 * time.Millisecond, seed: 1},
			newProgress(io.Discard), io.Discard, io.Discard)
		require.NoError(b, err)
		require.Equal(b, exitConverged, code)
	}
}
