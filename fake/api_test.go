package fake_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/stateofworld/stateofworld/fake"
	"github.com/stateofworld/stateofworld/lvm/lifecycle"
)

// What client-go's clients can be used for here, these can.
var (
	_ lifecycle.ClaimClient  = (*fake.ClaimClient)(nil)
	_ lifecycle.VolumeClient = (*fake.VolumeClient)(nil)
	_ lifecycle.VolumeLister = (*fake.VolumeClient)(nil)
	_ lifecycle.Watcher      = (*fake.ClaimClient)(nil)
	_ fake.EventHandler      = lifecycle.EventHandler{}
)

func apiCreate(t *testing.T, a *fake.API, name string, change ...func(*v1.PersistentVolumeClaim)) *v1.PersistentVolumeClaim {
	t.Helper()
	c := fake.NewClaim(name, "node-a")
	for _, f := range change {
		f(c)
	}
	made, err := a.Claims(c.Namespace).Create(t.Context(), c, metav1.CreateOptions{})
	require.NoError(t, err)
	return made
}

func TestAPIGivesObjectsUIDsAndVersions(t *testing.T) {
	a := fake.NewAPI()
	mine := fake.NewClaim("data", "node-a")
	made, err := a.Claims("default").Create(t.Context(), mine, metav1.CreateOptions{})
	require.NoError(t, err)
	require.Empty(t, mine.UID, "the caller's object is left as it is")
	require.Equal(t, "1", made.ResourceVersion)
	require.NotZero(t, made.CreationTimestamp)
	made.Annotations["x"] = "y"
	again, err := a.Claims("default").Get(t.Context(), "data", metav1.GetOptions{})
	require.NoError(t, err)
	require.NotContains(t, again.Annotations, "x", "a copy was handed out")

	_, err = a.Claims("default").Create(t.Context(), mine, metav1.CreateOptions{})
	require.True(t, apierrors.IsAlreadyExists(err))
	_, err = a.Claims("other").Create(t.Context(), mine, metav1.CreateOptions{})
	require.True(t, apierrors.IsBadRequest(err))
	_, err = a.Claims("default").Create(t.Context(), made, metav1.CreateOptions{})
	require.True(t, apierrors.IsBadRequest(err), "with a version")
	_, err = a.Claims("other").Get(t.Context(), "data", metav1.GetOptions{})
	require.True(t, apierrors.IsNotFound(err))

	require.NoError(t, a.Claims("default").Delete(t.Context(), "data", metav1.DeleteOptions{}))
	require.NotEqual(t, made.UID, apiCreate(t, a, "data").UID, "a new life")
}

func TestAPIRefusesOldVersionsAndOtherUIDs(t *testing.T) {
	a := fake.NewAPI()
	old := apiCreate(t, a, "data")
	changed := old.DeepCopy()
	changed.Labels = map[string]string{"a": "b"}
	now, err := a.Claims("default").Update(t.Context(), changed, metav1.UpdateOptions{})
	require.NoError(t, err)
	require.Equal(t, "2", now.ResourceVersion)
	_, err = a.Claims("default").Update(t.Context(), old, metav1.UpdateOptions{})
	require.True(t, apierrors.IsConflict(err))

	same, err := a.Claims("default").Update(t.Context(), now, metav1.UpdateOptions{})
	require.NoError(t, err)
	require.Equal(t, "2", same.ResourceVersion, "what changes nothing is no change")

	other := now.DeepCopy()
	other.UID = "other"
	_, err = a.Claims("default").Update(t.Context(), other, metav1.UpdateOptions{})
	require.True(t, apierrors.IsConflict(err))
	old.ResourceVersion, old.UID = "", ""
	_, err = a.Claims("default").Update(t.Context(), old, metav1.UpdateOptions{})
	require.NoError(t, err, "without a version it is unconditional")

	uid, version := types.UID("other"), "1"
	for _, p := range []*metav1.Preconditions{{UID: &uid}, {ResourceVersion: &version}} {
		require.True(t, apierrors.IsConflict(a.Claims("default").Delete(t.Context(), "data", metav1.DeleteOptions{Preconditions: p})))
	}
	require.NoError(t, a.Claims("default").Delete(t.Context(), "data", metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &now.UID}}))
	require.True(t, apierrors.IsNotFound(a.Claims("default").Delete(t.Context(), "data", metav1.DeleteOptions{})))
	_, err = a.Claims("default").Update(t.Context(), now, metav1.UpdateOptions{})
	require.True(t, apierrors.IsNotFound(err))
}

