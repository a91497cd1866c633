package hostvolume

import (
	"context"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"

	"github.com/stateofworld/stateofworld/executor/command"
)

// Defaults of [Options].
const (
	DefaultBaseDir       = "/mnt/disks/gce-containers-mounts"
	DefaultDeviceDir     = "/dev/disk/by-id"
	DefaultDeviceWait    = 10 * time.Second
	DefaultDeviceTimeout = time.Hour
)

// Env prepares volumes on one host. Fill in the exported fields before the first call and leave them alone afterwards.
// An Env must not be copied after its first use. Its methods may be called from several goroutines; calls that change
// the host wait for each other.
type Env struct {
	// Runner is where everything happens: command.Host for this process' namespaces, command.NSEnter for those of the
	// host, seen from inside a container. Required.
	Runner command.Runner
	// Metadata lists the attached disks. Required for specs that have a gcePersistentDisk.
	Metadata Metadata
	// Clock is for waiting for devices. Default: the real clock.
	Clock clock.Clock
	// Options are everything else.
	Options Options

	once    sync.Once
	turn    chan struct{} // holds one token, taken by the call that works on the host
	flights flights
	seen    seen
}

// Options configure an [Env]. The zero value is usable.
type Options struct {
	// BaseDir is the absolute directory below which everything is mounted, and below which UnmountExistingVolumes
	// unmounts everything. Default: DefaultBaseDir.
	BaseDir string
	// StateDir is an absolute directory on a filesystem that outlives a restart, outside BaseDir, for an empty file for
	// each device on which a filesystem was seen. Default: none, what was seen is remembered for the life of the Env.
	StateDir string
	// DeviceDir is the directory in which google-<device name> links to the device of a persistent disk. Default:
	// DefaultDeviceDir.
	DeviceDir string
	// Devices says, by the name of the volume, which hostPath volumes of type BlockDevice are to be mounted as
	// filesystems.
	Devices map[string]Device
	// Format says when a filesystem may be made.
	Format FormatPolicy
	// FirstUse names volumes of which the caller knows that nobody has ever stored anything on them: they are formatted
	// if no filesystem is recognised, also when they are not zero. It is believed once for each device, so it needs
	// StateDir.
	FirstUse []string
	// Fsck says whether an ext filesystem is checked before it is mounted for writing.
	Fsck FsckPolicy
	// SkipReplay mounts what is only to be read without replaying its journal (noload, norecovery), so that a
	// write-protected device that was not cleanly unmounted can be read, in the state it was left in.
	SkipReplay bool
	// MkfsOptions are arguments for mkfs by filesystem type, for instance {"ext4": {"-m", "0"}}.
	MkfsOptions map[string][]string
	// DeviceWait is how long to wait for a device node to appear. Default: DefaultDeviceWait. Negative: not at all.
	DeviceWait time.Duration
	// DeviceTimeout is the longest that mkfs and fsck may take for one device, whatever the caller's deadline. Default:
	// DefaultDeviceTimeout.
	DeviceTimeout time.Duration
}

// Device says how a block device is mounted.
type Device struct {
	// FSType is the filesystem: one of FSTypes. Default: ext4.
	FSType string
	// ReadOnly mounts it read-only even if a container wants to write (which is then a fault of the spec).
	ReadOnly bool
	// MountOptions are more options for mount, for instance nouuid for a clone of an xfs. ro and rw are not among them.
	MountOptions []string
}

// FormatPolicy says when a filesystem may be made on a device.
type FormatPolicy int

const (
	// FormatIfBlank formats what is proven blank, and what FirstUse names.
	FormatIfBlank FormatPolicy = iota
	// FormatNever formats nothing.
	FormatNever
)

// FsckPolicy says when a filesystem is checked.
type FsckPolicy int

const (
	// FsckPreen runs fsck -p on ext filesystems before they are mounted for writing: it repairs what can be repaired
	// without asking.
	FsckPreen FsckPolicy = iota
	// FsckNever checks nothing.
	FsckNever
)

// FSTypes are the supported filesystems.
func FSTypes() []string { return []string{"ext2", "ext3", "ext4", "xfs"} }

const defaultFSType = "ext4"

// HostPathBindConfiguration is one bind mount of a container.
type HostPathBindConfiguration struct {
	HostPath      string `json:"hostPath"`
	ContainerPath string `json:"containerPath"`
	ReadOnly      bool   `json:"readOnly,omitempty"`
	// MountPropagation is HostToContainer (rslave) or Bidirectional (rshared) where the spec asks for it, else empty.
	MountPropagation v1.MountPropagationMode `json:"mountPropagation,omitempty"`
}

// settings are the options with their defaults filled in.
type settings struct {
	Options
	firstUse map[string]bool
}

