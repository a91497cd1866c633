package lifecycle

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/stateofworld/stateofworld/fake"
	"github.com/stateofworld/stateofworld/lvm"
)

// unannounced makes a logical volume as an attempt leaves it that was cut off before "created" was written.
func (w *testWorld) unannounced(name string, uid types.UID, claim string) lvm.LogicalVolume {
	return w.makeLV(name, ownerTags(uid, types.NamespacedName{Namespace: "default", Name: claim}, lvm.Name{VG: "vg0", LV: name})...)
}

func TestWhatACrashHasLeftIsCleanedUpAtTheStart(t *testing.T) {
	for name, c := range map[string]struct {
		setUp func(w *testWorld)
		stays bool
	}{
		"its claim is gone": {setUp: func(w *testWorld) { w.unannounced("pvc-1", "u", "data") }},
		"its claim was made anew": {setUp: func(w *testWorld) {
			w.unannounced("pvc-1", "of-the-one-before", "data")
			w.claim("data", spec("pvc-2", mib))
		}},
		"its claim is on another node": {setUp: func(w *testWorld) {
			c := w.claim("data", spec("pvc-1", mib), func(c *v1.PersistentVolumeClaim) { c.Annotations[keys.SelectedNode] = "node-b" })
			w.unannounced("pvc-1", c.UID, "data")
		}},
		"its claim wants it": {stays: true, setUp: func(w *testWorld) {
			c := w.claim("data", spec("pvc-1", extent))
			w.unannounced("pvc-1", c.UID, "data")
		}},
		"its claim was told of it": {stays: true, setUp: func(w *testWorld) {
			c := w.claim("data", spec("pvc-1", mib), func(c *v1.PersistentVolumeClaim) { c.Annotations[keys.Lifecycle()] = string(Created) })
			w.unannounced("pvc-1", c.UID, "data")
		}},
		"it was announced": {stays: true, setUp: func(w *testWorld) { w.owned("pvc-1") }},
		"it has no owner":  {stays: true, setUp: func(w *testWorld) { w.makeLV("pvc-1") }},
		"it is open": {stays: true, setUp: func(w *testWorld) {
			require.NoError(w.t, w.lvm.Open(w.unannounced("pvc-1", "u", "data").Name))
		}},
		"somebody has renamed it": {stays: true, setUp: func(w *testWorld) {
			lv := w.unannounced("tmp", "u", "data")
			_, err := w.hand.Rename(w.ctx, lv.Name, "pvc-1")
			require.NoError(w.t, err)
		}},
		"the API server cannot be asked": {stays: true, setUp: func(w *testWorld) {
			w.unannounced("pvc-1", "u", "data")
			w.api.Fail(getClaim, errServer)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newTestWorld(t)
			c.setUp(w)
			w.advance(time.Minute)
			require.Equal(t, c.stays, len(w.lvs()) > 0 && w.lvs()[0] == "pvc-1", "%v", w.lvs())
		})
	}
}

// L13, hwameistor: what a wipe had been cut off from is wiped to the end
func TestRemovalsThatWereCutOffAreFinishedAtTheStart(t *testing.T) {
	w := newTestWorld(t)
	lv := w.makeLV("pvc-1")
	require.NoError(t, w.lvm.Write(lv.Name, "secret", ""))
	w.lvm.FailNext("blkdiscard", "Input/output error")
	require.Error(t, w.lvm.Remove(w.ctx, lv.Name, lvm.RemoveOptions{Wipe: lvm.WipeZero}))
	require.Len(t, w.lvs(), 1)
	w.idle()
	require.Empty(t, w.lvs())
}

func TestRecoveryIsTriedUntilTheGroupAnswers(t *testing.T) {
	w := newTestWorld(t)
	w.unannounced("pvc-1", "u", "data")
	w.lvm.FailNext("vgs", "Can't get lock")
	w.lvm.FailNext("lvs", "Can't get lock for vg0")
	w.idle()
	require.Len(t, w.said(NoticeFailed), 1)
	w.advance(time.Minute)
	require.Len(t, w.said(NoticeFailed), 1)
	require.Empty(t, w.lvs())
	require.Zero(t, w.agent.book.size())
}

