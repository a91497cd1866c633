package populator

import (
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/stateofworld/stateofworld/cache"
)

// finalState looks like client-go's DeletedFinalStateUnknown.
type finalState struct {
	Key string
	Obj any
}

// eventHandler has the methods of client-go's ResourceEventHandler.
type eventHandler interface {
	OnAdd(obj any, isInInitialList bool)
	OnUpdate(oldObj, newObj any)
	OnDelete(obj any)
}

var _ eventHandler = Handler{}

func TestTombstonesDelete(t *testing.T) {
	type tc struct{ pod, node, claim, volume, attachment any }
	pod, node, claim := makePod("p1", "web-0", "a", "data"), makeNode("a"), makeClaim("data", "v")
	pv, attachment := makePV("v", "data"), makeAttachment("va-1", "missing", "a")
	subtests(t, map[string]tc{
		"with the last object": {
			finalState{"ns/web-0", pod}, finalState{"a", node}, finalState{"ns/data", claim}, finalState{"v", pv}, finalState{"va-1", attachment},
		},
		"by pointer": {
			&finalState{"ns/web-0", pod}, &finalState{"a", node}, &finalState{"ns/data", claim}, &finalState{"v", pv}, &finalState{"va-1", attachment},
		},
		"with the key only": {
			finalState{Key: "ns/web-0"}, finalState{Key: "a"}, finalState{Key: "ns/data"}, finalState{Key: "v"}, finalState{Key: "va-1"},
		},
		"with a nil object": {
			finalState{"ns/web-0", (*v1.Pod)(nil)}, finalState{"a", (*v1.Node)(nil)}, finalState{Key: "ns/data"}, finalState{Key: "v"}, finalState{Key: "va-1"},
		},
	}, func(t *testing.T, tc tc) {
		c := newCluster(t)
		c.add(node, claim, pv, pod, attachment)
		require.Equal(t, []string{"p1 v@a"}, c.wishes())

		delete(c.volumes, "v")
		c.Volumes().OnDelete(tc.volume)
		require.Contains(t, c.kinds(), VolumeMissing)
		delete(c.claims, nameOf(claim))
		c.Claims().OnDelete(tc.claim)
		require.Contains(t, c.kinds(), ClaimMissing)
		c.Pods().OnDelete(tc.pod)
		c.Nodes().OnDelete(tc.node)
		c.Attachments().OnDelete(tc.attachment)
		c.requireEmpty(t)
		require.Empty(t, c.told)
	})
}

func TestATombstoneOfAnOlderPodLeavesItsSuccessorAlone(t *testing.T) {
	c := newCluster(t)
	c.add(makeNode("a"), makeClaim("data", "v"), makePV("v", "data"), makePod("p2", "web-0", "a", "data"))
	c.Pods().OnDelete(finalState{"ns/web-0", makePod("p1", "web-0", "a", "data")})
	require.Equal(t, []string{"p2 v@a"}, c.wishes())
}

func TestObjectsOfAnotherTypeAreToldAndChangeNothing(t *testing.T) {
	c := newCluster(t)
	c.add(makeNode("a"), makeClaim("data", "v"), makePV("v", "data"), makePod("p1", "web-0", "a", "data"))
	before := c.Sizes()
	bad := []any{
		nil, 7, "x", []string{"not", "comparable"}, map[string]int{}, struct{ Key string }{"ns/web-0"}, struct{ Key, Obj string }{"ns/web-0", ""},
		(*finalState)(nil), finalState{}, finalState{Obj: []int{1}}, v1.Pod{}, (*v1.Pod)(nil), &v1.Service{},
	}
	handlers := []Handler{c.Pods(), c.Nodes(), c.Claims(), c.Volumes(), c.Attachments()}
	for _, obj := range bad {
		for _, h := range handlers {
			h.OnAdd(obj, true)
			h.OnUpdate(obj, obj)
			h.OnDelete(obj)
		}
	}
	require.Len(t, c.told, 3*len(bad)*len(handlers))
	require.Equal(t, UnexpectedObject, c.told[0].Kind)
	require.EqualError(t, c.told[0].Err, "the handler wants a *v1.Pod that is not nil, and got a <nil>")
	require.Equal(t, before, c.Sizes())
	require.Equal(t, []string{"p1 v@a"}, c.wishes())
	require.Empty(t, c.Problems())
}

func TestAPanicOfTheCallersFunctionBlocksNobody(t *testing.T) {
	c := newCluster(t, func(config *Config) { config.ManagesNode = func(*v1.Node) bool { panic("oops") } })
	require.Panics(t, func() { c.add(makeNode("a")) })
	require.Zero(t, c.Sizes().Pods) // does not hang
}

func TestNewNamesEverythingThatIsWrong(t *testing.T) {
	p, err := New(Config{MaxProblems: -1})
	require.Nil(t, p)
	require.ErrorIs(t, err, cache.ErrInvalid)
	for _, field := range []string{"Desired", "Actual", "Claims", "Volumes", "Plugins", "MaxProblems"} {
		require.ErrorContains(t, err, field)
	}
	good := newCluster(t).config
	good.Plugins = cache.NewVolumePluginMgr(nil)
	_, err = New(good)
	require.ErrorIs(t, err, cache.ErrInvalid)

	good = newCluster(t).config
	good.OnProblem, good.NodeAdded, good.Clock, good.ManagesNode, good.MaxProblems = nil, nil, nil, nil, 0
	p, err = New(good)
	require.NoError(t, err)
	p.Pods().OnAdd(7, false) // to be told to nobody
	p.Nodes().OnAdd(makeNode("a"), false)
}