func TestAPIKeepsObjectsWithFinalizersUntilTheLastIsGone(t *testing.T) {
	a := fake.NewAPI()
	apiCreate(t, a, "data", func(c *v1.PersistentVolumeClaim) { c.Finalizers = []string{"a/b", "c/d"} })
	require.NoError(t, a.Claims("default").Delete(t.Context(), "data", metav1.DeleteOptions{}))
	require.NoError(t, a.Claims("default").Delete(t.Context(), "data", metav1.DeleteOptions{}), "twice")
	c, err := a.Claims("default").Get(t.Context(), "data", metav1.GetOptions{})
	require.NoError(t, err)
	require.NotNil(t, c.DeletionTimestamp)

	c.Finalizers = []string{"a/b", "e/f"}
	_, err = a.Claims("default").Update(t.Context(), c, metav1.UpdateOptions{})
	require.True(t, apierrors.IsInvalid(err), "too late for new ones")
	c.Finalizers, c.DeletionTimestamp = []string{"a/b"}, nil
	c, err = a.Claims("default").Update(t.Context(), c, metav1.UpdateOptions{})
	require.NoError(t, err)
	require.NotNil(t, c.DeletionTimestamp, "cannot be taken back")
	_, err = a.Claims("default").Patch(t.Context(), "data", types.JSONPatchType, []byte(`[{"op":"remove","path":"/metadata/finalizers/0"}]`), metav1.PatchOptions{})
	require.NoError(t, err)
	_, err = a.Claims("default").Get(t.Context(), "data", metav1.GetOptions{})
	require.True(t, apierrors.IsNotFound(err))
}

func TestAPIRefusesMetadataThatTheRealOneWould(t *testing.T) {
	a := fake.NewAPI()
	for name, spoil := range map[string]func(*v1.PersistentVolumeClaim){
		"name":       func(c *v1.PersistentVolumeClaim) { c.Name = "A B" },
		"label key":  func(c *v1.PersistentVolumeClaim) { c.Labels = map[string]string{"a b": "x"} },
		"label":      func(c *v1.PersistentVolumeClaim) { c.Labels = map[string]string{"a": strings.Repeat("x", 64)} },
		"annotation": func(c *v1.PersistentVolumeClaim) { c.Annotations["a b"] = "x" },
		"size":       func(c *v1.PersistentVolumeClaim) { c.Annotations["a"] = strings.Repeat("x", 257<<10) },
		"finalizer":  func(c *v1.PersistentVolumeClaim) { c.Finalizers = []string{"a b"} },
	} {
		c := fake.NewClaim("data", "node-a")
		spoil(c)
		_, err := a.Claims("default").Create(t.Context(), c, metav1.CreateOptions{})
		require.True(t, apierrors.IsInvalid(err), "%s: %v", name, err)
	}
}

