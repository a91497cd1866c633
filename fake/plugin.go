package fake

import (
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/stateofworld/stateofworld/cache"
)

// PluginName is the name of Plugin, and so the first part of the unique names of its volumes.
const PluginName = "fake"

// Plugin is a volume plugin that supports every persistent volume and names it by its name: "fake/vol-1" for "vol-1".
type Plugin struct{}

// GetPluginName returns PluginName.
func (Plugin) GetPluginName() string { return PluginName }

// CanSupport reports whether spec is of a persistent volume.
func (Plugin) CanSupport(spec *cache.VolumeSpec) bool { return spec.PersistentVolume != nil }

// GetVolumeName returns the volume's name.
func (Plugin) GetVolumeName(spec *cache.VolumeSpec) (string, error) {
	return spec.PersistentVolume.Name, nil
}

// CanAttach is always true.
func (Plugin) CanAttach(*cache.VolumeSpec) (bool, error) { return true, nil }

// CanMultiAttach decides by the access modes, as Kubernetes does.
func (Plugin) CanMultiAttach(spec *cache.VolumeSpec) bool {
	return cache.AccessModesAllowMultiAttach(spec.PersistentVolume.Spec.AccessModes)
}

// VolumeName returns the unique name that Plugin gives a volume.
func VolumeName(short string) v1.UniqueVolumeName {
	return v1.UniqueVolumeName(PluginName + "/" + short)
}

// Short returns the name without the plugin, as the recorded calls have it.
func Short(volume v1.UniqueVolumeName) string {
	return strings.TrimPrefix(string(volume), PluginName+"/")
}

// Spec returns the spec of a persistent volume with the access mode.
func Spec(name string, mode v1.PersistentVolumeAccessMode) *cache.VolumeSpec {
	return cache.NewSpecFromPersistentVolume(&v1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       v1.PersistentVolumeSpec{AccessModes: []v1.PersistentVolumeAccessMode{mode}},
	}, false)
}

// NewPod returns a pod object. Name is "namespace/name", or a name in namespace default.
func NewPod(name string) *v1.Pod {
	namespace, short, ok := strings.Cut(name, "/")
	if !ok {
		namespace, short = "default", name
	}
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: short}}
}
