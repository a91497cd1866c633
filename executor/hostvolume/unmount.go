package hostvolume

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"path"
	"slices"
	"time"

	"github.com/go-logr/logr"
)

// undoTimeout bounds the taking down of a failed call's mounts, which goes on when the caller's context has ended.
const undoTimeout = time.Minute

// UnmountExistingVolumes unmounts everything that is mounted below the base directory, whoever mounted it, and nothing
// else. It goes on after failures, and removes the mount points that this package has made, if they are empty. The base
// directory itself stays, mounted or not.
//
// A mount that is gone afterwards is a success, whatever umount said; one that is still there is a failure. Nothing
// mounted is a success.
//
// Errors: [ErrInvalidOptions]; [ErrInProgress] when ctx ended while another call worked; else *[UnmountError], in which
// a mount that is in use is [ErrUnmountBusy].
func (e *Env) UnmountExistingVolumes(ctx context.Context) error {
	s, err := e.settings()
	if err != nil {
		return err
	}
	release, err := e.acquire(ctx)
	if err != nil {
		return err
	}
	defer release()
	base, err := e.realBase(ctx, s.BaseDir)
	if err != nil {
		return &UnmountError{Errs: []error{err}}
	}
	gone := map[string]bool{} // mount points
	failures := map[int]error{}
	for left := math.MaxInt; ; {
		table, err := e.readMounts(ctx)
		if err != nil {
			return &UnmountError{Errs: append(sortedErrors(failures), err)}
		}
		ours := table.managed(base)
		if len(ours) == 0 {
			break
		}
		if len(ours) >= left { // the last round has achieved nothing
			return unmountError(ours, failures)
		}
		left = len(ours)
		for _, m := range ours {
			gone[m.path] = true
		}
		failures = e.unmountAll(ctx, ours)
	}
	e.removeMountPoints(ctx, base, gone)
	return nil
}

// unmountAll tries each mount once, and returns the failures by the id of the mount.
func (e *Env) unmountAll(ctx context.Context, mounts mountTable) map[int]error {
	failures := map[int]error{}
	on := map[int]string{} // by the id of a mount: what failed to be unmounted from on top of it
	for _, m := range mounts {
		if child, ok := on[m.id]; ok {
			failures[m.id] = fmt.Errorf("%w: %s: %s is mounted on it", ErrUnmountBusy, m.path, child)
		} else if err := e.unmount(ctx, m.path); err != nil {
			failures[m.id] = err
		} else {
			continue
		}
		on[m.parent] = m.path
	}
	return failures
}

// unmount takes the last mount at a path away. Its success says only that the program succeeded.
func (e *Env) unmount(ctx context.Context, target string) error {
	// Where a mount is hidden by a later one, its path may lead through a symbolic link to a mount that is none of
	// ours. umount would follow it.
	resolved, err := e.Runner.EvalSymlinks(ctx, target)
	if err != nil {
		return fmt.Errorf("%w: %s cannot be reached: %w", ErrUnmountBusy, target, err)
	}
	if resolved != target {
		return fmt.Errorf("%w: %s leads to %s", ErrUnsafePath, target, resolved)
	}
	return e.runOK(ctx, ErrUnmountBusy, "umount", "--", target)
}

func unmountError(left mountTable, failures map[int]error) error {
	out := &UnmountError{}
	for _, m := range left {
		err := failures[m.id]
		if err == nil {
			err = fmt.Errorf("%w: umount %s reported success", ErrUnmountBusy, m.path)
		}
		out.Errs = append(out.Errs, err)
	}
	return out
}

func sortedErrors(failures map[int]error) []error {
	var errs []error
	for _, id := range slices.Sorted(maps.Keys(failures)) {
		errs = append(errs, failures[id])
	}
	return errs
}

// removeMountPoints removes the directories that this package made for the mounts that are gone. One that is not empty,
// or in use again, stays, which harms nobody.
func (e *Env) removeMountPoints(ctx context.Context, base string, gone map[string]bool) {
	log := logr.FromContextOrDiscard(ctx)
	used := map[string]bool{}
	for _, target := range slices.Sorted(maps.Keys(gone)) {
		if family := path.Dir(target); path.Dir(family) == base && slices.Contains(families, path.Base(family)) {
			used[family] = true
			if err := e.Runner.Remove(ctx, target); err != nil {
				log.V(1).Info("Mount point stays", "path", target, "reason", err.Error())
			}
		}
	}
	for _, family := range slices.Sorted(maps.Keys(used)) {
		if err := e.Runner.Remove(ctx, family); err != nil {
			log.V(1).Info("Directory stays", "path", family, "reason", err.Error())
		}
	}
}

// undo takes down what this call has mounted, last first, and returns the call's error with what came of it. It goes on
// when ctx has ended.
func (p *preparation) undo(ctx context.Context, cause error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
	defer cancel()
	out := &PrepareError{Errs: []error{cause}}
	for _, target := range slices.Backward(p.mounts) {
		mounted, err := p.undoMount(ctx, target)
		switch {
		case err != nil:
			out.Left = append(out.Left, target)
			out.Errs = append(out.Errs, err)
		case mounted:
			out.Undone = append(out.Undone, target)
		}
	}
	for _, dir := range slices.Backward(p.dirs) {
		if err := p.env.Runner.Remove(ctx, dir); err != nil {
			logr.FromContextOrDiscard(ctx).V(1).Info("Directory stays", "path", dir, "reason", err.Error())
		}
	}
	return out
}

// undoMount takes down what has been mounted at target since the call began, and reports whether there was anything.
func (p *preparation) undoMount(ctx context.Context, target string) (mounted bool, err error) {
	for {
		table, readErr := p.env.readMounts(ctx)
		if readErr != nil {
			return mounted, errors.Join(readErr, err)
		}
		if table.count(target) <= p.before.count(target) {
			return mounted, nil
		}
		if err != nil {
			return true, err
		}
		mounted = true
		before := table.count(target)
		err = p.env.unmount(ctx, target)
		if err == nil {
			if table, readErr = p.env.readMounts(ctx); readErr == nil && table.count(target) >= before {
				err = fmt.Errorf("%w: umount %s reported success", ErrUnmountBusy, target)
			}
		}
	}
}
