package reconciler_test

import (
	"testing"

	"github.com/stateofworld/stateofworld/internal/mutant"
)

// A check that cannot fail is no check: each of these faults must be found by TestSimulatedCluster. Where two rules guard the
// same thing, both are broken. What only one of them breaks, TestDecide and TestScenarios find.
func TestTheSimulatedClusterNoticesFaults(t *testing.T) {
	mutant.Run(t, "TestSimulatedCluster", []mutant.Mutant{
		{Name: "detaches what a pod uses", Edits: []mutant.Edit{
			{File: "decide.go", Old: "case f.Wished:\n\t\treturn decideAttach(f, p)", New: "case f.Wished && f.State == cache.Detached:\n\t\treturn decideAttach(f, p)"},
		}},
		{Name: "attaches an exclusive volume that is attached elsewhere", Edits: []mutant.Edit{
			{File: "decide.go", Old: "if e := f.Elsewhere; e.Node != \"\" && !mayAttachBeside(f, p) {", New: "if e := f.Elsewhere; false {"},
		}},
		{Name: "attaches an exclusive volume that is uncertain elsewhere", Edits: []mutant.Edit{
			{File: "decide.go", Old: "if e := f.Elsewhere; e.Node != \"\" && !mayAttachBeside(f, p) {", New: "if e := f.Elsewhere; e.State == cache.Attached {"},
		}},
		{Name: "detaches before it is synced", Edits: []mutant.Edit{
			{File: "decide.go", Old: "if !f.Synced {\n\t\treturn Decision{Action: Wait, Reason: NotSynced, Since: f.StateSince}\n\t}", New: ""},
		}},
		{Name: "attaches before it is synced", Edits: []mutant.Edit{
			{File: "decide.go", Old: "if !f.Synced {\n\t\t\t// An", New: "if false {\n\t\t\t// An"},
		}},
		{Name: "forces on a healthy node", Edits: []mutant.Edit{
			{File: "decide.go", Old: "case knownNotReady(f.Node.NodeHealth):", New: "case true:"},
			{File: "operate.go", Old: "if !confirmed {", New: "if !confirmed && false {"},
		}},
		{Name: "does not confirm force", Edits: []mutant.Edit{
			{File: "operate.go", Old: "if !confirmed {", New: "if !confirmed && false {"},
		}},
		{Name: "does not confirm that it is free", Edits: []mutant.Edit{
			{File: "operate.go", Old: "if inUse {", New: "if inUse && false {"},
		}},
		{Name: "does not take it out of the report", Edits: []mutant.Edit{
			{File: "operate.go", Old: "if err := r.actual.RemoveVolumeFromReportAsAttached(pair.Volume, pair.Node); err != nil {", New: "if err := error(nil); err != nil {"},
		}},
		{Name: "does not wait for the report", Edits: []mutant.Edit{
			{File: "operate.go", Old: "if err := r.writer.Flush(ctx, pair.Node, version); err != nil {", New: "if err := error(nil); err != nil {"},
		}},
		{Name: "reports what is uncertain", Edits: []mutant.Edit{
			{File: "../cache/actual_state_of_world_attach.go", Old: "return s.state == Attached && !s.withdrawn", New: "return s.state != Detached && !s.withdrawn"},
		}},
		{Name: "forgets who waits", Edits: []mutant.Edit{
			{File: "operate.go", Old: "r.engine.Add(pair)\n\tr.wakeWaiting(pair.Volume)", New: "r.engine.Add(pair)"},
		}},
		{Name: "forgets an unknown outcome of an attach", Edits: []mutant.Edit{
			{File: "../executor/operation_executor.go", Old: "case Unknown:\n\t\ta.record(a.executor.actual.MarkVolumeAsUncertain(a.volume, a.spec, a.node))", New: "case Unknown:"},
		}},
		{Name: "takes an unknown outcome of a detach for done", Edits: []mutant.Edit{
			{File: "../executor/operation_executor.go", Old: "d.record(d.executor.actual.MarkVolumeAsUncertain(d.volume, d.spec, d.node))", New: "d.executor.actual.MarkVolumeAsDetached(d.volume, d.node)"},
		}},
		{Name: "takes what a verification leaves out for detached", Edits: []mutant.Edit{
			{File: "../executor/verify.go", Old: "case NotAttached:", New: "case NotAttached, VerifyUnknown:"},
		}},
		{Name: "takes a verification that failed for an answer", Edits: []mutant.Edit{
			{File: "../executor/verify.go", Old: "answers = nil // S6", New: "// S6"},
			{File: "../executor/verify.go", Old: "case NotAttached:", New: "case NotAttached, VerifyUnknown:"},
		}},
		{Name: "ignores where the back end says that it is", Edits: []mutant.Edit{
			{File: "../executor/operation_executor.go", Old: "if !ok || a.outcome == Unknown {", New: "if true || !ok || dangling == nil {"},
		}},
	}, "-rapid.checks=3000", "-rapid.steps=80", "-rapid.nofailfile", "-rapid.shrinktime=1s")
}

// The simulation decides and starts without a moment in between. There is a test of that moment.
func TestTheTestOfRacesNoticesFaults(t *testing.T) {
	mutant.Run(t, "TestAChangeBetweenDecisionAndStartStopsTheOperation", []mutant.Mutant{
		{Name: "does not look at the epoch of an exclusive volume", Edits: []mutant.Edit{
			{File: "operate.go", Old: "if exclusive && r.actual.VolumeEpoch(pair.Volume) != volumeEpoch ||", New: "_ = volumeEpoch\n\t\t\tif"},
		}},
		{Name: "does not look at the epoch of a pair", Edits: []mutant.Edit{
			{File: "operate.go", Old: "!exclusive && r.actual.Epoch(pair.Volume, pair.Node) != epoch {", New: "epoch == 1<<63 {"},
		}},
		{Name: "does not look whether it is wished again", Edits: []mutant.Edit{
			{File: "operate.go", Old: "|| r.desired.VolumeExists(pair.Volume, pair.Node) {", New: "{"},
		}},
		{Name: "does not look whether it is detached already", Edits: []mutant.Edit{
			{File: "operate.go", Old: "if r.actual.Epoch(pair.Volume, pair.Node) != epoch || r.desired", New: "_ = epoch\n\t\t\tif r.desired"},
			{File: "operate.go", Old: "if err := r.actual.RemoveVolumeFromReportAsAttached(pair.Volume, pair.Node); err != nil {", New: "if err := error(nil); err != nil {"},
		}},
	})
}
