package reconciler_test

import (
	"errors"
	"maps"
	"slices"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/stateofworld/stateofworld/cache"
	"github.com/stateofworld/stateofworld/executor"
	"github.com/stateofworld/stateofworld/fake"
)

// crash kills the controller. The next one begins with what the API has: the reports, the records of attachments, the
// objects, which it hears of one by one.
func (s *sim) crash(*rapid.T) {
	s.becomesLate(blockedCalls(s.w.Driver))
	s.w.Restart()
	s.w.Reconciler.Step(s.t.Context()) // it listens before there is anything to decide on
	s.fed, s.events, s.parked = false, [2][]func(){}, map[string]func(){}
	clear(s.calls)
	for _, n := range simNodes {
		for _, v := range s.w.Reports.Content(n) {
			require.NoError(s.t, s.w.Actual.MarkVolumeAsAttached(fake.VolumeName(v), nil, n, ""))
		}
	}
	for pair := range s.records {
		if s.w.Actual.GetAttachState(pair.Volume, pair.Node) == cache.Detached {
			require.NoError(s.t, s.w.Actual.MarkVolumeAsUncertain(pair.Volume, nil, pair.Node))
		}
	}
	for _, n := range simNodes {
		if s.nodes[n] != nil {
			s.nodeEvent(n)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.pods)) {
		s.podEvent(name)
	}
	s.markFed()
}

// usurp is a crash in which the old controller does not die: it believes that it leads, hears of nothing any more, and acts.
// Nothing in this library can keep it from that; what is left is that it asks live before it detaches, and that the back
// end refuses. Its world is one of its own, of which the calls and the writes are played on the real one.
func (s *sim) usurp(t *rapid.T) {
	if s.old != nil || !s.fed {
		t.Skip("there is an old controller already, or the present one has not begun")
	}
	old := newSimWorld(t)
	old.Clock.SetTime(s.w.Clock.Now())
	for _, n := range simNodes {
		if s.w.Desired.NodeExists(n) {
			old.Desired.AddNode(n)
		}
		old.Actual.SetNodeHealth(n, s.w.Actual.GetNodeFacts(n).NodeHealth)
	}
	for av := range s.w.Actual.AttachedVolumes() {
		if av.State == cache.Attached {
			require.NoError(t, old.Actual.MarkVolumeAsAttached(av.VolumeName, av.VolumeSpec, av.NodeName, ""))
			old.Driver.SetAttached(fake.Short(av.VolumeName), av.NodeName, true)
		} else {
			require.NoError(t, old.Actual.MarkVolumeAsUncertain(av.VolumeName, av.VolumeSpec, av.NodeName))
		}
	}
	for _, p := range s.w.Desired.GetPodToAdd() {
		if old.Desired.NodeExists(p.NodeName) {
			old.Pod(string(p.PodName), fake.Short(p.VolumeName), p.NodeName)
		}
	}
	s.old, s.usurped = old, true
	for _, n := range simNodes {
		s.tellLive(n)
	}
	old.Reconciler.MarkSynced()
	s.crash(t)
}

// oldLeaderWorks lets the old controller do what it believes to be right.
func (s *sim) oldLeaderWorks(t *rapid.T) {
	if s.old == nil {
		return
	}
	before := map[types.NodeName]int{}
	for _, n := range simNodes {
		before[n] = s.old.Reports.Count(n)
	}
	s.old.WaitIdle()
	for _, c := range blockedCalls(s.old.Driver) {
		if !s.oldCalls[c] {
			s.oldCalls[c] = true
			if c.op == fake.Attach {
				s.records[c.pair()] = true
			} else {
				s.checkDetach(t, c)
			}
		}
	}
	for _, n := range simNodes {
		if s.old.Reports.Count(n) == before[n] {
			continue
		}
		volumes := []v1.AttachedVolume{}
		for _, v := range s.old.Reports.Content(n) {
			volumes = append(volumes, v1.AttachedVolume{Name: fake.VolumeName(v)})
		}
		_ = s.w.Reports.Write(t.Context(), n, volumes) // it may be lost
	}
}

// answerOldLeader: the back end does what the old controller wants, where nothing is in the way.
func (s *sim) answerOldLeader(t *rapid.T) {
	if s.old == nil {
		t.Skip("no old controller")
	}
	c := pickCall(t, blockedCalls(s.old.Driver))
	s.lateWorkOn(c.volume)
	a := fake.Answer{Err: s.refusal(c)}
	others := slices.DeleteFunc(s.w.Driver.AttachedTo(c.volume), func(n types.NodeName) bool { return n == c.node })
	switch {
	case c.op == fake.Attach && c.volume != "shared" && len(others) > 0:
		for _, n := range simNodes { // its world learns what is
			s.old.Driver.SetAttached(c.volume, n, slices.Contains(others, n))
		}
		a.Err = &executor.DanglingError{Node: others[0], Err: errors.New("attached elsewhere")}
	case a.Err == nil:
		s.behindTheBack(c)
	}
	require.NoError(t, s.old.Driver.Release(t.Context(), c.op, c.volume, c.node, a))
	delete(s.oldCalls, c)
}

// oldLeaderStops: it has noticed.
func (s *sim) oldLeaderStops(t *rapid.T) {
	if s.old == nil {
		t.Skip("no old controller")
	}
	s.becomesLate(blockedCalls(s.old.Driver))
	require.NoError(t, s.old.Reconciler.Stop(t.Context()))
	s.old = nil
	clear(s.oldCalls)
}
