package lifecycle

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/stateofworld/stateofworld/lvm"
)

// OrphanMode is what happens to orphans.
type OrphanMode string

// The modes.
const (
	OrphansIgnored  OrphanMode = ""       // they are not looked for
	OrphansReported OrphanMode = "report" // a dry run: notices and Agent.Orphans tell of them
	OrphansRemoved  OrphanMode = "remove"
)

// The defaults of OrphanPolicy.
const (
	DefaultOrphanGrace  = time.Hour
	DefaultOrphanPeriod = time.Hour
)

// OrphanPolicy says what happens to logical volumes that an agent made and that nobody refers to any more: neither a claim with
// the UID in their tags, nor any volume in the API. They are left when a claim is deleted between the end of the creation and the making of
// the volume (kubernetes-csi/external-provisioner#486), or a volume without its logical volume.
//
// A logical volume is an orphan when it was found without claim and volume in two passes at least, Grace apart, and the API server then says so too,
// in a complete list of volumes. A pass that could not see everything counts for nothing. It is not removed while it is open, or may be.
type OrphanPolicy struct {
	Mode OrphanMode
	// Grace is how long it must have been an orphan. Zero means an hour.
	Grace time.Duration
	// Period is the time between two passes. Zero means an hour. A pass lists the logical volumes, and asks the API server only about what is suspicious.
	Period time.Duration
}

func (p OrphanPolicy) withDefaults(volumes VolumeClient) (OrphanPolicy, error) {
	switch {
	case p.Mode != OrphansIgnored && p.Mode != OrphansReported && p.Mode != OrphansRemoved:
		return p, invalid("Orphans.Mode", string(p.Mode), "is none of report, remove, or empty")
	case p.Grace < 0:
		return p, invalid("Orphans.Grace", p.Grace.String(), "must not be negative")
	case p.Period < 0:
		return p, invalid("Orphans.Period", p.Period.String(), "must not be negative")
	}
	if _, ok := volumes.(VolumeLister); !ok && p.Mode != OrphansIgnored {
		return p, invalid("Volumes", fmt.Sprintf("%T", volumes), "must also be a VolumeLister, to look for orphans")
	}
	p.Grace, p.Period = cmp.Or(p.Grace, DefaultOrphanGrace), cmp.Or(p.Period, DefaultOrphanPeriod)
	return p, nil
}

// Orphan is a logical volume without owner.
type Orphan struct {
	LV    lvm.Name
	UUID  string
	Owner types.UID            // the UID of the claim that it was made for
	Claim types.NamespacedName // and its name
	Since time.Time            // when it was first found without owner
}

// Orphans returns what was found to be an orphan by the last pass, sorted by name.
func (a *Agent) Orphans() []Orphan { return a.orphans.list() }

// orphanage remembers what looked like an orphan. It is lost with the process: then the grace begins anew.
type orphanage struct {
	mu       sync.Mutex
	next     map[string]time.Time // by volume group: the next pass
	suspects map[string]*suspect  // by UUID
}

type suspect struct {
	Orphan
	confirmed bool
}

func newOrphanage() *orphanage {
	return &orphanage{next: map[string]time.Time{}, suspects: map[string]*suspect{}}
}

func (o *orphanage) list() (out []Orphan) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, s := range o.suspects {
		if s.confirmed {
			out = append(out, s.Orphan)
		}
	}
	slices.SortFunc(out, func(a, b Orphan) int { return cmp.Compare(a.LV.String(), b.LV.String()) })
	return out
}

// suspected takes the result of one pass over a group: what is not in it any more is forgotten. It returns what has been suspicious for the grace.
func (o *orphanage) suspected(vg string, found []Orphan, now time.Time, grace time.Duration) (ripe []Orphan) {
	o.mu.Lock()
	defer o.mu.Unlock()
	still := map[string]bool{}
	for _, f := range found {
		still[f.UUID] = true
		s := o.suspects[f.UUID]
		if s == nil || s.LV != f.LV || s.Owner != f.Owner {
			f.Since = now
			o.suspects[f.UUID] = &suspect{Orphan: f}
			continue
		}
		if now.Sub(s.Since) >= grace {
			ripe = append(ripe, s.Orphan)
		}
	}
	for uuid, s := range o.suspects {
		if s.LV.VG == vg && !still[uuid] {
			delete(o.suspects, uuid)
		}
	}
	return ripe
}

// settle notes what the API server said of a suspect, and reports whether it is an orphan and was not known to be.
func (o *orphanage) settle(uuid string, orphan bool) (news bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	s := o.suspects[uuid]
	if s == nil {
		return false
	}
	if !orphan {
		delete(o.suspects, uuid)
		return false
	}
	news = !s.confirmed
	s.confirmed = true
	return news
}

func (o *orphanage) setNext(vg string, t time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.next[vg] = t
}

func (o *orphanage) nextPass(vg string) time.Time {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.next[vg]
}

func (a *Agent) scheduleOrphanPass(vg string) {
	if a.cfg.Orphans.Mode == OrphansIgnored {
		return
	}
	next := a.cfg.Clock.Now().Add(a.cfg.Orphans.Period)
	a.orphans.setNext(vg, next)
	a.engine.AddAt(key{kind: orphanKind, name: vg}, next)
}

func (a *Agent) startOrphanPass(ctx context.Context, k key) time.Time {
	if next := a.orphans.nextPass(k.name); next.After(a.cfg.Clock.Now()) {
		return next
	}
	return a.start(ctx, k, task{
		name: "find orphans", other: "orphans of " + k.String(),
		run: func(ctx context.Context) error { return a.orphanPass(ctx, k) },
		done: func(err error) {
			if err != nil {
				a.notifyFailure(k, "", lvm.Name{}, failureOf(err, ""))
			}
			a.ops.Forget(task{other: "orphans of " + k.String()}.operationKey(), "find orphans")
			a.scheduleOrphanPass(k.name)
		},
	})
}

