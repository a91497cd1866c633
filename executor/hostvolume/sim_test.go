package hostvolume_test

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"

	"github.com/stateofworld/stateofworld/executor/hostvolume"
	"github.com/stateofworld/stateofworld/fake"
)

// A simulated machine that breaks: disks that hold anything, are damaged, wiped, write-protected, unreadable or exchanged for others, disks and mounts
// that others use, faults of every call, and an agent that is killed at any of them. One seed is one run; rapid draws the actions, shrinks a run that
// fails, and prints the flag that replays it. The number of runs is -rapid.checks, their length -rapid.steps.
func TestSimulatedHost(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := newSim(t)
		t.Repeat(map[string]func(*rapid.T){
			"":                        s.checkStep,
			"volumes are prepared":    s.prepareAny,
			"data is prepared":        s.prepareOne,
			"prepared again":          s.prepareAgain,
			"unmounted":               s.unmount,
			"containers write":        s.write,
			"a call fails":            s.fault,
			"calls go well":           func(*rapid.T) { s.h.ClearFaults() },
			"the agent dies":          s.die,
			"the agent starts again":  func(*rapid.T) { s.start() },
			"somebody mounts a disk":  s.mountElsewhere,
			"somebody unmounts":       s.unmountElsewhere,
			"somebody mounts on ours": s.mountOnOurs,
			"a mount is in use":       s.hold,
			"nothing is in use":       func(*rapid.T) { s.release() },
			"a filesystem is damaged": s.damage,
			"a superblock is lost":    s.loseSuperblock,
			"a disk is protected":     s.protect,
			"a disk cannot be read":   s.unreadable,
			"a disk is exchanged":     s.exchange,
		})
		s.finish(t)
	})
}

const simDiskSize = 64 << 10

// simDisk is a device with what must stay on it.
type simDisk struct {
	node       string
	fsType     string // of the filesystem that it has, or that was seen on it
	content    []byte // what was on the device when it was last looked at
	files      map[string]string
	readOnly   bool
	unreadable bool
}

type sim struct {
	h        *fake.Host
	env      *hostvolume.Env
	options  hostvolume.Options
	disks    []*simDisk       // by number; those that were exchanged, too
	names    map[int]*simDisk // by the number of the device name: the disk that is attached under it
	seen     map[int]bool     // that names stand for: a filesystem was seen there
	metadata hostvolume.StaticMetadata
	foreign  []string // the mounts of others, as they are in the mount table
	formats  int      // those that were looked at
	prepared *v1.PodSpec
	meddled  bool // somebody has mounted on what is ours
	bindings map[string][]bind
	releases []func()
}

func newSim(t *rapid.T) *sim {
	s := &sim{h: fake.NewHost(), names: map[int]*simDisk{}, seen: map[int]bool{}}
	for i := range 3 {
		s.attach(t, i)
		mode := rapid.SampledFrom([]hostvolume.DiskMode{hostvolume.DiskReadWrite, hostvolume.DiskReadWrite, hostvolume.DiskReadWrite, hostvolume.DiskReadOnly, "STRANGE"}).Draw(t, "mode")
		s.metadata = append(s.metadata, hostvolume.AttachedDisk{DeviceName: fmt.Sprintf("disk%d", i), Mode: mode})
	}
	s.options = hostvolume.Options{
		DeviceWait: -1,
		StateDir:   rapid.SampledFrom([]string{"/var/lib/agent", "/var/lib/agent", "/var/lib/agent", ""}).Draw(t, "state"),
		Format:     rapid.SampledFrom([]hostvolume.FormatPolicy{hostvolume.FormatIfBlank, hostvolume.FormatIfBlank, hostvolume.FormatIfBlank, hostvolume.FormatNever}).Draw(t, "format"),
		Fsck:       rapid.SampledFrom([]hostvolume.FsckPolicy{hostvolume.FsckPreen, hostvolume.FsckPreen, hostvolume.FsckNever}).Draw(t, "fsck"),
		SkipReplay: rapid.Bool().Draw(t, "skip replay"),
	}
	mountAt(s.h, "/srv/a", base+"2/a", base+"-x")
	s.foreign = s.h.MountTable()
	s.start()
	return s
}

