package executor

import (
	"cmp"
	"context"
	"fmt"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/stateofworld/stateofworld/cache"
)

// VerifyResult is what one VerifyVolumes came to.
type VerifyResult struct {
	Asked         int          // attachments that the driver was asked about, in calls that succeeded or failed
	StillAttached int          // of these: known to be attached
	Detached      []cache.Pair // known not to be attached, and now Detached in the actual world
	Changed       int          // known not to have been attached, but changed since the snapshot: nothing was done
	Unknown       int          // all others, those of failed calls among them: nothing was done
	// Errors are those of the calls, by node; a failed call for all nodes is there for each of its nodes.
	Errors map[types.NodeName]error
	// Skipped are the nodes that were not asked about, with the reason: *AlreadyExistsError for an earlier verification that
	// has not returned, *BackoffError, ErrShutdown, the end of ctx.
	Skipped map[types.NodeName]error
}

// verifyPod keeps the keys of verifications apart from other keys that name a node only.
const verifyPod cache.UniquePodName = "stateofworld/verify"

// verifyKey is the key of the verification of a node; of all nodes when node is empty.
func verifyKey(node types.NodeName) Key { return Key{Pod: verifyPod, Node: node} }

// VerifyVolumes asks the driver whether the given attachments still exist, with one call per node, or a single one when the
// driver is a BulkVerifier. volumes is a snapshot of the actual world (GetAttachedVolumesPerNode). What is known not to be
// attached becomes Detached, unless the pair has changed since the snapshot (its epoch). Anything else changes nothing.
//
// Only attachments that the snapshot calls Attached are verified. One that is Uncertain may have a late operation under way at
// the back end, so that "not attached" is not yet the last word: only an attach or a detach settles it.
//
// Verification runs in the background slots, and never twice at once: while an earlier one is in flight and within its
// deadline, VerifyVolumes does nothing and returns *AlreadyExistsError. Nodes whose earlier call is past its deadline and has not
// returned, or that are in back-off, are skipped. When nothing could be started at all, the first reason is returned.
//
// done, if set, is called once when VerifyVolumes returned nil, as soon as every call has returned: by the goroutine of the last,
// or by VerifyVolumes itself when there was nothing to ask. It is not called while a call does not return.
func (e *OperationExecutor) VerifyVolumes(ctx context.Context, volumes map[types.NodeName][]cache.AttachedVolume, done func(VerifyResult)) error {
	asked := attachedOnly(volumes)
	if len(asked) == 0 {
		if done != nil {
			done(VerifyResult{})
		}
		return nil
	}
	round, err := e.startRound(ctx, asked, done)
	if err != nil {
		return err
	}
	round.leave()
	return nil
}

func (e *OperationExecutor) startRound(ctx context.Context, asked map[types.NodeName][]cache.AttachedVolume, done func(VerifyResult)) (*verifyRound, error) {
	e.verifyMu.Lock()
	defer e.verifyMu.Unlock()
	if e.round != nil {
		if pending, ok := e.round.inFlight(); ok {
			return nil, &AlreadyExistsError{Key: verifyKey(""), Pending: pending}
		}
	}
	round := &verifyRound{executor: e, done: done, open: map[types.NodeName]bool{}, left: 1}
	var err error
	if _, ok := e.attacher.(BulkVerifier); ok {
		err = round.start(ctx, "", asked)
	} else {
		for node, list := range asked {
			err = cmp.Or(err, round.start(ctx, node, map[types.NodeName][]cache.AttachedVolume{node: list}))
		}
	}
	if len(round.result.Skipped) == len(asked) {
		return nil, err
	}
	e.round = round
	return round, nil
}

func attachedOnly(volumes map[types.NodeName][]cache.AttachedVolume) map[types.NodeName][]cache.AttachedVolume {
	asked := make(map[types.NodeName][]cache.AttachedVolume, len(volumes))
	for node, list := range volumes {
		if node == "" {
			continue
		}
		var attached []cache.AttachedVolume
		for _, volume := range list {
			if volume.State == cache.Attached {
				attached = append(attached, volume)
			}
		}
		if len(attached) > 0 {
			asked[node] = attached
		}
	}
	return asked
}

