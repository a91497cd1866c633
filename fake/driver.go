package fake

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/stateofworld/stateofworld/cache"
	"github.com/stateofworld/stateofworld/executor"
)

// Op names what a driver can be asked to do.
type Op string

// The operations of a Driver.
const (
	Attach Op = executor.OpAttach
	Detach Op = executor.OpDetach
	Verify Op = executor.OpVerify
)

// Answer is what a scripted call does. The zero Answer succeeds.
type Answer struct {
	// Err is what the call returns. Errors of package executor tell the outcome: executor.NothingHappened(err),
	// executor.GoneError(err), executor.Precondition(err), &executor.DanglingError{Node: "b"}; any other error means that
	// nobody knows what happened.
	Err error
	// Applied: the back end has done it although Err says otherwise: a reply that was lost.
	Applied bool
	// Block holds the call until Driver.Release. It returns its context's error when that ends first, unless Stuck is set.
	Block, Stuck bool
	// Panic, if not nil, is what the call panics with.
	Panic any
	// DevicePath is what Attach returns; empty means /dev/ and the volume's short name.
	DevicePath string
}

// Driver is a storage back end in memory that does as its script says, records every call, and knows what is really
// attached. All methods may be called concurrently.
//
// Limits: a call takes no time unless it blocks, and there is no limit of volumes per node.
type Driver struct {
	mu         sync.Mutex
	changed    *sync.Cond
	next       map[call][]Answer // one answer a call, in order
	always     map[call]Answer
	calls      []string
	counts     map[call]int
	blocked    map[call]blockedCall
	running    map[call]int
	attached   map[string]map[types.NodeName]bool
	settled    map[call]Op // the last operation on (volume, node) that certainly ended in success
	violations []string
	exclusive  func(volume v1.UniqueVolumeName) bool
}

// call is an operation on a volume and a node; empty parts of a script's call match anything.
type call struct {
	op     Op
	volume string
	node   types.NodeName
}

// blockedCall is a call that waits for its release; one that is stuck waits past its deadline.
type blockedCall struct {
	release chan Answer
	stuck   bool
}

// NewDriver returns a driver that succeeds at everything.
func NewDriver() *Driver {
	d := &Driver{
		next: map[call][]Answer{}, always: map[call]Answer{}, blocked: map[call]blockedCall{}, running: map[call]int{},
		counts: map[call]int{}, attached: map[string]map[types.NodeName]bool{}, settled: map[call]Op{},
	}
	d.changed = sync.NewCond(&d.mu)
	return d
}

// FailNext makes the next call of op, on whatever volume and node, return err.
func (d *Driver) FailNext(op Op, err error) { d.Next(op, "", "", Answer{Err: err}) }

// Next queues answers for the next calls of op on the volume and node; an empty volume or node means any. The most exact
// script wins. Volumes are given by their short names: "vol-1" for "fake/vol-1".
func (d *Driver) Next(op Op, volume string, node types.NodeName, answers ...Answer) {
	d.mu.Lock()
	defer d.mu.Unlock()
	c := call{op, volume, node}
	d.next[c] = append(d.next[c], answers...)
}

// Always answers every call of op on the volume and node that Next has no answer for; an empty volume or node means any.
func (d *Driver) Always(op Op, volume string, node types.NodeName, answer Answer) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.always[call{op, volume, node}] = answer
}

// Heal drops every answer that Next and Always have set. Calls that are blocked stay so.
func (d *Driver) Heal() {
	d.mu.Lock()
	defer d.mu.Unlock()
	clear(d.next)
	clear(d.always)
}

// Release lets a blocked call go on, as its script says or, if an answer is given, with that. It waits for the call when it
// has not come yet, until ctx ends.
func (d *Driver) Release(ctx context.Context, op Op, volume string, node types.NodeName, answer ...Answer) error {
	stop := context.AfterFunc(ctx, func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.changed.Broadcast()
	})
	defer stop()
	d.mu.Lock()
	defer d.mu.Unlock()
	c := call{op, volume, node}
	for d.blocked[c].release == nil {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("release %s: no such call is blocked: %w", c, err)
		}
		d.changed.Wait()
	}
	for _, a := range answer {
		d.blocked[c].release <- a
	}
	close(d.blocked[c].release)
	delete(d.blocked, c)
	return nil
}

