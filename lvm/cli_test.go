package lvm_test

import (
	"encoding/json"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stateofworld/stateofworld/executor/command"
	"github.com/stateofworld/stateofworld/fake"
	"github.com/stateofworld/stateofworld/lvm"
)

const gib = 1 << 30

// lvRow is a row of lvs: a linear volume vg0/a of 1 GiB with changes.
func lvRow(changes map[string]string) map[string]string {
	row := map[string]string{
		"lv_uuid": "fake00-0000-0000-0000-0000-0000-000001", "lv_name": "a", "vg_name": "vg0", "lv_size": "1073741824", "lv_attr": "-wi-a-----", "lv_tags": "",
		"lv_layout": "linear", "lv_role": "public", "origin": "", "pool_lv": "", "lv_kernel_major": "253", "lv_kernel_minor": "4", "vg_extent_size": "4194304",
	}
	maps.Copy(row, changes)
	return row
}

// report is the output of a report command.
func report(section string, rows ...map[string]string) string {
	if rows == nil {
		rows = []map[string]string{}
	}
	out, err := json.Marshal(map[string]any{"report": []any{map[string]any{section: rows}}})
	if err != nil {
		panic(err)
	}
	return string(out)
}

// pvRow is a row of vgs with the fields of a physical volume of so many extents of 4 MiB.
func pvRow(device, free string, changes map[string]string) map[string]string {
	row := map[string]string{
		"vg_uuid": "G", "vg_name": "vg0", "vg_attr": "wz--n-", "vg_size": "4294967296", "vg_free": "4294967296", "vg_extent_size": "4194304", "vg_extent_count": "1024", "vg_free_count": "1024",
		"vg_missing_pv_count": "0", "pv_uuid": "P" + device, "pv_name": device, "pv_attr": "a--", "pv_pe_count": free, "pv_pe_alloc_count": "0",
	}
	maps.Copy(row, changes)
	return row
}

const ownConfig = `log{prefix="" command_names=0 report_command_log=0}`

// expectLVS expects a report about the volumes of vg0.
func expectLVS(r *fake.Runner, selection string) *fake.Expected {
	args := []string{"lvs", "--config", ownConfig, "--reportformat", "json", "--units", "b", "--nosuffix", "-qq", "-o", fake.AnyArg}
	if selection != "" {
		args = append(args, "-S", selection)
	}
	return r.Expect(append(args, "--", "vg0")...)
}

func expectVGS(r *fake.Runner) *fake.Expected {
	return r.Expect("vgs", "--config", ownConfig, "--reportformat", "json", "--units", "b", "--nosuffix", "-qq", "-o", fake.AnyArg, "--", "vg0")
}

func expect(r *fake.Runner, program string, args ...string) *fake.Expected {
	return r.Expect(append([]string{program, "--config", ownConfig}, args...)...)
}

var vg0a = lvm.Name{VG: "vg0", LV: "a"}

// L12, alibaba/open-local#123; L14, topolvm PR#844; L07, hansmi/prometheus-lvm-exporter#125
func TestCreateAsksNothingWipesSignaturesAndMarksWhatIsHalfMade(t *testing.T) {
	r := fake.NewRunner(t)
	c := lvm.NewCLI(r, lvm.Options{Env: []string{"LVM_SYSTEM_DIR=/x"}})
	expectLVS(r, `lv_name="a"`).Stdout(report("lv")).Env("LVM_SUPPRESS_FD_WARNINGS=1", "LVM_SYSTEM_DIR=/x")
	expect(r, "lvcreate", "-y", "--addtag", fake.AnyArg, "--addtag", "t", "-n", "a", "-L", "1073742336b", "-Zy", "-Wy", "--", "vg0").
		Stdout("  Logical volume \"a\" created.\n").Stderr("  WARNING: something harmless\n")
	expect(r, "lvchange", "--deltag", fake.AnyArg, "--", "vg0/a")
	expectLVS(r, `lv_name="a"`).Stdout(report("lv", lvRow(map[string]string{"lv_size": "1077936128", "lv_tags": "t"})))
	lv, err := c.Create(t.Context(), lvm.CreateOptions{VG: "vg0", Name: "a", Size: gib + 1, Tags: []string{"t"}})
	require.NoError(t, err)
	require.EqualValues(t, 1077936128, lv.Size)
	calls := r.Calls()
	mark := calls[1].Argv[slices.Index(calls[1].Argv, "--addtag")+1]
	require.Regexp(t, `^stateofworld\.creating\.[0-9a-f]{16}$`, mark)
	require.Equal(t, mark, calls[2].Argv[slices.Index(calls[2].Argv, "--deltag")+1], "exactly the mark of this attempt is taken off")
	for _, call := range calls {
		for _, entry := range call.Env {
			require.False(t, strings.HasPrefix(entry, "LC_ALL="), "the runner's affair")
		}
	}
}