func TestAPIPatches(t *testing.T) {
	const json, merge, strategic = types.JSONPatchType, types.MergePatchType, types.StrategicMergePatchType
	invalid, bad := apierrors.IsInvalid, apierrors.IsBadRequest
	for _, c := range []struct {
		pt     types.PatchType
		patch  string
		labels map[string]string
		refuse func(error) bool
	}{
		{pt: json, patch: `[{"op":"add","path":"/metadata/labels/c","value":"d"}]`, labels: map[string]string{"a": "b", "c": "d", "x/y-z": "1"}},
		{pt: json, patch: `[{"op":"add","path":"/metadata/labels/a","value":"d"}]`, labels: map[string]string{"a": "d", "x/y-z": "1"}},
		{pt: json, patch: `[{"op":"add","path":"/metadata/labels","value":{"e":"f"}}]`, labels: map[string]string{"e": "f"}},
		{pt: json, patch: `[{"op":"replace","path":"/metadata/labels/a","value":"d"}]`, labels: map[string]string{"a": "d", "x/y-z": "1"}},
		{pt: json, patch: `[{"op":"remove","path":"/metadata/labels/x~1y-z"}]`, labels: map[string]string{"a": "b"}},
		{pt: json, patch: `[{"op":"move","from":"/metadata/labels/a","path":"/metadata/labels/c"}]`, labels: map[string]string{"c": "b", "x/y-z": "1"}},
		{pt: json, patch: `[{"op":"copy","from":"/metadata/labels/a","path":"/metadata/labels/c"}]`, labels: map[string]string{"a": "b", "c": "b", "x/y-z": "1"}},
		{pt: json, patch: `[{"op":"test","path":"/metadata/labels/a","value":"b"},{"op":"remove","path":"/metadata/labels/a"}]`, labels: map[string]string{"x/y-z": "1"}},
		{pt: json, patch: `[{"op":"test","path":"/metadata/labels/none","value":null}]`, labels: map[string]string{"a": "b", "x/y-z": "1"}},
		{pt: json, patch: `[{"op":"test","path":"/metadata/labels/a","value":"c"}]`, refuse: invalid},
		{pt: json, patch: `[{"op":"test","path":"/metadata/labels/none","value":"c"}]`, refuse: invalid},
		{pt: json, patch: `[{"op":"test","path":"/metadata/resourceVersion","value":"0"}]`, refuse: invalid},
		{pt: json, patch: `[{"op":"remove","path":"/metadata/labels/none"}]`, refuse: invalid},
		{pt: json, patch: `[{"op":"replace","path":"/metadata/labels/none","value":"x"}]`, refuse: invalid},
		{pt: json, patch: `[{"op":"add","path":"/metadata/annotations/none/x","value":"x"}]`, refuse: invalid},
		{pt: json, patch: `[{"op":"add","path":"/metadata/labels/c"}]`, refuse: invalid},
		{pt: json, patch: `[{"op":"add","value":"x"}]`, refuse: invalid},
		{pt: json, patch: `[{"op":"burn","path":"/metadata"}]`, refuse: invalid},
		{pt: json, patch: `[{"op":"remove","path":""}]`, refuse: invalid},
		{pt: json, patch: `[{"op":"remove","path":"metadata"}]`, refuse: invalid},
		{pt: json, patch: `[{"op":"add","path":"/metadata/nosuch","value":"x"}]`, refuse: invalid},
		{pt: json, patch: `[{"op":"replace","path":"/metadata/uid","value":"x"}]`, refuse: invalid},
		{pt: json, patch: `[{"op":"replace","path":"/metadata/name","value":"x"}]`, refuse: invalid},
		{pt: json, patch: `[{"op":"replace","path":"/metadata/resourceVersion","value":"0"}]`, refuse: apierrors.IsConflict},
		{pt: json, patch: `[{"op":"add","path":"/metadata/finalizers/0","value":"x/y"}]`, labels: map[string]string{"a": "b", "x/y-z": "1"}},
		{pt: json, patch: `[{"op":"add","path":"/metadata/finalizers/-","value":"x/y"}]`, labels: map[string]string{"a": "b", "x/y-z": "1"}},
		{pt: json, patch: `[{"op":"add","path":"/metadata/finalizers/2","value":"x/y"}]`, refuse: invalid},
		{pt: json, patch: `[{"op":"remove","path":"/metadata/finalizers/01"}]`, refuse: invalid},
		{pt: json, patch: `{}`, refuse: bad},
		{pt: merge, patch: `{"metadata":{"labels":{"a":null,"c":"d"}}}`, labels: map[string]string{"c": "d", "x/y-z": "1"}},
		{pt: merge, patch: `{"metadata":{"resourceVersion":"0","labels":{"c":"d"}}}`, refuse: apierrors.IsConflict},
		{pt: merge, patch: `{"metadata":{"uid":"x"}}`, refuse: invalid},
		{pt: merge, patch: `nonsense`, refuse: bad},
		{pt: strategic, patch: `{"metadata":{"labels":{"a":null,"c":"d"}}}`, labels: map[string]string{"c": "d", "x/y-z": "1"}},
		{pt: strategic, patch: `nonsense`, refuse: bad},
		{pt: types.ApplyYAMLPatchType, patch: `{}`, refuse: apierrors.IsUnsupportedMediaType},
	} {
		t.Run(string(c.pt)+" "+c.patch, func(t *testing.T) {
			a := fake.NewAPI()
			before := apiCreate(t, a, "data", func(pvc *v1.PersistentVolumeClaim) {
				pvc.Finalizers = []string{"f/f"}
				pvc.Labels = map[string]string{"a": "b", "x/y-z": "1"}
			})
			after, err := a.Claims("default").Patch(t.Context(), "data", c.pt, []byte(c.patch), metav1.PatchOptions{})
			if c.refuse != nil {
				require.True(t, c.refuse(err), "%v", err)
				after, err = a.Claims("default").Get(t.Context(), "data", metav1.GetOptions{})
				require.NoError(t, err)
				require.Equal(t, before, after)
				return
			}
			require.NoError(t, err)
			require.Equal(t, c.labels, after.Labels)
			require.Equal(t, before.UID, after.UID)
		})
	}
	a := fake.NewAPI()
	_, err := a.Claims("default").Patch(t.Context(), "none", json, []byte(`[]`), metav1.PatchOptions{})
	require.True(t, apierrors.IsNotFound(err))
	apiCreate(t, a, "data")
	_, err = a.Claims("default").Patch(t.Context(), "data", json, []byte(`[]`), metav1.PatchOptions{}, "status")
	require.True(t, apierrors.IsNotFound(err), "there are no subresources")
}

