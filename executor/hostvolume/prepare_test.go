package hostvolume_test

import (
	"errors"
	"io/fs"
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/stateofworld/stateofworld/executor/command"
	"github.com/stateofworld/stateofworld/executor/hostvolume"
	"github.com/stateofworld/stateofworld/fake"
)

type bind = hostvolume.HostPathBindConfiguration

func TestMemoryEmptyDirIsATmpfsOfTheAskedSizeAndMode(t *testing.T) {
	h := fake.NewHost()
	spec := podSpec(t, `
containers: [{name: app, volumeMounts: [{name: cache, mountPath: /cache}, {name: run, mountPath: /run/app, readOnly: true}]}]
volumes:
- {name: cache, emptyDir: {medium: Memory, sizeLimit: 64Mi}}
- {name: run, emptyDir: {medium: Memory, mode: 1000}}`)
	got, err := newEnv(h).PrepareVolumesAndGetBindings(testContext(t), spec)
	require.NoError(t, err)
	require.Equal(t, map[string][]bind{"app": {
		{HostPath: base + "/tmpfss/cache", ContainerPath: "/cache"},
		{HostPath: base + "/tmpfss/run", ContainerPath: "/run/app", ReadOnly: true},
	}}, got)
	require.Equal(t, []string{
		"mount -t tmpfs -o rw,mode=0777,size=67108864 -- tmpfs " + base + "/tmpfss/cache",
		"mount -t tmpfs -o rw,mode=1750 -- tmpfs " + base + "/tmpfss/run", // 1000 in decimal
	}, h.Commands())
	require.Equal(t, []string{
		base + "/tmpfss/cache tmpfs tmpfs rw,mode=777,size=65536k",
		base + "/tmpfss/run tmpfs tmpfs rw,mode=1750",
	}, h.MountTable())
}

func TestPersistentDiskIsFormattedOnceAndMounted(t *testing.T) {
	h := newHost(fake.HostDisk{})
	env := newEnv(h)
	want := map[string][]bind{"app": {{HostPath: dataTarget, ContainerPath: "/data"}}}
	got, err := env.PrepareVolumesAndGetBindings(testContext(t), diskSpec(t))
	require.NoError(t, err)
	require.Equal(t, want, got)
	require.Equal(t, []string{
		"blockdev --getsize64 --getro /dev/sdb",
		"blkid -p -s TYPE -s PTTYPE -o export /dev/sdb",
		"blockdev --getsize64 --getro /dev/sdb",
		"blkid -p -s TYPE -s PTTYPE -o export /dev/sdb",
		"mkfs.ext4 -q /dev/sdb",
		"blkid -p -s TYPE -s PTTYPE -o export /dev/sdb",
		"mount -t ext4 -o rw -- /dev/sdb " + dataTarget,
	}, h.Commands())
	require.Equal(t, []fake.HostFormat{{Device: "/dev/sdb", Filesystem: "ext4"}}, h.Formats())

	h.WriteFile(dataTarget+"/precious", []byte("data"))
	require.NoError(t, env.UnmountExistingVolumes(testContext(t)))
	h.ResetCalls()
	got, err = newEnv(h).PrepareVolumesAndGetBindings(testContext(t), diskSpec(t))
	require.NoError(t, err)
	require.Equal(t, want, got)
	require.Equal(t, []string{
		"blockdev --getsize64 --getro /dev/sdb",
		"blkid -p -s TYPE -s PTTYPE -o export /dev/sdb",
		"fsck.ext4 -p /dev/sdb",
		"mount -t ext4 -o rw -- /dev/sdb " + dataTarget,
	}, h.Commands())
	data, _ := h.Contents(dataTarget + "/precious")
	require.Equal(t, "data", data)
}

func TestMkfsGetsTheOptionsOfItsFilesystem(t *testing.T) {
	h := newHost(fake.HostDisk{})
	env := newEnv(h, options(func(o *hostvolume.Options) {
		o.MkfsOptions = map[string][]string{"xfs": {"-m", "reflink=0"}, "ext4": {"-m", "0"}}
	}))
	_, err := env.PrepareVolumesAndGetBindings(testContext(t), diskSpec(t, "fsType: xfs"))
	require.NoError(t, err)
	require.Equal(t, []string{"mkfs.xfs -q -m reflink=0 /dev/sdb"}, runs(h, "mkfs"))
	require.False(t, ran(h, "fsck"))
}

