package cache

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSmoke(t *testing.T) {
	w, _ := newDesired(t)
	v := mustAddPod(t, w, "p1", exclusiveSpec("v1"), "a")
	require.Equal(t, volumeName("v1"), v)
	require.True(t, w.VolumeExists(v, "a"))
	w.DeletePod("p1", v, "a")
	require.False(t, w.VolumeExists(v, "a"))
	a, _ := newActual(t)
	mustAttach(t, a, "v1", "a")
	require.Equal(t, []string{"v1"}, reportNames(a.Report("a").Volumes))
	for x := range a.AttachedVolumes() {
		require.Equal(t, t0, x.Since)
	}
	a.DeleteVolumeNode(v, "a")
	a.DeleteNode("a")
	require.Zero(t, a.Sizes())
}
