package reconciler_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/stateofworld/stateofworld/fake"
	"github.com/stateofworld/stateofworld/reconciler"
)

func TestAPodMovesToAnotherNode(t *testing.T) {
	w := fake.NewWorld(t)
	w.Node("a", "b")
	w.Pod("web-0", "vol-1", "a")
	w.Settle()
	w.Driver.FailNext(fake.Detach, errors.New("busy"))
	w.Move("web-0", "b")
	w.Settle()
	require.Equal(t, []string{"attach vol-1 a", "detach vol-1 a: busy", "detach vol-1 a", "attach vol-1 b"}, w.Driver.Calls())
}

// S4, kubernetes/kubernetes#120741: a volume of a driver that is not installed here is somebody's.
func TestAVolumeOfAnUnknownPluginIsLeftAlone(t *testing.T) {
	w := fake.NewWorld(t)
	w.Node("a")
	volume := v1.UniqueVolumeName("kubernetes.io/csi/other.example.com^vol-1")
	require.NoError(t, w.Actual.MarkVolumeAsAttached(volume, nil, "a", ""))
	w.Advance(time.Hour)
	require.Empty(t, w.Driver.Calls())
	require.Equal(t, reconciler.PluginMissing, w.Reconciler.Explain(volume, "a").Decision.Reason)
	require.Equal(t, []string{string(volume)}, w.Reports.Content("a"), "it stays in the report")
	w.Actual.DeleteVolumeNode(volume, "a")
	w.WaitIdle()
}
