package nodestatus

import (
	"context"
	"fmt"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

type nullSink struct{}

func (nullSink) Write(context.Context, types.NodeName, []v1.AttachedVolume) error { return nil }

func benchWriter(b *testing.B) (*Writer, *world, []types.NodeName) {
	s := newWorld()
	w, err := NewWriter(WriterConfig{Source: s, Sink: nullSink{}})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := w.Shutdown(context.Background()); err != nil {
			b.Error(err)
		}
	})
	nodes := make([]types.NodeName, 1000)
	for i := range nodes {
		nodes[i] = types.NodeName(fmt.Sprintf("node-%04d", i))
		s.set(nodes[i], "kubernetes.io/csi/disk.example.com^vol-1")
	}
	b.ReportAllocs()
	return w, s, nodes
}

// One change of one node's list, until it is written by a sink that takes no time.
func BenchmarkFlush(b *testing.B) {
	w, s, nodes := benchWriter(b)
	i := 0
	for b.Loop() {
		node := nodes[i%len(nodes)]
		i++
		version := s.set(node, v1.UniqueVolumeName("kubernetes.io/csi/disk.example.com^vol-"+fmt.Sprint(i%3)))
		w.Changed(node)
		if err := w.Flush(b.Context(), node, version); err != nil {
			b.Fatal(err)
		}
	}
}

// What a change costs the one who made it, for instance the executor.
func BenchmarkChanged(b *testing.B) {
	w, _, nodes := benchWriter(b)
	i := 0
	for b.Loop() {
		w.Changed(nodes[i%len(nodes)])
		i++
	}
}
