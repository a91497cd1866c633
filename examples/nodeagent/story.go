package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/stateofworld/stateofworld/fake"
	"github.com/stateofworld/stateofworld/lvm"
	"github.com/stateofworld/stateofworld/lvm/lifecycle"
)

const (
	// shop is the namespace of the claims of the story.
	shop = "shop"
	// namePrefix is what the names of logical volumes begin with in a real group.
	namePrefix = "nodeagent-"
)

// story is the life of a few claims.
type story struct {
	*node
	vg     lvm.VolumeGroup
	prefix string // of the names of logical volumes
	size   uint64 // of one
}

// story tells it. What is not as it should be is a problem of the result.
func (n *node) story(ctx context.Context) (result, error) {
	s := &story{node: n, prefix: "pvc-"}
	vg := n.options.vg
	if n.memory != nil {
		vg = "vg0"
		n.memory.AddVG(vg, 0, fake.Disk{Device: "/dev/sdb", Size: 8 << 30}, fake.Disk{Device: "/dev/sdc", Size: 8 << 30})
	}
	var err error
	if s.vg, err = n.look(ctx, vg); err != nil {
		return result{}, err
	}
	s.size = 1 << 30
	if n.options.real() {
		s.prefix, s.size = namePrefix+n.guard.run[len(runTag):]+"-", s.vg.ExtentSize // no name that anybody else would think of
		if need := uint64(4); s.vg.FreeExtents < need {
			return result{}, &hintError{fmt.Errorf("volume group %s has %d extents free, and this takes %d", vg, s.vg.FreeExtents, need), "Name one with more room"}
		}
	}
	where := "in memory; -h tells how to use a real one"
	if n.options.real() {
		where = "the real one of this machine"
	}
	n.log.say("node %s, volume group %s (%s): %s, %s free", n.options.node, vg, where, size(s.vg.Size), size(s.vg.Free))
	if err := s.noteOthers(ctx); err != nil {
		return result{}, err
	}
	n.log.wide = width(0, "lv "+s.lv("taken").String())
	n.start(ctx)

	var r result
	for _, scene := range []func(context.Context) error{s.created, s.tooBig, s.taken, s.withdrawn, s.removed} {
		if err := scene(ctx); ctx.Err() != nil {
			return r, context.Cause(ctx)
		} else if err != nil {
			r.Problems = append(r.Problems, problemOf(err))
			return r, nil // the next scenes would hardly go better
		}
	}
	r.Told = "everything went as it should"
	return r, nil
}

// noteOthers tells of what another run has made and not removed.
func (s *story) noteOthers(ctx context.Context) error {
	lvs, err := s.backend.List(ctx, s.vg.Name)
	for _, lv := range lvs {
		if lv.HasTag(mark) && strings.HasPrefix(lv.LV, namePrefix) {
			s.log.say("note: %[1]s is of another run; if that was killed, remove it with lvremove %[1]s", lv.Name)
		}
	}
	return err
}

func (s *story) lv(name string) lvm.Name { return lvm.Name{VG: s.vg.Name, LV: s.prefix + name} }

