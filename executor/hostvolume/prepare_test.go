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

func TestEmptyDirOnDiskIsADirectoryForEveryone(t *testing.T) {
	h := fake.NewHost()
	spec := podSpec(t, `
containers: [{name: app, volumeMounts: [{name: scratch, mountPath: /scratch}, {name: sticky, mountPath: /tmp}]}]
volumes: [{name: scratch, emptyDir: {}}, {name: sticky, emptyDir: {mode: 1023}}]`)
	got, err := newEnv(h).PrepareVolumesAndGetBindings(testContext(t), spec)
	require.NoError(t, err)
	require.Equal(t, []bind{
		{HostPath: base + "/emptydirs/scratch", ContainerPath: "/scratch"}, {HostPath: base + "/emptydirs/sticky", ContainerPath: "/tmp"},
	}, got["app"])
	require.Empty(t, h.Commands(), "no program is needed")
	for path, want := range map[string]fs.FileMode{
		base: 0o755, base + "/emptydirs": 0o755, base + "/emptydirs/scratch": 0o777, base + "/emptydirs/sticky": fs.ModeSticky | 0o777,
	} {
		mode, ok := h.Mode(path)
		require.True(t, ok)
		require.Equal(t, fs.ModeDir|want, mode, path)
	}
}

// What a process leaves that is ended between making a directory and giving it its mode.
func TestEmptyDirWithAnotherModeGetsItsMode(t *testing.T) {
	h := fake.NewHost()
	h.Mkdir(base + "/emptydirs/scratch") // 0755
	spec := podSpec(t, `
containers: [{name: app, volumeMounts: [{name: scratch, mountPath: /scratch}]}]
volumes: [{name: scratch, emptyDir: {mode: 1023}}]`)
	_, err := newEnv(h).PrepareVolumesAndGetBindings(testContext(t), spec)
	require.NoError(t, err)
	require.Equal(t, []string{"chmod 1777 -- " + base + "/emptydirs/scratch"}, h.Commands())
	mode, _ := h.Mode(base + "/emptydirs/scratch")
	require.Equal(t, fs.ModeDir|fs.ModeSticky|0o777, mode)
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

func TestHostPathTypes(t *testing.T) {
	for name, tc := range map[string]struct {
		path, kind string
		err        error
		made       fs.FileMode
	}{
		"no type: not looked at, not made":           {path: "/nowhere", kind: `""`},
		"no type, present":                           {path: "/etc", kind: `""`},
		"Directory":                                  {path: "/etc", kind: "Directory"},
		"Directory through a link":                   {path: "/link", kind: "Directory"},
		"Directory, absent":                          {path: "/nowhere", kind: "Directory", err: hostvolume.ErrHostPath},
		"Directory, is a file":                       {path: "/etc/conf", kind: "Directory", err: hostvolume.ErrHostPath},
		"DirectoryOrCreate, present":                 {path: "/etc", kind: "DirectoryOrCreate"},
		"DirectoryOrCreate, absent":                  {path: "/new/a/b", kind: "DirectoryOrCreate", made: fs.ModeDir | 0o755},
		"DirectoryOrCreate, is a file":               {path: "/etc/conf", kind: "DirectoryOrCreate", err: hostvolume.ErrHostPath},
		"DirectoryOrCreate below a file":             {path: "/etc/conf/a", kind: "DirectoryOrCreate", err: hostvolume.ErrHostPath},
		"File":                                       {path: "/etc/conf", kind: "File"},
		"File, is a directory":                       {path: "/etc", kind: "File", err: hostvolume.ErrHostPath},
		"File, absent":                               {path: "/nowhere", kind: "File", err: hostvolume.ErrHostPath},
		"FileOrCreate, present":                      {path: "/etc/conf", kind: "FileOrCreate"},
		"FileOrCreate, absent":                       {path: "/etc/new", kind: "FileOrCreate", made: 0o644},
		"FileOrCreate in a directory that is absent": {path: "/new/a", kind: "FileOrCreate", err: hostvolume.ErrHostPath},
		"FileOrCreate, dangling link":                {path: "/dangling", kind: "FileOrCreate", err: hostvolume.ErrHostPath},
		"Socket":                                     {path: "/run/app.sock", kind: "Socket"},
		"Socket, is a file":                          {path: "/etc/conf", kind: "Socket", err: hostvolume.ErrHostPath},
		"CharDevice":                                 {path: "/dev/null", kind: "CharDevice"},
		"CharDevice, is a block device":              {path: "/dev/sdb", kind: "CharDevice", err: hostvolume.ErrHostPath},
		"BlockDevice":                                {path: "/dev/sdb", kind: "BlockDevice"},
		"BlockDevice, is a character device":         {path: "/dev/null", kind: "BlockDevice", err: hostvolume.ErrHostPath},
		"BlockDevice, absent":                        {path: "/dev/sdz", kind: "BlockDevice", err: hostvolume.ErrHostPath},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(fake.HostDisk{})
			h.WriteFile("/etc/conf", []byte("x"))
			h.Mknod("/run/app.sock", fs.ModeSocket|0o755)
			h.Mknod("/dev/null", fs.ModeDevice|fs.ModeCharDevice|0o666)
			h.Symlink("/etc", "/link")
			h.Symlink("/nowhere/at/all", "/dangling")
			_, before := h.Mode(tc.path)
			spec := podSpec(t, `
containers: [{name: app, volumeMounts: [{name: v, mountPath: /v}]}]
volumes: [{name: v, hostPath: {path: `+tc.path+`, type: `+tc.kind+`}}]`)
			got, err := newEnv(h).PrepareVolumesAndGetBindings(testContext(t), spec)
			require.Empty(t, h.Commands())
			mode, after := h.Mode(tc.path)
			if tc.err != nil {
				require.ErrorIs(t, err, tc.err)
				require.Equal(t, before, after, "nothing is made")
				require.Equal(t, "v", volumeErr(t, err).Volume)
				return
			}
			require.NoError(t, err)
			require.Equal(t, tc.path, got["app"][0].HostPath)
			if tc.made != 0 {
				require.Equal(t, tc.made, mode)
			} else {
				require.Equal(t, before, after, "nothing is made")
			}
		})
	}
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

