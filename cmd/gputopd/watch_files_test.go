package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestWatchFiles(t *testing.T) {
	for _, c := range []struct {
		name string
		harm func(path string) error
	}{
		{"removed", os.Remove},
		{"its directory removed", func(p string) error { return os.RemoveAll(filepath.Dir(p)) }},
		{"replaced", func(p string) error {
			if err := os.WriteFile(p+".new", nil, 0o600); err != nil {
				return err
			}
			return os.Rename(p+".new", p)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "state", "gputop.db")
			if err := os.Mkdir(filepath.Dir(path), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			done := make(chan error, 1)
			go func() { done <- watchFiles(t.Context(), time.Millisecond, path) }()
			select {
			case err := <-done:
				t.Fatalf("ended while all was well: %v", err)
			case <-time.After(50 * time.Millisecond):
			}
			if err := c.harm(path); err != nil {
				t.Fatal(err)
			}
			if err := <-done; err == nil || !strings.Contains(err.Error(), "was removed or replaced") {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestWatchFilesEndsWithItsContext(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := watchFiles(ctx, time.Hour, path); err != nil {
		t.Error(err)
	}
}