// BlockedCalls returns the calls that are blocked now, sorted, as "attach vol-1 a".
func (d *Driver) BlockedCalls() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	var calls []string
	for c := range d.blocked {
		calls = append(calls, c.String())
	}
	slices.Sort(calls)
	return calls
}

// forgetCallers: a new controller may do again what the last one has done.
func (d *Driver) forgetCallers() {
	d.mu.Lock()
	defer d.mu.Unlock()
	clear(d.settled)
}

// Blocked reports whether such a call is blocked now.
func (d *Driver) Blocked(op Op, volume string, node types.NodeName) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.blocked[call{op, volume, node}].release != nil
}

// hangs reports whether such a call is blocked, and stays so whatever happens to its context.
func (d *Driver) hangs(op Op, volume string, node types.NodeName) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.blocked[call{op, volume, node}].stuck
}

// Calls returns every call that has ended, in the order of their ends, as "attach vol-1 a" or "detach vol-1 a: the error".
// Verifications are not listed.
func (d *Driver) Calls() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.calls)
}

// Count returns how many calls of op on the volume and node there were, those that run included; empty means any.
func (d *Driver) Count(op Op, volume string, node types.NodeName) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := 0
	for c, count := range d.counts {
		if c.matches(op, volume, node) {
			n += count
		}
	}
	return n
}

func (c call) matches(op Op, volume string, node types.NodeName) bool {
	return c.op == op && (volume == "" || c.volume == volume) && (node == "" || c.node == node)
}

func (c call) String() string { return fmt.Sprintf("%s %s %s", c.op, c.volume, c.node) }

// ForgetCalls empties the list of calls. Count goes on.
func (d *Driver) ForgetCalls() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.calls = nil
}

// AttachedTo returns the nodes that the volume is really attached to, sorted.
func (d *Driver) AttachedTo(volume string) []types.NodeName {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Sorted(maps.Keys(d.attached[volume]))
}

// SetAttached makes the volume really attached, or not, behind everybody's back.
func (d *Driver) SetAttached(volume string, node types.NodeName, attached bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.applyLocked(call{Attach, volume, node}, attached)
	delete(d.settled, call{volume: volume, node: node})
}

func (d *Driver) applyLocked(c call, attached bool) {
	if !attached {
		delete(d.attached[c.volume], c.node)
		if len(d.attached[c.volume]) == 0 {
			delete(d.attached, c.volume)
		}
		return
	}
	if d.attached[c.volume] == nil {
		d.attached[c.volume] = map[types.NodeName]bool{}
	}
	d.attached[c.volume][c.node] = true
}

// Violations returns what no caller of a driver may do: two calls at once for a volume and node, an attach or a detach that
// was done already, an exclusive volume attached to two nodes.
func (d *Driver) Violations() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.violations)
}

// Attach implements executor.Attacher.
func (d *Driver) Attach(ctx context.Context, volume cache.VolumeToAttach) (string, error) {
	c := call{Attach, Short(volume.VolumeName), volume.NodeName}
	a, err := d.serve(ctx, c, volume.VolumeName)
	if err != nil {
		return "", err
	}
	if a.DevicePath != "" {
		return a.DevicePath, nil
	}
	return "/dev/" + c.volume, nil
}

// Detach implements executor.Attacher.
func (d *Driver) Detach(ctx context.Context, volume cache.AttachedVolume) error {
	_, err := d.serve(ctx, call{Detach, Short(volume.VolumeName), volume.NodeName}, volume.VolumeName)
	return err
}