func TestPartitionOfAPersistentDisk(t *testing.T) {
	h := newHost(fake.HostDisk{})
	h.WritePartitionTable("/dev/sdb")
	h.AddDisk("/dev/sdb1", fake.HostDisk{Filesystem: "ext4", Links: []string{dataLink + "-part1"}})
	got, err := newEnv(h).PrepareVolumesAndGetBindings(testContext(t), diskSpec(t, "partition: 1"))
	require.NoError(t, err)
	require.Equal(t, dataTarget, got["app"][0].HostPath)
	require.Equal(t, []string{dataTarget + " /dev/sdb1 ext4 rw"}, h.MountTable())
	require.NotContains(t, h.Commands(), "blkid -p -s TYPE -s PTTYPE -o export /dev/sdb", "the whole disk is left alone")
}

func TestBlockDevicesAndLogicalVolumesByPathThroughAnOption(t *testing.T) {
	h := fake.NewHost()
	h.AddDisk("/dev/dm-0", fake.HostDisk{Links: []string{"/dev/vg0/data"}})
	h.AddDisk("/dev/sdc", fake.HostDisk{Filesystem: "xfs"})
	h.AddDisk("/dev/sdd", fake.HostDisk{})
	spec := podSpec(t, `
containers:
- name: app
  volumeMounts: [{name: lv, mountPath: /lv}, {name: clone, mountPath: /clone, readOnly: true}, {name: raw, mountPath: /dev/raw}]
volumes:
- {name: lv, hostPath: {path: /dev/vg0/data, type: BlockDevice}}
- {name: clone, hostPath: {path: /dev/sdc, type: BlockDevice}}
- {name: raw, hostPath: {path: /dev/sdd, type: BlockDevice}}`)
	env := newEnv(h, options(func(o *hostvolume.Options) {
		o.Devices = map[string]hostvolume.Device{"lv": {}, "clone": {FSType: "xfs", ReadOnly: true, MountOptions: []string{"nouuid"}}}
		o.SkipReplay = true
	}))
	got, err := env.PrepareVolumesAndGetBindings(testContext(t), spec)
	require.NoError(t, err)
	require.Equal(t, []bind{
		{HostPath: base + "/block-devices/lv", ContainerPath: "/lv"},
		{HostPath: base + "/block-devices/clone", ContainerPath: "/clone", ReadOnly: true},
		{HostPath: "/dev/sdd", ContainerPath: "/dev/raw"},
	}, got["app"])
	require.Equal(t, []string{
		base + "/block-devices/lv /dev/dm-0 ext4 rw",
		base + "/block-devices/clone /dev/sdc xfs ro,norecovery,nouuid",
	}, h.MountTable())
	require.Equal(t, []fake.HostFormat{{Device: "/dev/dm-0", Filesystem: "ext4"}}, h.Formats(), "the raw device is passed on as it is")
}

func TestAllKindsOfContainersGetTheirBindingsInTheOrderOfTheSpec(t *testing.T) {
	h := fake.NewHost()
	spec := podSpec(t, `
initContainers: [{name: init, volumeMounts: [{name: b, mountPath: /b}, {name: a, mountPath: /a, readOnly: true}]}]
containers:
- {name: none}
- {name: app, securityContext: {privileged: true}, volumeMounts: [{name: a, mountPath: /z/, mountPropagation: Bidirectional}, {name: a, mountPath: /c, readOnly: true}, {name: b, mountPath: //x/./y, mountPropagation: HostToContainer}]}
ephemeralContainers: [{name: debug, volumeMounts: [{name: b, mountPath: /b, mountPropagation: None, recursiveReadOnly: IfPossible, readOnly: true}]}]
volumes: [{name: a, emptyDir: {medium: Memory}}, {name: b, hostPath: {path: /var/}}]`)
	got, err := newEnv(h).PrepareVolumesAndGetBindings(testContext(t), spec)
	require.NoError(t, err)
	a := base + "/tmpfss/a"
	require.Equal(t, map[string][]bind{
		"init": {{HostPath: "/var", ContainerPath: "/b"}, {HostPath: a, ContainerPath: "/a", ReadOnly: true}},
		"none": {},
		"app": {
			{HostPath: a, ContainerPath: "/z", MountPropagation: v1.MountPropagationBidirectional},
			{HostPath: a, ContainerPath: "/c", ReadOnly: true},
			{HostPath: "/var", ContainerPath: "/x/y", MountPropagation: v1.MountPropagationHostToContainer},
		},
		"debug": {{HostPath: "/var", ContainerPath: "/b", ReadOnly: true}},
	}, got)
}

