package hostvolume

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/stateofworld/stateofworld/executor/command"
)

func defaults(t testing.TB, o Options) settings {
	t.Helper()
	s, err := (&Env{Runner: command.Host(), Options: o}).settings()
	require.NoError(t, err)
	return s
}

func faultsOf(t testing.TB, text string, o Options) []string {
	t.Helper()
	spec := &v1.PodSpec{}
	require.NoError(t, yaml.UnmarshalStrict([]byte(text), spec))
	_, faults := verify(spec, defaults(t, o))
	var out []string
	for _, fault := range faults {
		out = append(out, fault.Error())
	}
	return out
}

// one is a spec with one volume, mounted as the fields say.
func one(volume, mount string) string {
	return "containers: [{name: app, volumeMounts: [{name: v, mountPath: /v" + mount + "}]}]\nvolumes: [{name: v" + volume + "}]"
}

func TestVerifyNamesEachFaultByItsField(t *testing.T) {
	const (
		tmpfs   = ", emptyDir: {medium: Memory}"
		disk    = ", gcePersistentDisk: {pdName: data}"
		devices = "containers: [{name: app, volumeMounts: [{name: a, mountPath: /a}, {name: b, mountPath: /b}]}]\nvolumes: "
	)
	for name, tc := range map[string]struct {
		spec    string
		options Options
		want    []string // parts of the faults, in order; there are no others
	}{
		"nothing to do":  {spec: "containers: [{name: app}]"},
		"an empty spec":  {spec: "{}"},
		"all is well":    {spec: one(tmpfs, "")},
		"undefined":      {spec: "containers: [{name: app, volumeMounts: [{name: v, mountPath: /v}]}]", want: []string{`spec.containers[0].volumeMounts[0].name: Not found: "v"`}},
		"unreferenced":   {spec: "containers: [{name: app}]\nvolumes: [{name: v" + tmpfs + "}]", want: []string{`spec.volumes[0].name: Invalid value: "v": no container mounts`}},
		"defined twice":  {spec: one(tmpfs+"}, {name: v"+tmpfs, ""), want: []string{`spec.volumes[1].name: Duplicate value: "v"`}},
		"no source":      {spec: one("", ""), want: []string{"spec.volumes[0]: Invalid value: \"v\": must have exactly one source, has 0"}},
		"two sources":    {spec: one(tmpfs+disk, ""), want: []string{"exactly one source, has 2 (emptyDir, gcePersistentDisk)"}},
		"other source":   {spec: one(", configMap: {name: x}", ""), want: []string{"spec.volumes[0].configMap: Forbidden: not supported"}},
		"newest source":  {spec: one(", image: {reference: x}", ""), want: []string{"spec.volumes[0].image: Forbidden: not supported"}},
		"medium of none": {spec: one(", emptyDir: {medium: Disk}", ""), want: []string{`spec.volumes[0].emptyDir.medium: Unsupported value: "Disk"`}},
		"huge pages":     {spec: one(", emptyDir: {medium: HugePages-2Mi}", ""), want: []string{`emptyDir.medium: Unsupported value: "HugePages-2Mi"`}},
		"limit on disk":  {spec: one(", emptyDir: {sizeLimit: 1Gi}", ""), want: []string{"spec.volumes[0].emptyDir.sizeLimit: Forbidden: can be enforced only"}},
		"limit of zero":  {spec: one(", emptyDir: {medium: Memory, sizeLimit: 0}", "")},
		"limit below 0":  {spec: one(", emptyDir: {medium: Memory, sizeLimit: -1}", ""), want: []string{"sizeLimit: Invalid value: \"-1\": must not be negative"}},
		"limit too big":  {spec: one(", emptyDir: {medium: Memory, sizeLimit: 9223372036854775807}", ""), want: []string{"sizeLimit: Invalid value: \"9223372036854775807\": is too large"}},
		"limit of 10E":   {spec: one(", emptyDir: {medium: Memory, sizeLimit: 10E}", ""), want: []string{"is too large"}},
		"mode":           {spec: one(", emptyDir: {mode: 1024}", ""), want: []string{"spec.volumes[0].emptyDir.mode: Invalid value: 1024"}},
		"negative mode":  {spec: one(", emptyDir: {mode: -1}", ""), want: []string{"spec.volumes[0].emptyDir.mode: Invalid value: -1"}},

		"relative host path":       {spec: one(", hostPath: {path: etc}", ""), want: []string{`spec.volumes[0].hostPath.path: Invalid value: "etc": must be absolute`}},
		"empty host path":          {spec: one(", hostPath: {path: ''}", ""), want: []string{"hostPath.path: Invalid value: \"\": must not be empty"}},
		"host path with .. (H18)":  {spec: one(", hostPath: {path: /a/../etc}", ""), want: []string{`must not contain ".."`}},
		"host path with NUL":       {spec: one(`, hostPath: {path: "/a\0b"}`, ""), want: []string{"must not contain control characters"}},
		"host path of all":         {spec: one(", hostPath: {path: /}", "")},
		"host path with dots":      {spec: one(", hostPath: {path: /a/..b/c..}", "")},
		"host path inside base":    {spec: one(", hostPath: {path: "+DefaultBaseDir+"/tmpfss}", ""), want: []string{"must not be inside " + DefaultBaseDir}},
		"host path is base":        {spec: one(", hostPath: {path: "+DefaultBaseDir+"/}", ""), want: []string{"must not be inside"}},
		"host path next to base":   {spec: one(", hostPath: {path: "+DefaultBaseDir+"2}", "")},
		"host path type":           {spec: one(", hostPath: {path: /a, type: Pipe}", ""), want: []string{`spec.volumes[0].hostPath.type: Unsupported value: "Pipe"`}},
		"device that is no device": {spec: one(", hostPath: {path: /a, type: File}", ""), options: Options{Devices: map[string]Device{"v": {}}}, want: []string{"must be a hostPath of type BlockDevice"}},

		"no disk name":           {spec: one(", gcePersistentDisk: {pdName: ''}", ""), want: []string{"spec.volumes[0].gcePersistentDisk.pdName: Required value"}},
		"disk name with a slash": {spec: one(", gcePersistentDisk: {pdName: ../sda}", ""), want: []string{`pdName: Invalid value: "../sda": must be a device name`}},
		"disk name with -":       {spec: one(", gcePersistentDisk: {pdName: -o}", ""), want: []string{`pdName: Invalid value: "-o"`}},
		"filesystem":             {spec: one(", gcePersistentDisk: {pdName: data, fsType: ntfs}", ""), want: []string{`spec.volumes[0].gcePersistentDisk.fsType: Unsupported value: "ntfs"`}},
		"partition":              {spec: one(", gcePersistentDisk: {pdName: data, partition: -1}", ""), want: []string{"spec.volumes[0].gcePersistentDisk.partition: Invalid value: -1"}},
		"read-only disk, written": {spec: one(", gcePersistentDisk: {pdName: data, readOnly: true}", ""),
			want: []string{"spec.containers[0].volumeMounts[0].readOnly: Forbidden: must be true: the volume v is read-only"}},
		"read-only disk, read": {spec: one(", gcePersistentDisk: {pdName: data, readOnly: true}", ", readOnly: true")},
		"read-only device, written": {spec: one(", hostPath: {path: /dev/sdb, type: BlockDevice}", ""), options: Options{Devices: map[string]Device{"v": {ReadOnly: true}}},
			want: []string{"volumeMounts[0].readOnly: Forbidden"}},
		"one disk twice": {spec: devices + "[{name: a" + disk + "}, {name: b" + disk + "}]", want: []string{`spec.volumes[1]: Invalid value: "b": is on the same device as volume a`}},
		"a disk and its partition": {spec: devices + "[{name: a" + disk + "}, {name: b, gcePersistentDisk: {pdName: data, partition: 2}}]",
			want: []string{"is on the same device as volume a"}},
		"a partition and its alias": {spec: devices + "[{name: a, gcePersistentDisk: {pdName: data, partition: 2}}, {name: b, gcePersistentDisk: {pdName: data-part2}}]",
			want: []string{"is on the same device as volume a"}},
		"two partitions of a disk": {spec: devices + "[{name: a, gcePersistentDisk: {pdName: data, partition: 1}}, {name: b, gcePersistentDisk: {pdName: data, partition: 12}}]"},
		"a disk and a partition of another": {
			spec: devices + "[{name: a" + disk + "}, {name: b, gcePersistentDisk: {pdName: data-partner}}]",
		},

		"mount path":            {spec: strings.Replace(one(tmpfs, ""), "mountPath: /v", "mountPath: v", 1), want: []string{"spec.containers[0].volumeMounts[0].mountPath: Invalid value: \"v\": must be absolute"}},
		"mount path of none":    {spec: strings.Replace(one(tmpfs, ""), "mountPath: /v", "mountPath: ''", 1), want: []string{"mountPath: Invalid value: \"\": must not be empty"}},
		"mount path is root":    {spec: strings.Replace(one(tmpfs, ""), "mountPath: /v", "mountPath: //./", 1), want: []string{"must not be the root"}},
		"mount path with colon": {spec: strings.Replace(one(tmpfs, ""), "mountPath: /v", "mountPath: '/v:ro'", 1), want: []string{"must not contain ':'"}},
		"mount path with ..":    {spec: strings.Replace(one(tmpfs, ""), "mountPath: /v", "mountPath: /v/../w", 1), want: []string{`must not contain ".."`}},
		"same mount path twice": {spec: one(tmpfs, "}, {name: v, mountPath: //v/"), want: []string{`spec.containers[0].volumeMounts[1].mountPath: Duplicate value: "//v/"`}},
		"same mount path in two containers": {
			spec: "containers: [{name: a, volumeMounts: [{name: v, mountPath: /v}]}, {name: b, volumeMounts: [{name: v, mountPath: /v}]}]\nvolumes: [{name: v" + tmpfs + "}]",
		},
		"absolute subPath":    {spec: one(tmpfs, ", subPath: /a"), want: []string{"subPath: Invalid value: \"/a\": must be relative"}},
		"subPath with ..":     {spec: one(tmpfs, ", subPath: a/../../b"), want: []string{`subPath: Invalid value: "a/../../b": must not contain ".."`}},
		"subPathExpr":         {spec: one(tmpfs, ", subPathExpr: $(X)"), want: []string{"spec.containers[0].volumeMounts[0].subPathExpr: Forbidden: not supported"}},
		"bind mount options":  {spec: one(tmpfs, ", bindMountOptions: [noexec]"), want: []string{"volumeMounts[0].bindMountOptions: Forbidden: not supported"}},
		"propagation":         {spec: one(tmpfs, ", mountPropagation: Both"), want: []string{`mountPropagation: Unsupported value: "Both"`}},
		"propagation outward": {spec: one(tmpfs, ", mountPropagation: Bidirectional"), want: []string{"mountPropagation: Forbidden: Bidirectional is allowed only in a privileged container"}},
		"recursive, enabled":  {spec: one(tmpfs, ", readOnly: true, recursiveReadOnly: Enabled"), want: []string{"recursiveReadOnly: Forbidden: Enabled is not supported"}},
		"recursive, disabled": {spec: one(tmpfs, ", readOnly: true, recursiveReadOnly: Disabled")},
		"recursive, written":  {spec: one(tmpfs, ", recursiveReadOnly: IfPossible"), want: []string{"recursiveReadOnly: Forbidden: may be set only where readOnly is true"}},
		"recursive, spreading": {spec: one(tmpfs, ", readOnly: true, recursiveReadOnly: IfPossible, mountPropagation: HostToContainer"),
			want: []string{"recursiveReadOnly: Forbidden: IfPossible does not go with mountPropagation"}},
		"recursive, unknown": {spec: one(tmpfs, ", readOnly: true, recursiveReadOnly: Sometimes"), want: []string{`recursiveReadOnly: Unsupported value: "Sometimes"`}},
		"volume devices":     {spec: "containers: [{name: app, volumeDevices: [{name: v, devicePath: /dev/x}]}]", want: []string{"spec.containers[0].volumeDevices: Forbidden"}},
		"fsGroup":            {spec: "securityContext: {fsGroup: 1}\ncontainers: [{name: app}]", want: []string{"spec.securityContext.fsGroup: Forbidden"}},
		"containers of one name": {spec: "initContainers: [{name: a}]\ncontainers: [{name: b}, {name: a}]\nephemeralContainers: [{name: b}]",
			want: []string{`spec.containers[1].name: Duplicate value: "a"`, `spec.ephemeralContainers[0].name: Duplicate value: "b"`}},
		"container without a name": {spec: "containers: [{image: x}]", want: []string{"spec.containers[0].name: Required value"}},
		"init containers count": {spec: "initContainers: [{name: i, volumeMounts: [{name: x, mountPath: /x}, {name: v, mountPath: /v}]}]\nvolumes: [{name: v" + tmpfs + "}]",
			want: []string{`spec.initContainers[0].volumeMounts[0].name: Not found: "x"`}},
		"ephemeral containers count, without subPath": {
			spec: "ephemeralContainers: [{name: e, volumeMounts: [{name: v, mountPath: /v, subPath: a}]}]\nvolumes: [{name: v" + tmpfs + "}]",
			want: []string{"spec.ephemeralContainers[0].volumeMounts[0].subPath: Forbidden: not allowed in an ephemeral container"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := faultsOf(t, tc.spec, tc.options)
			require.Len(t, got, len(tc.want), "%q", got)
			for i, want := range tc.want {
				require.Contains(t, got[i], want)
			}
		})
	}
}

