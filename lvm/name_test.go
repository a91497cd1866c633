package lvm

import (
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// L29, openebs/lvm-localpv#190
func TestNamesAreCheckedByTheRulesOfLVM(t *testing.T) {
	long := func(n int) string { return strings.Repeat("a", n) }
	for _, tc := range []struct {
		vg, lv string
		ok     bool
	}{
		{"vg0", "a", true},
		{"vg0", "A-z_0+9.x", true},
		{"vg0", "lost+found", true},
		{"vg0", "foo+bar", true},
		{"vg0", "...", true},
		{"vg0", "pvc-0b6a2b3c-1d2e-4f50-8a6b-7c8d9e0f1a2b", true},
		{"vg0", "xsnapshot", true},
		{"vg0", "tdata", true},
		{long(62), long(62), true},
		{long(62), long(63), false}, // 125 together
		{"v", long(123), true},
		{long(60), strings.Repeat("-a", 31)[1:], false}, // fits lvm2's metadata, but not device-mapper
		{"vg0", "", false},
		{"vg0", "-x", false},
		{"vg0", ".", false},
		{"vg0", "..", false},
		{"vg0", "a_tdata", false},
		{"vg0", "a_rimage_0", false},
		{"vg0", "lvol0_pmspare", false},
		{"vg0", "snapshot-1", false},
		{"vg0", "snapshot", false},
		{"vg0", "pvmove0", false},
		{"vg0", "é", false},
		{"vg0", "a b", false},
		{"vg0", "a;b", false},
		{"vg0", "a\x00", false},
		{"vg0", "@a", false},
		{"", "a", false},
		{"-vg", "a", false},
		{"..", "a", false},
		{"snapshot", "a", true}, // reserved for volumes only
	} {
		err := Name{tc.vg, tc.lv}.Validate()
		if tc.ok {
			require.NoError(t, err, "%s/%s", tc.vg, tc.lv)
			continue
		}
		require.ErrorIs(t, err, ErrInvalid, "%s/%s", tc.vg, tc.lv)
		var invalid *InvalidError
		require.ErrorAs(t, err, &invalid)
		require.NotEmpty(t, invalid.Reason)
	}
}

// L36: the forms of a removal spec.
func TestParseNameTakesOneVolumeAndNothingElse(t *testing.T) {
	name, err := ParseName("vg0/a")
	require.NoError(t, err)
	require.Equal(t, Name{"vg0", "a"}, name)
	require.Equal(t, "vg0/a", name.String())
	require.Equal(t, "/dev/vg0/a", name.DevicePath())
	for _, s := range []string{"", "vg0", "vg0/", "/a", "/", "vg0//a", "vg0/a/b", "@t/a", "vg0/@t", "vg0/../a", "vg0/..", " vg0/a", "vg0/a ", "/dev/vg0/a", "-f/a", "vg0/-f", "$(id)/a", "vg0/a\n"} {
		_, err := ParseName(s)
		require.ErrorIs(t, err, ErrInvalid, "%q", s)
	}
}

func FuzzParseName(f *testing.F) {
	for _, seed := range []string{"vg0/a", "vg0", "/", "vg0//a", "@t/a", "vg0/a_tdata", "vg-0/a-b"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, s string) {
		name, err := ParseName(s)
		if err != nil {
			require.ErrorIs(t, err, ErrInvalid)
			return
		}
		require.Equal(t, s, name.String())
		require.NoError(t, name.Validate())
		require.Equal(t, 1, strings.Count(s, "/"))
		require.NotContains(t, "-@/", s[:1], s)
	})
}

// L29: two foreign names never meet in one.
func TestMapNameIsInjectiveAndValid(t *testing.T) {
	require.Equal(t, "a-b", MapName("a-b"))
	require.Equal(t, "m+snapshot-x", MapName("snapshot-x"))
	require.NotEqual(t, MapName("x"), MapName("snapshot-x"))
	foreign := rapid.OneOf(
		rapid.String(),
		rapid.StringMatching(`(snapshot|pvmove|m\+|h\+)?[a-z+._-]{0,12}(_tdata|_rimage_0)?`),
		rapid.StringMatching(`[a-z-]{80,140}`),
	)
	rapid.Check(t, func(t *rapid.T) {
		a, b := foreign.Draw(t, "a"), foreign.Draw(t, "b")
		require.NoError(t, Name{strings.Repeat("v", 23), MapName(a)}.Validate(), "%q", a)
		if a != b {
			require.NotEqual(t, MapName(a), MapName(b))
		}
		// A name that was mapped once is not taken for itself.
		if MapName(a) != a {
			require.NotEqual(t, MapName(a), MapName(MapName(a)))
		}
	})
}

func TestTagsAreCheckedByTheRulesOfLVM(t *testing.T) {
	for _, tag := range []string{"a", "A-z_0+9.x/=!:&#", "kubernetes.io/claim=ns/name", ".", strings.Repeat("a", 1024)} {
		require.NoError(t, ValidateTag(tag), tag)
	}
	for _, tag := range []string{"", "-a", "a b", "a,b", "@a", "é", "a\n", "a\"", "{a}", strings.Repeat("a", 1025)} {
		require.ErrorIs(t, ValidateTag(tag), ErrInvalid, tag)
	}
	require.ErrorIs(t, validateUserTags([]string{"a", creatingMark + "0"}), ErrInvalid, "the state of the library is not a caller's")
}

