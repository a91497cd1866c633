package populator

import (
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/stateofworld/stateofworld/cache"
)

// S2, kubernetes/kubernetes#77324: evidence of an attachment that no list has.
func TestAVolumeAttachmentThatNoStatusNamesIsUncertain(t *testing.T) {
	now := metav1.Now()
	subtests(t, map[string]func(*storagev1.VolumeAttachment){
		"attached":         func(*storagev1.VolumeAttachment) {},
		"not yet attached": func(a *storagev1.VolumeAttachment) { a.Status.Attached = false },
		"attach failed": func(a *storagev1.VolumeAttachment) {
			a.Status = storagev1.VolumeAttachmentStatus{AttachError: &storagev1.VolumeError{Message: "x"}}
		},
		"being deleted": func(a *storagev1.VolumeAttachment) { a.DeletionTimestamp = &now },
	}, func(t *testing.T, change func(*storagev1.VolumeAttachment)) {
		attachment := makeAttachment("va-1", "v", "a")
		change(attachment)
		c := newCluster(t)
		c.add(makeNode("a"), makePV("v", "data"), attachment)
		require.Equal(t, []string{"uncertain v@a  v"}, c.attachments())
	})
}

func TestAVolumeAttachmentOfANodeThatIsGoneIsSeeded(t *testing.T) {
	c := newCluster(t)
	c.add(makePV("v", "data"), makeAttachment("va-1", "v", "gone"))
	c.MarkSynced()
	require.Equal(t, []string{"uncertain v@gone  v"}, c.attachments())
	require.Zero(t, c.Sizes().Attachments)
}

func TestWhatTheStatusNamesIsAttachedInWhateverOrderItComes(t *testing.T) {
	attachment, node := makeAttachment("va-1", "v", "a"), makeNode("a", "attached v", "attached w")
	for name, objects := range map[string][]any{
		"status first":     {makePV("v", "data"), node, attachment},
		"attachment first": {makePV("v", "data"), attachment, node},
		"volume last":      {attachment, node, makePV("v", "data")},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t)
			c.add(objects...)
			require.Equal(t, []string{"attached v@a /dev/v v", "attached w@a /dev/w"}, c.attachments())
			require.Empty(t, c.Problems())
		})
	}
}

func TestWhatSomeoneElseMadeOfASeededPairIsLeftAlone(t *testing.T) {
	c := newCluster(t)
	c.add(makePV("v", "data"), makePV("w", "logs"), makeAttachment("va-1", "v", "a"), makeAttachment("va-2", "w", "b"))
	// A detach with an unknown outcome, say: Uncertain still, but by someone else.
	c.actual.MarkVolumeAsDetached(unique("v"), "a")
	require.NoError(t, c.actual.MarkVolumeAsUncertain(unique("v"), nil, "a"))
	require.NoError(t, c.actual.MarkVolumeAsAttached(unique("w"), nil, "b", "/dev/x"))
	unmanaged := makeNode("b")
	unmanaged.Annotations = nil
	c.add(makeNode("a", "attached v"), unmanaged)
	require.Equal(t, []string{"attached w@b /dev/x w", "uncertain v@a"}, c.attachments())

	c.actual.MarkVolumeAsDetached(unique("v"), "a")
	c.add(makeAttachment("va-1", "v", "a")) // again
	require.Equal(t, []string{"attached w@b /dev/x w"}, c.attachments())
}

// The kubelet of such a node attaches and detaches by itself, and makes these objects.
func TestAttachmentsOfNodesThatAreNotManagedAreNotSeeded(t *testing.T) {
	node := makeNode("a")
	node.Annotations = nil
	for name, objects := range map[string][]any{
		"node first":       {makePV("v", "data"), node, makeAttachment("va-1", "v", "a")},
		"attachment first": {makePV("v", "data"), makeAttachment("va-1", "v", "a"), node},
		"volume last":      {makeAttachment("va-1", "v", "a"), node, makePV("v", "data")},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t)
			c.add(objects...)
			require.Empty(t, c.attachments())
			require.Empty(t, c.Problems())

			c.Nodes().OnUpdate(node, makeNode("a"))
			require.Equal(t, []string{"uncertain v@a  v"}, c.attachments(), "managed now")
		})
	}
	c := newCluster(t)
	c.add(makePV("v", "data"), node, makeAttachment("va-1", "v", "a"))
	c.remove(node)
	require.Equal(t, []string{"uncertain v@a  v"}, c.attachments(), "like any node that is gone")
}

func TestAVolumeAttachmentWaitsForItsVolumeAlsoPastTheStart(t *testing.T) {
	for name, synced := range map[string]bool{"before MarkSynced": false, "after MarkSynced": true} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t)
			c.add(makeNode("a"), makeAttachment("va-1", "v", "a"))
			require.Empty(t, c.attachments())
			require.Equal(t, []ProblemKind{VolumeMissing}, c.kinds())
			require.Equal(t, "va-1", c.Problems()[0].Attachment)
			require.Contains(t, c.Problems()[0].String(), `volume attachment "va-1", node "a": VolumeMissing`)
			if synced {
				c.MarkSynced()
			}
			require.Equal(t, 1, c.Sizes().ParkedAttachments)
			c.add(makePV("v", "data"))
			require.Equal(t, []string{"uncertain v@a  v"}, c.attachments())
			require.Empty(t, c.Problems())
			c.MarkSynced()
			require.Zero(t, c.Sizes().Attachments)
		})
	}
}

