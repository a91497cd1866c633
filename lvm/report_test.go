package lvm

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stateofworld/stateofworld/executor/command"
)

// recorded is the output of a real command, lvm2 2.03.16.
func recorded(t testing.TB, name string) command.Result {
	t.Helper()
	stdout, err := os.ReadFile(filepath.Join("testdata", name+".stdout"))
	require.NoError(t, err)
	stderr, err := os.ReadFile(filepath.Join("testdata", name+".stderr"))
	require.NoError(t, err)
	return command.Result{Stdout: stdout, Stderr: stderr}
}

func readLVs(text string) ([]LogicalVolume, error) {
	doc, err := decodeDocument([]byte(text))
	if err != nil {
		return nil, err
	}
	rows, err := doc.rows("lv")
	if err != nil {
		return nil, err
	}
	return parseLVs(rows)
}

func readVGs(text, stderr string) ([]VolumeGroup, error) {
	doc, err := decodeDocument([]byte(text))
	if err != nil {
		return nil, err
	}
	rows, err := doc.rows("vg")
	if err != nil {
		return nil, err
	}
	return parseVGs(rows, stderr)
}

// lvRow is a row of lvs with some fields changed: "name", `"json value"` in turn.
func lvRow(changes ...string) string {
	fields := map[string]string{
		"lv_uuid": `"fake00-0000-0000-0000-0000-0000-00000U"`, "lv_name": `"a"`, "vg_name": `"vg0"`, "lv_size": `"8388608"`, "lv_attr": `"-wi-a-----"`, "lv_tags": `""`,
		"lv_kernel_major": `"253"`, "lv_kernel_minor": `"4"`, "lv_layout": `"linear"`, "vg_extent_size": `"4194304"`,
	}
	for i := 0; i < len(changes); i += 2 {
		if changes[i+1] == "" {
			delete(fields, changes[i])
			continue
		}
		fields[changes[i]] = changes[i+1]
	}
	var parts []string
	for name, value := range fields {
		parts = append(parts, `"`+name+`":`+value)
	}
	return "{" + strings.Join(parts, ", ") + "}"
}

func lvReport(rows ...string) string {
	return `{"report": [{"lv": [` + strings.Join(rows, ",") + `]}]}`
}

func TestRecordedVolumesWithoutDeviceMapper(t *testing.T) {
	lvs, err := readLVs(string(recorded(t, "lvs-two").Stdout))
	require.NoError(t, err)
	require.Len(t, lvs, 2)
	a, s := lvs[0], lvs[1]
	require.Equal(t, Name{"vg0", "a"}, a.Name)
	require.EqualValues(t, 12<<20, a.Size)
	require.EqualValues(t, 4<<20, a.ExtentSize)
	require.Equal(t, []string{"t1", "t2"}, a.Tags)
	require.Equal(t, Linear, a.Layout)
	require.Equal(t, [2]Known{Unknown, Unknown}, [2]Known{a.Active, a.Open})
	require.Equal(t, Striped, s.Layout)
	require.Equal(t, []string{}, s.Tags)
	require.False(t, s.DataPercent.Known)
}

func TestRecordedVolumesOfEveryKind(t *testing.T) {
	for _, name := range []string{"lvs-device-mapper", "lvs-device-mapper-all"} { // the second lists hidden volumes too
		lvs, err := readLVs(string(recorded(t, name).Stdout))
		require.NoError(t, err)
		got := map[string]LogicalVolume{}
		for _, lv := range lvs {
			got[lv.LV] = lv
		}
		require.Len(t, got, 7, name)
		for lv, want := range map[string]struct {
			layout       Layout
			origin, pool string
			active       Known
		}{
			"a": {Linear, "", "", Yes}, "s": {Striped, "", "", Yes}, "r": {RAID1, "", "", Yes}, "pool": {ThinPool, "", "", Yes},
			"th": {Thin, "", "pool", Yes}, "thsnap": {Thin, "th", "pool", No}, "snap": {ThickSnapshot, "a", "", Yes},
		} {
			v := got[lv]
			require.Equal(t, want.layout, v.Layout, lv)
			require.Equal(t, want.origin, v.Origin, lv)
			require.Equal(t, want.pool, v.Pool, lv)
			require.Equal(t, want.active, v.Active, lv)
			require.Equal(t, want.active == Yes, v.Major != 0, lv)
			require.Equal(t, HealthOK, v.Health, lv)
		}
		require.Equal(t, Percent{10.94, true}, got["pool"].MetadataPercent)
		require.Equal(t, Percent{0, true}, got["pool"].DataPercent)
		require.EqualValues(t, 4<<20, got["pool"].MetadataSize)
		require.Equal(t, Percent{}, got["thsnap"].DataPercent, "not active: unknown, not empty")
		require.True(t, got["thsnap"].Attr.SkipActivation)
		require.True(t, got["th"].Attr.Zero)
	}
}

