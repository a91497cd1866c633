package reconciler_test

import (
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/stateofworld/stateofworld/cache"
	"github.com/stateofworld/stateofworld/executor"
	"github.com/stateofworld/stateofworld/fake"
)

// simLimit is how many volumes the back end attaches to one node while there is trouble.
const simLimit = 2

// simCall is a call of the driver.
type simCall struct {
	op     fake.Op
	volume string
	node   types.NodeName
}

func (c simCall) String() string { return string(c.op) + " " + c.volume + " " + string(c.node) }

func (c simCall) pair() cache.Pair {
	return cache.Pair{Volume: fake.VolumeName(c.volume), Node: c.node}
}

func parseCall(text string) simCall {
	f := strings.Fields(text)
	return simCall{fake.Op(f[0]), f[1], types.NodeName(f[2])}
}

func blockedCalls(d *fake.Driver) (calls []simCall) {
	for _, text := range d.BlockedCalls() {
		calls = append(calls, parseCall(text))
	}
	return calls
}

func pickCall(t *rapid.T, calls []simCall) simCall {
	if len(calls) == 0 {
		t.Skip("no calls")
	}
	return rapid.SampledFrom(calls).Draw(t, "call")
}

// release lets the back end answer a call of the controller. Whatever the answer, what it was asked before about the volume
// is done first, and what cannot be done is refused.
func (s *sim) release(c simCall, a fake.Answer) {
	s.lateWorkOn(c.volume)
	done := a.Err == nil || a.Applied || executor.Classify(a.Err) == executor.Gone
	if err := s.refusal(c); done && err != nil {
		a, done = fake.Answer{Err: err}, false
	}
	if done {
		delete(s.behind, c.pair())
		s.applied(c, a.Err == nil)
	}
	require.NoError(s.t, s.w.Driver.Release(s.t.Context(), c.op, c.volume, c.node, a))
}

// refusal: a node takes no more than its limit, and an exclusive volume that the controller could not know to be attached
// elsewhere is not attached a second time. Where it could know, nobody helps it: then the volume would be spoilt.
func (s *sim) refusal(c simCall) error {
	if c.op == fake.Detach {
		return nil
	}
	attached := 0
	for _, v := range simVolumes {
		nodes := s.w.Driver.AttachedTo(v)
		if v != c.volume && slices.Contains(nodes, c.node) {
			attached++
		}
		if v != c.volume || v == "shared" {
			continue
		}
		for _, n := range nodes {
			if n != c.node && s.behind[cache.Pair{Volume: fake.VolumeName(v), Node: n}] {
				return &executor.DanglingError{Node: n, Err: errors.New("attached elsewhere")}
			}
		}
	}
	if s.limited && attached >= simLimit {
		return executor.NothingHappened(errors.New("the node has as many volumes as it can have"))
	}
	return nil
}

// applied: the back end has done what it was asked.
func (s *sim) applied(c simCall, told bool) {
	if c.op == fake.Attach {
		delete(s.lost, c.pair())
		return
	}
	delete(s.machines[c.node].mounted, c.volume) // a mount without its disk writes nothing any more
	if told {
		delete(s.records, c.pair())
	}
}

// behindTheBack changes what is attached without the controller.
func (s *sim) behindTheBack(c simCall) {
	if slices.Contains(s.w.Driver.AttachedTo(c.volume), c.node) == (c.op == fake.Attach) {
		return
	}
	s.w.Driver.SetAttached(c.volume, c.node, c.op == fake.Attach)
	s.applied(c, false)
	if c.op == fake.Attach {
		s.behind[c.pair()] = true
	} else {
		delete(s.behind, c.pair())
		s.lost[c.pair()] = true
	}
}

// becomesLate: nobody waits for the calls any more; the back end has them all the same.
func (s *sim) becomesLate(calls []simCall) { s.late = append(s.late, calls...) }

// lateWork lets the back end do what nobody waits for any more.
func (s *sim) lateWork(t *rapid.T) {
	if len(s.late) == 0 {
		t.Skip("no late work")
	}
	s.lateWorkOn(s.late[0].volume)
}

func (s *sim) lateWorkOn(volume string) {
	late := s.late
	s.late = nil
	for _, c := range late {
		switch {
		case c.volume != volume:
			s.late = append(s.late, c)
		case s.refusal(c) == nil && (c.op == fake.Detach || volume == "shared" || len(s.w.Driver.AttachedTo(volume)) == 0):
			s.behindTheBack(c)
		}
	}
}

func (s *sim) answerWell(t *rapid.T) {
	s.release(pickCall(t, blockedCalls(s.w.Driver)), fake.Answer{})
}

func (s *sim) answer(t *rapid.T) {
	c := pickCall(t, blockedCalls(s.w.Driver))
	answers := map[string]fake.Answer{
		"lost reply":       {Err: errors.New("connection reset"), Applied: true},
		"error":            {Err: errors.New("internal error")},
		"nothing happened": {Err: executor.NothingHappened(errors.New("quota"))},
		"precondition":     {Err: executor.Precondition(errors.New("not now"))},
	}
	if c.op == fake.Detach && s.nodes[c.node] == nil {
		answers["gone"] = fake.Answer{Err: executor.GoneError(errors.New("no such machine"))}
	}
	s.release(c, answers[rapid.SampledFrom(slices.Sorted(maps.Keys(answers))).Draw(t, "answer")])
}

// attachByHand: somebody attaches a volume that is attached nowhere, and tells nobody.
func (s *sim) attachByHand(t *rapid.T) {
	c := simCall{fake.Attach, rapid.SampledFrom([]string{"x", "y"}).Draw(t, "volume"), rapid.SampledFrom(simNodes).Draw(t, "node")}
	if len(s.w.Driver.AttachedTo(c.volume)) > 0 {
		t.Skip("it is attached")
	}
	s.behindTheBack(c)
}

// loseAttachment: the back end loses an attachment that nobody is working on.
func (s *sim) loseAttachment(t *rapid.T) {
	node := rapid.SampledFrom(simNodes).Draw(t, "node")
	for _, v := range simVolumes {
		if slices.Contains(s.w.Driver.AttachedTo(v), node) {
			s.behindTheBack(simCall{fake.Detach, v, node})
			return
		}
	}
	t.Skip("nothing is attached")
}

// verify asks the back end what is attached. It may leave out volumes, or not answer for a node at all.
func (s *sim) verify(t *rapid.T) {
	for _, v := range simVolumes {
		if rapid.Bool().Draw(t, "leaves out "+v) {
			s.w.Driver.Next(fake.Verify, v, "", fake.Answer{Err: errors.New("not listed")})
		}
	}
	if rapid.Bool().Draw(t, "fails for a node") {
		s.w.Driver.Next(fake.Verify, "", rapid.SampledFrom(simNodes).Draw(t, "node"), fake.Answer{Err: errors.New("internal error")})
	}
	if err := s.w.Reconciler.Verify(t.Context()); err != nil {
		var backoff *executor.BackoffError
		require.ErrorAs(t, err, &backoff)
	}
	s.w.WaitIdle()
}