func link(i int) string { return fmt.Sprintf("/dev/disk/by-id/google-disk%d", i) }

// attach attaches a new disk, which holds anything, under a device name.
func (s *sim) attach(t *rapid.T, i int) {
	content := rapid.SampledFrom([]string{"blank", "blank", "ext4", "xfs", "damaged", "partitions", "lvm", "raw"}).Draw(t, "content")
	d := &simDisk{node: fmt.Sprintf("/dev/sd%c", 'b'+len(s.disks)), files: map[string]string{}, readOnly: rapid.IntRange(0, 4).Draw(t, "protected") == 0}
	switch content {
	case "ext4", "xfs":
		d.fsType = content
	case "damaged":
		d.fsType = "ext4"
	}
	s.h.AddDisk(d.node, fake.HostDisk{Size: simDiskSize, ReadOnly: d.readOnly, Filesystem: d.fsType, Links: []string{link(i)}})
	switch content {
	case "damaged":
		s.h.WriteDisk(d.node, 1024+0x38, []byte{0, 0})
		d.fsType = ""
	case "partitions":
		s.h.WritePartitionTable(d.node)
	case "lvm":
		s.h.WriteDisk(d.node, 512, []byte("LABELONE"))
	case "raw":
		s.h.WriteDisk(d.node, rapid.Int64Range(0, simDiskSize-1).Draw(t, "offset"), []byte{1})
	case "ext4", "xfs":
		s.h.SetDamage(d.node, rapid.SampledFrom([]fake.HostDamage{fake.HostClean, fake.HostClean, fake.HostRepairable, fake.HostNeedsRepair}).Draw(t, "damage"))
	}
	s.disks = append(s.disks, d)
	s.names[i] = d
	s.look(d)
}

// look notes what is on a device now.
func (s *sim) look(d *simDisk) { d.content = s.h.ReadDisk(d.node, 0, simDiskSize) }

// start starts the process of an agent.
func (s *sim) start() {
	s.h.Restart()
	s.env = &hostvolume.Env{Runner: s.h, Metadata: s.metadata, Options: s.options}
	if s.options.StateDir == "" { // then it is remembered for the life of the process
		clear(s.seen)
	}
}

// The agent.

func (s *sim) prepareAny(t *rapid.T) { s.prepare(t, randomSpec(t)) }

// prepareOne uses one disk only, so that it comes to pass more often than a whole random spec.
func (s *sim) prepareOne(t *rapid.T) {
	disk, fsType := rapid.IntRange(0, 2).Draw(t, "disk"), rapid.SampledFrom([]string{"ext4", "ext4", "xfs"}).Draw(t, "fsType")
	s.prepare(t, diskSpecOf(disk, fsType, rapid.IntRange(0, 3).Draw(t, "readOnly") == 0))
}

func diskSpecOf(disk int, fsType string, readOnly bool) *v1.PodSpec {
	return &v1.PodSpec{
		Containers: []v1.Container{{Name: "app", VolumeMounts: []v1.VolumeMount{{Name: "v0", MountPath: "/m0", ReadOnly: readOnly}}}},
		Volumes: []v1.Volume{{Name: "v0", VolumeSource: v1.VolumeSource{
			GCEPersistentDisk: &v1.GCEPersistentDiskVolumeSource{PDName: fmt.Sprintf("disk%d", disk), FSType: fsType},
		}}},
	}
}

func (s *sim) prepare(t *rapid.T, spec *v1.PodSpec) {
	before := s.h.MountTable()
	bindings, err := s.env.PrepareVolumesAndGetBindings(t.Context(), spec)
	s.checkFormats(t, spec)
	var prepare *hostvolume.PrepareError
	switch {
	case err == nil:
		s.prepared, s.bindings = spec, bindings
		s.checkBindings(t, spec, bindings)
		require.Subset(t, s.h.MountTable(), before, "a call that succeeds takes nothing away")
	case errors.As(err, &prepare):
		require.Empty(t, bindings)
		if len(prepare.Left) == 0 && !errors.Is(err, fake.ErrHostStopped) {
			require.Equal(t, before, s.h.MountTable(), "a call that fails and leaves nothing leaves nothing: %v", err)
		}
		for _, left := range prepare.Left {
			require.True(t, strings.HasPrefix(left, base+"/"), "%s is not one of ours", left)
		}
	default:
		require.Equal(t, before, s.h.MountTable())
	}
}

