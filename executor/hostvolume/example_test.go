package hostvolume_test

import (
	"context"
	"errors"
	"fmt"

	v1 "k8s.io/api/core/v1"

	"github.com/stateofworld/stateofworld/executor/hostvolume"
	"github.com/stateofworld/stateofworld/fake"
)

// A boot agent uses command.Host() and &hostvolume.HTTPMetadata{}; its unit tests use a host in memory.
func ExampleEnv_PrepareVolumesAndGetBindings() {
	host := fake.NewHost()
	host.AddDisk("/dev/sdb", fake.HostDisk{Links: []string{"/dev/disk/by-id/google-data"}})
	env := &hostvolume.Env{
		Runner:   host,
		Metadata: hostvolume.StaticMetadata{{DeviceName: "data", Mode: hostvolume.DiskReadWrite}},
		Options:  hostvolume.Options{BaseDir: "/mnt/volumes"},
	}
	spec := &v1.PodSpec{
		Containers: []v1.Container{{
			Name:         "db",
			VolumeMounts: []v1.VolumeMount{{Name: "data", MountPath: "/var/lib/db"}, {Name: "run", MountPath: "/run/db"}},
		}},
		Volumes: []v1.Volume{
			{Name: "data", VolumeSource: v1.VolumeSource{GCEPersistentDisk: &v1.GCEPersistentDiskVolumeSource{PDName: "data"}}},
			{Name: "run", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{Medium: v1.StorageMediumMemory}}},
		},
	}
	bindings, err := env.PrepareVolumesAndGetBindings(context.Background(), spec)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, b := range bindings["db"] {
		fmt.Println(b.HostPath, "->", b.ContainerPath)
	}
	// Output:
	// /mnt/volumes/gce-persistent-disks/data -> /var/lib/db
	// /mnt/volumes/tmpfss/run -> /run/db
}

// Errors have a class, name the volume and the place, and say whether trying again can help.
func ExampleRetryable() {
	host := fake.NewHost()
	host.AddDisk("/dev/sdb", fake.HostDisk{Filesystem: "ext4", Links: []string{"/dev/disk/by-id/google-data"}})
	host.Mkdir("/backup")
	host.Mount("/dev/sdb", "/backup", "ext4", "rw")
	env := &hostvolume.Env{Runner: host, Metadata: hostvolume.StaticMetadata{{DeviceName: "data", Mode: hostvolume.DiskReadWrite}}}
	_, err := env.PrepareVolumesAndGetBindings(context.Background(), &v1.PodSpec{
		Containers: []v1.Container{{Name: "db", VolumeMounts: []v1.VolumeMount{{Name: "data", MountPath: "/var/lib/db"}}}},
		Volumes:    []v1.Volume{{Name: "data", VolumeSource: v1.VolumeSource{GCEPersistentDisk: &v1.GCEPersistentDiskVolumeSource{PDName: "data"}}}},
	})
	var volume *hostvolume.VolumeError
	if errors.As(err, &volume) && errors.Is(err, hostvolume.ErrDeviceBusy) {
		fmt.Println("volume", volume.Volume, "is mounted at", volume.Place, "- try again:", hostvolume.Retryable(err))
	}
	// Output: volume data is mounted at /backup - try again: true
}

func ExampleEnv_UnmountExistingVolumes() {
	host := fake.NewHost()
	for _, dir := range []string{"/mnt/volumes/a", "/mnt/volumes/a/b", "/mnt/volumes2"} {
		host.Mkdir(dir)
		host.Mount("tmpfs", dir, "tmpfs", "rw")
	}
	env := &hostvolume.Env{Runner: host, Options: hostvolume.Options{BaseDir: "/mnt/volumes"}}
	if err := env.UnmountExistingVolumes(context.Background()); err != nil {
		fmt.Println(err)
	}
	fmt.Println(host.MountTable())
	// Output: [/mnt/volumes2 tmpfs tmpfs rw]
}
