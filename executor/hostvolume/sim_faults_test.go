package hostvolume_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"pgregory.net/rapid"

	"github.com/stateofworld/stateofworld/executor/command"
	"github.com/stateofworld/stateofworld/fake"
)

// Faults.

func (s *sim) fault(t *rapid.T) { s.h.Inject(randomFault(t)) }

func (s *sim) die(t *rapid.T) {
	s.h.StopAt(rapid.IntRange(0, 60).Draw(t, "call"), rapid.Bool().Draw(t, "after its effect"))
}

func (s *sim) pickDisk(t *rapid.T, ok func(*simDisk) bool) *simDisk {
	fit := slices.DeleteFunc(slices.Clone(s.disks), func(d *simDisk) bool { return !ok(d) })
	if len(fit) == 0 {
		t.Skip("no such disk")
	}
	return fit[rapid.IntRange(0, len(fit)-1).Draw(t, "disk")]
}

func (s *sim) mounted(d *simDisk) bool {
	return slices.ContainsFunc(s.h.MountTable(), func(line string) bool { return strings.Fields(line)[1] == d.node })
}

func (s *sim) mountElsewhere(t *rapid.T) {
	d := s.pickDisk(t, func(d *simDisk) bool { return d.fsType != "" && !d.readOnly && !d.unreadable && !s.mounted(d) })
	target := "/elsewhere" + d.node
	s.h.Mkdir(target)
	s.h.Mount(d.node, target, d.fsType, "rw")
	d.files["theirs"] = "data of others"
	s.h.WriteFile(target+"/theirs", []byte(d.files["theirs"]))
	table := s.h.MountTable()
	s.foreign = append(s.foreign, table[len(table)-1])
}

func (s *sim) unmountElsewhere(t *rapid.T) {
	if len(s.foreign) < 4 {
		t.Skip("nobody has")
	}
	i := rapid.IntRange(3, len(s.foreign)-1).Draw(t, "which")
	s.h.Unmount(strings.Fields(s.foreign[i])[0])
	s.foreign = slices.Delete(s.foreign, i, i+1)
}

// mountOnOurs mounts something where a volume is, or is to be.
func (s *sim) mountOnOurs(t *rapid.T) {
	target := base + rapid.SampledFrom([]string{"/tmpfss/v0", "/gce-persistent-disks/v0", "/gce-persistent-disks/v0/deeper", "/emptydirs/v1"}).Draw(t, "where")
	line, ok := s.mountedAt(base + "/gce-persistent-disks/v0")
	if ok && strings.Contains(line, " ro") {
		t.Skip("no directory can be made there")
	}
	mountAt(s.h, target)
	s.prepared, s.meddled = nil, true
}

func (s *sim) hold(t *rapid.T) {
	ours := s.ours()
	if len(ours) == 0 {
		t.Skip("nothing is mounted")
	}
	place := strings.Fields(rapid.SampledFrom(ours).Draw(t, "mount"))[0]
	if _, ok := s.h.Mode(place); !ok {
		t.Skip("it is hidden by another")
	}
	s.releases = append(s.releases, s.h.HoldOpen(place))
}

func (s *sim) release() {
	for _, release := range s.releases {
		release()
	}
	s.releases = nil
}

func (s *sim) damage(t *rapid.T) {
	d := s.pickDisk(t, func(d *simDisk) bool { return d.fsType != "" && !s.mounted(d) })
	s.h.SetDamage(d.node, rapid.SampledFrom([]fake.HostDamage{fake.HostClean, fake.HostRepairable, fake.HostNeedsRepair}).Draw(t, "damage"))
}

// loseSuperblock overwrites what a probe recognises, or the whole device: there was data, and it is not for an agent to decide that there is none.
func (s *sim) loseSuperblock(t *rapid.T) {
	d := s.pickDisk(t, func(d *simDisk) bool { return d.fsType != "" && !s.mounted(d) })
	size := rapid.SampledFrom([]int{4096, simDiskSize}).Draw(t, "bytes")
	s.h.WriteDisk(d.node, 0, make([]byte, size))
	d.fsType, d.files = "", map[string]string{}
	s.look(d)
}

func (s *sim) protect(t *rapid.T) {
	d := s.pickDisk(t, func(d *simDisk) bool { return !s.mounted(d) })
	d.readOnly = !d.readOnly
	s.h.SetReadOnly(d.node, d.readOnly)
}