func apiNames(list *v1.PersistentVolumeClaimList) (out []string) {
	for _, c := range list.Items {
		out = append(out, c.Namespace+"/"+c.Name)
	}
	return out
}

func TestAPIListsBySelectorAndInPages(t *testing.T) {
	a := fake.NewAPI()
	for i := range 5 {
		apiCreate(t, a, fmt.Sprintf("ns/%d", i), func(c *v1.PersistentVolumeClaim) { c.Labels = map[string]string{"odd": fmt.Sprint(i % 2)} })
	}
	apiCreate(t, a, "other/x")
	list := func(ns string, o metav1.ListOptions) *v1.PersistentVolumeClaimList {
		t.Helper()
		l, err := a.Claims(ns).List(t.Context(), o)
		require.NoError(t, err)
		return l
	}
	require.Equal(t, []string{"ns/0", "ns/1", "ns/2", "ns/3", "ns/4", "other/x"}, apiNames(list("", metav1.ListOptions{})))
	require.Equal(t, []string{"ns/1", "ns/3"}, apiNames(list("ns", metav1.ListOptions{LabelSelector: "odd=1"})))
	require.Equal(t, []string{"ns/2"}, apiNames(list("ns", metav1.ListOptions{FieldSelector: "metadata.name=2"})))
	for _, bad := range []metav1.ListOptions{{LabelSelector: "a b"}, {FieldSelector: "spec.x=1"}, {FieldSelector: "x"}} {
		_, err := a.Claims("ns").List(t.Context(), bad)
		require.True(t, apierrors.IsBadRequest(err))
	}

	first := list("ns", metav1.ListOptions{Limit: 2})
	require.Equal(t, []string{"ns/0", "ns/1"}, apiNames(first))
	require.EqualValues(t, 3, *first.RemainingItemCount)
	require.NoError(t, a.Claims("ns").Delete(t.Context(), "3", metav1.DeleteOptions{}))
	second := list("ns", metav1.ListOptions{Limit: 2, Continue: first.Continue})
	require.Equal(t, []string{"ns/2", "ns/3"}, apiNames(second), "as it was when the list began")
	require.Equal(t, first.ResourceVersion, second.ResourceVersion)
	a.Compact()
	_, err := a.Claims("ns").List(t.Context(), metav1.ListOptions{Limit: 2, Continue: second.Continue})
	require.True(t, apierrors.IsResourceExpired(err))
}

// apiNext is the next event of a watch, as "ADDED ns/name 7".
func apiNext(t *testing.T, w watch.Interface) string {
	t.Helper()
	e, ok := <-w.ResultChan()
	if !ok {
		return "closed"
	}
	c := e.Object.(*v1.PersistentVolumeClaim)
	return fmt.Sprintf("%s %s/%s %s", e.Type, c.Namespace, c.Name, c.ResourceVersion)
}

