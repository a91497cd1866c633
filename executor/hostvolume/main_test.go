package hostvolume_test

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/goleak"
)

// inNamespace is set in the environment of a test process that has a mount namespace of its own.
const inNamespace = "HOSTVOLUME_TEST_IN_MOUNT_NAMESPACE"

// TestMain gives the tests a mount namespace of their own where that can be had, so that what they mount is seen by nobody else and is gone when
// they end, however they end.
func TestMain(m *testing.M) {
	if os.Getenv(helperEnv) != "" {
		helperMain()
		return
	}
	fuzzing := slices.ContainsFunc(os.Args, func(arg string) bool { return strings.HasPrefix(arg, "-test.fuzz") })
	if os.Getuid() == 0 && os.Getenv(inNamespace) == "" && !fuzzing {
		if unshare, err := exec.LookPath("unshare"); err == nil && exec.Command(unshare, "--mount", "--propagation", "private", "true").Run() == nil {
			argv := append([]string{unshare, "--mount", "--propagation", "private", "--", os.Args[0]}, os.Args[1:]...)
			_ = syscall.Exec(unshare, argv, append(os.Environ(), inNamespace+"=1")) // returns only when it fails
		}
	}
	goleak.VerifyTestMain(m)
}
