package store

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"gputop/engine"
)

// BenchmarkFsync is the machine's price of a durable 4 KiB, which the others are to be read beside.
func BenchmarkFsync(b *testing.B) {
	f, err := os.Create(filepath.Join(b.TempDir(), "raw"))
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	block := bytes.Repeat([]byte("x"), 4096)
	for b.Loop() {
		if _, err := f.WriteAt(block, 0); err != nil {
			b.Fatal(err)
		}
		if err := f.Sync(); err != nil {
			b.Fatal(err)
		}
	}
}

func submitOne(b *testing.B, s *Store) {
	id := s.NextJobID()
	if err := s.Apply(context.Background(), PutJob(job(id, engine.Pending)), AddEvent(event(id, "submitted"))); err != nil {
		b.Error(err)
	}
}

func BenchmarkApplyAlone(b *testing.B) {
	s := open(b, b.TempDir(), Options{})
	for b.Loop() {
		submitOne(b, s)
	}
}

func BenchmarkApply64(b *testing.B) {
	s := open(b, b.TempDir(), Options{})
	var left atomic.Int64
	left.Store(int64(b.N))
	done := make(chan struct{})
	b.ResetTimer()
	for range 64 {
		go func() {
			for left.Add(-1) >= 0 {
				submitOne(b, s)
			}
			done <- struct{}{}
		}()
	}
	for range 64 {
		<-done
	}
	b.ReportMetric(float64(b.N)/float64(s.writer.commits.Load()), "calls/transaction")
}

func BenchmarkNextJobID(b *testing.B) {
	s := open(b, b.TempDir(), Options{})
	for b.Loop() {
		s.NextJobID()
	}
}

func BenchmarkLoad(b *testing.B) {
	for _, n := range []int{10, 10_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			s := open(b, b.TempDir(), Options{})
			var changes []Change
			for range n {
				changes = append(changes, PutJob(job(s.NextJobID(), engine.Pending)))
			}
			apply(b, s, changes...)
			for b.Loop() {
				if live := load(b, s); len(live.Jobs) != n {
					b.Fatal(len(live.Jobs))
				}
			}
		})
	}
}
