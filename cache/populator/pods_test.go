package populator

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/stateofworld/stateofworld/cache"
)

func TestPodIsWishedThroughClaimAndVolume(t *testing.T) {
	c := newCluster(t)
	c.add(makeNode("a"), makeClaim("data", "v"), makePV("v", "data"), makePod("p1", "web-0", "a", "config", "data"))
	require.Equal(t, []string{"p1 v@a"}, c.wishes())
	require.Empty(t, c.Problems())
	wish, ok := c.desired.GetWish(unique("v"), "a")
	require.True(t, ok)
	require.True(t, wish.Exclusive)
	require.Same(t, c.volumes["v"], wish.VolumeSpec.PersistentVolume)
	require.False(t, wish.VolumeSpec.ReadOnly)
}

func TestReadOnlyIsThatOfThePodsUse(t *testing.T) {
	c := newCluster(t)
	c.add(makeNode("a"), makeClaim("data", "v"), makePV("v", "data"), makePod("p1", "web-0", "a", "data:ro"))
	wish, _ := c.desired.GetWish(unique("v"), "a")
	require.True(t, wish.VolumeSpec.ReadOnly)
}

func TestInlineVolumesOfAPluginAreWishedAndOthersAreNoProblem(t *testing.T) {
	c := newCluster(t)
	pod := makePod("p1", "web-0", "a", "inline/disk-7", "config")
	pod.Spec.Volumes = append(pod.Spec.Volumes, v1.Volume{Name: "csi", VolumeSource: v1.VolumeSource{CSI: &v1.CSIVolumeSource{Driver: driver}}})
	c.add(makeNode("a"), pod)
	require.Equal(t, []string{"p1 example.com/gce/disk-7@a"}, c.wishes())
	require.Empty(t, c.Problems())
}

func TestVolumesThatAreNotOursAreSkippedAndNotUnresolved(t *testing.T) {
	files := makePV("v", "data") // of a driver that needs no attach
	files.Spec.CSI.Driver = "files.example.com"
	nfs := makePV("v", "data") // of a type without a plugin
	nfs.Spec.PersistentVolumeSource = v1.PersistentVolumeSource{NFS: &v1.NFSVolumeSource{}}
	subtests(t, map[string]*v1.PersistentVolume{"not attachable": files, "no plugin": nfs}, func(t *testing.T, pv *v1.PersistentVolume) {
		c := newCluster(t)
		c.add(makeNode("a"), makeClaim("data", "v"), pv, makePod("p1", "web-0", "a", "data"))
		require.Empty(t, c.wishes())
		require.Empty(t, c.Problems())
		require.Zero(t, c.desired.NodeUnresolved("a"))
	})
}

func TestEphemeralClaimMustBelongToThePod(t *testing.T) {
	c := newCluster(t)
	pod := makePod("p1", "web-0", "a", "ephemeral/scratch")
	claim := makeClaim("web-0-scratch", "v")
	c.add(makeNode("a"), claim, makePV("v", "web-0-scratch"), pod)
	require.Empty(t, c.wishes())
	require.Equal(t, []ProblemKind{ClaimNotOwned}, c.kinds())
	require.Equal(t, 1, c.desired.NodeUnresolved("a"))

	for _, owner := range []metav1.OwnerReference{
		{Kind: "Pod", Name: "web-0", UID: "p1"},                        // owned, but not by a controller
		{Kind: "Pod", Name: "web-0", UID: "p0", Controller: new(true)}, // of the pod's predecessor
	} {
		other := claim.DeepCopy()
		other.OwnerReferences = []metav1.OwnerReference{owner}
		c.add(other)
		require.Equal(t, []ProblemKind{ClaimNotOwned}, c.kinds())
	}

	owned := claim.DeepCopy()
	owned.OwnerReferences = []metav1.OwnerReference{{Kind: "Pod", Name: "web-0", UID: "p1", Controller: new(true)}}
	c.add(owned)
	require.Equal(t, []string{"p1 v@a"}, c.wishes())
	require.Empty(t, c.Problems())
	require.Zero(t, c.desired.NodeUnresolved("a"))
}

