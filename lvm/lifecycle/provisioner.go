package lifecycle

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/stateofworld/stateofworld/cache"
	"github.com/stateofworld/stateofworld/lvm"
)

var (
	// ErrNoNode: no node was selected for the claim, or the volume's node affinity names none, so no agent would do anything.
	ErrNoNode = errors.New("no node is selected")
	// ErrTaken: the object carries another request, which is done, or is the other way round. It is not overwritten, since what was made for it would be
	// forgotten.
	ErrTaken = errors.New("the object carries another request")
	// ErrGone: the object was deleted, or deleted and made anew, while its answer was waited for.
	ErrGone = errors.New("the object is gone")
)

// ProvisionerConfig is what a Provisioner is made of. Claims and Volumes are required.
type ProvisionerConfig struct {
	// Claims returns the client for the claims of a namespace, and Volumes is the client for volumes. Where they are also a Watcher, answers are
	// watched for; otherwise they are polled for.
	Claims  func(namespace string) ClaimClient
	Volumes VolumeClient
	// Annotations are the keys. The agents must have the same.
	Annotations Annotations
	// PollPeriod is the time between two looks where there is no watch. Zero means 2 seconds.
	PollPeriod time.Duration
	// NodeOf is the name of the node that a volume is on, for the label by which watches are narrowed; empty where it cannot be told. Nil means the node that
	// the affinity names by its name or its host name, which is right where the two are the same.
	NodeOf func(*v1.PersistentVolume) types.NodeName
	// KeepWaiting reports whether to go on waiting although the agent has failed, as it tries again by itself. Nil means that every failure is returned
	// at once. It must not block.
	KeepWaiting func(Failure) bool
	// Clock gives the time. Nil means the real clock.
	Clock clock.WithTicker
}

// DefaultPollPeriod is the time between two looks at an object that cannot be watched.
const DefaultPollPeriod = 2 * time.Second

// watchedPollPeriod is the time between two looks at an object that is watched: for a connection that has died without a word.
const watchedPollPeriod = 30 * time.Second

// Provisioner asks the agents for logical volumes, and waits for their answers. It belongs beside the API, as in a CSI controller. All methods may be called
// concurrently; it keeps nothing between calls, and each may be repeated after any error.
type Provisioner struct {
	cfg ProvisionerConfig
}

// NewProvisioner checks the configuration. Errors: *cache.InvalidError.
func NewProvisioner(c ProvisionerConfig) (*Provisioner, error) {
	bad := func(field, value, reason string) (*Provisioner, error) {
		return nil, fmt.Errorf("new provisioner: %w", &cache.InvalidError{Field: "ProvisionerConfig." + field, Value: value, Reason: reason})
	}
	switch {
	case c.Claims == nil:
		return bad("Claims", "nil", "is required")
	case isNil(c.Volumes):
		return bad("Volumes", "nil", "is required")
	case c.PollPeriod < 0:
		return bad("PollPeriod", c.PollPeriod.String(), "must not be negative")
	}
	if err := c.Annotations.Validate(); err != nil {
		return nil, fmt.Errorf("new provisioner: %w", err)
	}
	c.Annotations = c.Annotations.withDefaults()
	c.PollPeriod = cmp.Or(c.PollPeriod, DefaultPollPeriod)
	if c.NodeOf == nil {
		c.NodeOf = nodeOf
	}
	if c.Clock == nil {
		c.Clock = clock.RealClock{}
	}
	return &Provisioner{cfg: c}, nil
}

