package lifecycle

import (
	"context"
	"errors"
	"fmt"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/stateofworld/stateofworld/lvm"
)

// The order in which a logical volume is removed:
//
//	read the volume       it must still ask for it: same UID and spec, "deleting", on this node, not bound
//	look at what is there it must be the volume's, by its owner's tag or its name; it is removed by its UUID
//	remove                the backend refuses what is open, has snapshots, or is protected
//	look again            it must be gone, in a volume group that is there
//	write "deleted"       guarded by UID, state and spec; the finalizer goes with it
//
// What is repeated after a stop finds nothing, and writes "deleted".
func (a *Agent) remove(ctx context.Context, k key, v volume, name lvm.Name) error {
	live, _, err := a.readVolume(ctx, k)
	if err != nil || !a.rules.wantsRemoved(live, v.UID, name) {
		return a.outdated(err, k, func() bool { now, ok := a.volumes.Get(k.name); return ok && now == v })
	}
	lv, err := a.backend.Get(ctx, name)
	switch {
	case err == nil:
		if gone, err := a.removeFound(ctx, k, live, lv); err != nil || !gone {
			return err
		}
	case !errors.Is(err, lvm.ErrNotFound):
		return fmt.Errorf("look for logical volume %s of %s: %w", name, k, err)
	case !live.pinned(&a.rules):
		a.notHere(k, live, name)
		return nil
	default:
		if _, err := a.finishWipe(ctx, k, name, func(lvm.LogicalVolume) bool { return true }); err != nil {
			return err
		}
	}
	return a.writeDeleted(ctx, k, v.UID, name)
}

// removeFound removes a logical volume that is there. False without error: the volume does not ask for it any more.
func (a *Agent) removeFound(ctx context.Context, k key, v volume, lv lvm.LogicalVolume) (bool, error) {
	if err := v.owns(lv); err != nil {
		// The volume's own may have made room and still be there under another name, to be wiped.
		own := func(lv lvm.LogicalVolume) bool { return v.Owner != "" && ownershipOf(lv).UID == v.Owner }
		if finished, err := a.finishWipe(ctx, k, lv.Name, own); err != nil || finished {
			return finished, err
		}
		successor, readErr := a.isSuccessor(ctx, v, lv)
		switch {
		case readErr != nil:
			return false, readErr
		case successor && v.pinned(&a.rules):
			return true, nil
		case successor: // the volume's own may never have been on this node
			a.notHere(k, v, lv.Name)
			return false, nil
		}
		return false, fmt.Errorf("remove logical volume %s of %s: %w", lv.Name, k, err)
	}
	if !v.pinned(&a.rules) {
		// Whether it was removed must be known after a crash: from here on no other node touches the volume, and its absence here counts.
		if err := a.patchVolume(ctx, k, a.rules.markPatch(v)); err != nil {
			return false, a.rereadVolume(ctx, k, v, err)
		}
	}
	if err := a.backend.Remove(ctx, lv.Name, lvm.RemoveOptions{UUID: lv.UUID, Wipe: a.cfg.Wipe}); err != nil {
		return false, fmt.Errorf("remove logical volume %s of %s: %w", lv.Name, k, err)
	}
	after, err := a.backend.Get(ctx, lv.Name)
	switch {
	case errors.Is(err, lvm.ErrNotFound), err == nil && after.UUID != lv.UUID:
		return true, nil
	case err == nil:
		return false, fmt.Errorf("remove logical volume %s of %s: the removal succeeded, and it is still there", lv.Name, k)
	}
	return false, fmt.Errorf("look whether logical volume %s of %s is gone: %w", lv.Name, k, err)
}

// notHere notes that the logical volume is not on this node, while it may be on others.
func (a *Agent) notHere(k key, v volume, name lvm.Name) {
	a.book.setAbsent(k, v.request())
	n := k.notice(NoticeElsewhere)
	n.UID, n.LV, n.Message = v.UID, name, fmt.Sprintf("logical volume %s of %s is not on this node, and may be on others", name, k)
	a.notify(n)
}

// owns reports whether a logical volume is that of the volume. One that an agent made says whose it is. One without tags, which the
// agent's forerunner made or a person, must be what the volume itself names, apart from its annotations.
func (v volume) owns(lv lvm.LogicalVolume) error {
	own := ownershipOf(lv)
	switch {
	case own.UID != "" && own.UID != v.Owner:
		return fmt.Errorf("%w: %w", lvm.ErrExistsMismatch, mismatch("owner", string(own.UID), "the claim of the volume, "+string(v.Owner)))
	case own.UID == "" && (v.Source.LV != lv.LV || v.Source.VG != "" && v.Source.VG != lv.VG):
		return fmt.Errorf("%w: %w", lvm.ErrExistsMismatch, mismatch("logical volume without owner", lv.String(), "what the volume's source names, "+v.Source.String()))
	}
	return nil
}