func TestAPIWatchesTellOfEveryChange(t *testing.T) {
	a := fake.NewAPI()
	claims := a.Claims("default")
	first := apiCreate(t, a, "a")
	w, err := a.Claims("").Watch(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	require.Equal(t, "ADDED default/a 1", apiNext(t, w), "what is there")
	apiCreate(t, a, "b")
	first.Labels = map[string]string{"x": "y"}
	_, err = claims.Update(t.Context(), first, metav1.UpdateOptions{})
	require.NoError(t, err)
	_, err = a.Volumes().Create(t.Context(), fake.NewVolume("pv", "d", "n", nil), metav1.CreateOptions{})
	require.NoError(t, err)
	require.NoError(t, claims.Delete(t.Context(), "a", metav1.DeleteOptions{}))
	for _, want := range []string{"ADDED default/b 2", "MODIFIED default/a 3", "DELETED default/a 5"} {
		require.Equal(t, want, apiNext(t, w))
	}
	w.Stop()
	w.Stop()
	require.Equal(t, "closed", apiNext(t, w))

	w, err = claims.Watch(t.Context(), metav1.ListOptions{ResourceVersion: "2", FieldSelector: "metadata.name=a"})
	require.NoError(t, err)
	require.Equal(t, "MODIFIED default/a 3", apiNext(t, w), "from a version on")
	require.Equal(t, "DELETED default/a 5", apiNext(t, w))
	require.Equal(t, 1, a.Watches())
	a.BreakWatches()
	require.Equal(t, "closed", apiNext(t, w))
	require.Zero(t, a.Watches())

	a.Compact()
	_, err = claims.Watch(t.Context(), metav1.ListOptions{ResourceVersion: "2"})
	require.True(t, apierrors.IsResourceExpired(err))
	_, err = claims.Watch(t.Context(), metav1.ListOptions{ResourceVersion: "x"})
	require.True(t, apierrors.IsBadRequest(err))
	_, err = claims.Watch(t.Context(), metav1.ListOptions{LabelSelector: "a b"})
	require.True(t, apierrors.IsBadRequest(err))

	ctx, cancel := context.WithCancel(t.Context())
	w, err = claims.Watch(ctx, metav1.ListOptions{ResourceVersion: "5"})
	require.NoError(t, err)
	cancel()
	require.Equal(t, "closed", apiNext(t, w), "with its context")
}

// An object that stops matching the selector is gone for who watches by it, and one that begins to match is new.
func TestAPIWatchesSeeTheSelectedObjectsOnly(t *testing.T) {
	a := fake.NewAPI()
	w, err := a.Claims("default").Watch(t.Context(), metav1.ListOptions{LabelSelector: "node=a"})
	require.NoError(t, err)
	defer w.Stop()
	var seen []string
	f := a.Feed(apiRecorder{&seen}, nil, labels.SelectorFromSet(labels.Set{"node": "a"}))
	defer f.Stop()
	set := func(c *v1.PersistentVolumeClaim, node, other string) *v1.PersistentVolumeClaim {
		c.Labels = map[string]string{"node": node, "other": other}
		c, err := a.Claims("default").Update(t.Context(), c, metav1.UpdateOptions{})
		require.NoError(t, err)
		return c
	}
	c := apiCreate(t, a, "c")
	c = set(set(set(set(set(c, "b", ""), "a", ""), "a", "x"), "b", ""), "a", "")
	require.NoError(t, a.Claims("default").Delete(t.Context(), "c", metav1.DeleteOptions{}))
	for _, want := range []string{"ADDED default/c 3", "MODIFIED default/c 4", "DELETED default/c 5", "ADDED default/c 6", "DELETED default/c 7"} {
		require.Equal(t, want, apiNext(t, w))
	}
	require.Equal(t, []string{"add c 3", "update c 3 4", "delete c 5", "add c 6", "delete c 7"}, seen, c.Name)
}

// apiRecorder writes down what a handler is told.
type apiRecorder struct{ seen *[]string }

func (r apiRecorder) OnAdd(obj any, _ bool) {
	*r.seen = append(*r.seen, fmt.Sprintf("add %s %s", obj.(metav1.Object).GetName(), obj.(metav1.Object).GetResourceVersion()))
}

func (r apiRecorder) OnUpdate(oldObj, obj any) {
	*r.seen = append(*r.seen, fmt.Sprintf("update %s %s %s", obj.(metav1.Object).GetName(), oldObj.(metav1.Object).GetResourceVersion(), obj.(metav1.Object).GetResourceVersion()))
}

func (r apiRecorder) OnDelete(obj any) {
	if tombstone, ok := obj.(fake.Tombstone); ok {
		*r.seen = append(*r.seen, fmt.Sprintf("tombstone %s of %s", tombstone.Key, tombstone.Obj.(metav1.Object).GetResourceVersion()))
		return
	}
	*r.seen = append(*r.seen, fmt.Sprintf("delete %s %s", obj.(metav1.Object).GetName(), obj.(metav1.Object).GetResourceVersion()))
}

func TestFeedMakesUpForWhatItMissed(t *testing.T) {
	a := fake.NewAPI()
	var claims, volumes []string
	apiCreate(t, a, "early")
	f := a.Feed(apiRecorder{&claims}, apiRecorder{&volumes}, nil)
	require.Equal(t, []string{"add early 1"}, claims)
	c := apiCreate(t, a, "c")
	f.Pause()
	c.Labels = map[string]string{"x": "y"}
	_, err := a.Claims("default").Update(t.Context(), c, metav1.UpdateOptions{})
	require.NoError(t, err)
	require.NoError(t, a.Claims("default").Delete(t.Context(), "early", metav1.DeleteOptions{}))
	apiCreate(t, a, "brief")
	require.NoError(t, a.Claims("default").Delete(t.Context(), "brief", metav1.DeleteOptions{}))
	_, err = a.Volumes().Create(t.Context(), fake.NewVolume("pv", "d", "n", c), metav1.CreateOptions{})
	require.NoError(t, err)
	require.Len(t, claims, 2)
	f.Resume()
	require.Equal(t, []string{"add early 1", "add c 2", "update c 2 3", "tombstone default/early of 1"}, claims)
	require.Equal(t, []string{"add pv 7"}, volumes)
	f.Stop()
	apiCreate(t, a, "late")
	f.Resume()
	require.Len(t, claims, 4)
}

func TestAPIFaultsMeetTheCallsTheyAreFor(t *testing.T) {
	a := fake.NewAPI()
	apiCreate(t, a, "a")
	apiCreate(t, a, "b")
	get := func(s *fake.APISession, name string) error {
		_, err := s.Claims("default").Get(t.Context(), name, metav1.GetOptions{})
		return err
	}
	user, hand := a.Session(), a.Direct()
	err1, err2 := errors.New("1"), errors.New("2")
	a.FailNext(fake.APICall{Verb: "get", Name: "a"}, err1, err2)
	require.NoError(t, get(user, "b"))
	require.NoError(t, get(hand, "a"), "the test itself meets none")
	require.Equal(t, err1, get(user, "a"))
	require.Equal(t, err2, get(user, "a"))
	require.NoError(t, get(user, "a"))

	a.Fail(fake.APICall{Resource: "persistentvolumeclaims"}, err1)
	require.Equal(t, err1, get(user, "a"))
	require.Equal(t, err1, get(user, "b"))
	_, err := user.Volumes().List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	a.Heal()
	require.NoError(t, get(user, "a"))

	a.LoseReply(fake.APICall{Verb: "delete"})
	require.Error(t, user.Claims("default").Delete(t.Context(), "a", metav1.DeleteOptions{}))
	require.True(t, apierrors.IsNotFound(get(user, "a")), "it was done")

	a.BeforeNext(fake.APICall{Verb: "get"}, func() { apiCreate(t, a, "a") })
	require.NoError(t, get(user, "a"))
	require.Equal(t, []string{"get claim default/b", "get claim default/a"}, user.Calls()[:2])
	require.Contains(t, user.Calls(), "list volumes")
	user.ForgetCalls()
	require.Empty(t, user.Calls())
	require.Equal(t, "create claim default/a", a.Calls()[len(a.Calls())-1])
}

func TestAPICallsCanBeHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := fake.NewAPI()
		apiCreate(t, a, "a")
		held := a.Hold(fake.APICall{Verb: "get"})
		var done sync.WaitGroup
		done.Go(func() {
			_, err := a.Claims("default").Get(t.Context(), "a", metav1.GetOptions{})
			require.NoError(t, err)
		})
		<-held.Started()
		_, err := a.Claims("default").List(t.Context(), metav1.ListOptions{})
		require.NoError(t, err, "the others go on")
		held.Release()
		held.Release()
		done.Wait()

		ctx, cancel := context.WithCancelCause(t.Context())
		held = a.Hold(fake.APICall{Verb: "get"})
		done.Go(func() {
			_, err := a.Claims("default").Get(ctx, "a", metav1.GetOptions{})
			require.ErrorContains(t, err, "enough")
		})
		<-held.Started()
		cancel(errors.New("enough"))
		done.Wait()
		_, err = a.Claims("default").Get(ctx, "a", metav1.GetOptions{})
		require.ErrorContains(t, err, "enough")
	})
}

