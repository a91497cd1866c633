package nodestatus

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/stateofworld/stateofworld/cache"
)

type patchCall struct {
	name         string
	patchType    types.PatchType
	data         string
	subresources []string
}

type nodesFunc func(patchCall) error

func (f nodesFunc) Patch(_ context.Context, name string, pt types.PatchType, data []byte, _ metav1.PatchOptions, subresources ...string) (*v1.Node, error) {
	if err := f(patchCall{name, pt, string(data), subresources}); err != nil {
		return nil, err
	}
	return &v1.Node{}, nil
}

func TestPatcherReplacesTheWholeListInOneMergePatchOfTheStatus(t *testing.T) {
	for name, tc := range map[string]struct {
		volumes []v1.AttachedVolume
		body    string
	}{
		"two volumes": {
			volumes: []v1.AttachedVolume{{Name: "kubernetes.io/csi/d^1", DevicePath: "/dev/a"}, {Name: "kubernetes.io/csi/d^2"}},
			body:    `{"status":{"volumesAttached":[{"name":"kubernetes.io/csi/d^1","devicePath":"/dev/a"},{"name":"kubernetes.io/csi/d^2","devicePath":""}]}}`,
		},
		"an empty list clears the field": {volumes: []v1.AttachedVolume{}, body: `{"status":{"volumesAttached":[]}}`},
		"nil is an empty list":           {volumes: nil, body: `{"status":{"volumesAttached":[]}}`},
	} {
		t.Run(name, func(t *testing.T) {
			var calls []patchCall
			p := New(nodesFunc(func(c patchCall) error { calls = append(calls, c); return nil }))
			require.NoError(t, p.Write(t.Context(), "a", tc.volumes))
			require.Equal(t, []patchCall{{"a", types.MergePatchType, tc.body, []string{"status"}}}, calls)
		})
	}
}

func TestPatcherErrorsSayWhatAndKeepTheCause(t *testing.T) {
	boom := errors.New("boom")
	err := New(nodesFunc(func(patchCall) error { return boom })).Write(t.Context(), "a", nil)
	require.ErrorIs(t, err, boom)
	require.EqualError(t, err, `patch attached volumes of node "a": boom`)
	require.NotErrorIs(t, err, ErrNodeNotFound)

	missing := apierrors.NewNotFound(v1.Resource("nodes"), "a")
	err = New(nodesFunc(func(patchCall) error { return missing })).Write(t.Context(), "a", nil)
	require.ErrorIs(t, err, ErrNodeNotFound)
	require.True(t, apierrors.IsNotFound(err))
}

func TestPatcherRefusesBadInput(t *testing.T) {
	require.ErrorIs(t, New(nil).Write(t.Context(), "a", nil), cache.ErrInvalid)
	called := false
	p := New(nodesFunc(func(patchCall) error { called = true; return nil }))
	require.ErrorIs(t, p.Write(t.Context(), "", nil), cache.ErrInvalid)
	require.False(t, called)
}
