package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/stateofworld/stateofworld/fake"
)

// inputError says what is wrong with the input, and where.
type inputError struct {
	file     string
	document int    // of the file, from 1; 0: the whole file
	line     int    // of the file, from 1; 0: not known
	from     bool   // line is only where the document begins
	object   string // as in `PersistentVolume "pv-1"`; empty: none
	err      error
}

func (e *inputError) Error() string {
	var b strings.Builder
	b.WriteString(fileName(e.file))
	if e.document > 0 {
		fmt.Fprintf(&b, ": document %d", e.document)
	}
	switch {
	case e.line > 0 && e.from:
		fmt.Fprintf(&b, " (from line %d on)", e.line)
	case e.line > 0:
		fmt.Fprintf(&b, ", line %d", e.line)
	}
	if e.object != "" {
		b.WriteString(": " + e.object)
	}
	return b.String() + ": " + cleaned(e.err.Error())
}

func (e *inputError) Unwrap() error { return e.err }

// fileName is how a file is called in messages.
func fileName(file string) string {
	if file == "-" {
		return "standard input"
	}
	return quoted(file)
}

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
		return &inputError{file: name, err: err}
	}
	text = bytes.TrimPrefix(text, []byte("\xef\xbb\xbf"))
	switch start := bytes.TrimSpace(text); {
	case bytes.HasPrefix(text, []byte{0xff, 0xfe}), bytes.HasPrefix(text, []byte{0xfe, 0xff}):
		return &inputError{file: name, err: errors.New("is UTF-16, as PowerShell's > writes it: save it as UTF-8")}
	case bytes.HasPrefix(start, []byte("{")), bytes.HasPrefix(start, []byte("[")):
		err = l.json(text)
	default:
		err = l.yaml(text)
	}
	if err == nil && len(l.objects) == before {
		return &inputError{file: name, err: errors.New("there are no claims or volumes in it")}
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
			return &inputError{file: l.name, document: l.document, line: lineAt(text, at), err: err}
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
			return l.yamlError(err, first)
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

// yamlError places an error of the YAML parser, whose lines count from the document's first.
func (l *loader) yamlError(err error, first int) error {
	text := strings.TrimPrefix(err.Error(), "error converting YAML to JSON: ")
	text = strings.TrimPrefix(text, "yaml: ")
	text = strings.Replace(text, "unmarshal errors:\n  ", "", 1)
	at := &inputError{file: l.name, document: l.document, line: first, from: true}
	var line int
	if n, _ := fmt.Sscanf(text, "line %d: ", &line); n == 1 {
		at.line, at.from = first+line-1, false
		_, text, _ = strings.Cut(text, ": ")
	}
	text, _, _ = strings.Cut(text, "\n") // one error is enough
	at.err = errors.New(text)
	return at
}

// failed places what is wrong with an object of the present document.
func (l *loader) failed(object string, err error) error {
	return &inputError{file: l.name, document: l.document, line: l.line, from: true, object: object, err: err}
}