// CreateVolumeWithAnnotations asks the agent of the claim's selected node for a logical volume, and returns when that is there. It returns at once when it
// is already, and asks again, and for another attempt at once, when it was asked for before.
//
// Errors: a *FailedError when the agent has failed (errors.Is lvm.ErrNoSpace and so on), lvm.ErrInvalid, ErrNoNode, ErrTaken, ErrGone, NotFound, what the
// API server says, and the cause of ctx, when that ends first: the agent goes on nevertheless.
func (p *Provisioner) CreateVolumeWithAnnotations(ctx context.Context, namespace, name string, spec CreateSpec) error {
	text, err := spec.Encode()
	if err != nil {
		return fmt.Errorf("create volume for claim %s/%s: %w", namespace, name, err)
	}
	t := p.claimTarget(namespace, name)
	err = p.ask(ctx, t, asking{
		state: Creating, done: Created, spec: text,
		same: func(have string) bool {
			s, err := ParseCreateSpec(have)
			return err == nil && s.Equal(spec)
		},
		node: func(obj metav1.Object) (string, error) {
			node := obj.GetAnnotations()[p.cfg.Annotations.SelectedNode]
			if node == "" {
				return "", fmt.Errorf("%w: annotation %q is not set", ErrNoNode, p.cfg.Annotations.SelectedNode)
			}
			return node, nil
		},
	})
	if err != nil {
		return fmt.Errorf("create volume for %s: %w", t.what, err)
	}
	return nil
}

// DeleteVolumeWithAnnotations asks the agent of the volume's node to remove its logical volume, and returns when that is gone. Errors are as for
// CreateVolumeWithAnnotations.
func (p *Provisioner) DeleteVolumeWithAnnotations(ctx context.Context, name string, lv lvm.Name) error {
	if err := lv.Validate(); err != nil {
		return fmt.Errorf("delete volume %s: %w", name, err)
	}
	t := p.volumeTarget(name)
	err := p.ask(ctx, t, asking{
		state: Deleting, done: Deleted, spec: lv.String(),
		same: func(have string) bool { return have == lv.String() },
		node: func(obj metav1.Object) (string, error) {
			pv := obj.(*v1.PersistentVolume)
			if pv.Spec.NodeAffinity == nil || pv.Spec.NodeAffinity.Required == nil || len(pv.Spec.NodeAffinity.Required.NodeSelectorTerms) == 0 {
				return "", fmt.Errorf("%w: the volume has no required node affinity", ErrNoNode)
			}
			return string(p.cfg.NodeOf(pv)), nil
		},
	})
	if err != nil {
		return fmt.Errorf("delete %s: %w", t.what, err)
	}
	return nil
}

// nodeOf is the node that a volume's affinity asks for, or nothing when it asks for none by its name or host name.
func nodeOf(pv *v1.PersistentVolume) types.NodeName {
	if pv.Spec.NodeAffinity == nil || pv.Spec.NodeAffinity.Required == nil || len(pv.Spec.NodeAffinity.Required.NodeSelectorTerms) != 1 {
		return ""
	}
	term := pv.Spec.NodeAffinity.Required.NodeSelectorTerms[0]
	for _, f := range term.MatchFields {
		if f.Key == "metadata.name" && f.Operator == v1.NodeSelectorOpIn && len(f.Values) == 1 {
			return types.NodeName(f.Values[0])
		}
	}
	for _, e := range term.MatchExpressions {
		if e.Key == v1.LabelHostname && e.Operator == v1.NodeSelectorOpIn && len(e.Values) == 1 {
			return types.NodeName(e.Values[0])
		}
	}
	return ""
}

// UpdatePVCWithAnnotations writes annotations on a claim and touches nothing else; an empty value takes the annotation away. It repeats the write while
// others change the claim, until ctx ends.
func (p *Provisioner) UpdatePVCWithAnnotations(ctx context.Context, namespace, name string, annotations map[string]string) error {
	return p.update(ctx, p.claimTarget(namespace, name), annotations)
}

// UpdatePVWithAnnotations does the same with a volume.
func (p *Provisioner) UpdatePVWithAnnotations(ctx context.Context, name string, annotations map[string]string) error {
	return p.update(ctx, p.volumeTarget(name), annotations)
}

func (p *Provisioner) update(ctx context.Context, t target, annotations map[string]string) error {
	if err := p.change(ctx, t, func(obj metav1.Object) (patch, error) {
		var change patch
		change.testUID(string(obj.GetUID()))
		change.setMembers("/metadata/annotations", obj.GetResourceVersion(), obj.GetAnnotations(), annotations)
		return change, nil
	}, nil); err != nil {
		return fmt.Errorf("annotate %s: %w", t.what, err)
	}
	return nil
}

