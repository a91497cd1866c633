package lifecycle

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/stateofworld/stateofworld/fake"
	"github.com/stateofworld/stateofworld/lvm"
)

func removeOrphans(c *AgentConfig) {
	c.Orphans = OrphanPolicy{Mode: OrphansRemoved, Grace: 2 * time.Hour}
}

var listVolumes = fake.APICall{Verb: "list", Resource: "persistentvolumes"}

// L23, topolvm/topolvm#1104: made, announced, and then nobody made a volume of it
func TestAnOrphanIsRemovedAfterTheGrace(t *testing.T) {
	w := newTestWorld(t, removeOrphans)
	w.owned("pvc-1")
	w.advance(2*time.Hour + 30*time.Minute)
	require.Equal(t, []string{"pvc-1"}, w.lvs(), "found at one hour, and not two hours ago")
	require.Empty(t, w.session.Calls())
	w.advance(time.Hour)
	require.Empty(t, w.lvs())
	require.Equal(t, []string{"list volumes", "get claim default/was", "list volumes", "get claim default/was"}, w.session.Calls())
	require.Len(t, w.said(NoticeCollected), 1)
	require.Empty(t, w.agent.Orphans())
	require.Zero(t, w.agent.leftovers.Len())
}

func TestADryRunOnlyTells(t *testing.T) {
	w := newTestWorld(t, func(c *AgentConfig) { c.Orphans = OrphanPolicy{Mode: OrphansReported} })
	lv := w.owned("pvc-1")
	w.advance(24 * time.Hour)
	require.Equal(t, []string{"pvc-1"}, w.lvs())
	require.Equal(t, []Orphan{{
		LV: lv.Name, UUID: lv.UUID, Owner: "owner", Claim: types.NamespacedName{Namespace: "default", Name: "was"}, Since: fake.Start().Add(time.Hour),
	}}, w.agent.Orphans())
	require.Len(t, w.said(NoticeOrphan), 1, "once")
	require.NoError(t, w.hand.Remove(w.ctx, lv.Name, lvm.RemoveOptions{}))
	w.advance(2 * time.Hour)
	require.Empty(t, w.agent.Orphans())
}

func TestOrphansAreNotLookedForUnlessAsked(t *testing.T) {
	w := newTestWorld(t)
	w.owned("pvc-1")
	w.idle()
	calls := len(w.lvm.Calls())
	w.advance(240 * time.Hour)
	require.Len(t, w.lvm.Calls(), calls)
}

func TestWhatSomebodyRefersToIsNoOrphan(t *testing.T) {
	for name, refer := range map[string]func(w *testWorld){
		"no owner's tag": func(w *testWorld) {
			_, err := w.hand.ChangeTags(w.ctx, vg0("pvc-1"), lvm.TagChange{Remove: []string{"sow.owner=owner"}})
			require.NoError(w.t, err)
		},
		"renamed":   func(w *testWorld) { _, err := w.hand.Rename(w.ctx, vg0("pvc-1"), "kept"); require.NoError(w.t, err) },
		"open":      func(w *testWorld) { require.NoError(w.t, w.lvm.Open(vg0("pvc-1"))) },
		"its claim": func(w *testWorld) { w.ownClaim(nil) },
		"its claim, bound long ago": func(w *testWorld) {
			w.ownClaim(func(c *v1.PersistentVolumeClaim) { delete(c.Annotations, keys.Lifecycle()) })
		},
		"its claim, on another node": func(w *testWorld) {
			w.ownClaim(func(c *v1.PersistentVolumeClaim) { c.Annotations[keys.SelectedNode] = "node-b" })
		},
		"a volume of its claim":      func(w *testWorld) { w.volume("x", "owner", quiet, elsewhere) },
		"a volume of its claim here": func(w *testWorld) { w.volume("x", "owner", quiet) },
		"a volume of its name":       func(w *testWorld) { w.volume("pvc-1", "other", quiet, elsewhere) },
		"a volume with its handle": func(w *testWorld) {
			w.volume("x", "other", quiet, elsewhere, func(pv *v1.PersistentVolume) { pv.Spec.CSI.VolumeHandle = "pvc-1" })
		},
		"a volume with its path": func(w *testWorld) {
			w.volume("x", "other", quiet, elsewhere, func(pv *v1.PersistentVolume) { pv.Spec.CSI.VolumeHandle = "vg0/pvc-1" })
		},
		"a volume that wants it removed, on another node": func(w *testWorld) {
			w.volume("x", "other", elsewhere, func(pv *v1.PersistentVolume) { pv.Annotations[keys.Spec()] = "vg0/pvc-1" })
		},
		"its claim, of which the informer does not know": func(w *testWorld) { w.feed.Pause(); w.ownClaim(nil) },
		"a volume, of which the informer does not know":  func(w *testWorld) { w.feed.Pause(); w.volume("x", "owner", quiet) },
		"claims cannot be read":                          func(w *testWorld) { w.api.Fail(getClaim, errServer) },
		"volumes cannot be listed": func(w *testWorld) {
			w.api.Fail(listVolumes, apierrors.NewForbidden(v1.Resource("persistentvolumes"), "", nil))
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newTestWorld(t, removeOrphans)
			w.owned("pvc-1")
			w.idle()
			refer(w)
			w.advance(48 * time.Hour)
			require.Len(t, w.lvs(), 1)
		})
	}
}

func vg0(name string) lvm.Name { return lvm.Name{VG: "vg0", LV: name} }

func elsewhere(pv *v1.PersistentVolume) {
	pv.Spec.NodeAffinity.Required.NodeSelectorTerms[0].MatchExpressions[0].Values[0] = "node-b"
}

