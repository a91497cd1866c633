package fake

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
)

// ClaimClient has the methods of client-go's PersistentVolumeClaimInterface that are about whole objects.
type ClaimClient struct {
	apiClient[v1.PersistentVolumeClaim, *v1.PersistentVolumeClaim]
}

// List returns copies of the claims, sorted by namespace and name.
func (c *ClaimClient) List(ctx context.Context, opts metav1.ListOptions) (*v1.PersistentVolumeClaimList, error) {
	items, meta, err := c.list(ctx, opts)
	return &v1.PersistentVolumeClaimList{ListMeta: meta, Items: items}, err
}

// VolumeClient has the methods of client-go's PersistentVolumeInterface that are about whole objects.
type VolumeClient struct {
	apiClient[v1.PersistentVolume, *v1.PersistentVolume]
}

// List returns copies of the volumes, sorted by name.
func (c *VolumeClient) List(ctx context.Context, opts metav1.ListOptions) (*v1.PersistentVolumeList, error) {
	items, meta, err := c.list(ctx, opts)
	return &v1.PersistentVolumeList{ListMeta: meta, Items: items}, err
}

// apiClient is what both clients have in common.
type apiClient[T any, P interface {
	*T
	apiObject
}] struct {
	session   *APISession
	resource  apiResource
	namespace string
}

func (c *apiClient[T, P]) key(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: c.namespace, Name: name}
}

