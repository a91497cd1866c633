package cache

import (
	"fmt"
	"reflect"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// VolumePlugin knows one kind of volume. Its methods are pure: no I/O, no waiting, and safe for concurrent
// use. The worlds call them outside their locks.
type VolumePlugin interface {
	// GetPluginName returns the name of the plugin, as in "kubernetes.io/csi". It never changes and is not
	// empty.
	GetPluginName() string
	// CanSupport says whether the spec is of this plugin's kind. At most one plugin may say so.
	CanSupport(spec *VolumeSpec) bool
	// GetVolumeName returns a name that is unique within the plugin and the same for every spec of the same
	// volume.
	GetVolumeName(spec *VolumeSpec) (string, error)
	// CanAttach says whether the volume has to be attached to a node before it can be mounted there.
	CanAttach(spec *VolumeSpec) (bool, error)
	// CanMultiAttach says whether this use allows other nodes to have the volume at the same time. False
	// makes the volume exclusive for as long as the use lasts.
	CanMultiAttach(spec *VolumeSpec) bool
}

// VolumePluginMgr finds the plugin of a spec. It is immutable and safe for concurrent use. A nil
// VolumePluginMgr has no plugins.
type VolumePluginMgr struct {
	plugins []VolumePlugin
	err     error
}

// NewVolumePluginMgr returns a manager of the plugins. A nil plugin, one without a name, and two of the same
// name are errors that Validate and every Find method return.
func NewVolumePluginMgr(plugins ...VolumePlugin) *VolumePluginMgr {
	m := &VolumePluginMgr{plugins: append([]VolumePlugin(nil), plugins...)}
	m.err = validatePlugins(m.plugins)
	return m
}

func validatePlugins(plugins []VolumePlugin) error {
	seen := make(map[string]bool, len(plugins))
	for i, p := range plugins {
		if isNil(p) {
			return &InvalidError{Field: fmt.Sprintf("volume plugin %d", i), Reason: "must not be nil"}
		}
		name := p.GetPluginName()
		if name == "" {
			return &InvalidError{Field: fmt.Sprintf("volume plugin %d", i), Value: fmt.Sprintf("%T", p), Reason: "must have a name"}
		}
		if seen[name] {
			return &InvalidError{Field: "volume plugin", Value: name, Reason: "is registered twice"}
		}
		seen[name] = true
	}
	return nil
}

// isNil also finds a nil pointer inside the interface, the usual slip of a constructor that failed.
func isNil(p VolumePlugin) bool {
	if p == nil {
		return true
	}
	v := reflect.ValueOf(p)
	return v.Kind() == reflect.Pointer && v.IsNil()
}

// Validate returns the error of the registration, an [*InvalidError], or nil.
func (m *VolumePluginMgr) Validate() error {
	if m == nil {
		return nil
	}
	return m.err
}

// FindPluginBySpec returns the one plugin that supports the spec. Errors: [*InvalidError] for a bad spec or a
// bad registration, [ErrNoPlugin], [ErrAmbiguousPlugin].
func (m *VolumePluginMgr) FindPluginBySpec(spec *VolumeSpec) (VolumePlugin, error) {
	if err := m.Validate(); err != nil {
		return nil, err
	}
	if err := spec.Validate(); err != nil {
		return nil, err
	}
	var found VolumePlugin
	if m != nil {
		for _, p := range m.plugins {
			if !p.CanSupport(spec) {
				continue
			}
			if found != nil {
				return nil, fmt.Errorf("volume %q: %w: %s", spec.Name(), ErrAmbiguousPlugin, strings.Join(m.supporting(spec), ", "))
			}
			found = p
		}
	}
	if found == nil {
		return nil, fmt.Errorf("volume %q: %w", spec.Name(), ErrNoPlugin)
	}
	return found, nil
}

func (m *VolumePluginMgr) supporting(spec *VolumeSpec) []string {
	var names []string
	for _, p := range m.plugins {
		if p.CanSupport(spec) {
			names = append(names, p.GetPluginName())
		}
	}
	return names
}

// FindPluginByName returns the plugin that a volume of the name belongs to, by the name's first part. Errors: an [*InvalidError] for a bad
// registration, [ErrNoPlugin].
func (m *VolumePluginMgr) FindPluginByName(volume v1.UniqueVolumeName) (VolumePlugin, error) {
	if err := m.Validate(); err != nil {
		return nil, err
	}
	if m != nil {
		for _, p := range m.plugins {
			if rest, ok := strings.CutPrefix(string(volume), p.GetPluginName()); ok && strings.HasPrefix(rest, "/") {
				return p, nil
			}
		}
	}
	return nil, fmt.Errorf("volume %q: %w", volume, ErrNoPlugin)
}

// FindAttachablePluginBySpec is FindPluginBySpec for volumes that are attached to nodes. Further errors:
// [ErrNotAttachable], and what the plugin's CanAttach returns.
func (m *VolumePluginMgr) FindAttachablePluginBySpec(spec *VolumeSpec) (VolumePlugin, error) {
	plugin, err := m.FindPluginBySpec(spec)
	if err != nil {
		return nil, err
	}
	attachable, err := plugin.CanAttach(spec)
	if err != nil {
		return nil, fmt.Errorf("volume %q: plugin %q: is it attachable: %w", spec.Name(), plugin.GetPluginName(), err)
	}
	if !attachable {
		return nil, fmt.Errorf("volume %q: plugin %q: %w", spec.Name(), plugin.GetPluginName(), ErrNotAttachable)
	}
	return plugin, nil
}

// UniqueVolumeName returns the name under which both worlds keep the volume of the spec: the plugin's name,
// "/", and the plugin's name of the volume, as Kubernetes writes it. Errors: those of
// FindAttachablePluginBySpec and of the plugin's GetVolumeName.
func (m *VolumePluginMgr) UniqueVolumeName(spec *VolumeSpec) (v1.UniqueVolumeName, error) {
	_, name, err := m.resolve(spec)
	return name, err
}

// resolve finds the attachable plugin of the spec, and the unique name of its volume.
func (m *VolumePluginMgr) resolve(spec *VolumeSpec) (VolumePlugin, v1.UniqueVolumeName, error) {
	plugin, err := m.FindAttachablePluginBySpec(spec)
	if err != nil {
		return nil, "", err
	}
	name, err := plugin.GetVolumeName(spec)
	if err == nil && name == "" {
		err = &InvalidError{Field: "volume name", Reason: "from the plugin must not be empty"}
	}
	if err != nil {
		return nil, "", fmt.Errorf("volume %q: plugin %q: name of the volume: %w", spec.Name(), plugin.GetPluginName(), err)
	}
	return plugin, v1.UniqueVolumeName(plugin.GetPluginName() + "/" + name), nil
}
