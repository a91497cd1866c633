package hostvolume

import (
	"bytes"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stateofworld/stateofworld/executor/command"
)

func TestProbeTakesOnlyTwoAnswersForGranted(t *testing.T) {
	for name, tc := range map[string]struct {
		exit   int
		stdout string
		want   contents
		fails  bool
	}{
		"nothing found":                     {exit: 2, want: contents{}},
		"nothing found, with a newline":     {exit: 2, stdout: "\n", want: contents{}},
		"filesystem":                        {stdout: "DEVNAME=/dev/sdb\nTYPE=ext4\n", want: contents{fsType: "ext4"}},
		"partition table only (H01)":        {stdout: "DEVNAME=/dev/sdb\nPTTYPE=dos", want: contents{partitionTable: "dos"}},
		"both":                              {stdout: "DEVNAME=/dev/sdb\nTYPE=ext4\nPTTYPE=gpt\n", want: contents{"ext4", "gpt"}},
		"other keys":                        {stdout: "UUID=x\nTYPE=xfs\nLABEL=a\\ b\n", want: contents{fsType: "xfs"}},
		"several contents (H02)":            {exit: 8, fails: true},
		"bad usage":                         {exit: 4, fails: true},
		"killed":                            {exit: 137, fails: true},
		"success without a word (H02)":      {fails: true},
		"success that names nothing (H02)":  {stdout: "DEVNAME=/dev/sdb\n", fails: true},
		"nothing found, and yet something":  {exit: 2, stdout: "TYPE=ext4\n", fails: true},
		"contradiction":                     {stdout: "TYPE=ext4\nTYPE=xfs\n", fails: true},
		"empty value":                       {stdout: "TYPE=\nPTTYPE=dos\n", fails: true},
		"not KEY=VALUE":                     {stdout: "TYPE=ext4\ngarbage\n", fails: true},
		"cut off in the middle of the name": {stdout: "DEVNAME=/dev/sdb\nTY", fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := parseProbe(command.Result{ExitCode: tc.exit, Stdout: []byte(tc.stdout)})
			require.Equal(t, tc.fails, err != nil, "%v", err)
			require.Equal(t, tc.want, got)
		})
	}
}

func FuzzProbeNeverTakesAnAnswerForBlankThatSaysSomething(f *testing.F) {
	f.Add(2, []byte(""))
	f.Add(0, []byte("DEVNAME=/dev/sdb\nTYPE=ext4\n"))
	f.Add(0, []byte("DEVNAME=/dev/sdb\nPTTYPE=dos"))
	f.Add(8, []byte("TYPE=ext4"))
	f.Add(2, []byte("\x00"))
	f.Add(0, []byte("TYPE==\r\nPTTYPE=\xff"))
	f.Fuzz(func(t *testing.T, exit int, stdout []byte) {
		got, err := parseProbe(command.Result{ExitCode: exit, Stdout: stdout})
		if err == nil && got.nothing() && (exit != 2 || len(bytes.TrimSpace(stdout)) > 0) {
			t.Fatalf("exit %d with %q was taken for blank", exit, stdout)
		}
		if err == nil && !got.nothing() && exit != 0 {
			t.Fatalf("exit %d was taken for success", exit)
		}
		if err != nil && got != (contents{}) {
			t.Fatalf("an error came with an answer: %+v", got)
		}
	})
}

func TestGeometryOfADevice(t *testing.T) {
	size, protected, err := parseGeometry("536870912\n1\n")
	require.NoError(t, err)
	require.Equal(t, int64(536870912), size)
	require.True(t, protected)
	for _, bad := range []string{"", "5", "0\n0\n", "-1\n0\n", "5\n2\n", "5\n0\n0\n", "x\n0\n", "99999999999999999999\n0\n"} {
		_, _, err := parseGeometry(bad)
		require.Error(t, err, "%q", bad)
	}
}

func TestFirstByteThatIsNotZeroIsFound(t *testing.T) {
	for _, size := range []int{0, 1, 4095, 4096, 4097, 10000} {
		data := make([]byte, size)
		require.Equal(t, -1, firstNonZero(data))
		for _, at := range []int{0, 1, 4095, 4096, size - 1} {
			if at >= 0 && at < size {
				data[size-1], data[at] = 1, 1
				require.Equal(t, at, firstNonZero(data), "%d of %d", at, size)
				data[size-1], data[at] = 0, 0
			}
		}
	}
}

func TestSamplesCoverWhereTracesOfDataAre(t *testing.T) {
	covered := func(size, offset, length int64) bool {
		return slices.ContainsFunc(samples(size), func(e extent) bool { return e.offset <= offset && offset+length <= e.offset+e.length })
	}
	const size = 10 << 30
	for what, at := range map[string]int64{
		"boot sector": 0, "ext superblock": 1024, "ext group descriptors": 4096, "btrfs superblock": 64 << 10, "label of zfs": 256 << 10,
		"backup of ext with 1 KiB blocks": 8193 << 10, "backup of ext with 2 KiB blocks": 16384 << 11, "backup of ext with 4 KiB blocks": 32768 << 12,
		"second allocation group of xfs": size / 4, "third": size / 2, "fourth": size / 4 * 3,
		"backup of a GPT": size - 512, "label of zfs at the end": size - 256<<10, "superblock of md 1.0": size - 8192,
	} {
		require.True(t, covered(size, at, 512), what)
	}
	for _, size := range []int64{1, 511, 4096, 1 << 20, 3 << 20, 100 << 20, 10<<30 + 512, 64 << 40} {
		all := samples(size)
		require.NotEmpty(t, all)
		var total int64
		for _, e := range all {
			require.True(t, e.offset >= 0 && e.length > 0 && e.offset+e.length <= size, "%d: %+v", size, e)
			total += e.length
		}
		require.True(t, covered(size, 0, min(size, edgeSample)) && (size <= wholeSize || covered(size, size-edgeSample, edgeSample)), "%d", size)
		if size <= wholeSize {
			require.Equal(t, size, total, "a small device is read whole, once")
		}
		require.LessOrEqual(t, total, int64(8<<20), "a look at a device of any size costs little")
	}
}