// ownClaim makes the claim that pvc-1 was made for.
func (w *testWorld) ownClaim(change func(*v1.PersistentVolumeClaim)) {
	c := w.claim("was", spec("pvc-1", mib), func(c *v1.PersistentVolumeClaim) { c.Annotations[keys.Lifecycle()] = string(Created) })
	_, err := w.hand.ChangeTags(w.ctx, vg0("pvc-1"), lvm.TagChange{Add: []string{ownerTag + string(c.UID)}, Remove: []string{"sow.owner=owner"}})
	require.NoError(w.t, err)
	if change != nil {
		change(c)
		_, err := w.user.Claims("default").Update(w.ctx, c, metav1.UpdateOptions{})
		require.NoError(w.t, err)
	}
}

func TestAnIncompleteReadCountsForNothing(t *testing.T) {
	w := newTestWorld(t, removeOrphans)
	w.owned("pvc-1")
	w.advance(time.Hour + time.Minute)      // the first pass
	w.lvm.FailNext("lvs", "Can't get lock") // the second sees nothing
	w.lvm.SetExported("vg0", true)          // nor does the third
	w.advance(2 * time.Hour)
	w.lvm.SetExported("vg0", false)
	require.Equal(t, []string{"pvc-1"}, w.lvs())
	w.api.FailNext(listVolumes, errServer)
	w.advance(time.Hour)
	require.Equal(t, []string{"pvc-1"}, w.lvs(), "the list of volumes failed")
	w.advance(time.Hour)
	require.Empty(t, w.lvs(), "what is suspicious since the first pass")
}

// A list that comes in pages is read to its end.
func TestAllPagesOfTheVolumesAreRead(t *testing.T) {
	w := newTestWorld(t, removeOrphans)
	w.owned("pvc-1")
	for _, name := range []string{"a", "b", "c", "z"} {
		w.volume(name, types.UID(name), quiet, elsewhere)
	}
	w.volume("zz", "owner", quiet, elsewhere)
	w.config.Volumes = pagedVolumes{w.session.Volumes()}
	w.agent.cfg.Volumes = w.config.Volumes
	w.advance(24 * time.Hour)
	require.Equal(t, []string{"pvc-1"}, w.lvs())
	w.deleteVolume("zz")
	w.advance(24 * time.Hour)
	require.Empty(t, w.lvs())
}

type pagedVolumes struct{ *fake.VolumeClient }

func (p pagedVolumes) List(ctx ctxt, opts metav1.ListOptions) (*v1.PersistentVolumeList, error) {
	opts.Limit = 2
	return p.VolumeClient.List(ctx, opts)
}

func TestAnOrphanOfWhichNobodyKnowsWhetherItIsOpenStays(t *testing.T) {
	w := newTestWorld(t, removeOrphans)
	lv := w.owned("pvc-1")
	w.agent.backend = blind{w.lvm}
	w.advance(48 * time.Hour)
	require.Equal(t, lv, w.getLV("pvc-1"))
	require.NotEmpty(t, w.said(NoticeOrphan))
}

// blind does not see whether a volume is open, as without device-mapper.
type blind struct{ Backend }

func (b blind) Get(ctx ctxt, name lvm.Name) (lvm.LogicalVolume, error) {
	lv, err := b.Backend.Get(ctx, name)
	lv.Open = lvm.Unknown
	return lv, err
}

// The volume comes between the list of volumes and the removal.
func TestAnOrphanThatIsClaimedInTheLastMomentStays(t *testing.T) {
	w := newTestWorld(t, removeOrphans)
	w.owned("pvc-1")
	w.hook().beforeGet = func() { w.volume("x", "owner", quiet) }
	w.advance(48 * time.Hour)
	require.Equal(t, []string{"pvc-1"}, w.lvs())
}

func TestAnOrphanThatIsOpenWaits(t *testing.T) {
	w := newTestWorld(t, removeOrphans)
	w.owned("pvc-1")
	require.NoError(t, w.lvm.Mount(vg0("pvc-1")))
	w.advance(48 * time.Hour)
	require.Len(t, w.lvs(), 1)
	require.NotEmpty(t, w.said(NoticeOrphan))
	require.NoError(t, w.lvm.Close(vg0("pvc-1")))
	w.advance(3 * time.Hour)
	require.Empty(t, w.lvs())
}

func TestARestartBeginsTheGraceAnew(t *testing.T) {
	w := newTestWorld(t, removeOrphans)
	w.owned("pvc-1")
	w.advance(2*time.Hour + 30*time.Minute)
	w.restart()
	w.advance(2*time.Hour + 30*time.Minute)
	require.Len(t, w.lvs(), 1)
	w.advance(time.Hour)
	require.Empty(t, w.lvs())
}

// A volume may be made while the removal of its orphan is tried again and again, and the informers need not tell of it.
func TestAnOrphanThatAVolumeIsMadeOfBeforeItsRemovalStays(t *testing.T) {
	w := newTestWorld(t, removeOrphans)
	w.owned("pvc-1")
	for range 5 {
		w.lvm.FailNext("lvremove", "Can't get lock for vg0")
	}
	for range 5 * 60 {
		w.advance(time.Minute)
		if len(w.agent.Orphans()) > 0 {
			break
		}
	}
	require.Len(t, w.agent.Orphans(), 1)
	w.feed.Pause()
	w.volume("pvc-1", "owner", quiet)
	w.advance(5 * time.Hour)
	require.Equal(t, []string{"pvc-1"}, w.lvs())
	require.Empty(t, w.agent.Orphans())
}
