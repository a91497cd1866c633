package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"github.com/stateofworld/stateofworld/examples/internal/manifest"
)

func TestBadInputIsPlacedAndNothingIsDone(t *testing.T) {
	const claim = "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: a, namespace: b}\n"
	for name, c := range map[string]struct{ text, want string }{
		"nothing":          {"# nothing\n---\n", `there are no claims or volumes in it`},
		"an empty list":    {"apiVersion: v1\nkind: List\nitems: []\n", `there are no claims or volumes in it`},
		"no kind":          {"a: b\n", `document 1 (from line 1 on): kind: is missing`},
		"no kind in list":  {"apiVersion: v1\nkind: List\nitems: [{metadata: {name: a}}]\n", `document 1 (from line 1 on): kind: is missing`},
		"another kind":     {claim + "---\napiVersion: v1\nkind: Pod\n", `document 2 (from line 4 on): kind: "Pod" is neither PersistentVolumeClaim nor PersistentVolume nor a list of them`},
		"another version":  {"apiVersion: apps/v1\nkind: Deployment\n", `document 1 (from line 1 on): apiVersion: "apps/v1", kind "Deployment": must be v1`},
		"a list":           {"- a\n", `document 1 (from line 1 on): there must be claims and volumes, or a List of them, and not something else`},
		"a JSON array":     {"[]", `document 1 (from line 1 on): there must be claims and volumes, or a List of them, and not something else`},
		"a text":           {"what?\n", `document 1 (from line 1 on): there must be claims and volumes, or a List of them, and not something else`},
		"items are none":   {"apiVersion: v1\nkind: List\nitems: 5\n", `document 1 (from line 1 on): items: must be a list, not number`},
		"no name":          {"apiVersion: v1\nkind: PersistentVolume\nmetadata: {}\n", `document 1 (from line 1 on): PersistentVolume "": metadata.name: is missing`},
		"an odd name":      {"apiVersion: v1\nkind: PersistentVolume\nmetadata: {name: \"a\\e[2Jb\"}\n", `PersistentVolume "a\x1b[2Jb": metadata.name: "a\x1b[2Jb": a lowercase RFC 1123 subdomain`},
		"an odd namespace": {strings.Replace(claim, "namespace: b", "namespace: B", 1), `PersistentVolumeClaim "B/a": metadata.namespace: "B": `},
		"a volume in one":  {"apiVersion: v1\nkind: PersistentVolume\nmetadata: {name: a, namespace: b}\n", `PersistentVolume "a": metadata.namespace: a PersistentVolume has none`},
		"an unknown field": {claim + "---\n" + strings.Replace(claim, "{name: a", "{annotation: {}, name: c", 1), `document 2 (from line 4 on): PersistentVolumeClaim "b/c": unknown field "metadata.annotation"`},
		"a wrong type":     {strings.Replace(claim, "name: a", "name: [a]", 1), `document 1 (from line 1 on): PersistentVolumeClaim "b/": metadata.name: must be a string, not array`},
		"no list":          {strings.Replace(claim, "{name: a", "{finalizers: 3, name: a", 1), `PersistentVolumeClaim "b/a": metadata.finalizers: must be a list, not number`},
		"no size":          {"apiVersion: v1\nkind: PersistentVolume\nmetadata: {name: a}\nspec: {capacity: {storage: big}}\n", `document 1 (from line 1 on): PersistentVolume "a": `},
		"a field twice":    {claim + "kind: PersistentVolume\n", `document 1, line 4: key "kind" already set in map`},
		"a JSON one twice": {`{"apiVersion":"v1","kind":"PersistentVolume","metadata":{"name":"a","name":"b"}}`, `duplicate field "metadata.name"`},
		"no YAML":          {claim + "---\na: [\n", `document 2, line 5: did not find expected node content`},
		"no JSON":          {"{\"apiVersion\":\"v1\",\n\"kind\" \"List\"}", `document 1, line 2: invalid character '"' after object key`},
		"cut off":          {"{\"apiVersion\":\"v1\",\n\"kind\":\"List\",\n", `document 1, line 2: it ends in the middle of an object: was it cut off?`},
		"an object twice":  {claim + "---\n" + claim, `document 2 (from line 4 on): PersistentVolumeClaim "b/a": is given twice: before, in standard input, document 1`},
		"a state of a volume": {strings.Replace(claim, "{name: a", "{annotations: {pv.csi.alibabacloud.com/volume.lifecycle: deleting}, name: a", 1),
			`PersistentVolumeClaim "b/a": metadata.annotations[pv.csi.alibabacloud.com/volume.lifecycle]: "deleting" is neither "creating" nor "created"`},
		"a state of a claim": {"apiVersion: v1\nkind: PersistentVolume\nmetadata: {name: a, annotations: {pv.csi.alibabacloud.com/volume.lifecycle: created}}\n",
			`PersistentVolume "a": metadata.annotations[pv.csi.alibabacloud.com/volume.lifecycle]: "created" is neither "deleting" nor "deleted"`},
		"gone already": {strings.Replace(claim, "{name: a", "{deletionTimestamp: 2026-01-31T12:00:00Z, name: a", 1),
			`PersistentVolumeClaim "b/a": metadata.deletionTimestamp: what is being deleted and is still there has metadata.finalizers`},
		"a UID that is none":       {strings.Replace(claim, "{name: a", "{uid: 'a b', name: a", 1), `PersistentVolumeClaim "b/a": metadata.uid: invalid tag "sow.owner=a b": character ' '`},
		"a reference that is none": {"apiVersion: v1\nkind: PersistentVolume\nmetadata: {name: a}\nspec: {claimRef: {uid: 'a b'}}\n", `PersistentVolume "a": spec.claimRef.uid: invalid tag`},
		"what the server refuses":  {strings.Replace(claim, "{name: a", "{labels: {a: b c}, name: a", 1), `PersistentVolumeClaim "b/a": PersistentVolumeClaim "a" is invalid: metadata.labels: Invalid value`},
		"UTF-16":                   {"\xff\xfea\x00", `is UTF-16, as PowerShell's > writes it: save it as UTF-8`},
	} {
		t.Run(name, func(t *testing.T) {
			out := program(t, c.text, "-f", "-")
			require.Equal(t, exitBadInput, out.code, out)
			require.Empty(t, out.stdout)
			require.Contains(t, out.stderr, c.want)
			require.True(t, strings.HasPrefix(out.stderr, "nodeagent: standard input: "), out.stderr)
			require.Equal(t, 1, strings.Count(out.stderr, "\n"), out.stderr)
			require.True(t, manifest.IsPlain(strings.TrimSuffix(out.stderr, "\n")))
		})
	}
	out := program(t, "", "-f", "testdata/good.yaml", "-f", "testdata/absent\x1b.yaml")
	require.Equal(t, output{code: exitBadInput, stderr: "nodeagent: \"testdata/absent\\x1b.yaml\": no such file or directory\n"}, out)
	out = program(t, "", "-f", "testdata")
	require.Equal(t, output{code: exitBadInput, stderr: "nodeagent: testdata: is a directory\n"}, out)
}

