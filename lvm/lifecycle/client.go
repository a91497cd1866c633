package lifecycle

import (
	"context"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/stateofworld/stateofworld/lvm"
)

// ClaimClient reads and patches the claims of one namespace. client-go's PersistentVolumeClaimInterface is one.
type ClaimClient interface {
	Get(ctx context.Context, name string, opts metav1.GetOptions) (*v1.PersistentVolumeClaim, error)
	Patch(ctx context.Context, name string, pt types.PatchType, data []byte, opts metav1.PatchOptions, subresources ...string) (*v1.PersistentVolumeClaim, error)
}

// VolumeClient reads and patches volumes. client-go's PersistentVolumeInterface is one.
type VolumeClient interface {
	Get(ctx context.Context, name string, opts metav1.GetOptions) (*v1.PersistentVolume, error)
	Patch(ctx context.Context, name string, pt types.PatchType, data []byte, opts metav1.PatchOptions, subresources ...string) (*v1.PersistentVolume, error)
}

// VolumeLister is what a VolumeClient must be too when orphans are to be removed. client-go's PersistentVolumeInterface is one.
type VolumeLister interface {
	List(ctx context.Context, opts metav1.ListOptions) (*v1.PersistentVolumeList, error)
}

// Watcher is what a ClaimClient or VolumeClient of a [Provisioner] may be too: without it, it polls. client-go's clients are.
type Watcher interface {
	Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error)
}

// Backend is the part of [lvm.Backend] that an agent uses.
type Backend interface {
	Create(ctx context.Context, o lvm.CreateOptions) (lvm.LogicalVolume, error)
	Remove(ctx context.Context, name lvm.Name, o lvm.RemoveOptions) error
	FinishRemovals(ctx context.Context, vg string) (int, error)
	Get(ctx context.Context, name lvm.Name) (lvm.LogicalVolume, error)
	List(ctx context.Context, vg string) ([]lvm.LogicalVolume, error)
	ChangeTags(ctx context.Context, name lvm.Name, o lvm.TagChange) (lvm.LogicalVolume, error)
	VolumeGroups(ctx context.Context) ([]lvm.VolumeGroup, error)
}
