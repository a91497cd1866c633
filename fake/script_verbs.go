package fake

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/stateofworld/stateofworld/cache"
	"github.com/stateofworld/stateofworld/executor"
)

func verbs() map[string]verb {
	return map[string]verb{
		"node":        {1, func(s *transcript, a []string) error { s.w.Node(nodes(a)...); return nil }},
		"delete-node": {1, func(s *transcript, a []string) error { s.w.DeleteNode(node(a[0])); return nil }},
		"health": {2, func(s *transcript, a []string) error {
			h, err := health(a[1])
			s.w.Health(node(a[0]), h)
			return err
		}},
		"in-use":        {1, func(s *transcript, a []string) error { s.w.InUse(node(a[0]), a[1:]...); return nil }},
		"in-use-cached": {1, func(s *transcript, a []string) error { s.w.InUseCached(node(a[0]), a[1:]...); return nil }},
		"forget": {1, func(s *transcript, a []string) error {
			s.w.Actual.DeleteNode(node(a[0]))
			s.w.Actual.SetNodeHealth(node(a[0]), cache.NodeHealth{})
			return nil
		}},
		"volume": {2, func(s *transcript, a []string) error {
			modes := map[string]v1.PersistentVolumeAccessMode{"exclusive": v1.ReadWriteOnce, "shared": v1.ReadWriteMany}
			if modes[a[1]] == "" {
				return errors.New("exclusive or shared")
			}
			s.w.Volume(a[0], modes[a[1]])
			return nil
		}},
		"desire": {3, func(s *transcript, a []string) error { s.w.Pod(a[0], a[1], node(a[2])); return nil }},
		"drop":   {1, func(s *transcript, a []string) error { s.w.RemovePod(a[0]); return nil }},
		"move":   {2, func(s *transcript, a []string) error { s.w.Move(a[0], node(a[1])); return nil }},
		"unresolved": {2, func(s *transcript, a []string) error {
			s.w.Desired.SetPodUnresolved(cache.UniquePodName(a[0]), node(a[1]), true)
			return nil
		}},
		"resolved": {2, func(s *transcript, a []string) error {
			s.w.Desired.SetPodUnresolved(cache.UniquePodName(a[0]), node(a[1]), false)
			return nil
		}},
		"seed": {3, func(s *transcript, a []string) error {
			state, err := state(a[2])
			s.w.Seed(a[0], node(a[1]), state)
			return err
		}},
		"synced": {0, func(s *transcript, _ []string) error { s.w.Reconciler.MarkSynced(); return nil }},
		"live":   {2, (*transcript).live},
		"driver": {1, (*transcript).driver},
		"write":  {2, (*transcript).write},
		"idle":   {0, func(s *transcript, _ []string) error { s.w.WaitIdle(); return nil }},
		"settle": {0, func(s *transcript, _ []string) error { s.w.Settle(); return nil }},
		"tick": {1, func(s *transcript, a []string) error {
			d, err := time.ParseDuration(a[0])
			if err == nil {
				s.w.Advance(d)
			}
			return err
		}},
		"passes": {2, func(s *transcript, a []string) error {
			n, err := strconv.Atoi(a[0])
			d, err2 := time.ParseDuration(a[1])
			if err := errors.Join(err, err2); err != nil {
				return err
			}
			s.w.Passes(n, d)
			return nil
		}},
		"verify": {0, func(s *transcript, _ []string) error {
			_ = s.w.Reconciler.Verify(s.t.Context())
			s.w.WaitIdle()
			return nil
		}},

		"expect-calls": {0, (*transcript).expectCalls},
		"expect-count": {4, func(s *transcript, a []string) error {
			return equal(strconv.Itoa(s.w.Driver.Count(Op(a[0]), any1(a[1]), node(any1(a[2])))), a[3])
		}},
		"expect-state":  {3, func(s *transcript, a []string) error { return equal(s.w.State(a[0], node(a[1])).String(), a[2]) }},
		"expect-report": {1, func(s *transcript, a []string) error { return equal(s.w.Report(node(a[0])), slices.Clip(a[1:])) }},
		"expect-written": {1, func(s *transcript, a []string) error {
			return equal(append([]string{}, s.w.Reports.Content(node(a[0]))...), a[1:])
		}},
		"expect-writes": {2, func(s *transcript, a []string) error { return equal(strconv.Itoa(s.w.Reports.Count(node(a[0]))), a[1]) }},
		"expect-asked":  {1, func(s *transcript, a []string) error { return equal(strconv.Itoa(len(s.w.Live.Asked())), a[0]) }},
		"expect-desired": {3, func(s *transcript, a []string) error {
			return equal(strconv.FormatBool(s.w.Desired.VolumeExists(VolumeName(a[0]), node(a[1]))), a[2])
		}},
		"expect-missed": {1, func(s *transcript, a []string) error {
			return equal(strconv.FormatUint(s.w.Reconciler.Stats().MissedVerifications, 10), a[0])
		}},
		"expect-forced":     {2, (*transcript).expectForced},
		"expect-notice":     {2, (*transcript).expectNotice},
		"expect-no-notices": {0, (*transcript).expectNoNotices},
		"explain":           {3, (*transcript).explain},
	}
}

