package lvm_test

import (
	"maps"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stateofworld/stateofworld/fake"
	"github.com/stateofworld/stateofworld/lvm"
)

// selectA finds what concerns the removal of vg0/a.
const selectA = `lv_name="a" || origin="a" || pool_lv="a" || lv_tags={"stateofworld.removed.a"}`

// L09, topolvm/topolvm#889; L10, openebs/lvm-localpv#15
func TestRemoveTellsAbsentFromInUseFromUnknown(t *testing.T) {
	for _, tc := range []struct {
		name, stderr string
		kind         error
		ok           bool
	}{
		{"removed", "", nil, true},
		{"gone meanwhile", `  Failed to find logical volume "vg0/a"`, nil, true},
		{"in use", `  Logical volume vg0/a in use.`, lvm.ErrInUse, false},
		{"mounted", `  Logical volume vg0/a contains a filesystem in use.`, lvm.ErrInUse, false},
		{"used by another device", `  Logical volume vg0/a is used by another device.`, lvm.ErrInUse, false},
		{"lock", `  Can't get lock for vg0`, nil, false},
		{"silence", ``, nil, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := fake.NewRunner(t)
			expectLVS(r, selectA).Stdout(report("lv", lvRow(map[string]string{"lv_attr": "-wi-------"})))
			remove := expect(r, "lvremove", "-y", "-S", `lv_uuid="fake00-0000-0000-0000-0000-0000-000001"`, "--", "vg0/a").Stderr(tc.stderr)
			if tc.name != "removed" {
				remove.Exit(5)
			}
			err := lvm.NewCLI(r, lvm.Options{}).Remove(t.Context(), vg0a, lvm.RemoveOptions{})
			if tc.ok {
				require.NoError(t, err)
				return
			}
			require.Error(t, err)
			require.NotErrorIs(t, err, lvm.ErrNotFound)
			if tc.kind != nil {
				require.ErrorIs(t, err, tc.kind)
			}
		})
	}
	t.Run("absent", func(t *testing.T) {
		r := fake.NewRunner(t)
		expectLVS(r, selectA).Stdout(report("lv"))
		require.NoError(t, lvm.NewCLI(r, lvm.Options{}).Remove(t.Context(), vg0a, lvm.RemoveOptions{}))
	})
	for text, kind := range map[string]error{
		`  Volume group "vg0" not found`:                                            lvm.ErrVGNotFound,
		`  Volume group vg0 is exported`:                                            lvm.ErrExported,
		`  Cannot access VG vg0 with system ID other with unknown local system ID.`: lvm.ErrForeign,
	} {
		t.Run(kind.Error(), func(t *testing.T) {
			r := fake.NewRunner(t)
			expectLVS(r, selectA).Exit(5).Stdout(report("lv")).Stderr(text)
			require.ErrorIs(t, lvm.NewCLI(r, lvm.Options{}).Remove(t.Context(), vg0a, lvm.RemoveOptions{}), kind, "a disk that vanished is no removal")
		})
	}
}

