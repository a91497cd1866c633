package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/stateofworld/stateofworld/executor/hostvolume"
)

var rewrite = flag.Bool("rewrite", false, "write what is there now into testdata/*.golden")

// asProgram makes the test binary the program itself.
const asProgram = "HOSTVOLUMES_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
	}
	os.Exit(m.Run())
}

func call(t *testing.T, stdin string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	code = run(context.Background(), args, strings.NewReader(stdin), &out, &errs)
	return code, out.String(), errs.String()
}

func TestOutput(t *testing.T) {
	for name, tc := range map[string]struct {
		args []string
		code int
	}{
		"pod":           {[]string{"-f", "testdata/pod.yaml"}, exitDone},
		"pod-json":      {[]string{"-f", "testdata/pod.yaml", "-o", "json", "-dry-run"}, exitDone},
		"pod-docker":    {[]string{"-f", "testdata/pod.yaml", "-o", "docker", "-base", "/volumes"}, exitDone},
		"konlet":        {[]string{"-f", "testdata/konlet.yaml"}, exitDone},
		"konlet-docker": {[]string{"-f", "testdata/konlet.yaml", "-o", "docker"}, exitDone},
		"paths":         {[]string{"-f", "testdata/paths.yaml"}, exitDone},
		"faulty":        {[]string{"-f", "testdata/faulty.yaml"}, exitInvalid},
		"unknown":       {[]string{"-f", "testdata/unknown.yaml"}, exitInvalid},
		"usage":         {[]string{"-apply"}, exitUsage},
	} {
		t.Run(name, func(t *testing.T) {
			code, stdout, stderr := call(t, "", tc.args...)
			require.Equal(t, tc.code, code, stderr)
			got := stdout
			if stderr != "" {
				got += "-- standard error --\n" + stderr
			}
			golden := filepath.Join("testdata", name+".golden")
			if *rewrite {
				require.NoError(t, os.WriteFile(golden, []byte(got), 0o644))
			}
			want, err := os.ReadFile(golden)
			require.NoError(t, err)
			require.Equal(t, string(want), got)
		})
	}
}

func TestExitCodesOfWrongUsage(t *testing.T) {
	for _, args := range [][]string{
		{}, {"-f"}, {"-x"}, {"-f", "testdata/pod.yaml", "more"}, {"-f", "testdata/pod.yaml", "-apply"}, {"-unmount"}, {"-unmount", "-base", "/b", "-f", "x"},
		{"-f", "testdata/pod.yaml", "-dry-run", "-apply", "-base", "/b"}, {"-f", "testdata/pod.yaml", "-o", "xml"}, {"-f", "testdata/pod.yaml", "-base", "relative"},
	} {
		code, stdout, stderr := call(t, "", args...)
		require.Equal(t, exitUsage, code, "%q", args)
		require.Empty(t, stdout)
		require.NotEmpty(t, stderr)
	}
	code, _, stderr := call(t, "", "-h")
	require.Equal(t, exitDone, code)
	require.Contains(t, stderr, "-unmount")
}

func TestFilesAreReadStrictlyAndFaultsNameTheDocument(t *testing.T) {
	const pod = "spec: {containers: [{name: app}]}\n"
	for name, tc := range map[string]struct {
		text string
		want string // part of the message; none means that it is fine
	}{
		"bare":                         {text: pod},
		"pod":                          {text: "apiVersion: v1\nkind: Pod\n" + pod},
		"empty documents around it":    {text: "---\n# nothing\n---\n" + pod + "---\n"},
		"unknown field":                {text: "---\n---\nspec: {containerz: []}\n", want: `-: document 2: error unmarshaling JSON: while decoding JSON: json: unknown field "containerz"`},
		"unknown field beside spec":    {text: "specs: {}\n" + pod, want: `-: document 1: error unmarshaling JSON: while decoding JSON: json: unknown field "specs"`},
		"unknown field in a pod":       {text: "apiVersion: v1\nkind: Pod\nspec: {containers: [{name: a, imag: x}]}\n", want: `unknown field "imag"`},
		"a field twice":                {text: pod + pod, want: `key "spec" already set in map`},
		"another kind":                 {text: "apiVersion: apps/v1\nkind: Deployment\n" + pod, want: `-: document 1: apiVersion "apps/v1", kind "Deployment": want a Pod of v1`},
		"two pods":                     {text: pod + "---\n" + pod, want: "-: document 2: there is a pod in an earlier document already"},
		"no pod":                       {text: "# nothing\n", want: "-: there is no pod in it"},
		"nothing":                      {text: "", want: "-: there is no pod in it"},
		"no spec":                      {text: "{}\n", want: "-: document 1: there is no spec in it"},
		"not YAML":                     {text: "spec: [\n", want: "-: document 1: "},
		"a list":                       {text: "- spec\n", want: "-: document 1: "},
		"wrong type":                   {text: "spec: {containers: app}\n", want: "-: document 1: "},
		"broken after the first":       {text: pod + "---\nspec: [\n", want: "-: document 2: "},
		"document separator in a text": {text: "spec: {containers: [{name: app, args: ['---']}]}\n"},
	} {
		t.Run(name, func(t *testing.T) {
			code, _, stderr := call(t, tc.text, "-f", "-")
			if tc.want == "" {
				require.Equal(t, exitDone, code, stderr)
				return
			}
			require.Equal(t, exitInvalid, code)
			require.Contains(t, stderr, tc.want)
		})
	}
	code, _, stderr := call(t, "", "-f", "testdata/absent.yaml")
	require.Equal(t, exitInvalid, code)
	require.Contains(t, stderr, "testdata/absent.yaml")
}

