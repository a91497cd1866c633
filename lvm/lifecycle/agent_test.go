package lifecycle

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAClaimIsMadeAndMarked(t *testing.T) {
	w := newTestWorld(t)
	w.claim("data", spec("pvc-1", 10*mib))
	w.idle()
	require.Equal(t, "created", w.claimState("data"))
	t.Log(w.lvm.Calls(), w.session.Calls(), w.notices, w.getLV("pvc-1").Tags)
	require.Equal(t, []string{"pvc-1"}, w.lvs())
}
