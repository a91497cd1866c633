package hostvolume_test

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stateofworld/stateofworld/executor/command"
)

// Everything happens where the Runner is: nothing is mounted, made or looked at in the namespace of the caller.
func TestRealVolumesArePreparedInTheNamespacesOfAnotherProcess(t *testing.T) {
	m := realMachine(t, "nsenter", "unshare", "mkfs.ext4")
	m.disk("data", 64*mib)
	private := t.TempDir()
	pid := otherNamespace(t, "mount -t tmpfs tmpfs "+private)
	runner, err := command.NSEnter(command.NSEnterOptions{TargetPID: pid, Namespaces: []command.Namespace{command.Mount}})
	require.NoError(t, err)
	env := m.newEnv(runner)
	env.Options.BaseDir, env.Options.StateDir = private+"/base", private+"/state"
	spec := podSpec(t, `
containers:
- name: app
  volumeMounts: [{name: data, mountPath: /data, subPath: a/b}, {name: mem, mountPath: /mem}, {name: scratch, mountPath: /scratch}, {name: dir, mountPath: /dir}, {name: file, mountPath: /file}]
volumes:
- {name: data, gcePersistentDisk: {pdName: data}}
- {name: mem, emptyDir: {medium: Memory, sizeLimit: 1Mi}}
- {name: scratch, emptyDir: {}}
- {name: dir, hostPath: {path: `+private+`/made, type: DirectoryOrCreate}}
- {name: file, hostPath: {path: `+private+`/made/file, type: FileOrCreate}}`)
	for range 2 {
		got, err := env.PrepareVolumesAndGetBindings(testContext(t), spec)
		require.NoError(t, err)
		require.Empty(t, entries(t, private), "nothing was made here")
		require.Empty(t, m.mounts(), "nothing was mounted here")
		for _, b := range got["app"] {
			_, err := os.Stat(fmt.Sprintf("/proc/%d/root%s", pid, b.HostPath))
			require.NoError(t, err, "it is there")
		}
	}
	table, err := os.ReadFile(fmt.Sprintf("/proc/%d/mountinfo", pid))
	require.NoError(t, err)
	require.Equal(t, 2, strings.Count(string(table), private+"/base/"))
	require.NoError(t, env.UnmountExistingVolumes(testContext(t)))
	table, err = os.ReadFile(fmt.Sprintf("/proc/%d/mountinfo", pid))
	require.NoError(t, err)
	require.NotContains(t, string(table), private+"/base/")
}

func entries(t *testing.T, dir string) []os.DirEntry {
	t.Helper()
	out, err := os.ReadDir(dir)
	require.NoError(t, err)
	return out
}

// H17, metal-stack/csi-driver-lvm#111, topolvm/topolvm#283
func TestRealAllCommandsOfADeviceRunInOneNamespace(t *testing.T) {
	m := realMachine(t, "mkfs.ext4")
	m.disk("blank", 64*mib)
	data := m.disk("data", 64*mib)
	m.sh("mkfs.ext4", "-q", data)
	dir := t.TempDir()
	// A stand-in for nsenter, which writes down how it is called and stays where it is.
	nsenter := dir + "/nsenter"
	require.NoError(t, os.WriteFile(nsenter, []byte("#!/bin/sh\nprintf '%s\\n' \"$*\" >>"+dir+"/log\nwhile [ \"$1\" != -- ]; do shift; done\nshift\nexec \"$@\"\n"), 0o700))
	require.NoError(t, exec.Command(nsenter, "--", "true").Run())
	require.NoError(t, os.Remove(dir+"/log"))
	runner, err := command.NSEnter(command.NSEnterOptions{Program: nsenter})
	require.NoError(t, err)

	env := m.newEnv(runner)
	spec := podSpec(t, killSpec)
	_, err = env.PrepareVolumesAndGetBindings(testContext(t), spec)
	require.NoError(t, err)
	require.NoError(t, env.UnmountExistingVolumes(testContext(t)))

	log, err := os.ReadFile(dir + "/log")
	require.NoError(t, err)
	prefix := strings.Join(runner.Prefix()[1:], " ") + " "
	require.True(t, strings.HasSuffix(prefix, " -- "))
	var programs []string
	for line := range strings.Lines(string(log)) {
		program, ok := strings.CutPrefix(line, prefix)
		require.True(t, ok, "%q does not begin with %q", line, prefix)
		programs = append(programs, strings.Fields(program)[0])
	}
	for _, program := range []string{"blkid", "blockdev", "fsck.ext4", "mkfs.ext4", "mount", "umount", "cat", "dd", "mkdir", "stat", "realpath", "rm"} {
		require.True(t, slices.Contains(programs, program), "%s was not run there", program)
	}
}