// settings validates the configuration as a whole.
func (e *Env) settings() (settings, error) {
	s := settings{Options: e.Options, firstUse: map[string]bool{}}
	var faults []string
	fault := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	if e.Runner == nil {
		fault("Runner is required")
	}
	for _, dir := range []struct {
		name  string
		value *string
		def   string
	}{{"BaseDir", &s.BaseDir, DefaultBaseDir}, {"StateDir", &s.StateDir, ""}, {"DeviceDir", &s.DeviceDir, DefaultDeviceDir}} {
		if *dir.value == "" {
			*dir.value = dir.def
		}
		if *dir.value == "" {
			continue
		}
		if reason := badAbsolutePath(*dir.value); reason != "" || path.Clean(*dir.value) == "/" {
			fault("%s %q must be an absolute path without \"..\", and not the root", dir.name, *dir.value)
		}
		*dir.value = path.Clean(*dir.value)
	}
	if s.StateDir != "" && (s.StateDir == s.BaseDir || below(s.BaseDir, s.StateDir)) {
		fault("StateDir %q must be outside BaseDir %q", s.StateDir, s.BaseDir)
	}
	for _, name := range slices.Sorted(maps.Keys(s.Devices)) {
		device := s.Devices[name]
		if device.FSType != "" && !slices.Contains(FSTypes(), device.FSType) {
			fault("Devices[%q].FSType %q must be one of %s", name, device.FSType, strings.Join(FSTypes(), ", "))
		}
		for _, option := range device.MountOptions {
			if !validMountOption(option) {
				fault("Devices[%q].MountOptions: %q is not allowed", name, option)
			}
		}
	}
	for _, fsType := range slices.Sorted(maps.Keys(s.MkfsOptions)) {
		if !slices.Contains(FSTypes(), fsType) {
			fault("MkfsOptions: filesystem %q must be one of %s", fsType, strings.Join(FSTypes(), ", "))
		}
		for _, option := range s.MkfsOptions[fsType] {
			if forcesMkfs(fsType, option) {
				fault("MkfsOptions[%q]: %q would make mkfs overwrite what it finds", fsType, option)
			}
		}
	}
	if s.Format != FormatIfBlank && s.Format != FormatNever {
		fault("Format %d is unknown", s.Format)
	}
	if s.Fsck != FsckPreen && s.Fsck != FsckNever {
		fault("Fsck %d is unknown", s.Fsck)
	}
	if s.DeviceWait == 0 {
		s.DeviceWait = DefaultDeviceWait
	}
	if s.DeviceTimeout < 0 {
		fault("DeviceTimeout %v must not be negative", s.DeviceTimeout)
	}
	if s.DeviceTimeout == 0 {
		s.DeviceTimeout = DefaultDeviceTimeout
	}
	if len(s.FirstUse) > 0 && s.StateDir == "" {
		fault("FirstUse needs StateDir: what is true for the first start is not true for the next")
	}
	for _, name := range s.FirstUse {
		s.firstUse[name] = true
	}
	if len(faults) > 0 {
		return settings{}, fmt.Errorf("%w: %s", ErrInvalidOptions, strings.Join(faults, "; "))
	}
	return s, nil
}

// validMountOption refuses what decides about reading and writing, which is not an option's business, and what is not
// one option.
func validMountOption(option string) bool {
	switch option {
	case "", "ro", "rw", "remount", "bind", "rbind", "move", "loop", "defaults":
		return false
	}
	return !strings.ContainsFunc(option, func(r rune) bool { return r == ',' || r <= ' ' || r == 0x7f })
}

// forcesMkfs reports whether an argument turns off mkfs' own protection of existing data, alone or among other short
// options.
func forcesMkfs(fsType, option string) bool {
	force, flags := 'F', "cDjnqSvV" // flags are the short options that take no value
	if fsType == "xfs" {
		force, flags = 'f', "KNqV"
	}
	letters, ok := strings.CutPrefix(option, "-")
	if !ok {
		return false
	}
	for _, letter := range letters {
		if letter == force {
			return true
		}
		if !strings.ContainsRune(flags, letter) {
			return false
		}
	}
	return false
}

func (e *Env) clock() clock.Clock {
	if e.Clock == nil {
		return clock.RealClock{}
	}
	return e.Clock
}

// acquire waits for the turn of this call.
func (e *Env) acquire(ctx context.Context) (release func(), err error) {
	e.once.Do(func() { e.turn = make(chan struct{}, 1) })
	select {
	case e.turn <- struct{}{}:
		return func() { <-e.turn }, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: another call works on this host: %w", ErrInProgress, ctx.Err())
	}
}

// Wait returns when no mkfs or fsck that was started by this Env runs any more, or when ctx ends. Call it before the
// process exits.
func (e *Env) Wait(ctx context.Context) error { return e.flights.wait(ctx) }
