package nodestatus

import (
	"math"
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
		return actNone // nothing was ever reported (N1: no volumes, no write)
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

// covers returns the highest version that a write of report satisfies. A report
// without a version is that of a node that the source has no entry for any more: it
// replaces every earlier one.
func covers(report cache.NodeReport) uint64 {
	if report.Version == 0 {
		return math.MaxUint64
	}
	return report.Version
}
