package main

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// Names come out of a file, and what is printed goes to a terminal: a name with control characters in it could move the
// cursor, forge a line or change its order.

// quoted returns a name as it is if it is plain, and else in Go's quotes. An empty name is "".
func quoted(name string) string {
	if name == "" || strings.ContainsAny(name, " \"") || !isPlain(name) {
		return strconv.Quote(name)
	}
	return name
}

// cleaned returns a sentence with everything escaped that is not plain.
func cleaned(text string) string {
	if isPlain(text) {
		return text
	}
	var b strings.Builder
	for len(text) > 0 {
		r, n := utf8.DecodeRuneInString(text)
		if isPlain(text[:n]) {
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

func isPlain(s string) bool {
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
