package fake

import (
	"bytes"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"

	"github.com/stateofworld/stateofworld/executor/command"
)

// hostFS is a filesystem. That of a disk outlives its mounts.
type hostFS struct {
	fsType string
	source string
	super  string // options, while it is mounted
	number hostNumber
	device *hostDevice // nil without one
	root   *hostNode
}

// hostMount is one entry of the mount table.
type hostMount struct {
	id     int
	parent *hostMount // nil for the root
	at     *hostNode  // what it is mounted on, in parent
	fs     *hostFS
	node   *hostNode // its root
	path   string
}

func (m *hostMount) readOnly() bool { return strings.HasPrefix(m.fs.super, "ro") }

var hostEscapes = strings.NewReplacer(" ", `\040`, "\t", `\011`, "\n", `\012`, `\`, `\134`, "#", `\043`)

// mountInfo is the text of /proc/self/mountinfo.
func (h *Host) mountInfo() []byte {
	var b bytes.Buffer
	for _, m := range h.mounts {
		parent := m.id
		if m.parent != nil {
			parent = m.parent.id
		}
		fmt.Fprintf(&b, "%d %d %d:%d / %s %s,relatime shared:1 - %s %s %s\n", m.id, parent, m.fs.number.major, m.fs.number.minor,
			hostEscapes.Replace(m.path), m.fs.super[:2], m.fs.fsType, hostEscapes.Replace(m.fs.source), m.fs.super)
	}
	return b.Bytes()
}

// MountTable is the mount table without the root, oldest first, one "path source type options" for each mount.
func (h *Host) MountTable() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := []string{}
	for _, m := range h.mounts[1:] {
		out = append(out, strings.Join([]string{m.path, m.fs.source, m.fs.fsType, m.fs.super}, " "))
	}
	return out
}

// Mount mounts as someone else would: a disk, or a tmpfs, with options as for mount -o.
func (h *Host) Mount(source, target, fsType, options string) {
	h.must(target, func() error {
		if result := hostMountProgram(h, []string{"mount", "-t", fsType, "-o", options, "--", source, target}); result.ExitCode != 0 {
			return fmt.Errorf("%s", result.Stderr)
		}
		return nil
	})
}

// Unmount unmounts as someone else would.
func (h *Host) Unmount(target string) {
	h.must(target, func() error {
		if result := hostUmountProgram(h, []string{"umount", "--", target}); result.ExitCode != 0 {
			return fmt.Errorf("%s", result.Stderr)
		}
		return nil
	})
}

// hostMountProgram is mount -t TYPE -o OPTIONS -- SOURCE TARGET.
func hostMountProgram(h *Host, argv []string) command.Result {
	options, operands := hostArguments(argv[1:], "t", "o")
	if len(operands) != 2 || options["t"] == "" {
		return hostFailed(1, "mount: bad usage")
	}
	fsType, source, target := options["t"], operands[0], operands[1]
	refuse := func(format string, args ...any) command.Result {
		return hostFailed(32, "mount: "+target+": "+fmt.Sprintf(format, args...)+"\n       dmesg(1) may have more information after failed mount system call.")
	}
	place, err := h.walk(target, true)
	switch {
	case err != nil:
		return refuse("mount point does not exist.")
	case !place.node.mode.IsDir():
		return refuse("mount point is not a directory.")
	}
	wanted := strings.Split(options["o"], ",")
	if fsType == "tmpfs" {
		h.attach(place, h.newTmpfs(source, wanted))
		return command.Result{}
	}
	node, err := h.walk(source, true)
	if err != nil {
		return refuse("special device %s does not exist.", source)
	}
	device := h.devices[node.node.number]
	if node.node.mode&fs.ModeDevice == 0 || device == nil {
		return refuse("%s is not a block device.", source)
	}
	for _, m := range h.mounts {
		if m.fs.device == device && m == place.mount && m.node == place.node {
			return refuse("%s already mounted on %s.", source, place.path)
		}
	}
	kinds, _, err := device.identify()
	if err != nil || !slices.Contains(kinds, fsType) || device.fs == nil || device.fs.fsType != fsType {
		return refuse("wrong fs type, bad option, bad superblock on %s, missing codepage or helper program, or other error.", source)
	}
	return h.mountDisk(device, node.path, place, wanted, refuse)
}

func (h *Host) mountDisk(device *hostDevice, source string, place hostPlace, wanted []string, refuse func(string, ...any) command.Result) command.Result {
	readOnly := slices.Contains(wanted, "ro")
	replays := !slices.Contains(wanted, "noload") && !slices.Contains(wanted, "norecovery")
	var result command.Result
	if device.readOnly {
		if device.damage == HostRepairable && replays {
			return refuse("cannot mount %s read-only.", source)
		}
		if !readOnly {
			result.Stderr = []byte("mount: " + place.path + ": WARNING: source write-protected, mounted read-only.\n")
			readOnly = true
		}
	}
	super := "rw"
	if readOnly {
		super = "ro"
	}
	for _, option := range wanted {
		if option != "rw" && option != "ro" && option != "" {
			super += "," + option
		}
	}
	if h.mounted(device) {
		if device.fs.super[:2] != super[:2] {
			return refuse("%s already mounted or mount point busy.", source)
		}
		super = device.fs.super
	}
	if replays && !device.readOnly && device.damage == HostRepairable {
		device.damage = HostClean
	}
	device.fs.source, device.fs.super = source, super
	h.attach(place, device.fs)
	return result
}

func (h *Host) attach(place hostPlace, filesystem *hostFS) {
	h.lastMount++
	h.mounts = append(h.mounts, &hostMount{id: h.lastMount, parent: place.mount, at: place.node, fs: filesystem, node: filesystem.root, path: place.path})
}

func (h *Host) newTmpfs(source string, options []string) *hostFS {
	h.lastAnonymous++
	filesystem := &hostFS{fsType: "tmpfs", source: source, super: "rw", number: hostNumber{0, uint32(100 + h.lastAnonymous)}, root: newHostDir(fs.ModeSticky | 0o777)}
	for _, option := range options {
		name, value, _ := strings.Cut(option, "=")
		switch name {
		case "ro":
			filesystem.super = "ro" + filesystem.super[2:]
		case "size":
			if n, err := strconv.ParseInt(value, 10, 64); err == nil {
				filesystem.super += fmt.Sprintf(",size=%dk", (n+hostBlock-1)/hostBlock*(hostBlock/1024))
			}
		case "mode":
			if n, err := strconv.ParseUint(value, 8, 32); err == nil {
				filesystem.root.mode = fs.ModeDir | hostMode(n)
				filesystem.super += fmt.Sprintf(",mode=%o", n)
			}
		}
	}
	return filesystem
}

// mounted reports whether a device is mounted anywhere.
func (h *Host) mounted(device *hostDevice) bool {
	return slices.ContainsFunc(h.mounts, func(m *hostMount) bool { return m.fs.device == device })
}

// hostUmountProgram is umount -- TARGET.
func hostUmountProgram(h *Host, argv []string) command.Result {
	_, operands := hostArguments(argv[1:])
	if len(operands) != 1 {
		return hostFailed(1, "umount: bad usage")
	}
	target := operands[0]
	place, err := h.walk(target, true)
	if err != nil {
		return hostFailed(32, "umount: "+target+": no mount point specified.")
	}
	if place.node != place.mount.node || place.mount.parent == nil {
		return hostFailed(32, "umount: "+target+": not mounted.")
	}
	busy := h.held[place.mount] > 0
	for _, m := range h.mounts {
		busy = busy || m.parent == place.mount
	}
	if busy {
		return hostFailed(32, "umount: "+target+": target is busy.")
	}
	h.mounts = slices.DeleteFunc(h.mounts, func(m *hostMount) bool { return m == place.mount })
	return command.Result{}
}