// setMembers adds, replaces and removes (where the value is empty) members of a map that is part of the object.
func (p *patch) setMembers(path, version string, have, want map[string]string) {
	changed := false
	for _, name := range slices.Sorted(maps.Keys(want)) {
		old, exists := have[name]
		switch value := want[name]; {
		case value == "" && exists:
			p.remove(path + "/" + pointer(name))
		case value == "" || exists && old == value:
			continue
		case have == nil && !changed:
			// There is no map to add to. That there still is none when it is added, only the version says.
			p.testVersion(version)
			p.add(path, map[string]string{})
			fallthrough
		default:
			p.add(path+"/"+pointer(name), value)
		}
		changed = true
	}
}

// asking is one request on an object.
type asking struct {
	state, done State
	spec        string
	same        func(have string) bool
	// node is the node of the object, for the label; empty when it cannot be told.
	node func(metav1.Object) (string, error)
}

// ask writes the request and waits for its answer.
func (p *Provisioner) ask(ctx context.Context, t target, q asking) error {
	var uid types.UID
	last, err := p.write(ctx, t, q, &uid)
	if err != nil {
		return err
	}
	return p.wait(ctx, t, last, func(obj metav1.Object) (bool, error) { return p.answered(t, q, uid, obj) })
}

// write writes the request, unless it is done. It returns the object as it is then.
func (p *Provisioner) write(ctx context.Context, t target, q asking, uid *types.UID) (last metav1.Object, err error) {
	a := p.cfg.Annotations
	err = p.change(ctx, t, func(obj metav1.Object) (patch, error) {
		if *uid != "" && *uid != obj.GetUID() {
			return nil, ErrGone
		}
		*uid = obj.GetUID()
		have := obj.GetAnnotations()
		node, err := q.node(obj)
		if err != nil {
			return nil, err
		}
		request := map[string]string{a.Lifecycle(): string(q.state), a.Spec(): q.spec, a.UID(): string(obj.GetUID()), a.Error(): ""}
		state, same := State(have[a.Lifecycle()]), q.same(have[a.Spec()])
		if uid := have[a.UID()]; uid != "" && uid != string(obj.GetUID()) {
			state, same = "", false // the annotations came with a backup
		}
		switch {
		case state == q.done && same:
			return nil, nil
		case state == q.state && same:
			request[a.Spec()] = have[a.Spec()] // as it is written there, so that the agent is not disturbed
		case state == "", state == q.state && q.state == Creating, state == Created && q.state == Deleting:
		default:
			return nil, fmt.Errorf("%w: %q with spec %q", ErrTaken, state, shorten(have[a.Spec()], 200))
		}
		var change patch
		change.testUID(string(obj.GetUID()))
		if old, ok := have[a.Lifecycle()]; ok {
			change.test(annotationPath(a.Lifecycle()), old)
		} else {
			change.testVersion(obj.GetResourceVersion())
		}
		change.setMembers("/metadata/annotations", obj.GetResourceVersion(), have, request)
		if node != "" {
			label := map[string]string{a.NodeLabel(): a.NodeLabelValue(types.NodeName(node))}
			change.setMembers("/metadata/labels", obj.GetResourceVersion(), obj.GetLabels(), label)
		}
		return change, nil
	}, &last)
	return last, err
}

// answered reports whether the request was answered, and the failure if that is the answer.
func (p *Provisioner) answered(t target, q asking, uid types.UID, obj metav1.Object) (bool, error) {
	a := p.cfg.Annotations
	have := obj.GetAnnotations()
	switch state := State(have[a.Lifecycle()]); {
	case obj.GetUID() != uid:
		return false, ErrGone
	case !q.same(have[a.Spec()]) || state != q.state && state != q.done:
		return false, fmt.Errorf("%w: %q with spec %q was written while the answer was waited for", ErrTaken, state, shorten(have[a.Spec()], 200))
	case state == q.done:
		return true, nil
	}
	text, failed := have[a.Error()]
	if !failed {
		return false, nil
	}
	f, err := ParseFailure(text)
	switch {
	case err != nil:
		f = Failure{Reason: ReasonFailed, Message: printable(err.Error())}
	case f.UID != "" && f.UID != uid, p.cfg.KeepWaiting != nil && p.cfg.KeepWaiting(f):
		return false, nil
	}
	return false, &FailedError{Object: t.what, Failure: f}
}
