package main

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A changed file is taken; a bad one is told with its line, and what was read before stays in force.
func TestReload(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config.yaml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(path+".new", path); err != nil {
			t.Fatal(err)
		}
	}
	load := func() (config, error) { return loadConfig(path, false, false) }
	first, err := load()
	if err != nil {
		t.Fatal(err)
	}
	taken, problems := make(chan config, 10), make(chan string, 100)
	r := &reloader{path: path, load: load, inForce: first, take: func(c config) { taken <- c }, problem: func(s string) { problems <- s }, log: slog.New(slog.DiscardHandler)}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.run(ctx, time.Millisecond, time.Hour) }()
	problem := func(want string) {
		t.Helper()
		for {
			select {
			case got := <-problems:
				if got == want || want != "" && strings.Contains(got, want) {
					return
				}
			case <-time.After(10 * time.Second):
				t.Fatalf("never told %q", want)
			}
		}
	}
	write("stop_grace: 5s\n")
	if c := <-taken; c.policy.StopGrace != 5*time.Second {
		t.Errorf("took %+v", c)
	}
	problem("")
	write("stop_grace: 7s\nstop_grase: 5s\n")
	problem("[2:1] unknown field")
	if len(taken) != 0 {
		t.Errorf("a bad file was taken: %+v", <-taken)
	}
	write("stop_grace: 9s\n")
	if c := <-taken; c.policy.StopGrace != 9*time.Second {
		t.Errorf("took %+v", c)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if c := <-taken; c.policy.StopGrace != first.policy.StopGrace {
		t.Errorf("without a file: %+v", c)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
