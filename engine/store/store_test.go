package store

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"gputop/engine"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv("GPUTOP_STORE_CRASH"); dir != "" {
		applyUntilKilled(dir)
	}
	if path := os.Getenv("GPUTOP_STORE_WRITE_V1"); path != "" {
		writeV1(path)
	}
	if dir := os.Getenv("GPUTOP_STORE_FULL"); dir != "" {
		os.Exit(fillDisk(dir))
	}
	goleak.VerifyTestMain(m)
}

var epoch = time.Date(2026, 3, 1, 12, 0, 0, 123456789, time.UTC)

func job(id engine.JobID, state engine.JobState) engine.Job {
	j := engine.Job{ID: id, Owner: engine.User{UID: 1000, GID: 1000, Name: "alice"}, State: state, Submitted: epoch,
		Queued: epoch, Spec: engine.Spec{Name: "train", Profile: "host-env", Command: []string{"python", "train.py"},
			Workdir: "/home/alice/my project", Env: map[string]string{"A": "<&>\n\x1b[1m"}, Class: engine.Medium,
			Request: engine.Request{GPUs: 1}, TimeLimit: 24 * time.Hour}}
	if state.Final() {
		j.Ended = epoch.Add(time.Hour)
	}
	return j
}

func attempt(id engine.JobID, n int, state engine.AllocationState) engine.Attempt {
	return engine.Attempt{ID: engine.AttemptID{Job: id, Number: n}, Container: fmt.Sprintf("gputop-x-%d-%d", id, n),
		BootID: "b", Granted: epoch, Allocation: engine.Allocation{State: state, CPUs: 1.5, Memory: engine.GiB,
			Grants: []engine.Grant{{Device: "GPU-1", Memory: 40 * engine.GiB, Fraction: 1, Whole: true}}}}
}

func event(id engine.JobID, kind string) engine.Event {
	return engine.Event{Time: epoch, Job: id, Kind: kind, Text: "said " + kind}
}

func open(t testing.TB, dir string, o Options) *Store {
	t.Helper()
	s, err := Open(context.Background(), dir, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func apply(t testing.TB, s *Store, changes ...Change) {
	t.Helper()
	if err := s.Apply(context.Background(), changes...); err != nil {
		t.Fatal(err)
	}
}

func load(t testing.TB, s *Store) Live {
	t.Helper()
	live, err := s.Load(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return live
}

func equal(t testing.TB, what string, got, want any) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s:\n got %+v\nwant %+v", what, got, want)
	}
}

func TestLoadGivesWhatADaemonGoesOnWith(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, Options{})
	apply(t, s, PutJob(job(1, engine.Pending)))
	apply(t, s, PutJob(job(2, engine.Succeeded)), PutAttempt(attempt(2, 1, engine.Released)))
	apply(t, s, PutJob(job(3, engine.Failed)), PutAttempt(attempt(3, 1, engine.Released)),
		PutAttempt(attempt(3, 2, engine.Releasing)))
	apply(t, s, PutAttempt(attempt(4, 1, engine.Active)), PutJob(job(4, engine.Running)))
	want := Live{
		Jobs: []engine.Job{job(1, engine.Pending), job(3, engine.Failed), job(4, engine.Running)},
		Attempts: []engine.Attempt{attempt(3, 1, engine.Released), attempt(3, 2, engine.Releasing),
			attempt(4, 1, engine.Active)},
	}
	equal(t, "before reopening", load(t, s), want)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, dir, Options{})
	equal(t, "after reopening", load(t, s), want)
	apply(t, s, PutAttempt(attempt(3, 2, engine.Released)))
	equal(t, "after the release", len(load(t, s).Jobs), 2)
}

func TestJobEndedEventsPrune(t *testing.T) {
	ctx := context.Background()
	s := open(t, t.TempDir(), Options{})
	for id := range engine.JobID(6) {
		apply(t, s, PutJob(job(id+1, engine.Succeeded)), AddEvent(event(id+1, "b")), AddEvent(event(id+1, "a")))
	}
	apply(t, s, PutJob(job(7, engine.Pending)), PutAttempt(attempt(2, 1, engine.Releasing)), AddEvent(event(2, "c")))

	j, attempts, events, err := s.Job(ctx, 2)
	equal(t, "error", err, nil)
	equal(t, "job", j, job(2, engine.Succeeded))
	equal(t, "attempts", attempts, []engine.Attempt{attempt(2, 1, engine.Releasing)})
	equal(t, "events", events, []engine.Event{event(2, "b"), event(2, "a"), event(2, "c")})
	_, _, _, err = s.Job(ctx, 99)
	if !errors.Is(err, ErrNotFound) || !strings.Contains(err.Error(), "99") {
		t.Errorf("unknown job: %v", err)
	}

	ended := func(before engine.JobID, limit int) (ids []engine.JobID) {
		jobs, err := s.Ended(ctx, before, limit)
		equal(t, "error", err, nil)
		for _, j := range jobs {
			ids = append(ids, j.ID)
		}
		return ids
	}
	equal(t, "newest", ended(0, 2), []engine.JobID{6, 5})
	equal(t, "next page", ended(5, 2), []engine.JobID{4, 3})
	equal(t, "all", ended(0, 100), []engine.JobID{6, 5, 4, 3, 2, 1})

	gone, err := s.Prune(ctx, 1)
	equal(t, "error", err, nil)
	owner := job(1, engine.Succeeded).Owner
	owner.GID = 0                                                                    // it may have changed meanwhile
	equal(t, "pruned", gone, []Gone{{5, owner}, {4, owner}, {3, owner}, {1, owner}}) // 2 still holds its device, 6 is kept, 7 is not final
	equal(t, "left", ended(0, 100), []engine.JobID{6, 2})
	events, err = s.Events(ctx, 1)
	equal(t, "events of a pruned job", events, []engine.Event(nil))
	equal(t, "error", err, nil)
}

