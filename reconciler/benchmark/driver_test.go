package benchmark

import (
	"context"
	_ "embed"
	"flag"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/stateofworld/stateofworld/cache"
	"github.com/stateofworld/stateofworld/executor"
)

// Kubernetes writes a line for each attach and detach: it is made as ever, and thrown away.
func TestMain(m *testing.M) {
	klog.SetLogger(logr.Discard())
	flag.Parse()
	if bench := flag.Lookup("test.bench"); bench != nil && bench.Value.String() != "" {
		printVersions()
	}
	os.Exit(m.Run())
}

// printVersions writes, in the form of the lines that the benchmarks begin with, what is compared.
func printVersions() {
	fmt.Println("go:", runtime.Version())
	fmt.Println("gomaxprocs:", runtime.GOMAXPROCS(0))
	for line := range strings.Lines(goMod) {
		if f := strings.Fields(line); len(f) >= 2 && (f[0] == "k8s.io/kubernetes" || f[0] == "github.com/cilium/statedb") {
			fmt.Println(f[0]+":", f[1])
		}
	}
}

// goMod has the versions: a test binary does not know those of its dependencies.
//
//go:embed go.mod
var goMod string

// driver is what attaches and detaches, the same on every side. Without a hook it succeeds at once.
type driver struct {
	attached, detached atomic.Int64 // calls
	hook               atomic.Pointer[func(ctx context.Context, volume string)]
}

// onAttach has fn called in each attach, with the name of the persistent volume.
func (d *driver) onAttach(fn func(ctx context.Context, volume string)) { d.hook.Store(&fn) }

func (d *driver) attach(ctx context.Context, volume string) {
	d.attached.Add(1)
	if fn := d.hook.Load(); fn != nil {
		(*fn)(ctx, volume)
	}
}

func (d *driver) Attach(ctx context.Context, v cache.VolumeToAttach) (string, error) {
	d.attach(ctx, v.VolumeSpec.PersistentVolume.Name)
	return "/dev/xvdba", nil
}

func (d *driver) Detach(context.Context, cache.AttachedVolume) error {
	d.detached.Add(1)
	return nil
}

func (d *driver) VerifyAttached(context.Context, types.NodeName, []cache.AttachedVolume) (map[v1.UniqueVolumeName]executor.Verification, error) {
	return nil, nil
}
