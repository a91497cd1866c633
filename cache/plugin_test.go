package cache

import (
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestSpecHasExactlyOneSource(t *testing.T) {
	volume, pv := &v1.Volume{Name: "inline"}, &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv"}}
	for _, tc := range []struct {
		name  string
		spec  *VolumeSpec
		valid bool
		shown string
	}{
		{"nil", nil, false, ""},
		{"empty", &VolumeSpec{}, false, ""},
		{"both", &VolumeSpec{Volume: volume, PersistentVolume: pv}, false, "inline"},
		{"inline", NewSpecFromVolume(volume), true, "inline"},
		{"persistent", NewSpecFromPersistentVolume(pv, true), true, "pv"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			require.Equal(t, tc.shown, tc.spec.Name())
			if tc.valid {
				require.NoError(t, tc.spec.Validate())
			} else {
				requireInvalid(t, tc.spec.Validate(), "volume spec")
			}
		})
	}
	require.True(t, NewSpecFromPersistentVolume(pv, true).ReadOnly)
}

func TestPluginIsFoundBySpec(t *testing.T) {
	red := &testPlugin{name: "red", volumeName: "r", attachable: true}
	blue := &testPlugin{name: "blue", volumeName: "b"}
	reddish := &testPlugin{name: "reddish", volumeName: "rr", attachable: true}
	m := NewVolumePluginMgr(red, blue, reddish, CSIPlugin{})
	require.NoError(t, m.Validate())

	plugin, err := m.FindPluginBySpec(inlineSpec("blue-1"))
	require.NoError(t, err)
	require.Same(t, blue, plugin)
	_, err = m.FindPluginBySpec(inlineSpec("green-1"))
	require.ErrorIs(t, err, ErrNoPlugin)
	_, err = m.FindPluginBySpec(inlineSpec("reddish-1"))
	require.ErrorIs(t, err, ErrAmbiguousPlugin)
	require.ErrorContains(t, err, "red, reddish")
	_, err = m.FindPluginBySpec(nil)
	requireInvalid(t, err, "volume spec")

	plugin, err = m.FindAttachablePluginBySpec(inlineSpec("red-1"))
	require.NoError(t, err)
	require.Same(t, red, plugin)
	_, err = m.FindAttachablePluginBySpec(inlineSpec("blue-1"))
	require.ErrorIs(t, err, ErrNotAttachable)
	_, err = m.FindAttachablePluginBySpec(inlineSpec("green-1"))
	require.ErrorIs(t, err, ErrNoPlugin)
}

func TestUniqueVolumeNameIsPluginAndName(t *testing.T) {
	plugin := &testPlugin{name: "red", volumeName: "disk 7", attachable: true}
	m := NewVolumePluginMgr(plugin, CSIPlugin{})

	name, err := m.UniqueVolumeName(inlineSpec("red-1"))
	require.NoError(t, err)
	require.Equal(t, v1.UniqueVolumeName("red/disk 7"), name)
	name, err = m.UniqueVolumeName(pvSpec("vol-1"))
	require.NoError(t, err)
	require.Equal(t, v1.UniqueVolumeName("kubernetes.io/csi/disk.example.com^vol-1"), name)

	plugin.volumeName = ""
	_, err = m.UniqueVolumeName(inlineSpec("red-1"))
	requireInvalid(t, err, "volume name")
	plugin.volumeName, plugin.err = "x", errTest
	_, err = m.UniqueVolumeName(inlineSpec("red-1"))
	require.ErrorIs(t, err, errTest)
	plugin.attachable = false
	_, err = m.UniqueVolumeName(inlineSpec("red-1"))
	require.ErrorIs(t, err, ErrNotAttachable)
}

func TestBadRegistrationIsReturnedByEveryCall(t *testing.T) {
	var typedNil *testPlugin
	good := &testPlugin{name: "red", volumeName: "r", attachable: true}
	for _, tc := range []struct {
		name    string
		plugins []VolumePlugin
		field   string
	}{
		{"nil", []VolumePlugin{good, nil}, "volume plugin 1"},
		{"nil pointer", []VolumePlugin{typedNil}, "volume plugin 0"},
		{"no name", []VolumePlugin{&testPlugin{}}, "volume plugin 0"},
		{"twice", []VolumePlugin{good, good}, "volume plugin"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m := NewVolumePluginMgr(tc.plugins...)
			requireInvalid(t, m.Validate(), tc.field)
			_, err := m.FindPluginBySpec(inlineSpec("red-1"))
			requireInvalid(t, err, tc.field)
			_, err = m.FindAttachablePluginBySpec(inlineSpec("red-1"))
			requireInvalid(t, err, tc.field)
			_, err = m.UniqueVolumeName(inlineSpec("red-1"))
			requireInvalid(t, err, tc.field)

			_, err = NewActualStateOfWorld(m).AddVolumeNode(inlineSpec("red-1"), "a", "")
			requireInvalid(t, err, tc.field)
			w := NewDesiredStateOfWorld(m)
			w.AddNode("a")
			_, err = w.AddPod("p1", testPod("p1"), inlineSpec("red-1"), "a")
			requireInvalid(t, err, tc.field)
		})
	}
}