// prepareAgain: on a host that is prepared nothing changes, and the same is returned.
func (s *sim) prepareAgain(t *rapid.T) {
	if s.prepared == nil {
		t.Skip("nothing is prepared")
	}
	s.h.ClearFaults()
	before := s.h.MountTable()
	bindings, err := s.env.PrepareVolumesAndGetBindings(t.Context(), s.prepared)
	if err != nil {
		require.ErrorIs(t, err, fake.ErrHostStopped)
		return
	}
	require.Equal(t, s.bindings, bindings)
	require.Equal(t, before, s.h.MountTable())
	s.checkBindings(t, s.prepared, bindings)
}

func (s *sim) unmount(t *rapid.T) {
	s.prepared = nil
	if err := s.env.UnmountExistingVolumes(t.Context()); err == nil {
		require.Empty(t, s.ours(), "mounts are left")
		s.meddled = false
	}
}

// ours are the mounts below the base directory.
func (s *sim) ours() []string {
	return slices.DeleteFunc(s.h.MountTable(), func(line string) bool { return !strings.HasPrefix(line, base+"/") })
}

// write writes a file to each disk that a container has for writing.
func (s *sim) write(t *rapid.T) {
	if s.prepared == nil {
		t.Skip("nothing is prepared")
	}
	for _, v := range s.prepared.Volumes {
		if v.GCEPersistentDisk == nil || readsOnly(s.prepared, v.Name) {
			continue
		}
		if line, ok := s.mountedAt(base + "/gce-persistent-disks/" + v.Name); ok {
			d := s.diskOf(strings.Fields(line)[1])
			d.files["precious"] = fmt.Sprint(rapid.IntRange(0, 9).Draw(t, "data"))
			s.h.WriteFile(base+"/gce-persistent-disks/"+v.Name+"/precious", []byte(d.files["precious"]))
		}
	}
}

func (s *sim) mountedAt(path string) (string, bool) {
	for _, line := range slices.Backward(s.h.MountTable()) {
		if strings.HasPrefix(line, path+" ") {
			return line, true
		}
	}
	return "", false
}

func (s *sim) diskOf(node string) *simDisk {
	for _, d := range s.disks {
		if d.node == node {
			return d
		}
	}
	return nil
}

func readsOnly(spec *v1.PodSpec, volume string) bool {
	for _, m := range spec.Containers[0].VolumeMounts {
		if m.Name == volume && !m.ReadOnly {
			return false
		}
	}
	return true
}

// What must hold after every step.

func (s *sim) checkStep(t *rapid.T) {
	others := slices.DeleteFunc(s.h.MountTable(), func(line string) bool { return strings.HasPrefix(line, base+"/") })
	require.ElementsMatch(t, s.foreign, others, "the mounts of others")
	places := map[string]bool{}
	for _, line := range s.ours() {
		path, _, _ := strings.Cut(line, " ")
		require.True(t, s.meddled || !places[path], "mounted twice at %s", path)
		places[path] = true
	}
	require.Len(t, s.h.Formats(), s.formats, "somebody has made a filesystem whom nobody has asked")
	for _, d := range s.disks {
		require.True(t, bytes.Equal(d.content, s.h.ReadDisk(d.node, 0, simDiskSize)), "the contents of %s have changed", d.node)
	}
}

// number is the number in a device name of a spec.
func number(v *v1.Volume) int { return int(v.GCEPersistentDisk.PDName[len("disk")] - '0') }

