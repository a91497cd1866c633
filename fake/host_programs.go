package fake

import (
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"

	"github.com/stateofworld/stateofworld/executor/command"
)

// hostPrograms are the programs of the machine but mount and umount. They are called with the lock held.
var hostPrograms = map[string]func(h *Host, argv []string) command.Result{
	"blkid": hostBlkid, "blockdev": hostBlockdev, "chmod": hostChmod, "mount": hostMountProgram, "umount": hostUmountProgram,
	"mkfs.ext2": hostMkfs, "mkfs.ext3": hostMkfs, "mkfs.ext4": hostMkfs, "mkfs.xfs": hostMkfs,
	"fsck.ext2": hostFsck, "fsck.ext3": hostFsck, "fsck.ext4": hostFsck,
}

func hostFailed(exitCode int, stderr string) command.Result {
	return command.Result{ExitCode: exitCode, Stderr: []byte(stderr + "\n")}
}

// hostArguments tells options, of which those named take a value, from operands.
func hostArguments(args []string, withValue ...string) (options map[string]string, operands []string) {
	options = map[string]string{}
	for i := 0; i < len(args); i++ {
		name, isOption := strings.CutPrefix(args[i], "-")
		switch {
		case args[i] == "--":
			return options, append(operands, args[i+1:]...)
		case !isOption || name == "":
			operands = append(operands, args[i])
		case slices.Contains(withValue, name) && i+1 < len(args):
			i++
			options[name] = args[i]
		default:
			options[name] = ""
		}
	}
	return options, operands
}

// disk is the disk at a path, or nil.
func (h *Host) disk(path string) *hostDevice {
	place, err := h.walk(path, true)
	if err != nil || place.node.mode&fs.ModeDevice == 0 {
		return nil
	}
	return h.devices[place.node.number]
}

// hostBlkid is blkid -p. That it found nothing and that it could read nothing are the same to it.
func hostBlkid(h *Host, argv []string) command.Result {
	_, operands := hostArguments(argv[1:], "s", "o")
	if len(operands) != 1 {
		return hostFailed(4, "blkid: bad usage")
	}
	device := h.disk(operands[0])
	if device == nil {
		return command.Result{ExitCode: 2}
	}
	kinds, table, err := device.identify()
	switch {
	case err != nil || len(kinds) == 0 && table == "":
		return command.Result{ExitCode: 2}
	case len(kinds) > 1:
		return hostFailed(8, "blkid: "+operands[0]+": ambivalent result (probably more filesystems on the device, use wipefs(8) to see more details)")
	}
	out := "DEVNAME=" + operands[0] + "\n"
	if len(kinds) == 1 {
		out += "TYPE=" + kinds[0] + "\n"
	}
	if table != "" {
		out += "PTTYPE=" + table + "\n"
	}
	return command.Result{Stdout: []byte(out)}
}

// hostBlockdev is blockdev --getsize64 --getro.
func hostBlockdev(h *Host, argv []string) command.Result {
	path := argv[len(argv)-1]
	device := h.disk(path)
	if device == nil {
		return hostFailed(1, "blockdev: cannot open "+path+": No such file or directory")
	}
	var out strings.Builder
	for _, query := range argv[1 : len(argv)-1] {
		switch query {
		case "--getsize64":
			fmt.Fprintln(&out, device.size)
		case "--getro":
			fmt.Fprintln(&out, map[bool]int{true: 1}[device.readOnly])
		default:
			return hostFailed(1, "blockdev: Unknown command: "+query)
		}
	}
	return command.Result{Stdout: []byte(out.String())}
}

// hostMkfs is mkfs.ext2, .ext3, .ext4 and .xfs. As the real ones without a terminal, those of ext overwrite whatever
// they find, and that of xfs refuses.
func hostMkfs(h *Host, argv []string) command.Result {
	path, fsType := argv[len(argv)-1], strings.TrimPrefix(argv[0], "mkfs.")
	device := h.disk(path)
	switch {
	case device == nil && fsType == "xfs":
		return hostFailed(1, "Error accessing specified device "+path+": No such file or directory")
	case device == nil:
		return hostFailed(1, "The file "+path+" does not exist and no size was specified.")
	case h.mounted(device) && fsType == "xfs":
		return hostFailed(1, "mkfs.xfs: "+path+" contains a mounted filesystem")
	case h.mounted(device):
		return hostFailed(1, path+" is mounted; will not make a filesystem here!")
	case device.readOnly:
		return hostFailed(1, argv[0]+": Read-only file system while setting up superblock")
	}
	kinds, table, err := device.identify()
	if err != nil {
		return hostFailed(1, argv[0]+": Input/output error while trying to determine device size")
	}
	if fsType == "xfs" && (len(kinds) > 0 || table != "") && !slices.Contains(argv, "-f") {
		return hostFailed(1, "mkfs.xfs: "+path+" appears to contain an existing filesystem ("+strings.Join(append(kinds, table), " ")+").\nmkfs.xfs: Use the -f option to force overwrite.")
	}
	h.formats = append(h.formats, HostFormat{Device: path, Filesystem: fsType, HeldData: device.holdsData()})
	device.format(fsType)
	return command.Result{}
}

// hostFsck is fsck.ext2, .ext3 and .ext4 with -p.
func hostFsck(h *Host, argv []string) command.Result {
	path := argv[len(argv)-1]
	device := h.disk(path)
	switch {
	case device == nil:
		return hostFailed(8, argv[0]+": No such file or directory while trying to open "+path+"\nPossibly non-existent device?")
	case h.mounted(device):
		return command.Result{ExitCode: 8, Stdout: []byte(path + " is mounted.\n"), Stderr: []byte("e2fsck: Cannot continue, aborting.\n\n\n")}
	case device.readOnly:
		return hostFailed(8, argv[0]+": Read-only file system while trying to open "+path)
	}
	kinds, _, err := device.identify()
	if err != nil || len(kinds) != 1 || !strings.HasPrefix(kinds[0], "ext") {
		return hostFailed(8, argv[0]+": Bad magic number in super-block while trying to open "+path)
	}
	switch device.damage {
	case HostRepairable:
		device.damage = HostClean
		return command.Result{ExitCode: 1, Stdout: []byte(path + ": recovering journal\n")}
	case HostNeedsRepair:
		return command.Result{ExitCode: 4, Stdout: []byte(path + ": UNEXPECTED INCONSISTENCY; RUN fsck MANUALLY.\n\t(i.e., without -a or -p options)\n")}
	default:
		return command.Result{Stdout: []byte(path + ": clean\n")}
	}
}

// hostChmod is chmod MODE -- PATH.
func hostChmod(h *Host, argv []string) command.Result {
	_, operands := hostArguments(argv[1:])
	if len(operands) != 2 {
		return hostFailed(1, "chmod: bad usage")
	}
	mode, err := strconv.ParseUint(operands[0], 8, 32)
	if err != nil {
		return hostFailed(1, "chmod: invalid mode: '"+operands[0]+"'")
	}
	place, err := h.walk(operands[1], true)
	if err != nil {
		return hostFailed(1, "chmod: cannot access '"+operands[1]+"': No such file or directory")
	}
	place.node.mode = place.node.mode.Type() | hostMode(mode)
	return command.Result{}
}

// hostMode translates a numeric mode.
func hostMode(mode uint64) fs.FileMode {
	out := fs.FileMode(mode & 0o777)
	if mode&0o1000 != 0 {
		out |= fs.ModeSticky
	}
	return out
}
