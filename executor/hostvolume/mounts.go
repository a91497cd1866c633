package hostvolume

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// mountTablePath is read where the commands run, so it shows the mounts that they see.
const mountTablePath = "/proc/self/mountinfo"

// mount is one line of mountinfo.
type mount struct {
	id, parent   int
	device       devNumber
	path         string
	root         string // what of the filesystem is mounted; "/" unless it is a bind mount of a part
	fsType       string
	source       string
	readOnly     bool   // by the mount's or the filesystem's options
	superOptions string // of the filesystem
}

// devNumber identifies a block device, or a filesystem that has none.
type devNumber struct{ major, minor uint32 }

func (d devNumber) String() string { return fmt.Sprintf("%d:%d", d.major, d.minor) }

// mountTable is in the order of mountinfo: oldest first.
type mountTable []mount

func (e *Env) readMounts(ctx context.Context) (mountTable, error) {
	data, err := e.Runner.ReadFile(ctx, mountTablePath)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrMountTable, err)
	}
	table, err := parseMounts(data)
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrMountTable, mountTablePath, err)
	}
	return table, nil
}

// parseMounts reads the text of mountinfo. Blank lines are skipped. A line that cannot be read fails the whole: it may
// be the very mount that is asked about.
func parseMounts(data []byte) (mountTable, error) {
	var lines [][]byte
	for line := range bytes.Lines(data) {
		if line = bytes.Trim(line, " \t\r\n"); len(line) > 0 {
			lines = append(lines, line)
		}
	}
	infos, err := readMountInfo(bytes.NewReader(bytes.Join(lines, []byte("\n"))))
	if err != nil {
		return nil, err
	}
	if len(infos) != len(lines) {
		return nil, fmt.Errorf("%d of %d lines were read", len(infos), len(lines))
	}
	table := make(mountTable, len(infos))
	for i, info := range infos {
		numbers := bytes.SplitN(lines[i], []byte(" "), 4)
		for _, number := range [][]byte{numbers[0], numbers[1]} { // the library takes what is no number as 0
			if _, err := strconv.ParseUint(string(number), 10, 31); err != nil {
				return nil, fmt.Errorf("mount id %q in %q is no number", number, lines[i])
			}
		}
		device, err := parseDevNumber(string(numbers[2]))
		if err != nil {
			return nil, fmt.Errorf("in %q: %w", lines[i], err)
		}
		if !strings.HasPrefix(info.Mountpoint, "/") {
			return nil, fmt.Errorf("mount point %q is not absolute", info.Mountpoint)
		}
		table[i] = mount{
			id: info.ID, parent: info.Parent, device: device,
			path: info.Mountpoint, root: info.Root, fsType: info.FSType, source: info.Source,
			readOnly: hasOption(info.Options, "ro") || hasOption(info.VFSOptions, "ro"), superOptions: info.VFSOptions,
		}
	}
	return table, nil
}

func parseDevNumber(text string) (devNumber, error) {
	major, minor, _ := strings.Cut(text, ":")
	a, err1 := strconv.ParseUint(major, 10, 32)
	b, err2 := strconv.ParseUint(minor, 10, 32)
	if err1 != nil || err2 != nil {
		return devNumber{}, fmt.Errorf("device %q is not major:minor", text)
	}
	return devNumber{uint32(a), uint32(b)}, nil
}

func hasOption(options, option string) bool {
	return slices.Contains(strings.Split(options, ","), option)
}

// at is the mount that one sees at a path: the last one mounted there.
func (t mountTable) at(path string) (mount, bool) {
	for _, m := range slices.Backward(t) {
		if m.path == path {
			return m, true
		}
	}
	return mount{}, false
}

// count is how many mounts are stacked at a path.
func (t mountTable) count(path string) int {
	n := 0
	for _, m := range t {
		if m.path == path {
			n++
		}
	}
	return n
}

// elsewhere is a place other than path where a device is mounted.
func (t mountTable) elsewhere(device devNumber, path string) (string, bool) {
	for _, m := range t {
		if m.device == device && m.path != path {
			return m.path, true
		}
	}
	return "", false
}

// managed are the mounts below base in the order in which they can be unmounted: the last one first, but never before
// what is mounted on it.
func (t mountTable) managed(base string) mountTable {
	children := map[int][]int{} // indexes by the id of the parent
	for i, m := range t {
		if m.id != m.parent {
			children[m.parent] = append(children[m.parent], i)
		}
	}
	var out mountTable
	done := make([]bool, len(t))
	var emit func(i int)
	emit = func(i int) {
		if done[i] {
			return
		}
		done[i] = true
		for _, child := range slices.Backward(children[t[i].id]) {
			emit(child)
		}
		if below(base, t[i].path) {
			out = append(out, t[i])
		}
	}
	for i := range slices.Backward(t) {
		emit(i)
	}
	return out
}
