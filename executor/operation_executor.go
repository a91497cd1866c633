package executor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/stateofworld/stateofworld/cache"
)

// Names of the operations of an OperationExecutor; back-off is per (volume, node, name).
const (
	OpAttach = "attach"
	OpDetach = "detach"
	OpVerify = "verify"
)

// ActualStateOfWorldUpdater is what outcomes are written to: *cache.ActualStateOfWorld.
type ActualStateOfWorldUpdater interface {
	MarkVolumeAsAttached(volume v1.UniqueVolumeName, spec *cache.VolumeSpec, node types.NodeName, devicePath string) error
	MarkVolumeAsUncertain(volume v1.UniqueVolumeName, spec *cache.VolumeSpec, node types.NodeName) error
	MarkVolumeAsDetached(volume v1.UniqueVolumeName, node types.NodeName)
	MarkDetachedIfEpoch(volume v1.UniqueVolumeName, node types.NodeName, epoch uint64) bool
	GetAttachState(volume v1.UniqueVolumeName, node types.NodeName) cache.AttachState
}

// ExecutorConfig is what an OperationExecutor is made of.
type ExecutorConfig struct {
	Operations *Operations               // required; may be shared with other work
	Attacher   Attacher                  // required
	Actual     ActualStateOfWorldUpdater // required
	// OnOutcome, if set, is called once for every attach and detach that was started, after its outcome is written and its
	// key is free, and before the Done of its request. It may be called concurrently, and must not block.
	OnOutcome func(Event)
	// VerifyTimeout bounds each call that verifies; 0 = Options.Timeout, negative = none.
	VerifyTimeout time.Duration
	// BulkWindow is how long an attach waits for others to go with it into one call of a BulkAttacher; 0 = DefaultBulkWindow.
	BulkWindow time.Duration
}

// OperationExecutor attaches, detaches and verifies volumes with a driver, and writes what came of it into the actual
// world before anybody else can work on the volume. It is safe for concurrent use.
type OperationExecutor struct {
	operations    *Operations
	attacher      Attacher
	attach        func(context.Context, cache.VolumeToAttach) (string, error) // attacher's, in bulk if it can
	actual        ActualStateOfWorldUpdater
	onOutcome     func(Event)
	verifyTimeout time.Duration

	verifyMu sync.Mutex
	round    *verifyRound // the latest
}

// Event is how an attach or a detach ended.
type Event struct {
	Operation string // OpAttach or OpDetach
	Volume    v1.UniqueVolumeName
	Node      types.NodeName
	Outcome   Outcome
	// Err is nil when Outcome is Done, but for an attachment that the world refused to record (bad input): then it says so.
	// For Gone it is the driver's error also when that is a success (a detach).
	Err        error
	DevicePath string        // of a successful attach
	Took       time.Duration // from the start to the end, with all waiting
	Ran        time.Duration // without the wait for a slot, and without Withdraw
	Attempts   int           // failures in a row, with this one; 0 after a success
	NextTry    time.Time     // zero: no back-off
	Panicked   bool
}

// NewOperationExecutor checks the configuration. Errors: *cache.InvalidError. It starts no goroutine.
func NewOperationExecutor(c ExecutorConfig) (*OperationExecutor, error) {
	switch {
	case c.Operations == nil:
		return nil, invalid("ExecutorConfig.Operations", "", "must be set")
	case c.Attacher == nil:
		return nil, invalid("ExecutorConfig.Attacher", "", "must be set")
	case c.Actual == nil:
		return nil, invalid("ExecutorConfig.Actual", "", "must be set")
	case c.BulkWindow < 0:
		return nil, invalid("ExecutorConfig.BulkWindow", c.BulkWindow.String(), "must not be negative")
	}
	e := &OperationExecutor{
		operations: c.Operations, attacher: c.Attacher, actual: c.Actual,
		attach: c.Attacher.Attach, onOutcome: c.OnOutcome, verifyTimeout: c.VerifyTimeout,
	}
	if driver, ok := c.Attacher.(BulkAttacher); ok {
		e.attach = (&bulk{driver: driver, clock: c.Operations.clock, window: cmp.Or(c.BulkWindow, DefaultBulkWindow)}).attach
	}
	return e, nil
}

// Operations returns what the executor runs its operations on: to ask what is pending or in back-off, to wait, and to shut down.
func (e *OperationExecutor) Operations() *Operations { return e.operations }

