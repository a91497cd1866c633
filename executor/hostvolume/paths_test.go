package hostvolume_test

import (
	"io/fs"
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/stateofworld/stateofworld/executor/hostvolume"
	"github.com/stateofworld/stateofworld/fake"
)

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

// Documented behaviour of konlet.
func TestTwoVolumesMayHaveTheSameHostPath(t *testing.T) {
	spec := podSpec(t, `
containers: [{name: app, volumeMounts: [{name: a, mountPath: /a}, {name: b, mountPath: /b, readOnly: true}]}]
volumes: [{name: a, hostPath: {path: /var}}, {name: b, hostPath: {path: /var}}]`)
	got, err := newEnv(fake.NewHost()).PrepareVolumesAndGetBindings(testContext(t), spec)
	require.NoError(t, err)
	require.Equal(t, []bind{{HostPath: "/var", ContainerPath: "/a"}, {HostPath: "/var", ContainerPath: "/b", ReadOnly: true}}, got["app"])
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
