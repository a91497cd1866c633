package lifecycle

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/stateofworld/stateofworld/fake"
	"github.com/stateofworld/stateofworld/lvm"
)

// owned makes a logical volume as an agent has made it for the claim with the UID "owner".
func (w *testWorld) owned(name string) lvm.LogicalVolume {
	return w.makeLV(name, append(ownerTags("owner", types.NamespacedName{Namespace: "default", Name: "was"}, lvm.Name{VG: "vg0", LV: name}), readyTag)...)
}

func lvremoves(calls []string) (n int) {
	for _, c := range calls {
		if strings.HasPrefix(c, "lvremove") {
			n++
		}
	}
	return n
}

func TestAVolumeIsRemovedOnceAndMarked(t *testing.T) {
	w := newTestWorld(t)
	w.owned("pvc-1")
	w.volume("pvc-1", "owner")
	w.idle()
	require.Equal(t, "deleted", w.volumeState("pvc-1"))
	require.Empty(t, w.lvs())
	require.Equal(t, 1, lvremoves(w.changes()))
	require.Equal(t, []string{"get volume pvc-1", "get volume pvc-1", "patch volume pvc-1"}, w.session.Calls())
	require.Len(t, w.said(NoticeDeleted), 1)
	require.Zero(t, w.agent.book.size())
}

// L10, openebs/lvm-localpv#15
func TestAVolumeThatIsGoneAlreadyIsDeleted(t *testing.T) {
	w := newTestWorld(t)
	w.volume("pvc-1", "owner")
	w.idle()
	require.Equal(t, "deleted", w.volumeState("pvc-1"))
	require.Zero(t, lvremoves(w.changes()))
}

// L10, metal-stack/csi-driver-lvm#39: a disk that has vanished is no successful deletion
func TestAGroupThatCannotBeSeenDeletesNothing(t *testing.T) {
	for reason, hide := range map[string]func(l *fake.LVM){
		"Exported":   func(l *fake.LVM) { l.SetExported("vg0", true) },
		"Foreign":    func(l *fake.LVM) { l.SetForeign("vg0", true) },
		"BadOutput":  nil,
		"VGNotFound": nil,
	} {
		t.Run(reason, func(t *testing.T) {
			w := newTestWorld(t)
			w.owned("pvc-1")
			w.idle()
			spec := "vg0/pvc-1"
			switch reason {
			case "VGNotFound":
				spec = "vg9/pvc-1"
			case "BadOutput":
				w.lvm.FailNext("lvs", "Can't get lock for vg0")
				reason = "Failed"
			default:
				hide(w.lvm)
			}
			w.volume("pvc-1", "owner", func(pv *v1.PersistentVolume) { pv.Annotations[keys.Spec()] = spec })
			w.idle()
			require.Equal(t, "deleting "+reason, w.volumeState("pvc-1"))
			require.Zero(t, lvremoves(w.changes()))
		})
	}
}

// L09, topolvm/topolvm#889
func TestAVolumeInUseStaysAndIsTriedAgain(t *testing.T) {
	for _, hold := range []func(*fake.LVM, lvm.Name) error{(*fake.LVM).Open, (*fake.LVM).Mount} {
		w := newTestWorld(t)
		lv := w.owned("pvc-1")
		require.NoError(t, hold(w.lvm, lv.Name))
		w.volume("pvc-1", "owner")
		w.idle()
		require.Equal(t, "deleting InUse", w.volumeState("pvc-1"))
		w.advance(time.Minute)
		require.Equal(t, "deleting InUse", w.volumeState("pvc-1"))
		require.Len(t, w.lvs(), 1)
		require.Zero(t, lvremoves(w.changes()))
		require.InDelta(t, 6, w.agent.ExplainVolume("pvc-1").Attempts, 1)

		require.NoError(t, w.lvm.Close(lv.Name))
		w.advance(3 * time.Minute)
		require.Equal(t, "deleted", w.volumeState("pvc-1"))
	}
}

