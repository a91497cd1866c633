package main

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	v1 "k8s.io/api/core/v1"

	"github.com/stateofworld/stateofworld/executor/hostvolume"
)

// result is what is written. The plan is there only in a dry run.
type result struct {
	Plan     []string                                          `json:"plan,omitempty"`
	Bindings map[string][]hostvolume.HostPathBindConfiguration `json:"bindings"`

	spec *v1.PodSpec
}

var formats = []string{"table", "json", "docker"}

func isFormat(name string) bool { return slices.Contains(formats, name) }

func (r *result) write(w io.Writer, format string) error {
	switch format {
	case "json":
		encoder := json.NewEncoder(w)
		encoder.SetIndent("", "  ")
		encoder.SetEscapeHTML(false)
		return encoder.Encode(r)
	case "docker":
		return r.writeDocker(w)
	default:
		return r.writeTable(w)
	}
}

// containers are the names of the containers and their images in the order of the spec.
func (r *result) containers() (names []string, images map[string]string) {
	images = map[string]string{}
	add := func(name, image string) {
		names = append(names, name)
		images[name] = image
	}
	for _, c := range r.spec.InitContainers {
		add(c.Name, c.Image)
	}
	for _, c := range r.spec.Containers {
		add(c.Name, c.Image)
	}
	for _, c := range r.spec.EphemeralContainers {
		add(c.Name, c.Image)
	}
	return names, images
}

func (r *result) writeTable(w io.Writer) error {
	if r.Plan != nil {
		fmt.Fprintln(w, "PLAN (on a host in memory with the disks and paths that the pod names; nothing was done to this machine)")
		for i, line := range r.Plan {
			fmt.Fprintf(w, "%3d  %s\n", i+1, line)
		}
		fmt.Fprintln(w)
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "CONTAINER\tCONTAINER PATH\tMODE\tHOST PATH")
	names, _ := r.containers()
	for _, name := range names {
		for _, b := range r.Bindings[name] {
			fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", name, b.ContainerPath, strings.Join(mode(b), ","), b.HostPath)
		}
	}
	return table.Flush()
}

// mode are the options of a bind mount as docker names them.
func mode(b hostvolume.HostPathBindConfiguration) []string {
	options := []string{"rw"}
	if b.ReadOnly {
		options[0] = "ro"
	}
	switch b.MountPropagation {
	case v1.MountPropagationHostToContainer:
		options = append(options, "rslave")
	case v1.MountPropagationBidirectional:
		options = append(options, "rshared")
	}
	return options
}

// writeDocker writes one command line for each container, with the plan before it as comments.
func (r *result) writeDocker(w io.Writer) error {
	names, images := r.containers()
	var lines []string
	for _, name := range names {
		words := []string{"docker", "run", "--name", name}
		for _, b := range r.Bindings[name] {
			if strings.Contains(b.HostPath, ":") {
				return fmt.Errorf("container %s: host path %q has a colon, which -v cannot express", name, b.HostPath)
			}
			argument := b.HostPath + ":" + b.ContainerPath
			if options := mode(b); len(options) > 1 || b.ReadOnly {
				argument += ":" + strings.Join(options, ",")
			}
			words = append(words, "-v", argument)
		}
		if images[name] != "" {
			words = append(words, images[name])
		}
		for i := range words {
			words[i] = quote(words[i])
		}
		lines = append(lines, strings.Join(words, " "))
	}
	for _, line := range r.Plan {
		fmt.Fprintln(w, "#", line)
	}
	for _, line := range lines {
		fmt.Fprintln(w, line)
	}
	return nil
}

// quote writes a word as a shell takes it.
func quote(word string) string {
	if word != "" && strings.Trim(word, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789@%+=:,./_-") == "" {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