func TestSecondCallChangesNothingAndReturnsTheSame(t *testing.T) {
	h := newHost(fake.HostDisk{})
	spec := podSpec(t, `
containers:
- name: app
  volumeMounts:
  - {name: mem, mountPath: /mem}
  - {name: sized, mountPath: /sized, subPath: a/b}
  - {name: scratch, mountPath: /scratch}
  - {name: data, mountPath: /data}
  - {name: dir, mountPath: /dir}
  - {name: file, mountPath: /file}
volumes:
- {name: mem, emptyDir: {medium: Memory}}
- {name: sized, emptyDir: {medium: Memory, sizeLimit: "1048577"}}
- {name: scratch, emptyDir: {}}
- {name: data, gcePersistentDisk: {pdName: data}}
- {name: dir, hostPath: {path: /srv/dir, type: DirectoryOrCreate}}
- {name: file, hostPath: {path: /srv/file, type: FileOrCreate}}`)
	state := options(func(o *hostvolume.Options) { o.StateDir = "/var/lib/agent" })
	env := newEnv(h, state)
	first, err := env.PrepareVolumesAndGetBindings(testContext(t), spec)
	require.NoError(t, err)
	table := h.MountTable()
	for name, again := range map[string]*hostvolume.Env{"same Env": env, "after a restart": newEnv(h, state)} {
		h.ResetCalls()
		second, err := again.PrepareVolumesAndGetBindings(testContext(t), spec)
		require.NoError(t, err, name)
		require.Equal(t, first, second, name)
		require.Equal(t, table, h.MountTable(), name)
		require.Empty(t, h.Commands(), name)
		require.NotContains(t, ops(h), "Remove", name)
	}
}

func ops(h *fake.Host) []string {
	var out []string
	for _, call := range h.Calls() {
		out = append(out, call.Op)
	}
	return out
}

// H13, terraform-google-container-vm#67
func TestSpecWithFaultsIsRefusedAsAWholeBeforeAnythingIsTouched(t *testing.T) {
	h := newHost(fake.HostDisk{})
	_, err := newEnv(h).PrepareVolumesAndGetBindings(testContext(t), podSpec(t, `
containers: [{name: app, volumeMounts: [{name: data, mountPath: /data}, {name: mem, mountPath: /data}, {name: gone, mountPath: /gone}]}]
volumes: [{name: data, gcePersistentDisk: {pdName: data}}, {name: mem, emptyDir: {medium: Memory}}, {name: unused, emptyDir: {}}]`))
	var invalid *hostvolume.InvalidSpecError
	require.ErrorAs(t, err, &invalid)
	require.Len(t, invalid.Faults, 3)
	require.False(t, hostvolume.Retryable(err))
	require.Empty(t, h.Calls())
}

// H13
func TestFailureUndoesTheMountsOfThisCallLastFirstAndSaysSo(t *testing.T) {
	h := newHost(fake.HostDisk{Filesystem: "ext4"})
	h.Mkdir(base + "/tmpfss/kept")
	spec := podSpec(t, `
containers: [{name: app, volumeMounts: [{name: kept, mountPath: /k}, {name: one, mountPath: /1}, {name: two, mountPath: /2}, {name: data, mountPath: /data}]}]
volumes:
- {name: kept, emptyDir: {medium: Memory}}
- {name: one, emptyDir: {medium: Memory}}
- {name: two, emptyDir: {medium: Memory}}
- {name: data, gcePersistentDisk: {pdName: data}}`)
	h.Mount("tmpfs", base+"/tmpfss/kept", "tmpfs", "rw") // from an earlier call
	h.Inject(fake.HostFault{Op: "mount", Text: "/dev/sdb", Result: &command.Result{ExitCode: 32, Stderr: []byte("mount: wrong fs type\n")}})
	_, err := newEnv(h).PrepareVolumesAndGetBindings(testContext(t), spec)
	require.ErrorIs(t, err, hostvolume.ErrNotMounted)
	require.True(t, hostvolume.Retryable(err))
	var prepare *hostvolume.PrepareError
	require.ErrorAs(t, err, &prepare)
	require.Equal(t, []string{base + "/tmpfss/two", base + "/tmpfss/one"}, prepare.Undone)
	require.Empty(t, prepare.Left)
	require.Contains(t, err.Error(), "wrong fs type")
	require.Contains(t, err.Error(), "unmounted again: "+base+"/tmpfss/two, "+base+"/tmpfss/one")
	require.Equal(t, []string{base + "/tmpfss/kept tmpfs tmpfs rw"}, h.MountTable())
	for _, dir := range []string{"/tmpfss/one", "/tmpfss/two", "/gce-persistent-disks"} {
		_, ok := h.Mode(base + dir)
		require.False(t, ok, "%s is removed again", dir)
	}
}