// L12: what a failed lvcreate leaves is removed, if it is this attempt's, and the next one succeeds.
func TestCreateRemovesWhatItsFailedAttemptHasLeft(t *testing.T) {
	const signature = "  WARNING: ext4 signature detected on /dev/vg0/a at offset 1080. Wipe it? [y/n]: [n]\n  Aborted wiping of ext4.\n  Failed to wipe signatures on logical volume vg0/a.\n"
	for _, tc := range []struct {
		name   string
		left   func(mark string) []map[string]string
		remove bool
	}{
		{"nothing left", func(string) []map[string]string { return nil }, false},
		{"its own", func(mark string) []map[string]string {
			return []map[string]string{lvRow(map[string]string{"lv_tags": mark})}
		}, true},
		{"someone else's", func(string) []map[string]string { return []map[string]string{lvRow(nil)} }, false},
		{"another attempt's", func(string) []map[string]string {
			return []map[string]string{lvRow(map[string]string{"lv_tags": "stateofworld.creating.0"})}
		}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := fake.NewRunner(t)
			expectLVS(r, `lv_name="a"`).Stdout(report("lv"))
			var after *fake.Expected
			expect(r, "lvcreate", fake.AnyArgs).Exit(5).Stderr(signature).Do(func(cmd command.Command) {
				after.Stdout(report("lv", tc.left(cmd.Argv[slices.Index(cmd.Argv, "--addtag")+1])...))
			})
			after = expectLVS(r, `lv_name="a"`)
			if tc.remove {
				expect(r, "lvremove", "-y", "-S", fake.AnyArg, "--", "vg0/a")
			}
			_, err := lvm.NewCLI(r, lvm.Options{}).Create(t.Context(), lvm.CreateOptions{VG: "vg0", Name: "a", Size: gib})
			var failure *lvm.Error
			require.ErrorAs(t, err, &failure)
			require.Equal(t, 5, failure.ExitCode)
			require.Contains(t, err.Error(), "ext4 signature detected")
			require.NotErrorIs(t, err, lvm.ErrExists)
		})
	}
}

// L12: `Option --wipesignatures is unsupported with snapshots`
func TestSnapshotsAreNotWiped(t *testing.T) {
	r := fake.NewRunner(t)
	expectLVS(r, `lv_name="s" || lv_name="a"`).Stdout(report("lv", lvRow(nil)))
	expect(r, "lvcreate", "-y", "--addtag", fake.AnyArg, "-s", "-n", "s", "-L", "4194304b", "--", "vg0/a")
	expect(r, "lvchange", "--deltag", fake.AnyArg, "--", "vg0/s")
	expectLVS(r, `lv_name="s"`).Stdout(report("lv", lvRow(map[string]string{"lv_name": "s", "origin": "a", "lv_attr": "swi-a-s---"})))
	s, err := lvm.NewCLI(r, lvm.Options{}).Snapshot(t.Context(), lvm.SnapshotOptions{VG: "vg0", Name: "s", Origin: "a", Size: 4 << 20})
	require.NoError(t, err)
	require.Equal(t, lvm.ThickSnapshot, s.Layout)
}

