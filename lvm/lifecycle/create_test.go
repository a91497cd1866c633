package lifecycle

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/stateofworld/stateofworld/fake"
	"github.com/stateofworld/stateofworld/lvm"
)

var (
	getClaim   = fake.APICall{Verb: "get", Resource: "persistentvolumeclaims"}
	patchClaim = fake.APICall{Verb: "patch", Resource: "persistentvolumeclaims"}
	getVolume  = fake.APICall{Verb: "get", Resource: "persistentvolumes"}
	patchVol   = fake.APICall{Verb: "patch", Resource: "persistentvolumes"}

	errConflicting = apierrors.NewConflict(schema.GroupResource{Resource: "persistentvolumeclaims"}, "data", errors.New("the object has been modified"))
	errServer      = apierrors.NewInternalError(errors.New("etcd leader changed"))
)

func TestAClaimIsMadeOnceAndMarked(t *testing.T) {
	w := newTestWorld(t)
	made := w.claim("data", spec("pvc-1", 10*mib))
	w.idle()
	require.Equal(t, "created", w.claimState("data"))
	require.Equal(t, []string{"pvc-1"}, w.lvs())
	lv := w.getLV("pvc-1")
	require.EqualValues(t, 12*mib, lv.Size, "rounded up to extents")
	require.Equal(t, []string{"sow.claim=default/data", "sow.lv=vg0/pvc-1", "sow.owner=" + string(made.UID), "sow.ready"}, lv.Tags)
	require.Equal(t, []string{"get claim default/data", "get claim default/data", "patch claim default/data"}, w.session.Calls())
	require.Len(t, w.said(NoticeCreated), 1)
	require.Zero(t, w.agent.book.size(), "nothing is remembered of what is done")
	require.Empty(t, w.agent.Explanations())
}

func TestTheSpecIsFollowed(t *testing.T) {
	w := newTestWorld(t)
	w.lvm.AddVG("vg1", extent, fake.Disk{Device: "/dev/sdb", Size: gib}, fake.Disk{Device: "/dev/sdc", Size: gib})
	w.claim("data", `{"vg":"vg1","name":"pvc-1","size":8388608,"striping":true,"tags":["class=fast"]}`)
	w.idle()
	require.Equal(t, "created", w.claimState("data"))
	lv, err := w.hand.Get(w.ctx, lvm.Name{VG: "vg1", LV: "pvc-1"})
	require.NoError(t, err)
	require.Equal(t, lvm.Striped, lv.Layout)
	require.Contains(t, lv.Tags, "class=fast")
}

// Defect 7 of the forerunner: a volume that could not be striped was made linear without a word.
func TestLinearInsteadOfStripedOnlyWhereAllowed(t *testing.T) {
	striped := `{"volumeGroup":"vg0","name":"pvc-1","size":8388608,"striping":true}`
	w := newTestWorld(t)
	w.claim("data", striped)
	w.idle()
	require.Equal(t, "creating NotStripable", w.claimState("data"))
	require.Empty(t, w.lvs())

	w = newTestWorld(t, func(c *AgentConfig) { c.AllowLinear = true })
	w.claim("data", striped)
	w.idle()
	require.Equal(t, "created", w.claimState("data"))
	require.Equal(t, lvm.Linear, w.getLV("pvc-1").Layout)
}

