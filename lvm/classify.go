package lvm

import (
	"regexp"
	"slices"

	"github.com/stateofworld/stateofworld/executor/command"
)

const (
	// exitFailed is the exit code of lvm2 for every failure that is not one of usage: by itself it says nothing.
	exitFailed = 5
	// exitUsage is that of a command line that is wrong, or that asks for what the kernel cannot do.
	exitUsage = 3
)

// messages are the texts, in the C locale, by which the reasons behind exit code 5 are told apart. The first that
// matches counts. What matches none has no kind: it is never taken for "not found".
var messages = []struct {
	text *regexp.Regexp
	kind error
}{
	{regexp.MustCompile(`Volume group "[^"]*" not found`), ErrVGNotFound},
	{regexp.MustCompile(`Volume group \S+ is exported`), ErrExported},
	{regexp.MustCompile(`Cannot access VG \S+ with (system ID|unknown system ID|lock type)`), ErrForeign},
	{regexp.MustCompile(`with duplicate PV devices`), ErrDuplicatePV},
	{regexp.MustCompile(`while PVs are missing`), ErrPartialVG},
	{regexp.MustCompile(`Logical volume \S+ (in use|is used by another device|contains a \S+ in use)`), ErrInUse},
	{regexp.MustCompile(`[Ii]nsufficient free space|Insufficient suitable allocatable extents|[Ff]ree space in pool \S+ reached threshold|Cannot create new thin volume, free space in`), ErrNoSpace},
	{regexp.MustCompile(`Number of stripes \(\d+\) must not exceed number of physical volumes`), ErrNotStripable},
	{regexp.MustCompile(`Logical [Vv]olume "?[^" ]+"? already exists in volume group`), ErrExists},
	{regexp.MustCompile(`Failed to find logical volume "|Existing logical volume "[^"]*" not found in volume group|Snapshot origin LV \S+ not found in Volume group|Pool \S+ not found in Volume group`), ErrNotFound},
	{regexp.MustCompile(`without using device-mapper kernel driver|Required device-mapper target\(s\) not detected|is not supported on this system`), ErrUnsupported},
}

// classify gives the reason of a failed command a name, or nil.
func classify(exitCode int, text string) error {
	for _, m := range messages {
		if (exitCode == exitFailed || exitCode == exitUsage && m.kind == ErrUnsupported) && m.text.MatchString(text) {
			return m.kind
		}
	}
	return nil
}

// describe is the error of a command that ran and failed.
func describe(op, object string, argv []string, result command.Result) *Error {
	text := string(result.Stderr)
	// Reports may have their errors in the report.
	if doc, err := decodeDocument(result.Stdout); err == nil {
		for _, message := range doc.errorMessages() {
			if text != "" && text[len(text)-1] != '\n' {
				text += "\n"
			}
			text += message + "\n"
		}
	}
	return &Error{Op: op, Object: object, Kind: classify(result.ExitCode, text), Argv: slices.Clone(argv), ExitCode: result.ExitCode, Stderr: text}
}
