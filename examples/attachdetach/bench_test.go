package main

import (
	"bytes"
	"context"
	"io"
	"testing"
	"time"
)

func BenchmarkLoad(b *testing.B) {
	var buf bytes.Buffer
	generateDump(&buf, 20000)
	b.SetBytes(int64(buf.Len()))
	for b.Loop() {
		var p loading
		if _, err := load(context.Background(), []string{"-"}, bytes.NewReader(buf.Bytes()), &p); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkRun(b *testing.B) {
	var buf bytes.Buffer
	generateDump(&buf, 20000)
	for b.Loop() {
		b.StopTimer()
		var p loading
		d, err := load(context.Background(), []string{"-"}, bytes.NewReader(buf.Bytes()), &p)
		if err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
		code, err := reconcile(context.Background(), d, options{format: "table", timeout: time.Minute, files: []string{"-"}, seed: 1}, newProgress(io.Discard), io.Discard, io.Discard)
		if err != nil || code != 0 {
			b.Fatal(err, code)
		}
	}
}