// H18, kubernetes/kubernetes#104980: names become components of paths and of command lines.
func TestVolumeNamesAreSinglePathComponents(t *testing.T) {
	for _, name := range []string{"../../etc", "a/b", ".", "..", "", "a\x00b", "-o", "a b", "ä", "A", strings.Repeat("a", 64)} {
		spec := &v1.PodSpec{
			Volumes:    []v1.Volume{{Name: name, VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}}},
			Containers: []v1.Container{{Name: "app", VolumeMounts: []v1.VolumeMount{{Name: name, MountPath: "/v"}}}},
		}
		_, faults := verify(spec, defaults(t, Options{}))
		require.Len(t, faults, 1, "%q", name)
		require.Equal(t, "spec.volumes[0].name", faults[0].Field)
	}
}

func TestNoSpecIsAFault(t *testing.T) {
	_, faults := verify(nil, defaults(t, Options{}))
	require.Len(t, faults, 1)
}

// H13, terraform-google-container-vm#67
func TestAllFaultsAreReportedTogether(t *testing.T) {
	got := faultsOf(t, `
containers: [{name: app, volumeMounts: [{name: gone, mountPath: /a}, {name: two, mountPath: /b}]}]
volumes:
- {name: two, emptyDir: {}, hostPath: {path: etc}}
- {name: unused, gcePersistentDisk: {pdName: x, fsType: zfs}}`, Options{})
	require.Len(t, got, 5, "%q", got)
}

