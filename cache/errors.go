package cache

import (
	"errors"
	"fmt"
)

// The errors of this package, to be found with [errors.Is]. What is returned wraps them with the objects it
// is about.
var (
	// ErrNoPlugin is returned when no plugin supports a spec.
	ErrNoPlugin = errors.New("no volume plugin supports it: register one with NewVolumePluginMgr")
	// ErrAmbiguousPlugin is returned when more than one plugin supports a spec.
	ErrAmbiguousPlugin = errors.New("more than one volume plugin supports it: make CanSupport narrower")
	// ErrNotAttachable is returned when the plugin of a spec says that such volumes are not attached to
	// nodes.
	ErrNotAttachable = errors.New("the volume is not of the attachable kind")
	// ErrNodeUnknown is returned for a pod on a node that was never added or was deleted, and for the report
	// of a node that the actual world knows nothing of.
	ErrNodeUnknown = errors.New("the node is unknown: add it first")
	// ErrNodeHasVolumes is returned when a node is deleted while pods on it still use volumes. The deletion
	// takes effect all the same.
	ErrNodeHasVolumes = errors.New("the node is deleted, but pods on it still use volumes: it goes with the last of them")
	// ErrNotAttached is returned when the actual world has no entry for a (volume, node).
	ErrNotAttached = errors.New("the actual world has no such attachment")
	// ErrInvalid is what every [*InvalidError] is.
	ErrInvalid = errors.New("invalid argument")
)

// InvalidError says which argument was refused and why. Nothing was changed.
type InvalidError struct {
	// Field is the argument, as in "pod name".
	Field string
	// Value is what was given, empty when there is nothing to show.
	Value string
	// Reason completes the sentence "<field> ...".
	Reason string
}

// Error implements error.
func (e *InvalidError) Error() string {
	if e.Value == "" {
		return fmt.Sprintf("invalid argument: %s %s", e.Field, e.Reason)
	}
	return fmt.Sprintf("invalid argument: %s %q %s", e.Field, e.Value, e.Reason)
}

// Is makes every InvalidError an [ErrInvalid].
func (e *InvalidError) Is(target error) bool { return target == ErrInvalid }

// requireName returns an InvalidError for an empty name.
func requireName[S ~string](field string, name S) error {
	if name == "" {
		return &InvalidError{Field: field, Reason: "must not be empty"}
	}
	return nil
}
