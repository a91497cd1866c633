package lifecycle

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/stateofworld/stateofworld/cache"
)

// State is the value of the lifecycle annotation.
type State string

// The states. The provisioner writes the first of each pair, the agent the second.
const (
	Creating State = "creating" // of a claim: the logical volume is to be made
	Created  State = "created"  // of a claim: it was seen to be there
	Deleting State = "deleting" // of a volume: the logical volume is to be removed
	Deleted  State = "deleted"  // of a volume: it was seen not to be there
)

// Defaults of Annotations. They are those of the Alibaba Cloud CSI driver's local volumes.
const (
	DefaultPrefix       = "pv.csi.alibabacloud.com"
	DefaultSelectedNode = "volume.kubernetes.io/selected-node"
)

// Annotations says which keys on claims and volumes the two sides talk through. Agent and provisioner must have the same.
// The zero value is the default.
type Annotations struct {
	// Prefix is what the protocol's own keys begin with, without the slash. Empty means DefaultPrefix.
	Prefix string
	// SelectedNode is the key of the annotation that names the node of a claim, which the scheduler sets. Empty means
	// DefaultSelectedNode.
	SelectedNode string
}

func (a Annotations) withDefaults() Annotations {
	if a.Prefix == "" {
		a.Prefix = DefaultPrefix
	}
	if a.SelectedNode == "" {
		a.SelectedNode = DefaultSelectedNode
	}
	return a
}

// Validate returns a *cache.InvalidError when a key could not be one of the API's.
func (a Annotations) Validate() error {
	a = a.withDefaults()
	for _, field := range []struct{ name, key string }{{"Annotations.Prefix", a.key("volume.lifecycle")}, {"Annotations.SelectedNode", a.SelectedNode}} {
		if reasons := validation.IsQualifiedName(field.key); len(reasons) > 0 {
			return &cache.InvalidError{Field: field.name, Value: field.key, Reason: strings.Join(reasons, "; ")}
		}
	}
	return nil
}

func (a Annotations) key(name string) string { return a.withDefaults().Prefix + "/" + name }

// Lifecycle is the key of the State.
func (a Annotations) Lifecycle() string { return a.key("volume.lifecycle") }

// Spec is the key of what is to be made (on a claim, see [CreateSpec]) or removed (on a volume: "vg/lv").
func (a Annotations) Spec() string { return a.key("volume.spec") }

// Error is the key of the [Failure] of the last attempt. The agent writes it, and takes it away on success. Who takes it away
// before asks for another attempt at once.
func (a Annotations) Error() string { return a.key("volume.error") }

// UID is the key of the UID of the object that the request was written on. The provisioner writes it. On an object with
// another UID, such as one restored from a backup together with its annotations, the request does not count. Without it, a
// request counts.
func (a Annotations) UID() string { return a.key("volume.uid") }

// NodeLabel is the key of the label by which watches are narrowed; see [Annotations.NodeSelector].
func (a Annotations) NodeLabel() string { return a.key("node") }

// NodeLabelValue is the value of the label for a node: its name or, where that cannot be a label's value, a hash of it.
func (a Annotations) NodeLabelValue(node types.NodeName) string {
	const hashed = "sha256-"
	name := string(node)
	if name != "" && len(validation.IsValidLabelValue(name)) == 0 && !strings.HasPrefix(name, hashed) {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	return hashed + hex.EncodeToString(sum[:])[:validation.LabelValueMaxLength-len(hashed)]
}

// NodeSelector is the label selector, for metav1.ListOptions, with which the informers of an agent carry the objects of its own
// node only. The label is set by the [Provisioner]. Objects that somebody else annotates must be labelled by him.
func (a Annotations) NodeSelector(node types.NodeName) string {
	return a.NodeLabel() + "=" + a.NodeLabelValue(node)
}
