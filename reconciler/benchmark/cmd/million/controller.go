//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/stateofworld/stateofworld/cache"
	"github.com/stateofworld/stateofworld/executor"
	"github.com/stateofworld/stateofworld/reconciler"
	"github.com/stateofworld/stateofworld/reconciler/benchmark/internal/fleet"
)

// controller is both worlds and a reconciler.
type controller struct {
	desired *cache.DesiredStateOfWorld
	actual  *cache.ActualStateOfWorld
	driver  *instant
	rc      *reconciler.Reconciler
	stop    func()
}

func newController() (*controller, error) {
	plugins := cache.NewVolumePluginMgr(cache.CSIPlugin{})
	c := &controller{
		desired: cache.NewDesiredStateOfWorld(plugins), actual: cache.NewActualStateOfWorld(plugins),
		driver: &instant{called: make(chan time.Time, 1)},
	}
	var err error
	// Without verification and audit, which would look at everything now and then: what is measured is what changes cost.
	c.rc, err = reconciler.New(reconciler.Config{
		Desired: c.desired, Actual: c.actual, Attacher: c.driver, VerifyPeriod: -1, AuditPeriod: -1,
	})
	return c, err
}

// load adds the nodes and n wishes.
func (c *controller) load(ctx context.Context, f *fleet.Fleet, n int, p *progress) error {
	for _, node := range f.Nodes {
		c.desired.AddNode(node)
		c.actual.SetVolumesMountedByNode(nil, node)
		c.actual.SetNodeHealth(node, cache.NodeHealth{Ready: v1.ConditionTrue})
	}
	for i := range n {
		if i%1024 == 0 {
			if ctx.Err() != nil {
				return fmt.Errorf("loading ended after %d: %w", i, context.Cause(ctx))
			}
			p.count("loading", i, n)
		}
		if err := c.wish(&f.Attachments[i]); err != nil {
			return err
		}
	}
	return nil
}

func (c *controller) wish(a *fleet.Attachment) error {
	_, err := c.desired.AddPod(cache.UniquePodName(a.PodName), a.Pod, a.Spec, a.Node)
	return err
}

func (c *controller) run() {
	c.rc.MarkSynced()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = c.rc.Run(ctx) // ends with ctx only
	}()
	c.stop = sync.OnceFunc(func() { cancel(); <-ended })
}

// converge waits until n volumes are attached and there is nothing left to do.
func (c *controller) converge(ctx context.Context, n int, p *progress) error {
	for {
		attached := c.actual.Sizes().Pairs
		if attached == n {
			if s := c.rc.Stats(); s.Open+s.Queued+s.Pending == 0 {
				return nil
			}
		}
		p.count("attaching", attached, n)
		if err := pause(ctx, time.Millisecond); err != nil {
			return fmt.Errorf("%d of %d attached: %w", attached, n, errors.Join(err, ctx.Err()))
		}
	}
}

// wishes adds one wish after another, and returns how long each took to reach the driver.
func (c *controller) wishes(ctx context.Context, wishes []fleet.Attachment, p *progress) (waits []time.Duration, err error) {
	c.driver.tells = true
	for i := range wishes {
		p.count("timing wishes", i, len(wishes))
		if err := pause(ctx, 500*time.Microsecond); err != nil {
			return nil, err
		}
		start := time.Now()
		if err := c.wish(&wishes[i]); err != nil {
			return nil, err
		}
		select {
		case at := <-c.driver.called:
			waits = append(waits, at.Sub(start))
		case <-ctx.Done():
			return nil, fmt.Errorf("a wish did not reach the driver: %w", context.Cause(ctx))
		}
	}
	runtime.KeepAlive(wishes)
	return waits, nil
}

// instant is a driver that answers at once.
type instant struct {
	tells  bool // set while nothing is attached
	called chan time.Time
}

func (d *instant) Attach(context.Context, cache.VolumeToAttach) (string, error) {
	if d.tells {
		d.called <- time.Now()
	}
	return fleet.DevicePath, nil
}

func (*instant) Detach(context.Context, cache.AttachedVolume) error { return nil }

func (*instant) VerifyAttached(context.Context, types.NodeName, []cache.AttachedVolume) (map[v1.UniqueVolumeName]executor.Verification, error) {
	return nil, errors.New("cannot be asked")
}