// S4, kubernetes/kubernetes#120741: "could not resolve" is not "not wanted".
func TestWhatCannotBeResolvedFailsClosedAndIsRetried(t *testing.T) {
	unbound := makeClaim("data", "")
	unbound.Status.Phase = v1.ClaimPending
	half := makeClaim("data", "v")
	half.Status.Phase = v1.ClaimPending
	lost := makeClaim("data", "v")
	lost.Status.Phase = v1.ClaimLost
	unclaimed := makePV("v", "data")
	unclaimed.Spec.ClaimRef = nil
	foreign := makePV("v", "other")
	type tc struct {
		objects []any
		kind    ProblemKind
		mend    func(c *cluster)
	}
	addClaim := func(c *cluster) { c.add(makeClaim("data", "v")) }
	addVolume := func(c *cluster) { c.add(makePV("v", "data")) }
	subtests(t, map[string]tc{
		"no claim":                       {[]any{makePV("v", "data")}, ClaimMissing, addClaim},
		"claim not bound":                {[]any{makePV("v", "data"), unbound}, ClaimUnbound, addClaim},
		"claim names a volume, no phase": {[]any{makePV("v", "data"), half}, ClaimUnbound, addClaim},
		"claim lost":                     {[]any{makePV("v", "data"), lost}, ClaimLost, addClaim},
		"no volume":                      {[]any{makeClaim("data", "v")}, VolumeMissing, addVolume},
		"volume without claim":           {[]any{makeClaim("data", "v"), unclaimed}, VolumeNotClaimed, addVolume},
		"volume of another claim":        {[]any{makeClaim("data", "v"), foreign}, VolumeNotClaimed, addVolume},
	}, func(t *testing.T, tc tc) {
		c := newCluster(t)
		c.add(makeNode("a"), makeClaim("logs", "w"), makePV("w", "logs"))
		c.add(tc.objects...)
		c.add(makePod("p1", "web-0", "a", "logs", "data"))
		require.Equal(t, []string{"p1 w@a"}, c.wishes(), "what is resolved is wished")
		require.Equal(t, []cache.UniquePodName{"p1"}, c.desired.UnresolvedPods("a"))
		problems := c.Problems()
		require.Len(t, problems, 1)
		require.Equal(t, tc.kind, problems[0].Kind)
		require.Equal(t, "vol-1", problems[0].Volume)
		require.Equal(t, "data", problems[0].Claim)
		require.Contains(t, problems[0].String(), `pod "ns/web-0", volume "vol-1", node "a": `+string(tc.kind))

		tc.mend(c)
		require.Equal(t, []string{"p1 v@a", "p1 w@a"}, c.wishes())
		require.Empty(t, c.desired.UnresolvedPods("a"))
		require.Empty(t, c.Problems())
		require.Zero(t, c.Sizes().UnresolvedPods)
	})
}

func TestAListerThatFailsIsAskedAgainByThePodAndByResync(t *testing.T) {
	for name, again := range map[string]func(c *cluster, pod *v1.Pod){
		"pod changes": func(c *cluster, pod *v1.Pod) { c.Pods().OnUpdate(pod, pod.DeepCopy()) },
		"resync":      func(c *cluster, _ *v1.Pod) { require.NoError(t, c.Resync(t.Context())) },
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t)
			c.lookupErr = errLister
			pod := makePod("p1", "web-0", "a", "data")
			c.add(makeNode("a"), makeClaim("data", "v"), makePV("v", "data"), pod)
			require.Equal(t, []ProblemKind{LookupFailed}, c.kinds())
			require.ErrorIs(t, c.Problems()[0].Err, errLister)
			c.lookupErr = nil
			again(c, pod)
			require.Equal(t, []string{"p1 v@a"}, c.wishes())
			require.Empty(t, c.Problems())
		})
	}
}

func TestAPluginThatFailsIsUnresolved(t *testing.T) {
	plugin := &localPlugin{err: errLister}
	c := newCluster(t, func(config *Config) { config.Plugins = cache.NewVolumePluginMgr(plugin) })
	c.add(makeNode("a"), makePod("p1", "web-0", "a", "inline/disk"))
	require.Equal(t, []ProblemKind{PluginFailed}, c.kinds())
	require.Equal(t, 1, c.desired.NodeUnresolved("a"))
	plugin.err = nil
	require.NoError(t, c.Resync(t.Context()))
	require.Empty(t, c.Problems())
	require.Len(t, c.wishes(), 1)
}

