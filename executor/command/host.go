package command

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// runOptions are what both runners have in common.
type runOptions struct {
	path        string
	outputLimit int64
	readLimit   int64
	maxStuck    int
	kill        func(pid int) // nil: SIGKILL to the process group
}

// HostRunner is a [Runner] in the namespaces of this process.
type HostRunner struct {
	options runOptions
	pool    pool
}

var _ Runner = (*HostRunner)(nil)

// HostOption changes a default of [Host]. Values that make no sense (empty, zero, negative) leave the default.
type HostOption func(*runOptions)

// WithPath sets the PATH that programs are looked up in and get, instead of [DefaultPath].
func WithPath(path string) HostOption {
	return func(o *runOptions) {
		if path != "" {
			o.path = path
		}
	}
}

// WithOutputLimit sets how many bytes a program may write to each of its two outputs, instead of [DefaultOutputLimit].
func WithOutputLimit(bytes int64) HostOption {
	return func(o *runOptions) {
		if bytes > 0 {
			o.outputLimit = bytes
		}
	}
}

// WithReadLimit sets how many bytes one ReadFile or ReadAt may return, instead of [DefaultReadLimit].
func WithReadLimit(bytes int64) HostOption {
	return func(o *runOptions) {
		if bytes > 0 && bytes < math.MaxInt64 {
			o.readLimit = bytes
		}
	}
}

// WithMaxStuck sets how many programs may be past their deadline and still alive before new ones are refused with
// [ErrTooManyStuck], instead of 256.
func WithMaxStuck(n int) HostOption {
	return func(o *runOptions) {
		if n > 0 {
			o.maxStuck = n
		}
	}
}

// Host is the runner for the namespaces that this process is in.
func Host(opts ...HostOption) *HostRunner {
	r := &HostRunner{options: runOptions{path: DefaultPath, outputLimit: DefaultOutputLimit, readLimit: DefaultReadLimit, maxStuck: 256}}
	for _, opt := range opts {
		opt(&r.options)
	}
	return r
}

// Prefix is what is put before every argument list: nothing.
func (r *HostRunner) Prefix() []string { return nil }

// Alive is how many programs and file operations are past their deadline and still there: killed, but not gone. When it
// stays above 0, something waits in the kernel for a device or filesystem that does not answer.
func (r *HostRunner) Alive() int { return r.pool.alive() }

// Wait returns when nothing that this runner has started is left, or when ctx ends.
func (r *HostRunner) Wait(ctx context.Context) error { return r.pool.wait(ctx) }

// Run implements [Runner].
func (r *HostRunner) Run(ctx context.Context, cmd Command) (Result, error) {
	return r.run(ctx, cmd, r.options.outputLimit)
}

func (r *HostRunner) run(ctx context.Context, cmd Command, limit int64) (Result, error) {
	if err := checkArgv(cmd.Argv); err != nil {
		return Result{}, &SpawnError{Argv: cmd.Argv, Err: err}
	}
	env, err := environment(r.options.path, cmd.Env)
	if err != nil {
		return Result{}, &SpawnError{Argv: cmd.Argv, Err: err}
	}
	argv := append([]string(nil), cmd.Argv...) // the goroutine may outlive the call
	if ctx.Err() != nil {
		return Result{}, newTimeoutError(ctx, argv)
	}
	if r.Alive() >= r.options.maxStuck {
		return Result{}, &SpawnError{Argv: argv, Err: ErrTooManyStuck}
	}
	return run(ctx, &r.pool, argv, env, limit, r.options.kill)
}

// MkdirAll implements [Runner].
func (r *HostRunner) MkdirAll(ctx context.Context, path string, perm fs.FileMode) error {
	if err := checkPath("mkdir", path); err != nil {
		return err
	}
	_, err := call(ctx, &r.pool, "mkdir", path, func() (struct{}, error) {
		return struct{}{}, mkdirAll(path, func(path string) (FileInfo, error) { return hostInfo(os.Stat(path)) }, func(path string) error {
			if err := os.Mkdir(path, 0o700); err != nil {
				return err
			}
			return os.Chmod(path, perm)
		})
	})
	return err
}

// Stat implements [Runner].
func (r *HostRunner) Stat(ctx context.Context, path string) (FileInfo, error) {
	if err := checkPath("stat", path); err != nil {
		return FileInfo{}, err
	}
	return call(ctx, &r.pool, "stat", path, func() (FileInfo, error) { return hostInfo(os.Stat(path)) })
}

