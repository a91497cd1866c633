package populator

import (
	"errors"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/stateofworld/stateofworld/cache"
)

// ControllerManagedAttachAnnotation is the annotation of the nodes whose volumes the
// attach/detach controller of Kubernetes attaches and detaches.
const ControllerManagedAttachAnnotation = "volumes.kubernetes.io/controller-managed-attach-detach"

// DefaultMaxProblems is the default of Config.MaxProblems.
const DefaultMaxProblems = 1000

// DesiredStateOfWorld is what is written to the desired world. *cache.DesiredStateOfWorld
// is one.
type DesiredStateOfWorld interface {
	AddNode(node types.NodeName)
	DeleteNode(node types.NodeName) error
	UpdatePod(u cache.PodUpdate) ([]v1.UniqueVolumeName, error)
	DeletePodFromAll(name cache.UniquePodName)
	SetPodUnresolved(name cache.UniquePodName, node types.NodeName, unresolved bool)
}

// ActualStateOfWorld is what is written to the actual world, and read of it for
// recovery. *cache.ActualStateOfWorld is one.
type ActualStateOfWorld interface {
	SetNodeHealth(node types.NodeName, health cache.NodeHealth)
	SetVolumesMountedByNode(volumes []v1.UniqueVolumeName, node types.NodeName)
	DeleteNode(node types.NodeName)
	GetAttachedVolume(volume v1.UniqueVolumeName, node types.NodeName) (cache.AttachedVolume, bool)
	MarkVolumeAsAttached(volume v1.UniqueVolumeName, spec *cache.VolumeSpec, node types.NodeName, devicePath string) error
	MarkVolumeAsUncertain(volume v1.UniqueVolumeName, spec *cache.VolumeSpec, node types.NodeName) error
	MarkDetachedIfEpoch(volume v1.UniqueVolumeName, node types.NodeName, epoch uint64) bool
	Epoch(volume v1.UniqueVolumeName, node types.NodeName) uint64
}

// ClaimGetter looks a claim up, in memory: an informer's store. With client-go's lister:
//
//	populator.ClaimGetterFunc(func(namespace, name string) (*v1.PersistentVolumeClaim, error) {
//		return lister.PersistentVolumeClaims(namespace).Get(name)
//	})
type ClaimGetter interface {
	Get(namespace, name string) (*v1.PersistentVolumeClaim, error)
}

// ClaimGetterFunc is a function that is a ClaimGetter.
type ClaimGetterFunc func(namespace, name string) (*v1.PersistentVolumeClaim, error)

// Get calls the function.
func (f ClaimGetterFunc) Get(namespace, name string) (*v1.PersistentVolumeClaim, error) {
	return f(namespace, name)
}

// VolumeGetter looks a persistent volume up, in memory. client-go's
// PersistentVolumeLister is one.
type VolumeGetter interface {
	Get(name string) (*v1.PersistentVolume, error)
}

// Config is what a [Populator] is made of. Desired, Actual, Claims, Volumes and Plugins
// are required.
type Config struct {
	Desired DesiredStateOfWorld
	Actual  ActualStateOfWorld

	// Claims and Volumes must have an object before the handlers here are told of it, as
	// is the case for the store of the informer that tells them.
	Claims  ClaimGetter
	Volumes VolumeGetter

	// Plugins say what is attachable; the same as the worlds'.
	Plugins *cache.VolumePluginMgr

	// ManagesNode says whether volumes are attached to and detached from the node. What
	// the status of other nodes says is ignored, and so are their pods. Nil is
	// [ManagedByAnnotation].
	ManagesNode func(*v1.Node) bool

	// NodeAdded, if set, is called after a managed Node object was created, perhaps again,
	// also when the informer saw deletion and creation as one update: its status knows
	// nothing of earlier reports (N1). nodestatus.Writer.NodeAdded is meant for it.
	NodeAdded func(types.NodeName)

	// OnProblem, if set, is told of each volume of a pod and each volume attachment that
	// cannot be resolved, when that comes up or changes: from MarkSynced on, which tells of
	// all that there are. It is told at once of what is no question of waiting: objects of an
	// unexpected type, names that a world refuses. It runs in the handler, and may call
	// Problems.
	OnProblem func(Problem)

	// MaxProblems bounds what Problems returns; zero is DefaultMaxProblems.
	MaxProblems int

	// Clock dates problems; nil is the real clock.
	Clock clock.PassiveClock
}

