package reconciler_test

import (
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/stateofworld/stateofworld/cache"
	"github.com/stateofworld/stateofworld/fake"
	"github.com/stateofworld/stateofworld/reconciler"
)

// A simulated cluster that breaks: machines, kubelets, an API whose events come late, a storage back end that loses replies,
// a controller that is killed. One seed is one run; rapid draws the actions, shrinks a run that fails, and prints the flag
// that replays it. The number of runs is -rapid.checks, their length -rapid.steps.
func TestSimulatedCluster(t *testing.T) {
	oneAtATime(t)
	rapid.Check(t, func(t *rapid.T) { simulate(t) })
}

// oneAtATime lets goroutines run one after the other, each until it waits, so that what they do at one moment has an order.
func oneAtATime(t *testing.T) {
	before := runtime.GOMAXPROCS(1)
	t.Cleanup(func() { runtime.GOMAXPROCS(before) })
}

// simulate plays a cluster, and returns what happened in it.
func simulate(t *rapid.T) string {
	s := newSim(t)
	t.Repeat(map[string]func(*rapid.T){
		"":                   s.checkStep,
		"pod is created":     s.createPod,
		"pod goes":           s.deletePod,
		"pod moves":          s.movePod,
		"events arrive":      s.deliver,
		"kubelet works":      s.kubeletWorks,
		"kubelet works more": s.kubeletWorks,
		"machine hangs":      s.machineHangs,
		"machine dies":       s.machineDies,
		"machine recovers":   s.machineRecovers,
		"health is noticed":  s.healthIsNoticed,
		"node is deleted":    s.deleteNode,
		"node comes back":    s.recreateNode,
		"back end answers":   s.answer,
		"back end works":     s.answerWell,
		"API has trouble":    s.apiTrouble,
		"API recovers":       s.apiRecovers,
		"live check fails":   s.liveTrouble,
		"time passes":        s.timePasses,
		"controller dies":    s.crash,
		"all goes well":      s.goodTimes,
		"node events lag":    s.nodesLag,
		"is back unseen":     s.recoversUnseen,
		"late work is done":  s.lateWork,
		"attached by hand":   s.attachByHand,
		"attachment is lost": s.loseAttachment,
		"is verified":        s.verify,
		"is usurped":         s.usurp,
		"old leader's call":  s.answerOldLeader,
		"old leader stops":   s.oldLeaderStops,
	})
	s.finish(t)
	return s.log.String()
}

type sim struct {
	t *rapid.T
	w *fake.World

	// What the API has. The reports are in w.Reports.
	pods    map[string]simPod
	nodes   map[types.NodeName]*simNode
	records map[cache.Pair]bool // a VolumeAttachment for each attach that was begun and not yet undone

	// What is.
	machines map[types.NodeName]*machine

	// What the controller has not heard yet, in order, by kind of object.
	events [2][]func()
	parked map[string]func() // pods on nodes that it has not heard of
	fed    bool              // it has heard of everything that there was at its start
	serial int
	calls  map[simCall]bool // driver calls in flight that were looked at

	// The back end. What is attached is in w.Driver.
	limited bool                // nodes take few volumes
	behind  map[cache.Pair]bool // attached behind the controller's back
	lost    map[cache.Pair]bool // detached behind the controller's back
	late    []simCall           // calls that nobody waits for

	log  strings.Builder
	told struct{ calls, writes int } // how many are in the log

	old      *fake.World // the world of a controller that should not be there any more, or nil
	oldCalls map[simCall]bool
	usurped  bool // there was one: the reports may be its
}

type simPod struct {
	volume string
	node   types.NodeName
}

// simNode is a Node object.
type simNode struct {
	health cache.NodeHealth
	inUse  map[string]bool
}

// machine is what a node name stands for: it mounts volumes, and writes to them until it is dead.
type machine struct {
	hung, dead bool
	mounted    map[string]bool
}

func newMachine() *machine { return &machine{mounted: map[string]bool{}} }

var (
	simNodes   = []types.NodeName{"a", "b", "c"}
	simVolumes = []string{"x", "y", "shared"}
)

func newSim(t *rapid.T) *sim {
	s := &sim{
		t: t, pods: map[string]simPod{}, nodes: map[types.NodeName]*simNode{}, records: map[cache.Pair]bool{},
		machines: map[types.NodeName]*machine{}, parked: map[string]func(){}, calls: map[simCall]bool{},
		limited: true, behind: map[cache.Pair]bool{}, lost: map[cache.Pair]bool{}, oldCalls: map[simCall]bool{}, w: newSimWorld(t),
	}
	for _, n := range simNodes {
		s.nodes[n] = &simNode{health: cache.NodeHealth{Ready: v1.ConditionTrue}, inUse: map[string]bool{}}
		s.machines[n] = newMachine()
		s.nodeEvent(n)
	}
	return s
}

