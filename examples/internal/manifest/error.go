package manifest

import (
	"errors"
	"fmt"
	"strings"
)

// Error says what is wrong with the input, and where.
type Error struct {
	File     string
	Document int    // of the file, from 1; 0: the whole file
	Line     int    // of the file, from 1; 0: not known
	From     bool   // Line is only where the document begins
	Object   string // as in `Pod "shop/web-0"`; empty: none
	Err      error
}

func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(FileName(e.File))
	if e.Document > 0 {
		fmt.Fprintf(&b, ": document %d", e.Document)
	}
	switch {
	case e.Line > 0 && e.From:
		fmt.Fprintf(&b, " (from line %d on)", e.Line)
	case e.Line > 0:
		fmt.Fprintf(&b, ", line %d", e.Line)
	}
	if e.Object != "" {
		b.WriteString(": " + e.Object)
	}
	return b.String() + ": " + Cleaned(e.Err.Error())
}

func (e *Error) Unwrap() error { return e.Err }

// FileName is how a file is called in messages.
func FileName(file string) string {
	if file == "-" {
		return "standard input"
	}
	return Quoted(file)
}

// YAMLError places an error of the YAML parser in a document that begins at the line first: its lines count from there.
func YAMLError(file string, document int, err error, first int) *Error {
	text := strings.TrimPrefix(err.Error(), "error converting YAML to JSON: ")
	text = strings.TrimPrefix(text, "yaml: ")
	text = strings.Replace(text, "unmarshal errors:\n  ", "", 1)
	at := &Error{File: file, Document: document, Line: first, From: true}
	var line int
	if n, _ := fmt.Sscanf(text, "line %d: ", &line); n == 1 {
		at.Line, at.From = first+line-1, false
		_, text, _ = strings.Cut(text, ": ")
	}
	text, _, _ = strings.Cut(text, "\n") // one error is enough
	at.Err = errors.New(text)
	return at
}
