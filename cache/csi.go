package cache

import (
	v1 "k8s.io/api/core/v1"
)

// csiPluginName is the name of Kubernetes' own plugin for CSI: node objects carry names that begin with it.
const csiPluginName = "kubernetes.io/csi"

// csiSeparator stands between driver and handle in the name of a CSI volume.
const csiSeparator = "^"

// CSIPlugin is the plugin of every CSI driver. It names volumes as Kubernetes does, so that the names in
// node.status.volumesInUse and volumesAttached are the ones of the worlds:
// "kubernetes.io/csi/<driver>^<handle>". Inline CSI volumes of a pod (ephemeral ones) are supported, but not
// attachable: they live and die with the pod.
type CSIPlugin struct {
	// AttachRequired says whether volumes of the driver are attached at all, as spec.attachRequired of the
	// CSIDriver object does. It must be fast and safe for concurrent use. Nil means every driver.
	AttachRequired func(driver string) bool
}

var _ VolumePlugin = CSIPlugin{}

// GetPluginName returns "kubernetes.io/csi".
func (CSIPlugin) GetPluginName() string { return csiPluginName }

// CanSupport says whether the spec is a CSI volume, persistent or inline.
func (CSIPlugin) CanSupport(spec *VolumeSpec) bool {
	return spec != nil && (spec.Volume != nil && spec.Volume.CSI != nil || csiSource(spec) != nil)
}

// GetVolumeName returns "<driver>^<handle>". It fails with [*InvalidError] for anything but a persistent CSI
// volume with both names.
func (CSIPlugin) GetVolumeName(spec *VolumeSpec) (string, error) {
	source := csiSource(spec)
	if source == nil {
		return "", &InvalidError{Field: "volume spec", Value: spec.Name(), Reason: "must be a persistent CSI volume"}
	}
	if err := requireName("CSI driver", source.Driver); err != nil {
		return "", err
	}
	if err := requireName("CSI volume handle", source.VolumeHandle); err != nil {
		return "", err
	}
	return source.Driver + csiSeparator + source.VolumeHandle, nil
}

// CanAttach is true for persistent volumes of drivers that require it.
func (p CSIPlugin) CanAttach(spec *VolumeSpec) (bool, error) {
	source := csiSource(spec)
	if source == nil {
		return false, nil
	}
	return p.AttachRequired == nil || p.AttachRequired(source.Driver), nil
}

// CanMultiAttach follows the access modes of the persistent volume, see [AccessModesAllowMultiAttach].
func (CSIPlugin) CanMultiAttach(spec *VolumeSpec) bool {
	if spec == nil || spec.PersistentVolume == nil {
		return true
	}
	return AccessModesAllowMultiAttach(spec.PersistentVolume.Spec.AccessModes)
}

// csiSource returns the CSI source of a persistent volume, or nil.
func csiSource(spec *VolumeSpec) *v1.CSIPersistentVolumeSource {
	if spec == nil || spec.PersistentVolume == nil {
		return nil
	}
	return spec.PersistentVolume.Spec.CSI
}

// AccessModesAllowMultiAttach is Kubernetes' rule for persistent volumes: ReadWriteMany or ReadOnlyMany among
// the modes allows several nodes, and so does having no mode at all, since then nobody knows and the driver
// has to refuse.
func AccessModesAllowMultiAttach(modes []v1.PersistentVolumeAccessMode) bool {
	for _, mode := range modes {
		if mode == v1.ReadWriteMany || mode == v1.ReadOnlyMany {
			return true
		}
	}
	return len(modes) == 0
}