// L22, harvester/harvester#11328
func TestExistingVolumeIsComparedAndNothingRuns(t *testing.T) {
	for _, tc := range []struct {
		name string
		row  map[string]string
		ok   bool
	}{
		{"the same", nil, true},
		{"rounded up by less than an extent", map[string]string{"lv_size": "1077936127"}, true},
		{"a whole extent more", map[string]string{"lv_size": "1077936128"}, false},
		{"half", map[string]string{"lv_size": "536870912"}, false},
		{"a snapshot", map[string]string{"lv_attr": "swi-a-s---", "origin": "b"}, false},
		{"a thin snapshot", map[string]string{"lv_attr": "Vwi-a-tz--", "origin": "b", "pool_lv": "p"}, false},
		{"in a pool", map[string]string{"lv_attr": "Vwi-a-tz--", "pool_lv": "p"}, false},
		{"an origin", map[string]string{"lv_attr": "owi-a-s---"}, true},
		{"inactive", map[string]string{"lv_attr": "-wi-------"}, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := fake.NewRunner(t)
			expectLVS(r, `lv_name="a"`).Stdout(report("lv", lvRow(tc.row)))
			_, err := lvm.NewCLI(r, lvm.Options{}).Create(t.Context(), lvm.CreateOptions{VG: "vg0", Name: "a", Size: gib})
			if tc.ok {
				require.NoError(t, err)
				return
			}
			require.ErrorIs(t, err, lvm.ErrExistsMismatch)
			var mismatch *lvm.MismatchError
			require.ErrorAs(t, err, &mismatch)
			require.NotEmpty(t, mismatch.Want)
		})
	}
}

// L16, alibaba/open-local#5
func TestStripedVolumeNamesThePhysicalVolumesWithRoom(t *testing.T) {
	three := []map[string]string{pvRow("/dev/sda", "135", nil), pvRow("/dev/sdb", "2688", nil), pvRow("/dev/sdc", "7680", nil)}
	for _, tc := range []struct {
		name   string
		rows   []map[string]string
		change func(*lvm.CreateOptions)
		args   []string // nil: refused
		kind   error
	}{
		{"those with room", three, nil, []string{"-i", "2", "-n", "a", "-L", "3221225472b", "-Zy", "-Wy", "--", "vg0", "/dev/sdb", "/dev/sdc"}, nil},
		{"stripe size", three, func(o *lvm.CreateOptions) { o.StripeSize = 128 << 10 }, []string{"-i", "2", "-I", "131072b", "-n", "a", "-L", "3221225472b", "-Zy", "-Wy", "--", "vg0", "/dev/sdb", "/dev/sdc"}, nil},
		{"more than have room", three, func(o *lvm.CreateOptions) { o.Stripes = 3 }, nil, lvm.ErrNotStripable},
		{"one physical volume", three[2:], nil, nil, lvm.ErrNotStripable},
		{"linear allowed", three[2:], func(o *lvm.CreateOptions) { o.AllowLinear = true }, []string{"-n", "a", "-L", "3221225472b", "-Zy", "-Wy", "--", "vg0"}, nil},
		{"one is missing", []map[string]string{
			pvRow("/dev/sdb", "2688", map[string]string{"vg_attr": "wz-pn-", "vg_missing_pv_count": "1"}),
			pvRow("[unknown]", "7680", map[string]string{"pv_attr": "a-m", "vg_attr": "wz-pn-", "vg_missing_pv_count": "1"}),
		}, nil, nil, lvm.ErrPartialVG},
		{"exported", []map[string]string{pvRow("/dev/sda", "1", map[string]string{"vg_attr": "wzx-n-"})}, nil, nil, lvm.ErrExported},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := fake.NewRunner(t)
			expectLVS(r, `lv_name="a"`).Stdout(report("lv"))
			expectVGS(r).Stdout(report("vg", tc.rows...))
			if tc.args != nil {
				expect(r, "lvcreate", append([]string{"-y", "--addtag", fake.AnyArg}, tc.args...)...)
				expect(r, "lvchange", "--deltag", fake.AnyArg, "--", "vg0/a")
				made := map[string]string{"lv_size": "3221225472", "lv_layout": "striped"}
				if tc.args[0] != "-i" {
					made["lv_layout"] = "linear"
				}
				expectLVS(r, `lv_name="a"`).Stdout(report("lv", lvRow(made)))
			}
			o := lvm.CreateOptions{VG: "vg0", Name: "a", Size: 3 * gib, Layout: lvm.Striped}
			if tc.change != nil {
				tc.change(&o)
			}
			_, err := lvm.NewCLI(r, lvm.Options{}).Create(t.Context(), o)
			if tc.kind != nil {
				require.ErrorIs(t, err, tc.kind)
				return
			}
			require.NoError(t, err)
		})
	}
	t.Run("a failed look is no linear volume", func(t *testing.T) {
		r := fake.NewRunner(t)
		expectLVS(r, `lv_name="a"`).Stdout(report("lv"))
		expectVGS(r).Exit(5).Stdout(report("vg"))
		_, err := lvm.NewCLI(r, lvm.Options{}).Create(t.Context(), lvm.CreateOptions{VG: "vg0", Name: "a", Size: gib, Layout: lvm.Striped, AllowLinear: true})
		require.Error(t, err)
	})
}

