package lifecycle

import (
	"errors"
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
)

// node is the node of an agent, as far as a node selector can ask for it.
type node struct {
	name   string
	labels labels.Set
}

// placement is what a node selector says of a node.
type placement struct {
	// Here: the selector matches the node.
	Here bool
	// Pinned: it can match no other node. Only then does "not here" mean "nowhere".
	Pinned bool
}

var operators = map[v1.NodeSelectorOperator]selection.Operator{
	v1.NodeSelectorOpIn: selection.In, v1.NodeSelectorOpNotIn: selection.NotIn,
	v1.NodeSelectorOpExists: selection.Exists, v1.NodeSelectorOpDoesNotExist: selection.DoesNotExist,
	v1.NodeSelectorOpGt: selection.GreaterThan, v1.NodeSelectorOpLt: selection.LessThan,
}

// place evaluates the required node affinity of a volume as Kubernetes does: terms are ORed, what is in a term is ANDed, and an empty term matches
// nothing. A term that makes no sense matches nothing, and its error is only returned when no other matches. A volume without
// affinity could be anywhere and is nowhere here: a logical volume is on one node.
func (n node) place(affinity *v1.VolumeNodeAffinity) (placement, error) {
	if affinity == nil || affinity.Required == nil {
		return placement{}, nil
	}
	p := placement{Pinned: true}
	var errs []error
	for i, term := range affinity.Required.NodeSelectorTerms {
		if len(term.MatchExpressions) == 0 && len(term.MatchFields) == 0 {
			continue
		}
		here, err := n.matches(term)
		if err != nil {
			errs = append(errs, fmt.Errorf("node selector term %d: %w", i, err))
			continue
		}
		p.Here = p.Here || here
		p.Pinned = p.Pinned && here && n.pinned(term)
	}
	if p.Here {
		return p, nil
	}
	return placement{}, errors.Join(errs...)
}

func (n node) matches(term v1.NodeSelectorTerm) (bool, error) {
	for _, e := range term.MatchExpressions {
		operator, ok := operators[e.Operator]
		if !ok {
			return false, fmt.Errorf("%q is no operator", e.Operator)
		}
		requirement, err := labels.NewRequirement(e.Key, operator, e.Values)
		if err != nil {
			return false, err
		}
		if !requirement.Matches(n.labels) {
			return false, nil
		}
	}
	for _, f := range term.MatchFields {
		if f.Key != "metadata.name" || len(f.Values) != 1 || (f.Operator != v1.NodeSelectorOpIn && f.Operator != v1.NodeSelectorOpNotIn) {
			return false, fmt.Errorf("field requirement %s %s %q is not one of metadata.name with In or NotIn and one value", f.Key, f.Operator, f.Values)
		}
		if (f.Values[0] == n.name) != (f.Operator == v1.NodeSelectorOpIn) {
			return false, nil
		}
	}
	return true, nil
}

// pinned reports whether a term that matches the node can match no other: it asks for its name, its host name, or a label whose value is its name.
func (n node) pinned(term v1.NodeSelectorTerm) bool {
	for _, e := range term.MatchExpressions {
		if e.Operator == v1.NodeSelectorOpIn && len(e.Values) == 1 && (e.Key == v1.LabelHostname || e.Values[0] == n.name) {
			return true
		}
	}
	for _, f := range term.MatchFields {
		if f.Operator == v1.NodeSelectorOpIn {
			return true
		}
	}
	return false
}
