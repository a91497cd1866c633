package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strconv"
	"strings"
	"syscall"
)

// MkdirAll implements [Runner], with stat and mkdir.
func (r *NSEnterRunner) MkdirAll(ctx context.Context, path string, perm fs.FileMode) error {
	if err := checkPath("mkdir", path); err != nil {
		return err
	}
	stat := func(path string) (FileInfo, error) { return r.Stat(ctx, path) }
	return mkdirAll(path, stat, func(path string) error {
		_, err := r.tool(ctx, "mkdir", path, "mkdir", "-m", octal(perm), "--", path)
		return err
	})
}

// Stat implements [Runner], with stat.
func (r *NSEnterRunner) Stat(ctx context.Context, path string) (FileInfo, error) {
	return r.stat(ctx, "stat", path, "-L")
}

// Lstat implements [Runner], with stat.
func (r *NSEnterRunner) Lstat(ctx context.Context, path string) (FileInfo, error) {
	return r.stat(ctx, "lstat", path)
}

func (r *NSEnterRunner) stat(ctx context.Context, op, path string, options ...string) (FileInfo, error) {
	if err := checkPath(op, path); err != nil {
		return FileInfo{}, err
	}
	argv := append([]string{"stat"}, options...)
	out, err := r.tool(ctx, op, path, append(argv, "-c", "%f %s %t %T %d", "--", path)...)
	if err != nil {
		return FileInfo{}, err
	}
	info, err := parseStat(string(out))
	if err != nil {
		return FileInfo{}, &fs.PathError{Op: op, Path: path, Err: err}
	}
	return info, nil
}

// parseStat reads the line of stat -c "%f %s %t %T %d": mode in hex, size, major and minor of a device in hex, device
// of the filesystem.
func parseStat(line string) (FileInfo, error) {
	fields := strings.Fields(line)
	if len(fields) != 5 {
		return FileInfo{}, fmt.Errorf("unexpected output of stat: %q", line)
	}
	var n [5]uint64
	for i, base := range [5]int{16, 10, 16, 16, 10} {
		var err error
		if n[i], err = strconv.ParseUint(fields[i], base, 64); err != nil {
			return FileInfo{}, fmt.Errorf("unexpected output of stat: %q", line)
		}
	}
	info := FileInfo{Mode: modeOf(uint32(n[0])), Size: int64(n[1]), Dev: n[4]}
	if info.Size < 0 {
		return FileInfo{}, fmt.Errorf("unexpected output of stat: %q", line)
	}
	if info.Mode&fs.ModeDevice != 0 {
		info.Major, info.Minor = uint32(n[2]), uint32(n[3])
	}
	return info, nil
}

// ReadFile implements [Runner], with cat.
func (r *NSEnterRunner) ReadFile(ctx context.Context, path string) ([]byte, error) {
	if err := checkPath("open", path); err != nil {
		return nil, err
	}
	return r.tool(ctx, "open", path, "cat", "--", path)
}

// ReadAt implements [Runner], with dd.
func (r *NSEnterRunner) ReadAt(ctx context.Context, path string, offset, length int64) ([]byte, error) {
	if err := checkReadAt(path, offset, length, r.host.options.readLimit); err != nil {
		return nil, err
	}
	if length == 0 { // dd takes count=0 as "all"
		_, err := r.Stat(ctx, path)
		return []byte{}, err
	}
	data, err := r.tool(ctx, "read", path, "dd", "if="+path, "bs=64K", "iflag=skip_bytes,count_bytes,fullblock",
		"skip="+strconv.FormatInt(offset, 10), "count="+strconv.FormatInt(length, 10), "status=none")
	if errors.Is(err, syscall.EINVAL) { // a seek past the end of a device; of a file dd reads nothing there
		return nil, &fs.PathError{Op: "read", Path: path, Err: io.ErrUnexpectedEOF}
	}
	if err != nil {
		return nil, err
	}
	if int64(len(data)) != length {
		return nil, &fs.PathError{Op: "read", Path: path, Err: io.ErrUnexpectedEOF}
	}
	return data, nil
}