func TestErrorsAreWrittenPartByPart(t *testing.T) {
	busy := &hostvolume.VolumeError{Volume: "a", Err: hostvolume.ErrDeviceBusy}
	for _, tc := range []struct {
		err  error
		code int
		want string
	}{
		{&hostvolume.PrepareError{Errs: []error{busy, busy}, Undone: []string{"/b/x"}, Left: []string{"/b/y"}}, exitTryAgain,
			`volume "a": device is in use|volume "a": device is in use|unmounted again: /b/x|left mounted: /b/y`},
		{&hostvolume.UnmountError{Errs: []error{hostvolume.ErrUnmountBusy, hostvolume.ErrUnsafePath}}, exitFailed, "still mounted|unsafe path"},
		{&hostvolume.PrepareError{Errs: []error{&hostvolume.InvalidSpecError{Faults: field.ErrorList{field.Required(field.NewPath("spec"), "")}}, busy}}, exitInvalid,
			`invalid pod spec: spec: Required value|volume "a": device is in use`},
		{errors.New("other"), exitFailed, "other"},
	} {
		var out bytes.Buffer
		require.Equal(t, tc.code, report(&out, tc.err))
		require.Equal(t, "hostvolumes: "+strings.ReplaceAll(tc.want, "|", "\nhostvolumes: ")+"\n", out.String())
	}
}

func TestHostPathWithAColonCannotBeWrittenForDocker(t *testing.T) {
	const spec = "spec: {containers: [{name: app, volumeMounts: [{name: a, mountPath: /a}]}], volumes: [{name: a, hostPath: {path: '/a:b'}}]}"
	code, stdout, stderr := call(t, spec, "-f", "-", "-o", "docker")
	require.Equal(t, exitFailed, code)
	require.Empty(t, stdout)
	require.Contains(t, stderr, "has a colon")
	code, _, _ = call(t, spec, "-f", "-", "-o", "json")
	require.Equal(t, exitDone, code)
}

// Whatever a spec says, the host in memory is arranged without a panic, and the preparation says what is wrong.
func TestStrangeSpecsAreRefusedAndNotArranged(t *testing.T) {
	mounts := "containers: [{name: app, volumeMounts: [{name: a, mountPath: /a}, {name: b, mountPath: /b}]}]"
	for _, volumes := range []string{
		"[{name: a, gcePersistentDisk: {pdName: ../x}}, {name: b, gcePersistentDisk: {pdName: ''}}]",
		"[{name: a, gcePersistentDisk: {pdName: x}}, {name: b, gcePersistentDisk: {pdName: x}}]",
		"[{name: a, hostPath: {path: relative, type: Socket}}, {name: b, hostPath: {path: '', type: BlockDevice}}]",
		"[{name: a, hostPath: {path: /, type: CharDevice}}, {name: b, hostPath: {path: /x/../y, type: File}}]",
		"[{name: a, hostPath: {path: /x, type: File}}, {name: b, hostPath: {path: /x/y, type: Directory}}]",
		"[{name: a, hostPath: {path: /x/, type: Socket}}, {name: b, hostPath: {path: /x, type: BlockDevice}}]",
		"[{name: a, gcePersistentDisk: {pdName: ., readOnly: true, fsType: zfs}}, {name: b, gcePersistentDisk: {pdName: x, partition: -1}}]",
	} {
		code, _, stderr := call(t, "spec: {"+mounts+", volumes: "+volumes+"}", "-f", "-")
		require.NotEqual(t, exitDone, code, volumes)
		require.NotEmpty(t, stderr)
	}
}

func TestUnmountWithNothingMounted(t *testing.T) {
	if _, err := os.Stat("/proc/self/mountinfo"); err != nil {
		t.Skip("there is no /proc/self/mountinfo here")
	}
	code, stdout, stderr := call(t, "", "-unmount", "-base", filepath.Join(t.TempDir(), "base"))
	require.Equal(t, exitDone, code, stderr)
	require.Empty(t, stdout)
}

func TestRealApplyAndUnmount(t *testing.T) {
	if testing.Short() {
		t.Skip("runs the real programs: not with -short")
	}
	if os.Getuid() != 0 || exec.Command("unshare", "--mount", "--propagation", "private", "true").Run() != nil {
		t.Skip("needs root and a mount namespace of its own: run as root, with unshare (package util-linux), where namespaces are allowed")
	}
	dir := t.TempDir()
	spec := filepath.Join(dir, "pod.yaml")
	require.NoError(t, os.WriteFile(spec, []byte("spec: {containers: [{name: app, volumeMounts: [{name: a, mountPath: /a}]}], volumes: [{name: a, emptyDir: {medium: Memory}}]}"), 0o600))
	script := `set -e
"$0" -f "$2" -apply -base "$1/base" -o docker
"$0" -f "$2" -apply -base "$1/base" -o docker
grep -c "$1/base/tmpfss/a" /proc/self/mountinfo
cd "$1/base/tmpfss/a"; "$0" -unmount -base "$1/base" 2>/dev/null || echo exit code $?
cd /; "$0" -unmount -base "$1/base"
grep -c "$1/base" /proc/self/mountinfo || true`
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command("unshare", "--mount", "--propagation", "private", "sh", "-c", script, self, dir, spec)
	cmd.Env = append(os.Environ(), asProgram+"=1")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	line := "docker run --name app -v " + dir + "/base/tmpfss/a:/a\n"
	require.Equal(t, line+line+"1\nexit code 4\n0\n", string(out))
}