// L36, kubernetes/kubernetes#16971
func TestNothingInvalidReachesACommandLine(t *testing.T) {
	c := lvm.NewCLI(fake.NewRunner(t), lvm.Options{}) // fails on any command
	ctx := t.Context()
	for _, vg := range []string{"vg0; rm -rf /", "-f", "@all", "$(id)", "", "vg0/a", "..", "vg0\n"} {
		_, err := c.Create(ctx, lvm.CreateOptions{VG: vg, Name: "a", Size: gib})
		require.ErrorIs(t, err, lvm.ErrInvalid, vg)
		require.ErrorIs(t, c.Remove(ctx, lvm.Name{VG: vg, LV: "a"}, lvm.RemoveOptions{}), lvm.ErrInvalid, vg)
		_, err = c.List(ctx, vg)
		require.ErrorIs(t, err, lvm.ErrInvalid, vg)
	}
	for _, spec := range []string{"vg0", "vg0/", "/a", "vg0//a", "vg0/a/b", "@t/a", "vg0/../a"} {
		_, err := lvm.ParseName(spec)
		require.ErrorIs(t, err, lvm.ErrInvalid, spec)
	}
	require.ErrorIs(t, c.Remove(ctx, lvm.Name{VG: "vg0"}, lvm.RemoveOptions{}), lvm.ErrInvalid, "never a group alone")
	// L14
	for _, size := range []uint64{0, math.MaxUint64} {
		_, err := c.Create(ctx, lvm.CreateOptions{VG: "vg0", Name: "a", Size: size})
		require.ErrorIs(t, err, lvm.ErrInvalid)
	}
}

