package lifecycle

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/stateofworld/stateofworld/cache"
)

func TestTheKeysAreThoseOfTheForerunner(t *testing.T) {
	var a Annotations
	require.Equal(t, "pv.csi.alibabacloud.com/volume.lifecycle", a.Lifecycle())
	require.Equal(t, "pv.csi.alibabacloud.com/volume.spec", a.Spec())
	require.Equal(t, "pv.csi.alibabacloud.com/volume.error", a.Error())
	require.Equal(t, "volume.kubernetes.io/selected-node", a.withDefaults().SelectedNode)
	require.NoError(t, a.Validate())

	own := Annotations{Prefix: "lvm.example.com", SelectedNode: "example.com/node"}
	require.NoError(t, own.Validate())
	require.Equal(t, "lvm.example.com/volume.lifecycle", own.Lifecycle())
	require.Equal(t, "lvm.example.com/node=node-a", own.NodeSelector("node-a"))
}

func TestKeysThatTheAPIWouldNotTake(t *testing.T) {
	for _, a := range []Annotations{{Prefix: "a/b"}, {Prefix: "UPPER"}, {Prefix: "-"}, {Prefix: strings.Repeat("a", 300)}, {SelectedNode: "a b"}, {SelectedNode: "a/b/c"}} {
		var invalid *cache.InvalidError
		require.ErrorAs(t, a.Validate(), &invalid, a)
	}
}

func TestEveryNodeNameHasALabelValueOfItsOwn(t *testing.T) {
	var a Annotations
	require.Equal(t, "node-a", a.NodeLabelValue("node-a"))
	long := types.NodeName("ip-10-0-0-1." + strings.Repeat("very-long.", 8) + "compute.internal")
	values := map[string]types.NodeName{}
	for _, node := range []types.NodeName{"node-a", "node-b", long, long + "x", "", types.NodeName(a.NodeLabelValue(long)), "-odd"} {
		v := a.NodeLabelValue(node)
		require.Empty(t, validation.IsValidLabelValue(v), "%s", v)
		require.NotContains(t, values, v)
		values[v] = node
	}
}
