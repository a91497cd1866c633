package fake

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apimachinery/pkg/watch"
)

// API is an API server in memory for claims and volumes. Its clients have the signatures of client-go's, and it answers as the real one does
// where that matters to who follows and patches objects:
//
//   - UIDs, resource versions (one count for all objects, as etcd has), creation and deletion times.
//   - An update or a patch with an old resource version is 409 Conflict. A JSON patch whose test fails is 422 Invalid. What changes nothing gets no new
//     version and no event.
//   - JSON patches (RFC 6902), merge patches (RFC 7386) and strategic merge patches.
//   - An object with finalizers is marked as being deleted, and goes with the last of them.
//   - Watches with label and field selectors, from any version that was not compacted: an object that a selector does not match any more is a
//     deletion.
//   - Lists in pages.
//
// Every call can be made to fail, to lose its reply, to be held, or to have something happen right before it; see [API.FailNext] and its neighbours. A process
// that is to be stopped at one of its calls uses a [APISession].
//
// Limits: there is no defaulting, no admission, no server-side apply and no status subresource (a write of the whole object writes its status, too); of
// validation, only that of metadata. All methods may be called concurrently.
type API struct {
	mu        sync.Mutex
	version   uint64
	compacted uint64 // events up to here are forgotten
	serial    int
	objects   map[apiResource]map[types.NamespacedName]apiObject
	events    []apiEvent
	pages     map[string]apiPage
	watches   map[*apiWatch]struct{}
	faults    []*apiFault
	feeds     []*Feed
	session   *APISession
}

// apiResource is a kind of object.
type apiResource string

const (
	apiClaims  apiResource = "persistentvolumeclaims"
	apiVolumes apiResource = "persistentvolumes"
)

// short is the name of one object in recorded calls.
func (r apiResource) short() string {
	if r == apiClaims {
		return "claim"
	}
	return "volume"
}

func (r apiResource) group() schema.GroupResource { return schema.GroupResource{Resource: string(r)} }

func (r apiResource) kind() schema.GroupKind {
	if r == apiClaims {
		return schema.GroupKind{Kind: "PersistentVolumeClaim"}
	}
	return schema.GroupKind{Kind: "PersistentVolume"}
}

type apiObject interface {
	metav1.Object
	runtime.Object
}

// apiEvent is one change of one object.
type apiEvent struct {
	version  uint64
	resource apiResource
	kind     watch.EventType
	object   apiObject // after the change; the last state of a deleted one
	before   apiObject
}

// NewAPI returns a server without objects.
func NewAPI() *API {
	a := &API{
		objects: map[apiResource]map[types.NamespacedName]apiObject{apiClaims: {}, apiVolumes: {}},
		pages:   map[string]apiPage{}, watches: map[*apiWatch]struct{}{},
	}
	a.session = a.Session()
	return a
}

// Claims returns a client for the claims of a namespace; an empty namespace lists and watches all of them.
func (a *API) Claims(namespace string) *ClaimClient { return a.session.Claims(namespace) }

// Volumes returns a client for volumes.
func (a *API) Volumes() *VolumeClient { return a.session.Volumes() }

// Calls returns the calls that came through the clients of the API itself, in order: "patch claim default/a", "list volumes".
func (a *API) Calls() []string { return a.session.Calls() }

// ForgetCalls empties Calls.
func (a *API) ForgetCalls() { a.session.ForgetCalls() }

// lockedTime is the time of the next change: a second passes with each.
func (a *API) lockedTime() metav1.Time {
	return metav1.NewTime(Start().Add(time.Duration(a.version) * time.Second))
}

func (a *API) lockedUID() types.UID {
	a.serial++
	return types.UID(fmt.Sprintf("00000000-0000-4000-8000-%012d", a.serial))
}

func keyOf(obj metav1.Object) types.NamespacedName {
	return types.NamespacedName{Namespace: obj.GetNamespace(), Name: obj.GetName()}
}

func clone(obj apiObject) apiObject { return obj.DeepCopyObject().(apiObject) }

// lockedGet returns the object itself, not a copy.
func (a *API) lockedGet(r apiResource, key types.NamespacedName) (apiObject, error) {
	if obj := a.objects[r][key]; obj != nil {
		return obj, nil
	}
	return nil, apierrors.NewNotFound(r.group(), key.Name)
}