// L34, metal-stack/csi-driver-lvm PR#153, LINBIT/linstor-server#39
func TestActivateOverridesSkippingAndOnlyThen(t *testing.T) {
	for _, tc := range []struct {
		before, after string
		args          []string
	}{
		{"-wi-------", "-wi-a-----", []string{"-ay", "--", "vg0/a"}},
		{"Vwi---tz-k", "Vwi-a-tz-k", []string{"-ay", "-K", "--", "vg0/a"}},
		{"-wi-a-----", "", nil},
		{"-wi-ao----", "", nil},
	} {
		r := fake.NewRunner(t)
		expectLVS(r, `lv_name="a"`).Stdout(report("lv", lvRow(map[string]string{"lv_attr": tc.before})))
		if tc.args != nil {
			expect(r, "lvchange", tc.args...)
			expectLVS(r, `lv_name="a"`).Stdout(report("lv", lvRow(map[string]string{"lv_attr": tc.after})))
		}
		lv, err := lvm.NewCLI(r, lvm.Options{}).Activate(t.Context(), vg0a, lvm.ActivateOptions{})
		require.NoError(t, err)
		require.Equal(t, lvm.Yes, lv.Active)
	}
	// lvchange exits with 0 for what it skips.
	r := fake.NewRunner(t)
	expectLVS(r, `lv_name="a"`).Stdout(report("lv", lvRow(map[string]string{"lv_attr": "-wi-------"}))).Times(1)
	expect(r, "lvchange", "-ay", "--", "vg0/a")
	expectLVS(r, `lv_name="a"`).Stdout(report("lv", lvRow(map[string]string{"lv_attr": "-wi-------"})))
	_, err := lvm.NewCLI(r, lvm.Options{}).Activate(t.Context(), vg0a, lvm.ActivateOptions{})
	require.ErrorContains(t, err, "had no effect")
}

// L18, lvmteam/lvm2#70
func TestOptionsReachEveryCommand(t *testing.T) {
	r := fake.NewRunner(t)
	c := lvm.NewCLI(r, lvm.Options{GlobalArgs: []string{"--devices", "/dev/sdb"}, Config: "devices{scan_lvs=0}", InContainer: true, NoDeviceMapper: true})
	config := ownConfig + " activation{udev_sync=0 udev_rules=0} devices{scan_lvs=0}"
	prefix := []string{"--devices", "/dev/sdb", "--driverloaded", "n", "--config", config}
	r.Expect(append(append([]string{"lvs"}, prefix...), fake.AnyArgs)...).Stdout(report("lv"))
	r.Expect(append(append([]string{"lvcreate"}, prefix...), "-y", "--addtag", fake.AnyArg, "-n", "a", "-L", "1073741824b", "-an", "-Zn", "-Wn", "--", "vg0")...)
	r.Expect(append(append([]string{"lvchange"}, prefix...), fake.AnyArgs)...)
	r.Expect(append(append([]string{"lvs"}, prefix...), fake.AnyArgs)...).Stdout(report("lv", lvRow(map[string]string{"lv_attr": "-wi-XX----"})))
	_, err := c.Create(t.Context(), lvm.CreateOptions{VG: "vg0", Name: "a", Size: gib})
	require.NoError(t, err)
}

// L17, openebs/lvm-localpv#458, topolvm/topolvm#1101
func TestThinPoolBudget(t *testing.T) {
	pool := func(changes map[string]string) map[string]string {
		row := lvRow(map[string]string{"lv_uuid": "fake00-0000-0000-0000-0000-0000-00000P", "lv_name": "pool", "lv_attr": "twi-aotz--", "lv_size": "107374182400", "data_percent": "10.00", "metadata_percent": "5.00"})
		maps.Copy(row, changes)
		return row
	}
	member := func(size, name string) map[string]string {
		return lvRow(map[string]string{"lv_uuid": "fake00-0000-0000-0000-0000-0000-" + (name + "000000")[:6], "lv_name": name, "lv_attr": "Vwi-a-tz--", "pool_lv": "pool", "lv_size": size})
	}
	const selection = `lv_name="pool" || pool_lv="pool"`
	for _, tc := range []struct {
		name      string
		pool      map[string]string
		members   []map[string]string
		available uint64
		full      bool
	}{
		{"twice its size, less volumes and snapshots", nil, []map[string]string{member("53687091200", "v"), member("32212254720", "snap")}, 120 * gib, false},
		{"beyond is 0", nil, []map[string]string{member("225485783040", "v")}, 0, false},
		{"data nearly full", map[string]string{"data_percent": "95.00"}, nil, 0, true},
		{"metadata nearly full", map[string]string{"metadata_percent": "97,00"}, nil, 0, true},
		{"inactive: unknown, not empty", map[string]string{"data_percent": "", "metadata_percent": ""}, nil, 200 * gib, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := fake.NewRunner(t)
			rows := append([]map[string]string{pool(tc.pool)}, tc.members...)
			expectLVS(r, selection).Stdout(report("lv", rows...))
			c := lvm.NewCLI(r, lvm.Options{})
			got, err := c.Capacity(t.Context(), lvm.CapacityOptions{VG: "vg0", Layout: lvm.Thin, ThinPool: "pool", Overprovision: 2})
			require.NoError(t, err)
			require.Equal(t, tc.available, got.Available)
			require.Equal(t, tc.full, got.Full)
			require.Equal(t, !strings.Contains(tc.name, "unknown"), got.DataPercent.Known)

			// The same decides over a new volume.
			expectLVS(r, `lv_name="a"`).Stdout(report("lv"))
			expectLVS(r, selection).Stdout(report("lv", rows...))
			fits := tc.available >= gib
			if fits {
				expect(r, "lvcreate", "-y", "--addtag", fake.AnyArg, "-n", "a", "-V", "1073741824b", "--thinpool", "pool", "-Wy", "--", "vg0")
				expect(r, "lvchange", "--deltag", fake.AnyArg, "--", "vg0/a")
				expectLVS(r, `lv_name="a"`).Stdout(report("lv", member("1073741824", "a")))
			}
			_, err = c.Create(t.Context(), lvm.CreateOptions{VG: "vg0", Name: "a", Size: gib, Layout: lvm.Thin, ThinPool: "pool", Overprovision: 2})
			if fits {
				require.NoError(t, err)
			} else {
				require.ErrorIs(t, err, lvm.ErrNoSpace)
			}
		})
	}
}

