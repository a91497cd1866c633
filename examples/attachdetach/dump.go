package main

import (
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/stateofworld/stateofworld/cache"
)

// dump is a cluster, as far as volumes go: the built-in one, or what was read from files. The objects hold only the fields
// that matter here.
type dump struct {
	nodes       map[string]*v1.Node
	pods        map[types.NamespacedName]*v1.Pod
	claims      map[types.NamespacedName]*v1.PersistentVolumeClaim
	volumes     map[string]*v1.PersistentVolume
	attachments map[string]*storagev1.VolumeAttachment

	// unattached are the CSI drivers that say of themselves that their volumes need no attaching.
	unattached map[string]bool
	// foreign names the type of each persistent volume that is not a CSI volume.
	foreign map[string]string
	// migrated are the pods with inline volumes of the types that are named so in decode.go.
	migrated map[types.NamespacedName]bool

	skipped tally
}

func newDump() *dump {
	return &dump{
		nodes:       map[string]*v1.Node{},
		pods:        map[types.NamespacedName]*v1.Pod{},
		claims:      map[types.NamespacedName]*v1.PersistentVolumeClaim{},
		volumes:     map[string]*v1.PersistentVolume{},
		attachments: map[string]*storagev1.VolumeAttachment{},
		unattached:  map[string]bool{},
		foreign:     map[string]string{},
		migrated:    map[types.NamespacedName]bool{},
	}
}

// add puts an object into one of the maps. The same object may come more than once, as from two files; two objects of one
// name are of different times or clusters, and then nobody knows which is true.
func add[K comparable, T metav1.Object](d *dump, kind string, objects map[K]T, key K, object T) error {
	if before, ok := objects[key]; ok {
		if before.GetUID() != object.GetUID() {
			return &fieldError{"metadata.uid", fmt.Sprintf("is %q, but there was one of the same name with uid %q", object.GetUID(), before.GetUID())}
		}
		d.skipped.add(kind+" given more than once: the last one counts", fmt.Sprint(key))
	}
	objects[key] = object
	return nil
}

// size says how much there is.
func (d *dump) size() string {
	return strings.Join([]string{
		count(len(d.nodes), "node"), count(len(d.pods), "pod"), count(len(d.claims), "claim"),
		count(len(d.volumes), "volume"), count(len(d.attachments), "attachment"),
	}, ", ")
}

// count writes a number and a noun.
func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

func (d *dump) plugins() *cache.VolumePluginMgr {
	return cache.NewVolumePluginMgr(cache.CSIPlugin{
		AttachRequired: func(driver string) bool { return !d.unattached[driver] },
	})
}

// claim and volume are the look-ups that informers' listers are in a controller.
func (d *dump) claim(namespace, name string) (*v1.PersistentVolumeClaim, error) {
	if claim, ok := d.claims[types.NamespacedName{Namespace: namespace, Name: name}]; ok {
		return claim, nil
	}
	return nil, apierrors.NewNotFound(v1.Resource("persistentvolumeclaims"), name)
}

func (d *dump) volume(name string) (*v1.PersistentVolume, error) {
	if pv, ok := d.volumes[name]; ok {
		return pv, nil
	}
	return nil, apierrors.NewNotFound(v1.Resource("persistentvolumes"), name)
}

// volumeLister makes a dump's volumes a populator.VolumeGetter.
type volumeLister struct{ *dump }

func (l volumeLister) Get(name string) (*v1.PersistentVolume, error) { return l.volume(name) }

// tally counts things by reason, in the order of the reasons' first times, and keeps the first few of each.
type tally struct {
	byReason map[string]*tallied
	reasons  []string
}

type tallied struct {
	Reason   string   `json:"reason"`
	Count    int      `json:"count"`
	Examples []string `json:"examples"`
}

// maxExamples is how many of the things that were skipped for one reason are named.
const maxExamples = 3

func (t *tally) add(reason, name string) {
	if t.byReason == nil {
		t.byReason = map[string]*tallied{}
	}
	entry := t.byReason[reason]
	if entry == nil {
		entry = &tallied{Reason: reason, Examples: []string{}}
		t.byReason[reason] = entry
		t.reasons = append(t.reasons, reason)
	}
	entry.Count++
	if len(entry.Examples) < maxExamples && !slices.Contains(entry.Examples, name) {
		entry.Examples = append(entry.Examples, name)
	}
}

func (t *tally) list() []tallied {
	list := make([]tallied, 0, len(t.reasons))
	for _, reason := range t.reasons {
		list = append(list, *t.byReason[reason])
	}
	return list
}