func newSimWorld(t *rapid.T) *fake.World {
	w := fake.NewWorld(t, fake.Unsynced(), fake.WithLiveChecks(), fake.WithPolicy(reconciler.Policy{UnmountWait: time.Minute}))
	w.Volume("shared", v1.ReadWriteMany)
	for _, op := range []fake.Op{fake.Attach, fake.Detach} {
		w.Driver.Always(op, "", "", fake.Answer{Block: true})
	}
	w.Reconciler.Step(t.Context()) // it listens before there is anything to decide on
	return w
}

// pick draws one of the keys that satisfy ok; the action is skipped when there is none.
func pick[K ~string, V any](t *rapid.T, what string, m map[K]V, ok func(K, V) bool) K {
	var keys []K
	for k, v := range m {
		if ok(k, v) {
			keys = append(keys, k)
		}
	}
	if len(keys) == 0 {
		t.Skip("there is no " + what)
	}
	slices.Sort(keys)
	return rapid.SampledFrom(keys).Draw(t, what)
}

func (s *sim) timePasses(t *rapid.T) {
	s.advance(rapid.SampledFrom([]time.Duration{100 * time.Millisecond, time.Second, 30 * time.Second, 2 * time.Minute}).Draw(t, "how long"))
}

func (s *sim) advance(d time.Duration) {
	before, counts := blockedCalls(s.w.Driver), map[simCall]int{}
	for _, c := range before {
		counts[c] = s.w.Driver.Count(c.op, c.volume, c.node)
	}
	s.w.Advance(d)
	for _, c := range before {
		if !s.w.Driver.Blocked(c.op, c.volume, c.node) || s.w.Driver.Count(c.op, c.volume, c.node) > counts[c] {
			s.becomesLate([]simCall{c}) // its time was over
		}
	}
	if s.old != nil {
		s.old.Advance(d)
	}
}

// What must hold after every step.

func (s *sim) checkStep(t *rapid.T) {
	s.w.WaitIdle()
	s.oldLeaderWorks(t)
	calls := blockedCalls(s.w.Driver)
	for _, c := range calls {
		if !s.calls[c] {
			s.checkCall(t, c)
		}
	}
	clear(s.calls)
	for _, c := range calls {
		s.calls[c] = true
	}
	s.record(t)
	if problems := s.w.Check(); len(problems) > 0 {
		t.Fatalf("%s", strings.Join(problems, "\n"))
	}
	for _, v := range []string{"x", "y"} {
		var writers []types.NodeName
		for _, n := range simNodes {
			if s.machines[n].mounted[v] && slices.Contains(s.w.Driver.AttachedTo(v), n) {
				writers = append(writers, n)
			}
		}
		require.LessOrEqual(t, len(writers), 1, "exclusive volume %s is written to by %v", v, writers)
	}
	s.checkExplanations(t)
}

// record writes down what has happened since the last time.
func (s *sim) record(t *rapid.T) {
	calls, writes := s.w.Driver.Calls(), s.w.Reports.Writes()
	lines := slices.Clone(calls[s.told.calls:])
	for _, line := range writes[s.told.writes:] {
		lines = append(lines, "report of "+line)
	}
	slices.Sort(lines) // what happens at one moment has no order
	for _, e := range s.w.Reconciler.Explanations() {
		fmt.Fprintf(&s.log, "%s\n", e)
	}
	for _, line := range lines {
		t.Logf("  %s: %s", s.w.Clock.Now().Format(time.TimeOnly), line)
		fmt.Fprintf(&s.log, "%s: %s\n", s.w.Clock.Now().Format(time.TimeOnly), line)
	}
	s.told.calls, s.told.writes = len(calls), len(writes)
}

// checkCall looks at a call that has just come to the driver.
func (s *sim) checkCall(t *rapid.T, c simCall) {
	if c.op == fake.Attach {
		require.True(t, s.fed || c.volume == "shared", "%s: the controller has not heard of every attachment yet", c)
		s.records[c.pair()] = true
		return
	}
	require.True(t, s.fed, "%s: the controller has not heard of every pod yet", c)
	if !s.usurped && s.nodes[c.node] != nil {
		require.NotContains(t, s.w.Reports.Content(c.node), c.volume, "%s: the kubelet may still mount it", c)
	}
	s.checkDetach(t, c)
}

// checkDetach: what is mounted stays, unless there is a reason for force, at this moment.
func (s *sim) checkDetach(t *rapid.T, c simCall) {
	if !s.machines[c.node].mounted[c.volume] || !slices.Contains(s.w.Driver.AttachedTo(c.volume), c.node) {
		return
	}
	n := s.nodes[c.node]
	forced := n == nil || n.health.OutOfService || n.health.Ready != v1.ConditionTrue
	require.True(t, forced, "%s: it is mounted there, and the node is healthy", c)
}

