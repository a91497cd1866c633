package lifecycle

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stateofworld/stateofworld/lvm"
)

func TestSpecsThatAreTaken(t *testing.T) {
	full := CreateSpec{VolumeGroup: "vg0", Name: "pvc-1", Size: 1 << 30}
	tagged := full
	tagged.Tags, tagged.Striping = []string{"class=fast"}, true
	for text, want := range map[string]CreateSpec{
		`{"volumeGroup":"vg0","name":"pvc-1","size":1073741824}`: full,
		`{"vg":"vg0","name":"pvc-1","size":1073741824}`:          full,
		// as the forerunner's versions without field names wrote it
		`{"VolumeGroup":"vg0","Name":"pvc-1","Size":1073741824,"Tags":null,"Striping":false}`:               full,
		` { "size" : 1073741824 , "name":"pvc-1","volumeGroup":"vg0" } `:                                    full,
		`{"volumeGroup":"vg0","name":"pvc-1","size":1073741824,"tags":["class=fast"],"striping":true}`:      tagged,
		`{"volumeGroup":"\u0076g0","name":"pvc-1","size":1073741824,"tags":["class=fast"],"striping":true}`: tagged,
		`{"volumeGroup":"vg0","name":"pvc-1","size":1073741824,"tags":[]}`:                                  full,
	} {
		got, err := ParseCreateSpec(text)
		require.NoError(t, err, text)
		require.True(t, got.Equal(want), "%s: %+v", text, got)
	}
}

// L36, kubernetes/kubernetes#16971
func TestSpecsThatAreRefused(t *testing.T) {
	for _, text := range []string{
		``, `null`, `[]`, `"vg0"`, `{`, `{}`, `{}{}`, `not json`,
		`{"volumeGroup":"vg0; rm -rf /","name":"a","size":1}`,
		`{"volumeGroup":"-f","name":"a","size":1}`,
		`{"volumeGroup":"@all","name":"a","size":1}`,
		`{"volumeGroup":"$(id)","name":"a","size":1}`,
		`{"volumeGroup":"vg0","name":"../a","size":1}`,
		`{"volumeGroup":"vg0","name":"..","size":1}`,
		`{"volumeGroup":"vg0","name":"","size":1}`,
		`{"volumeGroup":"vg0","name":"a_tdata","size":1}`,
		`{"volumeGroup":"vg0","name":"snapshot-1","size":1}`,
		`{"volumeGroup":"vg0","name":"é","size":1}`,
		`{"volumeGroup":"vg0","name":"a"}`,
		`{"volumeGroup":"vg0","size":1}`,
		`{"name":"a","size":1}`,
		`{"volumeGroup":"vg0","name":"a","size":0}`,
		`{"volumeGroup":"vg0","name":"a","size":-1}`,
		`{"volumeGroup":"vg0","name":"a","size":1.5}`,
		`{"volumeGroup":"vg0","name":"a","size":1e400}`,
		`{"volumeGroup":"vg0","name":"a","size":18446744073709551615}`,
		`{"volumeGroup":"vg0","name":"a","size":18446744073709551616}`,
		`{"volumeGroup":"vg0","name":"a","size":"1"}`,
		`{"volumeGroup":"vg0","name":"a","size":null}`,
		`{"volumeGroup":null,"name":"a","size":1}`,
		`{"volumeGroup":"vg0","vg":"vg1","name":"a","size":1}`,
		`{"volumeGroup":"vg0","name":"a","Name":"b","size":1}`,
		`{"volumeGroup":"vg0","name":"a","size":1,"size":2}`,
		`{"volumeGroup":"vg0","name":"a","size":1,"thinPool":"p"}`,
		`{"volumeGroup":"vg0","name":"a","size":1} {}`,
		`{"volumeGroup":"vg0","name":"a","size":1}]`,
		`{"volumeGroup":"vg0","name":"a","size":1`,
		`{"volumeGroup":"vg0","name":"a","size":1,}`,
		`{"volumeGroup":"vg0","name":"a","size":1,"striping":"yes"}`,
		`{"volumeGroup":"vg0","name":"a","size":1,"tags":["a b"]}`,
		`{"volumeGroup":"vg0","name":"a","size":1,"tags":["-x"]}`,
		`{"volumeGroup":"vg0","name":"a","size":1,"tags":"x"}`,
		// tags by which a claim would take what is another's, or keep the library from its own
		`{"volumeGroup":"vg0","name":"a","size":1,"tags":["sow.owner=00000000-0000-4000-8000-000000000001"]}`,
		`{"volumeGroup":"vg0","name":"a","size":1,"tags":["sow.ready"]}`,
		`{"volumeGroup":"vg0","name":"a","size":1,"tags":["stateofworld.creating.1"]}`,
		`{"volumeGroup":"vg0","name":"a","size":1,"tags":[` + strings.Repeat(`"x",`, maxTags) + `"x"]}`,
		`{"volumeGroup":"vg0","name":"a","size":1` + strings.Repeat(" ", maxSpecBytes) + `}`,
		strings.Repeat(`{"a":`, 5000) + strings.Repeat(`}`, 5000),
	} {
		_, err := ParseCreateSpec(text)
		require.ErrorIs(t, err, lvm.ErrInvalid, shorten(text, 100))
		require.Less(t, len(err.Error()), 1000)
	}
}

