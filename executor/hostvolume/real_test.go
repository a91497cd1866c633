package hostvolume_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/stateofworld/stateofworld/executor/hostvolume"
)

// realFilesystems are what the tests make, and the size of a disk that takes it.
var realFilesystems = []struct {
	fsType string
	size   int64
}{{"ext4", 64 * mib}, {"xfs", 512 * mib}}

func TestRealBlankDiskIsFormattedOnceAndKeepsItsData(t *testing.T) {
	for _, tc := range realFilesystems {
		t.Run(tc.fsType, func(t *testing.T) {
			m := realMachine(t, "mkfs."+tc.fsType)
			m.disk("data", tc.size)
			spec := diskSpec(t, "fsType: "+tc.fsType)
			got, err := m.env.PrepareVolumesAndGetBindings(testContext(t), spec)
			require.NoError(t, err)
			target := m.base + "/gce-persistent-disks/data"
			require.Equal(t, map[string][]bind{"app": {{HostPath: target, ContainerPath: "/data"}}}, got)
			require.NoError(t, os.WriteFile(target+"/precious", []byte("data"), 0o600))

			again, err := m.newEnv(nil).PrepareVolumesAndGetBindings(testContext(t), spec)
			require.NoError(t, err)
			require.Equal(t, got, again)
			require.Equal(t, []string{"/base/gce-persistent-disks/data"}, m.mounts(), "mounted once")

			require.NoError(t, m.env.UnmountExistingVolumes(testContext(t)))
			require.Empty(t, m.mounts())
			require.NoDirExists(t, target)

			_, err = m.newEnv(nil).PrepareVolumesAndGetBindings(testContext(t), spec)
			require.NoError(t, err)
			data, err := os.ReadFile(target + "/precious")
			require.NoError(t, err)
			require.Equal(t, "data", string(data))
		})
	}
}

// realRefused prepares the disk "data", expects it to be refused, and that its first MiBs are what they were.
func realRefused(t *testing.T, m *machine, device string, spec *v1.PodSpec, class error) error {
	t.Helper()
	before := m.read(device, 16*mib)
	mounts := m.mounts()
	_, err := m.env.PrepareVolumesAndGetBindings(testContext(t), spec)
	require.ErrorIs(t, err, class)
	require.True(t, bytes.Equal(before, m.read(device, 16*mib)), "the device was written to")
	require.Equal(t, mounts, m.mounts())
	return err
}

// H01, kubernetes/kubernetes PR#43378
func TestRealDiskWithAPartitionTableIsLeftAlone(t *testing.T) {
	m := realMachine(t, "mkfs.ext4")
	device := m.disk("data", 64*mib)
	mbr := make([]byte, 512)
	copy(mbr[446:], []byte{0, 0, 0, 0, 0x83, 0, 0, 0, 0, 8, 0, 0, 0, 0x80, 0, 0})
	mbr[510], mbr[511] = 0x55, 0xaa
	m.write(device, 0, mbr)
	realRefused(t, m, device, diskSpec(t), hostvolume.ErrHasPartitions)
}

