package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/stateofworld/stateofworld/executor/command"
	"github.com/stateofworld/stateofworld/fake"
	"github.com/stateofworld/stateofworld/lvm"
	"github.com/stateofworld/stateofworld/lvm/lifecycle"
)

// keys are the annotations that both sides talk through.
var keys lifecycle.Annotations

// node is the node's agent with all that it works on, and the provisioner that a CSI controller would have.
type node struct {
	options options
	log     *printer

	memory  *fake.LVM // nil with -vg
	host    *command.HostRunner
	backend lvm.Backend // what this program itself looks at
	guard   *guard      // what the agent works on

	api         *fake.API
	provisioner *lifecycle.Provisioner
	agent       *lifecycle.Agent
	feed        *fake.Feed
	ended       chan error // the end of the agent's Run
	stop        context.CancelFunc

	mu      sync.Mutex
	notices []lifecycle.Notice
	news    chan struct{} // closed with the next notice
}

// newNode wires agent and provisioner: this is all that a CSI driver has to do, with a clientset in place of the API in memory.
func newNode(o options, log *printer) (*node, error) {
	n := &node{options: o, log: log, api: fake.NewAPI(), news: make(chan struct{})}
	var groups []string
	if o.real() {
		groups = []string{o.vg}
		n.host = command.Host()
		n.backend = lvm.NewCLI(n.host, lvmOptions(o))
		n.guard = newGuard(n.backend)
	} else {
		n.memory = fake.NewLVM()
		n.backend = n.memory
		n.guard = newGuard(n.backend)
		n.guard.run = runTag + "memory" // which is this run's alone
		n.guard.latency = 200 * time.Millisecond
	}
	config := lifecycle.AgentConfig{
		Node:         types.NodeName(o.node),
		Backend:      n.guard,
		Claims:       func(ns string) lifecycle.ClaimClient { return n.api.Claims(ns) },
		Volumes:      n.api.Volumes(),
		VolumeGroups: groups,
		Notices:      n.notice,
	}
	if len(o.files) > 0 { // whose objects have UIDs already
		config.Claims = func(ns string) lifecycle.ClaimClient { return claimClient{n.api.Claims(ns)} }
		config.Volumes = volumeClient{n.api.Volumes()}
	}
	var err error
	if n.agent, err = lifecycle.NewAgent(config); err != nil {
		return nil, err
	}
	n.provisioner, err = lifecycle.NewProvisioner(lifecycle.ProvisionerConfig{
		Claims:  func(ns string) lifecycle.ClaimClient { return n.api.Claims(ns) },
		Volumes: n.api.Volumes(),
	})
	if err != nil {
		return nil, err
	}
	if len(o.files) > 0 {
		n.feed = n.api.Feed(outwardHandler{n.agent.Claims()}, outwardHandler{n.agent.Volumes()}, nil)
	} else {
		n.feed = n.api.Feed(n.agent.Claims(), n.agent.Volumes(), nil)
	}
	return n, nil
}

func lvmOptions(o options) lvm.Options {
	lo := lvm.Options{Config: o.lvmConfig, NoDeviceMapper: o.noDeviceMapper}
	if dir, ok := os.LookupEnv("LVM_SYSTEM_DIR"); ok { // the runner starts from an empty environment
		lo.Env = []string{"LVM_SYSTEM_DIR=" + dir}
	}
	return lo
}

// start lets the agent run. What is under way when ctx ends is cancelled by close only.
func (n *node) start(ctx context.Context) {
	ctx, n.stop = context.WithCancel(context.WithoutCancel(ctx))
	n.ended = make(chan error, 1)
	go func() { n.ended <- n.agent.Run(ctx) }()
}

// close stops the agent and waits for it, and for the programs that it ran.
func (n *node) close() error {
	n.feed.Stop()
	if n.stop == nil {
		return nil
	}
	n.stop()
	err := <-n.ended
	n.stop = nil
	if errors.Is(err, context.Canceled) {
		err = nil
	}
	if n.host != nil {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		err = errors.Join(err, n.host.Wait(ctx))
	}
	if err != nil {
		return fmt.Errorf("stop the agent: %w", err)
	}
	return nil
}

// notice takes what the agent says.
func (n *node) notice(notice lifecycle.Notice) {
	n.log.notice(notice)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.notices = append(n.notices, notice)
	close(n.news)
	n.news = make(chan struct{})
}

// await waits until the agent has said something.
func (n *node) await(ctx context.Context, said func(lifecycle.Notice) bool) error {
	for seen := 0; ; {
		n.mu.Lock()
		notices, news := n.notices, n.news
		n.mu.Unlock()
		for ; seen < len(notices); seen++ {
			if said(notices[seen]) {
				return nil
			}
		}
		select {
		case <-news:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// look finds out whether the volume group can be worked on.
func (n *node) look(ctx context.Context, vg string) (lvm.VolumeGroup, error) {
	group, err := n.backend.VolumeGroup(ctx, vg)
	var spawn *command.SpawnError
	switch {
	case err == nil:
		return group, nil
	case errors.As(err, &spawn):
		return group, &hintError{err, "Is lvm2 installed here? See lvm version"}
	case os.Geteuid() != 0:
		return group, &hintError{brief(err), "It takes root: run it with sudo"}
	case errors.Is(err, lvm.ErrVGNotFound):
		return group, &hintError{brief(err), "See vgs for the volume groups that are there"}
	}
	return group, brief(err)
}

// hintError is an error with what to do about it.
type hintError struct {
	error
	next string
}

func (e *hintError) Unwrap() error { return e.error }

// brief leaves the command line of lvm2 out of an error, which is long and says little.
func brief(err error) error {
	var e *lvm.Error
	if !errors.As(err, &e) {
		return err
	}
	short := *e
	short.Argv = nil
	short.Stderr = ""
	if e.Stderr == "" {
		return &short
	}
	return fmt.Errorf("%w: %s", &short, strings.Join(strings.Fields(e.Stderr), " "))
}
