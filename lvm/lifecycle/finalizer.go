package lifecycle

import (
	"context"
	"errors"
	"fmt"

	"github.com/stateofworld/stateofworld/lvm"
)

// errHeld: the finalizer stays, because the logical volume is there.
var errHeld = errors.New("the logical volume is still there")

// protect puts the finalizer on a volume.
func (a *Agent) protect(ctx context.Context, k key, v volume) error {
	live, obj, err := a.readVolume(ctx, k)
	if err != nil || live.UID != v.UID || decideVolume(live, &a.rules, attempt{}).Action != Protect {
		return a.outdated(err, k, func() bool { now, ok := a.volumes.Get(k.name); return ok && now == v })
	}
	return a.rereadVolume(ctx, k, live, a.patchVolume(ctx, k, a.rules.protectPatch(live, obj)))
}

// release takes the finalizer off a volume whose logical volume is not there.
func (a *Agent) release(ctx context.Context, k key, v volume, name lvm.Name) error {
	live, obj, err := a.readVolume(ctx, k)
	if d := decideVolume(live, &a.rules, attempt{}); err != nil || live.UID != v.UID || d.Action != Release || d.LV != name {
		return a.outdated(err, k, func() bool { now, ok := a.volumes.Get(k.name); return ok && now == v })
	}
	_, err = a.backend.Get(ctx, name)
	switch {
	case err == nil:
		return fmt.Errorf("release %s: %w: %s", k, errHeld, name)
	case !errors.Is(err, lvm.ErrNotFound):
		return fmt.Errorf("look whether logical volume %s of %s is gone: %w", name, k, err)
	}
	return a.rereadVolume(ctx, k, live, a.patchVolume(ctx, k, a.rules.releasePatch(live, obj)))
}

// concludeRelease tells, once, that a volume is held.
func (a *Agent) concludeRelease(k key, v volume, name lvm.Name, err error) {
	if err == nil {
		return
	}
	if errors.Is(err, errOutdated) {
		return
	}
	if !errors.Is(err, errHeld) {
		a.notifyFailure(k, v.UID, name, failureOf(err, v.UID))
		return
	}
	if a.book.news(k, errHeld.Error()) {
		n := k.notice(NoticeHeld)
		n.UID, n.LV = v.UID, name
		n.Message = fmt.Sprintf("%s is being deleted and is held, because logical volume %s is still there: set %q to %q to have it removed, or take the finalizer %q away to give it up",
			k, name, a.rules.annotations.Lifecycle(), Deleting, a.rules.finalizer)
		a.notify(n)
	}
}