func TestAGroupThatIsNotThereIsNotAskedForAgain(t *testing.T) {
	w := newTestWorld(t, func(c *AgentConfig) { c.VolumeGroups = []string{"vg9", "vg0"} })
	w.unannounced("pvc-1", "u", "data")
	w.idle()
	require.Empty(t, w.lvs(), "vg0 was recovered")
	calls := len(w.lvm.Calls())
	w.advance(24 * time.Hour)
	require.Len(t, w.lvm.Calls(), calls)
	require.Equal(t, ReasonVGNotFound, w.said(NoticeFailed)[0].Failure.Reason)
}

// "With nothing to do the agent is idle": no polling of lvm2 or the API.
func TestAnAgentWithNothingToDoDoesNothing(t *testing.T) {
	w := newTestWorld(t, withFinalizer, func(c *AgentConfig) { c.AuditPeriod = 0 })
	for _, name := range []string{"a", "b", "c"} {
		w.claim(name, spec(name, mib))
		w.volume("pv-"+name, "owner", quiet)
	}
	w.claim("bad", "nonsense")
	w.claim("elsewhere", spec("x", mib), func(c *v1.PersistentVolumeClaim) { c.Annotations[keys.SelectedNode] = "node-b" })
	w.idle()
	w.session.ForgetCalls()
	w.lvm.ForgetCalls()
	evaluations := w.agent.engine.Evaluations()
	for range 100 { // audits included
		w.agent.engine.AuditNow()
		w.advance(time.Hour)
	}
	require.Empty(t, w.session.Calls())
	require.Empty(t, w.lvm.Calls())
	require.EqualValues(t, 100*7, w.agent.engine.Evaluations()-evaluations, "the audits, from memory")
	require.True(t, w.agent.Idle())
}

func TestMemoryGoesBack(t *testing.T) {
	w := newTestWorld(t, withFinalizer)
	for _, name := range []string{"a", "b", "c"} {
		w.claim(name, spec(name, mib))
		w.claim("bad-"+name, "nonsense")
		w.claim("big-"+name, spec("big-"+name, 2*gib))
		w.volume("pv-"+name, "owner", quiet)
	}
	w.advance(time.Minute)
	for _, name := range []string{"a", "b", "c", "bad-a", "bad-b", "bad-c", "big-a", "big-b", "big-c"} {
		w.deleteClaim(name)
	}
	for _, name := range []string{"pv-a", "pv-b", "pv-c"} {
		w.deleteVolume(name)
	}
	w.advance(time.Hour)
	a := w.agent
	require.Zero(t, a.claims.Len()+a.volumes.Len()+a.leftovers.Len())
	require.Zero(t, a.book.size())
	require.Zero(t, a.engine.Len())
	pending, backoff := a.ops.Sizes()
	require.Zero(t, pending+backoff)
	require.Equal(t, []string{"a", "b", "c"}, w.lvs(), "announced, so not for the agent to remove")
}

// A crash has left a logical volume that its claim still asked for when it was looked at. When the claim asks for it no more before this process has begun with
// it, it is cleaned away all the same.
func TestWhatACrashLeftIsRemovedWhenItsClaimMovesBeforeItIsFinished(t *testing.T) {
	for name, change := range map[string]func(w *testWorld){
		"the claim moves":            func(w *testWorld) { w.annotate("data", map[string]string{keys.SelectedNode: "node-b"}) },
		"the claim asks for another": func(w *testWorld) { w.annotate("data", map[string]string{keys.Spec(): spec("pvc-2", mib)}) },
		"the claim goes":             func(w *testWorld) { w.deleteClaim("data") },
	} {
		t.Run(name, func(t *testing.T) {
			w := newTestWorld(t)
			w.idle()
			w.lvm.StopAt(4, fake.StopAfter) // lvs, lvcreate, lvchange, lvs
			w.claim("data", spec("pvc-1", mib))
			w.untilStopped(0)
			require.True(t, w.stopped())
			require.Equal(t, []string{"pvc-1"}, w.lvs())

			w.restart()
			w.api.FailNext(getClaim, errServer) // so that it is looked at, and not yet begun with
			w.idle()
			require.Equal(t, []string{"pvc-1"}, w.lvs())
			change(w)
			w.advance(time.Minute)
			require.NotContains(t, w.lvs(), "pvc-1")
		})
	}
}
