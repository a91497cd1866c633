package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/stateofworld/stateofworld/executor"
	"github.com/stateofworld/stateofworld/lvm"
)

func TestEveryErrorHasAReasonThatTheOtherSideUnderstands(t *testing.T) {
	for _, kind := range kinds {
		f := failureOf(fmt.Errorf("create: %w", &lvm.Error{Op: "create", Object: "vg0/a", Kind: kind.err}), "uid")
		require.Equal(t, kind.reason, f.Reason, kind.err)
		back, err := ParseFailure(f.Encode())
		require.NoError(t, err)
		require.Equal(t, f, back)
		require.ErrorIs(t, &FailedError{Object: "claim a/b", Failure: back}, kind.err)
	}
	require.Equal(t, ReasonFailed, failureOf(errors.New("x"), "").Reason)
	require.Equal(t, ReasonTimeout, failureOf(fmt.Errorf("%w: killed", executor.ErrTimeout), "").Reason)
	require.Equal(t, ReasonNoSpace, failureOf(fmt.Errorf("%w: %w", lvm.ErrNotStripable, lvm.ErrNoSpace), "").Reason, "room may come back")
	require.NotErrorIs(t, &FailedError{Failure: Failure{Reason: ReasonFailed}}, lvm.ErrInvalid)
	require.NotErrorIs(t, &FailedError{Failure: Failure{Reason: ReasonInUse}}, context.Canceled)
}

func TestMessagesAreOneShortLine(t *testing.T) {
	for in, want := range map[string]string{
		"a\n  b\tc": "a b c", "x\x00y\x1b[31m": "x?y?[31m", "caf\xe9": "caf?", "\u202eevil": "?evil", "": "",
	} {
		require.Equal(t, want, printable(in))
	}
	long := printable(strings.Repeat("é", 2000))
	require.LessOrEqual(t, len(long), maxMessageBytes+len("..."))
	require.True(t, utf8.ValidString(long))
	require.LessOrEqual(t, len(Failure{Reason: ReasonFailed, Message: printable(strings.Repeat("<", 4000)), UID: "u"}.Encode()), maxFailureBytes)
}

func TestFailuresThatAreNone(t *testing.T) {
	for _, text := range []string{
		``, `null`, `{}`, `[]`, `"NoSpace"`, `{"reason":""}`, `{"reason":"No Space"}`, `{"reason":"a\nb"}`, `{"reason":1}`, `{"reason":"` + strings.Repeat("x", 65) + `"}`,
		`{"reason":"NoSpace","message":"` + strings.Repeat("x", maxFailureBytes) + `"}`,
	} {
		_, err := ParseFailure(text)
		require.Error(t, err, text)
	}
	f, err := ParseFailure(`{"reason":"SomethingNew","message":"a\nb","more":1}`)
	require.NoError(t, err)
	require.Equal(t, Failure{Reason: "SomethingNew", Message: "a b"}, f)
}

func FuzzParseFailure(f *testing.F) {
	for _, seed := range []string{`{"reason":"NoSpace","message":"m","uid":"u"}`, `{}`, `{"reason":"\u0000"}`, `{"message":"` + "\x1b" + `"}`, `x`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got, err := ParseFailure(text)
		if err != nil {
			return
		}
		require.True(t, validReason(got.Reason))
		require.LessOrEqual(t, len(got.Message), maxMessageBytes+len("..."))
		require.Equal(t, got.Message, printable(got.Message))
	})
}