// L09: each of lvm2's texts, when the volume is opened between the look and the removal
func TestARemovalThatLVM2RefusesIsNoRemoval(t *testing.T) {
	for text, want := range map[string]string{
		"Logical volume vg0/pvc-1 in use.":                       "deleting InUse",
		"Logical volume vg0/pvc-1 contains a filesystem in use.": "deleting InUse",
		"Logical volume vg0/pvc-1 is used by another device.":    "deleting InUse",
		"Can't get lock for vg0":                                 "deleting Failed",
		`Failed to find logical volume "vg0/pvc-1"`:              "deleting Failed", // it is still there when one looks
	} {
		w := newTestWorld(t)
		w.owned("pvc-1")
		w.lvm.FailNext("lvremove", text)
		w.volume("pvc-1", "owner")
		w.idle()
		require.Equal(t, want, w.volumeState("pvc-1"), text)
		require.Len(t, w.lvs(), 1)
		w.advance(time.Minute)
		require.Equal(t, "deleted", w.volumeState("pvc-1"), text)
	}
}

func TestWhatTheBackendRefusesToRemoveIsSaid(t *testing.T) {
	w := newTestWorld(t)
	w.owned("pvc-1")
	_, err := w.hand.Snapshot(w.ctx, lvm.SnapshotOptions{VG: "vg0", Name: "backup", Origin: "pvc-1", Size: extent})
	require.NoError(t, err)
	kept := w.owned("pvc-2")
	_, err = w.hand.ChangeTags(w.ctx, kept.Name, lvm.TagChange{Add: []string{"protected"}})
	require.NoError(t, err)
	w.volume("pvc-1", "owner")
	w.volume("pvc-2", "owner")
	w.advance(time.Minute)
	require.Equal(t, "deleting HasSnapshots", w.volumeState("pvc-1"))
	require.Equal(t, "deleting Protected", w.volumeState("pvc-2"))
	require.Len(t, w.lvs(), 3)
}

func TestAVolumeOfAnotherClaimIsNotRemoved(t *testing.T) {
	w := newTestWorld(t)
	w.owned("pvc-1")
	w.volume("pvc-1", "somebody else")
	w.volume("unclaimed", "", func(pv *v1.PersistentVolume) { pv.Spec.ClaimRef, pv.Annotations[keys.Spec()] = nil, "vg0/pvc-1" })
	w.advance(time.Minute)
	require.Equal(t, "deleting ExistsMismatch", w.volumeState("pvc-1"))
	require.Equal(t, "deleting ExistsMismatch", w.volumeState("unclaimed"))
	require.Equal(t, []string{"pvc-1"}, w.lvs())
}

// The forerunner's logical volumes have no tags: they must be what the volume itself names.
func TestAVolumeOfTheForerunnerIsRemovedByItsName(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*v1.PersistentVolume)
		want   string
	}{
		"as the forerunner makes it": {want: "deleted", change: func(pv *v1.PersistentVolume) {
			pv.Spec.CSI.VolumeAttributes = map[string]string{"vgName": "vg0", "volumeType": "LVM", "nodeAffinity": "true"}
		}},
		"without its group": {want: "deleted"},
		"in another group":  {want: "deleting ExistsMismatch", change: func(pv *v1.PersistentVolume) { pv.Spec.CSI.VolumeAttributes = map[string]string{"vgName": "vg1"} }},
		"another handle":    {want: "deleting ExistsMismatch", change: func(pv *v1.PersistentVolume) { pv.Spec.CSI.VolumeHandle = "pvc-2" }},
		"not an LVM volume": {want: "deleting", change: func(pv *v1.PersistentVolume) {
			pv.Spec.CSI.VolumeAttributes = map[string]string{"volumeType": "QuotaPath"}
		}},
		"another driver": {want: "deleting", change: func(pv *v1.PersistentVolume) { pv.Spec.CSI.Driver = "ebs.csi.aws.com" }},
		"no CSI volume":  {want: "deleting", change: func(pv *v1.PersistentVolume) { pv.Spec.CSI = nil }},
		"another node": {want: "deleting", change: func(pv *v1.PersistentVolume) {
			pv.Spec.NodeAffinity.Required.NodeSelectorTerms[0].MatchExpressions[0].Values[0] = "node-b"
		}},
		"no affinity":   {want: "deleting", change: func(pv *v1.PersistentVolume) { pv.Spec.NodeAffinity = nil }},
		"being deleted": {want: "deleted", change: func(pv *v1.PersistentVolume) { pv.Finalizers = []string{"kubernetes.io/pv-protection"} }},
	} {
		t.Run(name, func(t *testing.T) {
			w := newTestWorld(t)
			w.makeLV("pvc-1")
			w.volume("pvc-1", "whoever", func(pv *v1.PersistentVolume) {
				if c.change != nil {
					c.change(pv)
				}
			})
			if name == "being deleted" {
				require.NoError(t, w.user.Volumes().Delete(w.ctx, "pvc-1", metav1.DeleteOptions{}))
			}
			w.advance(time.Minute)
			require.Equal(t, c.want, w.volumeState("pvc-1"))
			require.Equal(t, c.want != "deleted", len(w.lvs()) == 1)
		})
	}
}

