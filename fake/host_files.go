package fake

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"syscall"
	"time"

	"github.com/stateofworld/stateofworld/executor/command"
)

// hostNode is a file, directory, link or device node.
type hostNode struct {
	mode     fs.FileMode
	children map[string]*hostNode // of a directory
	link     string
	number   hostNumber // of a device
	data     []byte
	from     time.Time // not there before
}

// hostNumber is a device number.
type hostNumber struct{ major, minor uint32 }

func newHostDir(perm fs.FileMode) *hostNode {
	return &hostNode{mode: fs.ModeDir | perm, children: map[string]*hostNode{}}
}

// hostPlace is where a path leads: a node as it is seen through a mount.
type hostPlace struct {
	mount *hostMount
	node  *hostNode
	path  string // without links
}

const hostMaxLinks = 40

// walk resolves a path as the kernel does: through links, and into what is mounted on the way.
func (h *Host) walk(path string, followLast bool) (hostPlace, error) {
	links := 0
	stack, err := h.walkFrom([]hostPlace{h.rootPlace()}, path, followLast, &links)
	if err != nil {
		return hostPlace{}, err
	}
	return stack[len(stack)-1], nil
}

func (h *Host) rootPlace() hostPlace {
	mount, node := h.cross(h.mounts[0], h.mounts[0].node)
	return hostPlace{mount, node, "/"}
}

// cross goes up to what is mounted on a node, and on that, and so on.
func (h *Host) cross(mount *hostMount, node *hostNode) (*hostMount, *hostNode) {
	for {
		var on *hostMount
		for _, m := range h.mounts {
			if m.parent == mount && m.at == node {
				on = m
			}
		}
		if on == nil {
			return mount, node
		}
		mount, node = on, on.node
	}
}

func (h *Host) walkFrom(stack []hostPlace, path string, followLast bool, links *int) ([]hostPlace, error) {
	if strings.HasPrefix(path, "/") {
		stack = stack[:1]
	}
	names := strings.FieldsFunc(path, func(r rune) bool { return r == '/' })
	for i, name := range names {
		current := stack[len(stack)-1]
		if !current.node.mode.IsDir() {
			return nil, syscall.ENOTDIR
		}
		switch name {
		case ".":
			continue
		case "..":
			stack = stack[:max(1, len(stack)-1)]
			continue
		}
		child := current.node.children[name]
		if child == nil || h.clock.Now().Before(child.from) {
			return nil, syscall.ENOENT
		}
		if child.mode&fs.ModeSymlink != 0 && (followLast || i < len(names)-1) {
			if *links++; *links > hostMaxLinks {
				return nil, syscall.ELOOP
			}
			var err error
			if stack, err = h.walkFrom(append([]hostPlace(nil), stack...), child.link, true, links); err != nil {
				return nil, err
			}
			continue
		}
		mount, node := h.cross(current.mount, child)
		stack = append(stack, hostPlace{mount, node, strings.TrimSuffix(current.path, "/") + "/" + name})
	}
	return stack, nil
}

// parent is the directory that a path's last component is in, and that component.
func (h *Host) parent(path string) (hostPlace, string, error) {
	path = strings.TrimRight(path, "/")
	i := strings.LastIndexByte(path, '/')
	dir, err := h.walk(path[:i+1], true)
	if err == nil && !dir.node.mode.IsDir() {
		err = syscall.ENOTDIR
	}
	return dir, path[i+1:], err
}

// hostFile is the frame of the file methods.
func hostFile[T any](ctx context.Context, h *Host, op, path string, effect func() (T, error)) (T, error) {
	return hostDo(ctx, h, HostCall{Op: op, Argv: []string{op, path}}, func() (T, error) {
		if !strings.HasPrefix(path, "/") || strings.ContainsRune(path, 0) {
			var none T
			return none, &fs.PathError{Op: op, Path: path, Err: fs.ErrInvalid}
		}
		out, err := effect()
		if err != nil {
			err = &fs.PathError{Op: op, Path: path, Err: err}
		}
		return out, err
	})
}

// MkdirAll implements [command.Runner].
func (h *Host) MkdirAll(ctx context.Context, path string, perm fs.FileMode) error {
	_, err := hostFile(ctx, h, "MkdirAll", path, func() (struct{}, error) { return struct{}{}, h.mkdirAll(path, perm) })
	return err
}

func (h *Host) mkdirAll(path string, perm fs.FileMode) error {
	place, err := h.walk(path, true)
	switch {
	case err == nil && !place.node.mode.IsDir():
		return syscall.ENOTDIR
	case err == nil || !errors.Is(err, fs.ErrNotExist):
		return err
	}
	path = strings.TrimRight(path, "/")
	if err := h.mkdirAll(path[:strings.LastIndexByte(path, '/')+1], perm); err != nil {
		return err
	}
	return h.create(path, newHostDir(perm))
}

func (h *Host) create(path string, node *hostNode) error {
	dir, name, err := h.parent(path)
	switch {
	case err != nil:
		return err
	case dir.node.children[name] != nil:
		return syscall.EEXIST
	case dir.mount.readOnly():
		return syscall.EROFS
	}
	dir.node.children[name] = node
	return nil
}

// Stat implements [command.Runner].
func (h *Host) Stat(ctx context.Context, path string) (command.FileInfo, error) {
	return hostFile(ctx, h, "Stat", path, func() (command.FileInfo, error) { return h.stat(path, true) })
}