func TestNilPluginMgrHasNoPlugins(t *testing.T) {
	var m *VolumePluginMgr
	require.NoError(t, m.Validate())
	_, err := m.FindPluginBySpec(pvSpec("v1"))
	require.ErrorIs(t, err, ErrNoPlugin)
	_, err = NewActualStateOfWorld(nil).AddVolumeNode(pvSpec("v1"), "a", "")
	require.ErrorIs(t, err, ErrNoPlugin)
}

func TestCSIPlugin(t *testing.T) {
	inline := NewSpecFromVolume(&v1.Volume{Name: "scratch", VolumeSource: v1.VolumeSource{CSI: &v1.CSIVolumeSource{Driver: testDriver}}})
	nfs := NewSpecFromPersistentVolume(&v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "nfs"}}, false)
	noHandle, noDriver := pvSpec(""), pvSpec("v1")
	noDriver.PersistentVolume.Spec.CSI.Driver = ""
	m := NewVolumePluginMgr(CSIPlugin{})

	for _, tc := range []struct {
		name                string
		spec                *VolumeSpec
		supported, attached bool
	}{
		{"persistent", pvSpec("v1"), true, true},
		{"inline", inline, true, false},
		{"not CSI", nfs, false, false},
		{"other inline", inlineSpec("x"), false, false},
		{"nil", nil, false, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			require.Equal(t, tc.supported, CSIPlugin{}.CanSupport(tc.spec))
			attached, err := CSIPlugin{}.CanAttach(tc.spec)
			require.NoError(t, err)
			require.Equal(t, tc.attached, attached)
		})
	}

	_, err := m.UniqueVolumeName(inline)
	require.ErrorIs(t, err, ErrNotAttachable)
	_, err = CSIPlugin{}.GetVolumeName(inline)
	requireInvalid(t, err, "volume spec")
	_, err = m.UniqueVolumeName(noHandle)
	requireInvalid(t, err, "CSI volume handle")
	_, err = m.UniqueVolumeName(noDriver)
	requireInvalid(t, err, "CSI driver")

	asked := ""
	optional := CSIPlugin{AttachRequired: func(driver string) bool { asked = driver; return false }}
	attached, err := optional.CanAttach(pvSpec("v1"))
	require.NoError(t, err)
	require.False(t, attached)
	require.Equal(t, testDriver, asked)
}

func TestAccessModesDecideMultiAttach(t *testing.T) {
	const rwo, rox, rwx, rwop = v1.ReadWriteOnce, v1.ReadOnlyMany, v1.ReadWriteMany, v1.ReadWriteOncePod
	for _, tc := range []struct {
		modes []v1.PersistentVolumeAccessMode
		multi bool
	}{
		{nil, true},
		{[]v1.PersistentVolumeAccessMode{rwo}, false},
		{[]v1.PersistentVolumeAccessMode{rwop}, false},
		{[]v1.PersistentVolumeAccessMode{rox}, true},
		{[]v1.PersistentVolumeAccessMode{rwx}, true},
		{[]v1.PersistentVolumeAccessMode{rwo, rox}, true},
	} {
		require.Equal(t, tc.multi, AccessModesAllowMultiAttach(tc.modes), "%v", tc.modes)
		require.Equal(t, tc.multi, CSIPlugin{}.CanMultiAttach(pvSpec("v1", tc.modes...)), "%v", tc.modes)
	}
	require.True(t, CSIPlugin{}.CanMultiAttach(inlineSpec("x")))
}

func TestInvalidErrorSaysWhatAndWhy(t *testing.T) {
	require.EqualError(t, &InvalidError{Field: "node name", Reason: "must not be empty"}, "invalid argument: node name must not be empty")
	require.EqualError(t, &InvalidError{Field: "volume plugin", Value: "red", Reason: "is registered twice"}, `invalid argument: volume plugin "red" is registered twice`)
}
