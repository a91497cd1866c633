package lifecycle

import (
	"testing"

	"github.com/stateofworld/stateofworld/internal/mutant"
)

// Each of these faults must be found by TestSimulatedNode. Where two rules guard the same thing, both are broken.
func TestTheSimulatedNodeNoticesFaults(t *testing.T) {
	mutant.Run(t, "TestSimulatedNode", []mutant.Mutant{
		{Name: "removes by name, whatever has it by then", Edits: []mutant.Edit{
			{File: "remove.go", Old: "lvm.RemoveOptions{UUID: lv.UUID, Wipe: a.cfg.Wipe}", New: "lvm.RemoveOptions{Wipe: a.cfg.Wipe}"},
		}},
		{Name: "removes what was made for another claim", Edits: []mutant.Edit{
			{File: "remove.go", Old: "case own.UID != \"\" && own.UID != v.Owner:", New: "case false:"},
		}},
		{Name: "removes what is still bound", Edits: []mutant.Edit{
			{File: "decide.go", Old: "if v.Bound {", New: "if v.Bound && false {"},
		}},
		{Name: "removes on the word of an event", Edits: []mutant.Edit{
			{File: "remove.go", Old: "if err != nil || !a.rules.wantsRemoved(live, v.UID, name) {", New: "if live = v; false {"},
		}},
		{Name: "says deleted whatever came of the removal", Edits: []mutant.Edit{
			{File: "remove.go", Old: "err != nil || !gone {", New: "err != nil && !gone && false {"},
		}},
		{Name: "takes what may be elsewhere for gone", Edits: []mutant.Edit{
			{File: "remove.go", Old: "case !live.pinned(&a.rules):", New: "case false:"},
		}},
		{Name: "takes a group that is away for an empty one", Edits: []mutant.Edit{
			{File: "remove.go", Old: "case !errors.Is(err, lvm.ErrNotFound):", New: "case !errors.Is(err, lvm.ErrNotFound) && !errors.Is(err, lvm.ErrExported) && !errors.Is(err, lvm.ErrForeign):"},
		}},
		{Name: "says deleted before it is wiped", Edits: []mutant.Edit{
			{File: "remove.go", Old: "err != nil || finished {", New: "err != nil && finished {"},
		}},
		{Name: "takes what another has made", Edits: []mutant.Edit{
			{File: "create.go", Old: "if own.UID != c.UID || !own.intact(name) {", New: "if false {"},
		}},
		{Name: "says created before it is made", Edits: []mutant.Edit{
			{File: "create.go", Old: "\ta.book.begun(k", New: "\t_ = a.patchClaim(ctx, k, a.rules.createdPatch(live))\n\ta.book.begun(k"},
		}},
		{Name: "makes anew what was lost", Edits: []mutant.Edit{
			{File: "decide.go", Old: "case c.Lifecycle != Creating:", New: "case c.Lifecycle != Creating && c.Lifecycle != Created:"},
		}},
		{Name: "acts on the claims of other nodes", Edits: []mutant.Edit{
			{File: "decide.go", Old: "return c.Node == r.node.name &&", New: "return c.Node != \"\" &&"},
		}},
		{Name: "acts on what came with a backup", Edits: []mutant.Edit{
			{File: "decide.go", Old: "(c.RequestUID == \"\" || c.RequestUID == c.UID)", New: "true"},
		}},
		{Name: "does not test what it patches", Edits: []mutant.Edit{
			{File: "patch.go", Old: "{ *p = append(*p, operation{\"test\", path, value}) }", New: "{}"},
		}},
		{Name: "takes the next claim of the name for the one before", Edits: []mutant.Edit{
			{File: "decide.go", Old: "return c.UID == uid && d.Action == Create", New: "return d.Action == Create"},
			{File: "patch.go", Old: "{ p.test(\"/metadata/uid\", uid) }", New: "{}"},
		}},
		{Name: "takes the claims of two namespaces for one", Edits: []mutant.Edit{
			{File: "notice.go", Old: "key{claimKind, n.Namespace, n.Name}", New: "key{claimKind, \"default\", n.Name}"},
		}},
		{Name: "takes every orphan at once", Edits: []mutant.Edit{
			{File: "orphans.go", Old: "\t\t\tcontinue\n\t\t}\n\t\tif now.Sub", New: "\t\t\tripe = append(ripe, f)\n\t\t\tcontinue\n\t\t}\n\t\tif now.Sub"},
		}},
		{Name: "does not ask whether an orphan has a claim", Edits: []mutant.Edit{
			{File: "orphans.go", Old: "return obj.UID != o.Owner, nil", New: "return obj.UID != \"\", nil"},
		}},
		{Name: "does not ask whether an orphan has a volume", Edits: []mutant.Edit{
			{File: "orphans.go", Old: "if a.rules.refers(&volumes[i], o) {", New: "if a.rules.refers(&volumes[i], o) && false {"},
		}},
		{Name: "leaves what a claim does not want any more", Edits: []mutant.Edit{
			{File: "leftovers.go", Old: "\tname := k.lv()\n", New: "\tname := k.lv()\n\tif name.LV != \"\" {\n\t\treturn nil\n\t}\n"},
		}},
		{Name: "leaves what a crash has left", Edits: []mutant.Edit{
			{File: "recovery.go", Old: "own.intact(lv.Name) && !own.Ready {", New: "own.intact(lv.Name) && !own.Ready && false {"},
		}},
		{Name: "leaves what belongs to nobody", Edits: []mutant.Edit{
			{File: "orphans.go", Old: "if a.cfg.Orphans.Mode == OrphansIgnored {", New: "if true {"},
		}},
		{Name: "cleans away what people keep", Edits: []mutant.Edit{
			{File: "tags.go", Old: "&& o.LV == name.String()", New: ""},
		}},
	}, "-rapid.checks=3000", "-rapid.steps=40", "-rapid.nofailfile", "-rapid.shrinktime=1s")
}