// isSuccessor reports whether a logical volume was made for another claim, which is there, after that of the volume was gone: on the volume's node its name
// could not have been free otherwise. When that claim is not there, the volume may be its, bound to another claim since, and nothing is concluded.
func (a *Agent) isSuccessor(ctx context.Context, v volume, lv lvm.LogicalVolume) (bool, error) {
	own := ownershipOf(lv)
	if v.Owner == "" || own.UID == v.Owner || !own.intact(lv.Name) {
		return false, nil
	}
	obj, err := a.cfg.Claims(own.Claim.Namespace).Get(ctx, own.Claim.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return false, nil
	case err != nil:
		return false, &apiError{"read claim " + own.Claim.String(), err}
	}
	return obj.UID == own.UID, nil
}

// finishWipe goes on with the wipe of logical volumes that an earlier attempt has renamed out of the way. The name may be another's by now. It reports whether
// there was one.
func (a *Agent) finishWipe(ctx context.Context, k key, name lvm.Name, which func(lvm.LogicalVolume) bool) (finished bool, err error) {
	if a.cfg.Wipe == lvm.WipeNone {
		return false, nil
	}
	lvs, err := a.backend.List(ctx, name.VG)
	for _, lv := range lvs {
		if err == nil && lv.Stage == lvm.StageRemoving && lv.Removed == name.LV && which(lv) {
			err, finished = a.backend.Remove(ctx, lv.Name, lvm.RemoveOptions{UUID: lv.UUID, Wipe: a.cfg.Wipe}), true
		}
	}
	if err != nil {
		return false, fmt.Errorf("finish removing logical volume %s of %s: %w", name, k, err)
	}
	return finished, nil
}

// writeDeleted says that the logical volume was seen not to be there.
func (a *Agent) writeDeleted(ctx context.Context, k key, uid types.UID, name lvm.Name) error {
	for range maxConflicts {
		live, obj, err := a.readVolume(ctx, k)
		if err != nil || !a.rules.wantsRemoved(live, uid, name) {
			return a.gone(err)
		}
		err = a.patchVolume(ctx, k, a.rules.deletedPatch(live, obj))
		switch {
		case err == nil:
			n := k.notice(NoticeDeleted)
			n.UID, n.LV, n.Message = uid, name, fmt.Sprintf("logical volume %s of %s is gone", name, k)
			a.notify(n)
			return nil
		case isConflict(err):
		default:
			return a.gone(err)
		}
	}
	return &apiError{fmt.Sprintf("write %q on %s", Deleted, k), fmt.Errorf("%w, %d times", errConflict, maxConflicts)}
}

// wantsRemoved is asked of what was read right before something is done.
func (r *rules) wantsRemoved(v volume, uid types.UID, name lvm.Name) bool {
	d := decideVolume(v, r, attempt{})
	return v.UID == uid && d.Action == Remove && d.LV == name
}

func (a *Agent) readVolume(ctx context.Context, k key) (volume, *v1.PersistentVolume, error) {
	obj, err := a.cfg.Volumes.Get(ctx, k.name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		a.lostVolume(k)
	}
	if err != nil {
		return volume{}, nil, &apiError{"read " + k.String(), err}
	}
	return a.sawVolume(obj), obj, nil
}

func (a *Agent) lostVolume(k key) {
	a.observing.Lock()
	defer a.observing.Unlock()
	a.volumes.Remove(k.name)
}

func (a *Agent) patchVolume(ctx context.Context, k key, p patch) error {
	obj, err := a.cfg.Volumes.Patch(ctx, k.name, types.JSONPatchType, p.encode(), metav1.PatchOptions{})
	if err != nil {
		return patchError("write "+k.String(), err)
	}
	a.sawVolume(obj)
	return nil
}

// reportVolume writes down why the last attempt failed.
func (a *Agent) reportVolume(ctx context.Context, k key, v volume, f Failure) error {
	return a.rereadVolume(ctx, k, v, a.patchVolume(ctx, k, a.rules.failurePatch(string(v.UID), Deleting, v.Spec, f)))
}

func (a *Agent) rereadVolume(ctx context.Context, k key, v volume, err error) error {
	return a.reread(err, v.Version, func() (string, error) {
		live, _, err := a.readVolume(ctx, k)
		return live.Version, err
	})
}