// H02, kubernetes/kubernetes#142243
func TestRealDamagedDisksAreLeftAlone(t *testing.T) {
	for _, tc := range realFilesystems {
		t.Run("superblock destroyed, data intact, "+tc.fsType, func(t *testing.T) {
			m := realMachine(t, "mkfs."+tc.fsType)
			device := m.disk("data", tc.size)
			m.sh("mkfs."+tc.fsType, "-q", device)
			offset := map[string]int64{"ext4": 1024, "xfs": 0}[tc.fsType]
			m.write(device, offset, make([]byte, 512))
			realRefused(t, m, device, diskSpec(t, "fsType: "+tc.fsType), hostvolume.ErrNotBlank)
		})
	}
	t.Run("needs a human", func(t *testing.T) {
		m := realMachine(t, "mkfs.ext4", "debugfs")
		device := m.disk("data", 64*mib)
		m.sh("mkfs.ext4", "-q", device)
		m.sh("debugfs", "-w", "-R", "clri <2>", device)
		m.sh("debugfs", "-w", "-R", "ssv state 2", device)
		_, err := m.env.PrepareVolumesAndGetBindings(testContext(t), diskSpec(t))
		require.ErrorIs(t, err, hostvolume.ErrNeedsRepair)
		require.Contains(t, err.Error(), "RUN fsck MANUALLY")
		require.Empty(t, m.mounts())
	})
	t.Run("repaired without questions", func(t *testing.T) {
		m := realMachine(t, "mkfs.ext4", "debugfs")
		device := m.disk("data", 64*mib)
		m.sh("mkfs.ext4", "-q", device)
		m.sh("debugfs", "-w", "-R", "ssv state 2", device)
		_, err := m.env.PrepareVolumesAndGetBindings(testContext(t), diskSpec(t))
		require.NoError(t, err)
	})
	t.Run("cannot be read towards its end", func(t *testing.T) {
		m := realMachine(t, "mkfs.ext4")
		file := t.TempDir() + "/disk"
		require.NoError(t, os.WriteFile(file, nil, 0o600))
		require.NoError(t, os.Truncate(file, 64*mib))
		device := m.loop(file)
		require.NoError(t, os.Symlink(device, m.links+"/google-data"))
		require.NoError(t, os.Truncate(file, 32*mib)) // what is behind that is now an I/O error
		realRefused(t, m, device, diskSpec(t), hostvolume.ErrDeviceUnreadable)
	})
	t.Run("another filesystem", func(t *testing.T) {
		m := realMachine(t, "mkfs.ext4")
		device := m.disk("data", 64*mib)
		m.sh("mkfs.ext4", "-q", device)
		realRefused(t, m, device, diskSpec(t, "fsType: xfs"), hostvolume.ErrWrongFilesystem)
	})
}

// H15, kubernetes/kubernetes#78880
func TestRealWriteProtectedDisks(t *testing.T) {
	for _, tc := range realFilesystems {
		t.Run(tc.fsType, func(t *testing.T) {
			m := realMachine(t, "mkfs."+tc.fsType)
			link := m.links + "/google-data"
			device := m.disk("data", tc.size, "--read-only")
			toWrite, toRead := diskSpec(t, "fsType: "+tc.fsType), readOnly(diskSpec(t, "fsType: "+tc.fsType))
			realRefused(t, m, device, toWrite, hostvolume.ErrReadOnlyDevice)
			realRefused(t, m, device, toRead, hostvolume.ErrUnformattedReadOnly)

			file := t.TempDir() + "/formatted"
			require.NoError(t, os.WriteFile(file, nil, 0o600))
			require.NoError(t, os.Truncate(file, tc.size))
			m.sh("mkfs."+tc.fsType, "-q", file)
			device = m.loop(file, "--read-only")
			require.NoError(t, os.Remove(link))
			require.NoError(t, os.Symlink(device, link))
			realRefused(t, m, device, toWrite, hostvolume.ErrReadOnlyDevice)
			got, err := m.env.PrepareVolumesAndGetBindings(testContext(t), toRead)
			require.NoError(t, err)
			require.ErrorIs(t, os.WriteFile(got["app"][0].HostPath+"/x", nil, 0o600), syscall.EROFS)
		})
	}
}

// H05, runatlantis/terraform-gce-atlantis#107
func TestRealDiskInUse(t *testing.T) {
	for _, tc := range realFilesystems {
		t.Run("mounted elsewhere, "+tc.fsType, func(t *testing.T) {
			m := realMachine(t, "mkfs."+tc.fsType)
			device := m.disk("data", tc.size)
			m.sh("mkfs."+tc.fsType, "-q", device)
			other := t.TempDir() + "/other place"
			require.NoError(t, os.Mkdir(other, 0o755))
			m.sh("mount", device, other)
			t.Cleanup(func() { _ = exec.Command("umount", other).Run() })
			_, err := m.env.PrepareVolumesAndGetBindings(testContext(t), diskSpec(t, "fsType: "+tc.fsType))
			require.ErrorIs(t, err, hostvolume.ErrDeviceBusy)
			require.Equal(t, other, volumeErr(t, err).Place)
		})
	}
	t.Run("mounted in another mount namespace, where mountinfo does not show it", func(t *testing.T) {
		m := realMachine(t, "mkfs.ext4", "unshare")
		device := m.disk("data", 64*mib)
		m.sh("mkfs.ext4", "-q", device)
		otherNamespace(t, "mount "+device+" "+t.TempDir())
		_, err := m.env.PrepareVolumesAndGetBindings(testContext(t), diskSpec(t))
		require.ErrorIs(t, err, hostvolume.ErrCheckFailed)
		require.True(t, hostvolume.Retryable(err))
		require.Empty(t, m.mounts())
	})
	t.Run("a file is open", func(t *testing.T) {
		m := realMachine(t, "mkfs.ext4")
		m.disk("data", 64*mib)
		got, err := m.env.PrepareVolumesAndGetBindings(testContext(t), diskSpec(t))
		require.NoError(t, err)
		f, err := os.Create(got["app"][0].HostPath + "/open")
		require.NoError(t, err)
		err = m.env.UnmountExistingVolumes(testContext(t))
		require.NoError(t, f.Close())
		require.ErrorIs(t, err, hostvolume.ErrUnmountBusy)
		require.True(t, hostvolume.Retryable(err))
		require.Len(t, m.mounts(), 1)
		require.NoError(t, m.env.UnmountExistingVolumes(testContext(t)))
	})
}