func TestWhatIsNotOursIsLeftAlone(t *testing.T) {
	for name, change := range map[string]func(*v1.PersistentVolumeClaim){
		"another node":                   func(c *v1.PersistentVolumeClaim) { c.Annotations[keys.SelectedNode] = "node-b" },
		"no node":                        func(c *v1.PersistentVolumeClaim) { delete(c.Annotations, keys.SelectedNode) },
		"another driver":                 func(c *v1.PersistentVolumeClaim) { c.Annotations[annProvisioner] = "ebs.csi.aws.com" },
		"another driver, by the old key": func(c *v1.PersistentVolumeClaim) { c.Annotations[annBetaProvisioner] = "ebs.csi.aws.com" },
		"another class":                  func(c *v1.PersistentVolumeClaim) { class := "slow"; c.Spec.StorageClassName = &class },
		"another UID":                    func(c *v1.PersistentVolumeClaim) { c.Annotations[keys.UID()] = "of another life" },
		"created":                        func(c *v1.PersistentVolumeClaim) { c.Annotations[keys.Lifecycle()] = string(Created) },
		"no lifecycle":                   func(c *v1.PersistentVolumeClaim) { delete(c.Annotations, keys.Lifecycle()) },
	} {
		t.Run(name, func(t *testing.T) {
			w := newTestWorld(t, func(c *AgentConfig) { c.StorageClasses = []string{"local"} })
			class := "local"
			w.claim("data", spec("pvc-1", mib), func(c *v1.PersistentVolumeClaim) { c.Spec.StorageClassName = &class }, change)
			w.idle()
			require.Empty(t, w.session.Calls())
			require.Empty(t, w.changes())
		})
	}
}

func TestANamesakeInAnotherNamespaceIsAnotherClaim(t *testing.T) {
	w := newTestWorld(t)
	w.claim("one/data", spec("pvc-1", mib))
	w.claim("two/data", spec("pvc-2", mib))
	w.idle()
	require.Equal(t, []string{"pvc-1", "pvc-2"}, w.lvs())
	for _, ns := range []string{"one", "two"} {
		pvc, err := w.user.Claims(ns).Get(w.ctx, "data", metav1.GetOptions{})
		require.NoError(t, err)
		require.Equal(t, "created", state(pvc))
	}
	require.Contains(t, w.getLV("pvc-2").Tags, "sow.claim=two/data")
}

// L35, openebs/lvm-localpv#18
func TestNoSpaceIsSaidAndRepeatedUntilThereIsSome(t *testing.T) {
	w := newTestWorld(t)
	full := w.makeLV("full")
	_, err := w.hand.Grow(w.ctx, full.Name, gib-4*extent)
	require.NoError(t, err)
	w.claim("data", spec("pvc-1", gib/2))
	w.idle()
	require.Equal(t, "creating NoSpace", w.claimState("data"))
	require.Contains(t, w.getClaim("data").Annotations[keys.Error()], "insufficient free space")
	e := w.agent.ExplainClaim("default", "data")
	require.Equal(t, BackingOff, e.Decision.Condition)
	require.Equal(t, 1, e.Attempts)
	require.ErrorIs(t, e.LastErr, lvm.ErrNoSpace)
	require.Contains(t, e.String(), "waiting after a failure, until 12:00:01; failed 1 times; NoSpace: ")

	writes := len(w.session.Calls())
	w.advance(time.Minute)
	require.Equal(t, "creating NoSpace", w.claimState("data"))
	attempts := w.agent.ExplainClaim("default", "data").Attempts
	require.InDelta(t, 6, attempts, 1, "1, 2, 4, 8, ... seconds apart")
	require.Equal(t, writes+attempts-1, len(w.session.Calls()), "one read for each attempt, and nothing new to write")
	require.Len(t, w.said(NoticeFailed), 1, "once per change of cause")

	require.NoError(t, w.hand.Remove(w.ctx, full.Name, lvm.RemoveOptions{}))
	w.advance(3 * time.Minute)
	require.Equal(t, "created", w.claimState("data"), "and the reason is gone")
	require.Zero(t, w.agent.book.size())
}

// L36, and defect 8 of the forerunner: an invalid spec was tried every two seconds.
func TestAnInvalidSpecIsReportedOnceAndLeftAlone(t *testing.T) {
	for _, bad := range []string{`{"volumeGroup":"vg0; rm -rf /","name":"a","size":1}`, `{"volumeGroup":"@all","name":"a","size":1}`, `nonsense`, ``} {
		w := newTestWorld(t)
		w.claim("data", bad)
		w.idle()
		require.Equal(t, "creating InvalidSpec", w.claimState("data"), bad)
		w.advance(24 * time.Hour)
		require.Equal(t, []string{"patch claim default/data"}, w.session.Calls())
		require.Empty(t, w.changes())
		require.Len(t, w.said(NoticeFailed), 1)
		require.Equal(t, Refused, w.agent.Explanations()[0].Decision.Condition)

		w.annotate("data", map[string]string{keys.Spec(): spec("pvc-1", mib)})
		w.idle()
		require.Equal(t, "created", w.claimState("data"), "it is looked at again when it is changed")
	}
}

