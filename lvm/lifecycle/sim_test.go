package lifecycle

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/stateofworld/stateofworld/fake"
	"github.com/stateofworld/stateofworld/lvm"
)

// A simulated node that breaks: users who do what they like, a provisioner, other writers of the same objects, people who make and rename logical volumes by
// hand, a volume group that fills up, faults of the API and of lvm2, events that are late, lost or old, and an agent that is killed at any step. One seed is one
// run; rapid draws the actions, shrinks a run that fails, and prints the flag that replays it. The number of runs is -rapid.checks, their length
// -rapid.steps. What must hold is in sim_check_test.go.
func TestSimulatedNode(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		s := newSim(t, ctx)
		defer func() { s.kill() }()
		t.Repeat(map[string]func(*rapid.T){
			"":                           s.checkStep,
			"claim is made":              s.makeClaim,
			"claim is made again":        s.remakeClaim,
			"claim is nobody's here":     s.makeOthersClaim,
			"claim asks for another":     s.changeSpec,
			"claim moves":                s.moveClaim,
			"claim is labelled":          s.labelClaim,
			"failure is taken away":      s.askAgain,
			"claim goes":                 s.deleteClaim,
			"claim is let go":            s.letClaimGo,
			"volume is made":             s.makeVolume,
			"volume is elsewhere":        s.makeVolumeElsewhere,
			"removal is asked":           s.askRemoval,
			"volume is released":         s.releaseVolume,
			"removal is taken back":      s.takeBack,
			"volume goes":                s.deleteVolume,
			"person makes one":           s.personMakes,
			"person removes his":         s.personRemoves,
			"person renames his":         s.personRenames,
			"person keeps ours":          s.personKeeps,
			"person removes ours":        s.personRemovesOurs,
			"someone opens one":          s.open,
			"everything is closed":       s.close,
			"another process is quicker": s.otherProcess,
			"events stop":                s.missEvents,
			"events go on":               s.seeEvents,
			"old event":                  s.oldEvent,
			"API has trouble":            s.apiTrouble,
			"lvm2 has trouble":           s.lvmTrouble,
			"dies at a command":          s.dieAtCommand,
			"dies at a call":             s.dieAtCall,
			"starts again":               s.startAgain,
			"time passes":                s.timePasses,
			"works":                      s.work,
			"works more":                 s.work,
			"a whole life":               s.goodTimes,
		})
		s.finish(t)
	})
}

type sim struct {
	*testWorld
	rt    *rapid.T
	other *otherProcess

	mu     sync.Mutex // what is below is also touched by what happens in the middle of an operation
	lives  map[types.UID]*life
	people map[string]handmade // by UUID: what the agent must not touch
	taken  map[string]bool     // the UUIDs of ours that people have taken away
	old    []*v1.PersistentVolumeClaim
	serial int
}

// life is what is known of a claim, and of the volume that a provisioner makes of it, by the claim's UID.
type life struct {
	name    types.NamespacedName
	strange bool // it never asked this node
	changes int  // of its request
	labels  int
	// made is the logical volume that was there for its request, at so many changes.
	made   lvm.LogicalVolume
	madeAt int
	// promised is the one of which it was told, and known are the UUIDs of all that there were for it then.
	promised lvm.LogicalVolume
	known    []string
	// gone is since when neither it nor a volume of it is there.
	gone   time.Time
	volume string // the name of the volume, once that was made
	lifted bool   // the removal was asked, rightly
}

// handmade is a logical volume that a person has made, or taken into his hands.
type handmade struct {
	lv      lvm.LogicalVolume
	content []string
}

var (
	simNames   = []types.NamespacedName{{Namespace: "default", Name: "a"}, {Namespace: "default", Name: "b"}, {Namespace: "other", Name: "a"}}
	simVolumes = []string{"x", "y", "z"}
	simGrace   = 2 * time.Hour // that of removeOrphans
)