// otherNamespace runs a shell script in a mount namespace of its own, which lives until the test ends, and returns its
// process id.
func otherNamespace(t *testing.T, script string) int {
	t.Helper()
	cmd := exec.Command("unshare", "--mount", "--propagation", "private", "sh", "-c", script+" && echo ready && exec sleep 600")
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	buffer := make([]byte, 6)
	n, err := out.Read(buffer)
	require.NoError(t, err)
	require.Equal(t, "ready\n", string(buffer[:n]))
	return cmd.Process.Pid
}

// H07, H08, H10
func TestRealNestedStackedAndStrangelyNamedMountsAreTakenDown(t *testing.T) {
	m := realMachine(t)
	foreign := t.TempDir()
	outside := []string{m.base + "2/a", m.base + "-x", foreign + "/base/a"}
	inside := []string{
		"a", "a/b", "a/b/c", "stack", "stack", "stack", "with space", `back\slash`, `trap\040`, "tab\tand\nnewline", "hash#", "ünïcode-日本", "-o", "--", "a/b", "\xff\xfe",
	}
	mountTmpfs := func(path string) {
		require.NoError(t, os.MkdirAll(path, 0o755))
		require.NoError(t, syscall.Mount("tmpfs", path, "tmpfs", 0, "size=64k"))
	}
	for _, path := range outside {
		mountTmpfs(path)
		t.Cleanup(func() { _ = syscall.Unmount(path, 0) })
	}
	mountTmpfs(m.base)
	t.Cleanup(func() { _ = syscall.Unmount(m.base, 0) })
	for _, path := range inside {
		mountTmpfs(m.base + "/" + path)
	}
	require.Len(t, m.mounts(), len(inside)+3, "with the base and two of those outside")
	require.NoError(t, m.env.UnmountExistingVolumes(testContext(t)))
	require.Equal(t, []string{"/base2/a", "/base-x", "/base"}, m.mounts(), "the base itself stays")
}

// A finding of our own: umount follows a link in a mount that hides the one that is meant, and unmounts somebody
// else's.
func TestRealPathOfAHiddenMountIsNotFollowedThroughALink(t *testing.T) {
	m := realMachine(t)
	outside := t.TempDir()
	require.NoError(t, syscall.Mount("tmpfs", outside, "tmpfs", 0, ""))
	t.Cleanup(func() { _ = syscall.Unmount(outside, 0) })
	require.NoError(t, os.WriteFile(outside+"/here", nil, 0o600))
	require.NoError(t, os.MkdirAll(m.base+"/x/b", 0o755))
	require.NoError(t, syscall.Mount("tmpfs", m.base+"/x/b", "tmpfs", 0, ""))
	require.NoError(t, syscall.Mount("tmpfs", m.base+"/x", "tmpfs", 0, ""))
	require.NoError(t, os.Symlink(outside, m.base+"/x/b"))
	f, err := os.Create(m.base + "/x/open")
	require.NoError(t, err)
	err = m.env.UnmountExistingVolumes(testContext(t))
	require.NoError(t, f.Close())
	require.ErrorIs(t, err, hostvolume.ErrUnsafePath)
	require.FileExists(t, outside+"/here")
	require.NoError(t, m.env.UnmountExistingVolumes(testContext(t)))
	require.FileExists(t, outside+"/here")
	require.Empty(t, m.mounts())
}