// orphanPass looks through a volume group. Any error ends it, and then it has changed nothing.
func (a *Agent) orphanPass(ctx context.Context, k key) error {
	lvs, err := a.backend.List(ctx, k.name)
	if err != nil {
		return fmt.Errorf("look for orphans: %w", err)
	}
	owners := a.knownOwners()
	var found []Orphan
	for _, lv := range lvs {
		own := ownershipOf(lv)
		if own.intact(lv.Name) && !owners[own.UID] && lv.Stage != lvm.StageRemoving {
			found = append(found, Orphan{LV: lv.Name, UUID: lv.UUID, Owner: own.UID, Claim: own.Claim})
		}
	}
	ripe := a.orphans.suspected(k.name, found, a.cfg.Clock.Now(), a.cfg.Orphans.Grace)
	if len(ripe) == 0 {
		return nil
	}
	volumes, err := a.listVolumes(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for _, o := range ripe {
		orphan, err := a.isOrphan(ctx, o, volumes)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if a.orphans.settle(o.UUID, orphan) {
			a.notifyOrphan(NoticeOrphan, o, "belongs to nobody")
		}
		if orphan && a.cfg.Orphans.Mode == OrphansRemoved {
			a.leftovers.Add(o.LV, leftover{UID: o.Owner, Claim: o.Claim, Orphan: o.UUID})
		}
	}
	return errors.Join(errs...)
}

// knownOwners are the UIDs of the claims that are in memory, or of which a volume is. What has one is no orphan, and nobody need be asked.
func (a *Agent) knownOwners() map[types.UID]bool {
	known := map[types.UID]bool{}
	for _, c := range a.claims.All() {
		known[c.UID] = true
	}
	for _, v := range a.volumes.All() {
		known[v.Owner] = true
	}
	return known
}

// listVolumes returns all volumes in the API, or an error.
func (a *Agent) listVolumes(ctx context.Context) ([]v1.PersistentVolume, error) {
	lister := a.cfg.Volumes.(VolumeLister) // withDefaults has seen to it
	var all []v1.PersistentVolume
	options := metav1.ListOptions{Limit: 500}
	for {
		page, err := lister.List(ctx, options)
		if err != nil {
			return nil, &apiError{"list volumes, to look for orphans", err}
		}
		all = append(all, page.Items...)
		if page.Continue == "" {
			return all, nil
		}
		options.Continue = page.Continue
	}
}

// isOrphan asks whether nobody refers to a logical volume. In doubt somebody does.
func (a *Agent) isOrphan(ctx context.Context, o Orphan, volumes []v1.PersistentVolume) (bool, error) {
	for i := range volumes {
		if a.rules.refers(&volumes[i], o) {
			return false, nil
		}
	}
	obj, err := a.cfg.Claims(o.Claim.Namespace).Get(ctx, o.Claim.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return true, nil
	case err != nil:
		return false, &apiError{"read claim " + o.Claim.String(), err}
	}
	return obj.UID != o.Owner, nil
}

// refers reports whether a volume may be the one of the logical volume, by any of the ways in which one can be.
func (r *rules) refers(pv *v1.PersistentVolume, o Orphan) bool {
	if pv.Spec.ClaimRef != nil && pv.Spec.ClaimRef.UID == o.Owner {
		return true
	}
	source := r.source(pv)
	if source.LV == o.LV.LV && (source.VG == "" || source.VG == o.LV.VG) {
		return true
	}
	return pv.Name == o.LV.LV || source.LV == o.LV.String() || pv.Annotations[r.annotations.Spec()] == o.LV.String()
}

// collect removes an orphan, after a last look.
func (a *Agent) collect(ctx context.Context, k key, l leftover) error {
	lv, err := a.backend.Get(ctx, k.lv())
	if errors.Is(err, lvm.ErrNotFound) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look for orphan %s: %w", k.lv(), err)
	}
	own := ownershipOf(lv)
	if lv.UUID != l.Orphan || own.UID != l.UID || !own.intact(lv.Name) || a.knownOwners()[own.UID] {
		return nil
	}
	o := Orphan{LV: lv.Name, UUID: lv.UUID, Owner: own.UID, Claim: own.Claim}
	if lv.Open != lvm.No {
		a.notifyOrphan(NoticeOrphan, o, "belongs to nobody and is not removed, because it is open: "+lv.Open.String())
		return nil // the next pass finds it again
	}
	// Since the pass, attempts may have failed and a volume may have been made, which events need not have told of.
	volumes, err := a.listVolumes(ctx)
	if err != nil {
		return err
	}
	if orphan, err := a.isOrphan(ctx, o, volumes); err != nil || !orphan {
		return err
	}
	if err := a.backend.Remove(ctx, lv.Name, lvm.RemoveOptions{UUID: lv.UUID, Wipe: a.cfg.Wipe}); err != nil {
		return fmt.Errorf("remove orphan %s: %w", lv.Name, err)
	}
	a.orphans.settle(lv.UUID, false)
	a.notifyOrphan(NoticeCollected, o, "belonged to nobody and was removed")
	return nil
}

func (a *Agent) notifyOrphan(t NoticeType, o Orphan, what string) {
	n := leftoverKey(o.LV).notice(t)
	n.Message = fmt.Sprintf("logical volume %s, made for claim %s (%s), %s", o.LV, o.Claim, o.Owner, what)
	a.notify(n)
}