// The same objects, however they are written down.
func TestAllFormsOfTheObjectsMeanTheSame(t *testing.T) {
	text, err := os.ReadFile("testdata/good.yaml")
	require.NoError(t, err)
	var objects []map[string]any
	for document := range strings.SplitSeq(string(text), "---\n") {
		var object map[string]any
		require.NoError(t, yaml.Unmarshal([]byte(document), &object))
		objects = append(objects, object)
	}
	marshal := func(v any) string {
		data, err := json.MarshalIndent(v, "", "\t")
		require.NoError(t, err)
		return string(data)
	}
	bare := func(o map[string]any) map[string]any {
		return map[string]any{"metadata": o["metadata"], "spec": o["spec"]}
	}
	list := func(kind string, items ...any) map[string]any {
		return map[string]any{"apiVersion": "v1", "kind": kind, "items": items}
	}
	want := decodeResult(t, program(t, string(text), "-f", "-", "-o", "json"))
	for form, text := range map[string]string{
		"with a mark":        "\ufeff" + string(text),
		"Windows":            strings.ReplaceAll(string(text), "\n", "\r\n"),
		"comments around":    "# a\n---\n# b\n--- # c\n" + string(text) + "...\n---\n",
		"a JSON stream":      marshal(objects[0]) + marshal(objects[1]) + "\n\n",
		"a list":             marshal(list("List", objects[0], objects[1])),
		"lists in a list":    marshal(list("List", list("List", objects[0]), list("List", objects[1]))),
		"typed lists":        marshal(list("PersistentVolumeClaimList", bare(objects[0]))) + marshal(list("PersistentVolumeList", bare(objects[1]))),
		"JSON within YAML":   "---\n" + strings.ReplaceAll(marshal(objects[0]), "\t", " ") + "\n---\n" + strings.ReplaceAll(marshal(objects[1]), "\t", " "),
		"resourceVersion":    strings.Replace(string(text), "metadata:\n", "metadata:\n  resourceVersion: \"77\"\n", 1),
		"on the dashed line": "--- " + strings.ReplaceAll(strings.ReplaceAll(marshal(list("List", objects[0], objects[1])), "\n", " "), "\t", " ") + "\n",
	} {
		t.Run(form, func(t *testing.T) {
			out := program(t, text, "-f", "-", "-o", "json")
			require.Equal(t, exitDone, out.code, out.stderr)
			require.Equal(t, want.Objects, decodeResult(t, out).Objects)
		})
	}
	t.Run("several files", func(t *testing.T) {
		first, second := filepath.Join(t.TempDir(), "a.json"), filepath.Join(t.TempDir(), "b.json")
		require.NoError(t, os.WriteFile(first, []byte(marshal(objects[1])), 0o600))
		require.NoError(t, os.WriteFile(second, []byte(marshal(objects[0])), 0o600))
		require.Equal(t, want.Objects, decodeResult(t, program(t, "", "-f", first, "-f", second, "-o", "json")).Objects)
	})
}

// The texts come from whoever may write annotations.
func TestTextsCannotWriteToTheTerminal(t *testing.T) {
	text, err := os.ReadFile("testdata/claims.yaml")
	require.NoError(t, err)
	evil := strings.NewReplacer(
		`pvc-huge`, `pvc-\u001b[2Jhuge`, `"vg":"vg0"`, `"vg":"vg\u202e\u0007\r\n"`, `vg0/pvc-old`, `"vg0/pvc\e[31m\u009bold"`, `values: [node-a]`, `values: [node-a, "\e[2J"]`,
	).Replace(string(text))
	for _, format := range []string{"table", "json"} {
		out := program(t, evil, "-f", "-", "-o", format)
		require.Equal(t, exitFailed, out.code, out.stderr)
		printed := out.stderr
		if format == "table" {
			printed = out.stdout
		} else {
			require.NotEmpty(t, decodeResult(t, out).Objects)
		}
		for line := range strings.Lines(printed) {
			require.True(t, manifest.IsPlain(strings.TrimSuffix(line, "\n")), "%q", line)
		}
		require.Contains(t, printed, `\x1b[2J`)
	}
}