// The name was used again before "deleted" was written: what is there now is not the volume's, and what was is gone.
func TestAVolumeWhoseNameIsUsedAgainIsDeleted(t *testing.T) {
	w := newTestWorld(t)
	w.claim("data", spec("pvc-1", mib))
	w.idle()
	w.volume("pvc-1", "owner")
	w.idle()
	require.Equal(t, "deleted", w.volumeState("pvc-1"))
	require.Equal(t, []string{"pvc-1"}, w.lvs())

	w.deleteClaim("data")
	w.volume("rebound", "owner", func(pv *v1.PersistentVolume) { pv.Annotations[keys.Spec()] = "vg0/pvc-1" })
	w.advance(time.Minute)
	require.Equal(t, "deleting ExistsMismatch", w.volumeState("rebound"), "the claim is gone: it may be the volume's own, bound to another since")
	require.Equal(t, []string{"pvc-1"}, w.lvs())
}

// What was looked at is removed, and nothing else that has its name by then.
func TestAVolumeThatIsReplacedUnderTheHandIsNotRemoved(t *testing.T) {
	w := newTestWorld(t)
	w.owned("pvc-1")
	w.hook().beforeRemove = func() {
		require.NoError(t, w.hand.Remove(w.ctx, vg0("pvc-1"), lvm.RemoveOptions{}))
		w.makeLV("pvc-1")
	}
	w.volume("pvc-1", "other than the one that has made it", func(pv *v1.PersistentVolume) { pv.Spec.ClaimRef.UID, pv.Spec.CSI.VolumeHandle = "owner", "x" })
	w.advance(time.Minute)
	require.Equal(t, "deleting ExistsMismatch", w.volumeState("pvc-1"))
	require.Equal(t, []string{"pvc-1"}, w.lvs())
	require.Empty(t, w.getLV("pvc-1").Tags)
}

func TestTakingTheFailureOfAVolumeAwayAsksForAnotherAttemptAtOnce(t *testing.T) {
	w := newTestWorld(t)
	lv := w.owned("pvc-1")
	require.NoError(t, w.lvm.Open(lv.Name))
	w.volume("pvc-1", "owner")
	w.advance(2 * time.Minute)
	require.NoError(t, w.lvm.Close(lv.Name))
	pv := w.getVolume("pvc-1")
	delete(pv.Annotations, keys.Error())
	_, err := w.user.Volumes().Update(w.ctx, pv, metav1.UpdateOptions{})
	require.NoError(t, err)
	w.idle()
	require.Equal(t, "deleted", w.volumeState("pvc-1"))
}

func TestAVolumeThatIsStillBoundIsNotRemoved(t *testing.T) {
	w := newTestWorld(t)
	w.owned("pvc-1")
	w.volume("pvc-1", "owner", func(pv *v1.PersistentVolume) { pv.Status.Phase = v1.VolumeBound })
	w.advance(time.Hour)
	require.Equal(t, "deleting Bound", w.volumeState("pvc-1"))
	require.Len(t, w.lvs(), 1)
	require.Equal(t, []string{"patch volume pvc-1"}, w.session.Calls(), "and nobody is asked again and again")

	pv := w.getVolume("pvc-1")
	pv.Status.Phase = v1.VolumeReleased
	_, err := w.user.Volumes().Update(w.ctx, pv, metav1.UpdateOptions{})
	require.NoError(t, err)
	w.idle()
	require.Equal(t, "deleted", w.volumeState("pvc-1"))
}

// The name is free as soon as the logical volume waits to be wiped. That another has it since does not make the wipe done.
func TestAVolumeWhoseNameIsUsedAgainIsNotDeletedBeforeItIsWiped(t *testing.T) {
	for _, there := range []bool{true, false} { // whether the claim that has the name by now is
		testWipeUnderANameThatIsUsedAgain(t, there)
	}
}

