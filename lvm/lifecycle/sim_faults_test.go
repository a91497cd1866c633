package lifecycle

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/stateofworld/stateofworld/fake"
	"github.com/stateofworld/stateofworld/lvm"
)

// People at the node.

// usable reports whether a person may use a name: one that a volume bears is taken for that volume, since it has no tags.
func (s *sim) usable(name string) bool {
	list, err := s.user.Volumes().List(s.ctx, metav1.ListOptions{})
	require.NoError(s.rt, err)
	return s.named(name).UUID == "" && !slices.ContainsFunc(list.Items, func(pv v1.PersistentVolume) bool { return pv.Spec.CSI.VolumeHandle == name })
}

func (s *sim) drawUsable(t *rapid.T) string {
	name := rapid.SampledFrom(simVolumes).Draw(t, "name")
	if !s.usable(name) {
		t.Skip("it is used")
	}
	return name
}

func (s *sim) personMakes(t *rapid.T) {
	o := lvm.CreateOptions{VG: "vg0", Name: s.drawUsable(t), Size: rapid.SampledFrom([]uint64{extent, 2 * extent}).Draw(t, "size")}
	if lv, err := s.hand.Create(s.ctx, o); err == nil {
		require.NoError(t, s.lvm.Write(lv.Name, "data of a person", "xfs"))
		s.people[lv.UUID] = handmade{s.named(lv.LV), s.read(lv.Name)}
	}
}

func (s *sim) pickHandmade(t *rapid.T) lvm.LogicalVolume {
	var uuids []string
	for uuid, h := range s.people {
		if ownershipOf(h.lv).UID == "" {
			uuids = append(uuids, uuid)
		}
	}
	if len(uuids) == 0 {
		t.Skip("people have none")
	}
	slices.Sort(uuids)
	return s.people[rapid.SampledFrom(uuids).Draw(t, "his")].lv
}

func (s *sim) personRemoves(t *rapid.T) {
	lv := s.pickHandmade(t)
	if s.hand.Remove(s.ctx, lv.Name, lvm.RemoveOptions{}) == nil {
		delete(s.people, lv.UUID)
	}
}

func (s *sim) personRenames(t *rapid.T) {
	lv, name := s.pickHandmade(t), s.drawUsable(t)
	h := s.people[lv.UUID]
	_, err := s.hand.Rename(s.ctx, lv.Name, name)
	require.NoError(t, err)
	h.lv.LV = name
	s.people[lv.UUID] = h
}

// pickOurs returns a logical volume that an agent has made and that is whole: its removal has not begun.
func (s *sim) pickOurs(t *rapid.T) lvm.LogicalVolume {
	ours := slices.DeleteFunc(s.truth(), func(lv lvm.LogicalVolume) bool {
		_, his := s.people[lv.UUID]
		return his || lv.Stage != lvm.StageReady || lv.Active != lvm.Yes || s.lives[ownershipOf(lv).UID] == nil
	})
	if len(ours) == 0 {
		t.Skip("there is none of ours")
	}
	return ours[rapid.IntRange(0, len(ours)-1).Draw(t, "ours")]
}

// personKeeps: a person renames a logical volume of ours, to keep what is on it whatever becomes of the claim.
func (s *sim) personKeeps(t *rapid.T) {
	lv := s.pickOurs(t)
	s.serial++
	kept, err := s.hand.Rename(s.ctx, lv.Name, fmt.Sprintf("kept-%d", s.serial))
	require.NoError(t, err)
	s.taken[lv.UUID] = true
	s.people[lv.UUID] = handmade{kept, s.read(kept.Name)}
}

func (s *sim) personRemovesOurs(t *rapid.T) {
	lv := s.pickOurs(t)
	if s.hand.Remove(s.ctx, lv.Name, lvm.RemoveOptions{}) == nil {
		s.taken[lv.UUID] = true
	}
}

func (s *sim) open(t *rapid.T) {
	_ = s.lvm.Open(vg0(rapid.SampledFrom(simVolumes).Draw(t, "volume")))
}

func (s *sim) close(*rapid.T) { s.closeAll() }

func (s *sim) closeAll() {
	for _, lv := range s.truth() {
		_ = s.lvm.Close(lv.Name)
	}
}

// otherProcess is the backend as the agent sees it, with another agent that works on the same group: one of the two believes too long that it is the
// only one.
type otherProcess struct {
	Backend
	beforeRemove func(lvm.Name)
}

func (o *otherProcess) Remove(ctx context.Context, name lvm.Name, opts lvm.RemoveOptions) error {
	if f := o.beforeRemove; f != nil {
		o.beforeRemove = nil
		f(name)
	}
	return o.Backend.Remove(ctx, name, opts)
}

// otherProcess lets another agent remove what this one is about to remove, and make the next of the same name, for a claim that came in between.
func (s *sim) otherProcess(*rapid.T) {
	s.other.beforeRemove = func(name lvm.Name) {
		was, n := s.named(name.LV), types.NamespacedName{Namespace: "other", Name: "late"}
		if _, err := s.user.Claims(n.Namespace).Get(s.ctx, n.Name, metav1.GetOptions{}); err == nil || was.UUID == "" || was.Open == lvm.Yes {
			return
		}
		if s.hand.Remove(s.ctx, name, lvm.RemoveOptions{}) != nil {
			return
		}
		s.taken[was.UUID] = true
		s.newClaim(n, spec(name.LV, was.Size), nil)
		c, err := s.user.Claims(n.Namespace).Get(s.ctx, n.Name, metav1.GetOptions{})
		if err == nil {
			lv, _ := s.hand.Create(s.ctx, lvm.CreateOptions{VG: "vg0", Name: name.LV, Size: was.Size, Layout: lvm.Linear, Tags: ownerTags(c.UID, n, name)})
			s.others[lv.UUID] = true
		}
		s.observe()
	}
}