func TestJobIDsAreNeverUsedAgain(t *testing.T) {
	ctx := context.Background()
	dir := t.TempDir()
	s := open(t, dir, Options{})
	equal(t, "first", s.NextJobID(), engine.JobID(1))
	apply(t, s, PutJob(job(1, engine.Succeeded)))
	apply(t, s, PutJob(job(s.NextJobID(), engine.Succeeded)))
	if _, err := s.Prune(ctx, 0); err != nil {
		t.Fatal(err)
	}
	// As after a crash: what keeps the counter is the stored job, not Close.
	last, err := highestJob(ctx, s.writer.conn)
	equal(t, "kept on disk", last, int64(2))
	equal(t, "error", err, nil)
	equal(t, "handed out, never stored", s.NextJobID(), engine.JobID(3))
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, dir, Options{})
	equal(t, "after a clean restart", s.NextJobID(), engine.JobID(4))
	apply(t, s, PutJob(job(10, engine.Pending)))
	equal(t, "after a job with an id of its own", s.NextJobID(), engine.JobID(11))
}

func TestApplyRefusesBadChanges(t *testing.T) {
	bad := job(1, engine.Pending)
	bad.Spec.Request.CPUs = engine.CPUs(math.NaN())
	nobody := job(0, engine.Pending)
	for _, c := range []struct {
		name    string
		changes []Change
		want    string
	}{
		{"empty", []Change{{}}, "empty change"},
		{"no id", []Change{PutJob(nobody)}, "job 0: its id or state is missing"},
		{"no state", []Change{PutJob(job(1, ""))}, "job 1: its id or state is missing"},
		{"no attempt number", []Change{PutAttempt(attempt(1, 0, engine.Granted))}, "attempt 1.0"},
		{"can't be encoded", []Change{PutJob(bad)}, "encode job 1"},
		{"attempt of nobody", []Change{PutJob(job(1, engine.Pending)), PutAttempt(attempt(2, 1, engine.Granted))}, "FOREIGN KEY"},
		{"event of nobody", []Change{PutJob(job(1, engine.Pending)), AddEvent(event(2, "x"))}, "FOREIGN KEY"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := open(t, t.TempDir(), Options{})
			err := s.Apply(context.Background(), c.changes...)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want it to say %q", err, c.want)
			}
			equal(t, "kept", load(t, s), Live{})
		})
	}
}

func TestEveryConnectionHasItsPragmas(t *testing.T) {
	ctx := context.Background()
	// A name that would break a DSN put together by hand.
	s := open(t, filepath.Join(t.TempDir(), "a?b=c%20#d é"), Options{})
	want := map[string]int{"synchronous": 2, "foreign_keys": 1, "busy_timeout": 5000}
	for i := range readers + 1 {
		conn := s.writer.conn
		if i > 0 {
			var err error
			if conn, err = s.read.Conn(ctx); err != nil {
				t.Fatal(err)
			}
			defer conn.Close() // held, so that the pool opens the next
		}
		for name, n := range want {
			got, err := pragma(ctx, conn, name)
			equal(t, name, got, n)
			equal(t, "error", err, nil)
		}
		var mode string
		if err := conn.QueryRowContext(ctx, "PRAGMA journal_mode").Scan(&mode); err != nil || mode != "wal" {
			t.Errorf("journal_mode %q, %v", mode, err)
		}
	}
}

func TestInstanceAndFiles(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new", "state")
	s := open(t, dir, Options{})
	first := s.Instance()
	if len(first) != 8 || strings.Trim(first, "0123456789abcdef") != "" {
		t.Errorf("instance %q: want 8 hex digits", first)
	}
	apply(t, s, PutJob(job(1, engine.Pending)))
	for name, want := range map[string]os.FileMode{"": os.ModeDir | 0o700, "gputop.db": 0o600, "gputop.db-wal": 0o600,
		"gputop.db-shm": 0o600, "lock": 0o600, "pid": 0o600} {
		fi, err := os.Stat(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		equal(t, "mode of "+name, fi.Mode(), want)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := s.Apply(context.Background(), PutJob(job(2, engine.Pending))); !errors.Is(err, ErrClosed) {
		t.Errorf("Apply after Close: %v", err)
	}
	if _, err := s.Load(context.Background()); !errors.Is(err, ErrClosed) {
		t.Errorf("Load after Close: %v", err)
	}
	for _, name := range []string{"pid", "gputop.db-wal", "gputop.db-shm"} {
		if _, err := os.Stat(filepath.Join(dir, name)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s after Close: %v", name, err)
		}
	}
	equal(t, "instance after reopening", open(t, dir, Options{}).Instance(), first)
	if other := open(t, t.TempDir(), Options{}).Instance(); other == first {
		t.Errorf("two stores share the instance %s", first)
	}
}