func TestSpecsAreWrittenAsTheyAreRead(t *testing.T) {
	s := CreateSpec{VolumeGroup: "vg0", Name: "pvc-1", Size: 1 << 30, Tags: []string{"a", "b=c"}, Striping: true}
	text, err := s.Encode()
	require.NoError(t, err)
	require.JSONEq(t, `{"volumeGroup":"vg0","name":"pvc-1","size":1073741824,"tags":["a","b=c"],"striping":true}`, text)
	back, err := ParseCreateSpec(text)
	require.NoError(t, err)
	require.Equal(t, s, back)

	_, err = CreateSpec{VolumeGroup: "vg0", Name: "a"}.Encode()
	require.ErrorIs(t, err, lvm.ErrInvalid)
}

func TestSpecsThatAskForTheSame(t *testing.T) {
	s := CreateSpec{VolumeGroup: "vg0", Name: "a", Size: 1, Tags: []string{"x", "y"}}
	for name, other := range map[string]CreateSpec{
		"group": {VolumeGroup: "vg1", Name: "a", Size: 1, Tags: []string{"x", "y"}}, "name": {VolumeGroup: "vg0", Name: "b", Size: 1, Tags: []string{"x", "y"}},
		"size": {VolumeGroup: "vg0", Name: "a", Size: 2, Tags: []string{"x", "y"}}, "a tag": {VolumeGroup: "vg0", Name: "a", Size: 1, Tags: []string{"x", "z"}},
		"fewer tags": {VolumeGroup: "vg0", Name: "a", Size: 1, Tags: []string{"x"}}, "striping": {VolumeGroup: "vg0", Name: "a", Size: 1, Tags: []string{"x", "y"}, Striping: true},
	} {
		require.False(t, s.Equal(other), name)
	}
	require.True(t, s.Equal(s))
}

func FuzzParseCreateSpec(f *testing.F) {
	for _, seed := range []string{
		`{"volumeGroup":"vg0","name":"pvc-1","size":1073741824,"tags":["a"],"striping":true}`, `{"vg":"vg0","name":"a","size":1}`,
		`{"VolumeGroup":"v","Name":"a","Size":18446744073709551615,"Tags":null}`, `{"volumeGroup":"@t","name":"-f","size":1e3}`, `{"a":{"a":[`, `null`, ``, `"x"`, `{"vg":1}`, `{"vg":"v","vg":"v"}`,
		"{\"name\":\"a\x00b\"}", `{"size":-0}`, `{"tags":[null]}`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s, err := ParseCreateSpec(text)
		if err != nil {
			require.ErrorIs(t, err, lvm.ErrInvalid)
			require.Zero(t, s)
			return
		}
		require.NoError(t, s.Validate())
		require.NotContains(t, s.LV().String(), " ")
		again, err := s.Encode()
		require.NoError(t, err)
		back, err := ParseCreateSpec(again)
		require.NoError(t, err)
		require.True(t, s.Equal(back))
	})
}
