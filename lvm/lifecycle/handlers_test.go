package lifecycle

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/stateofworld/stateofworld/fake"
)

// deletedFinalStateUnknown is made like client-go's.
type deletedFinalStateUnknown struct {
	Key string
	Obj interface{}
}

// L26, projectcalico/calico PR#12793
func TestTombstonesAreUnderstood(t *testing.T) {
	w := newTestWorld(t)
	a := w.agent
	pvc := fake.NewClaim("data", nodeA)
	pvc.UID, pvc.Annotations[keys.Lifecycle()] = "u", string(Created)
	pv := fake.NewVolume("pvc-1", DefaultDriver, nodeA, nil)
	pv.UID = "u"
	var noClaim *v1.PersistentVolumeClaim
	var noVolume *v1.PersistentVolume
	for name, tombstone := range map[string][2]any{
		"the objects":          {pvc, pv},
		"tombstones":           {deletedFinalStateUnknown{"default/data", pvc}, deletedFinalStateUnknown{"pvc-1", pv}},
		"pointers to them":     {&deletedFinalStateUnknown{"default/data", pvc}, &deletedFinalStateUnknown{"pvc-1", pv}},
		"with nothing inside":  {deletedFinalStateUnknown{"default/data", nil}, deletedFinalStateUnknown{"pvc-1", nil}},
		"with nil inside":      {deletedFinalStateUnknown{"default/data", noClaim}, deletedFinalStateUnknown{"pvc-1", noVolume}},
		"with a string inside": {deletedFinalStateUnknown{"default/data", "x"}, deletedFinalStateUnknown{"pvc-1", 7}},
		"of the other kind":    {deletedFinalStateUnknown{"default/data", pv}, deletedFinalStateUnknown{"pvc-1", pvc}},
	} {
		t.Run(name, func(t *testing.T) {
			a.Claims().OnAdd(pvc, true)
			a.Volumes().OnAdd(pv, true)
			require.Equal(t, 1, a.claims.Len())
			require.Equal(t, 1, a.volumes.Len())
			a.Claims().OnDelete(tombstone[0])
			a.Volumes().OnDelete(tombstone[1])
			require.Zero(t, a.claims.Len())
			require.Zero(t, a.volumes.Len())
		})
	}
	require.Empty(t, w.said(NoticeUnexpected))
}

// L26
func TestWhatIsNoEventChangesNothing(t *testing.T) {
	w := newTestWorld(t)
	a := w.agent
	pvc := fake.NewClaim("data", nodeA)
	pvc.UID, pvc.Annotations[keys.Lifecycle()] = "u", string(Created)
	pv := fake.NewVolume("pvc-1", DefaultDriver, nodeA, nil)
	a.Claims().OnAdd(pvc, true)
	a.Volumes().OnAdd(pv, true)
	var noClaim *v1.PersistentVolumeClaim
	var noTombstone *deletedFinalStateUnknown
	odd := []any{nil, "x", 7, noClaim, noTombstone, deletedFinalStateUnknown{}, deletedFinalStateUnknown{"", "x"}, struct{ Key, Obj string }{"default/data", "x"}, &v1.Pod{}, []int{1}, map[string]any{}, func() {}}
	for _, h := range []EventHandler{a.Claims(), a.Volumes()} {
		for _, o := range odd {
			h.OnAdd(o, false)
			h.OnUpdate(o, o)
			h.OnDelete(o)
		}
	}
	a.Claims().OnDelete(deletedFinalStateUnknown{"data", nil})
	a.Volumes().OnDelete(deletedFinalStateUnknown{"default/pvc-1", nil})
	a.Claims().OnAdd(pv, false)
	a.Volumes().OnUpdate(nil, pvc)
	require.Equal(t, 1, a.claims.Len())
	require.Equal(t, 1, a.volumes.Len())
	require.Len(t, w.said(NoticeUnexpected), 2*3*len(odd)+4)
}

