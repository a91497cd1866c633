package executor

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/stateofworld/stateofworld/cache"
)

// Attacher is the driver: what attaches volumes to nodes, detaches them, and knows what is attached.
//
// For every call:
//   - It may be called concurrently, but never twice at once for one volume and node, nor for one exclusive volume.
//   - It must be idempotent: after an unknown outcome it is called again, and what is done already is a success.
//   - It must return soon after ctx ends. Until it does, its volume is not worked on again.
//   - Its error says what is known: see Precondition, NothingHappened, GoneError and DanglingError. Any other error, a panic and a
//     time-out mean that it may have happened, or may still.
type Attacher interface {
	// Attach attaches a volume to a node, and returns the path of the device there, or "" when there is none to tell.
	Attach(ctx context.Context, volume cache.VolumeToAttach) (devicePath string, err error)
	// Detach detaches a volume from a node. ErrGone (the node or the volume no longer exists) is a success.
	Detach(ctx context.Context, volume cache.AttachedVolume) error
	// VerifyAttached says which of the volumes are attached to the node. A volume that is missing from the answer is
	// VerifyUnknown; with an error the answer is not looked at. Only what is known may be called NotAttached: it is taken
	// out of the actual world.
	VerifyAttached(ctx context.Context, node types.NodeName, volumes []cache.AttachedVolume) (map[v1.UniqueVolumeName]Verification, error)
}

// BulkVerifier is an Attacher that can verify the volumes of all nodes with one call, and is then asked that way.
// The rules of VerifyAttached hold; a node that is missing from the answer is unknown.
type BulkVerifier interface {
	VerifyAllAttached(ctx context.Context, volumes map[types.NodeName][]cache.AttachedVolume) (map[types.NodeName]map[v1.UniqueVolumeName]Verification, error)
}

// Verification is what a driver knows about an attachment.
type Verification int

const (
	// VerifyUnknown: the driver cannot tell now. Nothing is changed.
	VerifyUnknown Verification = iota
	// StillAttached: it is attached.
	StillAttached
	// NotAttached: it is known not to be attached.
	NotAttached
)

func (v Verification) String() string {
	switch v {
	case VerifyUnknown:
		return "unknown"
	case StillAttached:
		return "still attached"
	case NotAttached:
		return "not attached"
	}
	return fmt.Sprintf("Verification(%d)", int(v))
}
