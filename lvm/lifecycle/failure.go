package lifecycle

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/types"

	"github.com/stateofworld/stateofworld/executor"
	"github.com/stateofworld/stateofworld/lvm"
)

// Reason is why an attempt failed, for programs.
type Reason string

// The reasons. Most are an error of package lvm; a [*FailedError] with one of those is that error for errors.Is.
const (
	ReasonInvalidSpec    Reason = "InvalidSpec"    // lvm.ErrInvalid: reported once; nothing is tried until the spec is changed
	ReasonNotAllowed     Reason = "NotAllowed"     // ErrNotAllowed: the agent must not touch that volume group; likewise
	ReasonNoSpace        Reason = "NoSpace"        // lvm.ErrNoSpace
	ReasonExistsMismatch Reason = "ExistsMismatch" // lvm.ErrExistsMismatch: the name is taken by a logical volume that is another's, or another
	ReasonInUse          Reason = "InUse"          // lvm.ErrInUse
	ReasonHasSnapshots   Reason = "HasSnapshots"   // lvm.ErrHasSnapshots
	ReasonProtected      Reason = "Protected"      // lvm.ErrProtected
	ReasonBound          Reason = "Bound"          // ErrBound: a claim still holds the volume
	ReasonNotFound       Reason = "NotFound"       // lvm.ErrNotFound
	ReasonVGNotFound     Reason = "VGNotFound"     // lvm.ErrVGNotFound
	ReasonPartialVG      Reason = "PartialVG"      // lvm.ErrPartialVG
	ReasonDuplicatePV    Reason = "DuplicatePV"    // lvm.ErrDuplicatePV
	ReasonExported       Reason = "Exported"       // lvm.ErrExported
	ReasonForeign        Reason = "Foreign"        // lvm.ErrForeign
	ReasonNotStripable   Reason = "NotStripable"   // lvm.ErrNotStripable
	ReasonOutOfRange     Reason = "OutOfRange"     // lvm.ErrOutOfRange
	ReasonUnsupported    Reason = "Unsupported"    // lvm.ErrUnsupported
	ReasonBadOutput      Reason = "BadOutput"      // lvm.ErrBadOutput
	ReasonTimeout        Reason = "Timeout"        // context.DeadlineExceeded: what came of the attempt is not known; it is repeated
	ReasonFailed         Reason = "Failed"         // anything else
)

// Limits of the error annotation. JSON needs up to six bytes for one of the message.
const (
	maxMessageBytes = 1024
	maxFailureBytes = 8 * maxMessageBytes
)

var (
	// ErrNotAllowed: AgentConfig.VolumeGroups does not have the volume group.
	ErrNotAllowed = errors.New("volume group is not among those that the agent may use")
	// ErrBound: the volume is still bound to its claim, so its logical volume is not removed.
	ErrBound = errors.New("persistent volume is bound")
)

// kinds is in the order in which an error with several of them is looked through.
var kinds = []struct {
	reason Reason
	err    error
}{
	{ReasonInvalidSpec, lvm.ErrInvalid}, {ReasonNotAllowed, ErrNotAllowed}, {ReasonBound, ErrBound},
	{ReasonExistsMismatch, lvm.ErrExistsMismatch}, {ReasonNoSpace, lvm.ErrNoSpace}, {ReasonNotStripable, lvm.ErrNotStripable},
	{ReasonOutOfRange, lvm.ErrOutOfRange}, {ReasonHasSnapshots, lvm.ErrHasSnapshots}, {ReasonInUse, lvm.ErrInUse},
	{ReasonProtected, lvm.ErrProtected}, {ReasonVGNotFound, lvm.ErrVGNotFound}, {ReasonNotFound, lvm.ErrNotFound},
	{ReasonPartialVG, lvm.ErrPartialVG}, {ReasonDuplicatePV, lvm.ErrDuplicatePV}, {ReasonExported, lvm.ErrExported},
	{ReasonForeign, lvm.ErrForeign}, {ReasonUnsupported, lvm.ErrUnsupported}, {ReasonBadOutput, lvm.ErrBadOutput},
	{ReasonTimeout, executor.ErrTimeout}, {ReasonTimeout, context.DeadlineExceeded},
}

// Failure is why the last attempt failed: the value of the error annotation.
type Failure struct {
	Reason  Reason `json:"reason"`
	Message string `json:"message"`
	// UID is that of the object that the attempt was for. A failure of another UID came with a backup and says nothing.
	UID types.UID `json:"uid,omitempty"`
}

// failureOf says of an error what the other side may know of it.
func failureOf(err error, uid types.UID) Failure {
	f := Failure{Reason: ReasonFailed, Message: printable(describe(err)), UID: uid}
	for _, kind := range kinds {
		if errors.Is(err, kind.err) {
			f.Reason = kind.reason
			break
		}
	}
	return f
}

// describe leaves the command out of an error of lvm2. Its arguments differ from one attempt to the next, and then so would the annotation.
func describe(err error) string {
	var e *lvm.Error
	if !errors.As(err, &e) {
		return err.Error()
	}
	brief := *e
	brief.Argv = nil
	text := brief.Error()
	if e.Stderr != "" {
		text += ": " + e.Stderr
	}
	return text
}

// printable makes one line of a bounded length of a message, which may have the output of a program in it.
func printable(s string) string {
	s = strings.Map(func(r rune) rune {
		switch {
		case r == utf8.RuneError:
			return '?'
		case unicode.IsSpace(r):
			return ' '
		case !unicode.IsPrint(r):
			return '?'
		}
		return r
	}, s)
	return shorten(strings.Join(strings.Fields(s), " "), maxMessageBytes)
}

// Encode is the annotation's value.
func (f Failure) Encode() string {
	text, err := json.Marshal(f)
	if err != nil { // strings only: there is nothing to fail
		return `{"reason":"Failed","message":""}`
	}
	return string(text)
}

// ParseFailure reads an error annotation. The text is not trusted; a reason may be one that this version does not know.
func ParseFailure(text string) (Failure, error) {
	var f Failure
	if len(text) > maxFailureBytes {
		return Failure{}, fmt.Errorf("failure annotation is longer than %d bytes", maxFailureBytes)
	}
	if err := json.Unmarshal([]byte(text), &f); err != nil {
		return Failure{}, fmt.Errorf("failure annotation %q: %w", shorten(text, 200), err)
	}
	if !validReason(f.Reason) {
		return Failure{}, fmt.Errorf("failure annotation %q: no reason", shorten(text, 200))
	}
	f.Message = printable(f.Message)
	return f, nil
}

func validReason(r Reason) bool {
	if r == "" || len(r) > 64 {
		return false
	}
	return !strings.ContainsFunc(string(r), func(c rune) bool { return !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9') })
}

// FailedError is what the agent says of its last attempt. Most reasons are an error of package lvm for errors.Is.
type FailedError struct {
	Object string // "claim ns/name" or "volume name"
	Failure
}

func (e *FailedError) Error() string {
	return fmt.Sprintf("%s: the node's agent failed: %s: %s", e.Object, e.Reason, e.Message)
}

// Is makes the error the one that the reason stands for.
func (e *FailedError) Is(target error) bool {
	for _, kind := range kinds {
		if kind.reason == e.Reason && kind.err == target {
			return true
		}
	}
	return false
}
