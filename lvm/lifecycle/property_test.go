package lifecycle

import (
	"context"
	"fmt"
	"slices"
	"strings"
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

// life is a node with users who do what they like, a provisioner, and faults; and what must be true of it whatever happens.
type life struct {
	*testWorld
	t *rapid.T
	// foreign are the logical volumes that a person has made, by name: their UUIDs.
	foreign map[string]string
	// used are those that a volume was made of, and that must stay until that volume asks for their removal: by the volume's name.
	used   map[string]lvm.LogicalVolume
	labels map[types.UID]int // how many labels others have written on a claim
}

var (
	claimNames = []string{"a", "b", "c"}
	lvNames    = []string{"x", "y", "z"}
)

func (l *life) draw(what string, names []string) string {
	return rapid.SampledFrom(names).Draw(l.t, what)
}

func (l *life) existing(what string) *v1.PersistentVolumeClaim {
	list, err := l.user.Claims("default").List(l.ctx, metav1.ListOptions{})
	require.NoError(l.t, err)
	if len(list.Items) == 0 {
		l.t.Skip("no claims")
	}
	return &list.Items[rapid.IntRange(0, len(list.Items)-1).Draw(l.t, what)]
}

func (l *life) existingVolume(what string) *v1.PersistentVolume {
	list, err := l.user.Volumes().List(l.ctx, metav1.ListOptions{})
	require.NoError(l.t, err)
	if len(list.Items) == 0 {
		l.t.Skip("no volumes")
	}
	return &list.Items[rapid.IntRange(0, len(list.Items)-1).Draw(l.t, what)]
}

func (l *life) save(c *v1.PersistentVolumeClaim) {
	_, err := l.user.Claims("default").Update(l.ctx, c, metav1.UpdateOptions{})
	require.NoError(l.t, err)
}

func (l *life) spec() string {
	size := rapid.SampledFrom([]uint64{mib, 8 * mib, 2 * gib}).Draw(l.t, "size")
	return spec(l.draw("lv", lvNames), size)
}

func (l *life) actions() map[string]func(*rapid.T) {
	list := func(f func()) func(*rapid.T) { return func(t *rapid.T) { l.t = t; l.testWorld.t = t; f() } }
	return map[string]func(*rapid.T){
		"ask": list(func() {
			name := l.draw("claim", claimNames)
			if _, err := l.user.Claims("default").Get(l.ctx, name, metav1.GetOptions{}); err == nil {
				l.t.Skip("it is there")
			}
			l.claim(name, l.spec())
		}),
		"ask for nonsense": list(func() {
			c := l.existing("claim")
			if c.Annotations[keys.Lifecycle()] == string(Creating) {
				c.Annotations[keys.Spec()] = "nonsense"
				l.save(c)
			}
		}),
		"ask for something else": list(func() {
			c := l.existing("claim")
			if c.Annotations[keys.Lifecycle()] == string(Creating) {
				c.Annotations[keys.Spec()] = l.spec()
				l.save(c)
			}
		}),
		"move": list(func() {
			c := l.existing("claim")
			if c.Annotations[keys.Lifecycle()] == string(Creating) {
				c.Annotations[keys.SelectedNode] = l.draw("node", []string{nodeA, "node-b"})
				l.save(c)
			}
		}),
		"label": list(func() { l.label(l.existing("claim").Name) }),
		"ask for another attempt": list(func() {
			c := l.existing("claim")
			delete(c.Annotations, keys.Error())
			l.save(c)
		}),
		"delete claim": list(func() { l.deleteClaim(l.existing("claim").Name) }),
		"make volume": list(func() { // as a provisioner does once it has the answer
			c := l.existing("claim")
			if c.Annotations[keys.Lifecycle()] != string(Created) || c.Annotations[keys.SelectedNode] != nodeA {
				l.t.Skip("not created")
			}
			s, err := ParseCreateSpec(c.Annotations[keys.Spec()])
			require.NoError(l.t, err)
			name := "pv-" + string(c.UID)
			if _, err := l.user.Volumes().Get(l.ctx, name, metav1.GetOptions{}); err == nil || l.used[name].UUID != "" {
				l.t.Skip("it is there")
			}
			l.volume(name, c.UID, quiet, func(pv *v1.PersistentVolume) { pv.Spec.CSI.VolumeHandle = s.Name })
			l.used[name] = l.lookUp(s.Name)
		}),
		"delete volume": list(func() { // once its claim is gone
			pv := l.existingVolume("volume")
			c, err := l.user.Claims("default").List(l.ctx, metav1.ListOptions{})
			require.NoError(l.t, err)
			if slices.ContainsFunc(c.Items, func(c v1.PersistentVolumeClaim) bool { return c.UID == pv.Spec.ClaimRef.UID }) || pv.Annotations[keys.Lifecycle()] != "" {
				l.t.Skip("its claim is there, or it is being removed")
			}
			pv.Annotations = map[string]string{keys.Lifecycle(): string(Deleting), keys.Spec(): "vg0/" + pv.Spec.CSI.VolumeHandle}
			_, err = l.user.Volumes().Update(l.ctx, pv, metav1.UpdateOptions{})
			require.NoError(l.t, err)
			l.used[pv.Name] = lvm.LogicalVolume{UUID: "given up"}
		}),
		"forget volume": list(func() {
			if pv := l.existingVolume("volume"); pv.Annotations[keys.Lifecycle()] == string(Deleted) {
				l.deleteVolume(pv.Name)
			}
		}),
		"make foreign": list(func() {
			name := l.draw("lv", lvNames)
			if lv := l.lookUp(name); lv.UUID == "" {
				if lv, err := l.hand.Create(l.ctx, lvm.CreateOptions{VG: "vg0", Name: name, Size: extent}); err == nil {
					l.foreign[name] = lv.UUID
				}
			}
		}),
		"open":  list(func() { _ = l.lvm.Open(vg0(l.draw("lv", lvNames))) }),
		"close": list(func() { _ = l.lvm.Close(vg0(l.draw("lv", lvNames))) }),
		"miss events": list(func() {
			l.feed.Pause()
		}),
		"see events": list(func() { l.feed.Resume() }),
		"break API": list(func() {
			call := fake.APICall{Verb: l.draw("verb", []string{"get", "patch", "list"})}
			switch l.draw("fault", []string{"fail", "lose", "conflict", "meanwhile deleted", "meanwhile labelled"}) {
			case "fail":
				l.api.FailNext(call, errServer)
			case "lose":
				l.api.LoseReply(call)
			case "conflict":
				l.api.FailNext(call, errConflicting)
			case "meanwhile deleted":
				name := l.draw("claim", claimNames)
				l.api.BeforeNext(call, func() { _ = l.user.Claims("default").Delete(l.ctx, name, metav1.DeleteOptions{}) })
			case "meanwhile labelled":
				name := l.draw("claim", claimNames)
				l.api.BeforeNext(call, func() { l.label(name) })
			}
		}),
		"break lvm2": list(func() {
			program := l.draw("program", []string{"lvs", "lvcreate", "lvchange", "lvremove"})
			if rapid.Bool().Draw(l.t, "lose") {
				l.lvm.LoseReply(program)
			} else {
				l.lvm.FailNext(program, "Can't get lock for vg0")
			}
		}),
		"stop at a command": list(func() {
			l.lvm.StopAt(rapid.IntRange(1, 8).Draw(l.t, "command"), rapid.SampledFrom([]fake.StopWhen{fake.StopBefore, fake.StopDuring, fake.StopAfter}).Draw(l.t, "when"))
		}),
		"stop at a call": list(func() {
			l.session.StopAt(rapid.IntRange(1, 4).Draw(l.t, "call"), rapid.SampledFrom([]fake.StopWhen{fake.StopBefore, fake.StopAfter}).Draw(l.t, "when"))
		}),
		"restart": list(l.restart),
		"work":    list(func() { l.untilStopped(time.Duration(rapid.IntRange(0, 60).Draw(l.t, "seconds")) * time.Second) }),
		"":        list(l.check),
	}
}

func (l *life) label(name string) {
	c, err := l.user.Claims("default").Get(l.ctx, name, metav1.GetOptions{})
	if err != nil {
		return
	}
	if c.Labels == nil {
		c.Labels = map[string]string{}
	}
	c.Labels[fmt.Sprintf("label-%d", len(c.Labels))] = "x"
	if _, err := l.user.Claims("default").Update(l.ctx, c, metav1.UpdateOptions{}); err == nil {
		l.labels[c.UID]++
	}
}

// lookUp returns a logical volume as it really is, whatever is arranged for the next commands; none is the zero value.
func (l *life) lookUp(name string) lvm.LogicalVolume {
	for _, lv := range l.truth() {
		if lv.LV == name {
			return lv
		}
	}
	return lvm.LogicalVolume{}
}

// truth lists the logical volumes without running into the faults that wait for the agent.
func (l *life) truth() []lvm.LogicalVolume {
	lvs, err := l.hand.List(l.ctx, "vg0")
	require.NoError(l.t, err)
	return lvs
}

// check is what must be true at any moment.
func (l *life) check() {
	require.NoError(l.t, l.lvm.Check())
	lvs := map[string]lvm.LogicalVolume{}
	for _, lv := range l.truth() {
		lvs[lv.LV] = lv
	}
	for name, uuid := range l.foreign {
		require.Equal(l.t, uuid, lvs[name].UUID, "the foreign logical volume %s was touched", name)
		require.Empty(l.t, lvs[name].Tags)
	}
	for pv, lv := range l.used {
		if lv.UUID != "given up" {
			require.Equal(l.t, lv.UUID, lvs[lv.LV].UUID, "the logical volume %s of %s is lost", lv.LV, pv)
		}
	}
	claims, err := l.user.Claims("default").List(l.ctx, metav1.ListOptions{})
	require.NoError(l.t, err)
	for _, c := range claims.Items {
		labels := 0
		for k := range c.Labels {
			if strings.HasPrefix(k, "label-") {
				labels++
			}
		}
		require.Equal(l.t, l.labels[c.UID], labels, "a label that others have written on %s is lost", c.Name)
		if c.Annotations[keys.Lifecycle()] != string(Created) {
			continue
		}
		require.NotContains(l.t, c.Annotations, keys.Error())
		s, err := ParseCreateSpec(c.Annotations[keys.Spec()])
		require.NoError(l.t, err)
		lv := lvs[s.Name]
		require.Contains(l.t, lv.Tags, ownerTag+string(c.UID), "claim %s is marked as created", c.Name)
		require.GreaterOrEqual(l.t, lv.Size, s.Size)
		require.Equal(l.t, lvm.StageReady, lv.Stage)
	}
	volumes, err := l.user.Volumes().List(l.ctx, metav1.ListOptions{})
	require.NoError(l.t, err)
	for _, pv := range volumes.Items {
		if pv.Annotations[keys.Lifecycle()] == string(Deleted) {
			require.NotContains(l.t, lvs[pv.Spec.CSI.VolumeHandle].Tags, ownerTag+string(pv.Spec.ClaimRef.UID), "volume %s is marked as deleted", pv.Name)
		}
	}
}

// end lets everything come to rest, without faults, and checks that all is done and nothing is left over.
func (l *life) end() {
	l.api.Heal()
	l.lvm.Heal()
	for _, name := range lvNames {
		_ = l.lvm.Close(vg0(name))
	}
	l.restart()
	l.advance(time.Hour)
	// The driver deletes what is answered with "deleted". Until then the volume refers to whatever has its logical volume's name by now.
	gone, err := l.user.Volumes().List(l.ctx, metav1.ListOptions{})
	require.NoError(l.t, err)
	for _, pv := range gone.Items {
		if pv.Annotations[keys.Lifecycle()] == string(Deleted) {
			require.NoError(l.t, l.user.Volumes().Delete(l.ctx, pv.Name, metav1.DeleteOptions{}))
		}
	}
	l.advance(6 * time.Hour)
	l.check()
	claims, err := l.user.Claims("default").List(l.ctx, metav1.ListOptions{})
	require.NoError(l.t, err)
	owners := map[string]string{}
	for _, c := range claims.Items {
		owners[string(c.UID)] = c.Name
		if c.Annotations[keys.SelectedNode] != nodeA || c.Annotations[keys.Lifecycle()] != string(Creating) {
			continue
		}
		f, err := ParseFailure(c.Annotations[keys.Error()])
		require.NoError(l.t, err, "claim %s is neither made nor is there a reason", c.Name)
		switch f.Reason {
		case ReasonInvalidSpec:
			require.Equal(l.t, "nonsense", c.Annotations[keys.Spec()])
		case ReasonNoSpace:
			require.Contains(l.t, c.Annotations[keys.Spec()], "2147483648")
		case ReasonExistsMismatch:
			s, _ := ParseCreateSpec(c.Annotations[keys.Spec()])
			require.NotContains(l.t, l.lookUp(s.Name).Tags, readyTag+string(c.UID))
			require.NotEmpty(l.t, l.lookUp(s.Name).UUID)
		default:
			l.t.Fatalf("claim %s: %v", c.Name, f)
		}
	}
	volumes, err := l.user.Volumes().List(l.ctx, metav1.ListOptions{})
	require.NoError(l.t, err)
	for _, pv := range volumes.Items {
		require.NotEqual(l.t, string(Deleting), pv.Annotations[keys.Lifecycle()], "volume %s: %s", pv.Name, pv.Annotations[keys.Error()])
		if pv.Annotations[keys.Lifecycle()] == "" {
			owners[string(pv.Spec.ClaimRef.UID)] = pv.Name
		}
	}
	for _, lv := range l.truth() {
		own := ownershipOf(lv)
		if own.UID == "" {
			require.Contains(l.t, l.foreign, lv.LV)
			continue
		}
		require.Contains(l.t, owners, string(own.UID), "the logical volume %s is left over: %v", lv.LV, lv.Tags)
	}
	require.Zero(l.t, l.agent.leftovers.Len())
}

// Whatever users, other writers, faults and stops do and in whatever order: no logical volume is lost, none is left over, nothing foreign is touched, and
// what the annotations say is true.
func TestRandomLivesEndWell(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		l := &life{t: t, foreign: map[string]string{}, used: map[string]lvm.LogicalVolume{}, labels: map[types.UID]int{}}
		l.testWorld = makeTestWorld(t, ctx, removeOrphans)
		defer l.kill()
		t.Repeat(l.actions())
		l.t, l.testWorld.t = t, t
		l.end()
	})
}
