package reconciler_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/stateofworld/stateofworld/cache"
	"github.com/stateofworld/stateofworld/executor"
	"github.com/stateofworld/stateofworld/fake"
	"github.com/stateofworld/stateofworld/reconciler"
)

// A simulated cluster that breaks: machines, kubelets, an API whose events come late, a storage back end that loses replies,
// a controller that is killed. One seed is one run; rapid draws the actions, shrinks a run that fails, and prints the flag
// that replays it. The number of runs is -rapid.checks, their length -rapid.steps.
func TestSimulatedCluster(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
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
		})
		s.finish(t)
	})
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
	calls  map[string]bool // driver calls in flight that were looked at
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
		machines: map[types.NodeName]*machine{}, parked: map[string]func(){}, calls: map[string]bool{},
	}
	s.w = fake.NewWorld(t, fake.Unsynced(), fake.WithLiveChecks(), fake.WithPolicy(reconciler.Policy{UnmountWait: time.Minute}))
	s.w.Volume("shared", v1.ReadWriteMany)
	for _, op := range []fake.Op{fake.Attach, fake.Detach} {
		s.w.Driver.Always(op, "", "", fake.Answer{Block: true})
	}
	for _, n := range simNodes {
		s.nodes[n] = &simNode{health: cache.NodeHealth{Ready: v1.ConditionTrue}, inUse: map[string]bool{}}
		s.machines[n] = newMachine()
		s.nodeEvent(n)
	}
	return s
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

// The API.

func (s *sim) createPod(t *rapid.T) {
	volume := rapid.SampledFrom(simVolumes).Draw(t, "volume")
	node := pick(t, "node", s.nodes, func(types.NodeName, *simNode) bool { return true })
	users := 0
	for _, p := range s.pods {
		if p.volume == volume {
			users++
		}
	}
	if users > 2 {
		t.Skip("enough pods")
	}
	s.serial++
	name := fmt.Sprintf("pod-%d", s.serial)
	s.pods[name] = simPod{volume, node}
	s.podEvent(name)
}

func (s *sim) deletePod(t *rapid.T) {
	name := pick(t, "pod", s.pods, func(string, simPod) bool { return true })
	delete(s.pods, name)
	s.podEvent(name)
}

func (s *sim) movePod(t *rapid.T) {
	name := pick(t, "pod", s.pods, func(string, simPod) bool { return true })
	node := pick(t, "node", s.nodes, func(n types.NodeName, _ *simNode) bool { return n != s.pods[name].node })
	volume := s.pods[name].volume
	delete(s.pods, name)
	s.podEvent(name)
	s.serial++
	s.pods[fmt.Sprintf("pod-%d", s.serial)] = simPod{volume, node}
	s.podEvent(fmt.Sprintf("pod-%d", s.serial))
}

func (s *sim) deleteNode(t *rapid.T) {
	node := pick(t, "dead machine's node", s.nodes, func(n types.NodeName, _ *simNode) bool { return s.machines[n].dead })
	delete(s.nodes, node)
	s.w.Reports.SetMissing(node, true)
	s.nodeEvent(node)
}

func (s *sim) recreateNode(t *rapid.T) {
	node := pick(t, "node to come back", s.machines, func(n types.NodeName, _ *machine) bool { return s.nodes[n] == nil })
	s.machines[node] = newMachine()
	s.nodes[node] = &simNode{health: cache.NodeHealth{Ready: v1.ConditionTrue}, inUse: map[string]bool{}}
	s.w.Reports.SetMissing(node, false)
	s.nodeEvent(node)
}