func TestAWaitingVolumeAttachmentOfANodeThatIsNotManagedIsForgottenPastTheStart(t *testing.T) {
	c := newCluster(t)
	node := makeNode("a")
	node.Annotations = nil
	c.add(makeAttachment("va-1", "v", "a"))
	c.MarkSynced()
	require.Equal(t, 1, c.Sizes().Attachments)
	c.add(node)
	require.Zero(t, c.Sizes().Attachments)
}

func TestVolumeAttachmentsAfterMarkSyncedAreIgnored(t *testing.T) {
	c := newCluster(t)
	c.add(makePV("v", "data"))
	require.False(t, c.Synced())
	c.MarkSynced()
	c.MarkSynced()
	require.True(t, c.Synced())
	c.add(makeAttachment("va-1", "v", "a"))
	c.add(makeAttachment("va-2", "missing", "a"))
	require.Empty(t, c.attachments())
	c.requireEmpty(t)
}

func TestInlineVolumesOfAVolumeAttachmentAreSeeded(t *testing.T) {
	c := newCluster(t)
	attachment := makeAttachment("va-1", "v", "a")
	attachment.Spec.Source = storagev1.VolumeAttachmentSource{InlineVolumeSpec: &makePV("v", "data").Spec}
	c.add(makeNode("a"), attachment)
	require.Equal(t, []string{"uncertain v@a  va-1"}, c.attachments())
}

func TestVolumeAttachmentsThatNobodyCanResolveAreListed(t *testing.T) {
	noSource := makeAttachment("va-1", "v", "a")
	noSource.Spec.Source = storagev1.VolumeAttachmentSource{}
	noNode := makeAttachment("va-1", "v", "")
	noHandle := makePV("v", "data")
	noHandle.Spec.CSI.VolumeHandle = ""
	type tc struct {
		objects []any
		kind    ProblemKind
	}
	subtests(t, map[string]tc{
		"names no volume":       {[]any{noSource}, NoSource},
		"names no node":         {[]any{makePV("v", "data"), noNode}, WorldRefused},
		"volume has no handle":  {[]any{noHandle, makeAttachment("va-1", "v", "a")}, PluginFailed},
		"volume does not exist": {[]any{makeAttachment("va-1", "v", "a")}, VolumeMissing},
	}, func(t *testing.T, tc tc) {
		c := newCluster(t)
		c.add(tc.objects...)
		require.Empty(t, c.attachments())
		require.Equal(t, []ProblemKind{tc.kind}, c.kinds())
		require.Empty(t, c.told)
		c.MarkSynced()
		require.Len(t, c.told, 1, "told once the start is over")
		require.NoError(t, c.Resync(t.Context()))
		require.Len(t, c.told, 1, "and not again")
		c.remove(noSource)
		c.requireEmpty(t)
	})
}

func TestVolumeAttachmentsThatAreNotOursLeaveNoTrace(t *testing.T) {
	pv := makePV("v", "data")
	pv.Spec.PersistentVolumeSource = v1.PersistentVolumeSource{NFS: &v1.NFSVolumeSource{}}
	c := newCluster(t)
	c.add(makeNode("a"), pv, makeAttachment("va-1", "v", "a"))
	require.Empty(t, c.attachments())
	require.Empty(t, c.Problems())
}

func TestAVolumeAttachmentMadeAnewForAnotherNodeIsAnother(t *testing.T) {
	c := newCluster(t)
	c.add(makePV("v", "data"), makeAttachment("va-1", "v", "a"))
	c.Attachments().OnUpdate(makeAttachment("va-1", "v", "a"), makeAttachment("va-1", "v", "b"))
	require.Equal(t, []string{"uncertain v@a  v", "uncertain v@b  v"}, c.attachments(), "the first one is not proven to be detached")
	c.remove(makeAttachment("va-1", "v", "b"))
	require.Zero(t, c.Sizes())
}

// S2 with S1: the pair is the pod's, on its node, and attached again before it is reported.
func TestAPodFindsItsUncertainAttachment(t *testing.T) {
	c := newCluster(t)
	c.add(makePV("v", "data"), makeAttachment("va-1", "v", "a"), makeNode("a"), makeClaim("data", "v"), makePod("p1", "web-0", "a", "data"))
	require.Equal(t, []string{"p1 v@a"}, c.wishes())
	require.Equal(t, cache.Uncertain, c.actual.GetAttachState(unique("v"), "a"))
	require.Empty(t, c.actual.Report("a").Volumes)
	require.Equal(t, []types.NodeName{"a"}, c.actual.GetNodesForAttachedVolume(unique("v")))
}