func newSim(t *rapid.T, ctx context.Context) *sim {
	s := &sim{rt: t, lives: map[types.UID]*life{}, people: map[string]handmade{}, taken: map[string]bool{}}
	config := []func(*AgentConfig){removeOrphans, func(c *AgentConfig) {
		s.other = &otherProcess{Backend: c.Backend}
		c.Backend = s.other
		c.Operations.MaxConcurrent = 1 // so that one seed is one run
		c.AllowLinear = rapid.Bool().Draw(t, "striped may be linear")
		c.Wipe = rapid.SampledFrom([]lvm.WipePolicy{lvm.WipeNone, lvm.WipeSignatures}).Draw(t, "wipe")
	}}
	if rapid.Bool().Draw(t, "with finalizer") {
		config = append(config, withFinalizer)
	}
	s.testWorld = makeTestWorld(t, ctx, config...)
	s.lvm.AddVG("vg0", extent, fake.Disk{Device: "/dev/sda", Size: 6 * extent}, fake.Disk{Device: "/dev/sdb", Size: 6 * extent})
	return s
}

// Claims.

func (s *sim) drawSpec(t *rapid.T) string {
	text, err := CreateSpec{
		VolumeGroup: "vg0", Name: rapid.SampledFrom(simVolumes).Draw(t, "volume"),
		Size:     rapid.SampledFrom([]uint64{mib, 2 * extent, 4*extent + 1, 9 * extent, 40 * extent}).Draw(t, "size"),
		Striping: rapid.IntRange(0, 2).Draw(t, "striped") == 0,
	}.Encode()
	require.NoError(t, err)
	return text
}

// claimsThat returns the claims for which ok holds, and ends the action when there is none.
func (s *sim) claimsThat(t *rapid.T, ok func(*v1.PersistentVolumeClaim) bool) []v1.PersistentVolumeClaim {
	list, err := s.user.Claims("").List(s.ctx, metav1.ListOptions{})
	require.NoError(t, err)
	found := slices.DeleteFunc(list.Items, func(c v1.PersistentVolumeClaim) bool { return !ok(&c) })
	if len(found) == 0 {
		t.Skip("no such claim")
	}
	return found
}

func (s *sim) pickClaim(t *rapid.T, ok func(*v1.PersistentVolumeClaim) bool) *v1.PersistentVolumeClaim {
	found := s.claimsThat(t, ok)
	return &found[rapid.IntRange(0, len(found)-1).Draw(t, "claim")]
}

func anyClaim(*v1.PersistentVolumeClaim) bool { return true }

func isAsking(c *v1.PersistentVolumeClaim) bool {
	return c.Annotations[keys.Lifecycle()] == string(Creating)
}

func (s *sim) newClaim(n types.NamespacedName, spec string, change func(*v1.PersistentVolumeClaim)) {
	c := fake.NewClaim(n.String(), nodeA)
	c.Annotations[keys.Lifecycle()], c.Annotations[keys.Spec()] = string(Creating), spec
	l := &life{name: n}
	if change != nil {
		change(c)
		l.strange = len(c.Annotations) > 3 || c.Annotations[keys.SelectedNode] != nodeA
	}
	if made, err := s.user.Claims(n.Namespace).Create(s.ctx, c, metav1.CreateOptions{}); err == nil {
		s.mu.Lock()
		s.lives[made.UID] = l
		s.mu.Unlock()
	}
}

func (s *sim) freeName(t *rapid.T) types.NamespacedName {
	n := rapid.SampledFrom(simNames).Draw(t, "name")
	if _, err := s.user.Claims(n.Namespace).Get(s.ctx, n.Name, metav1.GetOptions{}); err == nil {
		t.Skip("it is there")
	}
	return n
}

func (s *sim) makeClaim(t *rapid.T) {
	n, finalizer := s.freeName(t), rapid.IntRange(0, 3).Draw(t, "protected") == 0
	s.newClaim(n, s.drawSpec(t), func(c *v1.PersistentVolumeClaim) {
		if finalizer {
			c.Finalizers = []string{"kubernetes.io/pvc-protection"}
		}
	})
}

// remakeClaim deletes a claim and makes another of the same name before anybody can look.
func (s *sim) remakeClaim(t *rapid.T) {
	c := s.pickClaim(t, func(c *v1.PersistentVolumeClaim) bool { return len(c.Finalizers) == 0 })
	spec := c.Annotations[keys.Spec()]
	if rapid.Bool().Draw(t, "asks for another") {
		spec = s.drawSpec(t)
	}
	s.remake(nameOf(c), spec)
}

