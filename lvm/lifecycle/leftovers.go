package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/stateofworld/stateofworld/lvm"
)

// leftover is a logical volume that an attempt at a claim may have made and not announced. It is a comparable value.
type leftover struct {
	UID   types.UID // of the claim
	Claim types.NamespacedName
	// Unannounced: it is known that the claim was never told, although the volume may be tagged as ready.
	Unannounced bool
	// Orphan is the UUID of the logical volume when it was found to be an orphan; empty otherwise.
	Orphan string
}

func (a *Agent) evaluateLeftover(ctx context.Context, k key) time.Time {
	l, ok := a.leftovers.Get(k.lv())
	if !ok {
		a.book.drop(k)
		a.ops.Forget(lvKey(k.lv()), "clean up")
		return time.Time{}
	}
	work := a.cleanUp
	if l.Orphan != "" {
		work = a.collect
	}
	return a.start(ctx, k, task{
		name: "clean up", lv: k.lv(), long: l.Orphan != "" && a.wipesLong(),
		run: func(ctx context.Context) error { return work(ctx, k, l) },
		done: func(err error) {
			if err != nil {
				a.notifyFailure(k, "", k.lv(), failureOf(err, ""))
				return
			}
			a.leftovers.RemoveIf(k.lv(), func(now leftover) bool { return now == l })
		},
	})
}

// cleanUp removes the logical volume if it is one that nobody was told of and nobody wants. All is looked at afresh.
func (a *Agent) cleanUp(ctx context.Context, k key, l leftover) error {
	name := k.lv()
	lv, err := a.backend.Get(ctx, name)
	if errors.Is(err, lvm.ErrNotFound) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look for logical volume %s of claim %s: %w", name, l.Claim, err)
	}
	own := ownershipOf(lv)
	if own.UID != l.UID || !own.intact(name) || own.Ready && !l.Unannounced {
		return nil
	}
	asked, told, err := a.stillWanted(ctx, l, name)
	if err != nil || told {
		return err
	}
	if asked {
		// Should the claim ask for it no more before this process has begun with it, the evaluation that follows must know that it is there.
		a.book.expect(claimKey(l.Claim), made{LV: name, UID: l.UID})
		return nil
	}
	// Nothing was ever written on it, so there is nothing to wipe.
	if err := a.backend.Remove(ctx, name, lvm.RemoveOptions{UUID: lv.UUID}); err != nil {
		return fmt.Errorf("remove logical volume %s, which claim %s does not want any more: %w", name, l.Claim, err)
	}
	n := k.notice(NoticeWithdrawn)
	n.Message = fmt.Sprintf("logical volume %s was made for claim %s, which does not want it any more, and was removed again", name, l.Claim)
	a.notify(n)
	return nil
}

// stillWanted asks the API server whether the claim asks for the logical volume, or was told of it.
func (a *Agent) stillWanted(ctx context.Context, l leftover, name lvm.Name) (asked, told bool, err error) {
	obj, err := a.cfg.Claims(l.Claim.Namespace).Get(ctx, l.Claim.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return false, false, nil
	}
	if err != nil {
		return false, false, &apiError{"read claim " + l.Claim.String(), err}
	}
	c := a.rules.claimOf(obj)
	if c.UID != l.UID {
		return false, false, nil
	}
	d := decideClaim(c, &a.rules, attempt{})
	spec, err := ParseCreateSpec(c.Spec)
	return d.Action == Create && d.LV == name, c.Lifecycle == Created && a.rules.node.name == c.Node && (err != nil || spec.LV() == name), nil
}

// addLeftover has the logical volume looked at, unless it is waiting for that already.
func (a *Agent) addLeftover(name lvm.Name, l leftover) {
	if have, ok := a.leftovers.Get(name); !ok || have.UID != l.UID {
		a.leftovers.Add(name, l)
	}
}
