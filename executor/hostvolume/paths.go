package hostvolume

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"
	"syscall"

	v1 "k8s.io/api/core/v1"

	"github.com/stateofworld/stateofworld/executor/command"
)

// dirsOf are the directories of a volume below base, the outer one first.
func (p *preparation) dirsOf(v *volume) [2]string {
	target := v.mountPoint(p.base)
	return [2]string{path.Dir(target), target}
}

// isDir reports whether there is a directory. That something else is in its place, be it a link to a directory, is an
// error.
func (e *Env) isDir(ctx context.Context, dir string) (bool, error) {
	info, err := e.Runner.Lstat(ctx, dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case err != nil:
		return false, hostError(err)
	case !info.Mode.IsDir():
		return false, &placeError{dir, fmt.Errorf("%w: %s must be a directory, and is %v", ErrUnsafePath, dir, info.Mode.Type())}
	}
	return true, nil
}

// checkDirs makes sure that nothing is in the way of the directories of a volume. They need not be there yet.
func (p *preparation) checkDirs(ctx context.Context, v *volume) error {
	for _, dir := range p.dirsOf(v) {
		if ok, err := p.env.isDir(ctx, dir); !ok {
			return err
		}
	}
	return nil
}

// makeBase makes the base directory, once for each call.
func (p *preparation) makeBase(ctx context.Context) error {
	if p.baseMade {
		return nil
	}
	if err := p.env.Runner.MkdirAll(ctx, p.settings.BaseDir, 0o755); err != nil {
		return hostError(err)
	}
	base, err := p.env.realBase(ctx, p.settings.BaseDir)
	if err != nil {
		return err
	}
	p.base, p.baseMade = base, true
	return nil
}

// makeDir makes the directories of a volume, and makes sure afterwards that the path leads there and nowhere else.
func (p *preparation) makeDir(ctx context.Context, v *volume, perm fs.FileMode) error {
	if err := p.makeBase(ctx); err != nil {
		return err
	}
	dirs := p.dirsOf(v)
	for i, dir := range dirs {
		ok, err := p.env.isDir(ctx, dir)
		if err != nil {
			return err
		}
		if !ok {
			p.dirs = append(p.dirs, dir)
			if err := p.env.Runner.MkdirAll(ctx, dir, [2]fs.FileMode{0o755, perm}[i]); err != nil {
				return hostError(err)
			}
		}
	}
	target := dirs[1]
	resolved, err := p.env.Runner.EvalSymlinks(ctx, target)
	if err != nil {
		return hostError(err)
	}
	if resolved != target {
		return &placeError{target, fmt.Errorf("%w: %s leads to %s", ErrUnsafePath, target, resolved)}
	}
	return nil
}

// makeDirectory makes the directory of an emptyDir on disk.
func (p *preparation) makeDirectory(ctx context.Context, v *volume) (string, error) {
	if err := p.makeDir(ctx, v, v.mode); err != nil {
		return "", err
	}
	target := v.mountPoint(p.base)
	info, err := p.env.Runner.Lstat(ctx, target)
	if err != nil {
		return "", hostError(err)
	}
	const bits = fs.ModePerm | fs.ModeSetuid | fs.ModeSetgid | fs.ModeSticky
	if info.Mode&bits != v.mode { // an earlier call was ended between making it and giving it its mode
		mode := fmt.Sprintf("%04o", v.mode.Perm())
		if v.mode&fs.ModeSticky != 0 {
			mode = "1" + mode[1:]
		}
		if err := p.env.runOK(ctx, ErrHost, "chmod", mode, "--", target); err != nil {
			return "", err
		}
	}
	return target, nil
}

// runOK runs a program that has to exit with 0.
func (e *Env) runOK(ctx context.Context, class error, argv ...string) error {
	result, err := e.Runner.Run(ctx, command.Command{Argv: argv})
	if err != nil {
		return programError(class, err)
	}
	if result.ExitCode != 0 {
		return fmt.Errorf("%w: %w", class, commandError(argv, result))
	}
	return nil
}

