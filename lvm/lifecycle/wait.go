package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
)

// target is one object, whatever its kind.
type target struct {
	what  string // for messages
	name  string
	get   func(ctx context.Context) (metav1.Object, error)
	patch func(ctx context.Context, data []byte) (metav1.Object, error)
	watch Watcher // nil: it must be polled
}

func (p *Provisioner) claimTarget(namespace, name string) target {
	c := p.cfg.Claims(namespace)
	t := target{
		what: "claim " + namespace + "/" + name, name: name,
		get: func(ctx context.Context) (metav1.Object, error) { return c.Get(ctx, name, metav1.GetOptions{}) },
		patch: func(ctx context.Context, data []byte) (metav1.Object, error) {
			return c.Patch(ctx, name, types.JSONPatchType, data, metav1.PatchOptions{})
		},
	}
	t.watch, _ = c.(Watcher)
	return t
}

func (p *Provisioner) volumeTarget(name string) target {
	c := p.cfg.Volumes
	t := target{
		what: "volume " + name, name: name,
		get: func(ctx context.Context) (metav1.Object, error) { return c.Get(ctx, name, metav1.GetOptions{}) },
		patch: func(ctx context.Context, data []byte) (metav1.Object, error) {
			return c.Patch(ctx, name, types.JSONPatchType, data, metav1.PatchOptions{})
		},
	}
	t.watch, _ = c.(Watcher)
	return t
}

// change reads an object and patches it, again and again while others change it. A patch of nothing is not sent. last, if not nil, gets the object as
// it is in the end.
func (p *Provisioner) change(ctx context.Context, t target, make func(metav1.Object) (patch, error), last *metav1.Object) error {
	refused := ""
	var refusal error
	for wait := 10 * time.Millisecond; ; wait = min(2*wait, p.cfg.PollPeriod) {
		obj, err := t.get(ctx)
		if err != nil {
			return err
		}
		if refusal != nil && obj.GetResourceVersion() == refused {
			return refusal // nobody has changed it: the server does not take the patch
		}
		change, err := make(obj)
		if err != nil {
			return err
		}
		refused = obj.GetResourceVersion()
		if change.changes() {
			obj, err = t.patch(ctx, change.encode())
			err = patchError("patch "+t.what, err)
		}
		if err == nil {
			if last != nil {
				*last = obj
			}
			return nil
		}
		if !isConflict(err) {
			return err
		}
		if refusal = nil; apierrors.IsInvalid(err) { // a failed test, or a patch that is never taken; a 409 is always worth another try
			refusal = err
		}
		if sleepErr := p.sleep(ctx, wait); sleepErr != nil {
			return fmt.Errorf("%w: %w", sleepErr, err)
		}
	}
}

// changes reports whether the patch does more than test.
func (p patch) changes() bool {
	for _, o := range p {
		if o.Op != "test" {
			return true
		}
	}
	return false
}

// wait returns when the answer is there, or the failure. obj is the object as it was last seen.
func (p *Provisioner) wait(ctx context.Context, t target, obj metav1.Object, answered func(metav1.Object) (bool, error)) error {
	watching := t.watch != nil
	pause := !watching // before the next look
	for {
		if done, err := answered(obj); done || err != nil {
			return err
		}
		if pause {
			if err := p.sleep(ctx, p.cfg.PollPeriod); err != nil {
				return fmt.Errorf("wait for the node's agent: %w", err)
			}
		}
		if watching {
			seen, err := p.watch(ctx, t, obj.GetResourceVersion(), func(o metav1.Object) bool {
				done, err := answered(o)
				return done || err != nil
			})
			if seen != nil {
				obj = seen
				continue
			}
			watching = !(apierrors.IsForbidden(err) || apierrors.IsMethodNotSupported(err)) // neither gets better
			pause = !errors.Is(err, errWatchedLong)                                         // a watch that is cut off at once must not make a busy loop
		}
		next, err := t.get(ctx)
		switch {
		case err == nil:
			obj = next
		case apierrors.IsNotFound(err):
			return ErrGone
		case ctx.Err() != nil:
			return fmt.Errorf("wait for the node's agent: %w", context.Cause(ctx))
		default: // the server cannot be reached, for now
			pause = true
		}
	}
}

func (p *Provisioner) sleep(ctx context.Context, d time.Duration) error {
	timer := p.cfg.Clock.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C():
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

var (
	errWatchedLong = errors.New("it was watched for long enough to look again")
	errWatchEnded  = errors.New("the watch has ended")
)

// watch returns the first object that is enough, or an error when the watch ends before.
func (p *Provisioner) watch(ctx context.Context, t target, version string, enough func(metav1.Object) bool) (metav1.Object, error) {
	w, err := t.watch.Watch(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector("metadata.name", t.name).String(), ResourceVersion: version,
	})
	if err != nil {
		return nil, err
	}
	defer w.Stop()
	timer := p.cfg.Clock.NewTimer(watchedPollPeriod)
	defer timer.Stop()
	for {
		select {
		case e, ok := <-w.ResultChan():
			obj, isObject := e.Object.(metav1.Object)
			if !ok || !isObject || e.Type != watch.Added && e.Type != watch.Modified {
				return nil, errWatchEnded // also after a deletion: the next look tells
			}
			if enough(obj) {
				return obj, nil
			}
		case <-timer.C():
			return nil, errWatchedLong
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}
