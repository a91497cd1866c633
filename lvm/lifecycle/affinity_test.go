package lifecycle

import (
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
)

func require1(key string, op v1.NodeSelectorOperator, values ...string) v1.NodeSelectorRequirement {
	return v1.NodeSelectorRequirement{Key: key, Operator: op, Values: values}
}

// term is made of requirements for labels; those for metadata.name become fields.
func term(rs ...v1.NodeSelectorRequirement) (t v1.NodeSelectorTerm) {
	for _, r := range rs {
		if r.Key == "metadata.name" || r.Key == "spec.unschedulable" {
			t.MatchFields = append(t.MatchFields, r)
		} else {
			t.MatchExpressions = append(t.MatchExpressions, r)
		}
	}
	return t
}

// What the expected values say is what Kubernetes' own evaluation answers; defect 4 of the forerunner was to know one form only.
func TestNodeAffinityIsEvaluatedAsKubernetesDoes(t *testing.T) {
	const in, notIn, exists, absent, gt, lt = v1.NodeSelectorOpIn, v1.NodeSelectorOpNotIn, v1.NodeSelectorOpExists, v1.NodeSelectorOpDoesNotExist, v1.NodeSelectorOpGt, v1.NodeSelectorOpLt
	n := node{name: "node-a", labels: map[string]string{
		v1.LabelHostname: "host-a", "zone": "z1", "disks": "8", "topology.lvm/node": "node-a", "odd": "x",
	}}
	host := func(names ...string) v1.NodeSelectorTerm { return term(require1(v1.LabelHostname, in, names...)) }
	for name, c := range map[string]struct {
		terms   []v1.NodeSelectorTerm
		here    bool
		pinned  bool
		isWrong bool
	}{
		"no terms":                              {},
		"an empty term matches nothing":         {terms: []v1.NodeSelectorTerm{{}}},
		"the host":                              {terms: []v1.NodeSelectorTerm{host("host-a")}, here: true, pinned: true},
		"another host":                          {terms: []v1.NodeSelectorTerm{host("host-b")}},
		"In with several values":                {terms: []v1.NodeSelectorTerm{host("host-b", "host-a")}, here: true},
		"the name of the node under any key":    {terms: []v1.NodeSelectorTerm{term(require1("topology.lvm/node", in, "node-a"))}, here: true, pinned: true},
		"a label that others may have":          {terms: []v1.NodeSelectorTerm{term(require1("zone", in, "z1"))}, here: true},
		"terms are ORed":                        {terms: []v1.NodeSelectorTerm{host("host-b"), host("host-a")}, here: true},
		"an empty term does not unpin":          {terms: []v1.NodeSelectorTerm{{}, host("host-a")}, here: true, pinned: true},
		"two terms for the same host":           {terms: []v1.NodeSelectorTerm{host("host-a"), term(require1("zone", in, "z1"), require1(v1.LabelHostname, in, "host-a"))}, here: true, pinned: true},
		"expressions are ANDed":                 {terms: []v1.NodeSelectorTerm{term(require1(v1.LabelHostname, in, "host-a"), require1("zone", in, "z2"))}},
		"expressions are ANDed, all match":      {terms: []v1.NodeSelectorTerm{term(require1("zone", in, "z1"), require1(v1.LabelHostname, in, "host-a"))}, here: true, pinned: true},
		"NotIn":                                 {terms: []v1.NodeSelectorTerm{term(require1("zone", notIn, "z2", "z3"))}, here: true},
		"NotIn of the value":                    {terms: []v1.NodeSelectorTerm{term(require1("zone", notIn, "z1"))}},
		"NotIn of a label that is not there":    {terms: []v1.NodeSelectorTerm{term(require1("none", notIn, "z1"))}, here: true},
		"In of a label that is not there":       {terms: []v1.NodeSelectorTerm{term(require1("none", in, "z1"))}},
		"Exists":                                {terms: []v1.NodeSelectorTerm{term(require1("zone", exists))}, here: true},
		"Exists of none":                        {terms: []v1.NodeSelectorTerm{term(require1("none", exists))}},
		"DoesNotExist":                          {terms: []v1.NodeSelectorTerm{term(require1("none", absent))}, here: true},
		"DoesNotExist of one":                   {terms: []v1.NodeSelectorTerm{term(require1("zone", absent))}},
		"Gt":                                    {terms: []v1.NodeSelectorTerm{term(require1("disks", gt, "7"))}, here: true},
		"Gt of the same":                        {terms: []v1.NodeSelectorTerm{term(require1("disks", gt, "8"))}},
		"Lt":                                    {terms: []v1.NodeSelectorTerm{term(require1("disks", lt, "10"))}, here: true},
		"Lt compares numbers":                   {terms: []v1.NodeSelectorTerm{term(require1("disks", lt, "70"))}, here: true},
		"Gt of a label that is no number":       {terms: []v1.NodeSelectorTerm{term(require1("odd", gt, "1"))}},
		"Gt of a value that is no number":       {terms: []v1.NodeSelectorTerm{term(require1("disks", gt, "x"))}, isWrong: true},
		"Gt with two values":                    {terms: []v1.NodeSelectorTerm{term(require1("disks", gt, "1", "2"))}, isWrong: true},
		"In without values":                     {terms: []v1.NodeSelectorTerm{term(require1("zone", in))}, isWrong: true},
		"Exists with values":                    {terms: []v1.NodeSelectorTerm{term(require1("zone", exists, "z1"))}, isWrong: true},
		"an operator that is none":              {terms: []v1.NodeSelectorTerm{term(require1("zone", "Like", "z1"))}, isWrong: true},
		"a key that is none":                    {terms: []v1.NodeSelectorTerm{term(require1("a b", in, "z1"))}, isWrong: true},
		"a wrong term beside one that matches":  {terms: []v1.NodeSelectorTerm{term(require1("zone", "Like", "z1")), host("host-a")}, here: true, pinned: true},
		"a wrong term beside one that does not": {terms: []v1.NodeSelectorTerm{term(require1("zone", "Like", "z1")), host("host-b")}, isWrong: true},
		"the field metadata.name":               {terms: []v1.NodeSelectorTerm{term(require1("metadata.name", in, "node-a"))}, here: true, pinned: true},
		"another metadata.name":                 {terms: []v1.NodeSelectorTerm{term(require1("metadata.name", in, "node-b"))}},
		"not another metadata.name":             {terms: []v1.NodeSelectorTerm{term(require1("metadata.name", notIn, "node-b"))}, here: true},
		"not this metadata.name":                {terms: []v1.NodeSelectorTerm{term(require1("metadata.name", notIn, "node-a"))}},
		"fields and expressions are ANDed":      {terms: []v1.NodeSelectorTerm{term(require1("metadata.name", in, "node-a"), require1("zone", in, "z2"))}},
		"metadata.name with two values":         {terms: []v1.NodeSelectorTerm{term(require1("metadata.name", in, "node-a", "node-b"))}, isWrong: true},
		"a field that cannot be asked for":      {terms: []v1.NodeSelectorTerm{term(require1("spec.unschedulable", in, "true"))}, isWrong: true},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := n.place(&v1.VolumeNodeAffinity{Required: &v1.NodeSelector{NodeSelectorTerms: c.terms}})
			require.Equal(t, placement{Here: c.here, Pinned: c.pinned}, p)
			require.Equal(t, c.isWrong, err != nil, "%v", err)
		})
	}
	for _, none := range []*v1.VolumeNodeAffinity{nil, {}} {
		p, err := n.place(none)
		require.NoError(t, err)
		require.Zero(t, p, "a volume without affinity is on no node in particular")
	}
}