// checkHostPath makes sure that the path of a hostPath volume is what its type says. mayBeMade lets one pass that is
// still to be made.
func (e *Env) checkHostPath(ctx context.Context, v *volume, mayBeMade bool) error {
	if v.hostPathType == v1.HostPathUnset {
		return nil
	}
	info, err := e.Runner.Stat(ctx, v.hostPath)
	switch {
	case errors.Is(err, fs.ErrNotExist) && mayBeMade && (v.hostPathType == v1.HostPathDirectoryOrCreate || v.hostPathType == v1.HostPathFileOrCreate):
		return nil
	case errors.Is(err, fs.ErrNotExist):
		return &placeError{v.hostPath, fmt.Errorf("%w: %s does not exist, and type is %s", ErrHostPath, v.hostPath, v.hostPathType)}
	case errors.Is(err, syscall.ENOTDIR):
		return &placeError{v.hostPath, fmt.Errorf("%w: %w", ErrHostPath, err)}
	case err != nil:
		return hostError(err)
	case !isHostPathType(v.hostPathType, info.Mode):
		return &placeError{v.hostPath, fmt.Errorf("%w: %s is %v, and type is %s", ErrHostPath, v.hostPath, info.Mode, v.hostPathType)}
	}
	return nil
}

func isHostPathType(t v1.HostPathType, mode fs.FileMode) bool {
	switch t {
	case v1.HostPathDirectory, v1.HostPathDirectoryOrCreate:
		return mode.IsDir()
	case v1.HostPathFile, v1.HostPathFileOrCreate:
		return mode.IsRegular()
	case v1.HostPathSocket:
		return mode&fs.ModeSocket != 0
	case v1.HostPathCharDev:
		return mode&fs.ModeCharDevice != 0
	case v1.HostPathBlockDev:
		return isBlockDevice(mode)
	default:
		return true
	}
}

// makeHostPath makes what the type of a hostPath asks for, if it is not there: as in Kubernetes, a directory with its
// parents, but a file only in a directory that exists.
func (e *Env) makeHostPath(ctx context.Context, v *volume) error {
	if v.hostPathType != v1.HostPathDirectoryOrCreate && v.hostPathType != v1.HostPathFileOrCreate {
		return nil
	}
	_, err := e.Runner.Stat(ctx, v.hostPath)
	if errors.Is(err, fs.ErrNotExist) {
		if v.hostPathType == v1.HostPathDirectoryOrCreate {
			err = e.Runner.MkdirAll(ctx, v.hostPath, 0o755)
		} else if err = e.Runner.CreateFile(ctx, v.hostPath, 0o644); errors.Is(err, fs.ErrExist) {
			err = nil // someone else was faster, or it is a dangling link: looked at below
		}
	}
	if errors.Is(err, fs.ErrNotExist) {
		return &placeError{v.hostPath, fmt.Errorf("%w: the directory of %s does not exist", ErrHostPath, v.hostPath)}
	}
	if err != nil {
		return hostError(err)
	}
	return e.checkHostPath(ctx, v, false)
}

// subPath is the host path of a mount. It makes the directories of a subPath that are missing, and refuses links: what
// is in a volume was written by containers.
func (p *preparation) subPath(ctx context.Context, m volumeMount) (string, error) {
	root := p.roots[m.volume]
	if m.subPath == "" {
		return root, nil
	}
	info, err := p.env.Runner.Stat(ctx, root)
	if errors.Is(err, fs.ErrNotExist) {
		return "", &placeError{root, fmt.Errorf("%w: %s does not exist, and subPath is %q", ErrHostPath, root, m.subPath)}
	}
	if err != nil {
		return "", hostError(err)
	}
	perm := info.Mode.Perm()
	current, rest := root, strings.Split(m.subPath, "/")
	for i, component := range rest {
		if !info.Mode.IsDir() {
			return "", &placeError{current, fmt.Errorf("%w: %s must be a directory, and is %v", ErrUnsafePath, current, info.Mode.Type())}
		}
		current = path.Join(current, component)
		info, err = p.env.Runner.Lstat(ctx, current)
		if errors.Is(err, fs.ErrNotExist) {
			if m.volume.kind == kindDisk && m.volume.disk.readOnly {
				return "", &placeError{current, fmt.Errorf("%w: subPath %q does not exist on a read-only volume", ErrHostPath, m.subPath)}
			}
			current = path.Join(append([]string{current}, rest[i+1:]...)...)
			if err := p.env.Runner.MkdirAll(ctx, current, perm); err != nil {
				return "", hostError(err)
			}
			return current, nil
		}
		if err != nil {
			return "", hostError(err)
		}
		if info.Mode&fs.ModeSymlink != 0 {
			return "", &placeError{current, fmt.Errorf("%w: %s is a symbolic link", ErrUnsafePath, current)}
		}
	}
	return current, nil
}
