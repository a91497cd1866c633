package lvm

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
)

// Name names a logical volume.
type Name struct {
	VG, LV string
}

// String is the name as lvm2 takes it: "vg/lv".
func (n Name) String() string { return n.VG + "/" + n.LV }

// DevicePath is where the device of the volume is while it is active, in the mount namespace that the backend's
// commands run in.
func (n Name) DevicePath() string { return "/dev/" + n.VG + "/" + n.LV }

// Validate refuses what lvm2 would refuse, or would take for something else than one logical volume. It is an
// [*InvalidError].
func (n Name) Validate() error {
	if err := ValidateVGName(n.VG); err != nil {
		return err
	}
	if err := ValidateLVName(n.LV); err != nil {
		return err
	}
	// Both limits are lvm2's: one of its metadata, one of device-mapper, which doubles every hyphen within a name.
	if len(n.VG)+len(n.LV) > 124 {
		return &InvalidError{"logical volume name", n.String(), "longer than 124 characters together with the volume group's"}
	}
	if doubled(n.VG)+1+doubled(n.LV) > 127 {
		return &InvalidError{"logical volume name", n.String(), "longer than 127 characters as a device-mapper name, where every hyphen counts twice"}
	}
	return nil
}

func doubled(s string) int { return len(s) + strings.Count(s, "-") }

// ParseName reads "vg/lv", and nothing else: no leading or further slash, no tag, no empty part. The error is an
// [*InvalidError].
func ParseName(s string) (Name, error) {
	vg, lv, ok := strings.Cut(s, "/")
	if !ok {
		return Name{}, &InvalidError{"logical volume", s, "not of the form vg/lv"}
	}
	n := Name{vg, lv}
	if err := n.Validate(); err != nil {
		return Name{}, err
	}
	return n, nil
}

// ValidateVGName checks a volume group's name by lvm2's rules. The error is an [*InvalidError].
func ValidateVGName(name string) error {
	if reason := badName(name); reason != "" {
		return &InvalidError{"volume group name", name, reason}
	}
	return nil
}

// ValidateLVName checks a logical volume's name by lvm2's rules, except for those that depend on the group's name too:
// see [Name.Validate]. The error is an [*InvalidError].
func ValidateLVName(name string) error {
	reason := badName(name)
	for _, prefix := range []string{"snapshot", "pvmove"} {
		if strings.HasPrefix(name, prefix) {
			reason = "names that begin with " + prefix + " are reserved"
		}
	}
	for _, part := range reservedParts {
		if strings.Contains(name, part) {
			reason = "names that contain " + part + " are reserved"
		}
	}
	if reason != "" {
		return &InvalidError{"logical volume name", name, reason}
	}
	return nil
}

var reservedParts = [...]string{
	"_cdata", "_cmeta", "_corig", "_cpool", "_cvol", "_wcorig", "_mimage", "_mlog", "_rimage", "_rmeta", "_tdata", "_tmeta", "_vdata", "_imeta", "_iorig",
	"_pmspare", "_vorigin",
}

// badName says what is wrong with the name of a group or a volume, or nothing.
func badName(name string) string {
	switch {
	case name == "":
		return "empty"
	case name == "." || name == "..":
		return "not a name"
	case name[0] == '-':
		return "begins with a hyphen"
	case len(name) > 127:
		return "longer than 127 characters"
	}
	for _, c := range []byte(name) {
		if !nameChar(c) {
			return fmt.Sprintf("character %q is not one of A-Z a-z 0-9 _ + . -", c)
		}
	}
	return ""
}

func nameChar(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '+' || c == '.' || c == '-'
}

// MapName gives every string a valid logical volume name of its own: names that are valid stay as they are, all others
// (such as the "snapshot-<uuid>" of CSI) become "m+" and the string with its odd bytes as "+xx", or, where that gets
// long, "h+" and its SHA-256. Two strings never get one name (short of a collision of SHA-256), so the mapping may be
// used for lookups, but cannot be undone. Results have at most 100 characters as device-mapper counts, which leaves 26
// for the group.
func MapName(name string) string {
	const most = 100
	if ValidateLVName(name) == nil && !strings.HasPrefix(name, "m+") && !strings.HasPrefix(name, "h+") && doubled(name) <= most {
		return name
	}
	var b strings.Builder
	b.WriteString("m+")
	for _, c := range []byte(name) {
		// Not '_', so that no reserved part can appear; not '+', so that the escapes are unambiguous.
		if nameChar(c) && c != '_' && c != '+' {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "+%02x", c)
		}
	}
	if doubled(b.String()) > most {
		sum := sha256.Sum256([]byte(name))
		return "h+" + hex.EncodeToString(sum[:])
	}
	return b.String()
}

// ValidateTag checks a tag by lvm2's rules, and refuses a leading hyphen, which lvm2 documents but does not check. The
// error is an [*InvalidError].
func ValidateTag(tag string) error {
	reason := ""
	switch {
	case tag == "":
		reason = "empty"
	case tag[0] == '-':
		reason = "begins with a hyphen"
	case len(tag) > 1024:
		reason = "longer than 1024 characters"
	}
	for _, c := range []byte(tag) {
		if !nameChar(c) && !strings.ContainsRune("/=!:&#", rune(c)) {
			reason = fmt.Sprintf("character %q is not one of A-Z a-z 0-9 _ + . - / = ! : & #", c)
			break
		}
	}
	if reason != "" {
		return &InvalidError{"tag", tag, reason}
	}
	return nil
}

// validateUserTags also keeps callers off the tags that this package itself keeps its state in.
func validateUserTags(tags []string) error {
	for _, tag := range tags {
		if err := ValidateTag(tag); err != nil {
			return err
		}
		if strings.HasPrefix(tag, markPrefix) {
			return &InvalidError{"tag", tag, "tags that begin with " + markPrefix + " are this library's own"}
		}
	}
	return nil
}

// validateDevice checks a path that becomes a physical volume argument: no range ("/dev/sda:0-9") and no tag ("@all").
func validateDevice(path string) error {
	reason := ""
	if !strings.HasPrefix(path, "/dev/") {
		reason = "not below /dev/"
	}
	for _, c := range []byte(path) {
		if !nameChar(c) && c != '/' && c != ':' {
			reason = fmt.Sprintf("character %q", c)
		}
	}
	for part := range strings.SplitSeq(path, "/") {
		if part == ".." {
			reason = "has a .."
		}
	}
	if reason != "" {
		return &InvalidError{"physical volume", path, reason}
	}
	return nil
}
