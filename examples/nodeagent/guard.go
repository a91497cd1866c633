package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/stateofworld/stateofworld/lvm"
)

// mark is the tag that this program puts on every logical volume that it makes. runTag is another, with the number of the run.
const (
	mark   = "nodeagent"
	runTag = "nodeagent.run="
)

// guard keeps the agent off logical volumes that this program has not made. The agent's own care goes by what the API server says, and ours is one in memory that
// knows nothing of the claims of a real cluster: what the cluster's agent has just begun to make would look as if it was left over.
type guard struct {
	inner lvm.Backend
	run   string // the tag of this run
	// latency is how long a change takes at least: an lvm2 in memory is too fast to watch.
	latency time.Duration

	mu   sync.Mutex
	made func(lvm.Name) // see onMade
}

func newGuard(inner lvm.Backend) *guard {
	var id [4]byte
	rand.Read(id[:]) // never fails
	return &guard{inner: inner, run: runTag + hex.EncodeToString(id[:])}
}

// own returns a logical volume that is there and has the mark.
func (g *guard) own(ctx context.Context, op string, name lvm.Name) (lvm.LogicalVolume, error) {
	lv, err := g.inner.Get(ctx, name)
	if err == nil && !lv.HasTag(mark) {
		err = &lvm.Error{
			Op: op, Object: name.String(), Kind: lvm.ErrExistsMismatch,
			Err: &lvm.MismatchError{Field: "maker", Have: "somebody else", Want: "this program (the tag " + mark + ")"},
		}
	}
	return lv, err
}

// Create makes a logical volume with the marks. One that is there without is somebody else's, be it half made.
func (g *guard) Create(ctx context.Context, o lvm.CreateOptions) (lvm.LogicalVolume, error) {
	g.pause(ctx)
	if _, err := g.own(ctx, "create", lvm.Name{VG: o.VG, LV: o.Name}); err != nil && !errors.Is(err, lvm.ErrNotFound) {
		return lvm.LogicalVolume{}, err
	}
	o.Tags = append(slices.Clone(o.Tags), mark, g.run)
	lv, err := g.inner.Create(ctx, o)
	g.mu.Lock()
	made := g.made
	g.mu.Unlock()
	if err == nil && made != nil {
		made(lv.Name)
	}
	return lv, err
}

// onMade has f called with what the agent has made, before the agent hears of it: the worst moment for anything else to happen. Nil: nobody is.
func (g *guard) onMade(f func(lvm.Name)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.made = f
}

// Remove removes what has the mark.
func (g *guard) Remove(ctx context.Context, name lvm.Name, o lvm.RemoveOptions) error {
	g.pause(ctx)
	lv, err := g.own(ctx, "remove", name)
	switch {
	case errors.Is(err, lvm.ErrNotFound):
		return nil
	case err != nil:
		return err
	case o.UUID == "":
		o.UUID = lv.UUID
	}
	return g.inner.Remove(ctx, name, o)
}

// ChangeTags changes the tags of what has the mark.
func (g *guard) ChangeTags(ctx context.Context, name lvm.Name, o lvm.TagChange) (lvm.LogicalVolume, error) {
	if _, err := g.own(ctx, "tag", name); err != nil {
		return lvm.LogicalVolume{}, err
	}
	return g.inner.ChangeTags(ctx, name, o)
}

// List shows the agent what this run has made. It lists for no other reason than to clean up.
func (g *guard) List(ctx context.Context, vg string) ([]lvm.LogicalVolume, error) {
	lvs, err := g.inner.List(ctx, vg)
	return slices.DeleteFunc(lvs, func(lv lvm.LogicalVolume) bool { return !lv.HasTag(g.run) }), err
}

// FinishRemovals does nothing: this program wipes nothing, so it leaves no removal half done.
func (g *guard) FinishRemovals(context.Context, string) (int, error) { return 0, nil }

// Get only looks.
func (g *guard) Get(ctx context.Context, name lvm.Name) (lvm.LogicalVolume, error) {
	return g.inner.Get(ctx, name)
}

// VolumeGroups only looks.
func (g *guard) VolumeGroups(ctx context.Context) ([]lvm.VolumeGroup, error) {
	return g.inner.VolumeGroups(ctx)
}

func (g *guard) pause(ctx context.Context) {
	if g.latency == 0 {
		return
	}
	timer := time.NewTimer(g.latency)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