// L05, topolvm/topolvm#559
func TestInactiveVolumesAreVolumes(t *testing.T) {
	lvs, err := readLVs(lvReport(
		lvRow(),
		lvRow("lv_uuid", `"fake00-0000-0000-0000-0000-0000-00000V"`, "lv_name", `"b"`, "lv_kernel_major", `"-1"`, "lv_kernel_minor", `"-1"`, "lv_attr", `"-wi-------"`),
		lvRow("lv_uuid", `"fake00-0000-0000-0000-0000-0000-00000W"`, "lv_name", `"c"`, "lv_kernel_major", `""`, "lv_kernel_minor", `"4294967296"`, "seg_count", `"many"`),
	))
	require.NoError(t, err)
	require.Len(t, lvs, 3)
	require.Equal(t, Yes, lvs[0].Active)
	require.Equal(t, [2]uint32{253, 4}, [2]uint32{lvs[0].Major, lvs[0].Minor})
	require.Equal(t, No, lvs[1].Active)
	require.Zero(t, lvs[1].Major)
	require.Zero(t, lvs[2].Minor)
}

// L06, topolvm/topolvm#126
func TestOneRowPerVolumeIsAskedForAndKept(t *testing.T) {
	for _, field := range []string{"seg_size", "devices", "stripes", "segtype", "thin_count", "seg_start", "data_stripes"} {
		require.NotContains(t, strings.Split(lvFields, ","), field)
	}
	lvs, err := readLVs(lvReport(lvRow(), lvRow()))
	require.NoError(t, err)
	require.Len(t, lvs, 1)
	_, err = readLVs(lvReport(lvRow(), lvRow("lv_size", `"4194304"`)))
	require.Error(t, err, "one volume cannot have two sizes")
	_, err = readLVs(lvReport(lvRow(), lvRow("lv_uuid", `"fake00-0000-0000-0000-0000-0000-00000V"`)))
	require.Error(t, err, "one name cannot be two volumes")
}

// L07, hansmi/prometheus-lvm-exporter#125
func TestPercentInAnyLocale(t *testing.T) {
	for text, want := range map[string]Percent{
		"16.23": {16.23, true}, "16,23": {16.23, true}, "0.00": {0, true}, "100,00": {100, true}, "": {}, "-1": {}, "101": {}, "NaN": {}, "x": {}, "1,2,3": {},
	} {
		lvs, err := readLVs(lvReport(lvRow("data_percent", `"`+text+`"`)))
		require.NoError(t, err, "never an error for the whole list")
		require.Equal(t, want, lvs[0].DataPercent, text)
	}
}

// Plain JSON has strings only; json_std and newer versions have numbers, null and lists.
func TestEveryFormOfAValueIsRead(t *testing.T) {
	plain, err := readLVs(lvReport(lvRow("lv_tags", `"a,b"`, "data_percent", `"1.5"`, "lv_kernel_major", `"-1"`)))
	require.NoError(t, err)
	std, err := readLVs(lvReport(lvRow("lv_tags", `["b","a"]`, "data_percent", `1.5`, "lv_size", `8388608`, "lv_kernel_major", `-1`, "lv_kernel_minor", `4`, "origin", `null`, "vg_extent_size", `4194304`)))
	require.NoError(t, err)
	require.Equal(t, plain, std)
	suffixed, err := readLVs(lvReport(lvRow("lv_tags", `"a,b"`, "data_percent", `"1.5"`, "lv_kernel_major", `"-1"`, "lv_size", `"8388608B"`, "vg_extent_size", `"4194304B"`)))
	require.NoError(t, err)
	require.Equal(t, plain, suffixed)
}