func TestAGroupThatIsNotAllowedIsNotTouched(t *testing.T) {
	w := newTestWorld(t, func(c *AgentConfig) { c.VolumeGroups = []string{"vg0"} })
	w.lvm.AddVG("root", extent, fake.Disk{Device: "/dev/sdz", Size: gib})
	w.claim("data", `{"volumeGroup":"root","name":"pvc-1","size":1048576}`)
	w.volume("pv-1", "u", func(pv *v1.PersistentVolume) { pv.Annotations[keys.Spec()] = "root/pv-1" })
	w.idle()
	require.Equal(t, "creating NotAllowed", w.claimState("data"))
	require.Equal(t, "deleting NotAllowed", w.volumeState("pv-1"))
	require.Empty(t, w.changes())
	for _, call := range w.lvm.Calls() {
		require.NotContains(t, call, "root")
	}
}

func TestANameThatIsTakenIsNeitherTakenOverNorRemoved(t *testing.T) {
	for name, tags := range map[string][]string{
		"a volume without tags":  nil,
		"another claim's volume": {"sow.owner=another", "sow.claim=default/other", "sow.lv=vg0/pvc-1", "sow.ready"},
		"a copy":                 {"sow.owner=00000000-0000-4000-8000-000000000001", "sow.claim=default/data", "sow.lv=vg1/pvc-1"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newTestWorld(t)
			old := w.makeLV("pvc-1", tags...)
			w.claim("data", spec("pvc-1", mib))
			w.advance(time.Minute)
			require.Equal(t, "creating ExistsMismatch", w.claimState("data"))
			w.deleteClaim("data")
			w.advance(time.Minute)
			require.Equal(t, old, w.getLV("pvc-1"))
			require.Zero(t, w.agent.book.size())
		})
	}
}

func TestTwoClaimsForOneNameGiveOneVolume(t *testing.T) {
	w := newTestWorld(t)
	a := w.claim("a", spec("pvc-1", mib))
	b := w.claim("b", spec("pvc-1", mib))
	w.advance(time.Minute)
	require.ElementsMatch(t, []string{"created", "creating ExistsMismatch"}, []string{w.claimState("a"), w.claimState("b")})
	owner := map[string]string{"created": string(a.UID), "creating ExistsMismatch": string(b.UID)}[w.claimState("a")]
	require.Contains(t, w.getLV("pvc-1").Tags, "sow.owner="+owner)
}

// L34, metal-stack/csi-driver-lvm PR#153
func TestAVolumeThatIsInactiveIsThere(t *testing.T) {
	w := newTestWorld(t)
	w.api.FailNext(patchClaim, errServer)
	w.claim("data", spec("pvc-1", mib))
	w.idle()
	w.kill()
	w.lvm.Reboot()
	w.start()
	require.Equal(t, lvm.No, w.getLV("pvc-1").Active)
	w.advance(time.Minute)
	require.Equal(t, "created", w.claimState("data"))
	require.Len(t, w.lvs(), 1)
}

// L12, alibaba/open-local#123
func TestAVolumeLeftHalfMadeIsMadeAnew(t *testing.T) {
	w := newTestWorld(t)
	w.lvm.StopAt(3, fake.StopDuring) // vgs of the recovery, lvs, lvcreate
	w.claim("data", spec("pvc-1", mib))
	w.agent.Step(w.ctx)
	require.NoError(t, w.agent.ops.Wait(w.ctx))
	w.restart()
	w.advance(time.Minute)
	require.Equal(t, "created", w.claimState("data"))
	require.Equal(t, lvm.StageReady, w.getLV("pvc-1").Stage)
}