// L13, topolvm/topolvm#1150, Azure/local-csi-driver PR#584
func TestRemoveRenamesOutOfTheWayBeforeItWipes(t *testing.T) {
	const quarantine = "sow.rm.fake0000000000000000000000000001"
	r := fake.NewRunner(t)
	expectLVS(r, selectA).Stdout(report("lv", lvRow(nil)))
	expect(r, "lvchange", "-an", "--", "vg0/a")
	expect(r, "lvchange", "--addtag", "stateofworld.removing.zero", "--addtag", "stateofworld.removed.a", "--", "vg0/a")
	expect(r, "lvrename", "--", "vg0", "a", quarantine)
	renamed := lvRow(map[string]string{"lv_name": quarantine, "lv_attr": "-wi-------", "lv_tags": "stateofworld.removed.a,stateofworld.removing.zero"})
	expectLVS(r, `lv_name="`+quarantine+`" || origin="`+quarantine+`"`).Stdout(report("lv", renamed))
	expect(r, "lvchange", "-ay", "--", "vg0/"+quarantine)
	r.Expect("blkdiscard", "-z", "-p", "67108864", "--", "/dev/vg0/"+quarantine)
	expect(r, "lvremove", "-y", "-S", `lv_uuid="fake00-0000-0000-0000-0000-0000-000001"`, "--", "vg0/"+quarantine)
	require.NoError(t, lvm.NewCLI(r, lvm.Options{}).Remove(t.Context(), vg0a, lvm.RemoveOptions{Wipe: lvm.WipeZero}))

	t.Run("one that is open is not touched", func(t *testing.T) {
		r := fake.NewRunner(t)
		expectLVS(r, selectA).Stdout(report("lv", lvRow(map[string]string{"lv_attr": "-wi-ao----"})))
		require.ErrorIs(t, lvm.NewCLI(r, lvm.Options{}).Remove(t.Context(), vg0a, lvm.RemoveOptions{Wipe: lvm.WipeZero}), lvm.ErrInUse)
	})
	t.Run("one that is opened after the look is not touched either", func(t *testing.T) {
		r := fake.NewRunner(t)
		expectLVS(r, selectA).Stdout(report("lv", lvRow(nil)))
		expect(r, "lvchange", "-an", "--", "vg0/a").Exit(5).Stderr("  Logical volume vg0/a contains a filesystem in use.\n")
		require.ErrorIs(t, lvm.NewCLI(r, lvm.Options{}).Remove(t.Context(), vg0a, lvm.RemoveOptions{Wipe: lvm.WipeSignatures}), lvm.ErrInUse)
	})
	t.Run("a wipe that was cut off is begun again", func(t *testing.T) {
		for policy, tool := range map[lvm.WipePolicy][]string{
			lvm.WipeSignatures: {"wipefs", "-a"}, lvm.WipeZero: {"blkdiscard", "-z", "-p", "67108864"}, lvm.WipeDiscard: {"blkdiscard", "-p", "67108864"},
		} {
			r := fake.NewRunner(t)
			renamed := lvRow(map[string]string{"lv_name": quarantine, "lv_tags": "stateofworld.removed.a,stateofworld.removing." + string(policy)})
			expectLVS(r, "").Stdout(report("lv", lvRow(map[string]string{"lv_uuid": "fake00-0000-0000-0000-0000-0000-00000O", "lv_name": "a"}), renamed))
			expectLVS(r, `lv_name="`+quarantine+`" || origin="`+quarantine+`"`).Stdout(report("lv", renamed))
			r.Expect(append(tool, "--", "/dev/vg0/"+quarantine)...)
			expect(r, "lvremove", "-y", "-S", `lv_uuid="fake00-0000-0000-0000-0000-0000-000001"`, "--", "vg0/"+quarantine)
			n, err := lvm.NewCLI(r, lvm.Options{}).FinishRemovals(t.Context(), "vg0")
			require.NoError(t, err)
			require.Equal(t, 1, n)
		}
	})
	t.Run("a wipe that failed leaves the volume where it is", func(t *testing.T) {
		r := fake.NewRunner(t)
		renamed := lvRow(map[string]string{"lv_name": quarantine, "lv_tags": "stateofworld.removed.a,stateofworld.removing.zero"})
		expectLVS(r, selectA).Stdout(report("lv", renamed))
		expectLVS(r, `lv_name="`+quarantine+`" || origin="`+quarantine+`"`).Stdout(report("lv", renamed))
		r.Expect("blkdiscard", fake.AnyArgs).Exit(1).Stderr("blkdiscard: BLKZEROOUT ioctl failed: Input/output error\n")
		err := lvm.NewCLI(r, lvm.Options{}).Remove(t.Context(), vg0a, lvm.RemoveOptions{Wipe: lvm.WipeZero})
		require.ErrorContains(t, err, "Input/output error")
	})
}

// L28, sodafoundation/api#356
func TestRemoveKnowsThickSnapshotsFromThinOnes(t *testing.T) {
	a := lvRow(map[string]string{"lv_attr": "owi-a-s---"})
	thick := lvRow(map[string]string{"lv_uuid": "fake00-0000-0000-0000-0000-0000-00000S", "lv_name": "s1", "lv_attr": "swi-a-s---", "origin": "a"})
	thin := lvRow(map[string]string{"lv_uuid": "fake00-0000-0000-0000-0000-0000-00000T", "lv_name": "t1", "lv_attr": "Vwi-a-tz-k", "origin": "a", "pool_lv": "p"})

	r := fake.NewRunner(t)
	expectLVS(r, selectA).Stdout(report("lv", a, thick, thin))
	err := lvm.NewCLI(r, lvm.Options{}).Remove(t.Context(), vg0a, lvm.RemoveOptions{})
	require.ErrorIs(t, err, lvm.ErrHasSnapshots)
	var dependents *lvm.DependentsError
	require.ErrorAs(t, err, &dependents)
	require.Equal(t, []string{"s1"}, dependents.Names)

	r = fake.NewRunner(t)
	expectLVS(r, selectA).Stdout(report("lv", a, thick, thin))
	expect(r, "lvremove", "-y", "-S", `lv_uuid="fake00-0000-0000-0000-0000-0000-00000S"`, "--", "vg0/s1")
	expect(r, "lvremove", "-y", "-S", `lv_uuid="fake00-0000-0000-0000-0000-0000-000001"`, "--", "vg0/a")
	require.NoError(t, lvm.NewCLI(r, lvm.Options{}).Remove(t.Context(), vg0a, lvm.RemoveOptions{Cascade: true}))

	r = fake.NewRunner(t)
	expectLVS(r, selectA).Stdout(report("lv", lvRow(map[string]string{"lv_attr": "Vwi-a-tz--", "pool_lv": "p"}), thin))
	expect(r, "lvremove", "-y", "-S", `lv_uuid="fake00-0000-0000-0000-0000-0000-000001"`, "--", "vg0/a")
	require.NoError(t, lvm.NewCLI(r, lvm.Options{}).Remove(t.Context(), vg0a, lvm.RemoveOptions{}))

	for _, change := range []map[string]string{{"lv_attr": "swi-aos---"}, {"lv_tags": "protected"}} {
		held := maps.Clone(thick)
		maps.Copy(held, change)
		r = fake.NewRunner(t)
		expectLVS(r, selectA).Stdout(report("lv", a, held))
		require.Error(t, lvm.NewCLI(r, lvm.Options{}).Remove(t.Context(), vg0a, lvm.RemoveOptions{Cascade: true}), "all are looked at before any is touched")
	}
}
