package main

import (
	"bytes"
	"io"
)

// lineCounter knows on which line each byte is that was read through it, from the last one asked for on. It keeps the ends
// of the lines that were read ahead, and nothing of what was before.
type lineCounter struct {
	r      io.Reader
	read   int64
	passed int     // lines that ended before the offset asked for last
	ends   []int64 // offsets of the line ends after it
}

func (c *lineCounter) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	for i := 0; i < n; i++ {
		next := bytes.IndexByte(p[i:n], '\n')
		if next < 0 {
			break
		}
		i += next
		c.ends = append(c.ends, c.read+int64(i))
	}
	c.read += int64(n)
	return n, err
}

// line returns the line of the byte at offset, which must not be before the one that pass was called with last.
func (c *lineCounter) line(offset int64) int {
	line := c.passed + 1
	for _, end := range c.ends {
		if end >= offset {
			break
		}
		line++
	}
	return line
}

// pass forgets what was before offset.
func (c *lineCounter) pass(offset int64) {
	n := 0
	for n < len(c.ends) && c.ends[n] < offset {
		n++
	}
	c.passed += n
	c.ends = c.ends[:copy(c.ends, c.ends[n:])]
}