// ask makes a claim and has the driver ask for its logical volume. The error is what the driver is told.
func (s *story) ask(ctx context.Context, name string, bytes uint64) (*v1.PersistentVolumeClaim, error) {
	claim := fake.NewClaim(shop+"/"+name, s.options.node)
	spec := lifecycle.CreateSpec{VolumeGroup: s.vg.Name, Name: s.lv(name).LV, Size: bytes}
	s.log.event(user, claimName(shop, name), "makes the claim")
	claim, err := s.api.Claims(shop).Create(ctx, claim, metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	s.log.event(driver, claimName(shop, name), "asks for %s, %s", spec.LV(), size(bytes))
	err = s.provisioner.CreateVolumeWithAnnotations(ctx, shop, name, spec)
	if err == nil {
		err = s.await(ctx, func(n lifecycle.Notice) bool { return n.Type == lifecycle.NoticeCreated && n.Name == name })
	}
	return claim, err
}

// problemOf says of an error what a person needs.
func problemOf(err error) problem {
	var failed *lifecycle.FailedError
	if errors.As(err, &failed) {
		return problem{Object: failed.Object, Why: failureText(failed.Failure), Next: nextStep(failed.Failure)}
	}
	return problem{Why: brief(err).Error()}
}

// unexpected is nil when the driver was told what it should have been.
func (s *story) unexpected(name string, told, want error) error {
	text := "is told that it is there"
	var failed *lifecycle.FailedError
	switch {
	case errors.As(told, &failed):
		text = "is told: " + string(failed.Reason)
	case errors.Is(told, lifecycle.ErrGone):
		text = "is told: " + lifecycle.ErrGone.Error()
	case told != nil:
		text = "is told: " + told.Error()
	}
	s.log.event(driver, claimName(shop, name), "%s", text)
	switch {
	case errors.Is(told, want): // also when both are nil
		return nil
	case told != nil:
		return told
	}
	return fmt.Errorf("claim %s/%s: the driver should have been told %q", shop, name, want)
}

// created: all goes well.
func (s *story) created(ctx context.Context) error {
	_, err := s.ask(ctx, "data", s.size)
	return s.unexpected("data", err, nil)
}

// tooBig: no group has that much room.
func (s *story) tooBig(ctx context.Context) error {
	_, err := s.ask(ctx, "huge", 2*s.vg.Size)
	return s.unexpected("huge", err, lvm.ErrNoSpace)
}

// taken: somebody else has a logical volume of that name.
func (s *story) taken(ctx context.Context) error {
	name := s.lv("taken")
	s.log.event(user, "lv "+name.String(), "makes a logical volume by hand")
	// It has the tag of the run, so that it goes with the rest in the end; nothing of it tells the agent that it is a claim's.
	made, err := s.backend.Create(ctx, lvm.CreateOptions{VG: name.VG, Name: name.LV, Size: s.size, Tags: []string{mark, s.guard.run}})
	if err != nil {
		return err
	}
	_, err = s.ask(ctx, "taken", s.size)
	if err := s.unexpected("taken", err, lvm.ErrExistsMismatch); err != nil {
		return err
	}
	after, err := s.backend.Get(ctx, name)
	if err != nil {
		return err
	}
	if after.UUID != made.UUID || !slices.Equal(after.Tags, made.Tags) {
		return fmt.Errorf("logical volume %s is not what it was: %+v, and was %+v", name, after, made)
	}
	return nil
}

// withdrawn: the claim is deleted while its logical volume is being made.
func (s *story) withdrawn(ctx context.Context) error {
	name := s.lv("gone")
	deleted := make(chan error, 1)
	var once sync.Once
	s.guard.onMade(func(made lvm.Name) {
		if made != name { // an earlier scene's, which is tried again
			return
		}
		once.Do(func() {
			s.log.event(user, claimName(shop, "gone"), "deletes the claim, while %s is being made", name)
			deleted <- s.api.Claims(shop).Delete(ctx, "gone", metav1.DeleteOptions{})
		})
	})
	_, err := s.ask(ctx, "gone", s.size)
	s.guard.onMade(nil)
	if err := s.unexpected("gone", err, lifecycle.ErrGone); err != nil {
		return err
	}
	if err := <-deleted; err != nil {
		return err
	}
	err = s.await(ctx, func(n lifecycle.Notice) bool { return n.Type == lifecycle.NoticeWithdrawn && n.LV == name })
	if err != nil {
		return err
	}
	return s.mustBeGone(ctx, name)
}

// removed: a volume at the end of its life.
func (s *story) removed(ctx context.Context) error {
	claim, err := s.ask(ctx, "old", s.size)
	if err := s.unexpected("old", err, nil); err != nil {
		return err
	}
	name := s.lv("old")
	volume, object := fake.NewVolume(name.LV, lifecycle.DefaultDriver, s.options.node, claim), "volume "+name.LV
	volume.Status.Phase = v1.VolumeReleased
	if _, err := s.api.Volumes().Create(ctx, volume, metav1.CreateOptions{}); err != nil {
		return err
	}
	s.log.event(driver, object, "makes the volume")
	s.log.event(user, claimName(shop, "old"), "deletes the claim")
	if err := s.api.Claims(shop).Delete(ctx, "old", metav1.DeleteOptions{}); err != nil {
		return err
	}
	s.log.event(driver, object, "asks that %s be removed", name)
	err = s.provisioner.DeleteVolumeWithAnnotations(ctx, volume.Name, name)
	if err == nil {
		err = s.await(ctx, func(n lifecycle.Notice) bool { return n.Type == lifecycle.NoticeDeleted && n.LV == name })
	}
	if err != nil {
		return err
	}
	s.log.event(driver, object, "is told that it is gone")
	return s.mustBeGone(ctx, name)
}

func (s *story) mustBeGone(ctx context.Context, name lvm.Name) error {
	if _, err := s.backend.Get(ctx, name); !errors.Is(err, lvm.ErrNotFound) {
		return fmt.Errorf("logical volume %s should be gone: %v", name, err)
	}
	return nil
}