func node(s string) types.NodeName { return types.NodeName(s) }

func nodes(a []string) (out []types.NodeName) {
	for _, s := range a {
		out = append(out, node(s))
	}
	return out
}

// any1 turns the * of a script into the empty name that means any.
func any1(s string) string {
	if s == "*" {
		return ""
	}
	return s
}

func health(s string) (cache.NodeHealth, error) {
	switch s {
	case "ready":
		return cache.NodeHealth{Ready: v1.ConditionTrue}, nil
	case "not-ready":
		return cache.NodeHealth{Ready: v1.ConditionFalse}, nil
	case "unknown":
		return cache.NodeHealth{Ready: v1.ConditionUnknown}, nil
	case "out-of-service":
		return cache.NodeHealth{Ready: v1.ConditionUnknown, OutOfService: true}, nil
	}
	return cache.NodeHealth{}, fmt.Errorf("no such health: %s", s)
}

func state(s string) (cache.AttachState, error) {
	for _, st := range []cache.AttachState{cache.Detached, cache.Uncertain, cache.Attached} {
		if st.String() == s {
			return st, nil
		}
	}
	return cache.Detached, fmt.Errorf("no such state: %s", s)
}

func equal[T any](got, want T) error {
	if g, w := fmt.Sprint(got), fmt.Sprint(want); g != w {
		return fmt.Errorf("got  %s\n  want %s", g, w)
	}
	return nil
}

func (s *transcript) live(a []string) error {
	if s.w.Live == nil {
		return errors.New("needs: option live-checks")
	}
	n := node(a[1])
	switch a[0] {
	case "in-use":
		s.w.Live.SetInUse(n, a[2:]...)
	case "health":
		h, err := health(strings.Join(a[2:], ""))
		s.w.Live.SetHealth(n, h)
		return err
	case "fail":
		s.w.Live.Fail(n, errors.New(strings.Join(a[2:], " ")))
	case "ok":
		s.w.Live.Fail(n, nil)
	default:
		return fmt.Errorf("no such command: live %s", a[0])
	}
	return nil
}

func (s *transcript) write(a []string) error {
	n, err := node(a[1]), errors.New(strings.Join(a[2:], " "))
	switch a[0] {
	case "fail":
		s.w.Reports.Fail(n, err)
	case "fail-next":
		s.w.Reports.FailNext(n, err)
	case "not-found":
		s.w.Reports.SetMissing(n, true)
	case "ok":
		s.w.Reports.SetMissing(n, false)
		s.w.Reports.Fail(n, nil)
	case "block":
		s.w.Reports.Block(n)
	case "unblock":
		s.w.Reports.Unblock(n)
	default:
		return fmt.Errorf("no such command: write %s", a[0])
	}
	return nil
}