// A report that cannot be read never passes for one that lacks something.
func TestMalformedReportsAreErrors(t *testing.T) {
	whole := lvReport(lvRow())
	_, err := readLVs(whole)
	require.NoError(t, err)
	for n := range len(whole) {
		_, err := readLVs(whole[:n])
		require.Error(t, err, "cut after %d bytes", n)
	}
	for what, text := range map[string]string{
		"nothing":             "",
		"white space":         " \n\t\n",
		"noise only":          "  WARNING: something\n",
		"another thing":       `[]`,
		"no report":           `{}`,
		"null report":         `{"report": null}`,
		"empty report":        `{"report": []}`,
		"other section":       `{"report": [{"vg": []}]}`,
		"null section":        `{"report": [{"lv": null}]}`,
		"object section":      `{"report": [{"lv": {}}]}`,
		"two reports":         whole + whole,
		"something after":     whole + "x",
		"prefix":              "X " + strings.ReplaceAll(whole, "\n", "\nX "),
		"empty row":           `{"report": [{"lv": [{}]}]}`,
		"object value":        lvReport(lvRow("lv_name", `{}`)),
		"no name":             lvReport(lvRow("lv_name", `""`)),
		"no uuid":             lvReport(lvRow("lv_uuid", "")),
		"odd uuid":            lvReport(lvRow("lv_uuid", `"x\" || lv_name=\"y"`)),
		"no group":            lvReport(lvRow("vg_name", "")),
		"no size":             lvReport(lvRow("lv_size", "")),
		"size with a unit":    lvReport(lvRow("lv_size", `"8.00m"`)),
		"negative size":       lvReport(lvRow("lv_size", `"-8"`)),
		"too large a size":    lvReport(lvRow("lv_size", `"18446744073709551616"`)),
		"no attributes":       lvReport(lvRow("lv_attr", `""`)),
		"short attributes":    lvReport(lvRow("lv_attr", `"-wi"`)),
		"no tags (protected)": lvReport(lvRow("lv_tags", "")),
		"extent size":         lvReport(lvRow("vg_extent_size", `"4.00m"`)),
	} {
		_, err := readLVs(text)
		require.Error(t, err, what)
	}
}

func TestNoiseBeforeAReportIsSkipped(t *testing.T) {
	lvs, err := readLVs("  WARNING: Running as a non-root user.\n\n" + lvReport(lvRow()) + "\n")
	require.NoError(t, err)
	require.Len(t, lvs, 1)
	lvs, err = readLVs(string(recorded(t, "lvs-no-lv").Stdout))
	require.NoError(t, err)
	require.NotNil(t, lvs)
	require.Empty(t, lvs)
}

// L03, hansmi/prometheus-lvm-exporter#76
func TestLogMemberIsReadAndNotInTheWay(t *testing.T) {
	lvs, err := readLVs(string(recorded(t, "lvs-log-ok").Stdout))
	require.NoError(t, err)
	require.Len(t, lvs, 2)
	result := recorded(t, "lvs-log")
	require.Empty(t, strings.TrimSpace(string(result.Stderr)), "the message is in the report only")
	result.ExitCode = 5
	e := describe("get", "vg0/absent", []string{"lvs"}, result)
	require.ErrorIs(t, e, ErrNotFound)
	require.Contains(t, e.Error(), `Failed to find logical volume "vg0/absent"`)
}