func testWipeUnderANameThatIsUsedAgain(t *testing.T, there bool) {
	w := newTestWorld(t, func(c *AgentConfig) { c.Wipe = lvm.WipeSignatures })
	w.idle()
	w.owned("pvc-1")
	for range 2 {
		w.lvm.FailNext("lvremove", "Can't get lock for vg0")
	}
	w.volume("pvc-1", "owner")
	w.idle()
	require.Equal(t, "deleting Failed", w.volumeState("pvc-1"))
	w.claim("data", spec("pvc-1", mib))
	w.advance(time.Second)
	require.Equal(t, "created", w.claimState("data"))
	require.Equal(t, "deleting Failed", w.volumeState("pvc-1"))
	require.Len(t, w.lvs(), 2)
	if !there {
		w.deleteClaim("data")
	}
	w.advance(time.Minute)
	require.Equal(t, "deleted", w.volumeState("pvc-1"))
	require.Equal(t, []string{"pvc-1"}, w.lvs())
}

// What another claim has here under the name says nothing of a logical volume that may be on another node.
func TestAVolumeOnSeveralNodesIsNotDeletedBecauseAnotherHasItsNameHere(t *testing.T) {
	w := newTestWorld(t)
	w.claim("data", spec("pvc-1", mib))
	w.idle()
	w.volume("pvc-1", "owner", func(pv *v1.PersistentVolume) {
		pv.Spec.NodeAffinity.Required.NodeSelectorTerms[0].MatchExpressions[0].Values = []string{"node-b", nodeA}
	})
	w.advance(time.Hour)
	require.Equal(t, "deleting", w.volumeState("pvc-1"))
	require.Equal(t, Elsewhere, w.agent.ExplainVolume("pvc-1").Decision.Condition)
	require.Len(t, w.said(NoticeElsewhere), 1)
	require.Equal(t, []string{"pvc-1"}, w.lvs())
}

// Of a volume that may be on several nodes, only the node that has the logical volume says that it is gone.
func TestAVolumeOnSeveralNodesIsDeletedWhereItIs(t *testing.T) {
	several := func(pv *v1.PersistentVolume) {
		pv.Spec.NodeAffinity.Required.NodeSelectorTerms[0].MatchExpressions[0].Values = []string{"node-b", nodeA}
	}
	w := newTestWorld(t)
	w.volume("pvc-1", "owner", several)
	w.advance(24 * time.Hour)
	require.Equal(t, "deleting", w.volumeState("pvc-1"), "it is not here, but may be on node-b")
	require.Equal(t, Elsewhere, w.agent.ExplainVolume("pvc-1").Decision.Condition)
	require.Len(t, w.said(NoticeElsewhere), 1)
	require.Len(t, w.session.Calls(), 1, "and it is not looked for again and again")

	w.owned("pvc-2")
	w.api.FailNext(fake.APICall{Verb: "patch", Name: "pvc-2"}, nil)                  // the mark
	w.api.FailNext(fake.APICall{Verb: "patch", Name: "pvc-2"}, errServer, errServer) // the mark is another request, and is tried at once
	w.volume("pvc-2", "owner", several)
	w.idle()
	require.Equal(t, "deleting", w.volumeState("pvc-2"))
	require.Equal(t, nodeA, w.getVolume("pvc-2").Annotations[keys.SelectedNode])
	require.Equal(t, []string{}, w.lvs())
	w.restart() // nothing but the mark tells that the logical volume was here
	w.advance(time.Minute)
	require.Equal(t, "deleted", w.volumeState("pvc-2"))
}

func TestAVolumeIsNotMarkedTwice(t *testing.T) {
	w := newTestWorld(t)
	w.owned("pvc-1")
	w.api.BeforeNext(patchVol, func() {
		pv := w.getVolume("pvc-1")
		pv.Annotations[keys.SelectedNode] = "node-b"
		_, err := w.user.Volumes().Update(w.ctx, pv, metav1.UpdateOptions{})
		require.NoError(t, err)
	})
	w.volume("pvc-1", "owner", func(pv *v1.PersistentVolume) {
		pv.Spec.NodeAffinity.Required.NodeSelectorTerms[0].MatchExpressions[0].Values = []string{"node-b", nodeA}
	})
	w.idle()
	require.Equal(t, []string{"pvc-1"}, w.lvs(), "node-b was faster")
	require.Equal(t, "deleting", w.volumeState("pvc-1"))
}

func TestADeletionThatIsTakenBackInTimeIsNotDone(t *testing.T) {
	w := newTestWorld(t)
	w.owned("pvc-1")
	w.api.BeforeNext(getVolume, func() {
		pv := w.getVolume("pvc-1")
		delete(pv.Annotations, keys.Lifecycle())
		_, err := w.user.Volumes().Update(w.ctx, pv, metav1.UpdateOptions{})
		require.NoError(t, err)
	})
	w.volume("pvc-1", "owner")
	w.idle()
	require.Equal(t, []string{"pvc-1"}, w.lvs())
	require.Equal(t, "", w.volumeState("pvc-1"))
}