func TestAPIProcessesStopAtTheirCalls(t *testing.T) {
	for _, c := range []struct {
		when fake.StopWhen
		done bool
	}{{fake.StopBefore, false}, {fake.StopAfter, true}} {
		a := fake.NewAPI()
		s := a.Session()
		stopped := false
		s.OnStop(func() { stopped = true })
		s.StopAt(2, c.when)
		_, err := s.Claims("default").List(t.Context(), metav1.ListOptions{})
		require.NoError(t, err)
		_, err = s.Claims("default").Create(t.Context(), fake.NewClaim("a", ""), metav1.CreateOptions{})
		require.ErrorIs(t, err, fake.ErrStopped)
		require.True(t, stopped && s.Stopped())
		_, err = a.Claims("default").Get(t.Context(), "a", metav1.GetOptions{})
		require.Equal(t, c.done, err == nil)
		_, err = s.Claims("default").Get(t.Context(), "a", metav1.GetOptions{})
		require.ErrorIs(t, err, fake.ErrStopped)
		require.Len(t, s.Calls(), 2)
	}
	elsewhere := false
	s := fake.NewAPI().Session()
	s.StopWith(func() bool { return elsewhere })
	_, err := s.Volumes().List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	elsewhere = true
	_, err = s.Volumes().List(t.Context(), metav1.ListOptions{})
	require.ErrorIs(t, err, fake.ErrStopped)
	s = fake.NewAPI().Session()
	s.Stop()
	_, err = s.Volumes().List(t.Context(), metav1.ListOptions{})
	require.ErrorIs(t, err, fake.ErrStopped)
}

