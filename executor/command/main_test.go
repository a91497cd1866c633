//go:build linux

package command

import (
	"context"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// guard is how long a test waits for what must happen at once, before it fails instead of hanging.
const guard = time.Minute

// await returns when f has, or fails the test.
func await(t *testing.T, what string, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() { defer close(done); f() }()
	select {
	case <-done:
	case <-time.After(guard):
		require.FailNow(t, "still waiting", what)
	}
}

// newHost is a host runner whose children must all be gone at the end of the test.
func newHost(t *testing.T, opts ...HostOption) *HostRunner {
	t.Helper()
	r := Host(opts...)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), guard)
		defer cancel()
		require.NoError(t, r.Wait(ctx), "children left behind")
		require.Zero(t, r.Alive())
	})
	return r
}

// fifo is a named pipe through which a child says how far it is, or is made to wait.
type fifo struct {
	path string
	file *os.File
}

func newFifo(t *testing.T, name string) *fifo {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	require.NoError(t, syscall.Mkfifo(path, 0o600))
	// Open for both directions, so that opening never waits and the end is seen only when close says so.
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	require.NoError(t, err)
	f := &fifo{path: path, file: file}
	t.Cleanup(f.close)
	return f
}

// read waits for n bytes from a child.
func (f *fifo) read(t *testing.T, n int) string {
	t.Helper()
	require.NoError(t, f.file.SetReadDeadline(time.Now().Add(guard)))
	buf := make([]byte, n)
	for got := 0; got < n; {
		m, err := f.file.Read(buf[got:])
		require.NoError(t, err)
		got += m
	}
	return string(buf)
}

// write lets a child that reads go on.
func (f *fifo) write(t *testing.T, s string) {
	t.Helper()
	_, err := f.file.WriteString(s)
	require.NoError(t, err)
}

func (f *fifo) close() { f.file.Close() }

// timeInThePast as a deadline ends a read at once.
var timeInThePast = time.Unix(1, 0)

func sh(script string, args ...string) Command {
	return Command{Argv: append([]string{"sh", "-c", script, "sh"}, args...)}
}
