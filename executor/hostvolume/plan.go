package hostvolume

import (
	"io/fs"
	"path"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// plan is a verified spec: what to make, and what to return for it.
type plan struct {
	volumes    []*volume // in the order of the spec
	containers []container
}

// container is one container of any kind and its mounts in the order of the spec.
type container struct {
	name   string
	mounts []volumeMount
}

type volumeMount struct {
	volume      *volume
	mountPath   string
	subPath     string // clean and relative, or empty
	readOnly    bool
	propagation v1.MountPropagationMode
}

type volumeKind int

const (
	kindUnsupported volumeKind = iota
	kindTmpfs
	kindDirectory
	kindHostPath
	kindDisk
)

// family is the directory below the base directory that the volumes of a kind are in.
func (v *volume) family() string {
	switch {
	case v.kind == kindTmpfs:
		return "tmpfss"
	case v.kind == kindDirectory:
		return "emptydirs"
	case v.disk.deviceName != "":
		return "gce-persistent-disks"
	default:
		return "block-devices"
	}
}

// families are all directories that family can name.
var families = []string{"tmpfss", "emptydirs", "gce-persistent-disks", "block-devices"}

// volume is one volume of the spec. Which fields count depends on its kind.
type volume struct {
	name    string
	index   int // in the spec
	kind    volumeKind
	written bool // some container mounts it for writing

	mode fs.FileMode // tmpfs, directory
	size int64       // tmpfs: bytes, 0 is the kernel's default

	hostPath     string
	hostPathType v1.HostPathType

	disk disk
}

// disk is a block device that is to be mounted.
type disk struct {
	deviceName string // of a persistent disk in the list of attached disks; empty for a device by path
	path       string // as asked for; usually a link
	fsType     string
	readOnly   bool // never to be written: the source says so, nobody wants to write, or it is attached that way
	options    []string
}

// needsDevice reports whether a volume is a block device, to be mounted or to be passed on.
func (v *volume) needsDevice() bool {
	return v.kind == kindDisk || v.kind == kindHostPath && v.hostPathType == v1.HostPathBlockDev
}

// mountPoint is where the volume belongs below base.
func (v *volume) mountPoint(base string) string { return path.Join(base, v.family(), v.name) }

// mountOptions are those of the disk's mount.
func (d *disk) mountOptions(skipReplay bool) string {
	options := []string{"rw"}
	if d.readOnly {
		options[0] = "ro"
		if skipReplay {
			switch d.fsType {
			case "ext3", "ext4":
				options = append(options, "noload")
			case "xfs":
				options = append(options, "norecovery")
			}
		}
	}
	return strings.Join(append(options, d.options...), ",")
}

// below reports whether p is inside the directory base, which itself is not. Both are absolute; they are compared by
// whole components.
func below(base, p string) bool {
	base, p = path.Clean(base), path.Clean(p)
	if base == "/" {
		return p != "/"
	}
	return strings.HasPrefix(p, base+"/")
}

// badAbsolutePath says what is wrong with a path of the host or of a container, or nothing.
func badAbsolutePath(p string) string {
	switch {
	case p == "":
		return "must not be empty"
	case !strings.HasPrefix(p, "/"):
		return "must be absolute"
	}
	return badPathCharacters(p)
}

func badPathCharacters(p string) string {
	for _, component := range strings.Split(p, "/") {
		if component == ".." {
			return "must not contain \"..\""
		}
	}
	if strings.ContainsFunc(p, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		return "must not contain control characters"
	}
	return ""
}