// EvalSymlinks implements [Runner], with realpath.
func (r *NSEnterRunner) EvalSymlinks(ctx context.Context, path string) (string, error) {
	if err := checkPath("readlink", path); err != nil {
		return "", err
	}
	out, err := r.tool(ctx, "readlink", path, "realpath", "-e", "-z", "--", path)
	if err != nil {
		return "", err
	}
	resolved, ok := strings.CutSuffix(string(out), "\x00")
	if !ok || checkPath("readlink", resolved) != nil {
		return "", &fs.PathError{Op: "readlink", Path: path, Err: fmt.Errorf("unexpected output of realpath: %q", out)}
	}
	return resolved, nil
}

// CreateFile implements [Runner], with dd and chmod.
func (r *NSEnterRunner) CreateFile(ctx context.Context, path string, perm fs.FileMode) error {
	if err := checkPath("create", path); err != nil {
		return err
	}
	if _, err := r.tool(ctx, "create", path, "dd", "if=/dev/null", "of="+path, "conv=excl", "status=none"); err != nil {
		return err
	}
	_, err := r.tool(ctx, "chmod", path, "chmod", octal(perm), "--", path)
	return err
}

// Remove implements [Runner], with rm.
func (r *NSEnterRunner) Remove(ctx context.Context, path string) error {
	if err := checkPath("remove", path); err != nil {
		return err
	}
	_, err := r.tool(ctx, "remove", path, "rm", "-d", "--", path)
	return err
}

// tool runs a program of coreutils about path and turns its message into the error that the system call would have
// given.
func (r *NSEnterRunner) tool(ctx context.Context, op, path string, argv ...string) ([]byte, error) {
	result, err := r.run(ctx, Command{Argv: argv}, r.host.options.readLimit)
	if err != nil {
		return nil, err
	}
	if result.ExitCode == 0 {
		return result.Stdout, nil
	}
	message := strings.TrimSpace(string(result.Stderr))
	if errno := errnoOf(message); errno != nil {
		return nil, &fs.PathError{Op: op, Path: path, Err: errno}
	}
	if message == "" {
		message = "no message"
	}
	return nil, &fs.PathError{Op: op, Path: path, Err: fmt.Errorf("exit code %d of %s: %s", result.ExitCode, argv[0], message)}
}

// errnoOf is the system error whose text (in the C locale) ends a line of message, or nil.
func errnoOf(message string) error {
	for line := range strings.Lines(message) {
		text := strings.TrimSpace(line)
		if i := strings.LastIndex(text, ": "); i >= 0 {
			text = text[i+2:]
		}
		for errno := syscall.Errno(1); errno < 134; errno++ {
			if strings.EqualFold(errno.Error(), text) {
				return errno
			}
		}
	}
	return nil
}

// modeOf translates st_mode.
func modeOf(m uint32) fs.FileMode {
	mode := fs.FileMode(m & 0o777)
	switch m & 0o170000 {
	case 0o040000:
		mode |= fs.ModeDir
	case 0o120000:
		mode |= fs.ModeSymlink
	case 0o060000:
		mode |= fs.ModeDevice
	case 0o020000:
		mode |= fs.ModeDevice | fs.ModeCharDevice
	case 0o010000:
		mode |= fs.ModeNamedPipe
	case 0o140000:
		mode |= fs.ModeSocket
	case 0o100000:
	default:
		mode |= fs.ModeIrregular
	}
	for bit, special := range map[uint32]fs.FileMode{0o4000: fs.ModeSetuid, 0o2000: fs.ModeSetgid, 0o1000: fs.ModeSticky} {
		if m&bit != 0 {
			mode |= special
		}
	}
	return mode
}

// octal is a mode as chmod takes it.
func octal(mode fs.FileMode) string {
	m := uint64(mode.Perm())
	if mode&fs.ModeSetuid != 0 {
		m |= 0o4000
	}
	if mode&fs.ModeSetgid != 0 {
		m |= 0o2000
	}
	if mode&fs.ModeSticky != 0 {
		m |= 0o1000
	}
	return fmt.Sprintf("%04o", m)
}
