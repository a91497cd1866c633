package fake

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/stateofworld/stateofworld/reconciler"
)

// RunScript runs a test that is written as a transcript: one command a line, # begins a comment. It makes a World, so the
// invariants are checked at the end. A * stands for any volume or node.
//
// What the world is made of, before anything else:
//
//	option live-checks | unsynced | max-concurrent N | notice-repeat DURATION
//	policy unmount-wait DURATION | disable-timeout-force | deleted-nodes immediate|grace|never | allow-uncertain
//
// What happens:
//
//	node NODE...                              delete-node NODE
//	health NODE ready|not-ready|unknown|out-of-service
//	in-use NODE [VOLUME...]                   in-use-cached NODE [VOLUME...]
//	forget NODE                               # nothing is known of it: it has reported nothing
//	volume VOLUME exclusive|shared
//	desire POD VOLUME NODE                    drop POD             move POD NODE
//	unresolved POD NODE                       resolved POD NODE
//	seed VOLUME NODE attached|uncertain       synced
//	live in-use NODE [VOLUME...]              live health NODE HEALTH
//	live fail NODE TEXT                       live ok NODE
//	driver next|always OP VOLUME NODE ANSWER  # OP: attach, detach, verify
//	    ANSWER: ok, error TEXT, lost TEXT (done, but an error), nothing-happened TEXT, gone, precondition TEXT,
//	    dangling NODE, panic TEXT, block [ANSWER] (until released), stuck (so too, and past its deadline)
//	driver release OP VOLUME NODE             driver heal          driver set VOLUME NODE attached|detached
//	write fail NODE TEXT                      write fail-next NODE TEXT    write not-found NODE
//	write ok NODE                             write block NODE             write unblock NODE
//	idle                                      settle               tick DURATION        passes N DURATION
//	verify
//
// What is expected:
//
//	expect-calls [CALL; CALL...]              # all since the last expect-calls, in order
//	expect-count OP VOLUME NODE N             # of all calls of the test
//	expect-state VOLUME NODE attached|uncertain|detached
//	expect-report NODE [VOLUME...]            expect-written NODE [VOLUME...]     expect-writes NODE N
//	expect-asked N                            expect-desired VOLUME NODE true|false
//	expect-forced REASON N                    expect-missed N
//	expect-notice KIND POD|- [TEXT]           expect-no-notices    # in order, each notice once
//	explain VOLUME NODE REASON [TEXT]         # TEXT is a part of the explanation
func RunScript(t TB, script string) {
	t.Helper()
	s := &transcript{t: t}
	for n, line := range strings.Split(script, "\n") {
		line, _, _ = strings.Cut(line, "#")
		fields := strings.Fields(line)
		if len(fields) == 0 {
			continue
		}
		if err := s.run(fields); err != nil {
			t.Fatalf("line %d: %s\n  %v", n+1, strings.TrimSpace(line), err)
		}
	}
}

type transcript struct {
	t       TB
	w       *World
	options []Option
	policy  reconciler.Policy
	noticed int // how many notices were expected
}

// verb is a command: how many arguments it needs at least, and what it does.
type verb struct {
	args int
	run  func(s *transcript, a []string) error
}

func (s *transcript) run(fields []string) error {
	name, args := fields[0], fields[1:]
	setup, ok := setupVerbs()[name]
	if ok && s.w == nil {
		return setup.call(s, args)
	}
	if ok {
		return fmt.Errorf("%s must come first", name)
	}
	if s.w == nil {
		s.w = NewWorld(s.t, append(s.options, WithPolicy(s.policy))...)
	}
	if f, ok := verbs()[name]; ok {
		return f.call(s, args)
	}
	return fmt.Errorf("no such command: %s", name)
}

func (v verb) call(s *transcript, args []string) error {
	if len(args) < v.args {
		return fmt.Errorf("needs %d arguments", v.args)
	}
	return v.run(s, args)
}

func setupVerbs() map[string]verb {
	return map[string]verb{"option": {1, (*transcript).option}, "policy": {1, (*transcript).setPolicy}}
}

func (s *transcript) option(a []string) error {
	value := func() string { return strings.Join(a[1:], " ") }
	switch a[0] {
	case "live-checks":
		s.options = append(s.options, WithLiveChecks())
	case "unsynced":
		s.options = append(s.options, Unsynced())
	case "max-concurrent":
		n, err := strconv.Atoi(value())
		s.options = append(s.options, WithConfig(func(c *reconciler.Config) { c.Operations.MaxConcurrent = n }))
		return err
	case "notice-repeat":
		d, err := time.ParseDuration(value())
		s.options = append(s.options, WithConfig(func(c *reconciler.Config) { c.NoticeRepeat = d }))
		return err
	default:
		return fmt.Errorf("no such option: %s", a[0])
	}
	return nil
}

func (s *transcript) setPolicy(a []string) (err error) {
	switch a[0] {
	case "unmount-wait":
		s.policy.UnmountWait, err = time.ParseDuration(strings.Join(a[1:], ""))
	case "disable-timeout-force":
		s.policy.DisableForceOnTimeout = true
	case "deleted-nodes":
		policies := map[string]reconciler.DeletedNodesPolicy{
			"grace": reconciler.DetachAfterGrace, "immediate": reconciler.DetachImmediately, "never": reconciler.NeverDetach,
		}
		p, ok := policies[strings.Join(a[1:], "")]
		if !ok {
			return errors.New("deleted-nodes: grace, immediate or never")
		}
		s.policy.DeletedNodes = p
	case "allow-uncertain":
		s.policy.AttachWhileUncertain = func(v1.UniqueVolumeName, types.NodeName, types.NodeName) bool { return true }
	default:
		return fmt.Errorf("no such policy: %s", a[0])
	}
	return err
}
