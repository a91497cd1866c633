package lifecycle

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/stateofworld/stateofworld/lvm"
)

// What is, seen past all faults.

// truth lists the logical volumes.
func (s *sim) truth() []lvm.LogicalVolume {
	lvs, err := s.hand.List(s.ctx, "vg0")
	require.NoError(s.rt, err)
	return lvs
}

// named returns the logical volume of that name; none is the zero value.
func (s *sim) named(name string) lvm.LogicalVolume {
	for _, lv := range s.truth() {
		if lv.LV == name {
			return lv
		}
	}
	return lvm.LogicalVolume{}
}

func (s *sim) read(name lvm.Name) []string {
	content, err := s.lvm.Read(name)
	require.NoError(s.rt, err)
	return content
}

func (s *sim) claims() []v1.PersistentVolumeClaim {
	list, err := s.user.Claims("").List(s.ctx, metav1.ListOptions{})
	require.NoError(s.rt, err)
	return list.Items
}

func (s *sim) volumes() []v1.PersistentVolume {
	list, err := s.user.Volumes().List(s.ctx, metav1.ListOptions{})
	require.NoError(s.rt, err)
	return list.Items
}

// exists reports whether the claim is there.
func (s *sim) exists(uid types.UID) bool {
	return slices.ContainsFunc(s.claims(), func(c v1.PersistentVolumeClaim) bool { return c.UID == uid })
}

// wants reports whether a claim asks this node for a logical volume, and for which.
func (l *life) wants(c *v1.PersistentVolumeClaim) (CreateSpec, bool) {
	spec, err := ParseCreateSpec(c.Annotations[keys.Spec()])
	return spec, err == nil && !l.strange && isAsking(c) && c.DeletionTimestamp == nil && c.Annotations[keys.SelectedNode] == nodeA
}

// fits reports whether a logical volume is what a claim asks for, and not for what it asked before.
func (s *sim) fits(lv lvm.LogicalVolume, spec CreateSpec) bool {
	striped := lv.Layout == lvm.Striped
	return lv.Size >= spec.Size && lv.Size < spec.Size+2*extent && (striped == spec.Striping || !striped && s.config.AllowLinear)
}

