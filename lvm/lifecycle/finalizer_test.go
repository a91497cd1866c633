package lifecycle

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/stateofworld/stateofworld/lvm"
)

const testFinalizer = "lvm.example.com/logical-volume"

func withFinalizer(c *AgentConfig) { c.Finalizer = testFinalizer }

// quiet is a volume that nothing is asked of.
func quiet(pv *v1.PersistentVolume) {
	pv.Annotations = nil
	pv.Spec.CSI.VolumeAttributes = map[string]string{"vgName": "vg0"}
}

func (w *testWorld) deleteVolume(name string) {
	require.NoError(w.t, w.user.Volumes().Delete(w.ctx, name, metav1.DeleteOptions{}))
}

func (w *testWorld) requireNoVolume(name string) {
	_, err := w.user.Volumes().Get(w.ctx, name, metav1.GetOptions{})
	require.True(w.t, apierrors.IsNotFound(err), "%v", err)
}

func TestTheFinalizerIsPutOnTheVolumesOfTheNode(t *testing.T) {
	w := newTestWorld(t, withFinalizer)
	w.volume("pvc-1", "owner", quiet)
	w.volume("pvc-2", "owner", quiet, func(pv *v1.PersistentVolume) { pv.Finalizers = []string{"kubernetes.io/pv-protection"} })
	w.volume("other", "owner", quiet, func(pv *v1.PersistentVolume) { pv.Spec.CSI.Driver = "ebs.csi.aws.com" })
	w.idle()
	require.Equal(t, []string{testFinalizer}, w.getVolume("pvc-1").Finalizers)
	require.Equal(t, []string{"kubernetes.io/pv-protection", testFinalizer}, w.getVolume("pvc-2").Finalizers)
	require.Empty(t, w.getVolume("other").Finalizers)
	require.Zero(t, w.agent.book.size())

	w = newTestWorld(t)
	w.volume("pvc-1", "owner", quiet)
	w.idle()
	require.Empty(t, w.getVolume("pvc-1").Finalizers, "it is an option")
}

func TestTheFinalizerGoesWithTheLogicalVolume(t *testing.T) {
	w := newTestWorld(t, withFinalizer)
	w.owned("pvc-1")
	pv := w.volume("pvc-1", "owner", func(pv *v1.PersistentVolume) { pv.Finalizers = []string{"kubernetes.io/pv-protection", testFinalizer} })
	w.idle()
	require.Equal(t, "deleted", w.volumeState("pvc-1"))
	require.Equal(t, []string{"kubernetes.io/pv-protection"}, w.getVolume("pvc-1").Finalizers, pv.Name)
	require.Empty(t, w.lvs())
}

func TestAVolumeThatSomebodyDeletesIsHeldWhileItsLogicalVolumeIsThere(t *testing.T) {
	w := newTestWorld(t, withFinalizer)
	lv := w.owned("pvc-1")
	w.volume("pvc-1", "owner", quiet)
	w.idle()
	w.deleteVolume("pvc-1")
	w.advance(24 * time.Hour)
	require.NotNil(t, w.getVolume("pvc-1").DeletionTimestamp)
	require.Len(t, w.said(NoticeHeld), 1)
	require.Equal(t, Held, w.agent.ExplainVolume("pvc-1").Decision.Condition)
	require.Len(t, w.lvs(), 1)

	// a person removes the logical volume
	require.NoError(t, w.hand.Remove(w.ctx, lv.Name, lvm.RemoveOptions{}))
	w.advance(3 * time.Minute)
	w.requireNoVolume("pvc-1")
	require.Zero(t, w.agent.book.size())
}

func TestAVolumeThatIsHeldCanStillBeDeletedByTheProtocol(t *testing.T) {
	w := newTestWorld(t, withFinalizer)
	w.owned("pvc-1")
	w.volume("pvc-1", "owner", quiet)
	w.idle()
	w.deleteVolume("pvc-1")
	w.idle()
	pv := w.getVolume("pvc-1")
	pv.Annotations = map[string]string{keys.Lifecycle(): string(Deleting), keys.Spec(): "vg0/pvc-1"}
	_, err := w.user.Volumes().Update(w.ctx, pv, metav1.UpdateOptions{})
	require.NoError(t, err)
	w.idle()
	w.requireNoVolume("pvc-1")
	require.Empty(t, w.lvs())
}

func TestWhatCannotBeSeenIsHeld(t *testing.T) {
	w := newTestWorld(t, withFinalizer)
	w.volume("unnamed", "owner", quiet, func(pv *v1.PersistentVolume) { pv.Spec.CSI.VolumeAttributes = nil })
	w.volume("pvc-1", "owner", quiet)
	w.idle()
	w.lvm.SetExported("vg0", true)
	w.session.ForgetCalls()
	w.deleteVolume("unnamed")
	w.idle()
	require.Empty(t, w.session.Calls(), "which logical volume it is cannot be told, so nobody is asked")
	w.deleteVolume("pvc-1")
	w.advance(time.Minute)
	require.Contains(t, w.getVolume("pvc-1").Finalizers, testFinalizer)
	require.Equal(t, ReasonExported, w.said(NoticeFailed)[0].Failure.Reason)
	w.lvm.SetExported("vg0", false)
	w.advance(3 * time.Minute)
	w.requireNoVolume("pvc-1")
}

func TestAFinalizerThatChangesUnderTheHandIsReadAgain(t *testing.T) {
	w := newTestWorld(t, withFinalizer)
	w.api.BeforeNext(patchVol, func() {
		pv := w.getVolume("pvc-1")
		pv.Finalizers = []string{"example.com/other"}
		_, err := w.user.Volumes().Update(w.ctx, pv, metav1.UpdateOptions{})
		require.NoError(t, err)
	})
	w.volume("pvc-1", "owner", quiet)
	w.idle()
	require.Equal(t, []string{"example.com/other", testFinalizer}, w.getVolume("pvc-1").Finalizers)
}