// L24, vsphere-csi-driver PR#4126
func TestConflictsAreResolvedByReadingAgain(t *testing.T) {
	w := newTestWorld(t)
	w.api.FailNext(patchClaim, errConflicting, errConflicting)
	w.api.BeforeNext(patchClaim, func() { // somebody else writes a label, in the worst moment
		pvc := w.getClaim("data")
		pvc.Labels = map[string]string{"app": "db"}
		_, err := w.user.Claims("default").Update(w.ctx, pvc, metav1.UpdateOptions{})
		require.NoError(t, err)
	})
	w.claim("data", spec("pvc-1", mib))
	w.idle()
	require.Equal(t, "created", w.claimState("data"))
	require.Equal(t, map[string]string{"app": "db"}, w.getClaim("data").Labels, "what others write survives")
	creates := 0
	for _, c := range w.changes() {
		if strings.HasPrefix(c, "lvcreate") {
			creates++
		}
	}
	require.Equal(t, 1, creates)
}

func TestAStateThatOthersHaveWrittenMeanwhileStays(t *testing.T) {
	w := newTestWorld(t)
	w.api.BeforeNext(patchClaim, func() { w.annotate("data", map[string]string{keys.Lifecycle(): "deleted"}) })
	w.claim("data", spec("pvc-1", mib))
	w.idle()
	require.Equal(t, "deleted", w.claimState("data"))
	require.Empty(t, w.lvs(), "and what was made for it is removed again")
}

func TestAnAnswerThatWasLostIsNotRepeated(t *testing.T) {
	w := newTestWorld(t)
	w.api.LoseReply(patchClaim)
	w.claim("data", spec("pvc-1", mib))
	w.idle()
	require.Equal(t, "created", w.claimState("data"))
	w.advance(time.Minute)
	require.Equal(t, []string{"pvc-1"}, w.lvs())
	require.Zero(t, w.agent.book.size())
}

// L23, topolvm/topolvm#1104
func TestAClaimThatGoesWhileItIsMadeLeavesNothing(t *testing.T) {
	again := func(w *testWorld) { // deleted and made anew with the same name
		w.deleteClaim("data")
		w.claim("data", spec("pvc-2", mib))
	}
	for name, c := range map[string]struct {
		when   func(w *testWorld, f func())
		what   func(w *testWorld)
		remain []string
	}{
		"before it is read":          {when: func(w *testWorld, f func()) { w.api.BeforeNext(getClaim, f) }, what: func(w *testWorld) { w.deleteClaim("data") }},
		"after it is made":           {when: func(w *testWorld, f func()) { w.api.FailNext(getClaim, nil); w.api.BeforeNext(getClaim, f) }, what: func(w *testWorld) { w.deleteClaim("data") }},
		"before the patch":           {when: func(w *testWorld, f func()) { w.api.BeforeNext(patchClaim, f) }, what: func(w *testWorld) { w.deleteClaim("data") }},
		"made anew before the patch": {when: func(w *testWorld, f func()) { w.api.BeforeNext(patchClaim, f) }, what: again, remain: []string{"pvc-2"}},
		"made anew after it is made": {when: func(w *testWorld, f func()) { w.api.FailNext(getClaim, nil); w.api.BeforeNext(getClaim, f) }, what: again, remain: []string{"pvc-2"}},
		"moved to another node": {when: func(w *testWorld, f func()) { w.api.BeforeNext(patchClaim, f) }, what: func(w *testWorld) {
			w.annotate("data", map[string]string{keys.SelectedNode: "node-b"})
		}},
		"another spec": {when: func(w *testWorld, f func()) { w.api.BeforeNext(patchClaim, f) }, what: func(w *testWorld) {
			w.annotate("data", map[string]string{keys.Spec(): spec("pvc-3", mib)})
		}, remain: []string{"pvc-3"}},
		"being deleted": {when: func(w *testWorld, f func()) { w.api.FailNext(getClaim, nil); w.api.BeforeNext(getClaim, f) }, what: func(w *testWorld) {
			pvc := w.getClaim("data")
			pvc.Finalizers = []string{"kubernetes.io/pvc-protection"}
			_, err := w.user.Claims("default").Update(w.ctx, pvc, metav1.UpdateOptions{})
			require.NoError(w.t, err)
			w.deleteClaim("data")
		}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newTestWorld(t)
			c.when(w, func() { c.what(w) })
			w.claim("data", spec("pvc-1", mib))
			w.idle()
			if c.remain == nil {
				c.remain = []string{}
			}
			require.Equal(t, c.remain, w.lvs())
			w.advance(time.Hour)
			require.Equal(t, c.remain, w.lvs())
			require.Empty(t, w.said(NoticeFailed), "no error loop")
			if len(c.remain) == 1 {
				require.Equal(t, "created", w.claimState("data"))
				require.Contains(t, w.getLV(c.remain[0]).Tags, "sow.owner="+string(w.getClaim("data").UID))
			}
		})
	}
}