func TestUndoReportsWhatItCouldNotUnmount(t *testing.T) {
	h := newHost(fake.HostDisk{Filesystem: "ext4"})
	spec := podSpec(t, `
containers: [{name: app, volumeMounts: [{name: one, mountPath: /1}, {name: data, mountPath: /data}]}]
volumes: [{name: one, emptyDir: {medium: Memory}}, {name: data, gcePersistentDisk: {pdName: data}}]`)
	h.Inject(fake.HostFault{Op: "mount", Text: "/dev/sdb", Err: errors.New("fork: no memory")})
	h.Inject(fake.HostFault{Op: "umount", Result: &command.Result{ExitCode: 32, Stderr: []byte("umount: target is busy.\n")}})
	_, err := newEnv(h).PrepareVolumesAndGetBindings(testContext(t), spec)
	var prepare *hostvolume.PrepareError
	require.ErrorAs(t, err, &prepare)
	require.Equal(t, []string{base + "/tmpfss/one"}, prepare.Left)
	require.ErrorIs(t, err, hostvolume.ErrUnmountBusy)
	require.Contains(t, err.Error(), "left mounted: "+base+"/tmpfss/one")
}

// The answer of mount can be lost, and its success can be untrue: only mountinfo counts.
func TestOnlyMountInfoSaysWhatIsMounted(t *testing.T) {
	spec := podSpec(t, `
containers: [{name: app, volumeMounts: [{name: one, mountPath: /1}]}]
volumes: [{name: one, emptyDir: {medium: Memory}}]`)
	t.Run("mounted although mount failed", func(t *testing.T) {
		h := fake.NewHost()
		h.Inject(fake.HostFault{Op: "mount", Err: errors.New("answer lost"), After: true})
		_, err := newEnv(h).PrepareVolumesAndGetBindings(testContext(t), spec)
		require.NoError(t, err)
		require.Len(t, h.MountTable(), 1)
	})
	t.Run("mounted although mount has said no", func(t *testing.T) {
		h := fake.NewHost()
		h.Inject(fake.HostFault{Op: "mount", Result: &command.Result{ExitCode: 32}, After: true})
		_, err := newEnv(h).PrepareVolumesAndGetBindings(testContext(t), spec)
		require.NoError(t, err)
		require.Len(t, h.MountTable(), 1)
	})
	t.Run("not mounted although mount succeeded", func(t *testing.T) {
		h := fake.NewHost()
		h.Inject(fake.HostFault{Op: "mount", Result: &command.Result{}})
		_, err := newEnv(h).PrepareVolumesAndGetBindings(testContext(t), spec)
		require.ErrorIs(t, err, hostvolume.ErrNotMounted)
	})
	t.Run("mountinfo cannot be read", func(t *testing.T) {
		h := fake.NewHost()
		h.Inject(fake.HostFault{Op: "ReadFile", Text: "mountinfo", Skip: 1, Err: fs.ErrPermission})
		_, err := newEnv(h).PrepareVolumesAndGetBindings(testContext(t), spec)
		require.ErrorIs(t, err, hostvolume.ErrMountTable)
		require.Empty(t, h.MountTable(), "taken down again, since it was readable by then")
	})
}

func TestPlaceThatIsTakenIsRefused(t *testing.T) {
	spec := podSpec(t, `
containers: [{name: app, volumeMounts: [{name: one, mountPath: /1}]}]
volumes: [{name: one, emptyDir: {medium: Memory, sizeLimit: 1Mi}}]`)
	dir := podSpec(t, `
containers: [{name: app, volumeMounts: [{name: one, mountPath: /1}]}]
volumes: [{name: one, emptyDir: {}}]`)
	for name, tc := range map[string]struct {
		spec                    *v1.PodSpec
		target, source, options string
	}{
		"tmpfs of another size":  {spec, "/tmpfss/one", "tmpfs", "rw,size=2097152"},
		"tmpfs without a size":   {spec, "/tmpfss/one", "tmpfs", "rw"},
		"read-only tmpfs":        {spec, "/tmpfss/one", "tmpfs", "ro,size=1048576"},
		"disk instead of tmpfs":  {spec, "/tmpfss/one", "/dev/sdb", "rw"},
		"mount on the directory": {dir, "/emptydirs/one", "tmpfs", "rw"},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(fake.HostDisk{Filesystem: "ext4"})
			h.Mkdir(base + tc.target)
			fsType := "tmpfs"
			if tc.source != "tmpfs" {
				fsType = "ext4"
			}
			h.Mount(tc.source, base+tc.target, fsType, tc.options)
			_, err := newEnv(h).PrepareVolumesAndGetBindings(testContext(t), tc.spec)
			require.ErrorIs(t, err, hostvolume.ErrTargetInUse)
			require.False(t, hostvolume.Retryable(err))
			require.Equal(t, base+tc.target, volumeErr(t, err).Place)
			require.Empty(t, h.Commands())
		})
	}
}