func TestHealth(t *testing.T) {
	for _, tc := range []struct {
		attr, words string
		want        Health
	}{
		{"-wi-a-----", "", HealthOK}, {"-wi-a---p-", "", HealthPartial}, {"-wi-a---p-", "partial", HealthPartial}, {"rwi-a-r-r-", "", HealthRefreshNeeded},
		{"rwi-a-r-m-", "", HealthMismatches}, {"rwi-a-r-w-", "", HealthWriteMostly}, {"twi-a-t-F-", "", HealthFailed}, {"twi-a-t-D-", "", HealthOutOfData},
		{"twi-a-t-M-", "", HealthMetadataReadOnly}, {"-wi-a---X-", "", HealthUnknown}, {"-wi-a---?-", "", HealthUnknown}, {"-wi-a-", "", HealthOK},
	} {
		lvs, err := readLVs(lvReport(lvRow("lv_attr", `"`+tc.attr+`"`, "lv_health_status", `"`+tc.words+`"`)))
		require.NoError(t, err)
		require.Equal(t, tc.want, lvs[0].Health, tc.attr)
	}
	lvs, err := readLVs(string(recorded(t, "lvs-missing").Stdout))
	require.NoError(t, err)
	require.Equal(t, HealthOK, lvs[0].Health)
	require.Equal(t, HealthPartial, lvs[1].Health)
}

func TestAttributes(t *testing.T) {
	for _, tc := range []struct {
		attr         string
		active, open Known
		readOnly     bool
		skip, zero   bool
	}{
		{"-wi-a-----", Yes, No, false, false, false},
		{"-wi-ao----", Yes, Yes, false, false, false},
		{"-ri-------", No, No, true, false, false},
		{"-Ri-a-----", Yes, No, true, false, false},
		{"Vwi---tz-k", No, No, false, true, true},
		{"-wi-XX----", Unknown, Unknown, false, false, false},
		{"-wi-s-----", Yes, No, false, false, false},
		{"swi-I-s---", Yes, No, false, false, false},
		{"-wi-h-", No, Unknown, false, false, false},
		{"-wi-a-", Yes, No, false, false, false}, // of an old version
	} {
		a, err := ParseAttr(tc.attr)
		if tc.attr == "-wi-h-" {
			tc.open = No
		}
		require.NoError(t, err)
		require.Equal(t, tc.active, a.Active(), tc.attr)
		require.Equal(t, tc.open, a.Open(), tc.attr)
		require.Equal(t, tc.readOnly, a.Permission != PermissionWrite, tc.attr)
		require.Equal(t, tc.skip, a.SkipActivation, tc.attr)
		require.Equal(t, tc.zero, a.Zero, tc.attr)
	}
	for _, attr := range []string{"", "-", "-wi-a"} {
		_, err := ParseAttr(attr)
		require.Error(t, err)
	}
	require.Equal(t, "unknown no yes", strings.Join([]string{Unknown.String(), No.String(), Yes.String()}, " "))
}

// The renaming is the point of no return of a removal; before it a volume is its user's, whatever its tags.
func TestStagesAreReadFromNameAndTags(t *testing.T) {
	for _, tc := range []struct {
		name, tags string
		stage      Stage
		removed    string
	}{
		{"a", "x,y", StageReady, ""},
		{"a", "stateofworld.creating.12", StageCreating, ""},
		{"sow.rm.U", "stateofworld.removed.b,stateofworld.removing.zero", StageRemoving, "b"},
		{"a", "stateofworld.removed.a,stateofworld.removing.zero", StageReady, ""},
		{"sow.rm.U", "", StageReady, ""},
	} {
		lvs, err := readLVs(lvReport(lvRow("lv_name", `"`+tc.name+`"`, "lv_tags", `"`+tc.tags+`"`)))
		require.NoError(t, err)
		require.Equal(t, tc.stage, lvs[0].Stage, tc)
		require.Equal(t, tc.removed, lvs[0].Removed, tc)
	}
}