// Many writers, feeds and watches at once: every feed ends with what is there.
func TestAPIUnderConcurrentUse(t *testing.T) {
	a := fake.NewAPI()
	seen := &apiMirror{objects: map[string]string{}}
	f := a.Feed(seen, nil, nil)
	defer f.Stop()
	w, err := a.Claims("").Watch(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	var writers, watcher sync.WaitGroup
	events := 0
	watcher.Go(func() {
		for range w.ResultChan() {
			events++
		}
	})
	const n, rounds = 4, 50
	for i := range n {
		writers.Go(func() {
			for r := range rounds {
				name := fmt.Sprintf("ns/%d", (i+r)%n)
				_, _ = a.Claims("ns").Create(t.Context(), fake.NewClaim(name, ""), metav1.CreateOptions{})
				_, _ = a.Claims("ns").Patch(t.Context(), name[3:], types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"labels":{"r":"%d-%d"}}}`, i, r), metav1.PatchOptions{})
				if r%3 == 0 {
					_ = a.Claims("ns").Delete(t.Context(), name[3:], metav1.DeleteOptions{})
				}
			}
		})
	}
	writers.Wait()
	list, err := a.Claims("").List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	want := map[string]string{}
	for _, c := range list.Items {
		want[c.Name] = c.ResourceVersion
	}
	require.Equal(t, want, seen.objects)
	w.Stop()
	watcher.Wait()
	require.Positive(t, events)
}

// apiMirror keeps what a handler was told. It needs no lock: a feed tells one thing at a time.
type apiMirror struct{ objects map[string]string }

func (m *apiMirror) OnAdd(obj any, _ bool) {
	m.objects[obj.(metav1.Object).GetName()] = obj.(metav1.Object).GetResourceVersion()
}
func (m *apiMirror) OnUpdate(_, obj any) { m.OnAdd(obj, false) }
func (m *apiMirror) OnDelete(obj any)    { delete(m.objects, obj.(metav1.Object).GetName()) }