// ManagedByAnnotation is Kubernetes' rule: the controller manages the nodes that have the
// annotation [ControllerManagedAttachAnnotation], whatever its value.
func ManagedByAnnotation(node *v1.Node) bool {
	_, managed := node.Annotations[ControllerManagedAttachAnnotation]
	return managed
}

// AllNodes is for controllers that manage every node.
func AllNodes(*v1.Node) bool { return true }

// Populator feeds the worlds; the package comment says how. All methods may be called
// from any goroutine.
type Populator struct {
	config Config

	// mu is held from an event to its effect in the worlds, look-ups and all. Otherwise two
	// informers could overtake each other with different views of one pod, and the older one
	// could bring a deleted pod back, or be applied after the caller has marked the worlds
	// as complete. All that runs under it works in memory.
	mu          sync.Mutex
	pods        podIndex
	nodes       map[types.NodeName]nodeState
	attachments attachmentIndex
	synced      bool
	outbox      []func() // calls to make when mu is free
}

// New checks the configuration; every error is, or wraps, a *[cache.InvalidError].
func New(c Config) (*Populator, error) {
	var errs []error
	need := func(field string, missing bool) {
		if missing {
			errs = append(errs, &cache.InvalidError{Field: field, Reason: "must not be nil"})
		}
	}
	need("Desired", c.Desired == nil)
	need("Actual", c.Actual == nil)
	need("Claims", c.Claims == nil)
	need("Volumes", c.Volumes == nil)
	need("Plugins", c.Plugins == nil)
	if c.MaxProblems < 0 {
		errs = append(errs, &cache.InvalidError{Field: "MaxProblems", Reason: "must not be negative"})
	}
	if err := c.Plugins.Validate(); err != nil {
		errs = append(errs, err)
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	if c.ManagesNode == nil {
		c.ManagesNode = ManagedByAnnotation
	}
	if c.MaxProblems == 0 {
		c.MaxProblems = DefaultMaxProblems
	}
	if c.Clock == nil {
		c.Clock = clock.RealClock{}
	}
	return &Populator{
		config:      c,
		pods:        newPodIndex(),
		nodes:       make(map[types.NodeName]nodeState),
		attachments: newAttachmentIndex(),
	}, nil
}

// update runs change with the lock held, and then the calls that it left in the outbox.
func (p *Populator) update(change func()) {
	for _, call := range p.locked(change) {
		call()
	}
}

// locked also lets go of the lock when a function of the caller's panics: informers recover.
func (p *Populator) locked(change func()) (calls []func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change()
	calls, p.outbox = p.outbox, nil
	return calls
}

// Sizes are the numbers of things that a Populator keeps in memory. All are zero when
// everything was deleted.
type Sizes struct {
	Pods              int // pods that have volumes of ours, or might
	UnresolvedPods    int // those of them with volumes that could not be resolved
	ParkedPods        int // those on nodes that are not known, or not managed
	Claims            int // claims that those pods name
	Volumes           int // persistent volumes that those claims name
	Nodes             int // nodes that exist
	Attachments       int // VolumeAttachment objects, until MarkSynced; then those that wait
	ParkedAttachments int // those of them that could not be resolved
}

// Sizes returns the current sizes.
func (p *Populator) Sizes() Sizes {
	p.mu.Lock()
	defer p.mu.Unlock()
	return Sizes{
		Pods:              len(p.pods.byUID),
		UnresolvedPods:    len(p.pods.unresolved),
		ParkedPods:        p.pods.parkedCount(),
		Claims:            len(p.pods.claims),
		Volumes:           len(p.pods.volumes),
		Nodes:             len(p.nodes),
		Attachments:       len(p.attachments.byName),
		ParkedAttachments: len(p.attachments.parked),
	}
}
