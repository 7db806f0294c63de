package store

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"gputop/engine"
)

// writeV1 made testdata/v1.db. It is not run again: the file has to load for ever as it is.
func writeV1(path string) {
	dir, err := os.MkdirTemp("", "v1")
	check(err)
	s, err := Open(context.Background(), dir, Options{})
	check(err)
	code := 0
	done := job(1, engine.Succeeded)
	done.ExitCode, done.Attempts = &code, 1
	check(s.Apply(context.Background(), PutJob(done), PutAttempt(attempt(1, 1, engine.Released)),
		AddEvent(event(1, "submitted")), AddEvent(event(1, "succeeded"))))
	check(s.Apply(context.Background(), PutJob(job(2, engine.Running)), PutAttempt(attempt(2, 1, engine.Active))))
	check(s.Apply(context.Background(), PutJob(job(3, engine.Pending)), AddEvent(event(3, "submitted"))))
	check(s.Close())
	b, err := os.ReadFile(filepath.Join(dir, fileName))
	check(err)
	check(os.WriteFile(path, b, 0o644))
	os.Exit(0)
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func TestSchemaV1LoadsForEver(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, fileName), read(t, "testdata/v1.db"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := open(t, dir, Options{})
	// The expectation is text: nouns that change must go on reading what version 1 wrote.
	want := string(read(t, "testdata/v1.json"))
	if got := dump(t, s); got != want {
		t.Errorf("testdata/v1.db reads as:\n%s", got)
	}
	equal(t, "next id", s.NextJobID(), engine.JobID(4))
	apply(t, s, PutJob(job(4, engine.Pending)))
}

// dump is what a store holds, as JSON.
func dump(t *testing.T, s *Store) string {
	t.Helper()
	ended, err := s.Ended(context.Background(), 0, 100)
	if err != nil {
		t.Fatal(err)
	}
	_, attempts, events, err := s.Job(context.Background(), 1)
	if err != nil {
		t.Fatal(err)
	}
	b, err := json.MarshalIndent(map[string]any{"instance": s.Instance(), "live": load(t, s), "ended": ended,
		"attempts of 1": attempts, "events of 1": events}, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	return string(b) + "\n"
}