// A claim that goes, or changes its mind, between two attempts.
func TestAVolumeOfAFailedAttemptIsRemovedWhenItIsNotWantedAnyMore(t *testing.T) {
	for name, c := range map[string]struct {
		what   func(w *testWorld)
		remain []string
	}{
		"the claim goes":            {func(w *testWorld) { w.deleteClaim("data") }, []string{}},
		"it wants another":          {func(w *testWorld) { w.annotate("data", map[string]string{keys.Spec(): spec("pvc-2", mib)}) }, []string{"pvc-2"}},
		"it wants nothing":          {func(w *testWorld) { w.annotate("data", map[string]string{keys.Lifecycle(): ""}) }, []string{}},
		"it wants nonsense":         {func(w *testWorld) { w.annotate("data", map[string]string{keys.Spec(): "nonsense"}) }, []string{}},
		"it goes to another node":   {func(w *testWorld) { w.annotate("data", map[string]string{keys.SelectedNode: "node-b"}) }, []string{}},
		"it is asked for once more": {func(w *testWorld) { w.annotate("data", map[string]string{keys.Error(): ""}) }, []string{"pvc-1"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newTestWorld(t)
			w.idle()
			w.lvm.LoseReply("lvcreate")
			w.claim("data", spec("pvc-1", mib))
			w.idle()
			require.Equal(t, "creating Timeout", w.claimState("data"))
			require.Equal(t, []string{"pvc-1"}, w.lvs())
			c.what(w)
			w.idle()
			require.Equal(t, c.remain, w.lvs())
			require.Zero(t, w.agent.leftovers.Len())
		})
	}
}

// Nobody knows whether the first attempt has told the claim; when it has, a volume may have been made of it by now. That is for the search for orphans, which
// asks for volumes, too.
func TestAVolumeThatMayHaveBeenAnnouncedStays(t *testing.T) {
	for name, goes := range map[string]func(w *testWorld){
		"between two attempts": func(w *testWorld) { w.deleteClaim("data") },
		"before it is read again": func(w *testWorld) {
			w.api.FailNext(getClaim, nil)
			w.api.BeforeNext(getClaim, func() { w.deleteClaim("data") })
		},
		"before it is patched again": func(w *testWorld) { w.api.BeforeNext(patchClaim, func() { w.deleteClaim("data") }) },
	} {
		t.Run(name, func(t *testing.T) {
			w := newTestWorld(t)
			w.api.FailNext(patchClaim, errServer)
			w.claim("data", spec("pvc-1", mib))
			w.idle()
			require.Equal(t, "creating", w.claimState("data"))
			goes(w)
			w.advance(time.Minute)
			require.Equal(t, []string{"pvc-1"}, w.lvs())
			require.Empty(t, w.agent.Explanations())
		})
	}
}

