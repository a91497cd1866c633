package main

import (
	"bytes"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestTheProgressLineIsOnlyForTerminals(t *testing.T) {
	f, err := os.Create(t.TempDir() + "/log")
	require.NoError(t, err)
	defer f.Close()
	require.False(t, isTerminal(f))
	require.False(t, isTerminal(&bytes.Buffer{}))
	p := newProgress(f)
	p.show(func() string { panic("not asked for") })
	p.erase()
	info, err := f.Stat()
	require.NoError(t, err)
	require.Zero(t, info.Size())
}

func TestTheProgressLineIsReplacedInPlaceAndErased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var screen bytes.Buffer
		p := &progress{w: &screen, next: time.Now().Add(time.Second)}
		line := func(text string) func() string { return func() string { return text } }
		p.show(line("too early"))
		p.erase()
		require.Empty(t, screen.String(), "what is quick shows nothing")

		<-time.After(time.Second)
		p.show(line("1 of 3"))
		p.show(line("2 of 3"))
		<-time.After(progressPeriod)
		p.show(line(strings.Repeat("x", 200)))
		p.erase()
		p.erase()
		require.Equal(t, "\r\x1b[K1 of 3\r\x1b[K"+strings.Repeat("x", 79)+"\r\x1b[K", screen.String())
	})
}

// What the loop prints goes above the progress line, which comes back after it.
func TestLinesDoNotMixWithTheProgressLine(t *testing.T) {
	var screen bytes.Buffer
	line := &progress{w: &screen}
	p := &printer{w: &screen, progress: line}
	line.show(func() string { return "1 of 3" })
	p.say("loaded", "it")
	require.Equal(t, "\r\x1b[K1 of 3\r\x1b[Kloaded      it\n", screen.String())
}
