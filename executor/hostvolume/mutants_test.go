package hostvolume_test

import (
	"testing"

	"github.com/stateofworld/stateofworld/internal/mutant"
)

// Each of these faults must be found by TestSimulatedHost. Where two rules guard the same thing, both are broken.
func TestTheSimulatedHostNoticesFaults(t *testing.T) {
	mutant.Run(t, "TestSimulatedHost", []mutant.Mutant{
		{Name: "believes the probe that a disk is blank", Edits: []mutant.Edit{
			{File: "decide.go", Old: "case f.data >= 0 && !f.firstUse:", New: "case false:"},
		}},
		{Name: "formats where a filesystem was seen", Edits: []mutant.Edit{
			{File: "decide.go", Old: "case f.seen:", New: "case false:"},
		}},
		{Name: "forgets with the process what it has seen", Edits: []mutant.Edit{
			{File: "seen.go", Old: "if e.seen.has(device) || stateDir == \"\" {", New: "if e.seen.has(device) || true {"},
		}},
		{Name: "formats what is only to be read", Edits: []mutant.Edit{
			{File: "decide.go", Old: "case f.readOnly:\n\t\treturn 0, ErrUnformattedReadOnly", New: "case false:\n\t\treturn 0, ErrUnformattedReadOnly"},
		}},
		{Name: "formats although it must not", Edits: []mutant.Edit{
			{File: "decide.go", Old: "case f.format == FormatNever:", New: "case false:"},
		}},
		{Name: "formats over another filesystem", Edits: []mutant.Edit{
			{File: "decide.go", Old: "case found.fsType != \"\":\n", New: "case found.fsType != \"\" && f.fsType == \"ext4\":\n\t\treturn stepFormat, nil\n\tcase found.fsType != \"\":\n"},
			{File: "format.go", Old: "if err := p.stillBlank(ctx, v, device); err != nil {", New: "if err := error(nil); err != nil {"},
		}},
		{Name: "does not look what is mounted there", Edits: []mutant.Edit{
			{File: "device.go", Old: "if err := checkDiskMount(m, v, device); err != nil {", New: "if err := checkDiskMount(m, v, device); err != nil && false {"},
		}},
		{Name: "mounts what others have mounted", Edits: []mutant.Edit{
			{File: "device.go", Old: "if place, ok := p.before.elsewhere(device.number, target); ok {", New: "if place, ok := p.before.elsewhere(device.number, target); ok && false {"},
		}},
		{Name: "takes down nothing when it fails", Edits: []mutant.Edit{
			{File: "unmount.go", Old: "range slices.Backward(p.mounts)", New: "range slices.Backward(p.mounts[:0])"},
		}},
		{Name: "unmounts what begins with the name of the base directory", Edits: []mutant.Edit{
			{File: "plan.go", Old: "return strings.HasPrefix(p, base+\"/\")", New: "return strings.HasPrefix(p, base)"},
		}},
		{Name: "believes umount", Edits: []mutant.Edit{
			{File: "unmount.go", Old: "\t\tfailures = e.unmountAll(ctx, ours)\n", New: "\t\tif failures = e.unmountAll(ctx, ours); len(failures) == 0 {\n\t\t\tbreak\n\t\t}\n"},
		}},
		{Name: "believes mount", Edits: []mutant.Edit{
			{File: "mount.go", Old: "\tm, ok := table.at(target)\n", New: "\tif runErr == nil && result.ExitCode == 0 {\n\t\treturn nil\n\t}\n\tm, ok := table.at(target)\n"},
		}},
		{Name: "mounts everything for writing", Edits: []mutant.Edit{
			{File: "plan.go", Old: "options[0] = \"ro\"", New: "options[0] = \"rw\""},
			{File: "device.go", Old: "case !m.readOnly && v.disk.readOnly:", New: "case false:"},
		}},
	}, "-rapid.checks=12000", "-rapid.steps=40", "-rapid.nofailfile", "-rapid.shrinktime=1s")
}
