package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/stateofworld/stateofworld/lvm"
)

// maxConflicts is how often a patch is made anew, within one attempt, for an object that keeps changing.
const maxConflicts = 5

// The order in which a logical volume is made, so that the process may stop between any two steps:
//
//	read the claim        it must still want it: same UID, node and spec, "creating", not being deleted
//	create                with the owner's tags, so that whoever finds it knows whose it is
//	read the claim again  else it is left to the clean-up, which removes what nobody was told of
//	tag it ready          from here on somebody may be told
//	write "created"       guarded by UID, state, spec and node
//
// What is repeated after a stop finds the volume with its owner's tags, and goes on. An error that is nil says that nothing is left to be done for the
// claim as it was; whether it wants something else now, its next evaluation says.
func (a *Agent) create(ctx context.Context, k key, c claim, spec CreateSpec) error {
	live, err := a.readClaim(ctx, k)
	if err != nil || !a.rules.wants(live, c.UID, spec) {
		return a.outdated(err, k, func() bool { now, ok := a.claims.Get(k.claim()); return ok && now == c })
	}
	name := spec.LV()
	if !validOwner(c.UID, k.claim(), name) {
		return fmt.Errorf("%w: UID %q of %s cannot be a tag", lvm.ErrInvalid, c.UID, k)
	}
	o := spec.options()
	o.AllowLinear = spec.Striping && a.cfg.AllowLinear
	o.Tags = append(slices.Clone(o.Tags), ownerTags(c.UID, k.claim(), name)...)
	a.book.begun(k, made{LV: name, UID: c.UID})
	lv, err := a.backend.Create(ctx, o)
	if errors.Is(err, lvm.ErrExistsMismatch) {
		var discarded bool
		if discarded, err = a.discard(ctx, c.UID, name, err); discarded {
			lv, err = a.backend.Create(ctx, o)
		}
	}
	if err != nil {
		return fmt.Errorf("create logical volume %s for %s: %w", name, k, err)
	}
	// One that was there before fits, but is the claim's only if its tags say so: others are neither taken nor touched.
	own := ownershipOf(lv)
	if own.UID != c.UID || !own.intact(name) {
		a.book.takeMade(k, func(made) bool { return false })
		return fmt.Errorf("create logical volume %s for %s: %w: %w", name, k, lvm.ErrExistsMismatch, mismatch("owner", string(own.UID), string(c.UID)))
	}
	return a.announce(ctx, k, c, spec, lv, own.Ready)
}

// discard removes what an earlier attempt has made for the same claim, when that asked for something else under the name, and of which nobody was told.
// Everything else stays, and mismatch is returned.
func (a *Agent) discard(ctx context.Context, uid types.UID, name lvm.Name, mismatch error) (bool, error) {
	lv, err := a.backend.Get(ctx, name)
	if err != nil {
		return false, err
	}
	if own := ownershipOf(lv); own.UID != uid || !own.intact(name) || own.Ready {
		return false, mismatch
	}
	err = a.backend.Remove(ctx, name, lvm.RemoveOptions{UUID: lv.UUID})
	return err == nil, err
}

// announce writes "created" for a logical volume that is there. announced is whether an earlier attempt may have done so already.
func (a *Agent) announce(ctx context.Context, k key, c claim, spec CreateSpec, lv lvm.LogicalVolume, announced bool) error {
	ready := announced
	for range maxConflicts {
		live, err := a.readClaim(ctx, k)
		if err == nil && !a.rules.wants(live, c.UID, spec) || apierrors.IsNotFound(err) {
			a.withdraw(k, lv, !announced)
			return nil
		}
		if err != nil {
			return err
		}
		if !ready {
			if lv, err = a.backend.ChangeTags(ctx, lv.Name, lvm.TagChange{Add: []string{readyTag}}); err != nil {
				return fmt.Errorf("tag logical volume %s of %s as ready: %w", lv.Name, k, err)
			}
			ready = true
		}
		err = a.patchClaim(ctx, k, a.rules.createdPatch(live))
		switch {
		case err == nil:
			n := k.notice(NoticeCreated)
			n.UID, n.LV, n.Message = c.UID, lv.Name, fmt.Sprintf("logical volume %s of %d bytes is there for %s", lv.Name, lv.Size, k)
			a.notify(n)
			return nil
		case isConflict(err), apierrors.IsNotFound(err): // certainly not written; read what has changed
		default:
			return err
		}
	}
	return &apiError{fmt.Sprintf("write %q on %s", Created, k), fmt.Errorf("%w, %d times", errConflict, maxConflicts)}
}

// withdraw leaves a logical volume to the clean-up, which asks once more, that its claim does not want any more. unannounced: nobody was ever told of it,
// whatever its tags say.
func (a *Agent) withdraw(k key, lv lvm.LogicalVolume, unannounced bool) {
	a.book.takeMade(k, func(made) bool { return false })
	a.leftovers.Add(lv.Name, leftover{UID: ownershipOf(lv).UID, Claim: k.claim(), Unannounced: unannounced})
}

// gone turns the absence of an object into success: there is nothing to be done for it.
func (a *Agent) gone(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// errOutdated: the API server answers with an older object than an informer has delivered, as a client may that reads from a cache.
var errOutdated = errors.New("what is read is older than what was observed")

// outdated says what to do after an object was read that does not ask for what was observed. When what was observed is still what is in memory, trying again at
// once would end the same.
func (a *Agent) outdated(err error, k key, unchanged func() bool) error {
	if err == nil && unchanged() {
		return &apiError{"read " + k.String(), errOutdated}
	}
	return a.gone(err)
}

// readClaim reads the claim from the API server. When it is not there, nothing stays in memory of it.
func (a *Agent) readClaim(ctx context.Context, k key) (claim, error) {
	obj, err := a.cfg.Claims(k.namespace).Get(ctx, k.name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		a.lostClaim(k)
	}
	if err != nil {
		return claim{}, &apiError{"read " + k.String(), err}
	}
	return a.sawClaim(obj), nil
}

// lostClaim forgets a claim that is not there, which the informer will tell too, but perhaps later.
func (a *Agent) lostClaim(k key) {
	a.observing.Lock()
	defer a.observing.Unlock()
	a.claims.Remove(k.claim())
}

func (a *Agent) patchClaim(ctx context.Context, k key, p patch) error {
	obj, err := a.cfg.Claims(k.namespace).Patch(ctx, k.name, types.JSONPatchType, p.encode(), metav1.PatchOptions{})
	if err != nil {
		return patchError("write annotations of "+k.String(), err)
	}
	a.sawClaim(obj)
	return nil
}

// reportClaim writes down why the last attempt failed.
func (a *Agent) reportClaim(ctx context.Context, k key, c claim, f Failure) error {
	err := a.patchClaim(ctx, k, a.rules.failurePatch(string(c.UID), Creating, c.Spec, f))
	return a.reread(err, c.Version, func() (string, error) {
		live, err := a.readClaim(ctx, k)
		return live.Version, err
	})
}

// reread finds out what an object is like that is not what the patch was made for. One that is the same as before is one that the server does not take
// the patch for, and will not in the next moment either.
func (a *Agent) reread(err error, before string, read func() (version string, err error)) error {
	if !isConflict(err) && !apierrors.IsNotFound(err) {
		return err
	}
	after, readErr := read()
	if readErr == nil && after == before {
		return err
	}
	return a.gone(readErr)
}

func mismatch(field, have, want string) error {
	if have == "" {
		have = "nobody known"
	}
	return &lvm.MismatchError{Field: field, Have: have, Want: want}
}
