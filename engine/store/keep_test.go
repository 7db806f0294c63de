package store

import (
	"context"
	"testing"
	"time"

	"gputop/engine"
)

func TestKeepForgets(t *testing.T) {
	ctx := context.Background()
	dir := t.TempDir()
	s := open(t, dir, Options{})
	old, now := time.UnixMilli(1_000_000), time.UnixMilli(2_000_000)
	put := func(id engine.JobID, name string, state engine.JobState, ended time.Time) {
		j := job(id, state)
		j.Owner.Name, j.Ended = name, ended
		apply(t, s, PutJob(j))
	}
	put(1, "alice", engine.Succeeded, old)
	put(2, "alice", engine.Failed, old)
	put(3, "alice", engine.Failed, now)
	put(4, "alice", engine.Running, time.Time{})
	put(5, "earlier", engine.Succeeded, old) // the same uid, another person
	apply(t, s, PutAttempt(attempt(2, 1, engine.Releasing)))
	alice := job(1, engine.Succeeded).Owner
	earlier := engine.User{UID: alice.UID, Name: "earlier"}
	alice.Name = "alice"
	ids := func(list []Gone) (out []engine.JobID) {
		for _, g := range list {
			out = append(out, g.Job)
		}
		return out
	}
	todo := func(u engine.User) []engine.JobID {
		t.Helper()
		list, err := s.ToForget(ctx, u, 0, 10)
		equal(t, "error", err, nil)
		return list
	}

	gone, err := s.ExpireLogs(ctx, old.Add(time.Second))
	equal(t, "error", err, nil)
	equal(t, "expired", ids(gone), []engine.JobID{1, 5}) // 2 still holds its device
	gone, err = s.ExpireLogs(ctx, old.Add(time.Second))
	equal(t, "error", err, nil)
	equal(t, "expired again", len(gone), 0)
	equal(t, "to forget", todo(alice), []engine.JobID{1})
	equal(t, "to forget of the one before", todo(earlier), []engine.JobID{5})
	strange, err := s.Strange(ctx, alice, []engine.JobID{1, 2, 3, 4, 5, 6})
	equal(t, "error", err, nil)
	equal(t, "strange", strange, []engine.JobID{1, 5, 6})

	equal(t, "error", s.Forgotten(ctx, 1), nil)
	equal(t, "after it was forgotten", todo(alice), []engine.JobID(nil))
	gone, err = s.Prune(ctx, 0)
	equal(t, "error", err, nil)
	equal(t, "pruned", ids(gone), []engine.JobID{5, 3, 1})
	equal(t, "to forget after pruning", todo(alice), []engine.JobID{3}) // 1 was, long ago
	_, _, _, err = s.Job(ctx, 4)
	equal(t, "the running job", err, nil)

	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, dir, Options{})
	equal(t, "after a restart", todo(alice), []engine.JobID{3})
}

// More than one step's worth, and nothing twice.
func TestPruneInSteps(t *testing.T) {
	s := open(t, t.TempDir(), Options{})
	const n = 2*keepStep + 50
	var changes []Change
	for id := range engine.JobID(n) {
		changes = append(changes, PutJob(job(id+1, engine.Succeeded)))
	}
	apply(t, s, changes...)
	gone, err := s.Prune(context.Background(), 10)
	equal(t, "error", err, nil)
	seen := map[engine.JobID]bool{}
	for _, g := range gone {
		seen[g.Job] = true
	}
	equal(t, "pruned", len(gone), n-10)
	equal(t, "different ones", len(seen), n-10)
}
