package fake

import (
	"context"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"syscall"

	"github.com/stateofworld/stateofworld/executor/command"
)

// runnerFile is a file in memory.
type runnerFile struct {
	info command.FileInfo
	dir  bool
	link string // where a symbolic link leads
	data []byte
	err  error // what every operation on it fails with
}

var dirInfo = command.FileInfo{Mode: fs.ModeDir | 0o755}

// AddFile puts a file, and the directories that it needs, into the files of the Runner.
func (r *Runner) AddFile(name string, data []byte) {
	r.add(name, &runnerFile{info: command.FileInfo{Mode: 0o644, Size: int64(len(data))}, data: slices.Clone(data)})
}

// AddDevice puts a block device there, whose content is data.
func (r *Runner) AddDevice(name string, major, minor uint32, data []byte) {
	r.add(name, &runnerFile{info: command.FileInfo{Mode: fs.ModeDevice | 0o660, Major: major, Minor: minor}, data: slices.Clone(data)})
}

// AddLink puts a symbolic link there.
func (r *Runner) AddLink(name, target string) {
	r.add(name, &runnerFile{info: command.FileInfo{Mode: fs.ModeSymlink | 0o777, Size: int64(len(target))}, link: target})
}

// FailFile lets every operation on a file, which need not exist, fail with err.
func (r *Runner) FailFile(name string, err error) { r.add(name, &runnerFile{err: err}) }

func (r *Runner) add(name string, f *runnerFile) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for dir := path.Dir(name); r.files[dir] == nil; dir = path.Dir(dir) {
		r.files[dir] = &runnerFile{dir: true, info: dirInfo}
	}
	r.files[name] = f
}

// MkdirAll implements [command.Runner].
func (r *Runner) MkdirAll(ctx context.Context, name string, perm fs.FileMode) error {
	return r.withFiles(ctx, "mkdir", name, func(name string) error {
		for _, part := range append(parents(name), name) {
			f, err := r.lockedFollow(part)
			switch {
			case err != nil:
				return err
			case f == nil:
				r.files[part] = &runnerFile{dir: true, info: command.FileInfo{Mode: fs.ModeDir | perm}}
			case !f.dir:
				return syscall.ENOTDIR
			}
		}
		return nil
	})
}

// Stat implements [command.Runner].
func (r *Runner) Stat(ctx context.Context, name string) (info command.FileInfo, err error) {
	err = r.withFiles(ctx, "stat", name, func(name string) error {
		f, err := r.lockedFollow(name)
		if err == nil && f == nil {
			err = syscall.ENOENT
		}
		if err == nil {
			info = f.info
		}
		return err
	})
	return info, err
}

// Lstat implements [command.Runner].
func (r *Runner) Lstat(ctx context.Context, name string) (info command.FileInfo, err error) {
	err = r.withFiles(ctx, "lstat", name, func(name string) error {
		f := r.files[name]
		if f == nil {
			return syscall.ENOENT
		}
		info = f.info
		return f.err
	})
	return info, err
}

// ReadFile implements [command.Runner].
func (r *Runner) ReadFile(ctx context.Context, name string) (data []byte, err error) {
	err = r.withFiles(ctx, "open", name, func(name string) error {
		f, err := r.lockedFollow(name)
		switch {
		case err != nil:
			return err
		case f == nil:
			return syscall.ENOENT
		case f.dir:
			return syscall.EISDIR
		}
		data = slices.Clone(f.data)
		return nil
	})
	return data, err
}

// ReadAt implements [command.Runner].
func (r *Runner) ReadAt(ctx context.Context, name string, offset, length int64) ([]byte, error) {
	if offset < 0 || length < 0 {
		return nil, &fs.PathError{Op: "read", Path: name, Err: fs.ErrInvalid}
	}
	data, err := r.ReadFile(ctx, name)
	if err != nil {
		return nil, err
	}
	if offset > int64(len(data)) || length > int64(len(data))-offset {
		return nil, &fs.PathError{Op: "read", Path: name, Err: io.ErrUnexpectedEOF}
	}
	return data[offset : offset+length], nil
}

// EvalSymlinks implements [command.Runner].
func (r *Runner) EvalSymlinks(ctx context.Context, name string) (resolved string, err error) {
	err = r.withFiles(ctx, "readlink", name, func(name string) error {
		target, f, err := r.lockedResolve(name)
		if err == nil && f == nil {
			err = syscall.ENOENT
		}
		resolved = target
		return err
	})
	if err != nil {
		return "", err
	}
	return resolved, nil
}

// CreateFile implements [command.Runner].
func (r *Runner) CreateFile(ctx context.Context, name string, perm fs.FileMode) error {
	return r.withFiles(ctx, "create", name, func(name string) error {
		if f := r.files[name]; f != nil {
			if f.err != nil {
				return f.err
			}
			return syscall.EEXIST
		}
		if parent := r.files[path.Dir(name)]; parent == nil || !parent.dir {
			return syscall.ENOENT
		}
		r.files[name] = &runnerFile{info: command.FileInfo{Mode: perm}}
		return nil
	})
}

// Remove implements [command.Runner].
func (r *Runner) Remove(ctx context.Context, name string) error {
	return r.withFiles(ctx, "remove", name, func(name string) error {
		f := r.files[name]
		switch {
		case f == nil:
			return syscall.ENOENT
		case f.err != nil:
			return f.err
		case name == "/":
			return syscall.EBUSY
		}
		for other := range r.files {
			if strings.HasPrefix(other, name+"/") {
				return syscall.ENOTEMPTY
			}
		}
		delete(r.files, name)
		return nil
	})
}

// withFiles does one operation on the files, about one clean path.
func (r *Runner) withFiles(ctx context.Context, op, name string, f func(name string) error) error {
	if ctx.Err() != nil {
		return runnerTimeout(ctx, []string{op, name}, false, nil)
	}
	if !strings.HasPrefix(name, "/") || strings.ContainsRune(name, 0) {
		return &fs.PathError{Op: op, Path: name, Err: fs.ErrInvalid}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := f(path.Clean(name)); err != nil {
		return &fs.PathError{Op: op, Path: name, Err: err}
	}
	return nil
}

// lockedFollow is the file that a path leads to, or nil.
func (r *Runner) lockedFollow(name string) (*runnerFile, error) {
	_, f, err := r.lockedResolve(name)
	return f, err
}

func (r *Runner) lockedResolve(name string) (string, *runnerFile, error) {
	for range 40 {
		f := r.files[name]
		switch {
		case f == nil:
			return name, nil, nil
		case f.err != nil:
			return name, nil, f.err
		case f.link == "":
			return name, f, nil
		case path.IsAbs(f.link):
			name = path.Clean(f.link)
		default:
			name = path.Join(path.Dir(name), f.link)
		}
	}
	return name, nil, syscall.ELOOP
}

// parents are the directories above a path, from the top, without the root.
func parents(name string) []string {
	var out []string
	for dir := path.Dir(name); dir != "/"; dir = path.Dir(dir) {
		out = append(out, dir)
	}
	slices.Reverse(out)
	return out
}
