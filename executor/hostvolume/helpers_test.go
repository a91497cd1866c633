package hostvolume_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/stateofworld/stateofworld/executor/hostvolume"
	"github.com/stateofworld/stateofworld/fake"
)

const base = hostvolume.DefaultBaseDir

// podSpec reads a pod spec from YAML.
func podSpec(t testing.TB, text string) *v1.PodSpec {
	t.Helper()
	spec := &v1.PodSpec{}
	require.NoError(t, yaml.UnmarshalStrict([]byte(text), spec))
	return spec
}

// diskSpec is a pod whose container mounts the persistent disk "data" at /data.
func diskSpec(t testing.TB, fields ...string) *v1.PodSpec {
	t.Helper()
	return podSpec(t, `
containers: [{name: app, volumeMounts: [{name: data, mountPath: /data}]}]
volumes: [{name: data, gcePersistentDisk: {`+strings.Join(append([]string{"pdName: data"}, fields...), ", ")+`}}]`)
}

// readOnly makes all mounts of a spec read-only.
func readOnly(spec *v1.PodSpec) *v1.PodSpec {
	for i := range spec.Containers {
		for j := range spec.Containers[i].VolumeMounts {
			spec.Containers[i].VolumeMounts[j].ReadOnly = true
		}
	}
	return spec
}

const (
	dataLink   = "/dev/disk/by-id/google-data"
	dataTarget = base + "/gce-persistent-disks/data"
)

// newHost is a host with the persistent disk "data" at /dev/sdb.
func newHost(disk fake.HostDisk) *fake.Host {
	h := fake.NewHost()
	disk.Links = append(disk.Links, dataLink)
	h.AddDisk("/dev/sdb", disk)
	return h
}

func newEnv(h *fake.Host, change ...func(*hostvolume.Env)) *hostvolume.Env {
	env := &hostvolume.Env{
		Runner:   h,
		Metadata: hostvolume.StaticMetadata{{DeviceName: "data", Mode: hostvolume.DiskReadWrite}},
		Options:  hostvolume.Options{DeviceWait: -1},
	}
	for _, c := range change {
		c(env)
	}
	return env
}

func options(change func(*hostvolume.Options)) func(*hostvolume.Env) {
	return func(e *hostvolume.Env) { change(&e.Options) }
}

// volumeErr is the VolumeError inside an error.
func volumeErr(t testing.TB, err error) *hostvolume.VolumeError {
	t.Helper()
	var out *hostvolume.VolumeError
	require.ErrorAs(t, err, &out)
	return out
}

// ran reports whether a program was run.
func ran(h *fake.Host, program string) bool { return len(runs(h, program)) > 0 }

// runs are the commands of one program.
func runs(h *fake.Host, program string) []string {
	var out []string
	for _, line := range h.Commands() {
		if strings.HasPrefix(line, program) {
			out = append(out, line)
		}
	}
	return out
}

func testContext(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}
