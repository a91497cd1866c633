package benchmark

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	clientcache "k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	adcache "k8s.io/kubernetes/pkg/controller/volume/attachdetach/cache"
	adreconciler "k8s.io/kubernetes/pkg/controller/volume/attachdetach/reconciler"
	"k8s.io/kubernetes/pkg/controller/volume/attachdetach/statusupdater"
	"k8s.io/kubernetes/pkg/volume"
	"k8s.io/kubernetes/pkg/volume/util/operationexecutor"
	volumetypes "k8s.io/kubernetes/pkg/volume/util/types"

	"github.com/stateofworld/stateofworld/reconciler/benchmark/internal/fleet"
)

var noLog = logr.Discard()

// kube is Kubernetes' attach/detach controller: its caches, its operation executor, its status updater and its reconciler, on a
// volume plugin and an API that cost nothing.
type kube struct {
	desired    adcache.DesiredStateOfWorld
	actual     *countingActual
	driver     *driver
	reconciler adreconciler.Reconciler
	passed     atomic.Pointer[func()] // called at the end of each pass
	stop       func()
}

// kubePeriod is that of the controller.
const kubePeriod = 100 * time.Millisecond

// newKube returns empty worlds and a reconciler that does not run. It asks the API, which may be nil if nothing is detached,
// before each detach, and writes the status of nodes only if it publishes.
func newKube(tb testing.TB, api *nodeAPI, publishes bool) *kube {
	tb.Helper()
	k := &kube{driver: &driver{}, stop: func() {}}
	plugins := &volume.VolumePluginMgr{}
	if err := plugins.InitPlugins([]volume.VolumePlugin{kubePlugin{driver: k.driver}}, nil, nil); err != nil {
		tb.Fatal(err)
	}
	k.desired = adcache.NewDesiredStateOfWorld(plugins)
	k.actual = &countingActual{ActualStateOfWorld: adcache.NewActualStateOfWorld(plugins), written: make(chan struct{}, 1)}
	updater := statusupdater.NewFakeNodeStatusUpdater(false)
	lister := corelisters.NewNodeLister(clientcache.NewIndexer(clientcache.MetaNamespaceKeyFunc, clientcache.Indexers{}))
	client := kubeClient{core: kubeCore{nodes: kubeNodes{api: api}}}
	if api != nil {
		lister = corelisters.NewNodeLister(api.indexer)
	}
	if publishes {
		updater = statusupdater.NewNodeStatusUpdater(client, lister, k.actual)
	}
	executor := operationexecutor.NewOperationExecutor(operationexecutor.NewOperationGenerator(client, plugins, noEvents{}, nil))
	k.reconciler = adreconciler.NewReconciler(kubePeriod, 6*time.Minute, time.Hour, true, false,
		k.desired, k.actual, executor, passUpdater{updater, k}, lister, noEvents{})
	return k
}

// pass runs the reconciler's loop once: it is stopped at the end of its first pass.
func (k *kube) pass() {
	ctx, cancel := context.WithCancel(klog.NewContext(context.Background(), noLog))
	defer cancel()
	after := func() { cancel() }
	k.passed.Store(&after)
	k.reconciler.Run(ctx)
	k.passed.Store(nil)
}

// run starts the reconciler; stop ends it.
func (k *kube) run(tb testing.TB) {
	ctx, cancel := context.WithCancel(klog.NewContext(context.Background(), noLog))
	ended := make(chan struct{})
	go func() { defer close(ended); k.reconciler.Run(ctx) }()
	k.stop = sync.OnceFunc(func() { cancel(); <-ended })
	tb.Cleanup(k.stop)
}

func (k *kube) addNodes(f *fleet.Fleet) {
	for _, n := range f.Nodes {
		k.desired.AddNode(n)
		k.actual.SetVolumesMountedByNode(noLog, nil, n)
	}
}

func (k *kube) addPod(tb testing.TB, a *fleet.Attachment) {
	if _, err := k.desired.AddPod(volumetypes.UniquePodName(a.PodName), a.Pod, kubeSpec(a), a.Node); err != nil {
		tb.Fatal(err)
	}
}

func (k *kube) addPods(tb testing.TB, attachments []fleet.Attachment) {
	for i := range attachments {
		k.addPod(tb, &attachments[i])
	}
}

func (k *kube) deletePod(a *fleet.Attachment) {
	k.desired.DeletePod(volumetypes.UniquePodName(a.PodName), a.Volume, a.Node)
}

func (k *kube) markAttached(tb testing.TB, a *fleet.Attachment) {
	if err := k.actual.MarkVolumeAsAttached(noLog, a.Volume, kubeSpec(a), a.Node, fleet.DevicePath); err != nil {
		tb.Fatal(err)
	}
}

// fill makes everything wished and attached, without a reconciler.
func (k *kube) fill(tb testing.TB, f *fleet.Fleet) {
	k.addNodes(f)
	k.addPods(tb, f.Attachments)
	for i := range f.Attachments {
		k.markAttached(tb, &f.Attachments[i])
	}
}

// kubeSpec returns the spec in the type of Kubernetes, made once, as ours is.
func kubeSpec(a *fleet.Attachment) *volume.Spec { return a.Peer.(*volume.Spec) }

// countingActual is the actual world, and knows when an outcome has been written down.
type countingActual struct {
	adcache.ActualStateOfWorld
	attached, detached atomic.Int64
	written            chan struct{} // has something in it when either has grown
}

