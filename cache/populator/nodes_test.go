package populator

import (
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/stateofworld/stateofworld/cache"
)

func TestNodesAreManagedByAnnotationWhateverItsValue(t *testing.T) {
	c := newCluster(t)
	falseValue, without := makeNode("b"), makeNode("c", "attached v", "in-use v")
	falseValue.Annotations[ControllerManagedAttachAnnotation] = "false"
	without.Annotations = nil
	c.add(makeNode("a"), falseValue, without)
	require.True(t, c.desired.NodeExists("a"))
	require.True(t, c.desired.NodeExists("b"), "Kubernetes does not look at the value")
	require.False(t, c.desired.NodeExists("c"))
	require.Equal(t, cache.NodeFacts{}, c.actual.GetNodeFacts("c"))
	require.Empty(t, c.attachments())
	require.Equal(t, []types.NodeName{"a", "b"}, c.added)

	all := newCluster(t, func(config *Config) { config.ManagesNode = AllNodes })
	all.add(without)
	require.True(t, all.desired.NodeExists("c"))
	require.Len(t, all.attachments(), 1)
}

func TestPodsOnNodesThatAreNotManagedAreNoneOfOurs(t *testing.T) {
	c := newCluster(t)
	c.MarkSynced()
	node := makeNode("a")
	node.Annotations = nil
	c.add(node, makeClaim("data", "v"), makePV("v", "data"), makePod("p1", "web-0", "a", "data"), makePod("p2", "web-1", "a", "missing"))
	require.Empty(t, c.wishes())
	require.Empty(t, c.Problems())
	require.Empty(t, c.told)

	c.Nodes().OnUpdate(node, makeNode("a"))
	require.Equal(t, []string{"p1 v@a"}, c.wishes(), "managed from now on")
	require.Equal(t, []types.NodeName{"a"}, c.added)
	node.Status.Conditions[0].Status = v1.ConditionFalse
	c.Nodes().OnUpdate(makeNode("a"), node)
	require.True(t, c.desired.NodeExists("a"), "once managed, it stays so")
	require.Equal(t, v1.ConditionFalse, c.actual.GetNodeFacts("a").Ready)
}

func TestHealthComesFromReadyConditionAndOutOfServiceTaint(t *testing.T) {
	type tc struct {
		change func(*v1.Node)
		want   cache.NodeHealth
	}
	subtests(t, map[string]tc{
		"ready":     {func(*v1.Node) {}, cache.NodeHealth{Ready: v1.ConditionTrue}},
		"not ready": {func(n *v1.Node) { n.Status.Conditions[0].Status = v1.ConditionFalse }, cache.NodeHealth{Ready: v1.ConditionFalse}},
		"unknown":   {func(n *v1.Node) { n.Status.Conditions[0].Status = v1.ConditionUnknown }, cache.NodeHealth{Ready: v1.ConditionUnknown}},
		"no condition": {func(n *v1.Node) {
			n.Status.Conditions = []v1.NodeCondition{{Type: v1.NodeDiskPressure, Status: v1.ConditionTrue}}
		}, cache.NodeHealth{}},
		"other taint": {func(n *v1.Node) { n.Spec.Taints = []v1.Taint{{Key: v1.TaintNodeUnreachable}} }, cache.NodeHealth{Ready: v1.ConditionTrue}},
		"out of service": {func(n *v1.Node) {
			n.Spec.Taints = []v1.Taint{{Key: v1.TaintNodeOutOfService, Value: "x", Effect: v1.TaintEffectPreferNoSchedule}}
		}, cache.NodeHealth{Ready: v1.ConditionTrue, OutOfService: true}},
	}, func(t *testing.T, tc tc) {
		for _, fresh := range []bool{true, false} {
			c := newCluster(t)
			node := makeNode("a")
			if !fresh {
				c.add(node)
				node = node.DeepCopy()
			}
			tc.change(node)
			c.Nodes().OnUpdate(nil, node)
			require.Equal(t, tc.want, c.actual.GetNodeFacts("a").NodeHealth)
		}
	})
}

// U5, kubernetes/kubernetes#117042: what the node says, also before there is an attachment.
func TestVolumesInUseAreWhatTheNodeSaidLast(t *testing.T) {
	c := newCluster(t)
	c.add(makeNode("a", "in-use v", "attached w"))
	inUse := func(pv string) cache.InUse {
		a, _ := c.actual.GetAttachedVolume(unique(pv), "a")
		return a.InUse
	}
	require.NoError(t, c.actual.MarkVolumeAsUncertain(unique("v"), nil, "a"))
	require.Equal(t, cache.Mounted, inUse("v"))
	require.Equal(t, cache.NotInUse, inUse("w"))
	c.Nodes().OnUpdate(makeNode("a"), makeNode("a", "in-use w"))
	require.Equal(t, cache.NotInUse, inUse("v"))
	require.Equal(t, cache.Mounted, inUse("w"))
}