// nodeEvent puts what the API has of the node now on its way, and tells the live checks at once.
func (s *sim) nodeEvent(node types.NodeName) {
	n := s.nodes[node]
	if n == nil {
		s.w.Live.SetHealth(node, cache.NodeHealth{Deleted: true})
		s.w.Live.SetInUse(node)
		s.events[0] = append(s.events[0], func() {
			_ = s.w.Desired.DeleteNode(node)
			s.w.Actual.DeleteNode(node)
		})
		return
	}
	health, inUse := n.health, slices.Sorted(maps.Keys(n.inUse))
	s.w.Live.SetHealth(node, health)
	s.w.Live.SetInUse(node, inUse...)
	s.events[0] = append(s.events[0], func() {
		s.w.Desired.AddNode(node)
		s.w.Actual.SetNodeHealth(node, health)
		s.w.InUseCached(node, inUse...)
		for _, name := range slices.Sorted(maps.Keys(s.parked)) {
			s.parked[name]()
		}
	})
}

func (s *sim) podEvent(name string) {
	pod, exists := s.pods[name]
	if !exists {
		s.events[1] = append(s.events[1], func() {
			delete(s.parked, name)
			s.w.RemovePod(name)
		})
		return
	}
	add := func() {
		if !s.w.Desired.NodeExists(pod.node) {
			return
		}
		delete(s.parked, name)
		s.w.Pod(name, pod.volume, pod.node)
	}
	s.events[1] = append(s.events[1], func() {
		s.parked[name] = add
		add()
	})
}

// deliver lets the controller hear of the next event of one kind of object, or of all.
func (s *sim) deliver(t *rapid.T) {
	kind := rapid.IntRange(0, 1).Draw(t, "kind")
	if len(s.events[kind]) == 0 {
		kind = 1 - kind
	}
	if len(s.events[kind]) == 0 {
		t.Skip("no events")
	}
	for n := rapid.IntRange(1, len(s.events[kind])).Draw(t, "how many"); n > 0; n-- {
		s.next(kind)
	}
	s.markFed()
}

func (s *sim) next(kind int) {
	event := s.events[kind][0]
	s.events[kind] = s.events[kind][1:]
	event()
}

func (s *sim) markFed() {
	if len(s.events[0])+len(s.events[1]) == 0 && !s.fed {
		s.fed = true
		s.w.Reconciler.MarkSynced()
	}
}

func (s *sim) deliverAll() {
	for kind := range s.events {
		for len(s.events[kind]) > 0 {
			s.next(kind)
		}
	}
	s.markFed()
}

// Machines. A kubelet says that it uses a volume before it looks whether it may mount it.

func (s *sim) kubeletWorks(t *rapid.T) {
	node := pick(t, "working kubelet", s.nodes, func(n types.NodeName, _ *simNode) bool { return !s.machines[n].dead && !s.machines[n].hung })
	m, n, wanted := s.machines[node], s.nodes[node], s.wantedOn(node)
	content := s.w.Reports.Content(node)
	type step struct {
		name string
		do   func()
	}
	var steps []step
	for _, v := range simVolumes {
		switch {
		case wanted[v] && !n.inUse[v]:
			steps = append(steps, step{"says it uses " + v, func() { n.inUse[v] = true; s.nodeEvent(node) }})
		case wanted[v] && !m.mounted[v] && slices.Contains(content, v):
			steps = append(steps, step{"mounts " + v, func() { s.mount(t, node, v) }})
		case !wanted[v] && m.mounted[v]:
			steps = append(steps, step{"unmounts " + v, func() { delete(m.mounted, v) }})
		case !wanted[v] && n.inUse[v]:
			steps = append(steps, step{"says it does not use " + v, func() { delete(n.inUse, v); s.nodeEvent(node) }})
		}
	}
	if len(steps) == 0 {
		t.Skip("nothing to do")
	}
	i := rapid.IntRange(0, len(steps)-1).Draw(t, string(node)+" kubelet's step")
	t.Logf("  %s %s", node, steps[i].name)
	steps[i].do()
}

func (s *sim) wantedOn(node types.NodeName) map[string]bool {
	wanted := map[string]bool{}
	for _, p := range s.pods {
		if p.node == node {
			wanted[p.volume] = true
		}
	}
	return wanted
}