func FuzzVerify(f *testing.F) {
	for _, seed := range []string{
		one(", emptyDir: {medium: Memory, sizeLimit: 1Mi}", ""), one(", gcePersistentDisk: {pdName: data, partition: 1}", ", subPath: a"),
		one(", hostPath: {path: /etc, type: Directory}", ", mountPropagation: HostToContainer"),
		"containers: [{name: ../x}]\nvolumes: [{name: '-o'}]", "volumes: [{name: a, emptyDir: {sizeLimit: 1e30}}]",
	} {
		spec := &v1.PodSpec{}
		if err := yaml.Unmarshal([]byte(seed), spec); err != nil {
			f.Fatal(err)
		}
		data, err := json.Marshal(spec)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		spec := &v1.PodSpec{}
		if json.Unmarshal(data, spec) != nil {
			t.Skip()
		}
		before := spec.DeepCopy()
		p, faults := verify(spec, defaults(t, Options{}))
		if a, _ := json.Marshal(spec); !slices.Equal(a, must(json.Marshal(before))) {
			t.Fatal("the spec was changed")
		}
		if len(faults) > 0 {
			return
		}
		seen := map[string]bool{}
		for _, v := range p.volumes {
			if seen[v.name] || v.kind == kindUnsupported {
				t.Fatalf("%+v was accepted", v)
			}
			seen[v.name] = true
			if target := v.mountPoint("/b"); v.kind != kindHostPath && (strings.Count(target, "/") != 3 || !below("/b/"+v.family(), target)) {
				t.Fatalf("%q is not directly below its family", target)
			}
			if v.kind == kindHostPath && (!strings.HasPrefix(v.hostPath, "/") || strings.Contains(v.hostPath+"/", "/../")) {
				t.Fatalf("host path %q was accepted", v.hostPath)
			}
			if v.kind == kindDisk && !strings.HasPrefix(v.disk.path, DefaultDeviceDir+"/google-") {
				t.Fatalf("device %q was accepted", v.disk.path)
			}
			if v.size < 0 || v.kind == kindDirectory && v.size != 0 {
				t.Fatalf("size %d was accepted", v.size)
			}
		}
		for _, c := range p.containers {
			for _, m := range c.mounts {
				if m.volume == nil || strings.ContainsAny(m.mountPath, ":\x00\n") || m.mountPath == "/" || m.mountPath[0] != '/' || strings.HasPrefix(m.subPath, "/") {
					t.Fatalf("%+v was accepted", m)
				}
				if !m.readOnly && m.volume.disk.readOnly && m.volume.kind == kindDisk {
					t.Fatal("a read-only disk is written")
				}
			}
		}
	})
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
