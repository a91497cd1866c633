package executor_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/stateofworld/stateofworld/cache"
	"github.com/stateofworld/stateofworld/executor"
)

// Any keyed work: one at a time per key, with back-off after failures.
func ExampleOperations() {
	clock := clocktesting.NewFakeClock(time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC))
	ops, err := executor.NewOperations(executor.Options{
		Clock:   clock,
		Backoff: executor.Backoff{Base: time.Second, Jitter: -1},
	})
	if err != nil {
		panic(err)
	}
	ctx := context.Background()
	answers := []error{errors.New("mkfs: device is busy"), nil}
	format := executor.Operation{
		Key:  executor.Key{Volume: "vol-1", Node: "node-a"},
		Name: "format",
		Run: func(ctx context.Context) error {
			answer := answers[0]
			answers = answers[1:]
			return answer
		},
		Done: func(r executor.Result) { fmt.Println("done:", r.Err, r.Info.Phase) },
	}

	_ = ops.Start(ctx, format)
	fmt.Println("at once:", ops.Start(ctx, format) != nil)
	_ = ops.Wait(ctx)

	var backoff *executor.BackoffError
	if errors.As(ops.Start(ctx, format), &backoff) {
		fmt.Println("not before", backoff.Until.Format(time.TimeOnly), "after", backoff.LastErr)
	}
	clock.Step(time.Second)
	_ = ops.Start(ctx, format)
	_ = ops.Wait(ctx)

	// Unordered output:
	// at once: true
	// done: mkfs: device is busy backing off
	// not before 12:00:01 after mkfs: device is busy
	// done: <nil> finished
}

// cloud is a driver: a real one talks to a storage back end.
type cloud struct {
	attachedTo map[v1.UniqueVolumeName]types.NodeName
}

func (c *cloud) Attach(_ context.Context, v cache.VolumeToAttach) (string, error) {
	if node, ok := c.attachedTo[v.VolumeName]; ok && node != v.NodeName {
		return "", &executor.DanglingError{Node: node}
	}
	c.attachedTo[v.VolumeName] = v.NodeName
	return "/dev/disk/by-id/" + string(v.VolumeName), nil
}

func (c *cloud) Detach(_ context.Context, v cache.AttachedVolume) error {
	delete(c.attachedTo, v.VolumeName)
	return nil
}

func (c *cloud) VerifyAttached(_ context.Context, node types.NodeName, volumes []cache.AttachedVolume) (map[v1.UniqueVolumeName]executor.Verification, error) {
	known := map[v1.UniqueVolumeName]executor.Verification{}
	for _, v := range volumes {
		known[v.VolumeName] = executor.NotAttached
		if c.attachedTo[v.VolumeName] == node {
			known[v.VolumeName] = executor.StillAttached
		}
	}
	return known, nil
}

// Somebody attached the volume to another node behind our back: the attach fails for certain, the world now knows of the other
// attachment, and once that is detached the attach succeeds.
func ExampleOperationExecutor() {
	actual := cache.NewActualStateOfWorld(cache.NewVolumePluginMgr())
	ops, err := executor.NewOperations(executor.Options{Timeout: time.Minute})
	if err != nil {
		panic(err)
	}
	exec, err := executor.NewOperationExecutor(executor.ExecutorConfig{
		Operations: ops,
		Actual:     actual,
		Attacher:   &cloud{attachedTo: map[v1.UniqueVolumeName]types.NodeName{"vol-1": "node-b"}},
		OnOutcome: func(e executor.Event) {
			fmt.Printf("%s %s %s: %s\n", e.Operation, e.Volume, e.Node, e.Outcome)
		},
	})
	if err != nil {
		panic(err)
	}
	ctx := context.Background()
	want := executor.AttachRequest{
		Volume:    cache.VolumeToAttach{VolumeName: "vol-1", NodeName: "node-a"},
		Exclusive: true,
	}

	_ = exec.AttachVolume(ctx, want)
	_ = ops.Wait(ctx)
	fmt.Println("node-a:", actual.GetAttachState("vol-1", "node-a"), "node-b:", actual.GetAttachState("vol-1", "node-b"))

	dangling, _ := actual.GetAttachedVolume("vol-1", "node-b")
	_ = exec.DetachVolume(ctx, executor.DetachRequest{Volume: dangling, Exclusive: true})
	_ = ops.Wait(ctx)

	ops.Forget(executor.Key{Volume: "vol-1", Node: "node-a"}, executor.OpAttach) // what it failed of is gone
	_ = exec.AttachVolume(ctx, want)
	_ = ops.Wait(ctx)
	fmt.Println("node-a:", actual.GetAttachState("vol-1", "node-a"), "node-b:", actual.GetAttachState("vol-1", "node-b"))

	// Output:
	// attach vol-1 node-a: failed for certain
	// node-a: detached node-b: uncertain
	// detach vol-1 node-b: done
	// attach vol-1 node-a: done
	// node-a: attached node-b: detached
}
