package hostvolume_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"pgregory.net/rapid"

	"github.com/stateofworld/stateofworld/executor/command"
	"github.com/stateofworld/stateofworld/executor/hostvolume"
	"github.com/stateofworld/stateofworld/fake"
)

const (
	randomDisks    = 3
	randomDiskSize = 256 << 10
)

// randomHost is a machine whose disks hold anything, some of them in use by others, with mounts that are none of ours.
func randomHost(t *rapid.T) (*fake.Host, hostvolume.StaticMetadata) {
	h := fake.NewHost()
	var metadata hostvolume.StaticMetadata
	for i := range randomDisks {
		node := fmt.Sprintf("/dev/sd%c", 'b'+i)
		content := rapid.SampledFrom([]string{"blank", "blank", "ext4", "xfs", "damaged", "partitions", "lvm", "raw"}).Draw(t, "content")
		disk := fake.HostDisk{Size: randomDiskSize, ReadOnly: rapid.IntRange(0, 4).Draw(t, "protected") == 0, Links: []string{fmt.Sprintf("/dev/disk/by-id/google-disk%d", i)}}
		switch content {
		case "ext4", "xfs":
			disk.Filesystem = content
		case "damaged":
			disk.Filesystem = "ext4"
		}
		h.AddDisk(node, disk)
		switch content {
		case "damaged":
			h.WriteDisk(node, 1024+0x38, []byte{0, 0})
		case "partitions":
			h.WritePartitionTable(node)
		case "lvm":
			h.WriteDisk(node, 512, []byte("LABELONE"))
		case "raw":
			h.WriteDisk(node, rapid.Int64Range(0, randomDiskSize-1).Draw(t, "offset"), []byte{1})
		case "ext4", "xfs":
			h.SetDamage(node, rapid.SampledFrom([]fake.HostDamage{fake.HostClean, fake.HostClean, fake.HostRepairable, fake.HostNeedsRepair}).Draw(t, "damage"))
			if !disk.ReadOnly && rapid.IntRange(0, 5).Draw(t, "elsewhere") == 0 {
				h.Mkdir("/elsewhere" + fmt.Sprint(i))
				h.Mount(node, "/elsewhere"+fmt.Sprint(i), content, "rw")
			}
		}
		mode := rapid.SampledFrom([]hostvolume.DiskMode{hostvolume.DiskReadWrite, hostvolume.DiskReadWrite, hostvolume.DiskReadWrite, hostvolume.DiskReadOnly, "STRANGE"}).Draw(t, "mode")
		metadata = append(metadata, hostvolume.AttachedDisk{DeviceName: fmt.Sprintf("disk%d", i), Mode: mode})
	}
	mountAt(h, "/srv/a", base+"2/a", base+"-x")
	return h, metadata
}

func randomSpec(t *rapid.T) *v1.PodSpec {
	spec := &v1.PodSpec{Containers: []v1.Container{{Name: "app"}}}
	names := rapid.Permutation([]int{0, 1, 2, 3, 4, 5}).Draw(t, "names")
	disks := rapid.Permutation([]int{0, 1, 2, randomDisks}).Draw(t, "disks") // one more than there are
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

// For random machines, specs and faults: what was mounted before is mounted at the end and nothing else, no device that
// held data was ever written by mkfs, and what is returned is there.
func TestNoSequenceOfFaultsLosesDataOrLeaksAMount(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		h, metadata := randomHost(rt)
		before := h.MountTable()
		contents := map[string][]byte{}
		for i := range randomDisks {
			node := fmt.Sprintf("/dev/sd%c", 'b'+i)
			if data := h.ReadDisk(node, 0, randomDiskSize); slices.ContainsFunc(data, func(b byte) bool { return b != 0 }) {
				contents[node] = data
			}
		}
		newProcess := func() *hostvolume.Env {
			return &hostvolume.Env{Runner: h, Metadata: metadata, Options: hostvolume.Options{DeviceWait: -1, StateDir: "/var/lib/agent"}}
		}
		env, ctx := newProcess(), context.Background()
		for range rapid.IntRange(1, 5).Draw(rt, "steps") {
			for range rapid.IntRange(0, 2).Draw(rt, "faults") {
				h.Inject(randomFault(rt))
			}
			if rapid.IntRange(0, 3).Draw(rt, "stops") == 0 {
				h.StopAt(rapid.IntRange(0, 60).Draw(rt, "stop"), rapid.Bool().Draw(rt, "after effect"))
			}
			if rapid.IntRange(0, 3).Draw(rt, "step") == 0 {
				_ = env.UnmountExistingVolumes(ctx)
			} else {
				start := h.MountTable()
				bindings, err := env.PrepareVolumesAndGetBindings(ctx, randomSpec(rt))
				checkOutcome(rt, h, start, bindings, err)
			}
			h.ClearFaults()
			if h.Restart() {
				env = newProcess()
			}
		}
		require.NoError(rt, env.UnmountExistingVolumes(ctx))
		require.Equal(rt, before, h.MountTable())
		for _, format := range h.Formats() {
			require.False(rt, format.HeldData, "%+v", format)
		}
		for node, data := range contents {
			require.Equal(rt, data, h.ReadDisk(node, 0, randomDiskSize), node)
		}
	})
}

func checkOutcome(t *rapid.T, h *fake.Host, start []string, bindings map[string][]bind, err error) {
	var prepare *hostvolume.PrepareError
	switch {
	case err == nil:
		mounted := strings.Join(h.MountTable(), "\n") + "\n"
		for _, b := range bindings["app"] {
			if strings.HasPrefix(b.HostPath, base+"/tmpfss/") || strings.HasPrefix(b.HostPath, base+"/gce-persistent-disks/") {
				components := strings.SplitN(strings.TrimPrefix(b.HostPath, base+"/"), "/", 3)
				require.Contains(t, mounted, base+"/"+components[0]+"/"+components[1]+" ")
			}
		}
	case errors.As(err, &prepare) && len(prepare.Left) == 0 && !errors.Is(err, fake.ErrHostStopped):
		require.Equal(t, start, h.MountTable(), "a call that fails and leaves nothing leaves nothing: %v", err)
	}
}