// A world with other plugins than ours stands for a plugin that changes its mind.
func TestAWishThatTheWorldRefusesIsUnresolved(t *testing.T) {
	c := newCluster(t)
	c.config.Plugins = cache.NewVolumePluginMgr(&localPlugin{}, cache.CSIPlugin{}, otherPlugin{})
	old := makePod("p0", "web-0", "a", "data")
	c.add(makeNode("a"), makeClaim("data", "v"), makePV("v", "data"), old)
	c.Pods().OnUpdate(old, makePod("p1", "web-0", "a", "data", "config"))
	require.Empty(t, c.wishes(), "the predecessor is gone all the same")
	require.Equal(t, []cache.UniquePodName{"p1"}, c.desired.UnresolvedPods("a"))
	require.Equal(t, []ProblemKind{WorldRefused}, c.kinds())
}

type otherPlugin struct{ localPlugin }

func (otherPlugin) GetPluginName() string { return "example.com/config" }
func (otherPlugin) CanSupport(spec *cache.VolumeSpec) bool {
	return spec.Volume != nil && spec.Volume.ConfigMap != nil
}
func (otherPlugin) GetVolumeName(*cache.VolumeSpec) (string, error) { return "config", nil }
func (otherPlugin) CanAttach(*cache.VolumeSpec) (bool, error)       { return true, nil }

// S4, kubernetes/kubernetes#120741
func TestAClaimOrVolumeThatGoesUnderAPodTakesNoWishAway(t *testing.T) {
	for name, breaks := range map[string]func(c *cluster){
		"claim deleted":  func(c *cluster) { c.remove(makeClaim("data", "v")) },
		"volume deleted": func(c *cluster) { c.remove(makePV("v", "data")) },
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t)
			c.add(makeNode("a"), makeClaim("data", "v"), makePV("v", "data"), makePod("p1", "web-0", "a", "data"))
			breaks(c)
			require.Equal(t, []string{"p1 v@a"}, c.wishes())
			require.Equal(t, 1, c.desired.NodeUnresolved("a"))
		})
	}
}

func TestTerminatedOrUnscheduledPodsWishNothing(t *testing.T) {
	now := metav1.Now()
	waiting := []v1.ContainerStatus{{State: v1.ContainerState{Waiting: &v1.ContainerStateWaiting{}}}, {State: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{}}}}
	running := []v1.ContainerStatus{{State: v1.ContainerState{Running: &v1.ContainerStateRunning{}}}}
	type tc struct {
		change func(*v1.Pod)
		wished bool
	}
	subtests(t, map[string]tc{
		"succeeded":                     {func(p *v1.Pod) { p.Status.Phase = v1.PodSucceeded }, false},
		"failed":                        {func(p *v1.Pod) { p.Status.Phase = v1.PodFailed }, false},
		"not scheduled":                 {func(p *v1.Pod) { p.Spec.NodeName = "" }, false},
		"being deleted, nothing runs":   {func(p *v1.Pod) { p.DeletionTimestamp = &now; p.Status.ContainerStatuses = waiting }, false},
		"being deleted, never ran":      {func(p *v1.Pod) { p.DeletionTimestamp = &now }, false},
		"being deleted, runs":           {func(p *v1.Pod) { p.DeletionTimestamp = &now; p.Status.ContainerStatuses = running }, true},
		"being deleted, init runs":      {func(p *v1.Pod) { p.DeletionTimestamp = &now; p.Status.InitContainerStatuses = running }, true},
		"being deleted, debugging runs": {func(p *v1.Pod) { p.DeletionTimestamp = &now; p.Status.EphemeralContainerStatuses = running }, true},
		"nothing runs, not deleted":     {func(p *v1.Pod) { p.Status.ContainerStatuses = waiting }, true},
		"pending":                       {func(p *v1.Pod) { p.Status.Phase = v1.PodPending }, true},
	}, func(t *testing.T, tc tc) {
		for _, fresh := range []bool{true, false} {
			c := newCluster(t)
			c.add(makeNode("a"), makeClaim("data", "v"), makePV("v", "data"))
			before := makePod("p1", "web-0", "a", "data")
			pod := before.DeepCopy()
			tc.change(pod)
			if fresh {
				c.add(pod)
			} else {
				c.add(before)
				c.Pods().OnUpdate(before, pod)
			}
			if tc.wished {
				require.Equal(t, []string{"p1 v@a"}, c.wishes())
			} else {
				require.Empty(t, c.wishes())
				require.Zero(t, c.Sizes().Pods)
			}
		}
	})
}

