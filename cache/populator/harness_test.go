package populator

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	testclock "k8s.io/utils/clock/testing"

	"github.com/stateofworld/stateofworld/cache"
)

const driver = "disk.example.com"

// unique is the name in the worlds of the volume with the handle h-<pv>.
func unique(pv string) v1.UniqueVolumeName {
	return v1.UniqueVolumeName("kubernetes.io/csi/" + driver + "^h-" + pv)
}

// cluster is an API in memory with a Populator that listens to it.
type cluster struct {
	*Populator
	desired   *cache.DesiredStateOfWorld
	actual    *cache.ActualStateOfWorld
	clock     *testclock.FakePassiveClock
	mu        sync.Mutex // of what follows
	claims    map[types.NamespacedName]*v1.PersistentVolumeClaim
	volumes   map[string]*v1.PersistentVolume
	lookupErr error // of the claim lister
	told      []Problem
	added     []types.NodeName
}

// localPlugin attaches the inline volumes of one type, which is otherwise nobody's.
type localPlugin struct{ err error }

func (localPlugin) GetPluginName() string { return "example.com/gce" }
func (localPlugin) CanSupport(spec *cache.VolumeSpec) bool {
	return spec.Volume != nil && spec.Volume.GCEPersistentDisk != nil
}
func (localPlugin) GetVolumeName(spec *cache.VolumeSpec) (string, error) {
	return spec.Volume.GCEPersistentDisk.PDName, nil
}
func (p *localPlugin) CanAttach(*cache.VolumeSpec) (bool, error) { return p.err == nil, p.err }
func (localPlugin) CanMultiAttach(*cache.VolumeSpec) bool        { return false }

func newCluster(t require.TestingT, adjust ...func(*Config)) *cluster {
	c := &cluster{
		clock:   testclock.NewFakePassiveClock(time.Unix(0, 0)),
		claims:  make(map[types.NamespacedName]*v1.PersistentVolumeClaim),
		volumes: make(map[string]*v1.PersistentVolume),
	}
	attachRequired := func(name string) bool { return name != "files.example.com" }
	plugins := cache.NewVolumePluginMgr(cache.CSIPlugin{AttachRequired: attachRequired}, &localPlugin{})
	c.desired = cache.NewDesiredStateOfWorld(plugins, cache.WithClock(c.clock))
	c.actual = cache.NewActualStateOfWorld(plugins, cache.WithClock(c.clock))
	config := Config{
		Desired: c.desired, Actual: c.actual, Plugins: plugins, Clock: c.clock,
		Claims: ClaimGetterFunc(func(namespace, name string) (*v1.PersistentVolumeClaim, error) {
			c.mu.Lock()
			defer c.mu.Unlock()
			if c.lookupErr != nil {
				return nil, c.lookupErr
			}
			if claim := c.claims[types.NamespacedName{Namespace: namespace, Name: name}]; claim != nil {
				return claim, nil
			}
			return nil, apierrors.NewNotFound(v1.Resource("persistentvolumeclaims"), name)
		}),
		Volumes: volumeGetterFunc(func(name string) (*v1.PersistentVolume, error) {
			c.mu.Lock()
			defer c.mu.Unlock()
			return c.volumes[name], nil
		}),
		OnProblem: func(p Problem) { c.locked(func() { c.told = append(c.told, p) }) },
		NodeAdded: func(node types.NodeName) { c.locked(func() { c.added = append(c.added, node) }) },
	}
	for _, a := range adjust {
		a(&config)
	}
	var err error
	c.Populator, err = New(config)
	require.NoError(t, err)
	return c
}

func (c *cluster) locked(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f()
}

type volumeGetterFunc func(name string) (*v1.PersistentVolume, error)

func (f volumeGetterFunc) Get(name string) (*v1.PersistentVolume, error) { return f(name) }

// add stores the object and tells the Populator, as an informer does.
func (c *cluster) add(objects ...any) {
	for _, obj := range objects {
		switch o := obj.(type) {
		case *v1.Pod:
			c.Pods().OnAdd(o, false)
		case *v1.PersistentVolumeClaim:
			c.locked(func() { c.claims[nameOf(o)] = o })
			c.Claims().OnAdd(o, false)
		case *v1.PersistentVolume:
			c.locked(func() { c.volumes[o.Name] = o })
			c.Volumes().OnAdd(o, false)
		case *v1.Node:
			c.Nodes().OnAdd(o, false)
		case *storagev1.VolumeAttachment:
			c.Attachments().OnAdd(o, false)
		default:
			panic(fmt.Sprintf("%T", obj))
		}
	}
}

// remove deletes the object.
func (c *cluster) remove(objects ...any) {
	for _, obj := range objects {
		switch o := obj.(type) {
		case *v1.Pod:
			c.Pods().OnDelete(o)
		case *v1.PersistentVolumeClaim:
			c.locked(func() { delete(c.claims, nameOf(o)) })
			c.Claims().OnDelete(o)
		case *v1.PersistentVolume:
			c.locked(func() { delete(c.volumes, o.Name) })
			c.Volumes().OnDelete(o)
		case *v1.Node:
			c.Nodes().OnDelete(o)
		case *storagev1.VolumeAttachment:
			c.Attachments().OnDelete(o)
		default:
			panic(fmt.Sprintf("%T", obj))
		}
	}
}

