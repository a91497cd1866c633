package lifecycle

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// All writes are JSON patches that begin with tests of what they were decided on: the UID, and the values of the protocol's own keys. So
// they touch nothing but the own keys, they fail when anything that matters has changed meanwhile, and they do not when anything else has, as
// a resourceVersion would make them. The API server answers a failed test with 422 Invalid.

// patch is a JSON patch (RFC 6902).
type patch []operation

type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value,omitempty"`
}

func (p patch) encode() []byte {
	data, _ := json.Marshal(p) // of strings and lists and maps of strings, it cannot fail
	return data
}

func (p *patch) test(path string, value any) { *p = append(*p, operation{"test", path, value}) }
func (p *patch) add(path string, value any)  { *p = append(*p, operation{"add", path, value}) }
func (p *patch) remove(path string)          { *p = append(*p, operation{Op: "remove", Path: path}) }
func (p *patch) testUID(uid string)          { p.test("/metadata/uid", uid) }
func (p *patch) testVersion(version string)  { p.test("/metadata/resourceVersion", version) }

const finalizersPath = "/metadata/finalizers"

// annotationPath is the JSON pointer (RFC 6901) to an annotation.
func annotationPath(key string) string { return "/metadata/annotations/" + pointer(key) }

func pointer(key string) string {
	return strings.ReplaceAll(strings.ReplaceAll(key, "~", "~0"), "/", "~1")
}

// testRequest guards a patch by the request that it answers.
func (p *patch) testRequest(a Annotations, uid string, state State, spec string) {
	p.testUID(uid)
	p.test(annotationPath(a.Lifecycle()), state)
	p.test(annotationPath(a.Spec()), spec)
}

// answer writes the new state and takes the failure away.
func (p *patch) answer(a Annotations, state State, failure string) {
	p.add(annotationPath(a.Lifecycle()), state)
	if failure != "" {
		p.remove(annotationPath(a.Error()))
	}
}

// createdPatch says that the logical volume of a claim was seen to be there.
func (r *rules) createdPatch(c claim) patch {
	var p patch
	p.testRequest(r.annotations, string(c.UID), Creating, c.Spec)
	p.test(annotationPath(r.annotations.SelectedNode), c.Node)
	p.answer(r.annotations, Created, c.Failure)
	return p
}

// deletedPatch says that the logical volume of a volume was seen not to be there, and lets the volume go.
func (r *rules) deletedPatch(v volume, obj *v1.PersistentVolume) patch {
	var p patch
	p.testRequest(r.annotations, string(v.UID), Deleting, v.Spec)
	p.answer(r.annotations, Deleted, v.Failure)
	p.release(obj, r.finalizer)
	return p
}

// failurePatch says why an attempt failed.
func (r *rules) failurePatch(uid string, state State, spec string, f Failure) patch {
	var p patch
	p.testRequest(r.annotations, uid, state, spec)
	p.add(annotationPath(r.annotations.Error()), f.Encode())
	return p
}

// markPatch says that this node is at work on a volume that may be used on other nodes, too.
func (r *rules) markPatch(v volume) patch {
	var p patch
	p.testRequest(r.annotations, string(v.UID), Deleting, v.Spec)
	p.testVersion(v.Version) // so that of two nodes only one succeeds
	p.add(annotationPath(r.annotations.SelectedNode), r.node.name)
	return p
}

// protectPatch puts the finalizer on a volume.
func (r *rules) protectPatch(v volume, obj *v1.PersistentVolume) patch {
	var p patch
	p.testUID(string(v.UID))
	p.testVersion(v.Version) // the list is replaced or appended to as it was read
	if len(obj.Finalizers) == 0 {
		p.add(finalizersPath, []string{r.finalizer})
	} else {
		p.add(finalizersPath+"/-", r.finalizer)
	}
	return p
}

// releasePatch takes the finalizer off a volume.
func (r *rules) releasePatch(v volume, obj *v1.PersistentVolume) patch {
	var p patch
	p.testUID(string(v.UID))
	p.release(obj, r.finalizer)
	return p
}

func (p *patch) release(obj *v1.PersistentVolume, finalizer string) {
	i := slices.Index(obj.Finalizers, finalizer)
	if finalizer == "" || i < 0 {
		return
	}
	path := finalizersPath + "/" + strconv.Itoa(i)
	p.test(path, finalizer)
	p.remove(path)
}

// errConflict: the object is not any more what the patch was made for. Nothing was written.
var errConflict = errors.New("the object was changed meanwhile")

// apiError is a failed call of the API server. It is never written into an annotation.
type apiError struct {
	what string
	err  error
}

func (e *apiError) Error() string { return fmt.Sprintf("%s: %v", e.what, e.err) }
func (e *apiError) Unwrap() error { return e.err }

// patchError sorts the error of a patch: errConflict, NotFound, or an *apiError of which nobody knows whether the patch was applied.
func patchError(what string, err error) error {
	switch {
	case err == nil:
		return nil
	case apierrors.IsConflict(err), apierrors.IsInvalid(err):
		return &apiError{what, fmt.Errorf("%w: %w", errConflict, err)}
	}
	return &apiError{what, err}
}

func isConflict(err error) bool { return errors.Is(err, errConflict) }
