package lifecycle

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func requirePatch(t *testing.T, want string, p patch) {
	t.Helper()
	require.JSONEq(t, want, string(p.encode()))
}

// L24, kubernetes-sigs/sig-storage-lib-external-provisioner PR#199: only the own keys, guarded by what was read
func TestPatchesTouchTheOwnKeysOnlyAndAreGuarded(t *testing.T) {
	const (
		lifecycle = `"path":"/metadata/annotations/pv.csi.alibabacloud.com~1volume.lifecycle"`
		spec      = `"path":"/metadata/annotations/pv.csi.alibabacloud.com~1volume.spec"`
		failure   = `"path":"/metadata/annotations/pv.csi.alibabacloud.com~1volume.error"`
		node      = `"path":"/metadata/annotations/volume.kubernetes.io~1selected-node"`
		uid       = `{"op":"test","path":"/metadata/uid","value":"u"}`
		version   = `{"op":"test","path":"/metadata/resourceVersion","value":"7"}`
	)
	r := testRules
	r.finalizer = "example.com/lv"
	requirePatch(t, `[`+uid+`,{"op":"test",`+lifecycle+`,"value":"creating"},{"op":"test",`+spec+`,"value":"s"},{"op":"test",`+node+`,"value":"n"},{"op":"add",`+lifecycle+`,"value":"created"}]`,
		r.createdPatch(claim{UID: "u", Spec: "s", Node: "n"}))
	requirePatch(t, `[`+uid+`,{"op":"test",`+lifecycle+`,"value":"creating"},{"op":"test",`+spec+`,"value":"s"},{"op":"test",`+node+`,"value":"n"},{"op":"add",`+lifecycle+`,"value":"created"},{"op":"remove",`+failure+`}]`,
		r.createdPatch(claim{UID: "u", Spec: "s", Node: "n", Failure: "f"}))
	pv := &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Finalizers: []string{"x", "example.com/lv"}}}
	requirePatch(t, `[`+uid+`,{"op":"test",`+lifecycle+`,"value":"deleting"},{"op":"test",`+spec+`,"value":"s"},{"op":"add",`+lifecycle+`,"value":"deleted"},
		{"op":"test","path":"/metadata/finalizers/1","value":"example.com/lv"},{"op":"remove","path":"/metadata/finalizers/1"}]`,
		r.deletedPatch(volume{UID: "u", Spec: "s"}, pv))
	f := Failure{Reason: ReasonNoSpace, Message: "m"}
	text, _ := json.Marshal(f.Encode())
	requirePatch(t, `[`+uid+`,{"op":"test",`+lifecycle+`,"value":"creating"},{"op":"test",`+spec+`,"value":"s"},{"op":"add",`+failure+`,"value":`+string(text)+`}]`,
		r.failurePatch("u", Creating, "s", f))
	requirePatch(t, `[`+uid+`,{"op":"test",`+lifecycle+`,"value":"deleting"},{"op":"test",`+spec+`,"value":"s"},`+version+`,{"op":"add",`+node+`,"value":"node-a"}]`,
		r.markPatch(volume{UID: "u", Spec: "s", Version: "7"}))
	requirePatch(t, `[`+uid+`,`+version+`,{"op":"add","path":"/metadata/finalizers","value":["example.com/lv"]}]`, r.protectPatch(volume{UID: "u", Version: "7"}, &v1.PersistentVolume{}))
	requirePatch(t, `[`+uid+`,`+version+`,{"op":"add","path":"/metadata/finalizers/-","value":"example.com/lv"}]`, r.protectPatch(volume{UID: "u", Version: "7"}, pv))
	requirePatch(t, `[`+uid+`,{"op":"test","path":"/metadata/finalizers/1","value":"example.com/lv"},{"op":"remove","path":"/metadata/finalizers/1"}]`, r.releasePatch(volume{UID: "u"}, pv))
	require.False(t, r.releasePatch(volume{UID: "u"}, &v1.PersistentVolume{}).changes())

	require.Equal(t, "/metadata/annotations/a~1b~0c", annotationPath("a/b~c"))
}