// Documented behaviour of konlet.
func TestTwoVolumesMayHaveTheSameHostPath(t *testing.T) {
	spec := podSpec(t, `
containers: [{name: app, volumeMounts: [{name: a, mountPath: /a}, {name: b, mountPath: /b, readOnly: true}]}]
volumes: [{name: a, hostPath: {path: /var}}, {name: b, hostPath: {path: /var}}]`)
	got, err := newEnv(fake.NewHost()).PrepareVolumesAndGetBindings(testContext(t), spec)
	require.NoError(t, err)
	require.Equal(t, []bind{{HostPath: "/var", ContainerPath: "/a"}, {HostPath: "/var", ContainerPath: "/b", ReadOnly: true}}, got["app"])
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

// H18, kubernetes/kubernetes#104980 (CVE-2021-25741), #56625
func TestLinksBelowTheBaseAreNotFollowed(t *testing.T) {
	for name, arrange := range map[string]func(h *fake.Host){
		"the directory of the family": func(h *fake.Host) { h.Mkdir(base); h.Symlink("/etc", base+"/tmpfss") },
		"the directory of the volume": func(h *fake.Host) { h.Mkdir(base + "/tmpfss"); h.Symlink("/etc", base+"/tmpfss/one") },
		"a link that dangles":         func(h *fake.Host) { h.Mkdir(base); h.Symlink("/nowhere", base+"/tmpfss") },
		"a file":                      func(h *fake.Host) { h.Mkdir(base); h.WriteFile(base+"/tmpfss", nil) },
	} {
		t.Run(name, func(t *testing.T) {
			h := fake.NewHost()
			arrange(h)
			spec := podSpec(t, `
containers: [{name: app, volumeMounts: [{name: one, mountPath: /1}]}]
volumes: [{name: one, emptyDir: {medium: Memory}}]`)
			_, err := newEnv(h).PrepareVolumesAndGetBindings(testContext(t), spec)
			require.ErrorIs(t, err, hostvolume.ErrUnsafePath)
			require.Empty(t, h.Commands())
			require.NotContains(t, ops(h), "MkdirAll")
		})
	}
}

// H18: the directory is looked at once more right before the mount.
func TestDirectoryThatBecomesALinkIsNotMountedOn(t *testing.T) {
	h := fake.NewHost()
	target := base + "/tmpfss/one"
	env := newEnv(h, func(e *hostvolume.Env) {
		e.Runner = &hooked{Runner: h, evalSymlinks: func(path string) {
			if path == target {
				require.NoError(t, h.Remove(t.Context(), target))
				h.Symlink("/etc", target)
			}
		}}
	})
	_, err := env.PrepareVolumesAndGetBindings(testContext(t), podSpec(t, `
containers: [{name: app, volumeMounts: [{name: one, mountPath: /1}]}]
volumes: [{name: one, emptyDir: {medium: Memory}}]`))
	require.ErrorIs(t, err, hostvolume.ErrUnsafePath)
	require.False(t, ran(h, "mount"))
}

func TestBaseDirectoryMayBeReachedThroughALink(t *testing.T) {
	h := fake.NewHost()
	h.Mkdir("/run/volumes")
	h.Symlink("/run", "/var/run")
	env := newEnv(h, options(func(o *hostvolume.Options) { o.BaseDir = "/var/run/volumes" }))
	spec := podSpec(t, `
containers: [{name: app, volumeMounts: [{name: one, mountPath: /1}]}]
volumes: [{name: one, emptyDir: {medium: Memory}}]`)
	for range 2 {
		got, err := env.PrepareVolumesAndGetBindings(testContext(t), spec)
		require.NoError(t, err)
		require.Equal(t, "/run/volumes/tmpfss/one", got["app"][0].HostPath)
	}
	require.Equal(t, []string{"/run/volumes/tmpfss/one tmpfs tmpfs rw,mode=777"}, h.MountTable())
	require.NoError(t, env.UnmountExistingVolumes(testContext(t)))
	require.Empty(t, h.MountTable())
}

func TestSubPath(t *testing.T) {
	spec := func(subPath string, readOnly bool) *v1.PodSpec {
		s := diskSpec(t)
		s.Containers[0].VolumeMounts[0].SubPath, s.Containers[0].VolumeMounts[0].ReadOnly = subPath, readOnly
		return s
	}
	host := func() *fake.Host {
		h := newHost(fake.HostDisk{Filesystem: "ext4"})
		h.Mkdir("/m")
		h.Mount("/dev/sdb", "/m", "ext4", "rw")
		h.Mkdir("/m/www")
		h.WriteFile("/m/www/index", nil)
		h.Symlink("/etc", "/m/evil")
		h.Symlink("www", "/m/inside")
		h.Unmount("/m")
		return h
	}
	for name, tc := range map[string]struct {
		subPath  string
		readOnly bool
		want     string
		err      error
		made     bool
	}{
		"directory":                           {subPath: "www", want: "/www"},
		"file":                                {subPath: "www/index", want: "/www/index"},
		"not clean":                           {subPath: "./www//", want: "/www"},
		"the volume itself":                   {subPath: "./", want: ""},
		"made with its parents":               {subPath: "new/a", want: "/new/a", made: true},
		"on a read-only volume":               {subPath: "www", readOnly: true, want: "/www"},
		"absent on a read-only volume":        {subPath: "new", readOnly: true, err: hostvolume.ErrHostPath},
		"link out of the volume (H18)":        {subPath: "evil", err: hostvolume.ErrUnsafePath},
		"below a link out of it (H18)":        {subPath: "evil/cron.d", err: hostvolume.ErrUnsafePath},
		"link inside the volume (H18)":        {subPath: "inside/index", err: hostvolume.ErrUnsafePath},
		"below a file":                        {subPath: "www/index/x", err: hostvolume.ErrUnsafePath},
		"below a link, missing further (H18)": {subPath: "inside/new", err: hostvolume.ErrUnsafePath},
	} {
		t.Run(name, func(t *testing.T) {
			h := host()
			got, err := newEnv(h).PrepareVolumesAndGetBindings(testContext(t), spec(tc.subPath, tc.readOnly))
			if tc.err != nil {
				require.ErrorIs(t, err, tc.err)
				require.Empty(t, h.MountTable())
				return
			}
			require.NoError(t, err)
			require.Equal(t, dataTarget+tc.want, got["app"][0].HostPath)
			mode, ok := h.Mode(dataTarget + tc.want)
			require.True(t, ok)
			if tc.made {
				require.Equal(t, fs.ModeDir|0o755, mode)
			}
		})
	}
}

func TestSubPathOfAHostPathThatIsNotThere(t *testing.T) {
	h := fake.NewHost()
	_, err := newEnv(h).PrepareVolumesAndGetBindings(testContext(t), podSpec(t, `
containers: [{name: app, volumeMounts: [{name: v, mountPath: /v, subPath: a}]}]
volumes: [{name: v, hostPath: {path: /nowhere}}]`))
	require.ErrorIs(t, err, hostvolume.ErrHostPath)
	require.Equal(t, "/nowhere", volumeErr(t, err).Place)
}