func TestAVolumeMadeInVainThatIsOpenWaits(t *testing.T) {
	w := newTestWorld(t)
	name := lvm.Name{VG: "vg0", LV: "pvc-1"}
	w.api.BeforeNext(patchClaim, func() {
		require.NoError(t, w.lvm.Open(name))
		w.deleteClaim("data")
	})
	w.claim("data", spec("pvc-1", mib))
	w.advance(time.Minute)
	require.Equal(t, []string{"pvc-1"}, w.lvs())
	require.Equal(t, ReasonInUse, w.said(NoticeFailed)[0].Failure.Reason)
	e := w.agent.Explanations()
	require.Len(t, e, 1)
	require.Equal(t, KindLogicalVolume, e[0].Kind)

	require.NoError(t, w.lvm.Close(name))
	w.advance(3 * time.Minute)
	require.Empty(t, w.lvs())
	require.Empty(t, w.agent.Explanations())
}

// Defect 2 of the forerunner: it worked on old objects for ever, and made a removed volume anew, empty.
func TestAVolumeThatIsLostLaterIsNotMadeAnew(t *testing.T) {
	w := newTestWorld(t)
	w.claim("data", spec("pvc-1", mib))
	w.idle()
	require.NoError(t, w.hand.Remove(w.ctx, lvm.Name{VG: "vg0", LV: "pvc-1"}, lvm.RemoveOptions{}))
	w.annotate("data", map[string]string{"other": "x"})
	w.restart()
	w.advance(24 * time.Hour)
	require.Empty(t, w.lvs())
	require.Equal(t, "created", w.claimState("data"))
}

func TestAStaleEventDoesNothing(t *testing.T) {
	w := newTestWorld(t)
	stale := w.claim("data", spec("pvc-1", mib))
	w.idle()
	require.NoError(t, w.hand.Remove(w.ctx, lvm.Name{VG: "vg0", LV: "pvc-1"}, lvm.RemoveOptions{}))
	w.agent.Claims().OnUpdate(nil, stale) // an informer that lags behind
	w.advance(time.Minute)
	require.Empty(t, w.lvs(), "the API server is asked before anything is made")
}

func TestTakingTheFailureAwayAsksForAnotherAttemptAtOnce(t *testing.T) {
	w := newTestWorld(t)
	full := w.makeLV("full")
	_, err := w.hand.Grow(w.ctx, full.Name, gib-4*extent)
	require.NoError(t, err)
	w.claim("data", spec("pvc-1", gib/2))
	w.advance(2 * time.Minute)
	require.Greater(t, w.agent.ExplainClaim("default", "data").Attempts, 3)
	require.NoError(t, w.hand.Remove(w.ctx, full.Name, lvm.RemoveOptions{}))
	w.annotate("data", map[string]string{keys.Error(): ""})
	w.idle()
	require.Equal(t, "created", w.claimState("data"))
}

func TestAnotherSpecIsTriedAtOnce(t *testing.T) {
	w := newTestWorld(t)
	w.claim("data", spec("pvc-1", 2*gib))
	w.advance(2 * time.Minute)
	w.annotate("data", map[string]string{keys.Spec(): spec("pvc-1", mib)})
	w.idle()
	require.Equal(t, "created", w.claimState("data"))
}

func TestAnAPIServerThatCannotBeReachedIsTriedAgain(t *testing.T) {
	for name, call := range map[string]fake.APICall{"get": getClaim, "patch": patchClaim} {
		t.Run(name, func(t *testing.T) {
			w := newTestWorld(t)
			w.api.Fail(call, errServer)
			w.claim("data", spec("pvc-1", mib))
			w.advance(time.Minute)
			w.api.Heal()
			require.Equal(t, "creating", w.claimState("data"))
			require.Len(t, w.said(NoticeFailed), 1)
			w.advance(3 * time.Minute)
			require.Equal(t, "created", w.claimState("data"))
			require.Len(t, w.lvs(), 1)
		})
	}
}

func TestAnUnwrittenFailureDoesNotHoldUpTheNextAttempt(t *testing.T) {
	w := newTestWorld(t)
	w.lvm.FailNext("lvcreate", "Can't get lock for vg0")
	w.api.Fail(patchClaim, errServer)
	w.claim("data", spec("pvc-1", mib))
	w.idle()
	require.Equal(t, "creating", w.claimState("data"))
	w.advance(10 * time.Second)
	require.Len(t, w.lvs(), 1, "made in the second attempt")
	w.api.Heal()
	w.advance(3 * time.Minute)
	require.Equal(t, "created", w.claimState("data"))
}

