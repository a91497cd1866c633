package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/stateofworld/stateofworld/examples/internal/manifest"
	"github.com/stateofworld/stateofworld/fake"
	"github.com/stateofworld/stateofworld/lvm"
	"github.com/stateofworld/stateofworld/lvm/lifecycle"
)

// period is how often it is looked whether everything has its answer. It is no part of the latency in memory: in virtual time a look and a change would
// else fall into one moment, and which is first would be a matter of luck.
const period = 9 * time.Millisecond

// workOff does what the objects of the files ask for: first what is to be removed, then what is to be made.
func (n *node) workOff(ctx context.Context, input []object) (result, error) {
	identify(input)
	for _, o := range input {
		n.log.wide = width(n.log.wide, o.name())
	}
	where := "lvm2 in memory"
	if n.options.real() {
		if _, err := n.look(ctx, n.options.vg); err != nil {
			return result{}, err
		}
		where = "the real lvm2 of this machine, volume group " + n.options.vg
	}
	n.log.say("node %s, %s: %s", n.options.node, where, count(len(input), "object"))

	later := func(o object) bool { return o.state() == lifecycle.Creating }
	if err := n.bringIn(ctx, slices.DeleteFunc(slices.Clone(input), later)); err != nil {
		return result{}, err
	}
	if n.memory != nil {
		if err := n.furnish(ctx, input); err != nil {
			return result{}, err
		}
	}
	n.start(ctx)
	err := n.settle(ctx, input)
	if err == nil {
		err = n.bringIn(ctx, slices.DeleteFunc(slices.Clone(input), func(o object) bool { return !later(o) }))
	}
	if err == nil {
		err = n.settle(ctx, input)
	}
	return n.verdict(input), err
}

// identify gives a UID to every object, and to every reference to a claim.
func identify(input []object) {
	claims := map[string]*v1.PersistentVolumeClaim{}
	for _, o := range input {
		meta := o.meta()
		kind := volumeKind
		if o.claim != nil {
			kind = claimKind
			claims[meta.Namespace+"/"+meta.Name] = o.claim
		}
		if meta.UID == "" {
			meta.UID = uidOf(kind, meta.Namespace, meta.Name)
		}
	}
	for _, o := range input {
		if o.volume == nil || o.volume.Spec.ClaimRef == nil || o.volume.Spec.ClaimRef.UID != "" {
			continue
		}
		ref := o.volume.Spec.ClaimRef
		ref.UID = uidOf(claimKind, ref.Namespace, ref.Name)
		if claim := claims[ref.Namespace+"/"+ref.Name]; claim != nil {
			ref.UID = claim.UID
		}
	}
}

func (o object) state() lifecycle.State {
	return lifecycle.State(o.meta().Annotations[keys.Lifecycle()])
}

// name is what the object is called in the output.
func (o object) name() string {
	if o.claim != nil {
		return claimName(o.claim.Namespace, o.claim.Name)
	}
	return "volume " + manifest.Quoted(o.volume.Name)
}

// bringIn stores the objects on the API server.
func (n *node) bringIn(ctx context.Context, input []object) error {
	api := n.api.Direct()
	for _, o := range input {
		var err error
		dying := o.meta().DeletionTimestamp != nil
		if o.claim != nil {
			client := api.Claims(o.claim.Namespace)
			if _, err = client.Create(ctx, forServer(o.claim), metav1.CreateOptions{}); err == nil && dying {
				err = client.Delete(ctx, o.claim.Name, metav1.DeleteOptions{})
			}
		} else {
			client := api.Volumes()
			if _, err = client.Create(ctx, forServer(o.volume), metav1.CreateOptions{}); err == nil && dying {
				err = client.Delete(ctx, o.volume.Name, metav1.DeleteOptions{})
			}
		}
		if err != nil {
			return fmt.Errorf("%s: %w", o.name(), err)
		}
	}
	return nil
}

const (
	// freeInMemory is how much room is free on each of the two disks of a group in memory.
	freeInMemory = 1 << 39
	// mostInMemory bounds what is there already: sizes are whatever a file says.
	mostInMemory = 1 << 50
	// mostExtents is how many extents a group in memory has; each is looked after. In a larger group they are larger.
	mostExtents = 1 << 19
)

// furniture is what is in a group in memory already.
type furniture struct{ count, size uint64 }