// do makes one call: f runs with the server locked, and returns an object that is copied for the caller.
func (c *apiClient[T, P]) do(ctx context.Context, verb, name string, f func() (apiObject, error)) (*T, error) {
	var out apiObject
	err := c.session.call(ctx, APICall{Verb: verb, Resource: string(c.resource), Namespace: c.namespace, Name: name}, func() error {
		obj, err := f()
		if obj != nil {
			out = clone(obj)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return out.(P), nil
}

// Get returns a copy of the object.
func (c *apiClient[T, P]) Get(ctx context.Context, name string, _ metav1.GetOptions) (*T, error) {
	return c.do(ctx, "get", name, func() (apiObject, error) { return c.session.api.lockedGet(c.resource, c.key(name)) })
}

// Create stores a copy of the object, with a UID and a version.
func (c *apiClient[T, P]) Create(ctx context.Context, obj *T, _ metav1.CreateOptions) (*T, error) {
	return c.do(ctx, "create", P(obj).GetName(), func() (apiObject, error) {
		copied := clone(P(obj))
		if c.resource == apiClaims && copied.GetNamespace() == "" {
			copied.SetNamespace(c.namespace)
		}
		if copied.GetNamespace() != c.namespace {
			return nil, apierrors.NewBadRequest(fmt.Sprintf("the namespace of the object (%s) does not match the namespace on the request (%s)", copied.GetNamespace(), c.namespace))
		}
		return c.session.api.lockedCreate(c.resource, copied)
	})
}

// Update replaces the object. A resource version in it must be the present one.
func (c *apiClient[T, P]) Update(ctx context.Context, obj *T, _ metav1.UpdateOptions) (*T, error) {
	name := P(obj).GetName()
	return c.do(ctx, "update", name, func() (apiObject, error) {
		before, err := c.session.api.lockedGet(c.resource, c.key(name))
		if err != nil {
			return nil, err
		}
		copied := clone(P(obj))
		switch copied.GetUID() {
		case "":
			copied.SetUID(before.GetUID())
		case before.GetUID():
		default:
			return nil, apierrors.NewConflict(c.resource.group(), name, fmt.Errorf("the UID in the object (%s) does not match the UID in record (%s)", copied.GetUID(), before.GetUID()))
		}
		return c.session.api.lockedUpdate(c.resource, before, copied)
	})
}

// Patch changes the object.
func (c *apiClient[T, P]) Patch(ctx context.Context, name string, pt types.PatchType, data []byte, _ metav1.PatchOptions, subresources ...string) (*T, error) {
	return c.do(ctx, "patch", name, func() (apiObject, error) {
		if len(subresources) > 0 {
			return nil, apierrors.NewGenericServerResponse(404, "patch", c.resource.group(), name, "fake: no subresources", 0, false)
		}
		before, err := c.session.api.lockedGet(c.resource, c.key(name))
		if err != nil {
			return nil, err
		}
		after := P(new(T))
		if err := applyPatch(pt, before, data, after); err != nil {
			return nil, err
		}
		return c.session.api.lockedUpdate(c.resource, before, after)
	})
}

// Delete deletes the object, or marks it as being deleted while it has finalizers.
func (c *apiClient[T, P]) Delete(ctx context.Context, name string, opts metav1.DeleteOptions) error {
	call := APICall{Verb: "delete", Resource: string(c.resource), Namespace: c.namespace, Name: name}
	return c.session.call(ctx, call, func() error { return c.session.api.lockedDelete(c.resource, c.key(name), opts) })
}

// apiSelector is what a list or a watch is restricted to.
type apiSelector struct {
	namespace string
	labels    labels.Selector
	fields    fields.Selector
}

func (c *apiClient[T, P]) selector(opts metav1.ListOptions) (apiSelector, error) {
	s := apiSelector{namespace: c.namespace}
	var err1, err2 error
	s.labels, err1 = labels.Parse(opts.LabelSelector)
	s.fields, err2 = fields.ParseSelector(opts.FieldSelector)
	if err := errors.Join(err1, err2); err != nil {
		return s, apierrors.NewBadRequest(err.Error())
	}
	for _, r := range s.fields.Requirements() {
		if r.Field != "metadata.name" && r.Field != "metadata.namespace" {
			return s, apierrors.NewBadRequest("field label not supported: " + r.Field)
		}
	}
	return s, nil
}

func (s apiSelector) matches(obj apiObject) bool {
	return (s.namespace == "" || s.namespace == obj.GetNamespace()) && s.labels.Matches(labels.Set(obj.GetLabels())) &&
		s.fields.Matches(fields.Set{"metadata.name": obj.GetName(), "metadata.namespace": obj.GetNamespace()})
}

// apiPage is what is left of a list that is read in pages: all of it as it was when it began.
type apiPage struct {
	version uint64
	rest    []apiObject
}

func (c *apiClient[T, P]) list(ctx context.Context, opts metav1.ListOptions) (items []T, meta metav1.ListMeta, err error) {
	err = c.session.call(ctx, APICall{Verb: "list", Resource: string(c.resource), Namespace: c.namespace}, func() error {
		a := c.session.api
		selector, err := c.selector(opts)
		if err != nil {
			return err
		}
		page := apiPage{version: a.version}
		if opts.Continue == "" {
			page.rest = a.lockedList(c.resource, selector)
		} else {
			var ok bool
			if page, ok = a.pages[opts.Continue]; !ok {
				return apierrors.NewResourceExpired("The provided continue parameter is too old to display a consistent list result.")
			}
		}
		objs := page.rest
		if opts.Limit > 0 && int64(len(objs)) > opts.Limit {
			page.rest, objs = objs[opts.Limit:], objs[:opts.Limit]
			meta.Continue = fmt.Sprintf("%d.%d", page.version, len(a.pages))
			left := int64(len(page.rest))
			meta.RemainingItemCount = &left
			a.pages[meta.Continue] = page
		}
		meta.ResourceVersion = strconv.FormatUint(page.version, 10)
		items = make([]T, 0, len(objs))
		for _, obj := range objs {
			items = append(items, *clone(obj).(P))
		}
		return nil
	})
	return items, meta, err
}

// Watch tells of every change from a version on. Without a version it begins with all objects as they are. The caller must Stop it; it also ends with
// ctx.
func (c *apiClient[T, P]) Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	var w *apiWatch
	err := c.session.call(ctx, APICall{Verb: "watch", Resource: string(c.resource), Namespace: c.namespace}, func() error {
		a := c.session.api
		selector, err := c.selector(opts)
		if err != nil {
			return err
		}
		var past []apiEvent
		switch from, err := strconv.ParseUint(opts.ResourceVersion, 10, 64); {
		case opts.ResourceVersion == "" || from == 0 && err == nil:
			for _, obj := range a.lockedList(c.resource, selector) {
				past = append(past, apiEvent{resource: c.resource, kind: watch.Added, object: obj})
			}
		case err != nil:
			return apierrors.NewBadRequest("resourceVersion: " + err.Error())
		case from < a.compacted:
			return apierrors.NewResourceExpired(fmt.Sprintf("too old resource version: %d (%d)", from, a.compacted))
		default:
			for _, e := range a.events {
				if e.version > from {
					past = append(past, e)
				}
			}
		}
		w = newAPIWatch(ctx, a, c.resource, selector)
		for _, e := range past {
			w.send(e)
		}
		a.watches[w] = struct{}{}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return w, nil
}