// checkFormats looks at the filesystems that a call has made: on blank disks that the spec has for writing, and never where one was seen.
func (s *sim) checkFormats(t *rapid.T, spec *v1.PodSpec) {
	for _, f := range s.h.Formats()[s.formats:] {
		s.formats++
		require.Equal(t, hostvolume.FormatIfBlank, s.options.Format)
		require.False(t, f.HeldData, "%s held data, and was formatted", f.Device)
		i := slices.IndexFunc(spec.Volumes, func(v v1.Volume) bool {
			return v.GCEPersistentDisk != nil && s.names[number(&v)] != nil && s.names[number(&v)].node == f.Device
		})
		require.NotEqual(t, -1, i, "%s was formatted, and the spec has nothing to do with it", f.Device)
		v := &spec.Volumes[i]
		k := number(v)
		require.False(t, s.seen[k], "%s was formatted, and a filesystem was seen there before", f.Device)
		require.False(t, readsOnly(spec, v.Name), "%s was formatted, and is only to be read", f.Device)
		require.Equal(t, hostvolume.DiskReadWrite, s.metadata[k].Mode)
		require.Equal(t, cmp.Or(v.GCEPersistentDisk.FSType, "ext4"), f.Filesystem)
		d := s.names[k]
		require.False(t, d.readOnly)
		d.fsType, d.files = f.Filesystem, map[string]string{}
		s.look(d)
	}
}

// checkBindings: what is returned is true.
func (s *sim) checkBindings(t *rapid.T, spec *v1.PodSpec, bindings map[string][]bind) {
	mounts := spec.Containers[0].VolumeMounts
	require.Len(t, bindings["app"], len(mounts))
	for i, m := range mounts {
		b := bindings["app"][i]
		require.Equal(t, m.MountPath, b.ContainerPath)
		require.Equal(t, m.ReadOnly, b.ReadOnly)
		v := spec.Volumes[slices.IndexFunc(spec.Volumes, func(v v1.Volume) bool { return v.Name == m.Name })]
		root := ""
		switch {
		case v.HostPath != nil:
			root = v.HostPath.Path
		case v.GCEPersistentDisk != nil:
			root = base + "/gce-persistent-disks/" + v.Name
			line, ok := s.mountedAt(root)
			require.True(t, ok, "%s is said to be at %s, and is not", v.Name, root)
			k := number(&v)
			f := strings.Fields(line)
			require.Equal(t, []string{s.names[k].node, cmp.Or(v.GCEPersistentDisk.FSType, "ext4")}, f[1:3], "volume %s", v.Name)
			require.Equal(t, readsOnly(spec, v.Name), strings.HasPrefix(f[3], "ro"), "volume %s is mounted %s", v.Name, f[3])
			s.seen[k] = true
			users := slices.DeleteFunc(s.h.MountTable(), func(line string) bool { return strings.Fields(line)[1] != f[1] })
			require.Len(t, users, 1, "%s is used by others", f[1])
		case v.EmptyDir.Medium == v1.StorageMediumMemory:
			root = base + "/tmpfss/" + v.Name
			line, ok := s.mountedAt(root)
			require.True(t, ok, "%s is said to be at %s, and is not", v.Name, root)
			require.Contains(t, line, " tmpfs tmpfs rw")
		default:
			root = base + "/emptydirs/" + v.Name
			_, ok := s.mountedAt(root)
			require.False(t, ok, "something is mounted at %s", root)
		}
		require.Equal(t, path.Join(root, m.SubPath), b.HostPath)
		if v.HostPath == nil || m.SubPath != "" {
			mode, ok := s.h.Mode(b.HostPath)
			require.True(t, ok && mode.IsDir(), "%s is no directory", b.HostPath)
		}
	}
}

// finish ends all trouble: then everything is unmounted, and what was stored is there.
func (s *sim) finish(t *rapid.T) {
	s.h.ClearFaults()
	s.release()
	s.start()
	require.NoError(t, s.env.UnmountExistingVolumes(t.Context()))
	require.Empty(t, s.ours())
	s.checkStep(t)
	for i, d := range s.names {
		s.h.FailReads(d.node, nil)
		if d.fsType == "" || s.mounted(d) || s.metadata[i].Mode != hostvolume.DiskReadWrite {
			continue
		}
		s.h.SetReadOnly(d.node, false)
		s.h.SetDamage(d.node, fake.HostRepairable)
		s.prepare(t, diskSpecOf(i, d.fsType, false))
		require.NotNil(t, s.prepared)
		for name, want := range d.files {
			have, _ := s.h.Contents(base + "/gce-persistent-disks/v0/" + name)
			require.Equal(t, want, have, "what was stored on %s", d.node)
		}
		s.unmount(t)
		s.checkStep(t)
	}
}