// N2, kubernetes/kubernetes#31014
func TestDeletingANodeTakesEffectThoughPodsAreOnIt(t *testing.T) {
	c := newCluster(t)
	c.MarkSynced()
	pod := makePod("p1", "web-0", "a", "data")
	c.add(makeNode("a", "attached v"), makeClaim("data", "v"), makePV("v", "data"), pod)
	c.remove(makeNode("a"))
	require.False(t, c.desired.NodeExists("a"))
	require.True(t, c.actual.GetNodeFacts("a").Deleted)
	require.Equal(t, []string{"p1 v@a"}, c.wishes())
	require.Empty(t, c.told)

	c.Pods().OnUpdate(pod, pod.DeepCopy())
	require.Equal(t, []string{"p1 v@a"}, c.wishes(), "an event on a deleted node takes nothing away")

	c.add(makeNode("a"))
	require.True(t, c.desired.NodeExists("a"))
	require.False(t, c.actual.GetNodeFacts("a").Deleted)
	require.Zero(t, c.Sizes().ParkedPods)
	require.Equal(t, []types.NodeName{"a", "a"}, c.added)

	c.actual.MarkVolumeAsDetached(unique("v"), "a")
	c.remove(makeNode("a"), pod)
	c.requireEmpty(t)
	require.Zero(t, c.actual.Sizes())
}

func TestALateDeletionOfAnOlderNodeObjectIsIgnored(t *testing.T) {
	c := newCluster(t)
	newer := makeNode("a")
	newer.UID = "second"
	c.add(makeNode("a"))
	c.Nodes().OnUpdate(makeNode("a"), newer)
	c.remove(makeNode("a"))
	require.True(t, c.desired.NodeExists("a"))
	c.remove(makeNode("never-seen"))
}

// N1, kubernetes/kubernetes#50721: a re-created node needs its list again, also when
// deletion and creation arrive as one update.
func TestNodeAddedIsToldOfEachNodeObjectOnce(t *testing.T) {
	c := newCluster(t)
	newer := makeNode("a")
	newer.UID = "second"
	c.add(makeNode("a"))
	c.Nodes().OnUpdate(makeNode("a"), makeNode("a"))
	require.Equal(t, []types.NodeName{"a"}, c.added)
	c.Nodes().OnUpdate(makeNode("a"), newer)
	require.Equal(t, []types.NodeName{"a", "a"}, c.added)
	require.True(t, c.desired.NodeExists("a"))
}

func TestANodeRecreatedWithoutBeingManagedIsGone(t *testing.T) {
	c := newCluster(t)
	newer := makeNode("a")
	newer.UID, newer.Annotations = "second", nil
	c.add(makeNode("a", "in-use v"))
	c.Nodes().OnUpdate(makeNode("a"), newer)
	require.False(t, c.desired.NodeExists("a"))
	require.Zero(t, c.actual.Sizes())
}

// S1, kubernetes/kubernetes#34242
func TestTheNodesStatusIsSeededByNameAtFirstSightOnly(t *testing.T) {
	c := newCluster(t)
	c.add(makeNode("a", "attached v", "in-use v"))
	require.Equal(t, []string{"attached v@a /dev/v"}, c.attachments())
	a, _ := c.actual.GetAttachedVolume(unique("v"), "a")
	require.True(t, a.Reported)
	require.Equal(t, cache.Mounted, a.InUse)

	c.actual.MarkVolumeAsDetached(unique("v"), "a")
	c.Nodes().OnUpdate(makeNode("a"), makeNode("a", "attached v", "attached w")) // our own writes come back
	require.Empty(t, c.attachments())
}

func TestSeedingLeavesWhatIsKnownAlone(t *testing.T) {
	c := newCluster(t)
	require.NoError(t, c.actual.MarkVolumeAsUncertain(unique("v"), nil, "a"))
	require.NoError(t, c.actual.MarkVolumeAsAttached(unique("w"), nil, "a", "/dev/real"))
	c.add(makeNode("a", "attached v", "attached w"))
	require.Equal(t, []string{"attached w@a /dev/real", "uncertain v@a"}, c.attachments())
}

// S1, kubernetes/kubernetes#34242: "With pod on A → spec filled."
func TestASeededAttachmentGetsItsSpecFromThePodThatUsesIt(t *testing.T) {
	for name, order := range map[string]func(c *cluster, node, pod any){
		"node first": func(c *cluster, node, pod any) { c.add(node, pod) },
		"pod first":  func(c *cluster, node, pod any) { c.add(pod, node) },
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t)
			c.add(makeClaim("data", "v"), makePV("v", "data"))
			order(c, makeNode("a", "attached v"), makePod("p1", "web-0", "a", "data:ro"))
			require.Equal(t, []string{"attached v@a /dev/v v"}, c.attachments())
			a, _ := c.actual.GetAttachedVolume(unique("v"), "a")
			require.False(t, a.VolumeSpec.ReadOnly, "an attachment is not of one use")
		})
	}
	c := newCluster(t)
	c.MarkSynced() // from here on the reconciler owns the pair
	c.add(makeNode("a", "attached v"), makeClaim("data", "v"), makePV("v", "data"), makePod("p1", "web-0", "a", "data"))
	require.Equal(t, []string{"attached v@a /dev/v"}, c.attachments())
}

func TestAnEmptyNameInANodesStatusIsToldAndHarmless(t *testing.T) {
	c := newCluster(t)
	node := makeNode("a", "attached v")
	node.Status.VolumesAttached = append(node.Status.VolumesAttached, v1.AttachedVolume{})
	c.add(node)
	require.Equal(t, []string{"attached v@a /dev/v"}, c.attachments())
	require.Len(t, c.told, 1)
	require.Equal(t, WorldRefused, c.told[0].Kind)
	require.ErrorIs(t, c.told[0].Err, cache.ErrInvalid)
}