func (s *sim) remake(n types.NamespacedName, spec string) {
	s.observe()
	_ = s.user.Claims(n.Namespace).Delete(s.ctx, n.Name, metav1.DeleteOptions{})
	s.observe()
	s.newClaim(n, spec, nil)
}

// makeOthersClaim makes a claim that this agent must leave alone.
func (s *sim) makeOthersClaim(t *rapid.T) {
	n, why := s.freeName(t), rapid.SampledFrom([]string{"node", "backup", "driver"}).Draw(t, "why")
	s.newClaim(n, s.drawSpec(t), func(c *v1.PersistentVolumeClaim) {
		switch why {
		case "node":
			c.Annotations[keys.SelectedNode] = "node-b"
		case "backup":
			c.Annotations[keys.UID()] = "of-its-former-life"
		case "driver":
			c.Annotations[annProvisioner] = "other.example.com"
		}
	})
}

// edit changes a claim as another client does. request is whether that changes what is asked for.
func (s *sim) edit(n types.NamespacedName, request bool, change func(*v1.PersistentVolumeClaim)) {
	c, err := s.user.Claims(n.Namespace).Get(s.ctx, n.Name, metav1.GetOptions{})
	if err != nil {
		return
	}
	s.observe()
	before := len(c.Labels)
	change(c)
	if _, err := s.user.Claims(n.Namespace).Update(s.ctx, c, metav1.UpdateOptions{}); err != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.lives[c.UID]
	l.labels += len(c.Labels) - before
	if request {
		l.changes++
	}
}

func (s *sim) changeSpec(t *rapid.T) {
	c, spec := s.pickClaim(t, isAsking), "nonsense"
	if rapid.IntRange(0, 4).Draw(t, "sense") > 0 {
		spec = s.drawSpec(t)
	}
	s.edit(nameOf(c), true, func(c *v1.PersistentVolumeClaim) { c.Annotations[keys.Spec()] = spec })
}

func (s *sim) moveClaim(t *rapid.T) {
	c := s.pickClaim(t, func(c *v1.PersistentVolumeClaim) bool { return !s.lives[c.UID].strange })
	node := rapid.SampledFrom([]string{nodeA, "node-b"}).Draw(t, "node")
	s.edit(nameOf(c), true, func(c *v1.PersistentVolumeClaim) { c.Annotations[keys.SelectedNode] = node })
}

func (s *sim) labelClaim(t *rapid.T) { s.label(nameOf(s.pickClaim(t, anyClaim))) }

func (s *sim) label(n types.NamespacedName) {
	s.edit(n, false, func(c *v1.PersistentVolumeClaim) {
		if c.Labels == nil {
			c.Labels = map[string]string{}
		}
		c.Labels[fmt.Sprintf("label-%d", len(c.Labels))] = "x"
	})
}

// askAgain takes the failure away, or writes nonsense in its place.
func (s *sim) askAgain(t *rapid.T) {
	c := s.pickClaim(t, func(c *v1.PersistentVolumeClaim) bool { return !s.lives[c.UID].strange && isAsking(c) })
	nonsense := rapid.IntRange(0, 3).Draw(t, "nonsense") == 0
	s.edit(nameOf(c), false, func(c *v1.PersistentVolumeClaim) {
		delete(c.Annotations, keys.Error())
		if nonsense {
			c.Annotations[keys.Error()] = "nonsense"
		}
	})
}

func (s *sim) deleteClaim(t *rapid.T) { s.removeClaim(nameOf(s.pickClaim(t, anyClaim))) }

func (s *sim) removeClaim(n types.NamespacedName) {
	s.observe()
	_ = s.user.Claims(n.Namespace).Delete(s.ctx, n.Name, metav1.DeleteOptions{})
	s.observe()
}

