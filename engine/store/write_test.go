package store

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"gputop/engine"
)

// call is a write as Apply makes it, for giving the writer a batch of known size.
func call(t *testing.T, changes ...Change) *write {
	t.Helper()
	var rows []row
	for _, c := range changes {
		r, err := c.row()
		if err != nil {
			t.Fatal(err)
		}
		rows = append(rows, r)
	}
	return &write{run: func(w *writer) error { return w.put(rows) }, done: make(chan error, 1)}
}

func TestCallsShareOneTransaction(t *testing.T) {
	s := open(t, t.TempDir(), Options{})
	var batch []*write
	for id := range engine.JobID(50) {
		batch = append(batch, call(t, PutJob(job(id+1, engine.Pending)), AddEvent(event(id+1, "submitted"))))
	}
	s.writer.commit(batch)
	for _, b := range batch {
		equal(t, "answer", <-b.done, nil)
	}
	equal(t, "transactions", s.writer.commits.Load(), int64(1))
	equal(t, "jobs", len(load(t, s).Jobs), 50)
}

func TestABadCallFailsAlone(t *testing.T) {
	s := open(t, t.TempDir(), Options{})
	batch := []*write{
		call(t, PutJob(job(1, engine.Pending))),
		call(t, PutJob(job(2, engine.Pending)), AddEvent(event(99, "of nobody"))),
		call(t, PutJob(job(3, engine.Pending))),
	}
	s.writer.commit(batch)
	equal(t, "first", <-batch[0].done, nil)
	if err := <-batch[1].done; err == nil || !strings.Contains(err.Error(), "FOREIGN KEY") {
		t.Errorf("bad call: %v", err)
	}
	equal(t, "third", <-batch[2].done, nil)
	equal(t, "stored", load(t, s).Jobs, []engine.Job{job(1, engine.Pending), job(3, engine.Pending)})
}

func TestGatherTakesWhatWaitsAndNoMore(t *testing.T) {
	waiting := make(chan *write, maxBatch+10)
	for range maxBatch + 10 {
		waiting <- &write{}
	}
	equal(t, "full batch", len(gather(&write{}, waiting)), maxBatch)
	equal(t, "the rest", len(gather(&write{}, waiting)), 12)
	equal(t, "alone", len(gather(&write{}, waiting)), 1)
}

func TestConcurrentApply(t *testing.T) {
	s := open(t, t.TempDir(), Options{})
	var wg sync.WaitGroup
	for range 64 {
		wg.Go(func() {
			for range 5 {
				id := s.NextJobID()
				if err := s.Apply(context.Background(), PutJob(job(id, engine.Pending))); err != nil {
					t.Error(err)
				}
				if j, _, _, err := s.Job(context.Background(), id); err != nil || j.ID != id {
					t.Errorf("job %d read back as %d, %v", id, j.ID, err)
				}
			}
		})
	}
	wg.Wait()
	equal(t, "jobs", len(load(t, s).Jobs), 320)
}

func TestACancelledCallIsTakenBack(t *testing.T) {
	s := open(t, t.TempDir(), Options{})
	started, finish := make(chan struct{}), make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := s.submit(context.Background(), func(*writer) error { close(started); <-finish; return nil }); err != nil {
			t.Error(err)
		}
	})
	<-started
	ctx, cancel := context.WithCancel(context.Background())
	answer := make(chan error)
	wg.Go(func() { answer <- s.Apply(ctx, PutJob(job(1, engine.Pending))) })
	cancel()
	// The writer is still busy: only the cancellation can end that call.
	if err := <-answer; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	close(finish)
	wg.Wait()
	equal(t, "stored", load(t, s), Live{})
}

func TestFullDiskKeepsNothingAndRecovers(t *testing.T) {
	ctx := context.Background()
	dir := t.TempDir()
	s := open(t, dir, Options{maxPages: 40})
	var kept int
	err := error(nil)
	for err == nil && kept < 10_000 {
		id := engine.JobID(kept + 1)
		if err = s.Apply(ctx, PutJob(job(id, engine.Succeeded)), AddEvent(event(id, "submitted"))); err == nil {
			kept++
		}
	}
	if !errors.Is(err, ErrFull) || !strings.Contains(err.Error(), fmt.Sprintf("job %d", kept+1)) {
		t.Fatalf("after %d jobs: %v", kept, err)
	}
	jobs, err := s.Ended(ctx, 0, 10_000)
	equal(t, "error", err, nil)
	equal(t, "kept", len(jobs), kept)
	if gone, err := s.Prune(ctx, 1); err != nil || len(gone) != kept-1 {
		t.Fatalf("pruned %d of %d, %v", len(gone), kept, err)
	}
	apply(t, s, PutJob(job(s.NextJobID(), engine.Pending)))
	equal(t, "after there was space again", len(load(t, s).Jobs), 1)
}