// S1, kubernetes/kubernetes#34242
func TestPodsOnUnknownNodesWaitForTheirNode(t *testing.T) {
	c := newCluster(t)
	c.add(makeClaim("data", "v"), makePV("v", "data"), makePod("p1", "web-0", "a", "data"))
	require.Empty(t, c.wishes())
	require.Equal(t, 1, c.Sizes().ParkedPods)
	require.Equal(t, []ProblemKind{NodeUnknown}, c.kinds())
	c.add(makeNode("a"))
	require.Equal(t, []string{"p1 v@a"}, c.wishes())
	require.Zero(t, c.Sizes().ParkedPods)
	require.Empty(t, c.Problems())
}

func TestAParkedPodThatGoesIsForgotten(t *testing.T) {
	c := newCluster(t)
	pod := makePod("p1", "web-0", "a", "data")
	c.add(makeClaim("data", "v"), makePV("v", "data"), pod)
	c.remove(pod)
	c.requireEmpty(t)
	c.add(makeNode("a"))
	require.Empty(t, c.wishes())
}

// S4 and S1 together: the mark is there from the beginning, the wish with the node.
func TestAnUnresolvedPodCountsForItsNodeBeforeTheNodeIsKnown(t *testing.T) {
	c := newCluster(t)
	c.add(makeClaim("logs", "w"), makePV("w", "logs"), makePod("p1", "web-0", "a", "logs", "data"))
	require.Equal(t, 1, c.desired.NodeUnresolved("a"))
	c.add(makeNode("a"))
	require.Equal(t, []string{"p1 w@a"}, c.wishes())
	require.Equal(t, 1, c.desired.NodeUnresolved("a"))
	c.add(makeClaim("data", "v"), makePV("v", "data"))
	require.Zero(t, c.desired.NodeUnresolved("a"))
	require.Equal(t, []string{"p1 v@a", "p1 w@a"}, c.wishes())
}

// R4, kubernetes/kubernetes#111327
func TestAPodRecreatedElsewhereInOneUpdateMovesItsWish(t *testing.T) {
	c := newCluster(t)
	old := makePod("p1", "web-0", "a", "data")
	c.add(makeNode("a"), makeNode("b"), makeClaim("data", "v"), makePV("v", "data"), old)
	c.Pods().OnUpdate(old, makePod("p2", "web-0", "b", "data"))
	require.Equal(t, []string{"p2 v@b"}, c.wishes())
	require.Equal(t, 1, c.Sizes().Pods)
}

// R4, kubernetes/kubernetes#111327: no reader sees a moment without a user.
func TestAPodRecreatedOnItsNodeKeepsTheWishThroughout(t *testing.T) {
	c := newCluster(t)
	pod := makePod("p-0", "web-0", "a", "data")
	c.add(makeNode("a"), makeClaim("data", "v"), makePV("v", "data"), pod)
	stop := make(chan struct{})
	var reader sync.WaitGroup
	missed := 0
	reader.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				if !c.desired.VolumeExists(unique("v"), "a") {
					missed++
				}
			}
		}
	})
	for i := range 2000 {
		next := makePod("p-"+string(rune('a'+i%2)), "web-0", "a", "data")
		c.Pods().OnUpdate(pod, next)
		pod = next
	}
	close(stop)
	reader.Wait()
	require.Zero(t, missed)
	require.Len(t, c.wishes(), 1)
}

func TestASuccessorThatIsOnlyAddedTakesItsPredecessorsPlace(t *testing.T) {
	c := newCluster(t)
	c.add(makeNode("a"), makeNode("b"), makeClaim("data", "v"), makePV("v", "data"))
	c.add(makePod("p1", "web-0", "a", "data"), makePod("p2", "web-0", "b", "data"))
	require.Equal(t, []string{"p2 v@b"}, c.wishes())
	c.remove(makePod("p1", "web-0", "a", "data")) // late
	require.Equal(t, []string{"p2 v@b"}, c.wishes())
	c.add(makePod("p3", "web-0", "a", "data"))
	require.Equal(t, []string{"p3 v@a"}, c.wishes())
}

