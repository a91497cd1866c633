package hostvolume_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stateofworld/stateofworld/executor/command"
)

// helperEnv makes the test binary the process that is killed; it holds a killedCall.
const helperEnv = "HOSTVOLUME_TEST_KILLED_CALL"

// killedCall is a call in a process of its own, which kills itself instead of running a command.
type killedCall struct {
	Base, Links string
	Unmount     bool
	Command     int // index of the command before which the process ends
}

// killer is a runner that kills the process at a command.
type killer struct {
	command.Runner
	left int
}

func (k *killer) Run(ctx context.Context, cmd command.Command) (command.Result, error) {
	if k.left == 0 {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	}
	k.left--
	return k.Runner.Run(ctx, cmd)
}

const killSpec = `
containers: [{name: app, volumeMounts: [{name: mem, mountPath: /m}, {name: scratch, mountPath: /s}, {name: blank, mountPath: /b}, {name: data, mountPath: /d}]}]
volumes:
- {name: mem, emptyDir: {medium: Memory}}
- {name: scratch, emptyDir: {}}
- {name: blank, gcePersistentDisk: {pdName: blank}}
- {name: data, gcePersistentDisk: {pdName: data}}`

// helperMain is main of the process that is killed. It exits with 0 when there was nothing to kill it at.
func helperMain() {
	var call killedCall
	err := json.Unmarshal([]byte(os.Getenv(helperEnv)), &call)
	if err == nil {
		m := &machine{base: call.Base, links: call.Links}
		env := m.newEnv(&killer{command.Host(), call.Command})
		if call.Unmount {
			err = env.UnmountExistingVolumes(context.Background())
		} else {
			_, err = env.PrepareVolumesAndGetBindings(context.Background(), podSpec(stderrT{}, killSpec))
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// stderrT is what podSpec needs of a test, for a process that is none.
type stderrT struct{ testing.TB }

func (stderrT) Helper()                      {}
func (stderrT) FailNow()                     { os.Exit(1) }
func (stderrT) Errorf(f string, args ...any) { fmt.Fprintf(os.Stderr, f, args...) }

// runAndKill reports whether the process was killed at its command; otherwise it has ended well.
func runAndKill(t *testing.T, call killedCall) bool {
	t.Helper()
	config, err := json.Marshal(call)
	require.NoError(t, err)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), helperEnv+"="+string(config))
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL {
		return true
	}
	require.NoError(t, err, "%s", out)
	return false
}

// kill -9 between any two commands, for real, and run again.
func TestRealProcessKilledBetweenAnyTwoCommandsIsTakenOverByTheNext(t *testing.T) {
	prepare := func(t *testing.T, m *machine) map[string][]bind {
		t.Helper()
		got, err := m.newEnv(nil).PrepareVolumesAndGetBindings(testContext(t), podSpec(t, killSpec))
		require.NoError(t, err)
		require.DirExists(t, got["app"][3].HostPath+"/precious")
		require.Len(t, m.mounts(), 3)
		return got
	}
	killAt := func(t *testing.T, n int, unmount bool) (killed bool) {
		m := realMachine(t, "mkfs.ext4", "debugfs")
		m.disk("blank", 32*mib)
		data := m.disk("data", 32*mib)
		m.sh("mkfs.ext4", "-q", data)
		m.sh("debugfs", "-w", "-R", "mkdir precious", data)
		if unmount {
			prepare(t, m)
		}
		killed = runAndKill(t, killedCall{Base: m.base, Links: m.links, Unmount: unmount, Command: n})
		if unmount {
			require.NoError(t, m.env.UnmountExistingVolumes(testContext(t)))
			require.Empty(t, m.mounts())
		}
		fresh := prepare(t, m)["app"][2].HostPath
		require.NoError(t, os.WriteFile(fresh+"/new", []byte("data"), 0o600))
		require.NoError(t, m.env.UnmountExistingVolumes(testContext(t)))
		require.Empty(t, m.mounts())
		prepare(t, m)
		kept, err := os.ReadFile(fresh + "/new")
		require.NoError(t, err)
		require.Equal(t, "data", string(kept))
		return killed
	}
	for _, tc := range []struct {
		name     string
		unmount  bool
		commands int
	}{{"prepare", false, 12}, {"unmount", true, 3}} {
		for n := 0; n <= tc.commands; n++ {
			t.Run(fmt.Sprintf("%s, before command %d", tc.name, n), func(t *testing.T) {
				require.Equal(t, n < tc.commands, killAt(t, n, tc.unmount), "there are %d commands", tc.commands)
			})
		}
	}
}
