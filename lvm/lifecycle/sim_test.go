package lifecycle

import (
	"context"
	"fmt"
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
// run, but for the order in which those are woken who waited for one logical volume; rapid draws the actions, shrinks a run that fails, and prints the flag that
// replays it. The number of runs is -rapid.checks, their length -rapid.steps. What must hold is in sim_check_test.go.
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
			"volume is made unseen":      s.makeUnseen,
			"volume is elsewhere":        s.makeVolumeElsewhere,
			"removal is asked":           s.askRemoval,
			"volume is released":         s.releaseVolume,
			"name is used again":         s.useNameAgain,
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
			"group is away":              s.groupAway,
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
	people map[string]handmade         // by UUID: what the agent must not touch
	taken  map[string]bool             // the UUIDs of ours that people have taken away
	others map[string]bool             // and of those that another process has made, which it must clean away itself
	old    []*v1.PersistentVolumeClaim // every version that there was
	oldPVs []*v1.PersistentVolume
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
	s := &sim{rt: t, lives: map[types.UID]*life{}, people: map[string]handmade{}, taken: map[string]bool{}, others: map[string]bool{}}
	config := []func(*AgentConfig){removeOrphans, func(c *AgentConfig) {
		s.other = &otherProcess{Backend: c.Backend}
		c.Backend = s.other
		c.Operations.MaxConcurrent, c.VolumeGroups = 1, []string{"vg0"} // one after another, so that one seed is one run
		c.AllowLinear = rapid.Bool().Draw(t, "striped may be linear")
		c.Wipe = rapid.SampledFrom([]lvm.WipePolicy{lvm.WipeNone, lvm.WipeSignatures}).Draw(t, "wipe")
	}}
	if rapid.Bool().Draw(t, "with finalizer") {
		config = append(config, withFinalizer)
	}
	s.testWorld = makeTestWorld(t, ctx, config...)
	s.lvm.AddVG("vg0", extent, fake.Disk{Device: "/dev/sda", Size: 6 * extent}, fake.Disk{Device: "/dev/sdb", Size: 6 * extent})
	s.settles = true
	s.restart()
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

// Time.

func (s *sim) startAgain(*rapid.T) { s.restart() }

func (s *sim) timePasses(t *rapid.T) {
	s.pass(rapid.SampledFrom([]time.Duration{time.Minute, time.Hour, 3 * time.Hour}).Draw(t, "how long"))
}

// pass lets the time pass, by the hour: so much can be tried again in vain in one.
func (s *sim) pass(d time.Duration) {
	for ; d > 0; d -= time.Hour {
		s.untilStopped(min(d, time.Hour))
	}
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
