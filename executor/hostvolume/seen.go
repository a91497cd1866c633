package hostvolume

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"
	"sync"
)

// seen remembers by the path that the spec asks for on which devices a filesystem was seen. The zero value is ready for
// use.
type seen struct {
	mu    sync.Mutex
	paths map[string]bool
}

func (s *seen) has(device string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.paths[device]
}

func (s *seen) add(device string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.paths == nil {
		s.paths = map[string]bool{}
	}
	s.paths[device] = true
}

func (s *seen) remove(device string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.paths, device)
}

// record is the file in the state directory that stands for a device.
func record(stateDir, device string) string {
	readable := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_' || r == '.' {
			return r
		}
		return '_'
	}, path.Base(device))
	sum := sha256.Sum256([]byte(device))
	return path.Join(stateDir, fmt.Sprintf("seen-%.64s-%x", readable, sum[:8]))
}

func (e *Env) wasSeen(ctx context.Context, stateDir, device string) (bool, error) {
	if e.seen.has(device) || stateDir == "" {
		return e.seen.has(device), nil
	}
	_, err := e.Runner.Lstat(ctx, record(stateDir, device))
	switch {
	case err == nil:
		return true, nil
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	default:
		return false, hostError(err) // not knowing is not "no"
	}
}

// remember records that there is a filesystem on a device, before anyone can use it.
func (e *Env) remember(ctx context.Context, stateDir, device string) error {
	if e.seen.has(device) {
		return nil
	}
	if stateDir != "" {
		if err := e.Runner.MkdirAll(ctx, stateDir, 0o700); err != nil {
			return hostError(err)
		}
		if err := e.Runner.CreateFile(ctx, record(stateDir, device), 0o600); err != nil && !errors.Is(err, fs.ErrExist) {
			return hostError(err)
		}
	}
	e.seen.add(device)
	return nil
}

// ForgetDevice forgets that a filesystem was seen on a device, so that it may be formatted if it is blank: call it when
// the disk has been replaced by a new one that has the same name. device is the path as the spec asks for it, which a
// [VolumeError] of class [ErrFilesystemLost] bears.
func (e *Env) ForgetDevice(ctx context.Context, device string) error {
	s, err := e.settings()
	if err != nil {
		return err
	}
	if s.StateDir != "" {
		if err := e.Runner.Remove(ctx, record(s.StateDir, device)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return hostError(err)
		}
	}
	e.seen.remove(device)
	return nil
}
