package lifecycle

import (
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"
)

// Volumes.

func (s *sim) pickVolume(t *rapid.T, ok func(*v1.PersistentVolume) bool) *v1.PersistentVolume {
	list, err := s.user.Volumes().List(s.ctx, metav1.ListOptions{})
	require.NoError(t, err)
	found := slices.DeleteFunc(list.Items, func(pv v1.PersistentVolume) bool { return !ok(&pv) })
	if len(found) == 0 {
		t.Skip("no such volume")
	}
	return &found[rapid.IntRange(0, len(found)-1).Draw(t, "pv")]
}

// makeVolume does what a provisioner does once it has the answer, also late: when the claim is gone already.
func (s *sim) makeVolume(t *rapid.T) {
	var ready []types.UID
	for uid, l := range s.lives {
		if l.promised.UUID != "" && l.volume == "" && s.named(l.promised.LV).UUID == l.promised.UUID && !s.late(l) {
			ready = append(ready, uid)
		}
	}
	if len(ready) == 0 {
		t.Skip("none was promised")
	}
	slices.Sort(ready)
	uid := rapid.SampledFrom(ready).Draw(t, "life")
	l, several := s.lives[uid], rapid.IntRange(0, 3).Draw(t, "several nodes") == 0
	l.volume = "pv-" + string(uid)
	s.volume(l.volume, uid, quiet, func(pv *v1.PersistentVolume) {
		pv.Spec.CSI.VolumeHandle = l.promised.LV
		if several {
			pv.Spec.NodeAffinity.Required.NodeSelectorTerms[0].MatchExpressions[0].Values = []string{"node-b", nodeA}
		}
		if s.exists(uid) {
			pv.Status.Phase = v1.VolumeBound
		}
	})
	require.NoError(t, s.lvm.Write(l.promised.Name, "data of "+string(uid), "ext4"))
}

// makeUnseen makes a volume of which the agent's informers do not tell, such as one without the label that they are narrowed to, and lets its claim go.
func (s *sim) makeUnseen(t *rapid.T) {
	s.heal()
	s.feed.Pause()
	s.makeVolume(t)
	for _, c := range s.claims() {
		if l := s.lives[c.UID]; l.volume != "" && len(c.Finalizers) == 0 {
			s.removeClaim(l.name)
		}
	}
	s.pass(6 * time.Hour)
	s.checkStep(t)
	s.feed.Resume()
}

// late reports whether nobody has referred to the logical volume for so long that it may be taken for an orphan.
func (s *sim) late(l *life) bool { return !l.gone.IsZero() && s.clock.Since(l.gone) >= simGrace }

// makeVolumeElsewhere makes a volume whose logical volume is on another node, and asks for its removal. It may bear the name of one that is here.
func (s *sim) makeVolumeElsewhere(t *rapid.T) {
	nodes := rapid.SampledFrom([][]string{{"node-b"}, {"node-b", nodeA}}).Draw(t, "nodes")
	handle := rapid.SampledFrom([]string{"elsewhere", "x"}).Draw(t, "handle")
	if len(nodes) > 1 && s.named(handle).UUID != "" && ownershipOf(s.named(handle)).UID == "" {
		t.Skip("it would be taken for the one that a person has made here")
	}
	s.serial++
	s.volume(fmt.Sprintf("elsewhere-%d", s.serial), "owner-elsewhere", func(pv *v1.PersistentVolume) {
		pv.Spec.CSI.VolumeHandle = handle
		pv.Annotations[keys.Spec()] = "vg0/" + handle
		pv.Spec.NodeAffinity.Required.NodeSelectorTerms[0].MatchExpressions[0].Values = nodes
	})
}

func (s *sim) saveVolume(t *rapid.T, pv *v1.PersistentVolume) {
	_, err := s.user.Volumes().Update(s.ctx, pv, metav1.UpdateOptions{})
	require.NoError(t, err)
}

// lift notes that the logical volume may go now: the removal is asked, and the volume is bound no more.
func (s *sim) lift(pv *v1.PersistentVolume) {
	if l := s.lives[pv.Spec.ClaimRef.UID]; l != nil {
		l.lifted = pv.Annotations[keys.Lifecycle()] == string(Deleting) && pv.Status.Phase != v1.VolumeBound || l.lifted
	}
}

// askRemoval asks for the removal of what is not in use any more, or of what is still bound, which must wait.
func (s *sim) askRemoval(t *rapid.T) {
	pv := s.pickVolume(t, func(pv *v1.PersistentVolume) bool {
		return pv.Annotations[keys.Lifecycle()] == "" && (pv.Status.Phase == v1.VolumeBound || !s.exists(pv.Spec.ClaimRef.UID))
	})
	s.ask(t, pv, !s.exists(pv.Spec.ClaimRef.UID) && rapid.Bool().Draw(t, "it is released"))
}

func (s *sim) ask(t *rapid.T, pv *v1.PersistentVolume, released bool) {
	if pv.Annotations == nil {
		pv.Annotations = map[string]string{}
	}
	pv.Annotations[keys.Lifecycle()], pv.Annotations[keys.Spec()] = string(Deleting), "vg0/"+pv.Spec.CSI.VolumeHandle
	if released {
		pv.Status.Phase = v1.VolumeReleased
	}
	s.lift(pv)
	s.saveVolume(t, pv)
}

// useNameAgain asks for the name of what is being removed before that is done.
func (s *sim) useNameAgain(t *rapid.T) {
	pv := s.pickVolume(t, func(pv *v1.PersistentVolume) bool {
		return pv.Annotations[keys.Lifecycle()] == "" && !s.exists(pv.Spec.ClaimRef.UID)
	})
	n := s.freeName(t)
	s.heal()
	s.lvm.FailNext("lvremove", "Can't get lock for vg0")
	s.ask(t, pv, true)
	s.untilStopped(0)
	s.newClaim(n, spec(pv.Spec.CSI.VolumeHandle, extent), nil)
	s.untilStopped(0)
}

func (s *sim) releaseVolume(t *rapid.T) {
	pv := s.pickVolume(t, func(pv *v1.PersistentVolume) bool {
		return pv.Status.Phase == v1.VolumeBound && !s.exists(pv.Spec.ClaimRef.UID)
	})
	pv.Status.Phase = v1.VolumeReleased
	s.lift(pv)
	s.saveVolume(t, pv)
}

// takeBack: the removal is not asked any more, before anything has happened.
func (s *sim) takeBack(t *rapid.T) {
	pv := s.pickVolume(t, func(pv *v1.PersistentVolume) bool {
		l := s.lives[pv.Spec.ClaimRef.UID]
		return pv.Annotations[keys.Lifecycle()] == string(Deleting) && l != nil && reflect.DeepEqual(s.named(l.promised.LV), l.promised)
	})
	if rapid.Bool().Draw(t, "unseen") {
		s.feed.Pause()
	}
	delete(pv.Annotations, keys.Lifecycle())
	s.lives[pv.Spec.ClaimRef.UID].lifted = false
	s.saveVolume(t, pv)
}

// deleteVolume deletes a volume once its logical volume is gone, or, by mistake, before.
func (s *sim) deleteVolume(t *rapid.T) {
	pv := s.pickVolume(t, func(pv *v1.PersistentVolume) bool { return pv.DeletionTimestamp == nil })
	s.observe()
	require.NoError(t, s.user.Volumes().Delete(s.ctx, pv.Name, metav1.DeleteOptions{}))
	s.observe()
}
