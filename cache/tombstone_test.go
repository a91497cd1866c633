package cache

import (
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
)

func TestATombstoneIsRecognisedByItsFields(t *testing.T) {
	type tombstone struct {
		Key string
		Obj any
	}
	pod := &v1.Pod{}
	for _, obj := range []any{tombstone{"ns/p", pod}, &tombstone{"ns/p", pod}} {
		inside, key, ok := OpenTombstone(obj)
		require.True(t, ok)
		require.Same(t, pod, inside)
		require.Equal(t, "ns/p", key)
	}
	inside, key, ok := OpenTombstone(tombstone{Key: "p"})
	require.True(t, ok)
	require.Nil(t, inside)
	require.Equal(t, "p", key)
	for _, obj := range []any{nil, "ns/p", 7, pod, (*tombstone)(nil), struct{ Key string }{}, struct{ Key, Obj string }{}} {
		_, _, ok := OpenTombstone(obj)
		require.False(t, ok, "%T", obj)
	}
}