// extentSize is 4 MiB, as of lvm2, or as much as it takes.
func (f furniture) extentSize() uint64 {
	extent := uint64(4 << 20)
	for (2*freeInMemory+f.size)/extent > mostExtents {
		extent *= 2
	}
	return extent
}

// furnish makes in memory what the objects speak of: the groups, and the logical volumes that should be there already.
func (n *node) furnish(ctx context.Context, input []object) error {
	var there []lvm.CreateOptions
	groups := map[string]furniture{}
	for _, o := range input {
		text := o.meta().Annotations[keys.Spec()]
		options, ok := lvm.CreateOptions{}, false
		if o.claim != nil {
			spec, err := lifecycle.ParseCreateSpec(text)
			ok = err == nil && o.claim.Annotations[lifecycle.DefaultSelectedNode] == n.options.node
			options = lvm.CreateOptions{VG: spec.VolumeGroup, Name: spec.Name, Size: spec.Size, Tags: append(spec.Tags, owner(o.claim.UID, o.claim.Namespace, o.claim.Name, spec.LV())...)}
		} else {
			name, err := lvm.ParseName(text)
			ok = err == nil && n.agent.ExplainVolume(o.volume.Name).Decision.Condition != lifecycle.NotOurs
			options = lvm.CreateOptions{VG: name.VG, Name: name.LV, Size: 1 << 30}
			if capacity := o.volume.Spec.Capacity[v1.ResourceStorage]; capacity.Value() > 0 {
				options.Size = uint64(capacity.Value())
			}
			if ref := o.volume.Spec.ClaimRef; ref != nil {
				options.Tags = owner(ref.UID, ref.Namespace, ref.Name, name)
			}
		}
		if !ok {
			continue
		}
		group := groups[options.VG]
		groups[options.VG] = group
		if state := o.state(); state == lifecycle.Creating || state == lifecycle.Deleted {
			continue
		}
		options.Size = min(options.Size, mostInMemory)
		groups[options.VG] = furniture{group.count + 1, group.size + options.Size}
		options.Tags = append(options.Tags, mark)
		there = append(there, options)
	}
	for vg, f := range groups {
		extent := f.extentSize()
		full := f.size + f.count*extent // each is rounded up
		n.memory.AddVG(vg, extent, fake.Disk{Device: "/dev/" + vg + "-1", Size: freeInMemory + full}, fake.Disk{Device: "/dev/" + vg + "-2", Size: freeInMemory})
	}
	for _, options := range there {
		name := lvm.Name{VG: options.VG, LV: options.Name}
		if _, err := n.backend.Get(ctx, name); err == nil {
			continue // that of a claim and its volume
		}
		if _, err := n.backend.Create(ctx, options); err != nil {
			return fmt.Errorf("put what is there already into the volume group in memory: %w", err)
		}
	}
	return nil
}

// owner are the tags that an agent leaves on what it has made; see package lifecycle.
func owner(uid types.UID, namespace, name string, lv lvm.Name) []string {
	return []string{ownerTag + string(uid), claimTag + namespace + "/" + name, "sow.lv=" + lv.String(), "sow.ready"}
}