// verifyRound is one VerifyVolumes.
type verifyRound struct {
	executor *OperationExecutor
	done     func(VerifyResult)

	mu     sync.Mutex
	open   map[types.NodeName]bool // calls that have not returned, by the node of their key
	left   int                     // as many, and one while calls are still being started
	result VerifyResult
}

// inFlight returns a call of the round that has not returned and is within its deadline.
func (r *verifyRound) inFlight() (Info, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for node := range r.open {
		if info, ok := r.executor.operations.Pending(verifyKey(node)); ok && info.Phase != Overdue {
			return info, true
		}
	}
	return Info{}, false
}

// start starts one call; node is empty when it is for all nodes.
func (r *verifyRound) start(ctx context.Context, node types.NodeName, asked map[types.NodeName][]cache.AttachedVolume) error {
	r.mu.Lock()
	r.open[node] = true
	r.left++
	r.mu.Unlock()
	var answers map[types.NodeName]map[v1.UniqueVolumeName]Verification
	err := r.executor.operations.Start(ctx, Operation{
		Key: verifyKey(node), Name: OpVerify, Timeout: r.executor.verifyTimeout, Background: true,
		Run: func(ctx context.Context) (err error) {
			answers, err = r.executor.verify(ctx, node, asked)
			return err
		},
		Complete: func(err error) error {
			return r.apply(asked, answers, err)
		},
		Done: func(Result) {
			r.mu.Lock()
			delete(r.open, node)
			r.mu.Unlock()
			r.leave()
		},
	})
	if err == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.open, node)
	r.left--
	if r.result.Skipped == nil {
		r.result.Skipped = map[types.NodeName]error{}
	}
	for node := range asked {
		r.result.Skipped[node] = err
	}
	return err
}

func (e *OperationExecutor) verify(ctx context.Context, node types.NodeName, asked map[types.NodeName][]cache.AttachedVolume) (map[types.NodeName]map[v1.UniqueVolumeName]Verification, error) {
	if node == "" {
		return e.attacher.(BulkVerifier).VerifyAllAttached(ctx, asked)
	}
	answer, err := e.attacher.VerifyAttached(ctx, node, asked[node])
	return map[types.NodeName]map[v1.UniqueVolumeName]Verification{node: answer}, err
}

// apply writes what one call came to into the actual world, and returns its error.
func (r *verifyRound) apply(asked map[types.NodeName][]cache.AttachedVolume, answers map[types.NodeName]map[v1.UniqueVolumeName]Verification, err error) error {
	if err != nil {
		answers = nil // S6, kubernetes/kubernetes#117091: a failed look at the back end is not the answer "not attached"
		err = fmt.Errorf("verify attached volumes: %w", err)
	}
	var part VerifyResult
	for node, list := range asked {
		for _, volume := range list {
			part.Asked++
			switch answers[node][volume.VolumeName] {
			case StillAttached:
				part.StillAttached++
			case NotAttached:
				if r.executor.actual.MarkDetachedIfEpoch(volume.VolumeName, node, volume.Epoch) {
					part.Detached = append(part.Detached, cache.Pair{Volume: volume.VolumeName, Node: node})
				} else {
					part.Changed++
				}
			default:
				part.Unknown++
			}
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.result.Asked += part.Asked
	r.result.StillAttached += part.StillAttached
	r.result.Detached = append(r.result.Detached, part.Detached...)
	r.result.Changed += part.Changed
	r.result.Unknown += part.Unknown
	if err != nil {
		if r.result.Errors == nil {
			r.result.Errors = map[types.NodeName]error{}
		}
		for node := range asked {
			r.result.Errors[node] = err
		}
	}
	return err
}

// leave is called at the end of every call, and when all calls are started; the last one reports the result.
func (r *verifyRound) leave() {
	r.mu.Lock()
	r.left--
	last := r.left == 0
	result := r.result
	r.mu.Unlock()
	if last && r.done != nil {
		r.done(result)
	}
}
