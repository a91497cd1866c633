package nodestatus

import (
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/stateofworld/stateofworld/cache"
)

func TestDecide(t *testing.T) {
	list := func(names ...v1.UniqueVolumeName) (l []v1.AttachedVolume) {
		for _, n := range names {
			l = append(l, v1.AttachedVolume{Name: n})
		}
		return l
	}
	report := func(version uint64, names ...v1.UniqueVolumeName) cache.NodeReport {
		return cache.NodeReport{Version: version, Volumes: list(names...)}
	}
	for name, tc := range map[string]struct {
		record record
		report cache.NodeReport
		want   action
	}{
		"never reported, never written":       {record{}, report(0), actNone},
		"never reported, forced":              {record{force: true}, report(0), actNone},
		"first report":                        {record{}, report(1, "v"), actWrite},
		"first report seen is empty again":    {record{}, report(2), actWrite},
		"the same list":                       {record{stored: storedKnown, list: list("v")}, report(2, "v"), actSkip},
		"the same list, forced":               {record{stored: storedKnown, list: list("v"), force: true}, report(2, "v"), actWrite},
		"one volume more":                     {record{stored: storedKnown, list: list("v")}, report(2, "v", "w"), actWrite},
		"no volume any more":                  {record{stored: storedKnown, list: list("v")}, report(2), actWrite},
		"nil and empty are the same":          {record{stored: storedKnown, list: []v1.AttachedVolume{}}, report(3), actSkip},
		"same list after a failure":           {record{stored: storedUnknown}, report(2, "v"), actWrite},
		"empty after a failure":               {record{stored: storedUnknown}, report(2), actWrite},
		"missing node, version tried":         {record{missing: true, tried: 3}, report(3, "v"), actNone},
		"missing node, version tried, forced": {record{missing: true, tried: 3, force: true}, report(3, "v"), actWrite},
		"missing node, new version":           {record{missing: true, tried: 3}, report(4, "v"), actWrite},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, tc.want, decide(tc.record, tc.report))
		})
	}
}