// Lstat implements [Runner].
func (r *HostRunner) Lstat(ctx context.Context, path string) (FileInfo, error) {
	if err := checkPath("lstat", path); err != nil {
		return FileInfo{}, err
	}
	return call(ctx, &r.pool, "lstat", path, func() (FileInfo, error) { return hostInfo(os.Lstat(path)) })
}

// ReadFile implements [Runner].
func (r *HostRunner) ReadFile(ctx context.Context, path string) ([]byte, error) {
	if err := checkPath("open", path); err != nil {
		return nil, err
	}
	return call(ctx, &r.pool, "read", path, func() ([]byte, error) {
		f, err := os.Open(path)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		data, err := io.ReadAll(io.LimitReader(f, r.options.readLimit+1))
		if err != nil {
			return nil, err
		}
		if int64(len(data)) > r.options.readLimit {
			return nil, &OutputLimitError{Argv: []string{"read", path}, Limit: r.options.readLimit}
		}
		return data, nil
	})
}

// ReadAt implements [Runner].
func (r *HostRunner) ReadAt(ctx context.Context, path string, offset, length int64) ([]byte, error) {
	if err := checkReadAt(path, offset, length, r.options.readLimit); err != nil {
		return nil, err
	}
	return call(ctx, &r.pool, "read", path, func() ([]byte, error) {
		f, err := os.Open(path)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		data := make([]byte, length)
		n, err := f.ReadAt(data, offset)
		if int64(n) == length {
			return data, nil
		}
		if errors.Is(err, io.EOF) {
			err = &fs.PathError{Op: "read", Path: path, Err: io.ErrUnexpectedEOF}
		}
		return nil, err
	})
}

func checkReadAt(path string, offset, length, limit int64) error {
	if err := checkPath("open", path); err != nil {
		return err
	}
	if offset < 0 || length < 0 || offset > math.MaxInt64-length {
		return &fs.PathError{Op: "read", Path: path, Err: fs.ErrInvalid}
	}
	if length > limit {
		return &OutputLimitError{Argv: []string{"read", path}, Limit: limit}
	}
	return nil
}

// EvalSymlinks implements [Runner].
func (r *HostRunner) EvalSymlinks(ctx context.Context, path string) (string, error) {
	if err := checkPath("readlink", path); err != nil {
		return "", err
	}
	return call(ctx, &r.pool, "readlink", path, func() (string, error) { return filepath.EvalSymlinks(path) })
}

// CreateFile implements [Runner].
func (r *HostRunner) CreateFile(ctx context.Context, path string, perm fs.FileMode) error {
	if err := checkPath("create", path); err != nil {
		return err
	}
	_, err := call(ctx, &r.pool, "create", path, func() (struct{}, error) {
		f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
		if err != nil {
			return struct{}{}, err
		}
		return struct{}{}, errors.Join(f.Chmod(perm), f.Close())
	})
	return err
}

// Remove implements [Runner].
func (r *HostRunner) Remove(ctx context.Context, path string) error {
	if err := checkPath("remove", path); err != nil {
		return err
	}
	_, err := call(ctx, &r.pool, "remove", path, func() (struct{}, error) { return struct{}{}, os.Remove(path) })
	return err
}

// mkdirAll makes path and its missing parents with mkdir, from the top down.
func mkdirAll(path string, stat func(string) (FileInfo, error), mkdir func(string) error) error {
	info, err := stat(path)
	if err == nil {
		if !info.Mode.IsDir() {
			return &fs.PathError{Op: "mkdir", Path: path, Err: syscall.ENOTDIR}
		}
		return nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	// Not filepath.Dir, which resolves ".." without looking at symbolic links.
	trimmed := strings.TrimRight(path, "/")
	if parent := strings.TrimRight(trimmed[:strings.LastIndexByte(trimmed, '/')], "/"); parent != "" {
		if err := mkdirAll(parent, stat, mkdir); err != nil {
			return err
		}
	}
	err = mkdir(trimmed)
	if errors.Is(err, fs.ErrExist) { // made by someone else meanwhile, or a dangling link
		if info, statErr := stat(path); statErr == nil && info.Mode.IsDir() {
			return nil
		}
	}
	return err
}
