package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"sync/atomic"

	"sigs.k8s.io/yaml"

	"github.com/stateofworld/stateofworld/examples/internal/manifest"
)

// loading is how far a load has come. Another goroutine may look.
type loading struct {
	objects atomic.Int64
	bytes   atomic.Int64
}

// load reads all files, "-" being stdin, into one dump. Nothing of the dump is used unless all of it is good.
func load(ctx context.Context, files []string, stdin io.Reader, progress *loading) (*dump, error) {
	l := &loader{ctx: ctx, dump: newDump(), progress: progress}
	for _, file := range files {
		if err := l.file(file, stdin); err != nil {
			return nil, err
		}
	}
	return l.dump, nil
}

type loader struct {
	ctx      context.Context
	dump     *dump
	progress *loading

	name     string // of the file being read
	document int    // number of the document being read
	isYAML   bool   // the lines of objects are not known, only those of documents
	last     head   // kind and version of the last object, if it is one that is read
}

func (l *loader) file(name string, stdin io.Reader) error {
	l.name, l.document, l.isYAML = name, 0, false
	in := stdin
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return &manifest.Error{File: name, Err: errors.Unwrap(err)} // without the name, which comes first anyway
		}
		defer f.Close()
		in = f
	}
	r := bufio.NewReaderSize(&source{ctx: l.ctx, r: in, n: &l.progress.bytes}, 1<<16)
	start, err := peekFirst(r)
	if err != nil && !errors.Is(err, io.EOF) {
		return &manifest.Error{File: l.name, Err: err}
	}
	switch start {
	case '{', '[':
		err = l.json(r)
	default:
		err = l.yaml(r)
	}
	if err == nil && l.document == 0 {
		return &manifest.Error{File: l.name, Err: errors.New("there are no Kubernetes objects in it")}
	}
	return err
}

// source adds up what is read through it, and ends with its context.
type source struct {
	ctx context.Context
	r   io.Reader
	n   *atomic.Int64
}

func (c *source) Read(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	n, err := c.r.Read(p)
	c.n.Add(int64(n))
	return n, err
}

var errUTF16 = errors.New("is UTF-16, as PowerShell's > writes it: save it as UTF-8")

// peekFirst returns the first byte that is not white space, without consuming more than a byte order mark.
func peekFirst(r *bufio.Reader) (byte, error) {
	mark, err := r.Peek(3)
	switch {
	case bytes.HasPrefix(mark, []byte{0xff, 0xfe}), bytes.HasPrefix(mark, []byte{0xfe, 0xff}):
		return 0, errUTF16
	case bytes.Equal(mark, []byte{0xef, 0xbb, 0xbf}):
		_, err = r.Discard(3)
	case errors.Is(err, io.EOF):
		err = nil // it is only short
	}
	if err != nil {
		return 0, err
	}
	for n := 1; n <= r.Size(); n++ {
		b, err := r.Peek(n)
		if len(b) < n {
			return 0, err
		}
		if c := b[n-1]; !strings.ContainsRune(" \t\r\n", rune(c)) {
			return c, nil
		}
	}
	return 0, nil
}

// yaml reads the documents one by one. Each is held in memory as a whole: it has to be, to be parsed.
func (l *loader) yaml(r *bufio.Reader) error {
	l.isYAML = true
	var text []byte
	first, line := 1, 0 // of the document, of the file
	parse := func() error {
		if blankYAML(text) {
			return nil
		}
		l.document++
		data, err := yaml.YAMLToJSONStrict(text)
		if err != nil {
			return manifest.YAMLError(l.name, l.document, err, first)
		}
		// The lines of the text are lost now: a bad field is named by its object, and placed at the document's first line.
		return l.value(newJSONSource(bytes.NewReader(data), first))
	}
	for {
		chunk, err := r.ReadSlice('\n')
		ended := err != nil && !errors.Is(err, bufio.ErrBufferFull)
		newLine := len(text) == 0 || text[len(text)-1] == '\n'
		if newLine && len(chunk) > 0 {
			line++
		}
		if newLine && isSeparator(chunk) {
			if err := parse(); err != nil {
				return err
			}
			text, first = append(text[:0], '\n'), line
			// What follows on the line of the dashes belongs to the document; so does, for the line numbers, the line itself.
			if rest := bytes.TrimSpace(chunk[3:]); len(rest) > 0 && chunk[0] == '-' && rest[0] != '#' {
				text = append(append(text[:0], rest...), '\n')
			}
		} else {
			text = append(text, chunk...)
		}
		if ended {
			if !errors.Is(err, io.EOF) {
				return &manifest.Error{File: l.name, Document: l.document + 1, Line: line, Err: err}
			}
			return parse()
		}
	}
}

// isSeparator says whether a line ends a document: "---" or "...", alone or with something after a space.
func isSeparator(line []byte) bool {
	if !bytes.HasPrefix(line, []byte("---")) && !bytes.HasPrefix(line, []byte("...")) {
		return false
	}
	return len(line) == 3 || strings.ContainsRune(" \t\r\n", rune(line[3]))
}

// blankYAML says whether there is nothing but comments and white space.
func blankYAML(text []byte) bool {
	for line := range bytes.Lines(text) {
		if line = bytes.TrimSpace(line); len(line) > 0 && line[0] != '#' && line[0] != '%' {
			return false
		}
	}
	return true
}