// A reply that was lost leaves nobody knowing; the next attempt finds the volume and goes on.
func TestACommandThatTimedOutIsFinished(t *testing.T) {
	for _, program := range []string{"lvcreate", "lvchange", "lvs"} {
		w := newTestWorld(t)
		w.idle()
		w.lvm.LoseReply(program)
		w.claim("data", spec("pvc-1", mib))
		w.idle()
		require.Equal(t, "creating Timeout", w.claimState("data"), program)
		w.advance(time.Minute)
		require.Equal(t, "created", w.claimState("data"), program)
		require.Len(t, w.lvs(), 1)
	}
}

// What a server never takes must not be tried without end.
func TestAPatchThatIsNeverTakenIsNotRepeatedInARush(t *testing.T) {
	refused := apierrors.NewInvalid(schema.GroupKind{Kind: "PersistentVolumeClaim"}, "data", nil)
	for name, annotation := range map[string]string{"of a failure": "nonsense", "of an answer": spec("pvc-1", mib)} {
		t.Run(name, func(t *testing.T) {
			w := newTestWorld(t)
			w.api.Fail(patchClaim, refused)
			w.claim("data", annotation)
			w.advance(time.Minute)
			require.Less(t, len(w.session.Calls()), 80)
			w.api.Heal()
			w.advance(3 * time.Minute)
			require.NotEqual(t, "creating", w.claimState("data"))
		})
	}
}

// A client that reads from a cache of its own may be behind the informer.
func TestAReadThatIsBehindTheInformerIsRepeatedLater(t *testing.T) {
	w := newTestWorld(t)
	old := w.claim("data", "", func(c *v1.PersistentVolumeClaim) { delete(c.Annotations, keys.Lifecycle()) })
	behind := true
	w.agent.cfg.Claims = func(ns string) ClaimClient { return lagging{w.session.Claims(ns), old, &behind} }
	w.annotate("data", map[string]string{keys.Lifecycle(): string(Creating), keys.Spec(): spec("pvc-1", mib)})
	w.advance(10 * time.Second)
	require.Equal(t, "creating", w.claimState("data"))
	require.Less(t, w.agent.engine.Evaluations(), uint64(50))
	require.Empty(t, w.said(NoticeFailed))
	behind = false
	w.advance(time.Minute)
	require.Equal(t, "created", w.claimState("data"))
}

type lagging struct {
	ClaimClient
	old    *v1.PersistentVolumeClaim
	behind *bool
}

func (l lagging) Get(ctx ctxt, name string, o metav1.GetOptions) (*v1.PersistentVolumeClaim, error) {
	if *l.behind {
		return l.old, nil
	}
	return l.ClaimClient.Get(ctx, name, o)
}

// What a cut-off attempt has made for an earlier request of the same claim is in nobody's use, and in the way of what it asks for now.
func TestAClaimThatAsksForAnotherSizeAfterACrashGetsIt(t *testing.T) {
	for _, told := range []bool{false, true} {
		w := newTestWorld(t)
		w.idle()
		w.lvm.StopAt(4, fake.StopAfter) // lvs, lvcreate, lvchange, lvs
		w.claim("data", spec("pvc-1", 4*mib))
		w.untilStopped(0)
		require.True(t, w.stopped())
		made := w.getLV("pvc-1")
		if told { // or may have been
			_, err := w.hand.ChangeTags(w.ctx, made.Name, lvm.TagChange{Add: []string{readyTag}})
			require.NoError(t, err)
		}
		w.annotate("data", map[string]string{keys.Spec(): spec("pvc-1", 8*mib)})
		w.restart()
		w.advance(time.Minute)
		if told {
			require.Equal(t, "creating ExistsMismatch", w.claimState("data"))
			require.Equal(t, made.UUID, w.getLV("pvc-1").UUID)
			continue
		}
		require.Equal(t, "created", w.claimState("data"))
		require.EqualValues(t, 8*mib, w.getLV("pvc-1").Size)
	}
}
