package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	v1 "k8s.io/api/core/v1"

	"github.com/stateofworld/stateofworld/examples/internal/manifest"
)

// printer writes what happens, a line each.
type printer struct {
	w          io.Writer
	progress   *progress
	names      map[v1.UniqueVolumeName]names
	start      time.Time
	volumeWide int
	nodeWide   int
}

// say writes a line about the program itself.
func (p *printer) say(verb, format string, args ...any) {
	p.progress.erase()
	fmt.Fprintf(p.w, "%-10s  %s\n", verb, manifest.Cleaned(fmt.Sprintf(format, args...)))
}

// skipped says what was left out, and of what nobody knows what it wishes.
func (p *printer) skipped(skipped, unresolved []tallied) {
	for _, t := range skipped {
		p.say("skipped", "%s: %d (%s)", t.Reason, t.Count, examples(t))
	}
	for _, t := range unresolved {
		p.say("unresolved", "%s: %d (%s)", t.Reason, t.Count, examples(t))
	}
}

func examples(t tallied) string {
	text := strings.Join(t.Examples, ", ")
	if t.Count > len(t.Examples) {
		text += ", ..."
	}
	return text
}

// event writes a line about something that has happened.
func (p *printer) event(e event) {
	p.progress.erase()
	volume := ""
	if e.volume != "" {
		n := p.names[e.volume]
		volume = manifest.Quoted(cmp.Or(n.claim, n.volume, string(e.volume)))
	}
	node := ""
	if e.node != "" {
		node = manifest.Quoted(string(e.node))
	}
	line := fmt.Sprintf("%8.2fs  %-7s  ", e.at.Seconds(), e.verb)
	if e.volume != "" || e.node != "" {
		line += fmt.Sprintf("%s  %s  ", pad(volume, p.volumeWide), pad(node, p.nodeWide))
	}
	fmt.Fprintln(p.w, line+manifest.Cleaned(e.text))
}

// pad fills a string up to a width in characters.
func pad(s string, width int) string {
	return s + strings.Repeat(" ", max(0, width-utf8.RuneCountInString(s)))
}

// maxWidth bounds a column: one very long name must not push everything else off the screen.
const maxWidth = 60

// width is that of the widest string.
func width(w int, s string) int { return max(w, min(maxWidth, utf8.RuneCountInString(s))) }

// tablePods is how many pods of a volume are named in the table.
const tablePods = 3

// printTable writes the rows, aligned, with a last column for those that are not converged.
func printTable(w io.Writer, rows []row) {
	table := [][]string{{"VOLUME", "NODE", "STATE", "PODS"}}
	for _, r := range rows {
		pods := make([]string, 0, tablePods)
		for _, pod := range r.Pods[:min(tablePods, len(r.Pods))] {
			pods = append(pods, manifest.Quoted(pod))
		}
		cells := []string{manifest.Quoted(r.name()), "-", r.State, strings.Join(pods, ",")}
		if r.Node != "" {
			cells[1] = manifest.Quoted(string(r.Node))
		}
		if more := len(r.Pods) - tablePods; more > 0 {
			cells[3] += fmt.Sprintf(",+%d", more)
		}
		if len(r.Pods) == 0 {
			cells[3] = "-"
		}
		if !r.Converged {
			cells = append(cells, manifest.Cleaned(r.Explanation))
			if len(table[0]) == 4 {
				table[0] = append(table[0], "WHY")
			}
		}
		table = append(table, cells)
	}
	var widths [5]int
	for _, cells := range table {
		for i, cell := range cells {
			widths[i] = width(widths[i], cell)
		}
	}
	for _, cells := range table {
		line := ""
		for i, cell := range cells {
			if i > 0 {
				line += "  "
			}
			if i < len(cells)-1 {
				cell = pad(cell, widths[i])
			}
			line += cell
		}
		fmt.Fprintln(w, line)
	}
}

// result is the whole of what comes out, as JSON has it.
type result struct {
	Converged  bool      `json:"converged"`
	Why        string    `json:"why,omitempty"` // it is not converged
	Seconds    float64   `json:"seconds"`
	Loaded     loaded    `json:"loaded"`
	Volumes    []row     `json:"volumes"`
	Events     summary   `json:"events"`
	Skipped    []tallied `json:"skipped"`
	Unresolved []tallied `json:"unresolved"`
}

type loaded struct {
	Nodes       int `json:"nodes"`
	Pods        int `json:"pods"`
	Claims      int `json:"claims"`
	Volumes     int `json:"volumes"`
	Attachments int `json:"attachments"`
}

func printJSON(w io.Writer, r result) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(r)
}

// conclusion is the last line.
func conclusion(r result) string {
	open, all := map[v1.UniqueVolumeName]bool{}, map[v1.UniqueVolumeName]bool{}
	for _, row := range r.Volumes {
		all[row.Volume] = true
		if !row.Converged {
			open[row.Volume] = true
		}
	}
	took := milliseconds(time.Duration(r.Seconds * float64(time.Second)))
	did := fmt.Sprintf("%s, %s", tried(r.Events.Attach, "attach", "attaches"), tried(r.Events.Detach, "detach", "detaches"))
	switch {
	case r.Converged:
		return fmt.Sprintf("converged in %s: %s, %s", took, count(len(all), "volume"), did)
	case len(open) == 0:
		return fmt.Sprintf("NOT FINISHED after %s (%s): %s, %s", took, r.Why, count(len(all), "volume"), did)
	default:
		return fmt.Sprintf("NOT CONVERGED after %s (%s): %d of %s, %s", took, r.Why, len(open), count(len(all), "volume"), did)
	}
}

// tried says how often something was done, and not.
func tried(outcomes map[string]int, one, many string) string {
	done := outcomes["done"] + outcomes["gone"]
	failed := 0
	for _, n := range outcomes {
		failed += n
	}
	failed -= done
	text := fmt.Sprintf("%d %s", done, many)
	if done == 1 {
		text = "1 " + one
	}
	if failed > 0 {
		text += fmt.Sprintf(" (%d more failed)", failed)
	}
	return text
}
