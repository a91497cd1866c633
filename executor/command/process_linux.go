package command

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"
	"unsafe"
)

// child is one program. Its goroutine starts it, reads its output and reaps it; the caller of run only waits.
type child struct {
	job      *job
	argv     []string
	limit    int64
	kill     func(pid int)
	overflow chan struct{} // closed when the output limit was passed
	readers  sync.WaitGroup

	mu       sync.Mutex
	give     bool // the caller has given up: do not start, or kill
	launched bool // from here on a process may exist
	pid      int  // of a started process that has not been reaped, else 0
	out, err output
	state    *os.ProcessState
	failure  error // the program could not be started, or its end could not be seen
}

// output is what was read of one stream so far. It is guarded by the child's lock.
type output struct {
	read *os.File
	data []byte
}

// run starts a program and waits until it has ended or ctx has.
func run(ctx context.Context, p *pool, argv, env []string, limit int64, kill func(pid int)) (Result, error) {
	c := &child{job: p.newJob(), argv: argv, limit: limit, kill: kill, overflow: make(chan struct{})}
	if c.kill == nil {
		c.kill = killGroup
	}
	go c.run(env)
	select {
	case <-c.job.done:
		return c.result()
	case <-c.overflow:
	case <-ctx.Done():
	}
	if !c.job.abandon() {
		<-c.job.done
		return c.result()
	}
	return Result{}, c.giveUp(ctx)
}

// giveUp kills the program and tells how far it was seen to get.
func (c *child) giveUp(ctx context.Context) error {
	c.mu.Lock()
	c.give = true
	if c.pid != 0 {
		c.kill(c.pid)
	}
	c.lockedStopReaders()
	launched, reading := c.launched, c.out.read != nil
	c.mu.Unlock()
	if ctx.Err() == nil {
		return &OutputLimitError{Argv: c.argv, Limit: c.limit}
	}
	e := newTimeoutError(ctx, c.argv)
	if !launched {
		return e
	}
	e.Started, e.Exited = true, c.job.done
	if reading {
		c.readers.Wait()
		e.Stdout, e.Stderr = c.drain(&c.out), c.drain(&c.err)
	}
	return e
}

// lockedStopReaders ends the readers, whoever holds the pipes open.
func (c *child) lockedStopReaders() {
	for _, o := range []*output{&c.out, &c.err} {
		if o.read != nil {
			o.read.SetReadDeadline(time.Unix(1, 0))
		}
	}
}

// result is called after the child's goroutine has ended.
func (c *child) result() (Result, error) {
	if c.failure != nil {
		return Result{}, c.failure
	}
	select {
	case <-c.overflow:
		return Result{}, &OutputLimitError{Argv: c.argv, Limit: c.limit}
	default:
	}
	status := c.state.Sys().(syscall.WaitStatus)
	if status.Signaled() {
		return Result{}, &SignalError{Argv: c.argv, Signal: status.Signal(), Stdout: c.out.data, Stderr: c.err.data}
	}
	return Result{Stdout: c.out.data, Stderr: c.err.data, ExitCode: status.ExitStatus()}, nil
}

// run is the child's goroutine.
func (c *child) run(env []string) {
	defer c.job.end()
	process, err := c.start(env)
	if err != nil {
		c.failure = err
		return
	}
	err = waitExited(process.Pid)
	c.mu.Lock()
	c.pid = 0 // never kill by a number that may be another group's after the next line
	state, waitErr := process.Wait()
	c.state = state
	// What the program wrote is in the pipes now. A child of it may hold them open for ever, so nobody waits for their
	// end.
	c.lockedStopReaders()
	c.mu.Unlock()
	if err = errors.Join(err, waitErr); err != nil {
		c.failure = fmt.Errorf("%s: how it ended was not seen, its effect is unknown: %w", join(c.argv), err)
	}
	c.readers.Wait()
	for _, o := range []*output{&c.out, &c.err} {
		c.drain(o)
		o.read.Close()
	}
}

