//go:build linux

package main

import (
	"bytes"
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func call(ctx context.Context, args ...string) (code int, stdout, stderr string) {
	var out, errs bytes.Buffer
	code = run(ctx, args, &out, &errs)
	return code, out.String(), errs.String()
}

func TestAFewAttachments(t *testing.T) {
	code, out, errs := call(t.Context(), "-n", "300", "-samples", "20", "-idle", "10ms", "-memory", "0")
	require.Equal(t, 0, code, errs)
	require.Empty(t, errs, "no progress where there is no terminal")
	require.Contains(t, out, "300 on 10 nodes")
	for _, line := range []string{"loaded", "converged", "processor while idle", "wish → driver call", "memory kept", "memory at the peak"} {
		require.Contains(t, out, "\n"+line)
	}
}

func TestMoreMemoryThanAllowed(t *testing.T) {
	code, out, _ := call(t.Context(), "-n", "30", "-samples", "1", "-idle", "1ms", "-memory", "1")
	require.Equal(t, 1, code)
	require.Contains(t, out, "MORE THAN 1 MiB")
}

func TestTooLate(t *testing.T) {
	code, out, errs := call(t.Context(), "-n", "3000", "-timeout", "1ns")
	require.Equal(t, 1, code)
	require.Contains(t, errs, "deadline exceeded")
	require.NotContains(t, out, "converged")
}

func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	code, _, errs := call(ctx, "-n", "3000")
	require.Equal(t, 1, code)
	require.Contains(t, errs, "canceled")
}

func TestBadFlags(t *testing.T) {
	for _, args := range [][]string{
		{"-n", "0"}, {"-n", "x"}, {"-samples", "0"}, {"-idle", "0s"}, {"-timeout", "-1s"}, {"-memory", "-1"}, {"more"}, {"-unknown"},
	} {
		code, out, errs := call(t.Context(), args...)
		require.Equal(t, 2, code, args)
		require.Empty(t, out)
		require.NotEmpty(t, errs)
	}
	code, _, errs := call(t.Context(), "-h")
	require.Equal(t, 0, code)
	require.Contains(t, errs, "-timeout")
}

func TestProgressOnATerminal(t *testing.T) {
	var out bytes.Buffer
	p := &progress{out: &out}
	p.count("loading", 1, 4)
	p.count("loading", 2, 4) // too soon after the other
	p.clear()
	p.clear()
	require.Equal(t, "\r\x1b[Kloading: 1 of 4, 25 % ...\r\x1b[K", out.String())
}

func TestRound(t *testing.T) {
	for d, want := range map[time.Duration]string{
		1234567 * time.Microsecond: "1.23s", 12345 * time.Nanosecond: "12.3µs", 1999 * time.Millisecond: "2s", 7: "7ns",
	} {
		require.Equal(t, want, round(d).String())
	}
}
