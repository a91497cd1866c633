package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/stateofworld/stateofworld/examples/internal/manifest"
)

func TestBadInputIsRefusedWithItsPlace(t *testing.T) {
	for _, c := range []struct{ name, input, want string }{
		{"nothing", "", "there are no Kubernetes objects in it"},
		{"white space", " \n\t\n", "there are no Kubernetes objects in it"},
		{"comments", "# kubectl get pods\n---\n---\n# end\n---", "there are no Kubernetes objects in it"},
		{"UTF-16", "\xff\xfea\x00", "is UTF-16, as PowerShell's > writes it: save it as UTF-8"},
		{"text", "No resources found", `document 1 (from line 1 on): there must be Kubernetes objects, not the string "No resources found"`},
		{"number", "\n 17", "document 1 (from line 1 on): there must be Kubernetes objects, not 17"},
		{"null", "null", "document 1 (from line 1 on): there must be Kubernetes objects, not null"},
		{"an array", "\n[{}]", "document 1, line 2: there must be Kubernetes objects, not a JSON array: write its elements one after the other (jq '.[]'), or as the items of a List"},

		{"cut off in an item", "{\"kind\":\"List\",\"items\":[\n{\"kind\":\"Node\",\n\"meta", "document 1, line 3: it ends in the middle of an object: was it cut off?"},
		{"cut off between items", "{\"kind\":\"List\",\"items\":[\n{\"kind\":\"X\"},\n", "document 1, line 3: it ends in the middle of an object: was it cut off?"},
		{"cut off after a key", `{"kind":`, "document 1, line 1: it ends in the middle of an object: was it cut off?"},
		{"a comma too many", "{\"items\":[\n{\"kind\":\"X\",\n\"a\":1,\n,}]}", "document 1, line 4: invalid character ',' looking for beginning of object key string"},
		{"a comma too few", "{\"items\":[\n{\"kind\":\"X\"}\n{\"kind\":\"X\"}]}", "document 1, line 3: expected comma after array element"},
		{"a key without quotes", "{\n\nkind: \"X\"}", "document 1, line 3: invalid character 'k'"},
		{"a brace too many", "{\"kind\":\"X\"}\n\n}", "document 2, line 3: invalid character '}' looking for beginning of value"},
		{"too deep", strings.Repeat(`{"a":`, 20_000), "document 1, line 1: invalid character '{' exceeded max depth"},

		{"no kind", "{\n\"metadata\":{\"name\":\"x\"}}", `document 1, line 2: "x": kind: is missing`},
		{"an item without a kind", `{"kind":"List","items":[{"metadata":{"name":"x"}}]}`, `document 1, line 1: "x": kind: is missing`},
		{"a null item", "{\"kind\":\"List\",\"items\":[\nnull]}", "document 1, line 2: kind: is missing"},
		{"items are no array", "{\"kind\":\"List\",\n\"items\":{}}", "document 1, line 2: items: must be an array"},
		{"items of something else", "{\n\"items\":[],\n\"kind\":\"Pod\"}", `document 1, line 2: items: are in an object of kind "Pod", which is not a list`},
		{"no version", `{"kind":"Pod","metadata":{"name":"x","namespace":"y"}}`, `document 1, line 1: Pod "y/x": apiVersion: is missing`},
		{"no name", `{"apiVersion":"v1","kind":"Pod"}`, `document 1, line 1: Pod "": metadata.name: is missing`},
		{"no namespace", `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"x"}}`, `document 1, line 1: Pod "x": metadata.namespace: is missing`},
		{"wrong type", "{\"apiVersion\":\"v1\",\"kind\":\"List\",\"items\":[\n{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\n\"metadata\":{\"name\":\"x\",\"namespace\":\"y\"},\n\"spec\":{\"nodeName\":\n7}}]}",
			`document 1, line 5: Pod "y/x": spec.nodeName: must be a string, not number`},
		{"wrong type in a single object", "{\"apiVersion\":\"v1\",\n\"kind\":\"Pod\",\n\"extra\":{\n},\n\"metadata\":{\"name\":\"x\",\n\"namespace\":[]}}",
			`document 1, line 6: Pod "x": metadata.namespace: must be a string, not array`},
		{"wrong type in a later document", "{\"kind\":\"X\"}\n{\"apiVersion\":\"v1\",\n\"kind\":\"Node\",\"metadata\":{\"name\":\"x\"},\"status\":\n{\"volumesInUse\":true}}",
			`document 2, line 4: Node "x": status.volumesInUse: must be an array, not bool`},
		{"wrong type of the spec", `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"x","namespace":"y"},"spec":"z"}`, `document 1, line 1: Pod "y/x": spec: must be an object, not string`},
		{"bad time", node(`,"deletionTimestamp":"yesterday"`, ""), `document 1, line 1: Node "x": metadata.deletionTimestamp: "yesterday" is not a time like 2026-01-31T12:00:00Z`},
		{"attached volume without a name", node("", `"volumesAttached":[{"devicePath":"/dev/x"}]`), `document 1, line 1: Node "x": status.volumesAttached[0].name: is missing`},
		{"volume in use without a name", node("", `"volumesInUse":["a",""]`), `document 1, line 1: Node "x": status.volumesInUse[1]: is empty`},
		{"pod volume without a name", pod(`{}`), `document 1, line 1: Pod "y/x": spec.volumes[0].name: is missing`},
		{"pod volume without a claim", pod(`{"name":"a","persistentVolumeClaim":{}}`), `document 1, line 1: Pod "y/x": spec.volumes[0].persistentVolumeClaim.claimName: is missing`},
		{"CSI volume without a handle", volume(`"csi":{"driver":"d"}`), `document 1, line 1: PersistentVolume "x": spec.csi.volumeHandle: is missing`},
		{"CSI volume without a driver", volume(`"csi":{"volumeHandle":"h"}`), `document 1, line 1: PersistentVolume "x": spec.csi.driver: is missing`},
		{"unknown access mode", volume(`"accessModes":["RWO"]`), `document 1, line 1: PersistentVolume "x": spec.accessModes[0]: "RWO" is none of ReadWriteOnce, ReadOnlyMany, ReadWriteMany, ReadWriteOncePod`},
		{"attachment to nothing", attachment(`"source":{"persistentVolumeName":"v"}`), `document 1, line 1: VolumeAttachment "x": spec.nodeName: is missing`},
		{"attachment of nothing", attachment(`"nodeName":"n"`), `document 1, line 1: VolumeAttachment "x": spec.source: names no volume`},
		{"attachment of half a volume", attachment(`"nodeName":"n","source":{"inlineVolumeSpec":{"csi":{"driver":"d"}}}`), `document 1, line 1: VolumeAttachment "x": spec.source.inlineVolumeSpec.csi.volumeHandle: is missing`},
		{"two objects of one name", node(`,"uid":"1"`, "") + "\n" + node(`,"uid":"2"`, ""), `document 2, line 2: Node "x": metadata.uid: is "2", but there was one of the same name with uid "1"`},

		{"YAML with a tab", "kind: Pod\nmetadata:\n\tname: x\n", "document 1, line 3: found character that cannot start any token"},
		{"YAML with a key twice", "kind: X\n---\nkind: Pod\nkind: Node\n", `document 2, line 4: key "kind" already set in map`},
		{"YAML that ends with dashes", "kind: X\n--- {kind: }\n---", "document 2 (from line 2 on): kind: is missing"},
		{"YAML that ends too early", "kind: X\n--- # the second\nkind: Pod\nfoo: [\n", "document 2, line 4: did not find expected node content"},
		{"YAML that explodes", explodingYAML(), "document 1 (from line 1 on): document contains excessive aliasing"},
		{"a wrong field in YAML", "kind: X\n---\n\napiVersion: v1\nkind: Pod\nmetadata:\n  name: x\n  namespace: ns\nspec:\n  nodeName: [7]\n",
			`document 2 (from line 2 on): Pod "ns/x": spec.nodeName: must be a string, not array`},
		{"YAML on the line of the dashes", "--- {kind: X}\n--- {kind: }\n", "document 2 (from line 2 on): kind: is missing"},
		{"a name that is no text", "{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"metadata\":{\"name\":\"\\u001b[2J\"}}", `document 1, line 1: Pod "\x1b[2J": metadata.namespace: is missing`},
	} {
		t.Run(c.name, func(t *testing.T) {
			out := program(t, c.input, "-f", "-")
			require.Equal(t, output{code: exitBadInput, stderr: "attachdetach: standard input: " + c.want + "\n"}, out)
		})
	}
}

