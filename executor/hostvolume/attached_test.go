package hostvolume_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stateofworld/stateofworld/executor/hostvolume"
	"github.com/stateofworld/stateofworld/fake"
)

// H12, GoogleCloudPlatform/konlet#69, terraform-google-container-vm#117
func TestDiskIsLookedUpByItsDeviceNameAndTheKnownOnesAreListed(t *testing.T) {
	h := newHost(fake.HostDisk{Filesystem: "ext4"})
	metadata := &hostvolume.StaticMetadata{{DeviceName: "persistent-disk-1", Mode: "READ_WRITE"}, {DeviceName: "boot", Mode: "READ_WRITE"}}
	env := newEnv(h, func(e *hostvolume.Env) { e.Metadata = metadata })
	err := refused(t, h, env, hostvolume.ErrNoDevice)
	require.Contains(t, err.Error(), "boot, persistent-disk-1")
	require.True(t, hostvolume.Retryable(err))
	require.Empty(t, h.Calls(), "nothing was touched")

	*metadata = append(*metadata, hostvolume.AttachedDisk{DeviceName: "data", Mode: "READ_WRITE"}) // attached later
	_, err = env.PrepareVolumesAndGetBindings(testContext(t), diskSpec(t))
	require.NoError(t, err)
}

// H12
func TestModesOfAttachment(t *testing.T) {
	h := newHost(fake.HostDisk{Filesystem: "ext4"})
	with := func(disks ...hostvolume.AttachedDisk) *hostvolume.Env {
		return newEnv(h, func(e *hostvolume.Env) { e.Metadata = hostvolume.StaticMetadata(disks) })
	}
	err := refused(t, h, with(hostvolume.AttachedDisk{DeviceName: "data", Mode: "READ_ONLY"}), hostvolume.ErrReadOnlyDevice)
	require.False(t, hostvolume.Retryable(err))
	err = refused(t, h, with(hostvolume.AttachedDisk{DeviceName: "data", Mode: "EXCLUSIVE"}), hostvolume.ErrBadMetadata)
	require.Contains(t, err.Error(), "EXCLUSIVE")
	refused(t, h, with(hostvolume.AttachedDisk{DeviceName: "data", Mode: "READ_WRITE"}, hostvolume.AttachedDisk{DeviceName: "data", Mode: "READ_ONLY"}), hostvolume.ErrBadMetadata)

	_, err = with(hostvolume.AttachedDisk{DeviceName: "data", Mode: "READ_WRITE"}, hostvolume.AttachedDisk{DeviceName: "other", Mode: "EXCLUSIVE"}, hostvolume.AttachedDisk{}).
		PrepareVolumesAndGetBindings(testContext(t), diskSpec(t))
	require.NoError(t, err, "disks that the spec does not use do not matter")
}

func TestFaultsOfTheSpecAndOfTheAttachmentAreReportedTogether(t *testing.T) {
	h := newHost(fake.HostDisk{Filesystem: "ext4"})
	env := newEnv(h, func(e *hostvolume.Env) {
		e.Metadata = hostvolume.StaticMetadata{{DeviceName: "data", Mode: "READ_ONLY"}}
	})
	spec := diskSpec(t)
	spec.Volumes[0].Name, spec.Containers[0].VolumeMounts[0].Name = "-o", "-o"
	_, err := env.PrepareVolumesAndGetBindings(testContext(t), spec)
	require.ErrorIs(t, err, hostvolume.ErrInvalidSpec)
	require.ErrorIs(t, err, hostvolume.ErrReadOnlyDevice)
	require.Empty(t, h.Calls())
}

func TestMetadataIsAskedOnlyForPersistentDisksAndIsThenRequired(t *testing.T) {
	h := newHost(fake.HostDisk{Filesystem: "ext4"})
	env := newEnv(h, func(e *hostvolume.Env) { e.Metadata = nil })
	_, err := env.PrepareVolumesAndGetBindings(testContext(t), podSpec(t, "containers: [{name: app}]"))
	require.NoError(t, err)
	_, err = env.PrepareVolumesAndGetBindings(testContext(t), diskSpec(t))
	require.ErrorIs(t, err, hostvolume.ErrInvalidOptions)

	env = newEnv(h, func(e *hostvolume.Env) { e.Metadata = brokenMetadata{} })
	_, err = env.PrepareVolumesAndGetBindings(testContext(t), diskSpec(t))
	require.ErrorIs(t, err, hostvolume.ErrMetadata)
	require.True(t, hostvolume.Retryable(err))
}

type brokenMetadata struct{}

func (brokenMetadata) Disks(context.Context) ([]hostvolume.AttachedDisk, error) {
	return nil, errors.New("broken")
}
