// Package manifest is what the example programs share that read Kubernetes objects from files: how an error says where it is, and how
// names that come from a file are printed.
package manifest

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// Names come out of a file, and what is printed goes to a terminal: a name with control characters in it could move the
// cursor, forge a line or change its order.

// Quoted returns a name as it is if it is plain, and else in Go's quotes. An empty name is "".
func Quoted(name string) string {
	if name == "" || strings.ContainsAny(name, " \"") || !IsPlain(name) {
		return strconv.Quote(name)
	}
	return name
}

// Cleaned returns a sentence with everything escaped that is not plain.
func Cleaned(text string) string {
	if IsPlain(text) {
		return text
	}
	var b strings.Builder
	for len(text) > 0 {
		r, n := utf8.DecodeRuneInString(text)
		if IsPlain(text[:n]) {
			b.WriteString(text[:n])
		} else if r == utf8.RuneError && n == 1 {
			b.WriteString(strconv.Quote(text[:n])[1:5])
		} else {
			escape := strconv.QuoteRune(r)
			b.WriteString(escape[1 : len(escape)-1])
		}
		text = text[n:]
	}
	return b.String()
}

// IsPlain reports whether all of a text can be printed as it is.
func IsPlain(s string) bool {
	if !utf8.ValidString(s) {
		return false
	}
	for _, r := range s {
		if !strconv.IsPrint(r) {
			return false
		}
	}
	return true
}
