package populator

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestProblemsAreToldWhenTheyComeUpOrChangeAndNotBeforeTheStartIsOver(t *testing.T) {
	c := newCluster(t)
	pod := makePod("p1", "web-0", "a", "data")
	c.add(makeNode("a"), pod)
	require.Empty(t, c.told)
	c.MarkSynced()
	require.Len(t, c.told, 1)
	require.Equal(t, ClaimMissing, c.told[0].Kind)

	c.Pods().OnUpdate(pod, pod.DeepCopy())
	require.Len(t, c.told, 1, "nothing new")
	c.add(makeClaim("data", ""))
	require.Len(t, c.told, 2)
	require.Equal(t, ClaimUnbound, c.told[1].Kind)
	c.add(makeClaim("data", "v"), makePV("v", "data"))
	require.Equal(t, VolumeMissing, c.told[2].Kind)
	c.remove(makePV("v", "data"))
	require.Len(t, c.told, 4, "it came up again")
}

func TestOnProblemMayAskThePopulator(t *testing.T) {
	var c *cluster
	listed := 0
	c = newCluster(t, func(config *Config) { config.OnProblem = func(Problem) { listed = len(c.Problems()) } })
	c.MarkSynced()
	c.add(makeNode("a"), makePod("p1", "web-0", "a", "data"))
	require.Equal(t, 1, listed)
}

func TestAProblemKeepsItsTime(t *testing.T) {
	c := newCluster(t)
	pod := makePod("p1", "web-0", "a", "data")
	c.add(makeNode("a"), pod, makePod("p2", "web-1", "nowhere", "logs"), makeClaim("logs", "w"), makePV("w", "logs"))
	began := c.clock.Now()
	c.clock.SetTime(began.Add(time.Hour))
	c.Pods().OnUpdate(pod, pod.DeepCopy())
	require.NoError(t, c.Resync(t.Context()))
	problems := c.Problems()
	require.Len(t, problems, 2)
	for _, p := range problems {
		require.Equal(t, began, p.Since, p.String())
	}
	require.Equal(t, `pod "ns/web-1", node "nowhere": NodeUnknown: node "nowhere" does not exist: the pod waits for it`, problems[1].String())
}

func TestTheListOfProblemsIsBoundedAndHasTheOldest(t *testing.T) {
	c := newCluster(t, func(config *Config) { config.MaxProblems = 3 })
	start := c.clock.Now()
	for i := range 10 {
		c.clock.SetTime(start.Add(time.Duration(10-i) * time.Second))
		c.add(makePod(fmt.Sprint("p", i), fmt.Sprint("web-", i), "a", "data"))
	}
	problems := c.Problems()
	require.Len(t, problems, 3)
	require.Equal(t, start.Add(time.Second), problems[0].Since)
	require.Equal(t, 10, c.Sizes().UnresolvedPods)
}