func (s *sim) mount(t *rapid.T, node types.NodeName, volume string) {
	if !slices.Contains(s.w.Driver.AttachedTo(volume), node) {
		// The report is that of the API. While a controller is dead nobody corrects it, and a back end that lost a
		// volume's attachment by itself is not played.
		t.Fatalf("volume %s is reported as attached to node %s, and is not", volume, node)
	}
	s.machines[node].mounted[volume] = true
}

func (s *sim) machineHangs(t *rapid.T) {
	s.machines[pick(t, "machine", s.machines, func(n types.NodeName, m *machine) bool { return !m.dead && !m.hung && s.nodes[n] != nil })].hung = true
}

func (s *sim) machineDies(t *rapid.T) {
	m := s.machines[pick(t, "machine", s.machines, func(n types.NodeName, m *machine) bool { return !m.dead && s.nodes[n] != nil })]
	m.dead, m.mounted = true, map[string]bool{}
}

func (s *sim) machineRecovers(t *rapid.T) {
	node := pick(t, "hung machine", s.machines, func(n types.NodeName, m *machine) bool { return m.hung && !m.dead })
	s.recover(node)
}

func (s *sim) recover(node types.NodeName) {
	m := s.machines[node]
	m.hung = false
	// What was taken away while it hung is not there any more.
	for v := range m.mounted {
		if !slices.Contains(s.w.Driver.AttachedTo(v), node) {
			delete(m.mounted, v)
		}
	}
}

// recoversUnseen: a lost machine is back before its kubelet has unmounted what nobody wishes there any more. The API has it,
// the controller has not heard of it: the moment at which force would lose data.
func (s *sim) recoversUnseen(t *rapid.T) {
	node := pick(t, "machine that is known to be lost", s.machines, func(n types.NodeName, m *machine) bool {
		return m.hung && !m.dead && s.nodes[n] != nil && s.nodes[n].health.Ready == v1.ConditionUnknown
	})
	for _, name := range slices.Sorted(maps.Keys(s.pods)) {
		if s.pods[name].node == node {
			delete(s.pods, name)
			s.podEvent(name)
		}
	}
	s.deliverAll()
	s.recover(node)
	s.nodes[node].health = cache.NodeHealth{Ready: v1.ConditionTrue}
	s.nodeEvent(node)
	s.w.Advance(2 * time.Minute)
}

// healthIsNoticed lets the node controller, or an administrator, write down how the machine is.
func (s *sim) healthIsNoticed(t *rapid.T) {
	node := pick(t, "node", s.nodes, func(types.NodeName, *simNode) bool { return true })
	m, h := s.machines[node], cache.NodeHealth{Ready: v1.ConditionTrue}
	if m.hung || m.dead {
		h.Ready = v1.ConditionUnknown
	}
	h.OutOfService = m.dead && rapid.Bool().Draw(t, "out of service")
	s.nodes[node].health = h
	s.nodeEvent(node)
}

// The back end.

func parseCall(c string) (fake.Op, string, types.NodeName) {
	f := strings.Fields(c)
	return fake.Op(f[0]), f[1], types.NodeName(f[2])
}

func (s *sim) pickCall(t *rapid.T) (fake.Op, string, types.NodeName) {
	calls := s.w.Driver.BlockedCalls()
	if len(calls) == 0 {
		t.Skip("no calls")
	}
	return parseCall(rapid.SampledFrom(calls).Draw(t, "call"))
}

func (s *sim) release(op fake.Op, volume string, node types.NodeName, a fake.Answer) {
	done := a.Err == nil || a.Applied || executor.Classify(a.Err) == executor.Gone
	if op == fake.Detach && done {
		delete(s.machines[node].mounted, volume) // a mount without its disk writes nothing any more
		if a.Err == nil {
			delete(s.records, cache.Pair{Volume: fake.VolumeName(volume), Node: node})
		}
	}
	require.NoError(s.t, s.w.Driver.Release(s.t.Context(), op, volume, node, a))
}

func (s *sim) answerWell(t *rapid.T) {
	op, volume, node := s.pickCall(t)
	s.release(op, volume, node, fake.Answer{})
}