// checkExplanations: every pair that is not as wished is explained, and no other.
func (s *sim) checkExplanations(t *rapid.T) {
	want := map[cache.Pair]bool{}
	for v := range s.w.Desired.VolumesToAttach() {
		pair := cache.Pair{Volume: v.VolumeName, Node: v.NodeName}
		if s.w.Actual.GetAttachState(pair.Volume, pair.Node) != cache.Attached {
			want[pair] = true
		}
	}
	for av := range s.w.Actual.AttachedVolumes() {
		if !s.w.Desired.VolumeExists(av.VolumeName, av.NodeName) {
			want[cache.Pair{Volume: av.VolumeName, Node: av.NodeName}] = true
		}
	}
	got := map[cache.Pair]reconciler.Explanation{}
	for _, e := range s.w.Reconciler.Explanations() {
		got[e.Pair] = e
		require.NotEqual(t, reconciler.Converged, e.Decision.Reason)
		require.NotEmpty(t, e.String())
	}
	for pair := range want {
		require.Contains(t, got, pair, "%v is not as wished, and not explained", pair)
	}
}

// finish ends all trouble: then everything that is wished is attached, nothing else is, and nothing is remembered.
func (s *sim) finish(t *rapid.T) {
	s.apiRecovers(t)
	s.limited = false
	if s.old != nil {
		s.oldLeaderStops(t)
	}
	for len(s.late) > 0 {
		s.lateWork(t)
	}
	for _, n := range simNodes {
		if s.nodes[n] == nil || s.machines[n].dead {
			s.machines[n] = newMachine()
			s.nodes[n] = &simNode{inUse: map[string]bool{}}
			s.w.Reports.SetMissing(n, false)
		}
		s.machines[n].hung = false
		s.nodes[n].health = cache.NodeHealth{Ready: v1.ConditionTrue}
		s.nodeEvent(n)
	}
	seen := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(s.pods)) {
		if v := s.pods[name].volume; v != "shared" && seen[v] {
			delete(s.pods, name) // two pods with one exclusive volume never come to an end
			s.podEvent(name)
		} else {
			seen[v] = true
		}
	}
	s.settle(t)
	for pair := range s.behind { // what the controller cannot know of, somebody has to clean up
		if s.w.Actual.GetAttachState(pair.Volume, pair.Node) == cache.Detached {
			s.behindTheBack(simCall{fake.Detach, fake.Short(pair.Volume), pair.Node})
		}
	}
	s.w.Driver.Heal()
	for _, op := range []fake.Op{fake.Attach, fake.Detach} {
		s.w.Driver.Always(op, "", "", fake.Answer{Block: true})
	}
	for s.w.Reconciler.Verify(t.Context()) != nil {
		s.advance(5 * time.Second)
	}
	s.settle(t)
	want := map[string]bool{}
	for _, p := range s.pods {
		want[p.volume+" "+string(p.node)] = true
	}
	got := map[string]bool{}
	for _, v := range simVolumes {
		for _, n := range s.w.Driver.AttachedTo(v) {
			got[v+" "+string(n)] = true
		}
	}
	require.Equal(t, want, got, "what is really attached at the end: %v", s.w.Reconciler.Explanations())

	for _, name := range slices.Sorted(maps.Keys(s.pods)) {
		delete(s.pods, name)
		s.podEvent(name)
	}
	s.settle(t)
	for _, n := range simNodes {
		delete(s.nodes, n)
		s.w.Reports.SetMissing(n, true)
		s.nodeEvent(n)
	}
	s.settle(t)
	require.Zero(t, s.w.Actual.Sizes(), "%v", s.w.Reconciler.Explanations())
	require.Zero(t, s.w.Desired.Sizes())
	stats := s.w.Reconciler.Stats()
	require.Zero(t, stats.Open+stats.Queued+stats.Waiting+stats.Pending, "%+v", stats)
}

// goodTimes lets everybody do what there is to do for a while: without it random steps hardly ever get as far as a mounted
// volume, and that is what can be lost.
func (s *sim) goodTimes(t *rapid.T) {
	for range 4 {
		s.everybodyWorks(t, s.deliverAll)
	}
}

// nodesLag is the same while the controller hears nothing of nodes: what they use, how they are.
func (s *sim) nodesLag(t *rapid.T) {
	for range 4 {
		s.everybodyWorks(t, func() {
			for len(s.events[1]) > 0 {
				s.next(1)
			}
			s.markFed()
		})
	}
}

// settle lets everybody work until nothing is left to do.
func (s *sim) settle(t *rapid.T) {
	for range 200 {
		busy := s.everybodyWorks(t, s.deliverAll)
		s.advance(5 * time.Second)
		s.checkStep(t)
		if !busy {
			return
		}
	}
}

// everybodyWorks: events arrive, the back end does what it is asked, kubelets do what they have to do. It reports whether
// there was anything to do.
func (s *sim) everybodyWorks(t *rapid.T, deliver func()) (busy bool) {
	deliver()
	s.checkStep(t)
	busy = len(s.w.Reconciler.Explanations()) > 0
	for _, c := range blockedCalls(s.w.Driver) {
		s.release(c, fake.Answer{})
		s.checkStep(t)
		busy = true
	}
	for _, node := range simNodes {
		busy = s.kubeletFinishes(t, node) || busy
	}
	deliver()
	s.checkStep(t)
	return busy
}