func TestTheEndOfOneObjectIsNotThatOfItsSuccessor(t *testing.T) {
	w := newTestWorld(t)
	old, now := fake.NewClaim("data", nodeA), fake.NewClaim("data", nodeA)
	old.UID, now.UID = "old", "new"
	old.Annotations[keys.Lifecycle()], now.Annotations[keys.Lifecycle()] = string(Created), string(Created)
	w.agent.Claims().OnAdd(old, false)
	w.agent.Claims().OnUpdate(old, now)
	w.agent.Claims().OnDelete(old)
	require.Equal(t, 1, w.agent.claims.Len())
	w.agent.Claims().OnDelete(now)
	require.Zero(t, w.agent.claims.Len())
}

func TestOnlyObjectsOfTheNodeTakeMemory(t *testing.T) {
	w := newTestWorld(t)
	for _, node := range []string{"node-b", "node-c", ""} {
		pvc := fake.NewClaim("data", node)
		pvc.UID = types.UID("of " + node)
		w.agent.Claims().OnAdd(pvc, true)
		w.agent.Volumes().OnAdd(fake.NewVolume("pvc-"+node, DefaultDriver, node, nil), true)
	}
	unasked := fake.NewClaim("unasked", nodeA)
	w.agent.Claims().OnAdd(unasked, true)
	w.agent.Volumes().OnAdd(fake.NewVolume("foreign", "ebs.csi.aws.com", nodeA, nil), true)
	require.Zero(t, w.agent.claims.Len())
	require.Zero(t, w.agent.volumes.Len())
}

// A feed that misses events tells of what is gone by tombstones.
func TestWhatWasMissedIsMadeUpFor(t *testing.T) {
	w := newTestWorld(t)
	w.claim("kept", spec("kept", mib))
	w.claim("gone", spec("gone", 2*gib))
	w.idle()
	w.feed.Pause()
	w.deleteClaim("gone")
	w.claim("new", spec("new", mib))
	w.owned("pvc-1")
	w.volume("pvc-1", "owner")
	w.idle()
	require.Equal(t, []string{"kept", "pvc-1"}, w.lvs())
	w.feed.Resume()
	w.idle()
	require.Equal(t, []string{"kept", "new"}, w.lvs())
	require.Equal(t, 2, w.agent.claims.Len())
	require.Zero(t, w.agent.book.size())
}

// What the API server answers is news of another object of the same name, too.
func TestASuccessorIsSeenBeforeTheInformerTellsOfIt(t *testing.T) {
	w := newTestWorld(t)
	w.claim("data", spec("pvc-1", 2*gib))
	w.idle()
	w.feed.Pause()
	w.deleteClaim("data")
	w.claim("data", spec("pvc-1", mib))
	w.advance(2 * time.Second)
	require.Equal(t, "created", w.claimState("data"))
}

// A watch that is narrowed to the node's own objects by the label that the provisioner sets.
func TestALabelNarrowsTheWatchToTheOwnNode(t *testing.T) {
	w := newTestWorld(t)
	w.feed.Stop()
	seen := &counter{EventHandler: w.agent.Claims()}
	w.feed = w.api.Feed(seen, w.agent.Volumes(), nodeSelector(t, nodeA))
	label := func(node types.NodeName) func(*v1.PersistentVolumeClaim) {
		return func(c *v1.PersistentVolumeClaim) {
			c.Annotations[keys.SelectedNode] = string(node)
			c.Labels = map[string]string{keys.NodeLabel(): keys.NodeLabelValue(node)}
		}
	}
	w.claim("ours", spec("pvc-1", mib), label(nodeA))
	w.claim("theirs", spec("pvc-2", mib), label("node-b"))
	w.claim("unlabelled", spec("pvc-3", mib))
	w.idle()
	require.Equal(t, []string{"pvc-1"}, w.lvs())
	require.Equal(t, 2, seen.n, "made, and marked as created")
}

type counter struct {
	EventHandler
	n int
}

func (c *counter) OnAdd(obj any, initial bool) { c.n++; c.EventHandler.OnAdd(obj, initial) }
func (c *counter) OnUpdate(oldObj, newObj any) { c.n++; c.EventHandler.OnUpdate(oldObj, newObj) }
func (c *counter) OnDelete(obj any)            { c.n++; c.EventHandler.OnDelete(obj) }