// lockedCreate takes a copy that is the server's from now on.
func (a *API) lockedCreate(r apiResource, obj apiObject) (apiObject, error) {
	key := keyOf(obj)
	switch {
	case obj.GetResourceVersion() != "":
		return nil, apierrors.NewBadRequest("resourceVersion should not be set on objects to be created")
	case a.objects[r][key] != nil:
		return nil, apierrors.NewAlreadyExists(r.group(), key.Name)
	}
	obj.SetUID(a.lockedUID())
	obj.SetDeletionTimestamp(nil)
	obj.SetCreationTimestamp(a.lockedTime())
	if err := invalidMeta(r, obj, nil); err != nil {
		return nil, err
	}
	a.lockedStore(r, watch.Added, obj, nil)
	return obj, nil
}

// lockedUpdate replaces an object by a copy that is the server's from now on.
func (a *API) lockedUpdate(r apiResource, before, obj apiObject) (apiObject, error) {
	if version := obj.GetResourceVersion(); version != "" && version != before.GetResourceVersion() {
		return nil, apierrors.NewConflict(r.group(), before.GetName(), errors.New("the object has been modified; please apply your changes to the latest version and try again"))
	}
	obj.SetResourceVersion(before.GetResourceVersion())
	obj.SetCreationTimestamp(before.GetCreationTimestamp())
	obj.SetDeletionTimestamp(before.GetDeletionTimestamp())
	obj.SetDeletionGracePeriodSeconds(before.GetDeletionGracePeriodSeconds())
	if err := invalidMeta(r, obj, before); err != nil {
		return nil, err
	}
	if sameObject(before, obj) {
		return before, nil
	}
	if obj.GetDeletionTimestamp() != nil && len(obj.GetFinalizers()) == 0 {
		a.lockedStore(r, watch.Deleted, obj, before)
		return obj, nil
	}
	a.lockedStore(r, watch.Modified, obj, before)
	return obj, nil
}

func sameObject(x, y apiObject) bool {
	if reflect.DeepEqual(x, y) {
		return true
	}
	a, err1 := json.Marshal(x) // an empty map and none are the same
	b, err2 := json.Marshal(y)
	return err1 == nil && err2 == nil && string(a) == string(b)
}

func (a *API) lockedDelete(r apiResource, key types.NamespacedName, opts metav1.DeleteOptions) error {
	obj, err := a.lockedGet(r, key)
	if err != nil {
		return err
	}
	if p := opts.Preconditions; p != nil {
		if p.UID != nil && *p.UID != obj.GetUID() {
			return apierrors.NewConflict(r.group(), key.Name, fmt.Errorf("the UID in the precondition (%s) does not match the UID in record (%s). The object might have been deleted and then recreated", *p.UID, obj.GetUID()))
		}
		if p.ResourceVersion != nil && *p.ResourceVersion != obj.GetResourceVersion() {
			return apierrors.NewConflict(r.group(), key.Name, fmt.Errorf("the ResourceVersion in the precondition (%s) does not match the ResourceVersion in record (%s). The object might have been modified", *p.ResourceVersion, obj.GetResourceVersion()))
		}
	}
	after := clone(obj)
	if len(obj.GetFinalizers()) == 0 {
		a.lockedStore(r, watch.Deleted, after, obj)
		return nil
	}
	if obj.GetDeletionTimestamp() == nil {
		now := a.lockedTime()
		after.SetDeletionTimestamp(&now)
		a.lockedStore(r, watch.Modified, after, obj)
	}
	return nil
}

// lockedStore makes one change, gives it a version, and tells who watches.
func (a *API) lockedStore(r apiResource, kind watch.EventType, obj, before apiObject) {
	a.version++
	obj.SetResourceVersion(strconv.FormatUint(a.version, 10))
	if kind == watch.Deleted {
		delete(a.objects[r], keyOf(obj))
	} else {
		a.objects[r][keyOf(obj)] = obj
	}
	e := apiEvent{version: a.version, resource: r, kind: kind, object: obj, before: before}
	a.events = append(a.events, e)
	for w := range a.watches {
		w.send(e)
	}
	for _, f := range a.feeds {
		f.lockedPush(e)
	}
}

