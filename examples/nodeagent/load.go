package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/stateofworld/stateofworld/examples/internal/manifest"
	"github.com/stateofworld/stateofworld/fake"
)

// load reads all files, "-" being stdin. Nothing is used unless all of it is good.
func load(files []string, stdin io.Reader) ([]object, error) {
	decoder, err := newDecoder()
	if err != nil {
		return nil, err
	}
	l := &loader{decoder: decoder, scratch: fake.NewAPI(), seen: map[string]string{}}
	for _, file := range files {
		if err := l.file(file, stdin); err != nil {
			return nil, err
		}
	}
	return l.objects, nil
}

type loader struct {
	decoder runtime.Decoder
	scratch *fake.API
	objects []object
	seen    map[string]string // where an object was, by kind and name

	name           string // of the file being read
	document, line int    // the document being read, and where it begins
}

func (l *loader) file(name string, stdin io.Reader) error {
	l.name, l.document, l.line = name, 0, 0
	before := len(l.objects)
	text, err := content(name, stdin)
	if err != nil {
		var path *os.PathError
		if errors.As(err, &path) {
			err = path.Err // the name comes first anyway
		}
		return &manifest.Error{File: name, Err: err}
	}
	text = bytes.TrimPrefix(text, []byte("\xef\xbb\xbf"))
	switch start := bytes.TrimSpace(text); {
	case bytes.HasPrefix(text, []byte{0xff, 0xfe}), bytes.HasPrefix(text, []byte{0xfe, 0xff}):
		return &manifest.Error{File: name, Err: errors.New("is UTF-16, as PowerShell's > writes it: save it as UTF-8")}
	case bytes.HasPrefix(start, []byte("{")), bytes.HasPrefix(start, []byte("[")):
		err = l.json(text)
	default:
		err = l.yaml(text)
	}
	if err == nil && len(l.objects) == before {
		return &manifest.Error{File: name, Err: errors.New("there are no claims or volumes in it")}
	}
	return err
}

func content(name string, stdin io.Reader) ([]byte, error) {
	if name == "-" {
		return io.ReadAll(stdin)
	}
	return os.ReadFile(name)
}

// json reads JSON values, one after the other.
func (l *loader) json(text []byte) error {
	for rest := text; ; {
		start := bytes.TrimLeft(rest, " \t\r\n")
		at := len(text) - len(start)
		if len(start) == 0 {
			return nil
		}
		l.document, l.line = l.document+1, lineAt(text, at)
		decoder := json.NewDecoder(bytes.NewReader(start))
		var value json.RawMessage
		if err := decoder.Decode(&value); err != nil {
			var bad *json.SyntaxError
			switch {
			case errors.As(err, &bad):
				at += int(bad.Offset) - 1
			case errors.Is(err, io.ErrUnexpectedEOF):
				at, err = len(bytes.TrimRight(text, "\r\n")), errors.New("it ends in the middle of an object: was it cut off?")
			}
			return &manifest.Error{File: l.name, Document: l.document, Line: lineAt(text, at), Err: err}
		}
		if err := l.value(value, kinds{}); err != nil {
			return err
		}
		rest = start[decoder.InputOffset():]
	}
}

// lineAt is the line, from 1, of the byte at an offset.
func lineAt(text []byte, offset int) int {
	return 1 + bytes.Count(text[:min(offset, len(text))], []byte("\n"))
}

// yaml reads YAML documents.
func (l *loader) yaml(text []byte) error {
	var document []byte
	number, first := 0, 1
	parse := func() error {
		if blankYAML(document) {
			return nil
		}
		l.document, l.line = l.document+1, first
		data, err := yaml.YAMLToJSONStrict(document)
		if err != nil {
			return manifest.YAMLError(l.name, l.document, err, first)
		}
		return l.value(data, kinds{})
	}
	for line := range bytes.Lines(text) {
		number++
		if !isSeparator(line) {
			document = append(document, line...)
			continue
		}
		if err := parse(); err != nil {
			return err
		}
		// The line of the dashes counts as the document's first, whether anything follows on it or not.
		document, first = append(document[:0], '\n'), number
		if rest := bytes.TrimSpace(line[3:]); line[0] == '-' && len(rest) > 0 && rest[0] != '#' {
			document = append(append(document[:0], rest...), '\n')
		}
	}
	return parse()
}

// isSeparator is whether a line ends a document: "---" or "...", alone or with something after a space.
func isSeparator(line []byte) bool {
	if !bytes.HasPrefix(line, []byte("---")) && !bytes.HasPrefix(line, []byte("...")) {
		return false
	}
	return len(line) == 3 || strings.ContainsRune(" \t\r\n", rune(line[3]))
}

// blankYAML is whether there is nothing but comments and white space.
func blankYAML(text []byte) bool {
	for line := range bytes.Lines(text) {
		if line = bytes.TrimSpace(line); len(line) > 0 && line[0] != '#' && line[0] != '%' {
			return false
		}
	}
	return true
}

// failed places what is wrong with an object of the present document.
func (l *loader) failed(object string, err error) error {
	return &manifest.Error{File: l.name, Document: l.document, Line: l.line, From: true, Object: object, Err: err}
}