// L01, openebs/lvm-localpv#247
func TestWarningsAreNotData(t *testing.T) {
	r := fake.NewRunner(t)
	r.Expect("vgs", fake.AnyArgs).Stdout(report("vg", pvRow("/dev/sda", "10", nil))).
		Stderr("  WARNING: Device /dev/sdb has size of 1 sectors which is smaller than corresponding PV size of 2 sectors. Was device resized?\nFile descriptor 10 (/dev/null) leaked on vgs invocation. Parent PID 7: agent\n")
	vgs, err := lvm.NewCLI(r, lvm.Options{}).VolumeGroups(t.Context())
	require.NoError(t, err)
	require.Len(t, vgs, 1)
	require.Len(t, vgs[0].PVs, 1)
}

func TestFailedOrUnreadableReportsAreErrorsAndNeverEmpty(t *testing.T) {
	for name, answer := range map[string]func(*fake.Expected){
		"rows and exit code 5": func(e *fake.Expected) { e.Stdout(report("lv", lvRow(nil))).Exit(5) },
		"cut off":              func(e *fake.Expected) { e.Stdout(report("lv", lvRow(nil))[:100]) },
		"nothing":              func(e *fake.Expected) {},
		"not there":            func(e *fake.Expected) { e.SpawnError() },
		"killed":               func(e *fake.Expected) { e.Fail(&command.SignalError{Argv: []string{"lvs"}}) },
	} {
		t.Run(name, func(t *testing.T) {
			r := fake.NewRunner(t)
			answer(r.Expect("lvs", fake.AnyArgs))
			answer(r.Expect("lvs", fake.AnyArgs))
			c := lvm.NewCLI(r, lvm.Options{})
			lvs, err := c.List(t.Context(), "vg0")
			require.Error(t, err)
			require.Nil(t, lvs)
			_, err = c.Get(t.Context(), vg0a)
			require.Error(t, err)
			require.NotErrorIs(t, err, lvm.ErrNotFound)
			if name == "cut off" || name == "nothing" {
				require.ErrorIs(t, err, lvm.ErrBadOutput)
			}
			var failure *lvm.Error
			require.ErrorAs(t, err, &failure)
			require.Equal(t, "get", failure.Op)
			require.Equal(t, "vg0/a", failure.Object)
			require.NotEmpty(t, failure.Argv)
		})
	}
}
