package lifecycle

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/stateofworld/stateofworld/lvm"
)

// CreateSpec is what logical volume a claim asks for: the value of the spec annotation on a claim.
type CreateSpec struct {
	VolumeGroup string `json:"volumeGroup"`
	Name        string `json:"name"`
	// Size is in bytes. It is rounded up to whole extents.
	Size uint64   `json:"size"`
	Tags []string `json:"tags,omitempty"`
	// Striping asks for one stripe on each physical volume that has room, two at least.
	Striping bool `json:"striping,omitempty"`
}

// Limits of what is read from annotations; no request that makes sense comes near them.
const (
	maxSpecBytes = 16 << 10
	maxTags      = 64
)

// LV is the name of the logical volume.
func (s CreateSpec) LV() lvm.Name { return lvm.Name{VG: s.VolumeGroup, LV: s.Name} }

// Validate refuses what cannot be made, by the rules of package lvm, and tags that are this package's own. The error is an
// lvm.ErrInvalid.
func (s CreateSpec) Validate() error {
	if len(s.Tags) > maxTags {
		return &lvm.InvalidError{Field: "tags", Value: strconv.Itoa(len(s.Tags)), Reason: fmt.Sprintf("more than %d", maxTags)}
	}
	for _, tag := range s.Tags {
		if strings.HasPrefix(tag, tagPrefix) {
			return &lvm.InvalidError{Field: "tag", Value: tag, Reason: "tags that begin with " + tagPrefix + " are this library's own"}
		}
	}
	return s.options().Validate()
}

// options is how the volume is asked for, but for what only the agent knows.
func (s CreateSpec) options() lvm.CreateOptions {
	o := lvm.CreateOptions{VG: s.VolumeGroup, Name: s.Name, Size: s.Size, Tags: s.Tags, Layout: lvm.Linear}
	if s.Striping {
		o.Layout = lvm.Striped
	}
	return o
}

// Encode is the annotation's value. The error is that of Validate.
func (s CreateSpec) Encode() (string, error) {
	if err := s.Validate(); err != nil {
		return "", err
	}
	text, err := json.Marshal(s)
	return string(text), err
}

// Equal reports whether both ask for the same.
func (s CreateSpec) Equal(o CreateSpec) bool {
	if len(s.Tags) != len(o.Tags) {
		return false
	}
	for i := range s.Tags {
		if s.Tags[i] != o.Tags[i] {
			return false
		}
	}
	return s.LV() == o.LV() && s.Size == o.Size && s.Striping == o.Striping
}

// ParseCreateSpec reads a spec annotation. The text is not trusted: what is returned without error is valid. Keys are read as
// encoding/json reads them, in any case, and "vg" is another spelling of "volumeGroup". Unknown keys are refused, since what they
// ask for would not be done. The error is an lvm.ErrInvalid.
func ParseCreateSpec(text string) (CreateSpec, error) {
	spec, err := decodeSpec(text)
	if err != nil {
		return CreateSpec{}, &lvm.InvalidError{Field: "volume spec", Value: shorten(text, 200), Reason: err.Error()}
	}
	if err := spec.Validate(); err != nil {
		return CreateSpec{}, err
	}
	return spec, nil
}

func decodeSpec(text string) (s CreateSpec, err error) {
	if len(text) > maxSpecBytes {
		return s, fmt.Errorf("longer than %d bytes", maxSpecBytes)
	}
	// Member by member, since decoding into a struct would take the last of two members of one name without a word.
	d := json.NewDecoder(strings.NewReader(text))
	if open, err := d.Token(); err != nil || open != json.Delim('{') {
		return s, errors.New("not a JSON object")
	}
	seen := map[string]bool{}
	for d.More() {
		token, err := d.Token()
		if err != nil {
			return s, fmt.Errorf("not JSON: %w", err)
		}
		key := token.(string) // within an object the decoder returns nothing else here
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return s, fmt.Errorf("not JSON: %w", err)
		}
		name := strings.ToLower(key)
		if name == "vg" {
			name = "volumegroup"
		}
		if seen[name] {
			return s, fmt.Errorf("%q is given twice", key)
		}
		seen[name] = true
		if err := s.set(name, value); err != nil {
			return s, fmt.Errorf("%q: %w", shorten(key, 40), err)
		}
	}
	if _, err := d.Token(); err != nil {
		return s, fmt.Errorf("not JSON: %w", err)
	}
	if _, err := d.Token(); err != io.EOF {
		return s, errors.New("something follows the JSON object")
	}
	for _, name := range []string{"volumegroup", "name", "size"} {
		if !seen[name] {
			return s, fmt.Errorf("%s is missing", name)
		}
	}
	return s, nil
}

func (s *CreateSpec) set(name string, value json.RawMessage) error {
	var target any
	switch name {
	case "volumegroup":
		target = &s.VolumeGroup
	case "name":
		target = &s.Name
	case "size":
		target = &s.Size
	case "striping":
		target = &s.Striping
	case "tags":
		if bytes.Equal(bytes.TrimSpace(value), []byte("null")) { // how Go writes a list that was never made
			return nil
		}
		target = &s.Tags
	default:
		return errors.New("unknown key")
	}
	if bytes.Equal(bytes.TrimSpace(value), []byte("null")) {
		return errors.New("null")
	}
	var wrong *json.UnmarshalTypeError
	err := json.Unmarshal(value, target)
	if errors.As(err, &wrong) {
		return fmt.Errorf("is a %s", wrong.Value)
	}
	return err
}

// shorten cuts a text that is only shown.
func shorten(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "..."
}