func (s *transcript) driver(a []string) error {
	switch {
	case a[0] == "heal":
		s.w.Driver.Heal()
		return nil
	case len(a) < 4:
		return errors.New("driver next|always|release OP VOLUME NODE, driver set VOLUME NODE attached|detached, or driver heal")
	case a[0] == "set":
		s.w.Driver.SetAttached(a[1], node(a[2]), a[3] == "attached")
		return nil
	}
	op, volume, on := Op(a[1]), any1(a[2]), node(any1(a[3]))
	if op != Attach && op != Detach && op != Verify {
		return fmt.Errorf("no such operation: %s", op)
	}
	if a[0] == "release" {
		ctx, cancel := context.WithTimeout(s.t.Context(), 10*time.Second)
		defer cancel()
		return s.w.Driver.Release(ctx, op, volume, on)
	}
	answer, err := parseAnswer(a[4:])
	if err != nil {
		return err
	}
	switch a[0] {
	case "next":
		s.w.Driver.Next(op, volume, on, answer)
	case "always":
		s.w.Driver.Always(op, volume, on, answer)
	default:
		return fmt.Errorf("no such command: driver %s", a[0])
	}
	return nil
}

func parseAnswer(a []string) (Answer, error) {
	if len(a) == 0 {
		return Answer{}, errors.New("an answer is missing")
	}
	text := strings.Join(a[1:], " ")
	err := errors.New(text)
	switch a[0] {
	case "ok":
		return Answer{}, nil
	case "error":
		return Answer{Err: err}, nil
	case "lost":
		return Answer{Err: err, Applied: true}, nil
	case "nothing-happened":
		return Answer{Err: executor.NothingHappened(err)}, nil
	case "gone":
		return Answer{Err: executor.GoneError(errors.New("not found"))}, nil
	case "precondition":
		return Answer{Err: executor.Precondition(err)}, nil
	case "dangling":
		return Answer{Err: &executor.DanglingError{Node: node(text), Err: errors.New("attached elsewhere")}}, nil
	case "block":
		answer := Answer{}
		var err error
		if len(a) > 1 {
			answer, err = parseAnswer(a[1:])
		}
		answer.Block = true
		return answer, err
	case "stuck":
		return Answer{Stuck: true}, nil
	case "panic":
		return Answer{Panic: text}, nil
	}
	return Answer{}, fmt.Errorf("no such answer: %s", a[0])
}

func (s *transcript) expectCalls(a []string) error {
	got := s.w.Driver.Calls()
	s.w.Driver.ForgetCalls()
	var want []string
	for _, c := range strings.Split(strings.Join(a, " "), ";") {
		if c = strings.TrimSpace(c); c != "" {
			want = append(want, c)
		}
	}
	return equal(strings.Join(got, "; "), strings.Join(want, "; "))
}

func (s *transcript) expectForced(a []string) error {
	for reason, n := range s.w.Reconciler.Stats().ForcedDetaches {
		if reason.String() == a[0] {
			return equal(strconv.FormatUint(n, 10), a[1])
		}
	}
	return equal("0", a[1])
}

func (s *transcript) expectNotice(a []string) error {
	notices := s.w.Notices()
	if len(notices) <= s.noticed {
		return errors.New("there is no further notice")
	}
	n := notices[s.noticed]
	s.noticed++
	pod := "-"
	if n.Pod != nil {
		pod = n.Pod.Namespace + "/" + n.Pod.Name
	}
	if !strings.Contains(a[1], "/") && a[1] != "-" {
		a[1] = "default/" + a[1]
	}
	if err := equal(string(n.Kind)+" "+pod, a[0]+" "+a[1]); err != nil {
		return err
	}
	if text := strings.Join(a[2:], " "); !strings.Contains(n.Message, text) {
		return fmt.Errorf("%q does not contain %q", n.Message, text)
	}
	return nil
}

func (s *transcript) expectNoNotices([]string) error {
	for _, n := range s.w.Notices()[s.noticed:] {
		return fmt.Errorf("there is one: %s: %s", n.Kind, n.Message)
	}
	return nil
}

func (s *transcript) explain(a []string) error {
	e := s.w.Explain(a[0], node(a[1]))
	if err := equal(e.Decision.Reason.String(), a[2]); err != nil {
		return fmt.Errorf("%w\n  explanation: %s", err, e)
	}
	if text := strings.Join(a[3:], " "); !strings.Contains(e.String(), text) {
		return fmt.Errorf("%q does not contain %q", e, text)
	}
	return nil
}
