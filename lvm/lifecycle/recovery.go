package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/stateofworld/stateofworld/lvm"
)

// What a crash has left behind is looked for once at the start, in each volume group: logical volumes that were made for a claim and
// not announced, and removals that were not finished.

// recoveries are the things that are done once.
type recoveries struct {
	mu   sync.Mutex
	done map[key]bool
}

func (r *recoveries) isDone(k key) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.done[k]
}

func (r *recoveries) setDone(k key) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.done == nil {
		r.done = map[key]bool{}
	}
	r.done[k] = true
}

// once runs something until it has succeeded, with back-off.
func (a *Agent) once(ctx context.Context, k key, name string, run func(context.Context) error) time.Time {
	if a.recovered.isDone(k) {
		a.book.drop(k)
		return time.Time{}
	}
	return a.start(ctx, k, task{
		name: name, other: k.String(), long: true, run: run,
		done: func(err error) {
			if err == nil {
				a.recovered.setDone(k)
				return
			}
			a.notifyFailure(k, "", lvm.Name{}, failureOf(err, ""))
		},
	})
}

// startDiscovery finds the volume groups that are to be recovered.
func (a *Agent) startDiscovery(ctx context.Context, k key) time.Time {
	return a.once(ctx, k, "find volume groups", func(ctx context.Context) error {
		names := a.cfg.VolumeGroups
		if len(names) == 0 {
			vgs, err := a.backend.VolumeGroups(ctx)
			if err != nil {
				return fmt.Errorf("find volume groups: %w", err)
			}
			for _, vg := range vgs {
				names = append(names, vg.Name)
			}
		}
		for _, vg := range names {
			a.engine.Add(key{kind: groupKind, name: vg})
			a.scheduleOrphanPass(vg)
		}
		return nil
	})
}

func (a *Agent) startRecovery(ctx context.Context, k key) time.Time {
	return a.once(ctx, k, "recover", func(ctx context.Context) error { return a.recoverGroup(ctx, k) })
}

// recoverGroup looks for what was left behind in a group. A group that is not there, or is another host's, has nothing that is ours now; should it
// come later, a restart of the agent recovers it.
func (a *Agent) recoverGroup(ctx context.Context, k key) error {
	lvs, err := a.backend.List(ctx, k.name)
	switch {
	case errors.Is(err, lvm.ErrVGNotFound), errors.Is(err, lvm.ErrForeign), errors.Is(err, lvm.ErrExported):
		a.notifyFailure(k, "", lvm.Name{}, failureOf(err, ""))
		return nil
	case err != nil:
		return fmt.Errorf("recover %s: %w", k, err)
	}
	unfinished := false
	for _, lv := range lvs {
		unfinished = unfinished || lv.Stage == lvm.StageRemoving
		if own := ownershipOf(lv); own.intact(lv.Name) && !own.Ready {
			a.addLeftover(lv.Name, leftover{UID: own.UID, Claim: own.Claim})
		}
	}
	if !unfinished {
		return nil
	}
	if _, err := a.backend.FinishRemovals(ctx, k.name); err != nil {
		return fmt.Errorf("recover %s: %w", k, err)
	}
	return nil
}
