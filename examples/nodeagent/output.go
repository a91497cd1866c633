package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/stateofworld/stateofworld/examples/internal/manifest"
	"github.com/stateofworld/stateofworld/lvm/lifecycle"
)

// printer writes what happens, a line each, as it happens. It may be used by several goroutines.
type printer struct {
	mu    sync.Mutex
	w     io.Writer
	start time.Time
	wide  int                         // of the column of objects
	last  map[string]lifecycle.Reason // why each object has failed last
}

// The two sides, and who else does something.
const (
	user   = "user"
	driver = "driver" // the provisioner, beside the API
	agent  = "agent"  // on the node
)

// event writes a line about something that has happened to an object.
func (p *printer) event(who, object, format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.wide = width(p.wide, object)
	fmt.Fprintf(p.w, "%7.2fs  %-6s  %s  %s\n", time.Since(p.start).Seconds(), who, pad(object, p.wide), manifest.Cleaned(fmt.Sprintf(format, args...)))
}

// say writes a line about the program itself.
func (p *printer) say(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	fmt.Fprintln(p.w, manifest.Cleaned(fmt.Sprintf(format, args...)))
}

// notice writes what the agent says.
func (p *printer) notice(n lifecycle.Notice) {
	object := kindNames[n.Kind] + " " + manifest.Quoted(n.Name)
	if n.Namespace != "" {
		object = claimName(n.Namespace, n.Name)
	}
	text := n.Message
	switch n.Type {
	case lifecycle.NoticeCreated:
		text = "made " + n.LV.String()
	case lifecycle.NoticeDeleted:
		text = n.LV.String() + " is gone"
	case lifecycle.NoticeFailed:
		if !p.isNews(object, n.Failure.Reason) {
			return
		}
		text = "failed: " + failureText(n.Failure)
	case lifecycle.NoticeWithdrawn:
		text = "removed again: nobody wants it any more"
	}
	p.event(agent, object, "%s", text)
}

// isNews reports whether an object has failed for another reason than before. What is tried again fails in slightly other words, such as how much room there is.
func (p *printer) isNews(object string, r lifecycle.Reason) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.last == nil {
		p.last = map[string]lifecycle.Reason{}
	}
	news := p.last[object] != r
	p.last[object] = r
	return news
}

var kindNames = map[lifecycle.Kind]string{
	lifecycle.KindClaim: "claim", lifecycle.KindVolume: "volume", lifecycle.KindLogicalVolume: "lv", lifecycle.KindVolumeGroup: "group", lifecycle.KindNode: "node",
}

func claimName(namespace, name string) string { return "claim " + manifest.Quoted(namespace+"/"+name) }

func failureText(f lifecycle.Failure) string { return string(f.Reason) + ": " + f.Message }

// pad fills a string up to a width in characters.
func pad(s string, width int) string {
	return s + strings.Repeat(" ", max(0, width-utf8.RuneCountInString(s)))
}

// maxWidth bounds a column: one very long name must not push everything else off the screen.
const maxWidth = 60

func width(w int, s string) int { return max(w, min(maxWidth, utf8.RuneCountInString(s))) }

// result is the whole of what comes out, as JSON has it.
type result struct {
	OK             bool        `json:"ok"`
	Problems       []problem   `json:"problems,omitempty"`
	Seconds        float64     `json:"seconds"`
	Objects        []objectRow `json:"objects"`
	LogicalVolumes []lvRow     `json:"logicalVolumes"`
	// Cleaned is what became of what a demonstration has made in a real group.
	Cleaned string `json:"manifest.Cleaned,omitempty"`
	// Told is what the last line says when all is well.
	Told string `json:"-"`
}

// problem is something that is not as it should be.
type problem struct {
	Object string `json:"object,omitempty"`
	Why    string `json:"why"`
	Next   string `json:"next,omitempty"` // what to do about it
}

// objectRow is a claim or volume as it is in the end.
type objectRow struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	State     string `json:"state"`
	LV        string `json:"logicalVolume,omitempty"`
	Why       string `json:"why,omitempty"`
	// Annotations are those of the protocol.
	Annotations map[string]string `json:"annotations"`
}

func (r objectRow) object() string {
	if r.Kind == claimKind {
		return claimName(r.Namespace, r.Name)
	}
	return "volume " + manifest.Quoted(r.Name)
}

type lvRow struct {
	Name  string   `json:"name"`
	UUID  string   `json:"uuid"`
	Size  uint64   `json:"size"`
	Owner string   `json:"owner"`
	Tags  []string `json:"tags"`
}

func (r result) printJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(r)
}

func (r result) printTables(w io.Writer) {
	rows := [][]string{{"OBJECT", "STATE", "LOGICAL VOLUME", "WHY"}}
	for _, o := range r.Objects {
		rows = append(rows, []string{o.object(), orDash(o.State), orDash(o.LV), orDash(manifest.Cleaned(o.Why))})
	}
	printTable(w, rows)
	fmt.Fprintln(w)
	rows = [][]string{{"LOGICAL VOLUME", "SIZE", "MADE FOR"}}
	for _, lv := range r.LogicalVolumes {
		rows = append(rows, []string{lv.Name, size(lv.Size), lv.Owner})
	}
	if len(r.LogicalVolumes) == 0 {
		rows = append(rows, []string{"-", "-", "-"})
	}
	printTable(w, rows)
	fmt.Fprintln(w)
	for _, p := range r.Problems {
		text := p.Why
		if p.Object != "" {
			text = p.Object + ": " + text
		}
		fmt.Fprintln(w, "FAILED  "+manifest.Cleaned(text))
		if p.Next != "" {
			fmt.Fprintln(w, "        "+p.Next)
		}
	}
	if r.Cleaned != "" {
		fmt.Fprintln(w, r.Cleaned)
	}
	if r.OK {
		fmt.Fprintln(w, r.Told)
	}
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func printTable(w io.Writer, rows [][]string) {
	widths := make([]int, len(rows[0]))
	for _, cells := range rows {
		for i, cell := range cells {
			widths[i] = width(widths[i], cell)
		}
	}
	for _, cells := range rows {
		line := ""
		for i, cell := range cells {
			line += pad(cell, widths[i]) + "  "
		}
		fmt.Fprintln(w, strings.TrimRight(line, " "))
	}
}

// size is a number of bytes for a person.
func size(n uint64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"}
	i := 0
	for n >= 1024 && n%1024 == 0 && i < len(units)-1 {
		n, i = n/1024, i+1
	}
	return fmt.Sprintf("%d %s", n, units[i])
}

func count(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return fmt.Sprintf("%d %s", n, what)
}
