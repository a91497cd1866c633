package lvm

import "fmt"

// Attr is the decoded lv_attr, whose letters are described in the manual page lvs(8). Letters that are not known are
// kept. The zero value of a letter means that this version of lvm2 does not show it.
type Attr struct {
	Type       VolumeType
	Permission Permission
	// Allocation is the policy: (c)ontiguous, (i)nherited, c(l)ing, (n)ormal, (a)nywhere. Locked against allocation
	// changes (as during pvmove) it is a capital letter.
	Allocation byte
	FixedMinor bool
	State      State
	// Device is 'o' when open, 'X' when unknown.
	Device byte
	// Target is the kind of mapping: (m)irror, (r)aid, (s)napshot, (t)hin, (u)nknown, (v)irtual, '-' plain.
	Target byte
	// Zero: new blocks are zeroed before use (thin pools and their volumes).
	Zero   bool
	Health byte
	// SkipActivation: activated only when that is asked for.
	SkipActivation bool
}

// VolumeType is the first letter of lv_attr.
type VolumeType byte

// The types of volumes, by lv_attr.
const (
	TypePlain           VolumeType = '-' // linear or striped
	TypeCache           VolumeType = 'C'
	TypeVDOPool         VolumeType = 'd'
	TypeVDOData         VolumeType = 'D'
	TypeMetadata        VolumeType = 'e' // raid or pool metadata, or spare
	TypeIntegrity       VolumeType = 'g'
	TypeRaidImage       VolumeType = 'i'
	TypeRaidImageOut    VolumeType = 'I' // out of sync
	TypeMirrorLog       VolumeType = 'l'
	TypeMirror          VolumeType = 'm'
	TypeMirrorNoSync    VolumeType = 'M'
	TypeOrigin          VolumeType = 'o'
	TypeMergingOrigin   VolumeType = 'O'
	TypePVMove          VolumeType = 'p'
	TypeRaid            VolumeType = 'r'
	TypeRaidNoSync      VolumeType = 'R'
	TypeSnapshot        VolumeType = 's'
	TypeMergingSnapshot VolumeType = 'S'
	TypeThinPool        VolumeType = 't'
	TypeThinPoolData    VolumeType = 'T'
	TypeVirtual         VolumeType = 'v'
	TypeThin            VolumeType = 'V'
)

// Permission is the second letter of lv_attr.
type Permission byte

// The permissions, by lv_attr.
const (
	PermissionWrite    Permission = 'w'
	PermissionRead     Permission = 'r'
	PermissionReadOnce Permission = 'R' // read-only for this activation, though its metadata says writable
)

// State is the fifth letter of lv_attr.
type State byte

// The states, by lv_attr.
const (
	StateInactive             State = '-'
	StateActive               State = 'a'
	StateHistorical           State = 'h'
	StateSuspended            State = 's'
	StateInvalidSnapshot      State = 'I'
	StateSuspendedInvalid     State = 'S'
	StateMergeFailed          State = 'm'
	StateSuspendedMergeFailed State = 'M'
	StateDeviceWithoutTable   State = 'd'
	StateInactiveTable        State = 'i'
	StateCheckNeeded          State = 'c' // thin pool
	StateSuspendedCheckNeeded State = 'C'
	StateUnknown              State = 'X' // no device-mapper to ask
)

// ParseAttr decodes lv_attr. Versions differ in how many letters there are: 6 at least, 10 today.
func ParseAttr(s string) (Attr, error) {
	if len(s) < 6 {
		return Attr{}, fmt.Errorf("lv_attr %q has fewer than 6 letters", s)
	}
	letter := func(i int) byte {
		if i < len(s) {
			return s[i]
		}
		return 0
	}
	return Attr{
		Type: VolumeType(s[0]), Permission: Permission(s[1]), Allocation: s[2], FixedMinor: s[3] == 'm', State: State(s[4]), Device: s[5],
		Target: letter(6), Zero: letter(7) == 'z', Health: letter(8), SkipActivation: letter(9) == 'k',
	}, nil
}

// Active is whether the volume has a device, as far as that is known.
func (a Attr) Active() Known {
	switch a.State {
	case StateInactive, StateHistorical:
		return No
	case StateUnknown:
		return Unknown
	}
	return Yes
}

// Open is whether the device is held by someone: a mount, a process, another device.
func (a Attr) Open() Known {
	switch a.Device {
	case 'o':
		return Yes
	case '-':
		return No
	}
	return Unknown
}

// Known is an answer that may be missing. The zero value is Unknown.
type Known int

// The answers.
const (
	Unknown Known = iota
	No
	Yes
)

func (k Known) String() string {
	switch k {
	case No:
		return "no"
	case Yes:
		return "yes"
	}
	return "unknown"
}
