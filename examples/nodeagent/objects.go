package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kjson "k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/stateofworld/stateofworld/examples/internal/manifest"
	"github.com/stateofworld/stateofworld/fake"
	"github.com/stateofworld/stateofworld/lvm"
	"github.com/stateofworld/stateofworld/lvm/lifecycle"
)

// object is what a file holds: one of the two is there.
type object struct {
	claim  *v1.PersistentVolumeClaim
	volume *v1.PersistentVolume
}

// meta is what both have.
func (o object) meta() *metav1.ObjectMeta {
	if o.claim != nil {
		return &o.claim.ObjectMeta
	}
	return &o.volume.ObjectMeta
}

// kinds is the type of an object, or of a list.
type kinds struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
}

const (
	claimKind  = "PersistentVolumeClaim"
	volumeKind = "PersistentVolume"
)

// value reads an object, or the objects of a list; kind is what it is where it does not say so itself.
func (l *loader) value(raw json.RawMessage, kind kinds) error {
	var head struct {
		kinds
		Items []json.RawMessage `json:"items"`
	}
	if !bytes.HasPrefix(bytes.TrimSpace(raw), []byte("{")) {
		return l.failed("", errors.New("there must be claims and volumes, or a List of them, and not something else"))
	}
	if err := json.Unmarshal(raw, &head); err != nil {
		return l.failed("", fieldError(err))
	}
	if head.Kind == "" {
		head.kinds = kind
	}
	switch {
	case head.Kind == "":
		return l.failed("", errors.New("kind: is missing"))
	case head.APIVersion != "v1":
		return l.failed("", fmt.Errorf("apiVersion: %q, kind %q: must be v1", head.APIVersion, head.Kind))
	case head.Kind == claimKind, head.Kind == volumeKind:
		return l.object(raw, head.kinds)
	case head.Kind == "List", head.Kind == claimKind+"List", head.Kind == volumeKind+"List":
		for _, item := range head.Items {
			if err := l.value(item, kinds{head.APIVersion, strings.TrimSuffix(head.Kind, "List")}); err != nil {
				return err
			}
		}
		return nil
	}
	return l.failed("", fmt.Errorf("kind: %q is neither %s nor %s nor a list of them", head.Kind, claimKind, volumeKind))
}

// newDecoder returns a strict decoder: it refuses fields that are not known, and fields that are given twice.
func newDecoder() (runtime.Decoder, error) {
	scheme := runtime.NewScheme()
	if err := v1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	return kjson.NewSerializerWithOptions(kjson.DefaultMetaFactory, scheme, scheme, kjson.SerializerOptions{Strict: true}), nil
}

// object reads one claim or volume.
func (l *loader) object(raw []byte, kind kinds) error {
	decoded, _, err := l.decoder.Decode(raw, &schema.GroupVersionKind{Version: kind.APIVersion, Kind: kind.Kind}, nil)
	if err != nil {
		var named struct {
			Metadata struct{ Namespace, Name string } `json:"metadata"`
		}
		_ = json.Unmarshal(raw, &named) // it is only to be named
		what := fmt.Sprintf("%s %q", kind.Kind, strings.TrimPrefix(named.Metadata.Namespace+"/"+named.Metadata.Name, "/"))
		return l.failed(what, fieldError(err))
	}
	var o object
	switch decoded := decoded.(type) {
	case *v1.PersistentVolumeClaim:
		if o.claim = decoded; decoded.Namespace == "" {
			decoded.Namespace = metav1.NamespaceDefault
		}
	case *v1.PersistentVolume:
		o.volume = decoded
	}
	if earlier, ok := l.seen[o.describe()]; ok {
		return l.failed(o.describe(), fmt.Errorf("is given twice: before, in %s", earlier))
	}
	err = o.check()
	if err == nil {
		err = o.try(l.scratch)
	}
	if err != nil {
		return l.failed(o.describe(), err)
	}
	l.seen[o.describe()] = fmt.Sprintf("%s, document %d", manifest.FileName(l.name), l.document)
	l.objects = append(l.objects, o)
	return nil
}

// fieldError says which field is wrong, and how, in fewer words than the decoders.
func fieldError(err error) error {
	var wrong *json.UnmarshalTypeError
	if !errors.As(err, &wrong) {
		return errors.New(strings.TrimPrefix(err.Error(), "strict decoding error: "))
	}
	want := map[reflect.Kind]string{
		reflect.String: "a string", reflect.Slice: "a list", reflect.Struct: "an object", reflect.Map: "an object", reflect.Bool: "true or false", reflect.Pointer: "an object",
	}[wrong.Type.Kind()]
	return fmt.Errorf("%s: must be %s, not %s", strings.TrimPrefix(wrong.Field, "."), cmp.Or(want, "a number"), wrong.Value)
}

// describe names the object for messages.
func (o object) describe() string {
	if o.claim != nil {
		return fmt.Sprintf("%s %q", claimKind, o.claim.Namespace+"/"+o.claim.Name)
	}
	return fmt.Sprintf("%s %q", volumeKind, o.volume.Name)
}

// check refuses what an API server would not have, and states that nobody would react to.
func (o object) check() error {
	meta := o.meta()
	switch reasons := validation.IsDNS1123Subdomain(meta.Name); {
	case meta.Name == "":
		return errors.New("metadata.name: is missing")
	case len(reasons) > 0:
		return fmt.Errorf("metadata.name: %q: %s", meta.Name, reasons[0])
	}
	states := []lifecycle.State{lifecycle.Creating, lifecycle.Created}
	if o.claim != nil {
		if reasons := validation.IsDNS1123Label(meta.Namespace); len(reasons) > 0 {
			return fmt.Errorf("metadata.namespace: %q: %s", meta.Namespace, reasons[0])
		}
	} else {
		states = []lifecycle.State{lifecycle.Deleting, lifecycle.Deleted}
		if meta.Namespace != "" {
			return errors.New("metadata.namespace: a PersistentVolume has none")
		}
	}
	if meta.DeletionTimestamp != nil && len(meta.Finalizers) == 0 {
		return errors.New("metadata.deletionTimestamp: what is being deleted and is still there has metadata.finalizers")
	}
	if err := validUID(meta.UID); err != nil {
		return fmt.Errorf("metadata.uid: %w", err)
	}
	if o.volume != nil && o.volume.Spec.ClaimRef != nil {
		if err := validUID(o.volume.Spec.ClaimRef.UID); err != nil {
			return fmt.Errorf("spec.claimRef.uid: %w", err)
		}
	}
	state, ok := meta.Annotations[keys.Lifecycle()]
	if ok && !slices.Contains(states, lifecycle.State(state)) {
		return fmt.Errorf("metadata.annotations[%s]: %q is neither %q nor %q", keys.Lifecycle(), state, states[0], states[1])
	}
	return nil
}

// validUID refuses what could not be written on a logical volume.
func validUID(uid types.UID) error {
	if uid == "" {
		return nil
	}
	return lvm.ValidateTag(ownerTag + string(uid))
}

// try stores the object on an API server that nobody looks at, so that what the server has against it is known before anything is done.
func (o object) try(api *fake.API) error {
	var err error
	ctx := context.Background()
	if o.claim != nil {
		_, err = api.Claims(o.claim.Namespace).Create(ctx, forServer(o.claim), metav1.CreateOptions{})
	} else {
		_, err = api.Volumes().Create(ctx, forServer(o.volume), metav1.CreateOptions{})
	}
	return err
}
