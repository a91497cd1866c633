package lvm

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// row is one object of a report.
type row map[string]field

// field is a value of a report as text. Plain JSON reports have strings only; json_std, and newer versions, have
// numbers, null and lists too.
type field string

// UnmarshalJSON takes every form that a value has been seen in.
func (f *field) UnmarshalJSON(data []byte) error {
	switch data[0] {
	case '"':
		var s string
		if err := json.Unmarshal(data, &s); err != nil {
			return err
		}
		*f = field(s)
	case '[':
		var list []field
		if err := json.Unmarshal(data, &list); err != nil {
			return err
		}
		var parts []string
		for _, part := range list {
			parts = append(parts, string(part))
		}
		*f = field(strings.Join(parts, ","))
	case 'n':
		*f = ""
	case '{':
		return errors.New("a value is an object")
	default: // a number, true or false
		*f = field(data)
	}
	return nil
}

// document is what a report command prints.
type document struct {
	Report []map[string]json.RawMessage `json:"report"`
	// Log is there where log/report_command_log is on, which is the default from 2.03.26 on. The error messages are
	// then here and not on standard error.
	Log []row `json:"log"`
}

// decodeDocument reads a report. Lines before it (warnings) are skipped. Anything else that is not exactly one whole
// report is an error, since half a report must never pass for one that lacks something.
func decodeDocument(stdout []byte) (document, error) {
	for len(stdout) > 0 && !bytes.HasPrefix(bytes.TrimLeft(stdout, " \t\r\n"), []byte("{")) {
		_, rest, found := bytes.Cut(stdout, []byte("\n"))
		if !found {
			rest = nil
		}
		stdout = rest
	}
	if len(stdout) == 0 {
		return document{}, errors.New("no report")
	}
	var doc document
	decoder := json.NewDecoder(bytes.NewReader(stdout))
	if err := decoder.Decode(&doc); err != nil {
		return document{}, err
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return document{}, errors.New("something follows the report")
	}
	if doc.Report == nil {
		return document{}, errors.New("no member \"report\"")
	}
	return doc, nil
}

// rows are those of one section ("lv", "vg"), which must be there.
func (d document) rows(section string) ([]row, error) {
	var rows []row
	found := false
	for _, part := range d.Report {
		raw, ok := part[section]
		if !ok {
			continue
		}
		var some []row
		if err := json.Unmarshal(raw, &some); err != nil {
			return nil, err
		}
		if some == nil {
			return nil, fmt.Errorf("section %q is null", section)
		}
		found = true
		rows = append(rows, some...)
	}
	if !found {
		return nil, fmt.Errorf("no section %q", section)
	}
	return rows, nil
}

// errorMessages are the errors in the log of a report.
func (d document) errorMessages() []string {
	var messages []string
	for _, entry := range d.Log {
		if entry["log_type"] == "error" && entry["log_message"] != "" {
			messages = append(messages, string(entry["log_message"]))
		}
	}
	return messages
}

// must is a value that every version prints and that is never empty.
func (r row) must(name string) (string, error) {
	if value := string(r[name]); value != "" {
		return value, nil
	}
	return "", fmt.Errorf("field %s is missing", name)
}

// mustSize is a number of bytes, or of extents, that every version prints.
func (r row) mustSize(name string) (uint64, error) {
	text, err := r.must(name)
	if err != nil {
		return 0, err
	}
	n, err := parseSize(text)
	if err != nil {
		return 0, fmt.Errorf("field %s: %w", name, err)
	}
	return n, nil
}

// size is 0 where the value is not there.
func (r row) size(name string) (uint64, error) {
	if r[name] == "" {
		return 0, nil
	}
	return r.mustSize(name)
}

// parseSize reads bytes as printed with --units b, with or without --nosuffix.
func parseSize(text string) (uint64, error) {
	n, err := strconv.ParseUint(strings.TrimSuffix(text, "B"), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%q is not a number of bytes", text)
	}
	return n, nil
}

// parsePercent reads a percentage in any locale. What cannot be read, as the nothing of an inactive volume, is not
// known.
func parsePercent(text field) Percent {
	value, err := strconv.ParseFloat(strings.Replace(string(text), ",", ".", 1), 64)
	if err != nil || !(value >= 0 && value <= 100) {
		return Percent{}
	}
	return Percent{Value: value, Known: true}
}

// deviceNumber reads lv_kernel_major or lv_kernel_minor: -1, or nothing, where there is no device.
func deviceNumber(text field) (uint32, bool) {
	n, err := strconv.ParseUint(string(text), 10, 32)
	return uint32(n), err == nil
}
