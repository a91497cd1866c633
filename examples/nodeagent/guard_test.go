package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stateofworld/stateofworld/fake"
	"github.com/stateofworld/stateofworld/lvm"
)

// Everything that the agent may do is tried on logical volumes that this program has not made.
func TestNothingIsDoneToWhatThisProgramHasNotMade(t *testing.T) {
	memory := fake.NewLVM()
	memory.AddVG("vg0", 0, fake.Disk{Device: "/dev/sdb", Size: 1 << 30})
	ctx := t.Context()
	name := lvm.Name{VG: "vg0", LV: "a"}
	// As another node agent leaves it that is at work just now: made, and its claim not told.
	theirs, err := memory.Create(ctx, lvm.CreateOptions{VG: "vg0", Name: "a", Size: 1, Tags: []string{"sow.owner=u", "sow.claim=shop/a", "sow.lv=vg0/a"}})
	require.NoError(t, err)
	g := newGuard(memory)

	_, err = g.Create(ctx, lvm.CreateOptions{VG: "vg0", Name: "a", Size: 1})
	require.ErrorIs(t, err, lvm.ErrExistsMismatch)
	require.ErrorIs(t, g.Remove(ctx, name, lvm.RemoveOptions{}), lvm.ErrExistsMismatch)
	require.ErrorIs(t, g.Remove(ctx, name, lvm.RemoveOptions{UUID: theirs.UUID}), lvm.ErrExistsMismatch)
	_, err = g.ChangeTags(ctx, name, lvm.TagChange{Add: []string{"sow.ready"}})
	require.ErrorIs(t, err, lvm.ErrExistsMismatch)
	lvs, err := g.List(ctx, "vg0")
	require.NoError(t, err)
	require.Empty(t, lvs, "so that the agent does not take it for something to be cleaned up")
	after, err := memory.Get(ctx, name)
	require.NoError(t, err)
	require.Equal(t, theirs, after)

	own, err := g.Create(ctx, lvm.CreateOptions{VG: "vg0", Name: "b", Size: 1})
	require.NoError(t, err)
	other := newGuard(memory) // a later run
	require.NotEqual(t, g.run, other.run)
	lvs, err = other.List(ctx, "vg0")
	require.NoError(t, err)
	require.Empty(t, lvs, "another run is perhaps at work on it")
	lvs, err = g.List(ctx, "vg0")
	require.NoError(t, err)
	require.Equal(t, []lvm.LogicalVolume{own}, lvs)
	_, err = other.ChangeTags(ctx, own.Name, lvm.TagChange{Add: []string{"x"}})
	require.NoError(t, err)
	require.NoError(t, other.Remove(ctx, own.Name, lvm.RemoveOptions{}))
	require.NoError(t, other.Remove(ctx, own.Name, lvm.RemoveOptions{}), "it is gone")
}

func TestUIDsFollowFromNames(t *testing.T) {
	require.Regexp(t, `^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`, string(uidOf(claimKind, "a", "b")))
	require.NotEqual(t, uidOf(claimKind, "a", "b"), uidOf(volumeKind, "a", "b"))
	require.NotEqual(t, uidOf(claimKind, "a", "b"), uidOf(claimKind, "b", "a"))
	// Whoever writes a value cannot write a path: the quotes in it are escaped.
	patch := `[{"op":"test","path":"/metadata/uid","value":"\"path\":\"/metadata/uid\""}]`
	require.Equal(t, `[{"op":"test","path":"/metadata/annotations/nodeagent~1uid","value":"\"path\":\"/metadata/uid\""}]`, string(inward([]byte(patch))))
}
