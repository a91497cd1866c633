package executor

import (
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/stateofworld/stateofworld/cache"
)

// Key says what an operation works on, and so what it must not run together with.
//
// An empty Pod or Node means any: an operation on (V, any pod, any node) excludes every other operation on V. An empty
// Volume is a value of its own, not a wildcard: such keys concern no volume, and overlap only among themselves, by the
// same rule for Pod and Node. At least one part must be set.
type Key struct {
	Volume v1.UniqueVolumeName
	Pod    cache.UniquePodName
	Node   types.NodeName
}

// Overlaps reports whether operations with these two keys exclude each other. It is symmetric, and not transitive:
// (V, any node) overlaps both (V, A) and (V, B), which do not overlap each other.
func (k Key) Overlaps(o Key) bool {
	return k.Volume == o.Volume && k.overlapsWithinVolume(o)
}

func (k Key) overlapsWithinVolume(o Key) bool {
	return (k.Pod == o.Pod || k.Pod == "" || o.Pod == "") &&
		(k.Node == o.Node || k.Node == "" || o.Node == "")
}

// String names the parts that are set, as in `volume "v" on node "a"`.
func (k Key) String() string {
	var parts []string
	if k.Volume != "" {
		parts = append(parts, `volume "`+string(k.Volume)+`"`)
	}
	if k.Pod != "" {
		parts = append(parts, `pod "`+string(k.Pod)+`"`)
	}
	if k.Node != "" {
		parts = append(parts, `node "`+string(k.Node)+`"`)
	}
	if len(parts) == 0 {
		return "nothing"
	}
	return strings.Join(parts, ", ")
}
