package hostvolume

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestDecideFollowsTheTable(t *testing.T) {
	ext4 := contents{fsType: "ext4"}
	blank := contents{}
	for name, tc := range map[string]struct {
		facts facts
		step  step
		err   error
	}{
		"ext4 to be written is checked":            {facts: facts{fsType: "ext4", found: ext4}, step: stepCheck},
		"ext4 to be read is not checked (H06)":     {facts: facts{fsType: "ext4", found: ext4, readOnly: true}, step: stepMount},
		"ext4 without fsck is mounted":             {facts: facts{fsType: "ext4", found: ext4, fsck: FsckNever}, step: stepMount},
		"xfs is never checked (H06)":               {facts: facts{fsType: "xfs", found: contents{fsType: "xfs"}}, step: stepMount},
		"write-protected ext4 to be read (H15)":    {facts: facts{fsType: "ext4", found: ext4, readOnly: true, writeProtected: true}, step: stepMount},
		"write-protected ext4 to be written (H15)": {facts: facts{fsType: "ext4", found: ext4, writeProtected: true}, err: ErrReadOnlyDevice},
		"FormatNever mounts what is there":         {facts: facts{fsType: "ext4", found: ext4, format: FormatNever}, step: stepCheck},
		"FirstUse does not format what is there":   {facts: facts{fsType: "ext4", found: ext4, firstUse: true}, step: stepCheck},

		"another filesystem":               {facts: facts{fsType: "ext4", found: contents{fsType: "xfs"}}, err: ErrWrongFilesystem},
		"another filesystem, first use":    {facts: facts{fsType: "ext4", found: contents{fsType: "xfs"}, firstUse: true}, err: ErrWrongFilesystem},
		"a physical volume of LVM":         {facts: facts{fsType: "ext4", found: contents{fsType: "LVM2_member"}}, err: ErrWrongFilesystem},
		"partition table (H01)":            {facts: facts{fsType: "ext4", found: contents{partitionTable: "dos"}}, err: ErrHasPartitions},
		"partition table, first use (H01)": {facts: facts{fsType: "ext4", found: contents{partitionTable: "gpt"}, firstUse: true}, err: ErrHasPartitions},
		"filesystem and partition table":   {facts: facts{fsType: "ext4", found: contents{fsType: "ext4", partitionTable: "gpt"}}, err: ErrAmbiguous},

		"nothing found is sampled first (H02)":       {facts: facts{fsType: "ext4", found: blank, data: -1}, step: stepSample},
		"nothing found is sampled at first use too":  {facts: facts{fsType: "ext4", found: blank, firstUse: true}, step: stepSample},
		"nothing found and all zero (H02)":           {facts: facts{fsType: "ext4", found: blank, sampled: true, data: -1}, step: stepFormat},
		"nothing found, data at 0 (H02)":             {facts: facts{fsType: "ext4", found: blank, sampled: true, data: 0}, err: ErrNotBlank},
		"nothing found, data, first use":             {facts: facts{fsType: "ext4", found: blank, sampled: true, data: 4096, firstUse: true}, step: stepFormat},
		"nothing found, only to be read (H15)":       {facts: facts{fsType: "ext4", found: blank, readOnly: true}, err: ErrUnformattedReadOnly},
		"nothing found, write-protected (H15)":       {facts: facts{fsType: "ext4", found: blank, writeProtected: true}, err: ErrReadOnlyDevice},
		"nothing found, never format (H02)":          {facts: facts{fsType: "ext4", found: blank, format: FormatNever}, err: ErrFormatNotAllowed},
		"never format wins over first use":           {facts: facts{fsType: "ext4", found: blank, format: FormatNever, firstUse: true}, err: ErrFormatNotAllowed},
		"seen before, now blank":                     {facts: facts{fsType: "ext4", found: blank, seen: true, sampled: true, data: -1}, err: ErrFilesystemLost},
		"seen before wins over first use":            {facts: facts{fsType: "ext4", found: blank, seen: true, firstUse: true}, err: ErrFilesystemLost},
		"seen before and only to be read, now blank": {facts: facts{fsType: "ext4", found: blank, seen: true, readOnly: true}, err: ErrFilesystemLost},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := decide(tc.facts)
			require.ErrorIs(t, err, tc.err)
			if tc.err == nil {
				require.Equal(t, tc.step, got)
			}
		})
	}
}

// Whatever the facts: nothing is formatted unless the probe found nothing, the samples were read, and they are zero or
// the caller vouches for the device.
func TestDecideFormatsOnlyWhatIsProvenBlank(t *testing.T) {
	bools := []bool{false, true}
	formats := 0
	for _, fsType := range []string{"", "ext4", "xfs", "swap"} {
		for _, table := range []string{"", "dos"} {
			for i := range 1 << 7 {
				bit := func(n int) bool { return bools[i>>n&1] }
				f := facts{
					fsType: "ext4", readOnly: bit(0), writeProtected: bit(1), found: contents{fsType, table}, seen: bit(2), sampled: bit(3),
					data: -1, firstUse: bit(4), format: FormatPolicy(i >> 5 & 1),
				}
				if bit(6) {
					f.data = 512
				}
				if got, err := decide(f); err == nil && got == stepFormat {
					formats++
					require.True(t, f.found.nothing() && f.sampled && !f.seen && !f.readOnly && !f.writeProtected, "%+v", f)
					require.True(t, f.data < 0 || f.firstUse, "%+v", f)
					require.Equal(t, FormatIfBlank, f.format, "%+v", f)
				}
			}
		}
	}
	require.Equal(t, 3, formats, "blank with zeros (first use or not), and first use with data")
}

// H06, kubernetes/kubernetes#94970
func TestFsckExitCodeIsASumOfBits(t *testing.T) {
	for code, want := range map[int]error{
		0: nil, 1: nil, 2: nil, 3: nil,
		4: ErrNeedsRepair, 5: ErrNeedsRepair, 6: ErrNeedsRepair, 7: ErrNeedsRepair,
		8: ErrCheckFailed, 12: ErrCheckFailed, 16: ErrCheckFailed, 32: ErrCheckFailed, 128: ErrCheckFailed, 64: ErrCheckFailed, 255: ErrCheckFailed, -1: ErrCheckFailed,
	} {
		if want == nil {
			require.NoError(t, judgeFsck(code), "exit %d", code)
		} else {
			require.ErrorIs(t, judgeFsck(code), want, "exit %d", code)
		}
	}
}