// Events and faults.

func (s *sim) missEvents(*rapid.T) { s.feed.Pause() }

func (s *sim) seeEvents(*rapid.T) {
	s.feed.Resume()
	s.correct()
}

// oldEvent delivers an object as it was once, as an informer does that lists from a server that lags behind.
func (s *sim) oldEvent(t *rapid.T) {
	n := len(s.old) + len(s.oldPVs)
	if n == 0 {
		t.Skip("nothing is old")
	}
	if i := rapid.IntRange(0, n-1).Draw(t, "version"); i < len(s.old) {
		s.agent.Claims().OnUpdate(nil, s.old[i].DeepCopy())
	} else {
		s.agent.Volumes().OnUpdate(nil, s.oldPVs[i-len(s.old)].DeepCopy())
	}
}

// correct tells the agent how the objects of old events are now, as an informer does in the end.
func (s *sim) correct() {
	for _, was := range s.old {
		if now, err := s.user.Claims(was.Namespace).Get(s.ctx, was.Name, metav1.GetOptions{}); err == nil {
			s.agent.Claims().OnUpdate(was.DeepCopy(), now)
		} else {
			s.agent.Claims().OnDelete(was.DeepCopy())
		}
	}
	for _, was := range s.oldPVs {
		if now, err := s.user.Volumes().Get(s.ctx, was.Name, metav1.GetOptions{}); err == nil {
			s.agent.Volumes().OnUpdate(was.DeepCopy(), now)
		} else {
			s.agent.Volumes().OnDelete(was.DeepCopy())
		}
	}
}

func (s *sim) apiTrouble(t *rapid.T) {
	call := fake.APICall{Verb: rapid.SampledFrom([]string{"get", "patch", "patch", "list"}).Draw(t, "verb")}
	n := rapid.SampledFrom(simNames).Draw(t, "name")
	switch rapid.SampledFrom([]string{"fails", "reply is lost", "conflict", "claim goes", "claim is made again", "claim is labelled", "claim changes", "claim moves"}).Draw(t, "what") {
	case "fails":
		s.api.FailNext(call, errServer)
	case "reply is lost":
		s.api.LoseReply(call)
	case "conflict":
		s.api.FailNext(call, errConflicting)
	case "claim goes":
		s.api.BeforeNext(call, func() { s.removeClaim(n) })
	case "claim is made again":
		spec := s.drawSpec(t)
		s.api.BeforeNext(call, func() { s.remake(n, spec) })
	case "claim is labelled":
		s.api.BeforeNext(call, func() { s.label(n) })
	case "claim changes":
		spec := s.drawSpec(t)
		s.api.BeforeNext(call, func() {
			s.edit(n, true, func(c *v1.PersistentVolumeClaim) {
				if isAsking(c) {
					c.Annotations[keys.Spec()] = spec
				}
			})
		})
	case "claim moves":
		s.api.BeforeNext(call, func() {
			s.edit(n, true, func(c *v1.PersistentVolumeClaim) { c.Annotations[keys.SelectedNode] = "node-b" })
		})
	}
}

func (s *sim) lvmTrouble(t *rapid.T) {
	program := rapid.SampledFrom([]string{"lvs", "lvcreate", "lvchange", "lvremove"}).Draw(t, "program")
	if rapid.Bool().Draw(t, "only the reply is lost") {
		s.lvm.LoseReply(program)
	} else {
		s.lvm.FailNext(program, "Can't get lock for vg0")
	}
}

// groupAway lets the agent work while it must not take what it cannot see for gone.
func (s *sim) groupAway(t *rapid.T) {
	kind, seconds := rapid.SampledFrom([]string{"exported", "another host's", "partial", "duplicate"}).Draw(t, "group is"), rapid.IntRange(0, 300).Draw(t, "seconds")
	away := func(is bool) {
		switch kind {
		case "exported":
			s.lvm.SetExported("vg0", is)
		case "another host's":
			s.lvm.SetForeign("vg0", is)
		case "partial":
			s.lvm.SetMissing("/dev/sdb", is)
		case "duplicate":
			s.lvm.SetDuplicate("/dev/sdb", is)
		}
	}
	away(true)
	if s.stopped() {
		s.restart()
	}
	s.untilStopped(time.Duration(seconds) * time.Second)
	away(false)
}

func (s *sim) dieAtCommand(t *rapid.T) {
	s.lvm.StopAt(rapid.IntRange(1, 8).Draw(t, "command"), rapid.SampledFrom([]fake.StopWhen{fake.StopBefore, fake.StopDuring, fake.StopAfter}).Draw(t, "when"))
}

func (s *sim) dieAtCall(t *rapid.T) {
	s.session.StopAt(rapid.IntRange(1, 4).Draw(t, "call"), rapid.SampledFrom([]fake.StopWhen{fake.StopBefore, fake.StopAfter}).Draw(t, "when"))
}
