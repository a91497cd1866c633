package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/stateofworld/stateofworld/fake"
	"github.com/stateofworld/stateofworld/lvm/lifecycle"
)

// An API server gives every object that is created a UID of its own choice. Logical volumes outlive the one in memory, and carry the UID of their claim, so the
// objects of a file keep theirs, or get one that follows from their name. It is kept in an annotation on the server, and put into its place on the way
// to the agent.

const (
	uidKey       = "nodeagent/uid"
	uidPath      = `"path":"/metadata/uid"`
	keptUIDsPath = `"path":"/metadata/annotations/nodeagent~1uid"`
)

// uidOf is the UID of an object that has none.
func uidOf(kind, namespace, name string) types.UID {
	sum := sha256.Sum256([]byte(kind + "/" + namespace + "/" + name))
	return types.UID(fmt.Sprintf("%x-%x-%x-%x-%x", sum[:4], sum[4:6], sum[6:8], sum[8:10], sum[10:16]))
}

// forServer returns a copy of an object such as the server takes it.
func forServer[T any, P interface {
	*T
	DeepCopy() P
	metav1.Object
}](obj P) P {
	copied := obj.DeepCopy()
	annotations := copied.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[uidKey] = string(obj.GetUID())
	copied.SetAnnotations(annotations)
	copied.SetUID("")
	copied.SetResourceVersion("")
	return copied
}

// outward makes an object of the server what the agent sees.
func outward[T any, P interface {
	*T
	metav1.Object
}](obj P, err error) (P, error) {
	if err != nil {
		return nil, err
	}
	annotations := obj.GetAnnotations()
	obj.SetUID(types.UID(annotations[uidKey]))
	delete(annotations, uidKey)
	return obj, nil
}

// inward makes a patch of the agent one for the server. Within a JSON string the quotes would be escaped, so nothing but a path can be meant.
func inward(patch []byte) []byte {
	return bytes.ReplaceAll(patch, []byte(uidPath), []byte(keptUIDsPath))
}

type claimClient struct{ inner *fake.ClaimClient }

func (c claimClient) Get(ctx context.Context, name string, o metav1.GetOptions) (*v1.PersistentVolumeClaim, error) {
	return outward(c.inner.Get(ctx, name, o))
}

func (c claimClient) Patch(ctx context.Context, name string, pt types.PatchType, data []byte, o metav1.PatchOptions, sub ...string) (*v1.PersistentVolumeClaim, error) {
	return outward(c.inner.Patch(ctx, name, pt, inward(data), o, sub...))
}

type volumeClient struct{ inner *fake.VolumeClient }

func (c volumeClient) Get(ctx context.Context, name string, o metav1.GetOptions) (*v1.PersistentVolume, error) {
	return outward(c.inner.Get(ctx, name, o))
}

func (c volumeClient) Patch(ctx context.Context, name string, pt types.PatchType, data []byte, o metav1.PatchOptions, sub ...string) (*v1.PersistentVolume, error) {
	return outward(c.inner.Patch(ctx, name, pt, inward(data), o, sub...))
}

// outwardHandler hands events on.
type outwardHandler struct{ inner lifecycle.EventHandler }

func (h outwardHandler) OnAdd(obj any, initial bool) { h.inner.OnAdd(outwardCopy(obj), initial) }
func (h outwardHandler) OnUpdate(_, obj any)         { h.inner.OnUpdate(nil, outwardCopy(obj)) }
func (h outwardHandler) OnDelete(obj any)            { h.inner.OnDelete(outwardCopy(obj)) }

func outwardCopy(obj any) any {
	switch obj := obj.(type) {
	case *v1.PersistentVolumeClaim:
		out, _ := outward(obj.DeepCopy(), nil)
		return out
	case *v1.PersistentVolume:
		out, _ := outward(obj.DeepCopy(), nil)
		return out
	}
	return obj
}
