package nodestatus

import (
	"slices"

	"github.com/stateofworld/stateofworld/cache"
)

// stored says what is known of the list that the sink holds for a node.
type stored int8

const (
	storedNothing stored = iota // never written, or the node was missing at the last try
	storedKnown                 // the last write succeeded: the sink has its list
	storedUnknown               // the last write failed: the sink may have either list
)

type action int8

const (
	actWrite action = iota
	actSkip         // the sink has this list already
	actNone         // nothing to say, or nobody to say it to
)

// decide says what to do with the newest report of a node.
func decide(r record, report cache.NodeReport) action {
	switch {
	case report.Version == 0 && r.stored == storedNothing:
		return actNone // nothing was ever reported
	case r.force:
		return actWrite
	case r.missing && report.Version <= r.tried:
		return actNone // N1: one try for a version on a missing node
	case r.stored == storedKnown && slices.Equal(r.list, report.Volumes):
		return actSkip // T3: nothing has changed
	default:
		return actWrite
	}
}
