package main

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/stateofworld/stateofworld/examples/internal/manifest"
)

// jsonSource is a stream of JSON values that knows on which line each byte is.
type jsonSource struct {
	*json.Decoder
	lines *lineCounter
}

// newJSONSource reads r, which begins on the given line of its file.
func newJSONSource(r io.Reader, line int) *jsonSource {
	lines := &lineCounter{r: r, passed: line - 1}
	return &jsonSource{Decoder: json.NewDecoder(lines), lines: lines}
}

// line is the line of the token that was read last.
func (s *jsonSource) line() int { return s.lines.line(s.InputOffset() - 1) }

// json reads JSON values until the end of the file.
func (l *loader) json(r *bufio.Reader) error {
	src := newJSONSource(r, 1)
	for {
		l.document++
		err := l.value(src)
		if err == io.EOF {
			l.document--
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// value reads one object, or one list item by item. At the end of src its error is io.EOF as it is.
func (l *loader) value(src *jsonSource) error {
	token, err := src.Token()
	switch {
	case err == io.EOF:
		return err
	case err != nil:
		return l.syntax(src, err)
	case token != json.Delim('{'):
		return l.failed(src.line(), "", fmt.Errorf("there must be Kubernetes objects, not %s", describeToken(token)))
	}
	var own fields
	var items itemList
	for src.More() {
		token, err := src.Token()
		if err != nil {
			return l.syntax(src, err)
		}
		// In an object that is known not to be a list, a field "items" is nothing special.
		if key := token.(string); key == "items" && own.mayBeList() {
			err = l.items(src, &own, &items)
		} else {
			err = l.field(src, &own, key)
		}
		if err != nil {
			return err
		}
	}
	if _, err := src.Token(); err != nil {
		return l.syntax(src, err)
	}
	src.lines.pass(src.InputOffset())
	if items.found {
		return l.endItems(&own, &items)
	}
	return l.object(own.raw(), cmp.Or(own.line, src.line()), head{})
}

func describeToken(t json.Token) string {
	switch t := t.(type) {
	case json.Delim:
		return "a JSON array: write its elements one after the other (jq '.[]'), or as the items of a List"
	case nil:
		return "null"
	case string:
		return fmt.Sprintf("the string %q", t)
	default:
		return fmt.Sprint(t)
	}
}

// fields are those fields of an object in a stream that matter, in one piece again, with the line ends where they were.
type fields struct {
	json []byte // without the closing brace
	line int    // of the first byte
	ends int    // lines that end in json
}

// field reads the value of a field.
func (l *loader) field(src *jsonSource, own *fields, key string) error {
	var raw json.RawMessage
	if err := src.Decode(&raw); err != nil {
		return l.syntax(src, err)
	}
	switch key {
	case "apiVersion", "kind", "metadata", "spec", "status":
		own.add(key, raw, src.lines.line(src.InputOffset()-int64(len(raw))))
	}
	return nil
}

func (f *fields) add(key string, raw []byte, line int) {
	if f.json == nil {
		f.line = line
		f.json = append(f.json, '{')
	} else {
		f.json = append(f.json, ',')
	}
	f.json = append(f.json, bytes.Repeat([]byte{'\n'}, max(0, line-f.line-f.ends))...)
	f.json = fmt.Appendf(f.json, "%q:%s", key, raw)
	f.ends = bytes.Count(f.json, []byte{'\n'})
}

func (f *fields) raw() []byte {
	if f.json == nil {
		return []byte("{}")
	}
	return append(f.json[:len(f.json):len(f.json)], '}')
}

// head returns what has come of the object's type so far. What is wrong with it comes up when the whole object is decoded.
func (f *fields) head() head {
	var h head
	_ = json.Unmarshal(f.raw(), &h)
	return h
}

func (f *fields) mayBeList() bool {
	kind := f.head().Kind
	return kind == "" || strings.HasSuffix(kind, "List")
}

// itemList is what is known of a list besides its fields. The API server sends lists like PodList whose items do not name
// their kind, and kubectl sorts the fields, so that the items come before the kind of the list.
type itemList struct {
	found   bool
	line    int
	waiting []waitingItem // items without a kind, until the list's is known
}

type waitingItem struct {
	raw  []byte
	line int
}

// items reads the items of a list one by one.
func (l *loader) items(src *jsonSource, own *fields, list *itemList) error {
	token, err := src.Token()
	if err != nil {
		return l.syntax(src, err)
	}
	list.found, list.line = true, src.line()
	if token == nil {
		return nil
	}
	if token != json.Delim('[') {
		return l.failed(list.line, "", &fieldError{"items", "must be an array"})
	}
	kind := own.head().ofItems()
	var raw json.RawMessage
	for src.More() {
		if err := src.Decode(&raw); err != nil {
			return l.syntax(src, err)
		}
		src.lines.pass(src.InputOffset() - int64(len(raw)))
		if err := l.item(raw, src.lines.passed+1, kind, list); err != nil {
			return err
		}
	}
	if _, err := src.Token(); err != nil {
		return l.syntax(src, err)
	}
	return nil
}

// ofItems is what the items of a list are that do not say it themselves: of a PodList, Pods; of a List, not known.
func (h head) ofItems() head {
	return head{Kind: strings.TrimSuffix(h.Kind, "List"), APIVersion: h.APIVersion}
}

func (l *loader) item(raw json.RawMessage, line int, kind head, list *itemList) error {
	if matches, err := l.likeLast(raw, line, kind); matches {
		return err
	}
	var h head
	if err := json.Unmarshal(raw, &h); err == nil {
		switch {
		case strings.HasSuffix(h.Kind, "List"):
			return l.value(newJSONSource(bytes.NewReader(raw), line))
		case h.Kind == "" && kind.Kind == "":
			list.waiting = append(list.waiting, waitingItem{raw: bytes.Clone(raw), line: line})
			return nil
		}
	}
	return l.object(raw, line, kind)
}

// endItems reads the items that had to wait for the kind of the list.
func (l *loader) endItems(own *fields, list *itemList) error {
	h := own.head()
	if !strings.HasSuffix(h.Kind, "List") {
		return l.failed(list.line, "", &fieldError{"items", fmt.Sprintf("are in an object of kind %q, which is not a list", h.Kind)})
	}
	for _, w := range list.waiting {
		if err := l.object(w.raw, w.line, h.ofItems()); err != nil {
			return err
		}
	}
	return nil
}

// likeLast decodes an object on the guess that it is of the same kind as the last one, which in a dump is nearly always
// true. That spares looking for the kind first. It reports whether the guess was right; if not, nothing was done.
func (l *loader) likeLast(raw []byte, line int, kind head) (matches bool, err error) {
	if l.last.Kind == "" {
		return false, nil
	}
	o := newObject(l.last.Kind)
	if json.Unmarshal(raw, o) != nil {
		return false, nil // whatever is wrong comes up again
	}
	h := o.header()
	h.orElse(kind)
	if h.Kind != l.last.Kind || h.APIVersion != l.last.APIVersion {
		return false, nil
	}
	return true, l.keep(h, o, line)
}

// object decodes one object. Its first byte is on the given line; kind is what it is if it does not say so itself.
func (l *loader) object(raw []byte, line int, kind head) error {
	var h head
	err := json.Unmarshal(raw, &h)
	h.orElse(kind)
	l.last = head{}
	var o object
	if err == nil && isKnown(h) {
		o = newObject(h.Kind)
		l.last = head{Kind: h.Kind, APIVersion: h.APIVersion}
		err = json.Unmarshal(raw, o)
	}
	if wrong := (*json.UnmarshalTypeError)(nil); errors.As(err, &wrong) {
		at := min(max(0, int(wrong.Offset)-1), len(raw))
		return l.failed(line+bytes.Count(raw[:at], []byte{'\n'}), describeObject(&h),
			&fieldError{wrong.Field, fmt.Sprintf("must be %s, not %s", jsonType(wrong), wrong.Value)})
	}
	if err != nil {
		return l.failed(line, describeObject(&h), err)
	}
	return l.keep(&h, o, line)
}

// keep checks an object and puts it into the dump.
func (l *loader) keep(h *head, o object, line int) error {
	l.progress.objects.Add(1)
	if err := l.dump.keep(h, o); err != nil {
		return l.failed(line, describeObject(h), err)
	}
	return nil
}

// describeObject names an object for a message.
func describeObject(h *head) string {
	name := objectName(h.Metadata)
	if h.Kind == "" && name == "" {
		return ""
	}
	return strings.TrimSpace(manifest.Cleaned(h.Kind) + fmt.Sprintf(" %q", name))
}

// jsonType says what the input should have had.
func jsonType(e *json.UnmarshalTypeError) string {
	switch kind := e.Type.Kind().String(); kind {
	case "struct", "map":
		return "an object"
	case "slice", "array":
		return "an array"
	case "bool":
		return "true or false"
	case "string":
		return "a string"
	default:
		return "of type " + kind
	}
}

func (l *loader) failed(line int, object string, err error) error {
	return &manifest.Error{File: l.name, Document: l.document, Line: line, From: l.isYAML, Object: object, Err: err}
}

// syntax places an error of the decoder itself, or of the reader below it.
func (l *loader) syntax(src *jsonSource, err error) error {
	offset := src.InputOffset()
	var bad *json.SyntaxError
	switch {
	case err == io.EOF, errors.Is(err, io.ErrUnexpectedEOF):
		err = errors.New("it ends in the middle of an object: was it cut off?")
		if rest, readErr := io.Copy(io.Discard, src.Buffered()); readErr == nil {
			offset += rest
		}
	case errors.As(err, &bad):
		// The offset in the error of a stream is not that of the stream: look at the same bytes again.
		var again json.RawMessage
		if errors.As(json.NewDecoder(src.Buffered()).Decode(&again), &bad) {
			offset += bad.Offset - 1
		}
	}
	return l.failed(src.lines.line(offset), "", err)
}