func FuzzTags(f *testing.F) {
	for _, seed := range []string{"", "a", "a,b,c", ",", "a,,b", "stateofworld.creating.0", "b,a,b"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		tags := splitTags(text)
		require.NotNil(t, tags, "no tags is an empty list")
		for i, tag := range tags {
			require.NotEmpty(t, tag)
			require.Contains(t, strings.Split(text, ","), tag)
			if i > 0 {
				require.Less(t, tags[i-1], tag)
			}
		}
		require.Equal(t, tags, splitTags(strings.Join(tags, ",")))
		if ValidateTag(text) == nil {
			require.Equal(t, []string{text}, tags)
		}
	})
}

func TestDevicesThatAreRangesOrTagsAreRefused(t *testing.T) {
	for _, device := range []string{"/dev/sda", "/dev/disk/by-id/wwn-0x1:2", "/dev/mapper/a-b_c+d"} {
		require.NoError(t, validateDevice(device))
	}
	require.NoError(t, CreateOptions{VG: "v", Name: "a", Size: 1, PhysicalVolumes: []string{"/dev/sda", "/dev/sdb"}}.Validate())
	for _, device := range []string{"", "sda", "@all", "-f", "/etc/passwd", "/dev/../etc/passwd", "/dev/a b", "/dev/a;b"} {
		require.ErrorIs(t, CreateOptions{VG: "v", Name: "a", Size: 1, PhysicalVolumes: []string{device}}.Validate(), ErrInvalid, device)
	}
	require.ErrorIs(t, CreateOptions{VG: "v", Name: "a", Size: 1, PhysicalVolumes: []string{"/dev/sda", "/dev/sda"}}.Validate(), ErrInvalid)
}

// L14, topolvm PR#844
func TestSizesAreRoundedUpAndNeverWrapAround(t *testing.T) {
	require.Equal(t, "1073742336b", sizeArg(1073741825))
	require.Equal(t, "512b", sizeArg(1))
	require.Equal(t, "1024b", sizeArg(1024))
	for _, size := range []uint64{0, math.MaxUint64, math.MaxUint64 - 511, math.MaxInt64} {
		require.ErrorIs(t, validateSize("size", size), ErrInvalid, "%d", size)
	}
	require.NoError(t, validateSize("size", maxSize))
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.Uint64Range(1, maxSize).Draw(t, "size")
		unit := uint64(1) << rapid.IntRange(9, 40).Draw(t, "shift")
		rounded := roundUp(size, unit)
		require.Zero(t, rounded%unit)
		require.GreaterOrEqual(t, rounded, size)
		require.Less(t, rounded-size, unit)
	})
}

func TestRequestsAreCheckedBeforeAnythingRuns(t *testing.T) {
	good := CreateOptions{VG: "v", Name: "a", Size: 1}
	for what, change := range map[string]func(*CreateOptions){
		"layout":                      func(o *CreateOptions) { o.Layout = "raid6" },
		"snapshot layout":             func(o *CreateOptions) { o.Layout = ThickSnapshot },
		"stripes of a linear one":     func(o *CreateOptions) { o.Stripes = 2 },
		"one stripe":                  func(o *CreateOptions) { o.Layout, o.Stripes = Striped, 1 },
		"negative stripes":            func(o *CreateOptions) { o.Layout, o.Stripes = Striped, -1 },
		"too many stripes":            func(o *CreateOptions) { o.Layout, o.Stripes = Striped, 129 },
		"stripe size":                 func(o *CreateOptions) { o.Layout, o.StripeSize = Striped, 5000 },
		"small stripe size":           func(o *CreateOptions) { o.Layout, o.StripeSize = Striped, 2048 },
		"stripe size of a linear one": func(o *CreateOptions) { o.StripeSize = 4096 },
		"fallback of a linear one":    func(o *CreateOptions) { o.AllowLinear = true },
		"mirrors of a linear one":     func(o *CreateOptions) { o.Mirrors = 1 },
		"negative mirrors":            func(o *CreateOptions) { o.Layout, o.Mirrors = RAID1, -1 },
		"thin without a pool":         func(o *CreateOptions) { o.Layout = Thin },
		"thin in itself":              func(o *CreateOptions) { o.Layout, o.ThinPool = Thin, "a" },
		"thin on devices":             func(o *CreateOptions) { o.Layout, o.ThinPool, o.PhysicalVolumes = Thin, "p", []string{"/dev/sda"} },
		"pool of a linear one":        func(o *CreateOptions) { o.ThinPool = "p" },
		"ratio of a linear one":       func(o *CreateOptions) { o.Overprovision = 2 },
		"negative ratio":              func(o *CreateOptions) { o.Layout, o.ThinPool, o.Overprovision = Thin, "p", -1 },
		"no ratio":                    func(o *CreateOptions) { o.Layout, o.ThinPool, o.Overprovision = Thin, "p", math.NaN() },
	} {
		o := good
		change(&o)
		require.ErrorIs(t, o.Validate(), ErrInvalid, what)
	}
	require.NoError(t, good.Validate())
	require.ErrorIs(t, SnapshotOptions{VG: "v", Name: "a", Origin: "a"}.Validate(), ErrInvalid)
	require.ErrorIs(t, TagChange{Add: []string{"a"}, Remove: []string{"a"}}.Validate(), ErrInvalid)
	require.ErrorIs(t, RemoveOptions{UUID: `x" || lv_name="y`}.Validate(), ErrInvalid)
	require.NoError(t, RemoveOptions{UUID: "0NK6XT-oYyV-xR4K-fdpO-siSe-kdxw-HpbMmC"}.Validate())
	require.ErrorIs(t, ActivateOptions{Access: "r"}.Validate(), ErrInvalid)
	for _, pool := range []string{"x", "y"} {
		require.NoError(t, CapacityOptions{VG: "v", Layout: Thin, ThinPool: pool}.Validate())
	}
	require.ErrorIs(t, CapacityOptions{VG: "v", Layout: ThinPool}.Validate(), ErrInvalid)
}
