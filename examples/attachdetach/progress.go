package main

import (
	"fmt"
	"io"
	"os"
	"time"
)

// progress is a line at the bottom of a terminal that is written over and over. On anything else it is nothing.
type progress struct {
	w     io.Writer // nil: no terminal
	shown bool
	next  time.Time // not shown again before
}

// progressPeriod is how often the line changes, and how long nothing is shown at first: what is quick needs no progress.
const progressPeriod = 100 * time.Millisecond

func newProgress(w io.Writer) *progress {
	if !isTerminal(w) {
		return &progress{}
	}
	return &progress{w: w, next: time.Now().Add(3 * progressPeriod)}
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0 && os.Getenv("TERM") != "dumb"
}

// show replaces the line, if it is time to.
func (p *progress) show(line func() string) {
	if p.w == nil || time.Now().Before(p.next) {
		return
	}
	p.next = time.Now().Add(progressPeriod)
	p.shown = true
	fmt.Fprintf(p.w, "\r\x1b[K%.79s", line())
}

// erase removes the line, so that something else can be printed.
func (p *progress) erase() {
	if p.shown {
		p.shown = false
		fmt.Fprint(p.w, "\r\x1b[K")
	}
}