func (s *sim) unreadable(t *rapid.T) {
	d, err := s.pickDisk(t, func(*simDisk) bool { return true }), errors.New("input/output error")
	if rapid.Bool().Draw(t, "again readable") {
		err = nil
	}
	d.unreadable = err != nil
	s.h.FailReads(d.node, err)
}

// exchange attaches another disk under the name of one, as when a machine is made anew. The caller says so, or not.
func (s *sim) exchange(t *rapid.T) {
	i := rapid.IntRange(0, 2).Draw(t, "name")
	if len(s.disks) > 8 || s.mounted(s.names[i]) {
		t.Skip("it cannot be exchanged")
	}
	s.h.ClearFaults()
	s.start()
	require.NoError(t, s.h.Remove(t.Context(), link(i)))
	s.attach(t, i)
	s.prepared = nil
	if rapid.Bool().Draw(t, "the caller says so") {
		require.NoError(t, s.env.ForgetDevice(t.Context(), link(i)))
		s.seen[i] = false
	}
}

func randomSpec(t *rapid.T) *v1.PodSpec {
	spec := &v1.PodSpec{Containers: []v1.Container{{Name: "app"}}}
	names := rapid.Permutation([]int{0, 1, 2, 3, 4, 5}).Draw(t, "names")
	disks := rapid.Permutation([]int{0, 1, 2, 3}).Draw(t, "disks") // one more than there are
	for i := range rapid.IntRange(0, 4).Draw(t, "volumes") {
		name := fmt.Sprintf("v%d", names[i])
		var source v1.VolumeSource
		switch rapid.IntRange(-2, 5).Draw(t, "source") {
		case -2, -1, 0:
			source.EmptyDir = &v1.EmptyDirVolumeSource{Medium: v1.StorageMediumMemory}
			if rapid.Bool().Draw(t, "sized") {
				source.EmptyDir.SizeLimit = resource.NewQuantity(rapid.Int64Range(0, 1<<20).Draw(t, "size"), resource.BinarySI)
			}
		case 1:
			source.EmptyDir = &v1.EmptyDirVolumeSource{}
		case 2:
			pathType := rapid.SampledFrom([]v1.HostPathType{"", v1.HostPathDirectory, v1.HostPathDirectoryOrCreate, v1.HostPathFileOrCreate}).Draw(t, "type")
			source.HostPath = &v1.HostPathVolumeSource{Path: rapid.SampledFrom([]string{"/etc", "/new/dir", "/srv/a/b"}).Draw(t, "path"), Type: &pathType}
		default:
			source.GCEPersistentDisk = &v1.GCEPersistentDiskVolumeSource{
				PDName: fmt.Sprintf("disk%d", disks[i]),
				FSType: rapid.SampledFrom([]string{"", "ext4", "ext4", "xfs"}).Draw(t, "fsType"),
			}
		}
		spec.Volumes = append(spec.Volumes, v1.Volume{Name: name, VolumeSource: source})
		spec.Containers[0].VolumeMounts = append(spec.Containers[0].VolumeMounts, v1.VolumeMount{
			Name: name, MountPath: fmt.Sprintf("/m%d", i), ReadOnly: rapid.IntRange(0, 3).Draw(t, "readOnly") == 0,
			SubPath: rapid.SampledFrom([]string{"", "", "sub/path"}).Draw(t, "subPath"),
		})
	}
	return spec
}

func randomFault(t *rapid.T) fake.HostFault {
	f := fake.HostFault{
		Op:    rapid.SampledFrom([]string{"", "", "mount", "umount", "mkfs.ext4", "mkfs.xfs", "fsck.ext4", "blkid", "blockdev", "ReadAt", "ReadFile", "EvalSymlinks", "Lstat", "MkdirAll"}).Draw(t, "op"),
		Skip:  rapid.IntRange(0, 30).Draw(t, "skip"),
		Times: rapid.SampledFrom([]int{1, 1, 2, -1}).Draw(t, "times"),
		After: rapid.Bool().Draw(t, "after"),
		Err:   errors.New("injected"),
	}
	if f.Op == "" {
		f.Times = 1
	} else {
		f.Skip /= 8
	}
	switch rapid.IntRange(0, 3).Draw(t, "kind") {
	case 0:
		f.Err, f.Result = nil, &command.Result{ExitCode: rapid.SampledFrom([]int{0, 1, 2, 4, 8, 32}).Draw(t, "exit")}
	case 1:
		f.Err = &command.TimeoutError{Started: true, Err: context.DeadlineExceeded}
	}
	if f.Result != nil && (f.Op == "" || f.Op[0] < 'a') {
		f.Err = errors.New("injected") // only programs have results
	}
	return f
}