func (c *child) start(env []string) (*os.Process, error) {
	path, err := lookPath(c.argv[0], env)
	if err != nil {
		return nil, &SpawnError{Argv: c.argv, Err: err}
	}
	var files []*os.File // what the program gets
	defer func() {
		for _, f := range files {
			f.Close()
		}
	}()
	null, err := os.Open(os.DevNull)
	if err != nil {
		return nil, &SpawnError{Argv: c.argv, Err: err}
	}
	files = append(files, null)
	var reads []*os.File
	abort := func(err error) (*os.Process, error) {
		for _, f := range reads {
			f.Close()
		}
		return nil, &SpawnError{Argv: c.argv, Err: err}
	}
	for range 2 {
		r, w, err := os.Pipe()
		if err != nil {
			return abort(err)
		}
		reads, files = append(reads, r), append(files, w)
	}
	c.mu.Lock()
	if c.give {
		c.mu.Unlock()
		return abort(context.Canceled)
	}
	c.launched = true
	c.mu.Unlock()

	// Without the lock: the kernel may wait in exec for a filesystem that does not answer.
	process, err := os.StartProcess(path, c.argv, &os.ProcAttr{
		Dir:   "/", // a program that lives on must not keep a volume busy
		Env:   env,
		Files: files,
		Sys:   &syscall.SysProcAttr{Setpgid: true},
	})
	if err != nil {
		var pathErr *os.PathError
		if errors.As(err, &pathErr) {
			err = &os.PathError{Op: "exec", Path: path, Err: pathErr.Err}
		}
		return abort(err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pid, c.out.read, c.err.read = process.Pid, reads[0], reads[1]
	if c.give {
		c.kill(c.pid)
		c.lockedStopReaders()
	}
	for _, o := range []*output{&c.out, &c.err} {
		c.readers.Go(func() { c.read(o) })
	}
	return process, nil
}

// read takes in one stream until it ends or its read deadline is set.
func (c *child) read(o *output) {
	buf := make([]byte, 32<<10)
	for {
		n, err := o.read.Read(buf)
		if !c.take(o, buf[:n]) || err != nil {
			return
		}
	}
}

// drain takes in what is in the pipe at this moment, does not wait for more, and returns a copy of all. It takes no
// more than a pipe can hold, since a child that lives on may fill it as fast as it is emptied.
func (c *child) drain(o *output) []byte {
	buf := make([]byte, 64<<10)
	for taken := 0; taken < 1<<20; {
		n := readNow(o.read, buf)
		if n == 0 || !c.take(o, buf[:n]) {
			break
		}
		taken += n
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]byte(nil), o.data...)
}

// readNow reads without waiting and past the read deadline. 0 is nothing there, the end, or an error.
func readNow(f *os.File, buf []byte) int {
	if f == nil {
		return 0
	}
	conn, err := f.SyscallConn()
	if err != nil {
		return 0
	}
	var n int
	if conn.Control(func(fd uintptr) {
		for {
			if n, err = syscall.Read(int(fd), buf); !errors.Is(err, syscall.EINTR) {
				return
			}
		}
	}) != nil || err != nil {
		return 0
	}
	return n
}

// take keeps data, unless the limit is passed: then it kills the program and is false.
func (c *child) take(o *output, data []byte) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if int64(len(o.data)+len(data)) <= c.limit {
		o.data = append(o.data, data...)
		return true
	}
	select {
	case <-c.overflow: // the other stream was first
	default:
		close(c.overflow)
	}
	if c.pid != 0 {
		c.kill(c.pid)
	}
	return false
}

func killGroup(pid int) { syscall.Kill(-pid, syscall.SIGKILL) }

// waitExited returns when the process has exited, and leaves it to be reaped: until then its number, and with it the
// number of its group, is not given to another, so that it can be killed by number without a race.
func waitExited(pid int) error {
	const pPID = 1
	var info [16]uint64 // siginfo_t, 128 bytes
	for {
		_, _, errno := syscall.Syscall6(syscall.SYS_WAITID, pPID, uintptr(pid), uintptr(unsafe.Pointer(&info)), syscall.WEXITED|syscall.WNOWAIT, 0, 0)
		switch errno {
		case 0:
			return nil
		case syscall.EINTR:
		default:
			return os.NewSyscallError("waitid", errno)
		}
	}
}

// lookPath finds a program in the PATH that the program will have, not in that of this process.
func lookPath(name string, env []string) (string, error) {
	if strings.Contains(name, "/") {
		if !strings.HasPrefix(name, "/") {
			return "", fmt.Errorf("%q is neither a plain name nor an absolute path", name)
		}
		return name, nil
	}
	var search string
	for _, entry := range env {
		if value, ok := strings.CutPrefix(entry, "PATH="); ok {
			search = value
		}
	}
	var found error
	for dir := range strings.SplitSeq(search, ":") {
		if !strings.HasPrefix(dir, "/") {
			continue
		}
		path := dir + "/" + name
		info, err := os.Stat(path)
		if err != nil {
			if !errors.Is(err, os.ErrNotExist) {
				found = err
			}
			continue
		}
		if info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return path, nil
		}
		found = &os.PathError{Op: "exec", Path: path, Err: os.ErrPermission}
	}
	if found != nil {
		return "", found
	}
	return "", fmt.Errorf("%q is not in %s: %w", name, search, os.ErrNotExist)
}
