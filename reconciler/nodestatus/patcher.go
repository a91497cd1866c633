package nodestatus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/stateofworld/stateofworld/cache"
)

// ErrNodeNotFound is what a [Sink] returns, wrapped or not, when the node does not
// exist. An error for which apierrors.IsNotFound is true means the same.
var ErrNodeNotFound = errors.New("node not found")

// Sink stores the list of the volumes that are attached to a node.
type Sink interface {
	// Write replaces the node's whole list with volumes; an empty list clears it. It
	// must be idempotent, and should return soon after ctx ends. Any error but "not
	// found" leaves open whether the list was stored. volumes must not be changed.
	Write(ctx context.Context, node types.NodeName, volumes []v1.AttachedVolume) error
}

// Nodes is the one method that a [Patcher] needs of client-go's NodeInterface:
// clientset.CoreV1().Nodes() is a Nodes.
type Nodes interface {
	Patch(ctx context.Context, name string, pt types.PatchType, data []byte, opts metav1.PatchOptions, subresources ...string) (*v1.Node, error)
}

// Patcher is a [Sink] that writes status.volumesAttached of the Node object. It has
// no state, and any number of goroutines may use it.
type Patcher struct {
	nodes Nodes
}

// New returns a Patcher that writes through nodes. If nodes is nil, each Write fails.
func New(nodes Nodes) *Patcher {
	return &Patcher{nodes: nodes}
}

// statusPatch has no omitempty anywhere: an empty list must be sent as [], which
// clears the field, and not left out, which would keep it.
type statusPatch struct {
	Status struct {
		VolumesAttached []v1.AttachedVolume `json:"volumesAttached"`
	} `json:"status"`
}

// Write sends one merge patch with the full list to the node's status subresource.
// The list is atomic in the API, so a patch replaces it as a whole, and because the
// patch is not computed from an older copy of the node, a stale copy can neither hide
// a change nor undo one. The error of a missing node Is [ErrNodeNotFound].
func (p *Patcher) Write(ctx context.Context, node types.NodeName, volumes []v1.AttachedVolume) error {
	if p.nodes == nil {
		return &cache.InvalidError{Field: "Nodes", Reason: "of the Patcher must not be nil: it is the client to write with"}
	}
	if node == "" {
		return &cache.InvalidError{Field: "node name", Reason: "must not be empty"}
	}
	var patch statusPatch
	patch.Status.VolumesAttached = volumes
	if volumes == nil {
		patch.Status.VolumesAttached = []v1.AttachedVolume{}
	}
	data, err := json.Marshal(patch)
	if err != nil {
		return fmt.Errorf("encode attached volumes of node %q: %w", node, err)
	}
	_, err = p.nodes.Patch(ctx, string(node), types.MergePatchType, data, metav1.PatchOptions{}, "status")
	switch {
	case err == nil:
		return nil
	case apierrors.IsNotFound(err):
		return fmt.Errorf("patch attached volumes of node %q: %w: %w", node, ErrNodeNotFound, err)
	default:
		return fmt.Errorf("patch attached volumes of node %q: %w", node, err)
	}
}

func isNotFound(err error) bool {
	return errors.Is(err, ErrNodeNotFound) || apierrors.IsNotFound(err)
}
