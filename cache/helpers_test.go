package cache

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
)

// t0 is when the clock of every test starts.
var t0 = time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)

const testDriver = "disk.example.com"

// pvSpec returns the spec of a CSI volume. Without modes it may be attached to many nodes, with ReadWriteOnce
// it is exclusive.
func pvSpec(handle string, modes ...v1.PersistentVolumeAccessMode) *VolumeSpec {
	return NewSpecFromPersistentVolume(&v1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: "pv-" + handle},
		Spec: v1.PersistentVolumeSpec{
			AccessModes:            modes,
			PersistentVolumeSource: v1.PersistentVolumeSource{CSI: &v1.CSIPersistentVolumeSource{Driver: testDriver, VolumeHandle: handle}},
		},
	}, false)
}

func exclusiveSpec(handle string) *VolumeSpec { return pvSpec(handle, v1.ReadWriteOnce) }

// volumeName is the name of the volume of pvSpec(handle).
func volumeName(handle string) v1.UniqueVolumeName {
	return v1.UniqueVolumeName("kubernetes.io/csi/" + testDriver + "^" + handle)
}

func testPod(name string) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID("uid-" + name)}}
}

// testPlugin is a plugin whose every answer is a field: it supports inline volumes whose name begins with its
// own.
type testPlugin struct {
	name       string
	volumeName string
	attachable bool
	multi      bool
	err        error
	called     func()
}

func (p *testPlugin) GetPluginName() string { return p.name }
func (p *testPlugin) CanSupport(spec *VolumeSpec) bool {
	return spec.Volume != nil && strings.HasPrefix(spec.Volume.Name, p.name)
}
func (p *testPlugin) GetVolumeName(*VolumeSpec) (string, error) { return p.volumeName, p.err }
func (p *testPlugin) CanAttach(*VolumeSpec) (bool, error) {
	if p.called != nil {
		p.called()
	}
	return p.attachable, nil
}
func (p *testPlugin) CanMultiAttach(*VolumeSpec) bool { return p.multi }

func inlineSpec(name string) *VolumeSpec { return NewSpecFromVolume(&v1.Volume{Name: name}) }

var errTest = errors.New("test error")

// newDesired returns a world on a fake clock with the nodes a and b, whose invariants are checked at the end
// of the test.
func newDesired(t testing.TB) (*DesiredStateOfWorld, *clocktesting.FakePassiveClock) {
	clock := clocktesting.NewFakePassiveClock(t0)
	w := NewDesiredStateOfWorld(NewVolumePluginMgr(CSIPlugin{}), WithClock(clock))
	w.AddNode("a")
	w.AddNode("b")
	t.Cleanup(func() { require.NoError(t, w.CheckInvariants()) })
	return w, clock
}

// newActual returns a world on a fake clock, whose invariants are checked at the end of the test.
func newActual(t testing.TB) (*ActualStateOfWorld, *clocktesting.FakePassiveClock) {
	clock := clocktesting.NewFakePassiveClock(t0)
	w := NewActualStateOfWorld(NewVolumePluginMgr(CSIPlugin{}), WithClock(clock))
	t.Cleanup(func() { require.NoError(t, w.CheckInvariants()) })
	return w, clock
}

// recorder collects what a subscriber is told.
type recorder[T any] struct{ seen []T }

func (r *recorder[T]) add(x T) { r.seen = append(r.seen, x) }

// take returns what was told since the last call.
func (r *recorder[T]) take() []T {
	seen := r.seen
	r.seen = nil
	return seen
}

func pairOf(handle string, node types.NodeName) Pair {
	return Pair{Volume: volumeName(handle), Node: node}
}

func reportNames(volumes []v1.AttachedVolume) []string {
	names := []string{}
	for _, v := range volumes {
		_, handle, _ := strings.Cut(string(v.Name), "^")
		names = append(names, handle)
	}
	return names
}

func mustAddPod(t testing.TB, w *DesiredStateOfWorld, pod string, spec *VolumeSpec, node types.NodeName) v1.UniqueVolumeName {
	t.Helper()
	name, err := w.AddPod(UniquePodName(pod), testPod(pod), spec, node)
	require.NoError(t, err)
	return name
}

func mustAttach(t testing.TB, w *ActualStateOfWorld, handle string, node types.NodeName) v1.UniqueVolumeName {
	t.Helper()
	name, err := w.AddVolumeNode(pvSpec(handle), node, "/dev/"+handle)
	require.NoError(t, err)
	return name
}

func requireInvalid(t testing.TB, err error, field string) {
	t.Helper()
	require.ErrorIs(t, err, ErrInvalid)
	var invalid *InvalidError
	require.ErrorAs(t, err, &invalid)
	require.Equal(t, field, invalid.Field, fmt.Sprint(err))
}

// dedup is for steps of several calls, each of which may tell of the same thing.
func dedup[T comparable](told []T) []T {
	set := map[T]bool{}
	for _, x := range told {
		set[x] = true
	}
	return slices.Collect(maps.Keys(set))
}

// requireSame is require.Equal, but fast as long as it holds: the models ask thousands of times.
func requireSame[T any](t require.TestingT, want, got T) {
	if !reflect.DeepEqual(want, got) {
		require.Equal(t, want, got)
	}
}
