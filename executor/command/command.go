package command

import (
	"context"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
)

// Command is one program with its arguments.
type Command struct {
	// Argv is the program and its arguments. Argv[0] is a name that is looked up in PATH, or an absolute path; never a
	// shell string.
	Argv []string
	// Env are "NAME=value" entries that are added to the runner's minimal environment (PATH and LC_ALL=C), or replace
	// its entries. The environment of the calling process is not inherited.
	Env []string
}

// String is the command as one would type it, for messages. Arguments that a shell would not take as they are, are
// quoted.
func (c Command) String() string { return join(c.Argv) }

// Result is what a program left behind that ran to its end. The slices belong to the caller.
type Result struct {
	Stdout, Stderr []byte
	ExitCode       int
}

// Runner runs programs and looks at files in one place. It is safe for concurrent use. Consumers declare narrower
// interfaces where they use less.
//
// All paths are absolute and are those of that place. A path that is not absolute, or has a NUL byte, is refused with
// [fs.ErrInvalid]. Errors of the file methods are [*fs.PathError] with the usual meanings ([fs.ErrNotExist],
// [fs.ErrExist], [syscall.ENOTEMPTY], ... through errors.Is); when the context ends first they are a [*TimeoutError].
type Runner interface {
	// Run runs one program to its end. A program that ran and exited non-zero is not an error: look at ExitCode.
	// Errors: [*SpawnError] (nothing ran), [*TimeoutError] (the context ended first; errors.Is context.DeadlineExceeded
	// or context.Canceled), [*SignalError] (killed by someone else), [*OutputLimitError].
	Run(ctx context.Context, cmd Command) (Result, error)
	// MkdirAll makes a directory and the parents that are missing, each with exactly perm, whatever the umask. A
	// directory that exists is left as it is.
	MkdirAll(ctx context.Context, path string, perm fs.FileMode) error
	// Stat describes a file and follows symbolic links.
	Stat(ctx context.Context, path string) (FileInfo, error)
	// Lstat describes a file and does not follow a symbolic link at the end of the path.
	Lstat(ctx context.Context, path string) (FileInfo, error)
	// ReadFile reads a whole file, of at most the runner's read limit (16 MiB by default); a longer one is an
	// [*OutputLimitError].
	ReadFile(ctx context.Context, path string) ([]byte, error)
	// ReadAt reads exactly length bytes from offset on, or fails: with io.ErrUnexpectedEOF when the file or device ends
	// before.
	ReadAt(ctx context.Context, path string, offset, length int64) ([]byte, error)
	// EvalSymlinks is the path with all symbolic links resolved. Every component must exist.
	EvalSymlinks(ctx context.Context, path string) (string, error)
	// CreateFile makes an empty file with exactly perm. A path that exists, be it a dangling symbolic link, is
	// fs.ErrExist.
	CreateFile(ctx context.Context, path string, perm fs.FileMode) error
	// Remove removes one file or one empty directory. It is never recursive.
	Remove(ctx context.Context, path string) error
}

// FileInfo describes a file.
type FileInfo struct {
	// Mode is the type and the permissions.
	Mode fs.FileMode
	// Size is in bytes. It is 0 for a device.
	Size int64
	// Major and Minor are the numbers of a device node, 0 for everything else.
	Major, Minor uint32
	// Dev is the device number of the filesystem that the file is on: it differs from the parent directory's where
	// something is mounted.
	Dev uint64
}

// Limits that hold where a runner's options do not say otherwise.
const (
	DefaultOutputLimit = 32 << 20 // bytes of each of standard output and standard error
	DefaultReadLimit   = 16 << 20 // bytes of one ReadFile or ReadAt
	DefaultPath        = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
)

// environment is PATH and LC_ALL=C, then extra; of several entries of one name the last counts and is the only one.
func environment(path string, extra []string) ([]string, error) {
	env := []string{"PATH=" + path, "LC_ALL=C"}
	index := map[string]int{"PATH": 0, "LC_ALL": 1}
	for _, entry := range extra {
		name, _, ok := strings.Cut(entry, "=")
		if !ok || name == "" || strings.ContainsRune(entry, 0) {
			return nil, fmt.Errorf("environment entry %q is not NAME=value", entry)
		}
		if i, seen := index[name]; seen {
			env[i] = entry
			continue
		}
		index[name] = len(env)
		env = append(env, entry)
	}
	return env, nil
}

func checkArgv(argv []string) error {
	if len(argv) == 0 || argv[0] == "" {
		return fmt.Errorf("no program given")
	}
	for i, arg := range argv {
		if strings.ContainsRune(arg, 0) {
			return fmt.Errorf("argument %d has a NUL byte: %q", i, arg)
		}
	}
	return nil
}

// checkPath refuses what could mean different files to a runner in this namespace and to one in another.
func checkPath(op, path string) error {
	if !strings.HasPrefix(path, "/") || strings.ContainsRune(path, 0) {
		return &fs.PathError{Op: op, Path: path, Err: fs.ErrInvalid}
	}
	return nil
}

func join(argv []string) string {
	var b strings.Builder
	for i, arg := range argv {
		if i > 0 {
			b.WriteByte(' ')
		}
		if arg == "" || strings.ContainsFunc(arg, needsQuotes) {
			b.WriteString(strconv.Quote(arg))
		} else {
			b.WriteString(arg)
		}
	}
	return b.String()
}

func needsQuotes(r rune) bool {
	return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("@%+=:,./_-", r))
}
