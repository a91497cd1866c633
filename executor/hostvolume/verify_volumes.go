package hostvolume

import (
	"fmt"
	"io/fs"
	"math"
	"path"
	"reflect"
	"regexp"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func (v *verifier) volume(p *field.Path, index int, spec *v1.Volume) {
	v.name(p.Child("name"), spec.Name)
	out := &volume{name: spec.Name, index: index}
	if _, ok := v.byName[spec.Name]; ok {
		v.fault(field.Duplicate(p.Child("name"), spec.Name))
	} else {
		v.byName[spec.Name] = out
	}
	v.plan.volumes = append(v.plan.volumes, out)

	sources := sourcesOf(&spec.VolumeSource)
	if len(sources) != 1 {
		v.fault(field.Invalid(p, spec.Name, fmt.Sprintf("must have exactly one source, has %d%s", len(sources), inParentheses(sources))))
	}
	for _, source := range sources {
		switch sp := p.Child(source); source {
		case "emptyDir":
			v.emptyDir(sp, spec.EmptyDir, out)
		case "hostPath":
			v.hostPath(sp, spec.HostPath, out)
		case "gcePersistentDisk":
			v.persistentDisk(sp, spec.GCEPersistentDisk, out)
		default:
			v.fault(field.Forbidden(sp, "not supported; use emptyDir, hostPath or gcePersistentDisk"))
		}
	}
	if _, ok := v.settings.Devices[spec.Name]; ok && out.kind != kindDisk {
		v.fault(field.Invalid(p, spec.Name, "is to be mounted as a device, so it must be a hostPath of type BlockDevice"))
	}
}

// sourcesOf are the JSON names of the sources that are set, known to this package or not.
func sourcesOf(source *v1.VolumeSource) []string {
	var names []string
	value := reflect.ValueOf(source).Elem()
	for i := range value.NumField() {
		if !value.Field(i).IsZero() {
			names = append(names, jsonName(value.Type().Field(i)))
		}
	}
	return names
}

func inParentheses(names []string) string {
	if len(names) == 0 {
		return ""
	}
	return " (" + strings.Join(names, ", ") + ")"
}

func (v *verifier) emptyDir(p *field.Path, source *v1.EmptyDirVolumeSource, out *volume) {
	v.onlyKnown(p, source, "Medium", "SizeLimit", "Mode")
	out.mode = 0o777
	if source.Mode != nil {
		if *source.Mode < 0 || *source.Mode > 0o1777 {
			v.fault(field.Invalid(p.Child("mode"), *source.Mode, "must be between 0 and 01777"))
		}
		out.mode = fs.FileMode(*source.Mode) & fs.ModePerm
		if *source.Mode&0o1000 != 0 {
			out.mode |= fs.ModeSticky
		}
	}
	switch source.Medium {
	case v1.StorageMediumMemory:
		out.kind = kindTmpfs
	case v1.StorageMediumDefault:
		out.kind = kindDirectory
	default:
		v.fault(field.NotSupported(p.Child("medium"), source.Medium, []v1.StorageMedium{v1.StorageMediumDefault, v1.StorageMediumMemory}))
	}
	if limit := source.SizeLimit; limit != nil && !limit.IsZero() {
		switch {
		case limit.Sign() < 0:
			v.fault(field.Invalid(p.Child("sizeLimit"), limit.String(), "must not be negative"))
		case limit.CmpInt64(math.MaxInt64-maxPageSize) > 0:
			v.fault(field.Invalid(p.Child("sizeLimit"), limit.String(), "is too large"))
		case out.kind == kindDirectory:
			v.fault(field.Forbidden(p.Child("sizeLimit"), "can be enforced only for medium Memory"))
		default:
			out.size = limit.Value() // rounds up
		}
	}
}

func (v *verifier) hostPath(p *field.Path, source *v1.HostPathVolumeSource, out *volume) {
	v.onlyKnown(p, source, "Path", "Type")
	out.kind, out.hostPath = kindHostPath, path.Clean(source.Path)
	switch reason := badAbsolutePath(source.Path); {
	case reason != "":
		v.fault(field.Invalid(p.Child("path"), source.Path, reason))
	case out.hostPath == v.settings.BaseDir || below(v.settings.BaseDir, out.hostPath):
		v.fault(field.Invalid(p.Child("path"), source.Path, "must not be inside "+v.settings.BaseDir+", which is taken down as a whole"))
	}
	if source.Type != nil {
		out.hostPathType = *source.Type
	}
	if !slices.Contains(hostPathTypes, out.hostPathType) {
		v.fault(field.NotSupported(p.Child("type"), out.hostPathType, hostPathTypes))
	}
	if device, ok := v.settings.Devices[out.name]; ok && out.hostPathType == v1.HostPathBlockDev {
		out.kind = kindDisk
		out.disk = disk{path: out.hostPath, fsType: orDefault(device.FSType), readOnly: device.ReadOnly, options: device.MountOptions}
	}
}

var hostPathTypes = []v1.HostPathType{
	v1.HostPathUnset, v1.HostPathDirectoryOrCreate, v1.HostPathDirectory, v1.HostPathFileOrCreate,
	v1.HostPathFile, v1.HostPathSocket, v1.HostPathCharDev, v1.HostPathBlockDev,
}

// deviceName is what may follow "google-" in the name of a link. It becomes a path component and a part of command
// lines.
var deviceName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:-]{0,199}$`)

func (v *verifier) persistentDisk(p *field.Path, source *v1.GCEPersistentDiskVolumeSource, out *volume) {
	v.onlyKnown(p, source, "PDName", "FSType", "Partition", "ReadOnly")
	out.kind = kindDisk
	out.disk = disk{deviceName: source.PDName, fsType: orDefault(source.FSType), readOnly: source.ReadOnly}
	switch {
	case source.PDName == "":
		v.fault(field.Required(p.Child("pdName"), ""))
	case !deviceName.MatchString(source.PDName):
		v.fault(field.Invalid(p.Child("pdName"), source.PDName, "must be a device name: letters, digits, '.', '_', ':' and '-', starting with a letter or digit"))
	default:
		out.disk.path = path.Join(v.settings.DeviceDir, "google-"+source.PDName)
		if source.Partition > 0 {
			out.disk.path += fmt.Sprintf("-part%d", source.Partition)
		}
	}
	if source.Partition < 0 {
		v.fault(field.Invalid(p.Child("partition"), source.Partition, "must not be negative"))
	}
	if !slices.Contains(FSTypes(), out.disk.fsType) {
		v.fault(field.NotSupported(p.Child("fsType"), source.FSType, FSTypes()))
	}
}

func orDefault(fsType string) string {
	if fsType == "" {
		return defaultFSType
	}
	return fsType
}
