package store

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"testing"

	"gputop/engine"
)

// applyUntilKilled is the daemon of TestStateSurvivesKill: it stores jobs from several goroutines and says each id
// once Apply has acknowledged it.
func applyUntilKilled(dir string) {
	s, err := Open(context.Background(), dir, Options{})
	check(err)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for {
				id := s.NextJobID()
				check(s.Apply(context.Background(), PutJob(job(id, engine.Running)), AddEvent(event(id, "submitted")),
					PutAttempt(attempt(id, 1, engine.Active))))
				fmt.Println(id)
			}
		})
	}
	wg.Wait()
}

func TestStateSurvivesKill(t *testing.T) {
	dir := t.TempDir()
	for round := range 3 {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), "GPUTOP_STORE_CRASH="+dir)
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		var acknowledged []engine.JobID
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			n, err := strconv.ParseInt(lines.Text(), 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			if acknowledged = append(acknowledged, engine.JobID(n)); len(acknowledged) == 100 {
				cmd.Process.Kill()
			}
		}
		var exit *exec.ExitError
		if err := cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != -1 {
			t.Fatalf("the store ended by itself: %v", err)
		}
		if len(acknowledged) < 100 {
			t.Fatalf("round %d: %d acknowledged", round, len(acknowledged))
		}
		checkAll(t, dir, acknowledged)
	}
}

// checkAll wants every acknowledged job, each complete, and no id that could be given twice.
func checkAll(t *testing.T, dir string, acknowledged []engine.JobID) {
	t.Helper()
	s := open(t, dir, Options{})
	live := load(t, s)
	equal(t, "jobs without their attempt", len(live.Jobs)-len(live.Attempts), 0)
	found := map[engine.JobID]bool{}
	for _, j := range live.Jobs {
		found[j.ID] = true
	}
	next := s.NextJobID()
	for _, id := range acknowledged {
		if !found[id] || id >= next {
			t.Errorf("job %d: stored %v, next id %d", id, found[id], next)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}
