package lvm

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/stateofworld/stateofworld/executor/command"
)

// The literal messages of lvm2 2.03.16, unless noted, and what they mean. L09, topolvm/topolvm#889: exit code 5 alone
// means nothing.
func TestMessagesOfLVMAreToldApart(t *testing.T) {
	for _, tc := range []struct {
		text string
		kind error
	}{
		{"  Volume group \"V\" not found\n  Cannot process volume group V\n", ErrVGNotFound},
		{`  Failed to find logical volume "V/L"`, ErrNotFound},
		{`  Existing logical volume "x" not found in volume group "vg0"`, ErrNotFound},
		{`  Snapshot origin LV nope not found in Volume group vg0.`, ErrNotFound},
		{`  Pool nope not found in Volume group vg0.`, ErrNotFound},
		{`  Logical Volume "L" already exists in volume group "V"`, ErrExists},
		{`  Volume group "V" has insufficient free space (93 extents): 2560 required.`, ErrNoSpace},
		{`  Insufficient free space: 4 extents needed, but only 0 available`, ErrNoSpace},
		{`  Insufficient suitable allocatable extents for logical volume L: 494 more required`, ErrNoSpace},
		{`  Number of stripes (3) must not exceed number of physical volumes (2)`, ErrNotStripable},
		{"  WARNING: VG vg0 is missing PV bE8HUt (last written to /dev/loop1).\n  Cannot change VG V while PVs are missing.\n", ErrPartialVG},
		{`  Cannot update volume group V with duplicate PV devices.`, ErrDuplicatePV},
		{`  Volume group V is exported`, ErrExported},
		{`  Cannot access VG V with system ID other with unknown local system ID.`, ErrForeign},
		{`  Logical volume V/L in use.`, ErrInUse},
		{`  Logical volume V/L contains a filesystem in use.`, ErrInUse},
		{`  Logical volume V/L is used by another device.`, ErrInUse},
		{"  thin: Required device-mapper target(s) not detected in your kernel.\n  Run `lvcreate --help' for more information.", ErrUnsupported},
		{`  Can't create raid1 without using device-mapper kernel driver.`, ErrUnsupported},
		{`  Can't get lock for vg0`, nil},
		{"  /dev/V/L: not found: device not cleared\n  Aborting. Failed to wipe start of new LV.\n", nil},
		{"  WARNING: ext4 signature detected on /dev/V/L at offset 1080. Wipe it? [y/n]: [n]\n  Aborted wiping of ext4.\n  1 existing signature left on the device.\n", nil},
		{`  New size (3 extents) matches existing size (3 extents).`, nil},
		{`  Device /dev/sda is in use`, nil},
		{``, nil},
	} {
		require.Equal(t, tc.kind, classify(5, tc.text), tc.text)
		if tc.kind != ErrUnsupported {
			require.NoError(t, classify(3, tc.text), "a command line that is wrong says nothing about volumes")
		}
		e := describe("remove", "V/L", []string{"lvremove"}, command.Result{ExitCode: 5, Stderr: []byte(tc.text)})
		for _, kind := range []error{ErrNotFound, ErrVGNotFound, ErrInUse, ErrNoSpace} {
			require.Equal(t, kind == tc.kind, errors.Is(e, kind), "%s: %v", tc.text, kind)
		}
	}
}

func TestErrorsSayWhatFailedOnWhatAndWhy(t *testing.T) {
	e := describe("create", "vg0/a", []string{"lvcreate", "-n", "a"}, command.Result{ExitCode: 5, Stderr: []byte("  one\n\n  two\n")})
	require.Equal(t, `lvm: create vg0/a (lvcreate -n a: exit code 5: one; two)`, e.Error())
	e.Kind = ErrNoSpace
	require.Equal(t, `lvm: create vg0/a: not enough free space (lvcreate -n a: exit code 5: one; two)`, e.Error())

	invalid := failure("create", "vg0/a;b", ErrInvalid, Name{"vg0", "a;b"}.Validate())
	require.ErrorIs(t, invalid, ErrInvalid)
	require.Equal(t, `lvm: create vg0/a;b: invalid logical volume name "a;b": character ';' is not one of A-Z a-z 0-9 _ + . -`, invalid.Error())

	spawn := &Error{Op: "list", Object: "vg0", Argv: []string{"lvs"}, Err: &command.SpawnError{Argv: []string{"lvs"}, Err: errors.New("not there")}}
	require.Equal(t, `lvm: list vg0: cannot start lvs: not there`, spawn.Error())

	ctx, cancel := context.WithDeadlineCause(t.Context(), time.Unix(0, 0), errors.New("the agent stops"))
	defer cancel()
	timeout := &Error{Op: "list", Object: "vg0", Err: stopped(ctx, "waiting", "for", "vg0")}
	require.ErrorIs(t, timeout, context.DeadlineExceeded)
	require.Equal(t, `lvm: list vg0: waiting for vg0: the agent stops (not started)`, timeout.Error())
}

// L31, topolvm PR#522
func TestSnapshotsAreMountedWithCareAndNeverFormatted(t *testing.T) {
	plain := LogicalVolume{Name: Name{"vg0", "a"}}
	snapshot := LogicalVolume{Name: Name{"vg0", "s"}, Origin: "a"}
	require.NoError(t, CheckFormat(plain))
	err := CheckFormat(snapshot)
	require.ErrorIs(t, err, ErrWouldFormatClone)
	require.Contains(t, err.Error(), "vg0/s")
	for _, tc := range []struct {
		lv       LogicalVolume
		fsType   string
		readOnly bool
		want     []string
	}{
		{plain, "xfs", false, nil},
		{plain, "xfs", true, []string{"ro"}},
		{snapshot, "xfs", false, []string{"nouuid"}},
		{snapshot, "xfs", true, []string{"ro", "nouuid", "norecovery"}},
		{snapshot, "ext4", true, []string{"ro", "noload"}},
		{snapshot, "ext3", true, []string{"ro", "noload"}},
		{snapshot, "ext4", false, nil},
		{snapshot, "btrfs", true, []string{"ro"}},
	} {
		require.Equal(t, tc.want, MountOptions(tc.lv, tc.fsType, tc.readOnly), "%+v", tc)
	}
}

// lvcreate -T without device-mapper in the kernel ends like a command line that is wrong.
func TestWhatTheKernelCannotDoIsUnsupported(t *testing.T) {
	text := "  thin: Required device-mapper target(s) not detected in your kernel.\n  Run `lvcreate --help' for more information.\n"
	require.Equal(t, ErrUnsupported, classify(3, text))
	require.NoError(t, classify(2, text))
}
