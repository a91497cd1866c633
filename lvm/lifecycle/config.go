package lifecycle

import (
	"maps"
	"reflect"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/clock"

	"github.com/stateofworld/stateofworld/cache"
	"github.com/stateofworld/stateofworld/executor"
	"github.com/stateofworld/stateofworld/lvm"
)

// The defaults of AgentConfig.
const (
	// DefaultDriver is the CSI driver whose volumes an agent with the default Annotations acts on.
	DefaultDriver = "localplugin.csi.alibabacloud.com"

	DefaultTimeout       = 5 * time.Minute
	DefaultMaxConcurrent = 8
	DefaultMaxPerGroup   = 4
)

// AgentConfig is what an Agent is made of. Node, Backend, Claims and Volumes are required; the zero value of everything else
// is a choice that its comment names.
type AgentConfig struct {
	// Node is the name of the agent's node.
	Node types.NodeName
	// NodeLabels are the node's labels, for the node affinity of volumes. Nil means the label kubernetes.io/hostname with the node's name.
	NodeLabels map[string]string

	// Backend makes and removes the logical volumes.
	Backend Backend
	// Claims returns the client for the claims of a namespace.
	Claims func(namespace string) ClaimClient
	// Volumes is the client for volumes.
	Volumes VolumeClient

	// Annotations are the keys. Both sides must have the same.
	Annotations Annotations
	// Drivers are the CSI drivers whose volumes, and whose claims where they name a driver, the agent acts on. Nil means DefaultDriver when the
	// annotations are the default ones, too; otherwise it must be set.
	Drivers []string
	// VolumeAttributes must, where a volume has them, have these values. Nil means {"volumeType": "LVM"}.
	VolumeAttributes map[string]string
	// StorageClasses are the classes of the claims that the agent acts on. Nil means any.
	StorageClasses []string
	// VolumeGroups are the only groups that the agent touches. Nil means any, as the annotations say.
	VolumeGroups []string
	// Source names the logical volume that a volume is, from its spec. It is asked where annotations alone are not trusted. Nil means DefaultSource.
	Source func(*v1.PersistentVolume) lvm.Name

	// AllowLinear makes a striped volume linear where there are not enough physical volumes with room.
	AllowLinear bool
	// Wipe is what happens to the data of a volume that is removed.
	Wipe lvm.WipePolicy
	// Finalizer, where not empty, is put on the volumes of the node, so that none is lost while its logical volume is there. It has the form
	// of a qualified name, with a slash.
	Finalizer string
	// Orphans is what happens to logical volumes that the agent made and whose owner is gone.
	Orphans OrphanPolicy

	// Notices is called for what a person may want to know of: once per change of cause. It must not block. Nil: nobody is told.
	Notices func(Notice)

	// Operations are the options of the operations: back-off, caps, time-out. MaxConcurrent is 8 where zero, MaxPerNode is per volume group here and 4
	// where zero, Timeout is 5 minutes where zero. A removal with a wipe that takes long (zero, discard) runs in the background and has no time-out.
	Operations executor.Options
	// Workers is how many objects are decided on at once. Zero means GOMAXPROCS.
	Workers int
	// AuditPeriod is how often every object in memory is looked at although nothing changed. Zero means the default of package engine, negative never.
	AuditPeriod time.Duration
	// Clock gives the time. Nil means the real clock.
	Clock clock.WithTickerAndDelayedExecution
}

func invalid(field, value, reason string) error {
	return &cache.InvalidError{Field: "AgentConfig." + field, Value: value, Reason: reason}
}

// withDefaults checks the whole configuration and fills in what is not set. Errors: *cache.InvalidError.
func (c AgentConfig) withDefaults() (AgentConfig, error) {
	required := []struct {
		field string
		unset bool
	}{
		{"Node", c.Node == ""}, {"Backend", isNil(c.Backend)}, {"Claims", c.Claims == nil}, {"Volumes", isNil(c.Volumes)},
	}
	for _, r := range required {
		if r.unset {
			return c, invalid(r.field, "", "is required")
		}
	}
	if reasons := validation.IsDNS1123Subdomain(string(c.Node)); len(reasons) > 0 {
		return c, invalid("Node", string(c.Node), reasons[0])
	}
	if err := c.Annotations.Validate(); err != nil {
		return c, err
	}
	c.Annotations = c.Annotations.withDefaults()
	if len(c.Drivers) == 0 {
		if c.Annotations.Prefix != DefaultPrefix {
			return c, invalid("Drivers", "", "must be set when Annotations.Prefix is")
		}
		c.Drivers = []string{DefaultDriver}
	}
	if c.NodeLabels == nil {
		c.NodeLabels = map[string]string{v1.LabelHostname: string(c.Node)}
	}
	if c.VolumeAttributes == nil {
		c.VolumeAttributes = map[string]string{"volumeType": "LVM"}
	}
	if c.Source == nil {
		c.Source = DefaultSource
	}
	for _, vg := range c.VolumeGroups {
		if err := lvm.ValidateVGName(vg); err != nil {
			return c, invalid("VolumeGroups", vg, err.Error())
		}
	}
	if err := (lvm.RemoveOptions{Wipe: c.Wipe}).Validate(); err != nil {
		return c, invalid("Wipe", string(c.Wipe), err.Error())
	}
	if c.Finalizer != "" {
		if reasons := validation.IsQualifiedName(c.Finalizer); len(reasons) > 0 {
			return c, invalid("Finalizer", c.Finalizer, reasons[0])
		}
	}
	var err error
	if c.Orphans, err = c.Orphans.withDefaults(c.Volumes); err != nil {
		return c, err
	}
	if c.Workers < 0 {
		return c, invalid("Workers", "negative", "must not be negative")
	}
	if c.Clock == nil {
		c.Clock = clock.RealClock{}
	}
	o := &c.Operations
	if o.Clock == nil {
		o.Clock = c.Clock
	}
	if o.Timeout == 0 {
		o.Timeout = DefaultTimeout
	}
	if o.MaxConcurrent == 0 {
		o.MaxConcurrent = DefaultMaxConcurrent
	}
	if o.MaxPerNode == 0 {
		o.MaxPerNode = DefaultMaxPerGroup
	}
	c.Drivers, c.StorageClasses, c.VolumeGroups = slices.Clone(c.Drivers), slices.Clone(c.StorageClasses), slices.Clone(c.VolumeGroups)
	c.NodeLabels, c.VolumeAttributes = maps.Clone(c.NodeLabels), maps.Clone(c.VolumeAttributes)
	return c, nil
}

// isNil also finds a nil pointer in an interface, which would only show at the first call.
func isNil(x any) bool {
	v := reflect.ValueOf(x)
	return !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil()
}

func (c AgentConfig) rules() rules {
	return rules{
		node: node{name: string(c.Node), labels: c.NodeLabels}, annotations: c.Annotations, keys: c.Annotations.keys(), drivers: c.Drivers, attributes: c.VolumeAttributes,
		storageClasses: c.StorageClasses, volumeGroups: c.VolumeGroups, finalizer: c.Finalizer, source: c.Source,
	}
}