func TestConflictsOfADeletionAreResolvedByReadingAgain(t *testing.T) {
	w := newTestWorld(t)
	w.owned("pvc-1")
	w.api.FailNext(patchVol, errConflicting, errConflicting)
	w.volume("pvc-1", "owner")
	w.idle()
	require.Equal(t, "deleted", w.volumeState("pvc-1"))
	require.Equal(t, 1, lvremoves(w.changes()))
}

func TestAVolumeObjectThatGoesFirstIsNoError(t *testing.T) {
	w := newTestWorld(t)
	w.owned("pvc-1")
	w.api.BeforeNext(patchVol, func() { require.NoError(t, w.user.Volumes().Delete(w.ctx, "pvc-1", metav1.DeleteOptions{})) })
	w.volume("pvc-1", "owner")
	w.idle()
	require.Empty(t, w.lvs())
	require.Empty(t, w.said(NoticeFailed))
	require.Zero(t, w.agent.book.size())
	require.Zero(t, w.agent.volumes.Len())
}

// L13, Azure/local-csi-driver PR#584
func TestAWipeIsFinishedBeforeTheVolumeIsDeleted(t *testing.T) {
	for name, stop := range map[string]bool{"the command fails": false, "the process stops": true} {
		t.Run(name, func(t *testing.T) {
			w := newTestWorld(t, func(c *AgentConfig) { c.Wipe = lvm.WipeZero })
			lv := w.owned("pvc-1")
			require.NoError(t, w.lvm.Write(lv.Name, "secret", "ext4"))
			w.idle()
			w.lvm.FailNext("blkdiscard", "Input/output error")
			w.volume("pvc-1", "owner")
			w.idle()
			require.Equal(t, "deleting Failed", w.volumeState("pvc-1"), "the name is free, and the data is still there")
			if stop {
				w.restart()
			}
			w.advance(time.Minute)
			require.Equal(t, "deleted", w.volumeState("pvc-1"))
			require.Empty(t, w.lvs())
			// the same extents are used again
			_, err := w.hand.Create(w.ctx, lvm.CreateOptions{VG: "vg0", Name: "next", Size: gib})
			require.NoError(t, err)
			contents, err := w.lvm.Read(lvm.Name{VG: "vg0", LV: "next"})
			require.NoError(t, err)
			require.Empty(t, contents)
		})
	}
}

func TestCreationAndRemovalOfOneNameTakeTurns(t *testing.T) {
	w := newTestWorld(t)
	w.owned("pvc-1")
	w.idle()
	held := w.lvm.Hold("lvremove")
	w.volume("pvc-1", "owner")
	w.agent.Step(w.ctx)
	<-held.Started()
	w.claim("data", spec("pvc-1", mib))
	w.agent.Step(w.ctx) // it finds the removal in its way
	require.Equal(t, []string{"get volume pvc-1"}, w.session.Calls())
	held.Release()
	w.idle()
	require.Equal(t, "deleted", w.volumeState("pvc-1"))
	require.Equal(t, "created", w.claimState("data"))
	require.Contains(t, w.getLV("pvc-1").Tags, "sow.owner="+string(w.getClaim("data").UID))
}

// L20, harvester/harvester#11098
func TestAGroupThatHangsHoldsUpNoOther(t *testing.T) {
	w := newTestWorld(t)
	w.lvm.AddVG("vg1", extent, fake.Disk{Device: "/dev/sdb", Size: gib})
	w.idle()
	hung := w.lvm.Hang("vg0")
	for _, name := range []string{"a", "b", "c", "d", "e", "f", "g", "h", "i", "j"} {
		w.claim(name, spec(name, mib))
	}
	w.claim("other", `{"volumeGroup":"vg1","name":"pvc-1","size":1048576}`)
	w.agent.Step(w.ctx)
	<-hung.Started()
	require.Eventually(t, func() bool { w.agent.Step(w.ctx); return w.claimState("other") == "created" }, 10*time.Second, time.Millisecond)
	require.Equal(t, "creating", w.claimState("a"))
	hung.Release()
	w.idle()
	require.Equal(t, "created", w.claimState("a"))
}