// letClaimGo takes the finalizers off a claim.
func (s *sim) letClaimGo(t *rapid.T) {
	c := s.pickClaim(t, func(c *v1.PersistentVolumeClaim) bool { return len(c.Finalizers) > 0 })
	s.edit(nameOf(c), false, func(c *v1.PersistentVolumeClaim) { c.Finalizers = nil })
	s.observe()
}

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
	if pv.Annotations == nil {
		pv.Annotations = map[string]string{}
	}
	pv.Annotations[keys.Lifecycle()], pv.Annotations[keys.Spec()] = string(Deleting), "vg0/"+pv.Spec.CSI.VolumeHandle
	if !s.exists(pv.Spec.ClaimRef.UID) && rapid.Bool().Draw(t, "it is released") {
		pv.Status.Phase = v1.VolumeReleased
	}
	s.lift(pv)
	s.saveVolume(t, pv)
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

// pickOurs returns a logical volume that an agent has made and that is whole.
func (s *sim) pickOurs(t *rapid.T) lvm.LogicalVolume {
	ours := slices.DeleteFunc(s.truth(), func(lv lvm.LogicalVolume) bool {
		_, his := s.people[lv.UUID]
		return his || lv.Stage != lvm.StageReady || s.lives[ownershipOf(lv).UID] == nil
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
			_, _ = s.hand.Create(s.ctx, lvm.CreateOptions{VG: "vg0", Name: name.LV, Size: was.Size, Layout: lvm.Linear, Tags: ownerTags(c.UID, n, name)})
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

// oldEvent delivers a claim as it was once, as an informer does that lists from a server that lags behind.
func (s *sim) oldEvent(t *rapid.T) {
	if len(s.old) == 0 {
		t.Skip("nothing is old")
	}
	s.agent.Claims().OnUpdate(nil, s.old[rapid.IntRange(0, len(s.old)-1).Draw(t, "version")].DeepCopy())
}

// correct tells the agent how the claims of old events are now, as an informer does in the end.
func (s *sim) correct() {
	for _, was := range s.old {
		now, err := s.user.Claims(was.Namespace).Get(s.ctx, was.Name, metav1.GetOptions{})
		if err == nil {
			s.agent.Claims().OnUpdate(was.DeepCopy(), now)
		} else {
			s.agent.Claims().OnDelete(was.DeepCopy())
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

func (s *sim) dieAtCommand(t *rapid.T) {
	s.lvm.StopAt(rapid.IntRange(1, 8).Draw(t, "command"), rapid.SampledFrom([]fake.StopWhen{fake.StopBefore, fake.StopDuring, fake.StopAfter}).Draw(t, "when"))
}

func (s *sim) dieAtCall(t *rapid.T) {
	s.session.StopAt(rapid.IntRange(1, 4).Draw(t, "call"), rapid.SampledFrom([]fake.StopWhen{fake.StopBefore, fake.StopAfter}).Draw(t, "when"))
}

func (s *sim) startAgain(*rapid.T) { s.restart() }

func (s *sim) timePasses(t *rapid.T) {
	s.untilStopped(rapid.SampledFrom([]time.Duration{time.Minute, time.Hour, 3 * time.Hour}).Draw(t, "how long"))
}

func (s *sim) work(t *rapid.T) {
	if s.stopped() {
		s.restart()
	}
	s.untilStopped(time.Duration(rapid.IntRange(0, 10).Draw(t, "seconds")) * time.Second)
}

// goodTimes lets a claim live from its beginning to the removal of its volume, or to some point before: random steps hardly ever get that far.
func (s *sim) goodTimes(t *rapid.T) {
	s.heal()
	n, name := s.freeName(t), rapid.SampledFrom(simVolumes).Draw(t, "volume")
	if !s.usable(name) {
		t.Skip("it is used")
	}
	s.newClaim(n, spec(name, extent), nil)
	steps := []func(*rapid.T){s.work, s.checkStep, s.makeVolume, s.checkStep, func(*rapid.T) { s.removeClaim(n) }, s.work, s.checkStep, s.askRemoval, s.work}
	for _, step := range steps[:rapid.IntRange(1, len(steps)).Draw(t, "steps")] {
		step(t)
	}
}

// heal ends all faults that have not happened yet.
func (s *sim) heal() {
	s.api.Heal()
	s.lvm.Heal()
	s.other.beforeRemove = nil
	s.lvm.StopAt(0, fake.StopBefore)
	s.session.StopAt(0, fake.StopBefore)
	s.closeAll()
	if s.stopped() {
		s.restart()
	}
	s.feed.Resume()
	s.correct()
}