func (s *sim) answer(t *rapid.T) {
	op, volume, node := s.pickCall(t)
	answers := map[string]fake.Answer{
		"lost reply":       {Err: errors.New("connection reset"), Applied: true},
		"error":            {Err: errors.New("internal error")},
		"nothing happened": {Err: executor.NothingHappened(errors.New("quota"))},
		"precondition":     {Err: executor.Precondition(errors.New("not now"))},
	}
	if op == fake.Detach && s.nodes[node] == nil {
		answers["gone"] = fake.Answer{Err: executor.GoneError(errors.New("no such machine"))}
	}
	a := answers[rapid.SampledFrom(slices.Sorted(maps.Keys(answers))).Draw(t, "answer")]
	s.release(op, volume, node, a)
}

func (s *sim) apiTrouble(t *rapid.T) {
	node := rapid.SampledFrom(simNodes).Draw(t, "node")
	if rapid.Bool().Draw(t, "only the reply is lost") {
		s.w.Reports.Lose(node, errors.New("connection reset"))
	} else {
		s.w.Reports.Fail(node, errors.New("server is down"))
	}
}

func (s *sim) apiRecovers(*rapid.T) {
	for _, n := range simNodes {
		s.w.Reports.Lose(n, nil)
		s.w.Reports.Fail(n, nil)
		s.w.Live.Fail(n, nil)
	}
}

func (s *sim) liveTrouble(t *rapid.T) {
	s.w.Live.Fail(rapid.SampledFrom(simNodes).Draw(t, "node"), errors.New("server is down"))
}

func (s *sim) timePasses(t *rapid.T) {
	s.w.Advance(rapid.SampledFrom([]time.Duration{100 * time.Millisecond, time.Second, 30 * time.Second, 2 * time.Minute}).Draw(t, "how long"))
}

// crash kills the controller. The next one begins with what the API has: the reports, the records of attachments, the
// objects, which it hears of one by one.
func (s *sim) crash(*rapid.T) {
	s.w.Restart()
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

// What must hold after every step.

func (s *sim) checkStep(t *rapid.T) {
	s.w.WaitIdle()
	for _, c := range s.w.Driver.BlockedCalls() {
		if !s.calls[c] {
			s.checkCall(t, c)
		}
	}
	clear(s.calls)
	for _, c := range s.w.Driver.BlockedCalls() {
		s.calls[c] = true
	}
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

// checkCall looks at a call that has just come to the driver.
func (s *sim) checkCall(t *rapid.T, c string) {
	op, volume, node := parseCall(c)
	pair := cache.Pair{Volume: fake.VolumeName(volume), Node: node}
	if op == fake.Attach {
		require.True(t, s.fed || volume == "shared", "%s: the controller has not heard of every attachment yet", c)
		s.records[pair] = true
		return
	}
	require.True(t, s.fed, "%s: the controller has not heard of every pod yet", c)
	if !s.machines[node].mounted[volume] || !slices.Contains(s.w.Driver.AttachedTo(volume), node) {
		return
	}
	n := s.nodes[node]
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
		s.w.Advance(5 * time.Second)
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
	for _, c := range s.w.Driver.BlockedCalls() {
		op, volume, node := parseCall(c)
		s.release(op, volume, node, fake.Answer{})
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

// kubeletFinishes does all that the kubelet has to do now.
func (s *sim) kubeletFinishes(t *rapid.T, node types.NodeName) (busy bool) {
	n, m := s.nodes[node], s.machines[node]
	if n == nil || m.hung || m.dead {
		return false
	}
	wanted := s.wantedOn(node)
	for _, v := range simVolumes {
		if wanted[v] != n.inUse[v] || wanted[v] != m.mounted[v] {
			busy = true
		}
		switch {
		case wanted[v] && n.inUse[v] && !m.mounted[v] && slices.Contains(s.w.Reports.Content(node), v):
			s.mount(t, node, v)
		case wanted[v]:
			n.inUse[v] = true
		default:
			delete(m.mounted, v)
			delete(n.inUse, v)
		}
	}
	if busy {
		s.nodeEvent(node)
	}
	return busy
}
