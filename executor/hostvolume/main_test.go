package hostvolume_test

import (
	"fmt"
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

// TestMain gives the tests a mount namespace of their own where that can be had, so that what they mount is seen by
// nobody else and is gone when they end, however they end. What they write goes to a tmpfs in it.
func TestMain(m *testing.M) {
	if os.Getenv(helperEnv) != "" {
		helperMain()
		return
	}
	if os.Getenv(inNamespace) == "" {
		enterNamespace()
		goleak.VerifyTestMain(m)
		return
	}
	dir, err := os.MkdirTemp("", "hostvolume-test-")
	if err == nil {
		err = syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=1g,mode=0700")
	}
	if err == nil {
		err = os.Setenv("TMPDIR", dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "no tmpfs for the tests:", err)
		os.Exit(1)
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		_ = syscall.Unmount(dir, 0)
		_ = os.Remove(dir)
		os.Exit(code)
	}))
}

// enterNamespace replaces this process by one in a mount namespace of its own. It returns where that cannot be had.
func enterNamespace() {
	fuzzing := slices.ContainsFunc(os.Args, func(arg string) bool { return strings.HasPrefix(arg, "-test.fuzz") })
	unshare, err := exec.LookPath("unshare")
	if os.Getuid() != 0 || fuzzing || err != nil || exec.Command(unshare, "--mount", "--propagation", "private", "true").Run() != nil {
		return
	}
	argv := append([]string{unshare, "--mount", "--propagation", "private", "--", os.Args[0]}, os.Args[1:]...)
	_ = syscall.Exec(unshare, argv, append(os.Environ(), inNamespace+"=1")) // returns only when it fails
}