func TestRealTwoHundredVolumesInOneSpec(t *testing.T) {
	m := realMachine(t)
	const volumes = 200
	spec := &v1.PodSpec{Containers: []v1.Container{{Name: "app"}}}
	for i := range volumes {
		name := fmt.Sprintf("v%d", i)
		source := v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{Medium: v1.StorageMediumMemory}}
		if i%4 == 3 {
			source.EmptyDir.Medium = v1.StorageMediumDefault
		}
		spec.Volumes = append(spec.Volumes, v1.Volume{Name: name, VolumeSource: source})
		spec.Containers[0].VolumeMounts = append(spec.Containers[0].VolumeMounts, v1.VolumeMount{Name: name, MountPath: "/" + name})
	}
	got, err := m.env.PrepareVolumesAndGetBindings(testContext(t), spec)
	require.NoError(t, err)
	require.Len(t, got["app"], volumes)
	require.Len(t, m.mounts(), volumes*3/4)
	for i, b := range got["app"] {
		require.Equal(t, fmt.Sprintf("/v%d", i), b.ContainerPath)
		info, err := os.Stat(b.HostPath)
		require.NoError(t, err)
		require.Equal(t, os.ModeDir|0o777, info.Mode(), "%s, whatever the umask", b.HostPath)
	}
	require.NoError(t, m.env.UnmountExistingVolumes(testContext(t)))
	require.Empty(t, m.mounts())
}

func TestRealTmpfsHasTheSizeOfItsLimit(t *testing.T) {
	m := realMachine(t)
	spec := podSpec(t, `
containers: [{name: app, volumeMounts: [{name: small, mountPath: /s}, {name: odd, mountPath: /o}]}]
volumes: [{name: small, emptyDir: {medium: Memory, sizeLimit: 64Ki}}, {name: odd, emptyDir: {medium: Memory, sizeLimit: "65537", mode: 1000}}]`)
	got, err := m.env.PrepareVolumesAndGetBindings(testContext(t), spec)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(got["app"][0].HostPath+"/fits", make([]byte, 64<<10), 0o600))
	require.ErrorIs(t, os.WriteFile(got["app"][0].HostPath+"/more", make([]byte, 4096), 0o600), syscall.ENOSPC)
	info, err := os.Stat(got["app"][1].HostPath)
	require.NoError(t, err)
	require.Equal(t, os.ModeDir|os.ModeSticky|0o750, info.Mode())
	again, err := m.newEnv(nil).PrepareVolumesAndGetBindings(testContext(t), spec)
	require.NoError(t, err, "the kernel's way of writing the size is understood")
	require.Equal(t, got, again)
}

func TestRealFailureUndoesTheMountsOfTheCall(t *testing.T) {
	m := realMachine(t, "mkfs.ext4")
	device := m.disk("data", 64*mib)
	m.sh("mkfs.ext4", "-q", device)
	spec := podSpec(t, `
containers: [{name: app, volumeMounts: [{name: one, mountPath: /1}, {name: data, mountPath: /d}, {name: file, mountPath: /f, subPath: x}]}]
volumes: [{name: one, emptyDir: {medium: Memory}}, {name: data, gcePersistentDisk: {pdName: data}}, {name: file, hostPath: {path: /proc/version}}]`)
	_, err := m.env.PrepareVolumesAndGetBindings(testContext(t), spec)
	var prepare *hostvolume.PrepareError
	require.ErrorAs(t, err, &prepare)
	require.ErrorIs(t, err, hostvolume.ErrUnsafePath)
	require.Equal(t, []string{m.base + "/gce-persistent-disks/data", m.base + "/tmpfss/one"}, prepare.Undone)
	require.Empty(t, m.mounts())
	require.NoDirExists(t, m.base+"/tmpfss")
}

// mkfs opens the device exclusively, so a second one, of another process, does nothing: what single flight is between
// processes.
func TestRealMkfsOfADeviceInUseDoesNothing(t *testing.T) {
	m := realMachine(t, "mkfs.ext4")
	device := m.disk("data", 64*mib)
	fd, err := syscall.Open(device, syscall.O_RDWR|syscall.O_EXCL, 0)
	require.NoError(t, err)
	_, err = m.env.PrepareVolumesAndGetBindings(testContext(t), diskSpec(t))
	require.NoError(t, syscall.Close(fd))
	require.ErrorIs(t, err, hostvolume.ErrFormatFailed)
	require.True(t, hostvolume.Retryable(err))
	require.Equal(t, make([]byte, mib), m.read(device, mib))
	_, err = m.env.PrepareVolumesAndGetBindings(context.Background(), diskSpec(t))
	require.NoError(t, err)
	require.True(t, strings.HasSuffix(m.mounts()[0], "/data"))
}