// VerifyAttached implements executor.Attacher: it answers from what is really attached, unless Verify is scripted with an
// error for a volume (that volume is unknown) or for the node alone (the call fails).
func (d *Driver) VerifyAttached(ctx context.Context, node types.NodeName, volumes []cache.AttachedVolume) (map[v1.UniqueVolumeName]executor.Verification, error) {
	if _, err := d.answer(ctx, call{Verify, "", node}); err != nil {
		return nil, err
	}
	result := map[v1.UniqueVolumeName]executor.Verification{}
	for _, av := range volumes {
		c := call{Verify, Short(av.VolumeName), node}
		if a, ok := d.script(c); ok && a.Err != nil {
			continue
		}
		d.mu.Lock()
		result[av.VolumeName] = executor.NotAttached
		if d.attached[c.volume][node] {
			result[av.VolumeName] = executor.StillAttached
		}
		d.mu.Unlock()
	}
	return result, nil
}

// serve runs one attach or detach: it checks the caller, plays the script, changes the truth, and records the call.
func (d *Driver) serve(ctx context.Context, c call, volume v1.UniqueVolumeName) (a Answer, err error) {
	d.enter(c, volume)
	ended := false
	defer func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.running[c]--
		if d.running[c] == 0 {
			delete(d.running, c)
		}
		line := c.String()
		switch {
		case !ended:
			line += ": panic"
		case err != nil:
			line += ": " + err.Error()
		}
		d.calls = append(d.calls, line)
		d.changed.Broadcast()
	}()
	a, err = d.answer(ctx, c)
	ended = true

	d.mu.Lock()
	defer d.mu.Unlock()
	pair := call{volume: c.volume, node: c.node}
	delete(d.settled, pair)
	outcome := executor.Classify(err)
	if outcome == executor.Done || (outcome == executor.Gone && c.op == Detach) {
		d.settled[pair] = c.op
	}
	if outcome == executor.Done || a.Applied || outcome == executor.Gone {
		d.applyLocked(c, c.op == Attach && outcome != executor.Gone)
	}
	if c.op == Attach && len(d.attached[c.volume]) > 1 && d.exclusive != nil && d.exclusive(volume) {
		d.violations = append(d.violations, fmt.Sprintf("%s: exclusive volume is attached to %v", c, slices.Sorted(maps.Keys(d.attached[c.volume]))))
	}
	return a, err
}

func (d *Driver) enter(c call, volume v1.UniqueVolumeName) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, op := range []Op{Attach, Detach} {
		if d.running[call{op, c.volume, c.node}] > 0 {
			d.violations = append(d.violations, fmt.Sprintf("%s: called while %s of the same volume and node runs", c, op))
		}
	}
	if d.settled[call{volume: c.volume, node: c.node}] == c.op {
		d.violations = append(d.violations, fmt.Sprintf("%s: called again although the last one succeeded", c))
	}
	d.running[c]++
	d.counts[c]++
}

// script returns the scripted answer of a call: the most exact one, and what is queued before what is always.
func (d *Driver) script(c call) (Answer, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	candidates := []call{c, {c.op, c.volume, ""}, {c.op, "", c.node}, {c.op, "", ""}}
	for _, k := range candidates {
		if queue := d.next[k]; len(queue) > 0 {
			if len(queue) == 1 {
				delete(d.next, k)
			} else {
				d.next[k] = queue[1:]
			}
			return queue[0], true
		}
	}
	for _, k := range candidates {
		if a, ok := d.always[k]; ok {
			return a, true
		}
	}
	return Answer{}, false
}

func (d *Driver) answer(ctx context.Context, c call) (Answer, error) {
	a, _ := d.script(c)
	if a.Block || a.Stuck {
		release := make(chan Answer, 1)
		d.mu.Lock()
		d.blocked[c] = blockedCall{release, a.Stuck}
		d.changed.Broadcast()
		d.mu.Unlock()
		done := ctx.Done()
		if a.Stuck {
			done = nil
		}
		select {
		case other, ok := <-release:
			if ok {
				a = other
			}
		case <-done:
			d.mu.Lock()
			delete(d.blocked, c)
			d.mu.Unlock()
			return a, context.Cause(ctx)
		}
	}
	if a.Panic != nil {
		panic(a.Panic)
	}
	return a, a.Err
}