// attachment is one attach or detach in progress: what both have in common.
type attachment struct {
	executor *OperationExecutor
	name     string
	volume   v1.UniqueVolumeName
	node     types.NodeName
	spec     *cache.VolumeSpec
	done     func(Event)

	called     bool // whether the driver was
	outcome    Outcome
	err        error
	devicePath string
}

func (a *attachment) validate() error {
	switch {
	case a.volume == "":
		return invalid("Volume.VolumeName", "", "must not be empty")
	case a.node == "":
		return invalid("Volume.NodeName", "", "must not be empty")
	case a.spec != nil:
		return a.spec.Validate()
	}
	return nil
}

// key is what the operation excludes: an exclusive volume may not be worked on for two nodes at once.
func (a *attachment) key(exclusive bool) Key {
	if exclusive {
		return Key{Volume: a.volume}
	}
	return Key{Volume: a.volume, Node: a.node}
}

// classify fills in the outcome of the driver's (or an earlier) error, and writes down what holds for attach and detach alike.
func (a *attachment) classify(err error) {
	a.outcome, a.err = Classify(err), err
	if err == nil {
		return
	}
	a.err = fmt.Errorf("%s volume %q, node %q: %w", a.name, a.volume, a.node, err)
	if !a.called { // whatever the error is: a live check may well have found that the node is gone
		a.outcome, a.err = Refused, Precondition(a.err)
		return
	}
	dangling, ok := as[*DanglingError](err)
	if !ok || a.outcome == Unknown {
		return
	}
	if dangling.Node == a.node { // "elsewhere" is here: that is no failure for certain
		a.outcome = Unknown
		return
	}
	// The key of a shareable volume does not cover the other node. An operation that is under way there writes its own outcome
	// after this one, or has just written it; Uncertain is then the worst that remains, and is put right by the next attach.
	if dangling.Node != "" && a.executor.actual.GetAttachState(a.volume, dangling.Node) == cache.Detached {
		a.record(a.executor.actual.MarkVolumeAsUncertain(a.volume, a.spec, dangling.Node))
	}
}

// record adds the error of a write to the world, which only bad input can cause, to what is reported.
func (a *attachment) record(err error) {
	if err != nil {
		a.err = errors.Join(a.err, fmt.Errorf("%s volume %q, node %q: outcome %q could not be recorded: %w",
			a.name, a.volume, a.node, a.outcome, err))
	}
}

func (a *attachment) finished(r Result) {
	panicked := false
	if r.Err != nil {
		_, panicked = as[*PanicError](r.Err)
	}
	event := Event{
		Operation: a.name, Volume: a.volume, Node: a.node,
		Outcome: a.outcome, Err: a.err, DevicePath: a.devicePath, Took: r.Took, Ran: r.Ran,
		Attempts: r.Info.Attempts, NextTry: r.Info.NextTry, Panicked: panicked,
	}
	if event.Err == nil { // such as a panic of the world
		event.Err = r.Err
	}
	if a.executor.onOutcome != nil {
		a.executor.onOutcome(event)
	}
	if a.done != nil {
		a.done(event)
	}
}

// AttachRequest asks for one attach.
type AttachRequest struct {
	Volume cache.VolumeToAttach
	// Exclusive makes the operation exclude all others on the volume, on any node; otherwise those on the volume and node.
	Exclusive bool
	// Check is Operation.Check: the place to look once more whether the attach is still needed and allowed.
	Check func() error
	// Timeout bounds the driver's call; 0 = Options.Timeout, negative = none.
	Timeout time.Duration
	// Done, if set, is called once, after the world is updated and the key is free, when AttachVolume returned nil.
	Done func(Event)
}

type attach struct {
	attachment
	request cache.VolumeToAttach
}

// AttachVolume starts an attach. It returns the errors of Operations.Start, and *cache.InvalidError for a request without
// volume or node; none of them changed anything.
//
// What the outcome does to the actual world:
//
//	Done              (volume, node) is Attached, with the device path that the driver returned
//	Refused           nothing
//	FailedForCertain  nothing; with a DanglingError the node it names becomes Uncertain, unless it is Attached
//	Gone              nothing
//	Unknown           (volume, node) is Uncertain
func (e *OperationExecutor) AttachVolume(ctx context.Context, r AttachRequest) error {
	a := &attach{
		attachment: attachment{
			executor: e, name: OpAttach, done: r.Done,
			volume: r.Volume.VolumeName, node: r.Volume.NodeName, spec: r.Volume.VolumeSpec,
		},
		request: r.Volume,
	}
	if err := a.validate(); err != nil {
		return err
	}
	return e.operations.Start(ctx, Operation{
		Key: a.key(r.Exclusive), Name: a.name, Node: a.node, Timeout: r.Timeout,
		Check: r.Check, Run: a.run, Complete: a.complete, Done: a.finished,
	})
}