func (c *countingActual) MarkVolumeAsAttached(l klog.Logger, volume v1.UniqueVolumeName, spec *volume.Spec, node types.NodeName, path string) error {
	err := c.ActualStateOfWorld.MarkVolumeAsAttached(l, volume, spec, node, path)
	c.attached.Add(1)
	signal(c.written)
	return err
}

func (c *countingActual) MarkVolumeAsDetached(volume v1.UniqueVolumeName, node types.NodeName) {
	c.ActualStateOfWorld.MarkVolumeAsDetached(volume, node)
	c.detached.Add(1)
	signal(c.written)
}

// passUpdater tells when a pass has ended: updating the statuses is the last thing in it.
type passUpdater struct {
	statusupdater.NodeStatusUpdater
	kube *kube
}

func (u passUpdater) UpdateNodeStatuses(l klog.Logger) error {
	err := u.NodeStatusUpdater.UpdateNodeStatuses(l)
	if fn := u.kube.passed.Load(); fn != nil {
		(*fn)()
	}
	return err
}

// kubePlugin names volumes as the CSI plugin does, and hands attaches and detaches to the driver. The CSI plugin itself would
// make VolumeAttachment objects and wait for a sidecar.
type kubePlugin struct {
	volume.AttachableVolumePlugin // the methods that are not called here
	driver                        *driver
}

func (kubePlugin) Init(volume.VolumeHost) error { return nil }
func (kubePlugin) GetPluginName() string        { return "kubernetes.io/csi" }
func (kubePlugin) CanSupport(s *volume.Spec) bool {
	return s.PersistentVolume != nil && s.PersistentVolume.Spec.CSI != nil
}
func (kubePlugin) CanAttach(*volume.Spec) (bool, error) { return true, nil }
func (p kubePlugin) NewAttacher() (volume.Attacher, error) {
	return kubeAttacher{driver: p.driver}, nil
}
func (p kubePlugin) NewDetacher() (volume.Detacher, error) {
	return kubeDetacher{driver: p.driver}, nil
}
func (kubePlugin) GetVolumeName(s *volume.Spec) (string, error) {
	csi := s.PersistentVolume.Spec.CSI
	return csi.Driver + "^" + csi.VolumeHandle, nil
}

type kubeAttacher struct {
	volume.Attacher
	driver *driver
}

func (a kubeAttacher) Attach(s *volume.Spec, _ types.NodeName) (string, error) {
	a.driver.attach(context.Background(), s.PersistentVolume.Name)
	return fleet.DevicePath, nil
}

type kubeDetacher struct {
	volume.Detacher
	driver *driver
}

func (d kubeDetacher) Detach(string, types.NodeName) error {
	d.driver.detached.Add(1)
	return nil
}

// noEvents throws events away.
type noEvents struct{}

func (noEvents) Event(runtime.Object, string, string, string)          {}
func (noEvents) Eventf(runtime.Object, string, string, string, ...any) {}
func (noEvents) AnnotatedEventf(runtime.Object, map[string]string, string, string, string, ...any) {
}

// nodeAPI is the nodes of an API server, which both sides use: reads are answered at once, and each write takes its time.
type nodeAPI struct {
	indexer clientcache.Indexer
	takes   atomic.Int64 // a time.Duration
	reads   atomic.Int64
	writes  atomic.Int64
}

func newNodeAPI(tb testing.TB, f *fleet.Fleet) *nodeAPI {
	api := &nodeAPI{indexer: clientcache.NewIndexer(clientcache.MetaNamespaceKeyFunc, clientcache.Indexers{})}
	for _, n := range f.Nodes {
		node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: string(n)}}
		node.Status.Conditions = []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionTrue}}
		if err := api.indexer.Add(node); err != nil {
			tb.Fatal(err)
		}
	}
	return api
}

func (api *nodeAPI) node(name types.NodeName) (*v1.Node, error) {
	api.reads.Add(1)
	obj, ok, err := api.indexer.GetByKey(string(name))
	if err == nil && !ok {
		err = apierrors.NewNotFound(v1.Resource("nodes"), string(name))
	}
	if err != nil {
		return nil, err
	}
	return obj.(*v1.Node), nil
}

// Patch makes it a nodestatus.Nodes. What was written is not kept.
func (api *nodeAPI) Patch(_ context.Context, name string, _ types.PatchType, _ []byte, _ metav1.PatchOptions, _ ...string) (*v1.Node, error) {
	if d := time.Duration(api.takes.Load()); d > 0 {
		time.Sleep(d)
	}
	api.writes.Add(1)
	return api.node(types.NodeName(name))
}

// kubeClient leads to kubeNodes: the only part of the API that the controller uses here.
type kubeClient struct {
	kubernetes.Interface
	core kubeCore
}

func (c kubeClient) CoreV1() typedcorev1.CoreV1Interface { return c.core }

type kubeCore struct {
	typedcorev1.CoreV1Interface
	nodes kubeNodes
}

func (c kubeCore) Nodes() typedcorev1.NodeInterface { return c.nodes }

type kubeNodes struct {
	typedcorev1.NodeInterface
	api *nodeAPI
}

func (n kubeNodes) Get(_ context.Context, name string, _ metav1.GetOptions) (*v1.Node, error) {
	return n.api.node(types.NodeName(name))
}

func (n kubeNodes) Patch(ctx context.Context, name string, pt types.PatchType, data []byte, opts metav1.PatchOptions, sub ...string) (*v1.Node, error) {
	return n.api.Patch(ctx, name, pt, data, opts, sub...)
}