func node(metadata, status string) string {
	return fmt.Sprintf(`{"apiVersion":"v1","kind":"Node","metadata":{"name":"x"%s},"status":{%s}}`, metadata, status)
}

func pod(volumes string) string {
	return fmt.Sprintf(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"x","namespace":"y"},"spec":{"volumes":[%s]}}`, volumes)
}

func volume(spec string) string {
	return fmt.Sprintf(`{"apiVersion":"v1","kind":"PersistentVolume","metadata":{"name":"x"},"spec":{%s}}`, spec)
}

func attachment(spec string) string {
	return fmt.Sprintf(`{"apiVersion":"storage.k8s.io/v1","kind":"VolumeAttachment","metadata":{"name":"x"},"spec":{%s}}`, spec)
}

func explodingYAML() string {
	text := "a: &a [x, x, x, x, x, x, x, x]\n"
	for c := 'b'; c <= 'h'; c++ {
		text += fmt.Sprintf("%c: &%c [*%c%s]\n", c, c, c-1, strings.Repeat(fmt.Sprintf(", *%c", c-1), 7))
	}
	return text
}

func TestFilesThatCannotBeReadAreNamed(t *testing.T) {
	dir := t.TempDir()
	missing := filepath.Join(dir, "missing")
	out := program(t, "", "-f", missing)
	require.Equal(t, output{code: exitBadInput, stderr: "attachdetach: " + missing + ": no such file or directory\n"}, out)
	out = program(t, "", "-f", dir)
	require.Equal(t, output{code: exitBadInput, stderr: "attachdetach: " + dir + ": read " + dir + ": is a directory\n"}, out)

	bad := filepath.Join(dir, "a b")
	require.NoError(t, os.WriteFile(bad, []byte("{"), 0o600))
	out = program(t, "", "-f", "testdata/cluster.yaml", "-f", bad)
	require.Equal(t, exitBadInput, out.code)
	require.Empty(t, out.stdout, "a bad second file means that nothing is done with the first")
	require.Equal(t, fmt.Sprintf("attachdetach: %q: document 1, line 1: it ends in the middle of an object: was it cut off?\n", bad), out.stderr)
}

func loadText(t require.TestingT, text string) *dump {
	d, err := load(context.Background(), []string{"-"}, strings.NewReader(text), &loading{})
	require.NoError(t, err)
	return d
}

func TestAReadErrorIsNotTheEndOfTheFile(t *testing.T) {
	for _, start := range []string{`{"kind":"X"}`, "kind: X\n---\n"} {
		in := io.MultiReader(strings.NewReader(start), iotest.ErrReader(io.ErrClosedPipe))
		_, err := load(context.Background(), []string{"-"}, in, &loading{})
		require.ErrorIs(t, err, io.ErrClosedPipe)
	}
}

func TestKindsOfOtherGroupsAreNotTaken(t *testing.T) {
	d := loadText(t, `{"apiVersion":"management.cattle.io/v3","kind":"Node","metadata":{"name":"n"}} {"apiVersion":"v1","kind":"Secret","metadata":{"name":"s","namespace":"x"}}`)
	require.Empty(t, d.nodes)
	require.Equal(t, []tallied{
		{"objects of kind Node (management.cattle.io/v3)", 1, []string{"n"}}, {"objects of kind Secret (v1)", 1, []string{"x/s"}},
	}, d.skipped.list())
}

func TestOnlyTheFirstFewOfWhatIsSkippedAreNamed(t *testing.T) {
	var text strings.Builder
	for i := range 10 {
		fmt.Fprintf(&text, `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"s%d"}}`, i)
	}
	require.Equal(t, []tallied{{"objects of kind Secret (v1)", 10, []string{"s0", "s1", "s2"}}}, loadText(t, text.String()).skipped.list())
}

// A list whose kind comes last and whose items do not say theirs has to wait for it.
func TestItemsOfATypedListAreOfItsKind(t *testing.T) {
	for _, text := range []string{
		`{"kind":"NodeList","apiVersion":"v1","items":[{"metadata":{"name":"a"}},{"metadata":{"name":"b"}}]}`,
		`{"apiVersion":"v1","items":[{"metadata":{"name":"a"}},{"metadata":{"name":"b"}}],"kind":"NodeList"}`,
	} {
		d := loadText(t, text)
		require.Contains(t, d.nodes, "a")
		require.Contains(t, d.nodes, "b")
	}
}

func TestItemsIsNothingSpecialInWhatIsNoList(t *testing.T) {
	d := loadText(t, `{"apiVersion":"v1","kind":"Node","metadata":{"name":"a"},"items":{"x":1}}`)
	require.Contains(t, d.nodes, "a")
}

func TestDriversThatNeedNoAttachingAreBelieved(t *testing.T) {
	d := loadText(t, volume(`"csi":{"driver":"nfs.csi.k8s.io","volumeHandle":"h"}`)+
		`{"apiVersion":"storage.k8s.io/v1","kind":"CSIDriver","metadata":{"name":"nfs.csi.k8s.io"},"spec":{"attachRequired":false}}`+
		`{"apiVersion":"storage.k8s.io/v1","kind":"CSIDriver","metadata":{"name":"other"},"spec":{"attachRequired":true}}`)
	require.Equal(t, map[string]bool{"nfs.csi.k8s.io": true}, d.unattached)
	_, err := seed(d)
	require.NoError(t, err)
	require.Equal(t, []tallied{{"persistent volumes whose CSI driver needs no attaching", 1, []string{"x"}}}, d.skipped.list())
}

func TestPodsBeingDeletedCountUntilNoContainerRuns(t *testing.T) {
	text := func(state string) string {
		return `{"apiVersion":"v1","kind":"Node","metadata":{"name":"n","annotations":{"volumes.kubernetes.io/controller-managed-attach-detach":"true"}}}` +
			`{"apiVersion":"v1","kind":"PersistentVolume","metadata":{"name":"v"},"spec":{"csi":{"driver":"d","volumeHandle":"h"},"claimRef":{"namespace":"y","name":"c"}}}` +
			`{"apiVersion":"v1","kind":"PersistentVolumeClaim","metadata":{"name":"c","namespace":"y"},"spec":{"volumeName":"v"},"status":{"phase":"Bound"}}` +
			`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"x","namespace":"y","deletionTimestamp":"2026-01-31T12:00:00Z"},"spec":{"nodeName":"n","volumes":[{"name":"a","persistentVolumeClaim":{"claimName":"c"}}]},` +
			`"status":{"phase":"Running","initContainerStatuses":[{"state":{"terminated":{}}}],"containerStatuses":[{"state":{` + state + `}}]}}`
	}
	for state, wishes := range map[string]int{`"running":{}`: 1, ``: 1, `"terminated":{"exitCode":0}`: 0, `"waiting":{}`: 0} {
		d := loadText(t, text(state))
		w, err := seed(d)
		require.NoError(t, err)
		require.Equal(t, wishes, w.desired.Sizes().Pairs, state)
		require.Len(t, d.skipped.list(), 1-wishes, "what is not wished is said to be skipped: %s", state)
		require.Contains(t, d.pods, types.NamespacedName{Namespace: "y", Name: "x"})
	}
}

// Kubernetes attaches such volumes through a CSI driver, under a name that only it knows: nothing on the pod's node may be
// taken for unwanted.
func TestNodesOfPodsWithMigratedVolumesAreLeftAsTheyAre(t *testing.T) {
	nodeWithVolume := `{"apiVersion":"v1","kind":"Node","metadata":{"name":"n","annotations":{"volumes.kubernetes.io/controller-managed-attach-detach":"true"}},"status":{"volumesAttached":[{"name":"kubernetes.io/csi/ebs.csi.aws.com^v"}]}}`
	pod := `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"x","namespace":"y"},"spec":{"nodeName":"n","volumes":[{"name":"a",%s}]}}`
	for source, explained := range map[string]string{
		`"awsElasticBlockStore":{"volumeID":"v"}`: "waiting: the node has pods whose volumes are not known (y/x)",
		`"emptyDir":{}`: "",
	} {
		r := decodeResult(t, program(t, nodeWithVolume+fmt.Sprintf(pod, source), "-f", "-", "-o", "json"))
		require.Equal(t, explained == "", r.Converged)
		if !r.Converged {
			require.Contains(t, r.Volumes[0].Explanation, explained)
		}
	}
}

// The line that is counted while reading ahead is that of the byte, whatever the reader hands out at once.
func TestLinesAreCountedRight(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := []byte(rapid.StringOfN(rapid.RuneFrom([]rune("ab\n")), 1, 200, -1).Draw(t, "text"))
		lines := &lineCounter{r: bytes.NewReader(text)}
		read, passed := 0, 0
		for passed < len(text) {
			if read < len(text) && rapid.Bool().Draw(t, "read on") {
				n, err := lines.Read(make([]byte, rapid.IntRange(1, 50).Draw(t, "bytes")))
				require.NoError(t, err)
				read += n
			}
			if passed < read {
				at := rapid.IntRange(passed, read-1).Draw(t, "at")
				require.Equal(t, 1+bytes.Count(text[:at], []byte("\n")), lines.line(int64(at)))
				passed = rapid.IntRange(passed, read).Draw(t, "pass")
				lines.pass(int64(passed))
				require.LessOrEqual(t, len(lines.ends), read-passed, "what was passed is forgotten")
			}
		}
	})
}

func TestWhatIsPrintedIsPlain(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.OneOf(rapid.String(), rapid.Map(rapid.SliceOf(rapid.Byte()), func(b []byte) string { return string(b) })).Draw(t, "name")
		require.True(t, manifest.IsPlain(manifest.Quoted(name)))
		require.True(t, manifest.IsPlain(manifest.Cleaned(name)))
		if manifest.IsPlain(name) {
			require.Equal(t, name, manifest.Cleaned(name))
		}
	})
	require.Equal(t, "default/web-0", manifest.Quoted("default/web-0"))
	require.Equal(t, `""`, manifest.Quoted(""))
	require.Equal(t, `"a b"`, manifest.Quoted("a b"))
	require.Equal(t, `a\nb \u202e \xff c`, manifest.Cleaned("a\nb \u202e \xff c"))
}