// Lstat implements [command.Runner].
func (h *Host) Lstat(ctx context.Context, path string) (command.FileInfo, error) {
	return hostFile(ctx, h, "Lstat", path, func() (command.FileInfo, error) { return h.stat(path, false) })
}

func (h *Host) stat(path string, follow bool) (command.FileInfo, error) {
	place, err := h.walk(path, follow)
	if err != nil {
		return command.FileInfo{}, err
	}
	n := place.node
	dev := uint64(place.mount.fs.number.major)<<32 | uint64(place.mount.fs.number.minor)
	return command.FileInfo{Mode: n.mode, Size: int64(len(n.data)), Major: n.number.major, Minor: n.number.minor, Dev: dev}, nil
}

// ReadFile implements [command.Runner]. /proc/self/mountinfo is the mount table.
func (h *Host) ReadFile(ctx context.Context, path string) ([]byte, error) {
	return hostFile(ctx, h, "ReadFile", path, func() ([]byte, error) {
		if path == "/proc/self/mountinfo" {
			return h.mountInfo(), nil
		}
		place, err := h.walk(path, true)
		switch {
		case err != nil:
			return nil, err
		case place.node.mode.IsDir():
			return nil, syscall.EISDIR
		case !place.node.mode.IsRegular():
			return nil, syscall.EINVAL
		}
		return append([]byte(nil), place.node.data...), nil
	})
}

// ReadAt implements [command.Runner].
func (h *Host) ReadAt(ctx context.Context, path string, offset, length int64) ([]byte, error) {
	return hostFile(ctx, h, "ReadAt", path, func() ([]byte, error) {
		place, err := h.walk(path, true)
		if err != nil {
			return nil, err
		}
		if offset < 0 || length < 0 {
			return nil, fs.ErrInvalid
		}
		if device := h.devices[place.node.number]; place.node.mode&fs.ModeDevice != 0 && device != nil {
			return device.read(offset, length)
		}
		if int64(len(place.node.data)) < offset+length {
			return nil, io.ErrUnexpectedEOF
		}
		return append([]byte(nil), place.node.data[offset:offset+length]...), nil
	})
}

// EvalSymlinks implements [command.Runner].
func (h *Host) EvalSymlinks(ctx context.Context, path string) (string, error) {
	return hostFile(ctx, h, "EvalSymlinks", path, func() (string, error) {
		place, err := h.walk(path, true)
		return place.path, err
	})
}

// CreateFile implements [command.Runner].
func (h *Host) CreateFile(ctx context.Context, path string, perm fs.FileMode) error {
	_, err := hostFile(ctx, h, "CreateFile", path, func() (struct{}, error) { return struct{}{}, h.create(path, &hostNode{mode: perm}) })
	return err
}

// Remove implements [command.Runner].
func (h *Host) Remove(ctx context.Context, path string) error {
	_, err := hostFile(ctx, h, "Remove", path, func() (struct{}, error) { return struct{}{}, h.remove(path) })
	return err
}

func (h *Host) remove(path string) error {
	dir, name, err := h.parent(path)
	if err != nil {
		return err
	}
	node := dir.node.children[name]
	if node == nil {
		return syscall.ENOENT
	}
	if _, top := h.cross(dir.mount, node); top != node {
		return syscall.EBUSY
	}
	switch {
	case len(node.children) > 0:
		return syscall.ENOTEMPTY
	case dir.mount.readOnly():
		return syscall.EROFS
	}
	delete(dir.node.children, name)
	return nil
}

// Mkdir makes a directory and its parents.
func (h *Host) Mkdir(path string) { h.must(path, func() error { return h.mkdirAll(path, 0o755) }) }

// Symlink makes a link to target, which need not exist.
func (h *Host) Symlink(target, link string) {
	h.must(link, func() error { return h.create(link, &hostNode{mode: fs.ModeSymlink | 0o777, link: target}) })
}

// WriteFile makes a file with contents, or replaces its contents.
func (h *Host) WriteFile(path string, data []byte) {
	h.must(path, func() error {
		if place, err := h.walk(path, true); err == nil {
			place.node.data = append([]byte(nil), data...)
			return nil
		}
		return h.create(path, &hostNode{mode: 0o644, data: append([]byte(nil), data...)})
	})
}

// Mknod makes a file of any type that has no contents here: a socket, a pipe, a character device.
func (h *Host) Mknod(path string, mode fs.FileMode) {
	h.must(path, func() error { return h.create(path, &hostNode{mode: mode}) })
}

// Contents are the bytes of a file, and whether there is such a file.
func (h *Host) Contents(path string) (string, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	place, err := h.walk(path, true)
	if err != nil || !place.node.mode.IsRegular() {
		return "", false
	}
	return string(place.node.data), true
}

// Mode is the type and permissions of what is at a path, a link not followed, and whether there is anything.
func (h *Host) Mode(path string) (fs.FileMode, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	info, err := h.stat(path, false)
	return info.Mode, err == nil
}

func (h *Host) must(path string, do func() error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := do(); err != nil {
		panic(fmt.Sprintf("fake host: %s: %v", path, err))
	}
}

func (h *Host) mustWalk(path string) hostPlace {
	place, err := h.walk(path, true)
	if err != nil {
		panic(fmt.Sprintf("fake host: %s: %v", path, err))
	}
	return place
}
