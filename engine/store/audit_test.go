package store

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gputop/engine"
)

var auditStart = time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)

func entry(n int, by, owner engine.User) engine.AuditEntry {
	return engine.AuditEntry{Time: auditStart.Add(time.Duration(n) * time.Second), User: by, PID: 7, Action: "cancel",
		Job: engine.JobID(n), Owner: owner, Allowed: n%2 == 0, Reason: "r", Text: fmt.Sprint(n)}
}

func audit(t *testing.T, s *Store, q AuditQuery) []engine.AuditEntry {
	t.Helper()
	if q.Limit == 0 {
		q.Limit = 1 << 30
	}
	got, err := s.Audit(context.Background(), q)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func jobsOf(list []engine.AuditEntry) string {
	var ids []engine.JobID
	for _, e := range list {
		ids = append(ids, e.Job)
	}
	return fmt.Sprint(ids)
}

func TestAuditIsKeptAndFiltered(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, Options{})
	a, b, c := engine.User{UID: 1, Name: "a"}, engine.User{UID: 2, Name: "b"}, engine.User{UID: 1, Name: "reused"}
	apply(t, s, AddAudit(entry(1, a, a)), AddAudit(entry(2, b, a)), AddAudit(entry(3, b, b)), AddAudit(entry(4, c, c)))
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, dir, Options{})
	equal(t, "an entry", audit(t, s, AuditQuery{Limit: 1}), []engine.AuditEntry{entry(4, c, c)})
	for _, q := range []struct {
		name string
		q    AuditQuery
		want string
	}{
		{"all, newest first", AuditQuery{}, "[4 3 2 1]"},
		{"of a: done by a, and to a", AuditQuery{Of: &a}, "[2 1]"},
		{"of b", AuditQuery{Of: &b}, "[3 2]"},
		{"by b", AuditQuery{By: "b"}, "[3 2]"},
		{"of a by b", AuditQuery{Of: &a, By: "b"}, "[2]"},
		{"since", AuditQuery{Since: auditStart.Add(3 * time.Second)}, "[4 3]"},
		{"limit", AuditQuery{Limit: 2}, "[4 3]"},
	} {
		equal(t, q.name, jobsOf(audit(t, s, q.q)), q.want)
	}
}

func TestAuditIsOneTransactionWithItsChange(t *testing.T) {
	s := open(t, t.TempDir(), Options{})
	u := engine.User{UID: 1, Name: "a"}
	// An event of a job that does not exist is refused, and with it the entry.
	if err := s.Apply(context.Background(), AddAudit(entry(9, u, u)), AddEvent(event(9, "cancelled"))); err == nil {
		t.Fatal("an event without a job was taken")
	}
	equal(t, "entries", len(audit(t, s, AuditQuery{})), 0)
	if err := s.Apply(context.Background(), AddAudit(engine.AuditEntry{User: u})); err == nil {
		t.Error("an entry without action and time was taken")
	}
}

func TestAuditIsAppendOnly(t *testing.T) {
	s := open(t, t.TempDir(), Options{})
	u := engine.User{UID: 1, Name: "a"}
	apply(t, s, AddAudit(entry(1, u, u)))
	err := s.writer.exec("UPDATE audit SET body = '{}'")
	if err == nil || !strings.Contains(err.Error(), "append-only") {
		t.Errorf("an entry was changed: %v", err)
	}
}

func TestAuditIsBounded(t *testing.T) {
	s := open(t, t.TempDir(), Options{})
	noisy, quiet := engine.User{UID: 1, Name: "noisy"}, engine.User{UID: 2, Name: "quiet"}
	old := entry(1, quiet, quiet)
	old.Time = auditStart.Add(-2 * auditAge)
	apply(t, s, AddAudit(old), AddAudit(entry(2, quiet, quiet)))
	for n := 3; n <= auditRowsOfUser+1000; {
		var some []Change
		for range 1000 {
			some = append(some, AddAudit(entry(n, noisy, noisy)))
			n++
		}
		apply(t, s, some...)
	}
	all := audit(t, s, AuditQuery{})
	if n := len(all) - 1; n < auditRowsOfUser || n > auditRowsOfUser+auditTrim {
		t.Errorf("%d entries of one user are kept, want about %d", n, auditRowsOfUser)
	}
	equal(t, "what the other did", jobsOf(audit(t, s, AuditQuery{By: "quiet"})), "[2]")
	// All users' bound, as if ids had gone on.
	if err := s.writer.exec(fmt.Sprintf("UPDATE sqlite_sequence SET seq = %d WHERE name = 'audit'", (auditRows/auditTrim+400)*auditTrim-1)); err != nil {
		t.Fatal(err)
	}
	last := entry(5, quiet, quiet)
	apply(t, s, AddAudit(last))
	for _, e := range audit(t, s, AuditQuery{By: "quiet"}) {
		equal(t, "the one left", e.Job, engine.JobID(5))
	}
}

func TestMigrationFromV1MakesTheTrail(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, fileName), read(t, "testdata/v1.db"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := open(t, dir, Options{})
	u := engine.User{UID: 1, Name: "a"}
	apply(t, s, AddAudit(entry(1, u, u)))
	equal(t, "entries", jobsOf(audit(t, s, AuditQuery{})), "[1]")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := checkHeader(filepath.Join(dir, fileName), 1); err == nil {
		t.Error("a version that knows schema 1 would open it")
	}
	if err := checkHeader(filepath.Join(dir, fileName+".v1.bak"), 1); err != nil {
		t.Errorf("the backup is none of schema 1: %v", err)
	}
}
