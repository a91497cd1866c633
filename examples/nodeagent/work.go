package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/stateofworld/stateofworld/examples/internal/manifest"
	"github.com/stateofworld/stateofworld/lvm"
	"github.com/stateofworld/stateofworld/lvm/lifecycle"
)

var (
	errTimedOut     = errors.New("timed out")
	errNotAsItShall = errors.New("not everything is as it should be")
)

// work does what the program is there for, and prints it. Its error is errNotAsItShall when the reason is printed already.
func work(ctx context.Context, o options, input []object, stdout, stderr io.Writer) error {
	log := &printer{w: stdout, start: time.Now()}
	if o.format == "json" {
		log.w = stderr
	}
	n, err := newNode(o, log)
	if err != nil {
		return err
	}
	within, cancel := context.WithTimeoutCause(ctx, o.timeout, errTimedOut)
	defer cancel()
	var r result
	if len(o.files) > 0 {
		r, err = n.workOff(within, input)
	} else {
		r, err = n.story(within)
	}
	switch {
	case err == nil:
	case errors.Is(err, errTimedOut):
		r.Problems = append(r.Problems, problem{Why: "not finished after " + o.timeout.String(), Next: "See what it waits for in the table, or give it more time with -timeout"})
	case ctx.Err() != nil:
		p := problem{Why: "interrupted"}
		if len(o.files) > 0 && o.real() {
			p.Next = "What is made is kept; run it again to go on"
		}
		r.Problems = append(r.Problems, p)
	default:
		return errors.Join(err, n.close())
	}
	return n.finish(r, stdout)
}

// finish stops the agent, takes away what has to go, and prints how it has ended.
func (n *node) finish(r result, stdout io.Writer) error {
	// What is under way may have no time left, but its traces are still to be seen and to be removed.
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	err := n.close()
	r.Objects, r.LogicalVolumes = n.objects(ctx, r.Objects), nil
	lvs, listErr := n.list(ctx)
	for _, lv := range lvs {
		r.LogicalVolumes = append(r.LogicalVolumes, lvRow{Name: lv.String(), UUID: lv.UUID, Size: lv.Size, Owner: madeFor(lv), Tags: lv.Tags})
	}
	err = errors.Join(err, listErr)
	if n.options.real() && len(n.options.files) == 0 {
		removed, cleanErr := n.clean(ctx)
		err = errors.Join(err, cleanErr)
		r.Cleaned = fmt.Sprintf("%s of this run removed from %s again", count(removed, "logical volume"), n.options.vg)
	}
	if err != nil {
		r.Problems = append(r.Problems, problem{Why: err.Error()})
	}
	r.OK, r.Seconds = len(r.Problems) == 0, time.Since(n.log.start).Seconds()
	if n.options.format == "json" {
		err = r.printJSON(stdout)
	} else {
		w := &errorWriter{w: stdout}
		fmt.Fprintln(w)
		r.printTables(w)
		err = w.err
	}
	switch {
	case err != nil:
		return fmt.Errorf("write the result: %w", err)
	case !r.OK:
		return errNotAsItShall
	}
	return nil
}

// errorWriter remembers the first error.
type errorWriter struct {
	w   io.Writer
	err error
}

func (e *errorWriter) Write(p []byte) (int, error) {
	n, err := e.w.Write(p)
	if e.err == nil {
		e.err = err
	}
	return n, err
}

// list returns the logical volumes of all groups that are worked on.
func (n *node) list(ctx context.Context) (all []lvm.LogicalVolume, err error) {
	groups := []string{n.options.vg}
	if !n.options.real() {
		groups = nil
		vgs, err := n.backend.VolumeGroups(ctx)
		if err != nil {
			return nil, err
		}
		for _, vg := range vgs {
			groups = append(groups, vg.Name)
		}
	}
	for _, vg := range groups {
		lvs, err := n.backend.List(ctx, vg)
		if err != nil {
			return all, err
		}
		all = append(all, lvs...)
	}
	return all, nil
}

// The tags that an agent puts on what it makes say whose it is; see package lifecycle.
const (
	ownerTag = "sow.owner="
	claimTag = "sow.claim="
)

// madeFor is the claim in the tags that the agent puts on a logical volume.
func madeFor(lv lvm.LogicalVolume) string {
	for _, tag := range lv.Tags {
		if claim, ok := strings.CutPrefix(tag, claimTag); ok {
			return "claim " + manifest.Quoted(claim)
		}
	}
	return "somebody else"
}

// clean removes what this run has made, and looks whether anything of it is left.
func (n *node) clean(ctx context.Context) (removed int, err error) {
	ours, err := n.guard.List(ctx, n.options.vg)
	for _, lv := range ours {
		if removeErr := n.backend.Remove(ctx, lv.Name, lvm.RemoveOptions{UUID: lv.UUID}); removeErr != nil {
			err = errors.Join(err, removeErr)
			continue
		}
		removed++
	}
	left, listErr := n.guard.List(ctx, n.options.vg)
	for _, lv := range left {
		err = errors.Join(err, fmt.Errorf("%s is left behind: remove it with lvremove %s", lv, lv))
	}
	return removed, errors.Join(err, listErr)
}

// objects are the rows of all objects on the API server, with what is known of why they are so, and those that have not come there yet.
func (n *node) objects(ctx context.Context, known []objectRow) []objectRow {
	missing := map[string]objectRow{}
	for _, row := range known {
		missing[row.object()] = row
	}
	rows := []objectRow{}
	add := func(kind string, meta metav1.ObjectMeta) {
		row := rowOf(kind, meta)
		row.Why = cmp.Or(missing[row.object()].Why, row.Why)
		delete(missing, row.object())
		rows = append(rows, row)
	}
	api := n.api.Direct()
	if claims, err := api.Claims("").List(ctx, metav1.ListOptions{}); err == nil { // it only fails when ctx ends
		for _, claim := range claims.Items {
			add(claimKind, claim.ObjectMeta)
		}
	}
	if volumes, err := api.Volumes().List(ctx, metav1.ListOptions{}); err == nil {
		for _, volume := range volumes.Items {
			add(volumeKind, volume.ObjectMeta)
		}
	}
	rows = slices.AppendSeq(rows, maps.Values(missing))
	slices.SortFunc(rows, func(a, b objectRow) int {
		return cmp.Or(-cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return rows
}

// rowOf is the row of an object, with the reason of the failure that is written on it.
func rowOf(kind string, meta metav1.ObjectMeta) objectRow {
	row := objectRow{Kind: kind, Namespace: meta.Namespace, Name: meta.Name, State: meta.Annotations[keys.Lifecycle()], Annotations: map[string]string{}}
	for _, key := range []string{keys.Lifecycle(), keys.Spec(), keys.Error()} {
		if value, ok := meta.Annotations[key]; ok {
			row.Annotations[key] = value
		}
	}
	spec := meta.Annotations[keys.Spec()]
	if create, err := lifecycle.ParseCreateSpec(spec); err == nil {
		row.LV = create.LV().String()
	} else if name, err := lvm.ParseName(spec); err == nil {
		row.LV = name.String()
	}
	if f, err := lifecycle.ParseFailure(meta.Annotations[keys.Error()]); err == nil {
		row.Why = string(f.Reason)
	}
	return row
}