func (a *attach) run(ctx context.Context) error {
	a.called = true
	devicePath, err := a.executor.attach(ctx, a.request)
	if err == nil {
		a.devicePath = devicePath
	}
	return err
}

func (a *attach) complete(err error) error {
	a.classify(err)
	switch a.outcome {
	case Done:
		a.record(a.executor.actual.MarkVolumeAsAttached(a.volume, a.spec, a.node, a.devicePath))
	case Unknown:
		a.record(a.executor.actual.MarkVolumeAsUncertain(a.volume, a.spec, a.node))
	}
	return a.err
}

// DetachRequest asks for one detach. The order is fixed: Check, Withdraw, Confirm, the driver; see R2,
// kubernetes/kubernetes#27836.
type DetachRequest struct {
	Volume cache.AttachedVolume
	// Exclusive is as in AttachRequest.
	Exclusive bool
	// Check is Operation.Check: the place to look once more whether the detach is still wanted and allowed.
	Check func() error
	// Withdraw, if set, takes the volume out of the node's report and waits until that is written. It holds no slot, and
	// has a deadline of its own. An error makes the outcome Refused.
	Withdraw func(ctx context.Context) error
	// Confirm, if set, is the last look at the living node, immediately before the driver is called. Any error makes the
	// outcome Refused: when it cannot be known that a detach does no harm, there is none.
	Confirm func(ctx context.Context) error
	// Restore, if set, is called when the outcome is Refused or FailedForCertain, before the key is free, to undo Withdraw,
	// also when Withdraw failed, or was never reached: it must be idempotent. It must not block.
	Restore func()
	// Timeout bounds Withdraw, and again Confirm and the driver's call together; 0 = Options.Timeout, negative = none.
	Timeout time.Duration
	// Done, if set, is called once, after the world is updated and the key is free, when DetachVolume returned nil.
	Done func(Event)
}

type detach struct {
	attachment
	request cache.AttachedVolume
	confirm func(ctx context.Context) error
	restore func()
}

// DetachVolume starts a detach. It returns the errors of Operations.Start, and *cache.InvalidError for a request without
// volume or node; none of them changed anything, and nothing was withdrawn.
//
// What the outcome does to the actual world:
//
//	Done, Gone        (volume, node) is Detached; both are a success
//	Refused           nothing; Restore is called
//	FailedForCertain  nothing; Restore is called; a DanglingError makes the node it names Uncertain, as for an attach
//	Unknown           (volume, node) is Uncertain
func (e *OperationExecutor) DetachVolume(ctx context.Context, r DetachRequest) error {
	d := &detach{
		attachment: attachment{
			executor: e, name: OpDetach, done: r.Done,
			volume: r.Volume.VolumeName, node: r.Volume.NodeName, spec: r.Volume.VolumeSpec,
		},
		request: r.Volume, confirm: r.Confirm, restore: r.Restore,
	}
	if err := d.validate(); err != nil {
		return err
	}
	return e.operations.Start(ctx, Operation{
		Key: d.key(r.Exclusive), Name: d.name, Node: d.node, Timeout: r.Timeout,
		Check: r.Check, Prepare: r.Withdraw, Run: d.run, Complete: d.complete, Done: d.finished,
	})
}

func (d *detach) run(ctx context.Context) error {
	if d.confirm != nil {
		if err := d.confirm(ctx); err != nil {
			return err
		}
		if ctx.Err() != nil { // it took all the time there was: what it saw may be long past
			return context.Cause(ctx)
		}
	}
	d.called = true
	return d.executor.attacher.Detach(ctx, d.request)
}

func (d *detach) complete(err error) error {
	d.classify(err)
	switch d.outcome {
	case Done, Gone:
		d.executor.actual.MarkVolumeAsDetached(d.volume, d.node)
		return nil
	case Unknown:
		d.record(d.executor.actual.MarkVolumeAsUncertain(d.volume, d.spec, d.node))
	case Refused, FailedForCertain:
		if d.restore != nil {
			d.restore()
		}
	}
	return d.err
}
