package fake

import (
	"encoding/binary"
	"fmt"
	"io"
	"io/fs"
	"path"
	"syscall"
	"time"
)

// HostDisk describes a block device for [Host.AddDisk].
type HostDisk struct {
	// Size is in bytes. Default: 1 GiB.
	Size int64
	// Filesystem is what mkfs has made on it: ext2, ext3, ext4 or xfs. Default: nothing, the device is blank.
	Filesystem string
	// ReadOnly is write-protection.
	ReadOnly bool
	// Links are symbolic links to the device node. Their directories are made.
	Links []string
	// Delay is how long it takes until the node and the links appear, as they do only when udev has got round to it.
	Delay time.Duration
}

// HostDamage is the state of a filesystem.
type HostDamage int

// The states of a filesystem, as fsck -p sees them.
const (
	// HostClean needs nothing.
	HostClean HostDamage = iota
	// HostRepairable is repaired without questions: fsck exits with 1. A journal that was not replayed is of this kind
	// too: a write-protected device can then be mounted only without replaying it.
	HostRepairable
	// HostNeedsRepair needs a human: fsck exits with 4.
	HostNeedsRepair
)

// HostFormat is one run of mkfs that wrote to a device.
type HostFormat struct {
	Device     string // as it was given to mkfs
	Filesystem string
	HeldData   bool // the device was not all zero before
}

const (
	hostBlock       = 4096
	hostDefaultSize = 1 << 30
)

// hostDevice is a block device. Blocks that are not there are zero.
type hostDevice struct {
	number   hostNumber
	size     int64
	readOnly bool
	blocks   map[int64][]byte
	readErr  error
	damage   HostDamage
	fs       *hostFS // what mkfs has made
}

// AddDisk attaches a disk with its device node.
func (h *Host) AddDisk(node string, d HostDisk) {
	h.must(node, func() error {
		h.lastDisk++
		device := &hostDevice{number: hostNumber{8, uint32(16 * h.lastDisk)}, size: d.Size, blocks: map[int64][]byte{}}
		if device.size <= 0 {
			device.size = hostDefaultSize
		}
		if d.Filesystem != "" {
			if _, ok := hostFilesystems[d.Filesystem]; !ok {
				return fmt.Errorf("filesystem %q is not known", d.Filesystem)
			}
			device.format(d.Filesystem)
		}
		device.readOnly = d.ReadOnly
		h.devices[device.number] = device
		from := hostTime(h, d.Delay)
		if err := h.create(node, &hostNode{mode: fs.ModeDevice | 0o660, number: device.number, from: from}); err != nil {
			return err
		}
		for _, link := range d.Links {
			if err := h.mkdirAll(path.Dir(link), 0o755); err != nil {
				return err
			}
			if err := h.create(link, &hostNode{mode: fs.ModeSymlink | 0o777, link: node, from: from}); err != nil {
				return err
			}
		}
		return nil
	})
}

func (h *Host) mustDisk(path string) *hostDevice {
	device := h.devices[h.mustWalk(path).node.number]
	if device == nil {
		panic(fmt.Sprintf("fake host: %s is no disk", path))
	}
	return device
}

// WriteDisk overwrites bytes of a disk, write-protected or not, as someone else would. What was stored in a filesystem
// there stays as long as its superblock does.
func (h *Host) WriteDisk(path string, offset int64, data []byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mustDisk(path).write(offset, data)
}

// WritePartitionTable writes an MBR with one partition.
func (h *Host) WritePartitionTable(path string) {
	mbr := make([]byte, 512)
	mbr[450], mbr[454], mbr[459], mbr[510], mbr[511] = 0x83, 1, 8, 0x55, 0xaa
	h.WriteDisk(path, 0, mbr)
}

// ReadDisk are bytes of a disk.
func (h *Host) ReadDisk(path string, offset, length int64) []byte {
	h.mu.Lock()
	defer h.mu.Unlock()
	device := *h.mustDisk(path)
	device.readErr = nil
	data, err := device.read(offset, length)
	if err != nil {
		panic(fmt.Sprintf("fake host: %s: %v", path, err))
	}
	return data
}

// FailReads makes all reads of a disk fail with err, until it is nil.
func (h *Host) FailReads(path string, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mustDisk(path).readErr = err
}