func TestRecordedGroups(t *testing.T) {
	vgs, err := readVGs(string(recorded(t, "vgs-two").Stdout), "")
	require.NoError(t, err)
	require.Len(t, vgs, 2)
	require.Equal(t, "vg0", vgs[0].Name)
	require.EqualValues(t, 30, vgs[0].Extents)
	require.EqualValues(t, 23, vgs[0].FreeExtents)
	require.EqualValues(t, 23*4<<20, vgs[0].Free)
	require.Len(t, vgs[0].PVs, 2)
	require.Equal(t, []uint64{10, 13}, []uint64{vgs[0].PVs[0].FreeExtents, vgs[0].PVs[1].FreeExtents})
	require.True(t, vgs[0].PVs[0].Allocatable)
	require.True(t, vgs[0].Writable)
	require.Len(t, vgs[1].PVs, 1)

	result := recorded(t, "vgs-missing")
	vgs, err = readVGs(string(result.Stdout), string(result.Stderr))
	require.NoError(t, err)
	require.True(t, vgs[0].Partial)
	require.Equal(t, 1, vgs[0].MissingPVs)
	require.Equal(t, 1, len(vgs[0].PVs)-len(byRoom(vgs[0].PVs)), "what is missing is no place for anything")
	require.Empty(t, vgs[0].PVs[0].Device)
	require.True(t, vgs[0].PVs[0].Missing)

	result = recorded(t, "vgs-duplicate")
	vgs, err = readVGs(string(result.Stdout), string(result.Stderr))
	require.NoError(t, err)
	require.True(t, vgs[0].PVs[0].Duplicate)
	require.False(t, vgs[0].PVs[1].Duplicate)

	vgs, err = readVGs(string(recorded(t, "vgs-exported").Stdout), "")
	require.NoError(t, err)
	require.True(t, vgs[0].Exported)

	result = recorded(t, "vgs-all-foreign")
	vgs, err = readVGs(string(result.Stdout), string(result.Stderr))
	require.NoError(t, err)
	require.Len(t, vgs, 1, "the other host's is not shown")
}

func TestMalformedGroupsAreErrors(t *testing.T) {
	whole := string(recorded(t, "vgs-one").Stdout)
	for _, field := range []string{"vg_uuid", "vg_name", "vg_size", "vg_free", "vg_extent_size", "vg_extent_count", "vg_free_count", "vg_attr", "pv_uuid", "pv_attr"} {
		_, err := readVGs(strings.Replace(whole, `"`+field+`"`, `"other"`, 1), "")
		require.Error(t, err, field)
	}
	for old, replacement := range map[string]string{
		`"vg_extent_size":"4194304"`: `"vg_extent_size":"0"`,
		`"wz--n-"`:                   `"wz"`,
		`"pv_attr":"a--"`:            `"pv_attr":"a"`,
		`"pv_pe_alloc_count":"5"`:    `"pv_pe_alloc_count":"500"`,
	} {
		require.Contains(t, whole, old)
		_, err := readVGs(strings.Replace(whole, old, replacement, 1), "")
		require.Error(t, err, replacement)
	}
	for n := 0; n < len(strings.TrimSpace(whole)); n += 7 {
		_, err := readVGs(whole[:n], "")
		require.Error(t, err)
	}
}

func FuzzLVs(f *testing.F) {
	for _, name := range []string{"lvs-two", "lvs-missing", "lvs-log", "lvs-no-lv", "lvs-device-mapper-all"} {
		f.Add(string(recorded(f, name).Stdout))
	}
	f.Add(lvReport(lvRow("lv_tags", `["a",null,1]`)))
	f.Add(`{"report":[{"lv":[{"lv_uuid":null}]}],"log":[{"log_type":"error"}]}`)
	f.Fuzz(func(t *testing.T, text string) {
		lvs, err := readLVs(text)
		if err != nil {
			require.Nil(t, lvs)
			return
		}
		seen := map[Name]bool{}
		for _, lv := range lvs {
			require.NotEmpty(t, lv.UUID)
			require.NotEmpty(t, lv.LV)
			require.NotEmpty(t, lv.VG)
			require.False(t, seen[lv.Name])
			seen[lv.Name] = true
			require.NotNil(t, lv.Tags)
		}
	})
}

func FuzzVGs(f *testing.F) {
	for _, name := range []string{"vgs-two", "vgs-missing", "vgs-duplicate", "vgs-exported", "vgs-all-foreign"} {
		result := recorded(f, name)
		f.Add(string(result.Stdout), string(result.Stderr))
	}
	f.Fuzz(func(t *testing.T, text, stderr string) {
		vgs, err := readVGs(text, stderr)
		if err != nil {
			require.Nil(t, vgs)
			return
		}
		for _, vg := range vgs {
			require.NotEmpty(t, vg.Name)
			require.NotZero(t, vg.ExtentSize)
			require.NotEmpty(t, vg.PVs)
			for _, pv := range vg.PVs {
				require.LessOrEqual(t, pv.FreeExtents, pv.Extents)
			}
		}
	})
}
