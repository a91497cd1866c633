package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"

	v1 "k8s.io/api/core/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

// load reads the one pod spec in a file of YAML documents. Errors name the file and the document.
func load(file string, stdin io.Reader) (*v1.PodSpec, error) {
	in := stdin
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		in = f
	}
	var found *v1.PodSpec
	documents := utilyaml.NewYAMLReader(bufio.NewReader(in))
	for n := 1; ; n++ {
		text, err := documents.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		var spec *v1.PodSpec
		if err == nil {
			spec, err = decode(text)
		}
		if err == nil && spec != nil && found != nil {
			err = errors.New("there is a pod in an earlier document already; give each a file and a -base of its own")
		}
		if err != nil {
			return nil, fmt.Errorf("%s: document %d: %w", file, n, err)
		}
		if spec != nil {
			found = spec
		}
	}
	if found == nil {
		return nil, fmt.Errorf("%s: there is no pod in it", file)
	}
	return found, nil
}

// decode reads one document. One that holds nothing is nil.
func decode(text []byte) (*v1.PodSpec, error) {
	var head struct {
		APIVersion, Kind string
	}
	asJSON, err := yaml.YAMLToJSONStrict(text)
	if err != nil {
		return nil, err
	}
	if string(bytes.TrimSpace(asJSON)) == "null" {
		return nil, nil
	}
	if err := yaml.Unmarshal(text, &head); err != nil {
		return nil, err
	}
	switch {
	case head.Kind == "Pod" && head.APIVersion == "v1":
		var pod v1.Pod
		if err := yaml.UnmarshalStrict(text, &pod); err != nil {
			return nil, err
		}
		return &pod.Spec, nil
	case head.Kind == "" && head.APIVersion == "":
		return decodeBare(text)
	default:
		return nil, fmt.Errorf("apiVersion %q, kind %q: want a Pod of v1, or a bare spec", head.APIVersion, head.Kind)
	}
}

// decodeBare reads a declaration as konlet takes it, whose containers need no names.
func decodeBare(text []byte) (*v1.PodSpec, error) {
	var bare struct {
		Spec *v1.PodSpec `json:"spec"`
	}
	if err := yaml.UnmarshalStrict(text, &bare); err != nil {
		return nil, err
	}
	if bare.Spec == nil {
		return nil, errors.New("there is no spec in it")
	}
	for i := range bare.Spec.Containers {
		if c := &bare.Spec.Containers[i]; c.Name == "" {
			c.Name = fmt.Sprintf("container-%d", i)
		}
	}
	return bare.Spec, nil
}