// SetDamage sets the state of the filesystem on a disk.
func (h *Host) SetDamage(path string, damage HostDamage) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mustDisk(path).damage = damage
}

// SetReadOnly sets or takes away the write-protection of a disk.
func (h *Host) SetReadOnly(path string, readOnly bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mustDisk(path).readOnly = readOnly
}

// Formats are the runs of mkfs until now that wrote to a device.
func (h *Host) Formats() []HostFormat {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]HostFormat(nil), h.formats...)
}

func (d *hostDevice) read(offset, length int64) ([]byte, error) {
	if d.readErr != nil {
		return nil, d.readErr
	}
	if offset+length > d.size {
		return nil, io.ErrUnexpectedEOF
	}
	out := make([]byte, length)
	for done := int64(0); done < length; {
		block, in := (offset+done)/hostBlock, (offset+done)%hostBlock
		n := min(hostBlock-in, length-done)
		if data, ok := d.blocks[block]; ok {
			copy(out[done:done+n], data[in:])
		}
		done += n
	}
	return out, nil
}

func (d *hostDevice) write(offset int64, data []byte) {
	for i := 0; i < len(data); {
		at := offset + int64(i)
		block, in := at/hostBlock, at%hostBlock
		if d.blocks[block] == nil {
			d.blocks[block] = make([]byte, hostBlock)
		}
		i += copy(d.blocks[block][in:], data[i:])
	}
}

// holdsData reports whether any byte is not zero.
func (d *hostDevice) holdsData() bool {
	for _, block := range d.blocks {
		for _, b := range block {
			if b != 0 {
				return true
			}
		}
	}
	return false
}

// hostFilesystems are the features in ext's superblock by which its generations are told apart; xfs has none of them.
var hostFilesystems = map[string]struct{ compat, incompat uint32 }{
	"ext2": {}, "ext3": {compat: 4}, "ext4": {compat: 4, incompat: 0x40}, "xfs": {},
}

const hostExtBackup = 32768 * 4096

// format writes what a probe and a sampler can see of a new filesystem.
func (d *hostDevice) format(fsType string) {
	d.write(0, make([]byte, 8192))
	d.damage = HostClean
	d.fs = &hostFS{fsType: fsType, number: d.number, device: d, root: newHostDir(0o755)}
	if fsType == "xfs" {
		for _, group := range []int64{0, d.size / 4, d.size / 2, d.size / 4 * 3} {
			d.write(group&^4095, []byte("XFSB"))
		}
		return
	}
	d.fs.root.children["lost+found"] = newHostDir(0o700)
	features := hostFilesystems[fsType]
	super := make([]byte, 1024)
	super[0x38], super[0x39] = 0x53, 0xef
	binary.LittleEndian.PutUint32(super[0x5c:], features.compat)
	binary.LittleEndian.PutUint32(super[0x60:], features.incompat)
	d.write(1024, super)
	d.write(4096, []byte("group descriptors"))
	if d.size > hostExtBackup+1024 {
		d.write(hostExtBackup, super)
	}
}

// identify is what a probe reads from the device: kinds of content, and the kind of the partition table.
func (d *hostDevice) identify() (kinds []string, table string, err error) {
	head, err := d.read(0, min(d.size, 8192))
	if err != nil {
		return nil, "", err
	}
	if len(head) < 8192 {
		return nil, "", syscall.EIO
	}
	has := func(offset int, magic string) bool { return string(head[offset:offset+len(magic)]) == magic }
	if has(0, "XFSB") {
		kinds = append(kinds, "xfs")
	}
	if has(0x438, "\x53\xef") {
		for name, f := range hostFilesystems {
			if name != "xfs" && f.compat == binary.LittleEndian.Uint32(head[0x45c:]) && f.incompat == binary.LittleEndian.Uint32(head[0x460:]) {
				kinds = append(kinds, name)
			}
		}
	}
	for _, other := range []struct {
		offset      int
		magic, name string
	}{{512, "LABELONE", "LVM2_member"}, {0, "LUKS\xba\xbe", "crypto_LUKS"}, {4086, "SWAPSPACE2", "swap"}} {
		if has(other.offset, other.magic) {
			kinds = append(kinds, other.name)
		}
	}
	switch {
	case has(512, "EFI PART"):
		table = "gpt"
	case has(510, "\x55\xaa") && head[450] != 0:
		table = "dos"
	}
	return kinds, table, nil
}
