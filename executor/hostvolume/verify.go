package hostvolume

import (
	"path"
	"reflect"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// verifier turns a spec into a plan and collects everything that is wrong with it. It looks at nothing but the spec and
// the settings.
type verifier struct {
	settings settings
	plan     plan
	byName   map[string]*volume
	faults   field.ErrorList
}

// verify reads a whole spec. The plan is of use only for what the faults do not mention.
func verify(spec *v1.PodSpec, s settings) (plan, field.ErrorList) {
	root := field.NewPath("spec")
	if spec == nil {
		return plan{}, field.ErrorList{field.Required(root, "there is no pod spec")}
	}
	v := &verifier{settings: s, byName: map[string]*volume{}}
	if sc := spec.SecurityContext; sc != nil && sc.FSGroup != nil {
		v.fault(field.Forbidden(root.Child("securityContext", "fsGroup"), "not supported: the group of a volume is not changed"))
	}
	for i := range spec.Volumes {
		v.volume(root.Child("volumes").Index(i), i, &spec.Volumes[i])
	}
	used := map[string]bool{}
	names := map[string]bool{}
	each := func(p *field.Path, c *v1.Container, ephemeral bool) {
		v.container(p, c, ephemeral, names)
		for i := range c.VolumeMounts {
			used[c.VolumeMounts[i].Name] = true
		}
	}
	for i := range spec.InitContainers {
		each(root.Child("initContainers").Index(i), &spec.InitContainers[i], false)
	}
	for i := range spec.Containers {
		each(root.Child("containers").Index(i), &spec.Containers[i], false)
	}
	for i := range spec.EphemeralContainers {
		c := v1.Container(spec.EphemeralContainers[i].EphemeralContainerCommon)
		each(root.Child("ephemeralContainers").Index(i), &c, true)
	}
	for i := range spec.Volumes {
		if name := spec.Volumes[i].Name; !used[name] {
			v.fault(field.Invalid(root.Child("volumes").Index(i).Child("name"), name, "no container mounts this volume"))
		}
	}
	v.sameDevice(root)
	for _, volume := range v.plan.volumes {
		volume.disk.readOnly = volume.disk.readOnly || !volume.written
	}
	return v.plan, v.faults
}

func (v *verifier) fault(err *field.Error) { v.faults = append(v.faults, err) }

func (v *verifier) container(p *field.Path, c *v1.Container, ephemeral bool, names map[string]bool) {
	v.name(p.Child("name"), c.Name)
	if names[c.Name] {
		v.fault(field.Duplicate(p.Child("name"), c.Name))
	}
	names[c.Name] = true
	if len(c.VolumeDevices) > 0 {
		v.fault(field.Forbidden(p.Child("volumeDevices"), "not supported: block devices are not passed to containers"))
	}
	privileged := c.SecurityContext != nil && c.SecurityContext.Privileged != nil && *c.SecurityContext.Privileged
	out := container{name: c.Name}
	mountPaths := map[string]bool{}
	for i := range c.VolumeMounts {
		m, mp := &c.VolumeMounts[i], p.Child("volumeMounts").Index(i)
		if mount, ok := v.mount(mp, m, privileged); ok {
			out.mounts = append(out.mounts, mount)
		}
		if ephemeral && m.SubPath != "" {
			v.fault(field.Forbidden(mp.Child("subPath"), "not allowed in an ephemeral container"))
		}
		clean := path.Clean(m.MountPath)
		if m.MountPath != "" && mountPaths[clean] {
			v.fault(field.Duplicate(mp.Child("mountPath"), m.MountPath))
		}
		mountPaths[clean] = true
	}
	v.plan.containers = append(v.plan.containers, out)
}

// mount reads one volume mount. It is not ok where the volume is not defined.
func (v *verifier) mount(p *field.Path, m *v1.VolumeMount, privileged bool) (volumeMount, bool) {
	v.onlyKnown(p, m, "Name", "MountPath", "ReadOnly", "SubPath", "MountPropagation", "RecursiveReadOnly")
	out := volumeMount{readOnly: m.ReadOnly, mountPath: path.Clean(m.MountPath)}
	switch reason := badAbsolutePath(m.MountPath); {
	case reason != "":
		v.fault(field.Invalid(p.Child("mountPath"), m.MountPath, reason))
	case out.mountPath == "/":
		v.fault(field.Invalid(p.Child("mountPath"), m.MountPath, "must not be the root of the container"))
	case strings.Contains(m.MountPath, ":"):
		v.fault(field.Invalid(p.Child("mountPath"), m.MountPath, "must not contain ':'"))
	}
	if m.SubPath != "" {
		out.subPath = path.Clean(m.SubPath)
		if strings.HasPrefix(m.SubPath, "/") {
			v.fault(field.Invalid(p.Child("subPath"), m.SubPath, "must be relative"))
		} else if reason := badPathCharacters(m.SubPath); reason != "" {
			v.fault(field.Invalid(p.Child("subPath"), m.SubPath, reason))
		}
		if out.subPath == "." {
			out.subPath = ""
		}
	}
	if m.MountPropagation != nil {
		switch mode := *m.MountPropagation; {
		case mode == v1.MountPropagationNone:
		case mode == v1.MountPropagationHostToContainer, mode == v1.MountPropagationBidirectional && privileged:
			out.propagation = mode
		case mode == v1.MountPropagationBidirectional:
			v.fault(field.Forbidden(p.Child("mountPropagation"), "Bidirectional is allowed only in a privileged container"))
		default:
			v.fault(field.NotSupported(p.Child("mountPropagation"), mode,
				[]v1.MountPropagationMode{v1.MountPropagationNone, v1.MountPropagationHostToContainer, v1.MountPropagationBidirectional}))
		}
	}
	v.recursiveReadOnly(p.Child("recursiveReadOnly"), m, out.propagation)

	volume, ok := v.byName[m.Name]
	if !ok {
		v.fault(field.NotFound(p.Child("name"), m.Name))
		return out, false
	}
	out.volume = volume
	if !m.ReadOnly {
		volume.written = true
		if volume.kind == kindDisk && volume.disk.readOnly {
			v.fault(field.Forbidden(p.Child("readOnly"), "must be true: the volume "+m.Name+" is read-only"))
		}
	}
	return out, true
}

func (v *verifier) recursiveReadOnly(p *field.Path, m *v1.VolumeMount, propagation v1.MountPropagationMode) {
	if m.RecursiveReadOnly == nil {
		return
	}
	mode := *m.RecursiveReadOnly
	switch {
	case mode == v1.RecursiveReadOnlyDisabled && m.ReadOnly:
	case !m.ReadOnly:
		v.fault(field.Forbidden(p, "may be set only where readOnly is true"))
	case mode == v1.RecursiveReadOnlyIfPossible && propagation != "":
		v.fault(field.Forbidden(p, "IfPossible does not go with mountPropagation"))
	case mode == v1.RecursiveReadOnlyIfPossible: // a binding cannot say it, so it is not possible
	case mode == v1.RecursiveReadOnlyEnabled:
		v.fault(field.Forbidden(p, "Enabled is not supported: a binding cannot say it"))
	default:
		v.fault(field.NotSupported(p, mode, []v1.RecursiveReadOnlyMode{v1.RecursiveReadOnlyDisabled, v1.RecursiveReadOnlyIfPossible}))
	}
}

// sameDevice finds volumes on one device by the paths of the devices; links to one device are found later, on the host.
func (v *verifier) sameDevice(root *field.Path) {
	for i, a := range v.plan.volumes {
		for _, b := range v.plan.volumes[:i] {
			if a.kind == kindDisk && b.kind == kindDisk && overlap(a.disk.path, b.disk.path) {
				v.fault(field.Invalid(root.Child("volumes").Index(a.index), a.name, "is on the same device as volume "+b.name))
			}
		}
	}
}

// overlap reports whether two device paths name the same device, or one a partition of the other.
func overlap(a, b string) bool {
	isPartition := func(p, of string) bool {
		number, ok := strings.CutPrefix(p, of+"-part")
		return ok && number != "" && strings.Trim(number, "0123456789") == ""
	}
	return a != "" && a == b || isPartition(a, b) || isPartition(b, a)
}

// name wants what Kubernetes calls a DNS label. It becomes a path component and a part of command lines.
func (v *verifier) name(p *field.Path, name string) {
	if name == "" {
		v.fault(field.Required(p, ""))
		return
	}
	if reasons := validation.IsDNS1123Label(name); len(reasons) > 0 {
		v.fault(field.Invalid(p, name, strings.Join(reasons, "; ")))
	}
}

// onlyKnown refuses every field of a struct of the API that is set and not named here, so that a field that is new in
// the API is never ignored silently.
func (v *verifier) onlyKnown(p *field.Path, object any, known ...string) {
	value := reflect.ValueOf(object).Elem()
	for i := range value.NumField() {
		f := value.Type().Field(i)
		if !value.Field(i).IsZero() && !slices.Contains(known, f.Name) {
			v.fault(field.Forbidden(p.Child(jsonName(f)), "not supported"))
		}
	}
}

func jsonName(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	if name == "" {
		return f.Name
	}
	return name
}
