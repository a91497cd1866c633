package main

import (
	"context"
	"fmt"
	"io/fs"
	"path"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/stateofworld/stateofworld/executor/hostvolume"
	"github.com/stateofworld/stateofworld/fake"
)

// dryRun prepares the volumes on a host in memory that has what the spec needs, and returns what was done there.
func dryRun(ctx context.Context, base string, spec *v1.PodSpec) (map[string][]hostvolume.HostPathBindConfiguration, []string, error) {
	host := fake.NewHost()
	disks := arrange(ctx, host, spec)
	host.ResetCalls()
	env := &hostvolume.Env{Runner: host, Metadata: disks, Options: hostvolume.Options{BaseDir: base}}
	bindings, err := env.PrepareVolumesAndGetBindings(ctx, spec)
	var plan []string
	for _, call := range host.Calls() {
		switch {
		case call.Program:
			plan = append(plan, call.String())
		case call.Op == "MkdirAll":
			plan = append(plan, "mkdir -p "+call.Argv[1])
		case call.Op == "CreateFile":
			plan = append(plan, "touch "+call.Argv[1])
		}
	}
	return bindings, plan, err
}

// arrange gives the host the disks and host paths that the spec names: blank disks where someone wants to write,
// formatted ones where they are only read. What cannot be made is left out; the preparation will say what is wrong with
// it.
func arrange(ctx context.Context, host *fake.Host, spec *v1.PodSpec) hostvolume.StaticMetadata {
	var disks hostvolume.StaticMetadata
	attached := map[string]bool{}
	for i := range spec.Volumes {
		volume := &spec.Volumes[i]
		if source := volume.HostPath; source != nil {
			arrangeHostPath(ctx, host, source, i)
		}
		source := volume.GCEPersistentDisk
		if source == nil {
			continue
		}
		link := path.Join(hostvolume.DefaultDeviceDir, "google-"+source.PDName)
		if source.Partition > 0 {
			link += fmt.Sprintf("-part%d", source.Partition)
		}
		if path.Dir(link) != hostvolume.DefaultDeviceDir || attached[link] {
			continue
		}
		attached[link] = true
		disk := fake.HostDisk{Links: []string{link}}
		if source.ReadOnly || !written(spec, volume.Name) {
			disk.Filesystem = "ext4"
			if slices.Contains(hostvolume.FSTypes(), source.FSType) {
				disk.Filesystem = source.FSType
			}
		}
		host.AddDisk(fmt.Sprintf("/dev/disk-%d", i), disk)
		if !slices.ContainsFunc(disks, func(d hostvolume.AttachedDisk) bool { return d.DeviceName == source.PDName }) {
			disks = append(disks, hostvolume.AttachedDisk{DeviceName: source.PDName, Mode: hostvolume.DiskReadWrite})
		}
	}
	return disks
}

func written(spec *v1.PodSpec, volume string) bool {
	containers := slices.Concat(spec.InitContainers, spec.Containers)
	for _, c := range spec.EphemeralContainers {
		containers = append(containers, v1.Container(c.EphemeralContainerCommon))
	}
	return slices.ContainsFunc(containers, func(c v1.Container) bool {
		return slices.ContainsFunc(c.VolumeMounts, func(m v1.VolumeMount) bool { return m.Name == volume && !m.ReadOnly })
	})
}

func arrangeHostPath(ctx context.Context, host *fake.Host, source *v1.HostPathVolumeSource, index int) {
	pathType := v1.HostPathUnset
	if source.Type != nil {
		pathType = *source.Type
	}
	if pathType == v1.HostPathDirectory || pathType == v1.HostPathUnset {
		_ = host.MkdirAll(ctx, source.Path, 0o755)
		return
	}
	if pathType == v1.HostPathDirectoryOrCreate || host.MkdirAll(ctx, path.Dir(source.Path), 0o755) != nil {
		return
	}
	if _, exists := host.Mode(source.Path); exists {
		return
	}
	switch pathType {
	case v1.HostPathFile:
		_ = host.CreateFile(ctx, source.Path, 0o644)
	case v1.HostPathSocket:
		host.Mknod(source.Path, fs.ModeSocket|0o755)
	case v1.HostPathCharDev:
		host.Mknod(source.Path, fs.ModeDevice|fs.ModeCharDevice|0o660)
	case v1.HostPathBlockDev:
		disk := fmt.Sprintf("/dev/host-path-%d", index)
		host.AddDisk(disk, fake.HostDisk{})
		host.Symlink(disk, source.Path)
	}
}