// settle waits until everything has its answer that is on the API server.
func (n *node) settle(ctx context.Context, input []object) error {
	ticker := time.NewTicker(period)
	defer ticker.Stop()
	for {
		if n.agent.Idle() && !slices.ContainsFunc(input, func(o object) bool { return n.ask(o).open }) {
			return nil
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// answer is what came of an object.
type answer struct {
	open    bool // it has none yet
	ours    bool // it asks this node for something
	why     string
	failure lifecycle.Failure
}

// ask finds out what came of an object.
func (n *node) ask(o object) answer {
	if o.state() == "" {
		return answer{why: "asks for nothing"}
	}
	reported, ok := n.reported(o)
	if !ok {
		return answer{why: "not begun"} // it is not on the server yet
	}
	var e lifecycle.Explanation
	if o.claim != nil {
		e = n.agent.ExplainClaim(o.claim.Namespace, o.claim.Name)
	} else {
		e = n.agent.ExplainVolume(o.volume.Name)
	}
	switch d := e.Decision; {
	case e.Running.Name != "":
		return answer{open: true, ours: true, why: e.String()}
	case d.Condition == lifecycle.NotOurs:
		return answer{why: e.String()}
	case d.Condition == lifecycle.Converged:
		return answer{ours: true}
	case nextSteps[lifecycle.Reason(d.Condition)] != "":
		return answer{ours: true, why: e.String(), failure: lifecycle.Failure{Reason: lifecycle.Reason(d.Condition), Message: e.String()}}
	case d.Failure.Reason != "" && d.Failure.Encode() == reported:
		return answer{ours: true, why: string(d.Failure.Reason), failure: d.Failure}
	default:
		return answer{open: true, ours: true, why: e.String()}
	}
}

// reported is the failure that is written on the object. False: there is no such object.
func (n *node) reported(o object) (string, bool) {
	var meta metav1.Object
	var err error
	if o.claim != nil {
		meta, err = n.api.Direct().Claims(o.claim.Namespace).Get(context.Background(), o.claim.Name, metav1.GetOptions{})
	} else {
		meta, err = n.api.Direct().Volumes().Get(context.Background(), o.volume.Name, metav1.GetOptions{})
	}
	if err != nil {
		return "", false
	}
	return meta.GetAnnotations()[keys.Error()], true
}

// verdict is what came of all.
func (n *node) verdict(input []object) (r result) {
	ours, done, asking := 0, 0, 0
	for _, o := range input {
		kind := volumeKind
		if o.claim != nil {
			kind = claimKind
		}
		row, a := rowOf(kind, *o.meta()), n.ask(o)
		row.Why = a.why
		r.Objects = append(r.Objects, row)
		if o.state() != "" {
			asking++
		}
		if !a.ours {
			continue
		}
		ours++
		switch {
		case a.failure.Reason != "":
			r.Problems = append(r.Problems, problem{Object: o.name(), Why: failureText(a.failure), Next: nextStep(a.failure)})
		case !a.open:
			done++
		}
	}
	switch {
	case asking == 0:
		r.Told = fmt.Sprintf("nothing to do: no object has the annotation %s", keys.Lifecycle())
	case ours == 0:
		r.Problems = append(r.Problems, problem{Why: fmt.Sprintf("nothing is asked of node %s", n.options.node), Next: "Name another node with -node"})
	default:
		r.Told = fmt.Sprintf("%s of node %s: all that was asked for is done", count(done, "object"), n.options.node)
	}
	return r
}

// nextSteps are by the reason of a failure, or by the condition of an object that no failure is written on, but which the agent will not act on.
var nextSteps = map[lifecycle.Reason]string{
	lifecycle.Reason(lifecycle.Terminating):   "Nothing is made for it any more: make the claim anew",
	lifecycle.Reason(lifecycle.WrongAffinity): "Correct its spec.nodeAffinity",
	lifecycle.Reason(lifecycle.Elsewhere):     "The agent of the node that has it will remove it",

	lifecycle.ReasonInvalidSpec:    "Correct its annotation " + keys.Spec(),
	lifecycle.ReasonNotAllowed:     "Only the volume group that is named with -vg is used",
	lifecycle.ReasonNoSpace:        "Make room in the volume group, or ask for less",
	lifecycle.ReasonExistsMismatch: "That logical volume is another's, and stays as it is: name another",
	lifecycle.ReasonInUse:          "Unmount it, or end what has it open",
	lifecycle.ReasonHasSnapshots:   "Remove its snapshots first",
	lifecycle.ReasonProtected:      "Take its tag \"protected\" off, if it is to go",
	lifecycle.ReasonBound:          "Delete its claim first",
	lifecycle.ReasonVGNotFound:     "See vgs for the volume groups that are there",
	lifecycle.ReasonPartialVG:      "Bring back the disks that are missing; see pvs",
	lifecycle.ReasonDuplicatePV:    "Take away the copy of the disk, or hide it from lvm2",
	lifecycle.ReasonExported:       "Import the volume group with vgimport",
	lifecycle.ReasonForeign:        "The volume group belongs to another host",
	lifecycle.ReasonNotStripable:   "It takes two disks with room: ask without \"striping\"",
}

// nextStep is what can be done about a failure, where there is something to say.
func nextStep(f lifecycle.Failure) string {
	if strings.Contains(f.Message, "device-mapper") && f.Reason == lifecycle.ReasonFailed {
		return "Is there no device-mapper here? -no-device-mapper does without"
	}
	return nextSteps[f.Reason]
}
