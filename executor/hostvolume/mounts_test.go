package hostvolume

import (
	"fmt"
	"os"
	"path"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func line(id, parent int, device, mountPoint string) string {
	return fmt.Sprintf("%d %d %s / %s rw,relatime shared:1 - tmpfs tmpfs rw", id, parent, device, mountPoint)
}

func paths(table mountTable) []string {
	out := []string{}
	for _, m := range table {
		out = append(out, m.path)
	}
	return out
}

// H08, moby/moby#38458, kubernetes/kubernetes#49106
func TestMountTableDecodesEscapesOnce(t *testing.T) {
	for escaped, want := range map[string]string{
		`/b/a\040b`:    "/b/a b",
		`/b/a\134040b`: `/b/a\040b`, // a backslash followed by 040, not a space
		`/b/\011\012`:  "/b/\t\n",
		`/b/\043x`:     "/b/#x",
		`/b/\04`:       `/b/\04`, // not an escape
		`/b/\`:         `/b/\`,
		`/b/\08x`:      `/b/\08x`,
		"/b/ü\\040日本":  "/b/ü 日本",
		"/b/\xff\\040": "/b/\xff ",
	} {
		table, err := parseMounts([]byte(line(1, 0, "0:5", escaped) + "\n"))
		require.NoError(t, err)
		require.Equal(t, []string{want}, paths(table), escaped)
	}
}

// H08: blank lines mean nothing. A line that cannot be read may be the mount that is asked about, so it is an error and
// never skipped.
func TestMountTableSkipsBlankLinesAndRefusesBrokenOnes(t *testing.T) {
	good := line(1, 0, "0:5", "/a")
	table, err := parseMounts([]byte("\n" + good + "\n\n  \n" + line(2, 1, "8:16", "/a/b") + "\n"))
	require.NoError(t, err)
	require.Equal(t, []string{"/a", "/a/b"}, paths(table))
	for _, bad := range []string{
		"1 2 3", good[:20], strings.Replace(good, " - ", " ", 1), strings.Replace(good, "0:5", "05", 1), strings.Replace(good, "0:5", "x:y", 1),
		strings.Replace(good, "0:5", "-1:5", 1), "x" + good, strings.Replace(good, "/a", "a", 1),
	} {
		_, err := parseMounts([]byte(good + "\n" + bad + "\n"))
		require.Error(t, err, "%q", bad)
	}
	table, err = parseMounts(nil)
	require.NoError(t, err)
	require.Empty(t, table)
}

func TestMountTableReadsWhatMattersOfAMount(t *testing.T) {
	table, err := parseMounts([]byte(`36 35 98:0 /sub /mnt2 ro,noatime master:1 shared:2 - ext3 /dev/root rw,errors=continue
37 35 8:17 / /mnt3 rw - xfs /dev/sdb1 ro,norecovery
38 35 8:18 / /mnt4 rw - ext4 /dev/sdb2 rw,errors=remount-ro`))
	require.NoError(t, err)
	require.Equal(t, mountTable{
		{id: 36, parent: 35, device: devNumber{98, 0}, path: "/mnt2", root: "/sub", fsType: "ext3", source: "/dev/root", readOnly: true, superOptions: "rw,errors=continue"},
		{id: 37, parent: 35, device: devNumber{8, 17}, path: "/mnt3", root: "/", fsType: "xfs", source: "/dev/sdb1", readOnly: true, superOptions: "ro,norecovery"},
		{id: 38, parent: 35, device: devNumber{8, 18}, path: "/mnt4", root: "/", fsType: "ext4", source: "/dev/sdb2", superOptions: "rw,errors=remount-ro"},
	}, table)
}

func TestMountTableOfThisMachineIsReadable(t *testing.T) {
	data, err := os.ReadFile(mountTablePath)
	if err != nil {
		t.Skipf("no %s here: %v", mountTablePath, err)
	}
	table, err := parseMounts(data)
	require.NoError(t, err)
	require.Len(t, table, strings.Count(string(data), "\n"))
}

// H07, NERSC/shifter PR#215, kubernetes/kubernetes PR#71663
func TestOnlyWhatIsBelowTheBaseIsManaged(t *testing.T) {
	var lines []string
	for i, p := range []string{"/B", "/B/a", "/B2/a", "/B-x", "/Bx", "/other/B/a", "/B/../C", "/", "/B/a/deep", "/B//b"} {
		lines = append(lines, line(i+2, 1, "0:5", p))
	}
	table, err := parseMounts([]byte(strings.Join(lines, "\n")))
	require.NoError(t, err)
	for _, base := range []string{"/B", "/B/", "//B/."} {
		require.Equal(t, []string{"/B//b", "/B/a/deep", "/B/a"}, paths(table.managed(base)), base)
	}
	require.Empty(t, table.managed("/B/a/deep"))
}

func TestManagedMountsComeLastFirstAndChildrenBeforeParents(t *testing.T) {
	for name, tc := range map[string]struct {
		lines []string
		want  []string
	}{
		"last first": {
			[]string{line(2, 1, "0:2", "/b/x"), line(3, 1, "0:3", "/b/y"), line(4, 1, "0:4", "/b/z")},
			[]string{"/b/z", "/b/y", "/b/x"},
		},
		"nested": {
			[]string{line(2, 1, "0:2", "/b/x"), line(3, 2, "0:3", "/b/x/in"), line(4, 1, "0:4", "/b/z"), line(5, 3, "0:5", "/b/x/in/in")},
			[]string{"/b/x/in/in", "/b/z", "/b/x/in", "/b/x"},
		},
		"stacked: the one on top first": {
			[]string{line(2, 1, "0:2", "/b/x"), line(3, 2, "0:3", "/b/x"), line(4, 3, "0:4", "/b/x")},
			[]string{"/b/x", "/b/x", "/b/x"},
		},
		"moved under a mount that is younger": {
			[]string{line(2, 4, "0:2", "/b/x/moved"), line(3, 1, "0:3", "/b/y"), line(4, 1, "0:4", "/b/x")},
			[]string{"/b/x/moved", "/b/x", "/b/y"},
		},
		"a parent that is not shown": {
			[]string{line(7, 99, "0:2", "/b/x"), line(8, 98, "0:3", "/b/x/in")},
			[]string{"/b/x/in", "/b/x"},
		},
		"a loop among the parents ends": {
			[]string{line(2, 3, "0:2", "/b/x"), line(3, 2, "0:3", "/b/y")},
			[]string{"/b/x", "/b/y"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			table, err := parseMounts([]byte(strings.Join(tc.lines, "\n")))
			require.NoError(t, err)
			got := table.managed("/b")
			require.Equal(t, tc.want, paths(got))
			index := map[int]int{}
			for i, m := range got {
				index[m.id] = i
			}
			if name == "stacked: the one on top first" {
				require.Less(t, index[4], index[3])
				require.Less(t, index[3], index[2])
			}
		})
	}
}

func FuzzMountTableReader(f *testing.F) {
	f.Add([]byte(line(1, 0, "0:5", `/b/a\040b`) + "\n" + line(2, 1, "8:16", "/b") + "\n"))
	f.Add([]byte("36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue\n"))
	f.Add([]byte("1 1 0:1 / / rw - cifs //srv/My Docs rw,unc=//srv/My Docs\n"))
	f.Add([]byte("1 2 3\n\n"))
	f.Add([]byte("5 5 0:1 / /b/x rw - tmpfs  rw\n5 5 0:1 / /b/x rw - tmpfs  rw\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		table, err := parseMounts(data)
		if err != nil {
			if table != nil {
				t.Fatal("an error came with a table")
			}
			return
		}
		lines := 0
		for _, l := range strings.Split(string(data), "\n") {
			if strings.Trim(l, " \t\r") != "" {
				lines++
			}
		}
		if len(table) != lines {
			t.Fatalf("%d lines gave %d mounts", lines, len(table))
		}
		managed := table.managed("/b")
		for _, m := range managed {
			if clean := path.Clean(m.path); !strings.HasPrefix(clean, "/b/") {
				t.Fatalf("%q is not below /b", m.path)
			}
		}
		below := 0
		for _, m := range table {
			if strings.HasPrefix(path.Clean(m.path), "/b/") {
				below++
			}
		}
		if below != len(managed) {
			t.Fatalf("%d mounts below /b, %d managed", below, len(managed))
		}
	})
}

// H05: what is mounted where a volume belongs is used only if it is all of the right device, with the right filesystem
// and mode.
func TestMountIsRecognisedByDeviceRootFilesystemAndMode(t *testing.T) {
	device := blockDevice{path: "/dev/sdb", number: devNumber{8, 16}}
	right := mount{device: devNumber{8, 16}, root: "/", fsType: "ext4", path: "/b/x"}
	v := &volume{kind: kindDisk, disk: disk{fsType: "ext4"}}
	require.NoError(t, checkDiskMount(right, v, device))
	for name, tc := range map[string]struct {
		change func(*mount)
		want   error
	}{
		"another device":           {func(m *mount) { m.device.minor = 17 }, ErrTargetInUse},
		"a directory of it, bound": {func(m *mount) { m.root = "/sub" }, ErrTargetInUse},
		"another filesystem":       {func(m *mount) { m.fsType = "ext3" }, ErrTargetInUse},
		"read-only":                {func(m *mount) { m.readOnly = true }, ErrReadOnlyDevice},
	} {
		m := right
		tc.change(&m)
		require.ErrorIs(t, checkDiskMount(m, v, device), tc.want, name)
	}
	v.disk.readOnly = true
	require.ErrorIs(t, checkDiskMount(right, v, device), ErrTargetInUse)
	right.readOnly = true
	require.NoError(t, checkDiskMount(right, v, device))
}

func TestSizeOfATmpfsIsReadAsTheKernelWritesIt(t *testing.T) {
	for options, want := range map[string]int64{
		"rw,size=1028k,mode=777": 1028 << 10, "rw,size=4096": 4096, "rw,size=2m": 2 << 20, "size=1g,rw": 1 << 30, "rw,nr_inodes=5,size=0k": 0,
		"rw": -1, "rw,size=": -1, "rw,size=k": -1, "rw,size=50%": -1, "rw,size=-1k": -1, "rw,size=9999999999999g": -1, "rw,size=1kk": -1, "rw,fsize=1k": -1,
	} {
		got, ok := tmpfsSize(options)
		require.Equal(t, want >= 0, ok, options)
		require.Equal(t, max(want, 0), got, options)
	}
}