func TestAPredecessorGoesWhateverBecomesOfItsSuccessor(t *testing.T) {
	done := makePod("p2", "web-0", "b", "data")
	done.Status.Phase = v1.PodSucceeded
	type tc struct {
		next       *v1.Pod
		unresolved types.NodeName
	}
	subtests(t, map[string]tc{
		"terminated":      {done, ""},
		"not scheduled":   {makePod("p2", "web-0", "", "data"), ""},
		"unknown node":    {makePod("p2", "web-0", "nowhere", "data"), ""},
		"without volumes": {makePod("p2", "web-0", "b", "config"), ""},
		"unresolved":      {makePod("p2", "web-0", "b", "unknown"), "b"},
	}, func(t *testing.T, tc tc) {
		c := newCluster(t)
		old := makePod("p1", "web-0", "a", "data", "unknown-too")
		c.add(makeNode("a"), makeNode("b"), makeClaim("data", "v"), makePV("v", "data"), old)
		require.Equal(t, 1, c.desired.NodeUnresolved("a"))
		c.Pods().OnUpdate(old, tc.next)
		require.Empty(t, c.wishes())
		require.Zero(t, c.desired.NodeUnresolved("a"))
		if tc.unresolved != "" {
			require.Equal(t, 1, c.desired.NodeUnresolved(tc.unresolved))
		}
		c.remove(tc.next, makeNode("a"), makeNode("b"))
		c.requireEmpty(t)
	})
}

func TestDeletingNeedsNoLookUp(t *testing.T) {
	c := newCluster(t)
	pod := makePod("p1", "web-0", "a", "data")
	c.add(makeNode("a"), makeClaim("data", "v"), makePV("v", "data"), pod)
	c.lookupErr = errLister
	c.remove(pod)
	require.Empty(t, c.wishes())
	require.Zero(t, c.Sizes().Claims)
	require.Zero(t, c.Sizes().Volumes)
}

func TestPodsWithoutVolumesOfOursTakeNoMemory(t *testing.T) {
	c := newCluster(t)
	c.add(makePod("p1", "web-0", "nowhere", "config"), makePod("p2", "web-1", "nowhere"))
	require.Zero(t, c.Sizes())
}

func TestPodsWithoutUIDAreTheirName(t *testing.T) {
	c := newCluster(t)
	pod := makePod("", "web-0", "a", "data")
	c.add(makeNode("a"), makeClaim("data", "v"), makePV("v", "data"), pod)
	require.Equal(t, []string{"ns/web-0 v@a"}, c.wishes())
	c.remove(pod)
	require.Empty(t, c.wishes())
}

func TestPodsThatShareAClaimAreAllLookedAtAgain(t *testing.T) {
	c := newCluster(t)
	older := makePod("p9", "web-0", "a", "data")
	younger := makePod("p1", "web-1", "b", "data")
	younger.CreationTimestamp = metav1.NewTime(time.Unix(1000, 0))
	older.CreationTimestamp = metav1.NewTime(time.Unix(500, 0))
	c.add(makeNode("a"), makeNode("b"), younger, older, makePV("v", "data"))
	require.Empty(t, c.wishes())
	c.add(makeClaim("data", "v"))
	require.Equal(t, []string{"p1 v@b", "p9 v@a"}, c.wishes())
	// M3: the oldest wish wins, so the older pod has to be the first.
	wishes := c.desired.AppendWishes(nil, unique("v"))
	require.Equal(t, types.NodeName("a"), wishes[0].NodeName)
	require.Equal(t, types.NodeName("b"), wishes[1].NodeName)
}

func TestAClaimThatChangesItsVolumeChangesTheWish(t *testing.T) {
	c := newCluster(t)
	c.add(makeNode("a"), makeClaim("data", "v"), makePV("v", "data"), makePV("w", "data"), makePod("p1", "web-0", "a", "data"))
	c.add(makeClaim("data", "w"))
	require.Equal(t, []string{"p1 w@a"}, c.wishes())
	require.Equal(t, 1, c.Sizes().Volumes)
	c.remove(makePV("v", "data")) // concerns nobody
	require.Empty(t, c.Problems())
}

func TestResyncEndsWithItsContext(t *testing.T) {
	c := newCluster(t)
	c.add(makePod("p1", "web-0", "a", "data"))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, c.Resync(ctx), context.Canceled)
}