// invalidMeta is what the server has against the metadata of an object, as far as it is checked here.
func invalidMeta(r apiResource, obj, before apiObject) error {
	var errs field.ErrorList
	meta := field.NewPath("metadata")
	if reasons := validation.IsDNS1123Subdomain(obj.GetName()); len(reasons) > 0 {
		errs = append(errs, field.Invalid(meta.Child("name"), obj.GetName(), strings.Join(reasons, "; ")))
	}
	for _, key := range slices.Sorted(maps.Keys(obj.GetLabels())) {
		if reasons := append(validation.IsQualifiedName(key), validation.IsValidLabelValue(obj.GetLabels()[key])...); len(reasons) > 0 {
			errs = append(errs, field.Invalid(meta.Child("labels"), key+"="+obj.GetLabels()[key], strings.Join(reasons, "; ")))
		}
	}
	size := 0
	for _, key := range slices.Sorted(maps.Keys(obj.GetAnnotations())) {
		size += len(key) + len(obj.GetAnnotations()[key])
		if reasons := validation.IsQualifiedName(strings.ToLower(key)); len(reasons) > 0 {
			errs = append(errs, field.Invalid(meta.Child("annotations"), key, strings.Join(reasons, "; ")))
		}
	}
	if size > 256<<10 {
		errs = append(errs, field.TooLong(meta.Child("annotations"), "", 256<<10))
	}
	for _, f := range obj.GetFinalizers() {
		if reasons := validation.IsQualifiedName(f); len(reasons) > 0 {
			errs = append(errs, field.Invalid(meta.Child("finalizers"), f, strings.Join(reasons, "; ")))
		}
		if before != nil && before.GetDeletionTimestamp() != nil && !slices.Contains(before.GetFinalizers(), f) {
			errs = append(errs, field.Forbidden(meta.Child("finalizers"), "no new finalizers can be added if the object is being deleted, found new finalizers "+f))
		}
	}
	if before != nil {
		for _, immutable := range []struct{ name, have, was string }{
			{"name", obj.GetName(), before.GetName()}, {"namespace", obj.GetNamespace(), before.GetNamespace()}, {"uid", string(obj.GetUID()), string(before.GetUID())},
		} {
			if immutable.have != immutable.was {
				errs = append(errs, field.Invalid(meta.Child(immutable.name), immutable.have, "field is immutable"))
			}
		}
	}
	if len(errs) > 0 {
		return apierrors.NewInvalid(r.kind(), obj.GetName(), errs)
	}
	return nil
}

// lockedList returns the objects themselves, sorted by namespace and name.
func (a *API) lockedList(r apiResource, s apiSelector) []apiObject {
	var out []apiObject
	for _, obj := range a.objects[r] {
		if s.matches(obj) {
			out = append(out, obj)
		}
	}
	slices.SortFunc(out, func(x, y apiObject) int {
		return cmp.Or(cmp.Compare(x.GetNamespace(), y.GetNamespace()), cmp.Compare(x.GetName(), y.GetName()))
	})
	return out
}

// Compact forgets the history: watches from an older version, and lists that were begun and not finished, end in 410 Gone.
func (a *API) Compact() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.compacted, a.events = a.version, nil
	clear(a.pages)
}

// NewClaim returns a claim as the provisioner finds it: unbound, on a node that the scheduler has selected. Name is "namespace/name", or a name in
// namespace default.
func NewClaim(name, node string) *v1.PersistentVolumeClaim {
	namespace, short, ok := strings.Cut(name, "/")
	if !ok {
		namespace, short = "default", name
	}
	pvc := &v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: short}}
	if node != "" {
		pvc.Annotations = map[string]string{"volume.kubernetes.io/selected-node": node}
	}
	return pvc
}

// NewVolume returns a volume of a CSI driver that is on one node and was made for a claim, which may be nil. Its handle is its name.
func NewVolume(name, driver, node string, claim *v1.PersistentVolumeClaim) *v1.PersistentVolume {
	pv := &v1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1.PersistentVolumeSpec{
			PersistentVolumeSource: v1.PersistentVolumeSource{CSI: &v1.CSIPersistentVolumeSource{Driver: driver, VolumeHandle: name}},
			NodeAffinity: &v1.VolumeNodeAffinity{Required: &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{{
				MatchExpressions: []v1.NodeSelectorRequirement{{Key: v1.LabelHostname, Operator: v1.NodeSelectorOpIn, Values: []string{node}}},
			}}}},
		},
	}
	if claim != nil {
		pv.Spec.ClaimRef = &v1.ObjectReference{Kind: "PersistentVolumeClaim", Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID}
	}
	return pv
}