// observe notes what was promised, what was made, and who is gone. It is called after every step, and before and after what happens in the middle of one.
func (s *sim) observe() {
	claims, volumes := s.claims(), s.volumes()
	lvs, err := s.hand.List(s.ctx, "vg0")
	if err != nil {
		return // the group is away; it is made up for
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	alive := map[types.UID]bool{}
	for _, c := range claims {
		l := s.lives[c.UID]
		if l == nil {
			continue // made in this moment
		}
		alive[c.UID] = true
		if !slices.ContainsFunc(s.old, func(o *v1.PersistentVolumeClaim) bool { return o.ResourceVersion == c.ResourceVersion }) {
			s.old = append(s.old, c.DeepCopy())
		}
		spec, wants := l.wants(&c)
		for _, lv := range lvs {
			if ownershipOf(lv).UID != c.UID || lv.LV != spec.Name || lv.Stage != lvm.StageReady {
				continue
			}
			if wants && s.fits(lv, spec) && (l.made.UUID == "" || l.madeAt != l.changes || s.taken[l.made.UUID]) {
				l.made, l.madeAt = lv, l.changes
			}
			if c.Annotations[keys.Lifecycle()] == string(Created) && l.promised.UUID == "" {
				l.promised, l.known = lv, ownedBy(lvs, c.UID)
			}
		}
	}
	for _, pv := range volumes {
		alive[pv.Spec.ClaimRef.UID] = true
		if !slices.ContainsFunc(s.oldPVs, func(o *v1.PersistentVolume) bool { return o.ResourceVersion == pv.ResourceVersion }) {
			s.oldPVs = append(s.oldPVs, pv.DeepCopy())
		}
	}
	for uid, l := range s.lives {
		switch {
		case alive[uid]:
			l.gone = time.Time{}
		case l.gone.IsZero():
			l.gone = s.clock.Now()
		}
	}
}

// ownedBy are the UUIDs of the logical volumes that say that they were made for a claim.
func ownedBy(lvs []lvm.LogicalVolume, uid types.UID) (uuids []string) {
	for _, lv := range lvs {
		if ownershipOf(lv).UID == uid {
			uuids = append(uuids, lv.UUID)
		}
	}
	return uuids
}

// What must hold after every step.

func (s *sim) checkStep(t *rapid.T) {
	s.rt, s.testWorld.t = t, t
	s.observe()
	require.NoError(t, s.lvm.Check())
	lvs := map[string]lvm.LogicalVolume{}
	for _, lv := range s.truth() {
		lvs[lv.UUID] = lv
	}
	for _, uuid := range slices.Sorted(maps.Keys(s.people)) {
		s.checkHandmade(t, s.people[uuid], lvs[uuid])
	}
	for _, uid := range slices.Sorted(maps.Keys(s.lives)) {
		s.checkLife(t, uid, s.lives[uid], lvs)
	}
	for _, c := range s.claims() {
		s.checkClaim(t, &c, s.lives[c.UID], lvs)
	}
	for _, pv := range s.volumes() {
		s.checkVolume(t, &pv, s.lives[pv.Spec.ClaimRef.UID], lvs)
	}
}

// checkHandmade: nothing foreign is touched.
func (s *sim) checkHandmade(t *rapid.T, h handmade, now lvm.LogicalVolume) {
	require.Equal(t, h.lv.UUID, now.UUID, "the foreign logical volume %s is lost", h.lv.LV)
	require.Equal(t, h.lv.Name, now.Name, "it was renamed")
	require.Equal(t, h.lv.Tags, now.Tags, "the tags of the foreign logical volume %s were changed", h.lv.LV)
	require.Equal(t, h.lv.Size, now.Size)
	require.Equal(t, h.content, s.read(now.Name), "the content of the foreign logical volume %s", h.lv.LV)
}

// checkLife: no logical volume is lost, and none is made twice.
func (s *sim) checkLife(t *rapid.T, uid types.UID, l *life, lvs map[string]lvm.LogicalVolume) {
	owned := ownedBy(slices.Collect(maps.Values(lvs)), uid)
	if l.strange {
		require.Empty(t, owned, "a logical volume was made for claim %s, which does not ask this node", l.name)
	}
	if l.promised.UUID == "" {
		return
	}
	for _, uuid := range owned {
		require.Contains(t, l.known, uuid, "a logical volume was made for claim %s, which was told of one", l.name)
	}
	if s.taken[l.promised.UUID] || l.lifted || s.late(l) {
		return
	}
	now := lvs[l.promised.UUID]
	require.Equal(t, l.promised.Name, now.Name, "the logical volume of claim %s (%s) is lost", l.name, uid)
	require.Equal(t, lvm.StageReady, now.Stage)
	require.Equal(t, l.promised.Size, now.Size)
	if l.volume != "" {
		require.Contains(t, s.read(now.Name), "data of "+string(uid))
	}
}

// checkClaim: what its annotations say is true, and what others have written is there.
func (s *sim) checkClaim(t *rapid.T, c *v1.PersistentVolumeClaim, l *life, lvs map[string]lvm.LogicalVolume) {
	labels := 0
	for k := range c.Labels {
		if strings.HasPrefix(k, "label-") {
			labels++
		}
	}
	require.Equal(t, l.labels, labels, "a label that others have written on claim %s is lost", l.name)
	if l.strange {
		require.True(t, isAsking(c), "claim %s does not ask this node, and was answered", l.name)
		require.NotContains(t, c.Annotations, keys.Error())
		return
	}
	if spec, wants := l.wants(c); wants && l.made.UUID != "" && l.madeAt == l.changes && !s.taken[l.made.UUID] {
		require.Equal(t, spec.Name, lvs[l.made.UUID].LV, "the logical volume that was made for claim %s is gone, although it still asks for it", l.name)
	}
	if c.Annotations[keys.Lifecycle()] != string(Created) {
		return
	}
	require.NotEmpty(t, l.promised.UUID, "claim %s says created, and there is none", l.name)
	if s.taken[l.promised.UUID] {
		return
	}
	require.NotContains(t, c.Annotations, keys.Error())
	spec, err := ParseCreateSpec(c.Annotations[keys.Spec()])
	require.NoError(t, err)
	require.Equal(t, spec.Name, l.promised.LV)
	require.GreaterOrEqual(t, l.promised.Size, spec.Size)
	require.Less(t, l.promised.Size, spec.Size+2*extent)
	if spec.Striping && !s.config.AllowLinear {
		require.Equal(t, lvm.Striped, l.promised.Layout)
	}
}

// checkVolume: "deleted" is said only of what is gone, and was to go.
func (s *sim) checkVolume(t *rapid.T, pv *v1.PersistentVolume, l *life, lvs map[string]lvm.LogicalVolume) {
	if pv.Annotations[keys.Lifecycle()] != string(Deleted) {
		return
	}
	require.NotNil(t, l, "%s is on another node, and is said to be gone", pv.Name)
	require.True(t, l.lifted, "%s says deleted, and nobody asked", pv.Name)
	if !s.taken[l.promised.UUID] {
		require.NotContains(t, lvs, l.promised.UUID, "%s says deleted, and its logical volume is there", pv.Name)
	}
}

// What must hold at the end, when faults stop.

func (s *sim) finish(t *rapid.T) {
	s.rt, s.testWorld.t = t, t
	s.heal()
	if rapid.Bool().Draw(t, "the agent starts again") {
		s.restart()
	}
	s.advance(15 * time.Minute)
	s.checkWithdrawn(t)
	s.advance(6 * time.Hour)
	s.checkStep(t)
	for _, c := range s.claims() {
		s.checkAnswered(t, &c)
	}
	for _, pv := range s.volumes() {
		s.checkRemoved(t, &pv)
	}
	s.checkOwners(t)

	// Everybody goes: then nothing of ours is left, neither on the disks nor in memory.
	for _, c := range s.claims() {
		s.edit(nameOf(&c), false, func(c *v1.PersistentVolumeClaim) { c.Finalizers = nil })
		s.removeClaim(nameOf(&c))
	}
	for _, pv := range s.volumes() {
		if pv.Annotations[keys.Lifecycle()] != string(Deleted) {
			s.ask(t, &pv, true)
		}
	}
	s.advance(6 * time.Hour)
	s.checkStep(t)
	for _, pv := range s.volumes() {
		s.checkRemoved(t, &pv)
		// One whose name another has is given up by a person.
		pv.Finalizers = nil
		s.saveVolume(t, &pv)
		_ = s.user.Volumes().Delete(s.ctx, pv.Name, metav1.DeleteOptions{})
	}
	s.observe()
	if slices.ContainsFunc(s.truth(), func(lv lvm.LogicalVolume) bool { return lv.Stage == lvm.StageRemoving }) {
		s.restart()
	}
	s.advance(6 * time.Hour)
	s.checkStep(t)
	for _, lv := range s.truth() {
		require.Contains(t, s.people, lv.UUID, "the logical volume %s is left over: %v", lv.LV, lv.Tags)
	}
	require.Empty(t, s.agent.Explanations())
	require.Zero(t, s.agent.claims.Len()+s.agent.volumes.Len()+s.agent.leftovers.Len())
	require.Zero(t, s.agent.ops.Live())
	require.Empty(t, s.agent.Orphans())
	require.LessOrEqual(t, s.agent.book.size(), 2, "what is remembered: %v", s.agent.book.entries)
}

// checkAnswered: a claim is made, or says truly why not.
func (s *sim) checkAnswered(t *rapid.T, c *v1.PersistentVolumeClaim) {
	l := s.lives[c.UID]
	if l.strange || !isAsking(c) || c.DeletionTimestamp != nil || c.Annotations[keys.SelectedNode] != nodeA {
		return
	}
	f, err := ParseFailure(c.Annotations[keys.Error()])
	require.NoError(t, err, "claim %s is neither made nor is there a reason", l.name)
	spec, specErr := ParseCreateSpec(c.Annotations[keys.Spec()])
	if f.Reason == ReasonInvalidSpec {
		require.Error(t, specErr)
		return
	}
	require.NoError(t, specErr)
	have := s.named(spec.Name)
	if f.Reason == ReasonExistsMismatch {
		require.NotEmpty(t, have.UUID, "claim %s says that the name is taken", l.name)
		round := uint64(extent)
		if have.Layout == lvm.Striped {
			round = 2 * extent
		}
		least := (spec.Size + extent - 1) / extent * extent
		differs := have.Size < least || have.Size >= least+round || (have.Layout == lvm.Striped) != spec.Striping
		own := ownershipOf(have)
		require.True(t, own.UID != c.UID || own.Ready && differs, "%s is the one of claim %s", have.LV, l.name)
		return
	}
	o := spec.options()
	o.Name, o.AllowLinear = "trial", spec.Striping && s.config.AllowLinear
	_, err = s.hand.Create(s.ctx, o)
	require.True(t, errors.Is(err, lvm.ErrNoSpace) || errors.Is(err, lvm.ErrNotStripable), "claim %s says %v, and it can be made: %v", l.name, f, err)
	require.Contains(t, []Reason{ReasonNoSpace, ReasonNotStripable}, f.Reason)
	require.Empty(t, have.UUID)
}

// checkRemoved: what a volume asks for is done, or cannot be.
func (s *sim) checkRemoved(t *rapid.T, pv *v1.PersistentVolume) {
	l := s.lives[pv.Spec.ClaimRef.UID]
	if pv.Annotations[keys.Lifecycle()] != string(Deleting) || pv.Status.Phase == v1.VolumeBound || l == nil {
		return
	}
	have := s.named(pv.Spec.CSI.VolumeHandle)
	several := len(pv.Spec.NodeAffinity.Required.NodeSelectorTerms[0].MatchExpressions[0].Values) > 1
	if several && s.taken[l.promised.UUID] {
		return // it may be on the other node
	}
	require.NotEmpty(t, have.UUID, "%s is still to be removed, and there is nothing: %s", pv.Name, pv.Annotations[keys.Error()])
	require.NotEqual(t, pv.Spec.ClaimRef.UID, ownershipOf(have).UID, "%s is still to be removed: %s", pv.Name, pv.Annotations[keys.Error()])
	f, err := ParseFailure(pv.Annotations[keys.Error()])
	require.NoError(t, err)
	require.Equal(t, ReasonExistsMismatch, f.Reason)
}

// checkWithdrawn: what nobody was told of and nobody wants is gone soon, without being searched for as an orphan.
func (s *sim) checkWithdrawn(t *rapid.T) {
	wanted := map[string]types.UID{}
	for _, c := range s.claims() {
		if spec, ok := s.lives[c.UID].wants(&c); ok && wanted[spec.Name] != ownershipOf(s.named(spec.Name)).UID {
			wanted[spec.Name] = c.UID
		}
	}
	for _, lv := range s.truth() {
		own := ownershipOf(lv)
		if _, his := s.people[lv.UUID]; !his && !s.others[lv.UUID] && !own.Ready && lv.Stage != lvm.StageRemoving {
			require.Equal(t, own.UID, wanted[lv.LV], "nobody was told of the logical volume %s, and it is not removed: %v", lv.LV, lv.Tags)
		}
	}
}

// checkOwners: no logical volume of ours is left without somebody who may need it.
func (s *sim) checkOwners(t *rapid.T) {
	owners := map[types.UID]bool{}
	for _, c := range s.claims() {
		owners[c.UID] = true
	}
	for _, pv := range s.volumes() {
		owners[pv.Spec.ClaimRef.UID] = owners[pv.Spec.ClaimRef.UID] || pv.Annotations[keys.Lifecycle()] != string(Deleted)
	}
	names := map[string]bool{} // that volumes bear: what bears one as well may be theirs
	for _, pv := range s.volumes() {
		names[pv.Spec.CSI.VolumeHandle] = true
	}
	for _, lv := range s.truth() {
		if _, his := s.people[lv.UUID]; his {
			continue
		}
		if lv.Stage == lvm.StageRemoving && !owners[ownershipOf(lv).UID] {
			continue // the next start finishes what nobody asks for any more
		}
		require.Equal(t, lvm.StageReady, lv.Stage, "%s is half made or half removed", lv.LV)
		require.True(t, owners[ownershipOf(lv).UID] || names[lv.LV], "the logical volume %s is left over: %v", lv.LV, lv.Tags)
	}
	require.Zero(t, s.agent.leftovers.Len())
}