// wishes are all uses of the desired world, as "pod volume@node".
func (c *cluster) wishes() []string {
	wishes := []string{}
	for _, w := range c.desired.GetPodToAdd() {
		volume := strings.TrimPrefix(string(w.VolumeName), "kubernetes.io/csi/"+driver+"^h-")
		wishes = append(wishes, fmt.Sprintf("%s %s@%s", w.PodName, volume, w.NodeName))
	}
	return wishes
}

// attachments are all pairs of the actual world, as "attached volume@node path spec".
func (c *cluster) attachments() []string {
	list := []string{}
	for a := range c.actual.AttachedVolumes() {
		volume := strings.TrimPrefix(string(a.VolumeName), "kubernetes.io/csi/"+driver+"^h-")
		list = append(list, strings.TrimRight(fmt.Sprintf("%s %s@%s %s %s", a.State, volume, a.NodeName, a.DevicePath, a.VolumeSpec.Name()), " "))
	}
	slices.Sort(list)
	return list
}

func (c *cluster) kinds() []ProblemKind {
	kinds := []ProblemKind{}
	for _, p := range c.Problems() {
		kinds = append(kinds, p.Kind)
	}
	return kinds
}

// requireEmpty checks that nothing is left in any memory.
func (c *cluster) requireEmpty(t require.TestingT) {
	require.Zero(t, c.Sizes())
	require.Zero(t, c.desired.Sizes())
	require.Empty(t, c.Problems())
}

// The makers of objects. A volume of a pod is "claim", "claim:ro", "ephemeral/<volume>",
// "inline/<disk>", or "config".
func makePod(uid, name, node string, volumes ...string) *v1.Pod {
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(uid)},
		Spec:       v1.PodSpec{NodeName: node},
		Status:     v1.PodStatus{Phase: v1.PodRunning},
	}
	for i, v := range volumes {
		volume := v1.Volume{Name: fmt.Sprint("vol-", i)}
		if kind, rest, ok := strings.Cut(v, "/"); ok && kind == "ephemeral" {
			volume.Name = rest
			volume.Ephemeral = &v1.EphemeralVolumeSource{}
		} else if ok && kind == "inline" {
			volume.GCEPersistentDisk = &v1.GCEPersistentDiskVolumeSource{PDName: rest}
		} else if v == "config" {
			volume.ConfigMap = &v1.ConfigMapVolumeSource{}
		} else {
			claim, ro := strings.CutSuffix(v, ":ro")
			volume.PersistentVolumeClaim = &v1.PersistentVolumeClaimVolumeSource{ClaimName: claim, ReadOnly: ro}
		}
		pod.Spec.Volumes = append(pod.Spec.Volumes, volume)
	}
	return pod
}

// makeClaim makes a bound claim with the UID "uid-<name>".
func makeClaim(name, pv string) *v1.PersistentVolumeClaim {
	return &v1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID("uid-" + name)},
		Spec:       v1.PersistentVolumeClaimSpec{VolumeName: pv},
		Status:     v1.PersistentVolumeClaimStatus{Phase: v1.ClaimBound},
	}
}

// makePV makes a CSI volume that belongs to the claim.
func makePV(name, claim string) *v1.PersistentVolume {
	return &v1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1.PersistentVolumeSpec{
			AccessModes:            []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce},
			ClaimRef:               &v1.ObjectReference{Namespace: "ns", Name: claim, UID: types.UID("uid-" + claim)},
			PersistentVolumeSource: v1.PersistentVolumeSource{CSI: &v1.CSIPersistentVolumeSource{Driver: driver, VolumeHandle: "h-" + name}},
		},
	}
}

// makeNode makes a managed node that is Ready. Its volumes are "attached <pv>" and "in-use <pv>".
func makeNode(name string, volumes ...string) *v1.Node {
	node := &v1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name), Annotations: map[string]string{ControllerManagedAttachAnnotation: "true"}},
		Status:     v1.NodeStatus{Conditions: []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionTrue}}},
	}
	for _, v := range volumes {
		if pv, ok := strings.CutPrefix(v, "attached "); ok {
			node.Status.VolumesAttached = append(node.Status.VolumesAttached, v1.AttachedVolume{Name: unique(pv), DevicePath: "/dev/" + pv})
		} else if pv, ok := strings.CutPrefix(v, "in-use "); ok {
			node.Status.VolumesInUse = append(node.Status.VolumesInUse, unique(pv))
		} else {
			panic(v)
		}
	}
	return node
}

func makeAttachment(name, pv, node string) *storagev1.VolumeAttachment {
	return &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: storagev1.VolumeAttachmentSpec{
			Attacher: driver, NodeName: node, Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &pv},
		},
		Status: storagev1.VolumeAttachmentStatus{Attached: true},
	}
}

var errLister = errors.New("the lister is broken")

// subtests runs each case in a subtest of its name.
func subtests[C any](t *testing.T, cases map[string]C, test func(t *testing.T, tc C)) {
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) { test(t, tc) })
	}
}
