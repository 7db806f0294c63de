package store

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"gputop/engine"
)

// fillDisk is the daemon of the test on a file system that is really full: it fills dir to the last block, applies,
// makes space and applies again. What has happened is stored all the while, and a daemon can begin. It exits 0 if each step
// ended as it should.
func fillDisk(dir string) int {
	ctx := context.Background()
	s, err := Open(ctx, filepath.Join(dir, "state"), Options{})
	check(err)
	check(s.Apply(ctx, PutJob(job(1, engine.Pending))))
	ballast := filepath.Join(dir, "ballast")
	fillUp(ballast)
	kept := engine.JobID(1)
	for err = nil; err == nil && kept < 1000; { // the log's file has room for a few
		if err = s.Apply(ctx, PutJob(job(kept+1, engine.Pending))); err == nil {
			kept++
		}
	}
	fmt.Printf("kept %d, then: %v\n", kept, err)
	if !errors.Is(err, ErrFull) {
		return 1
	}
	ended := job(1, engine.Failed)
	check(s.ApplyFact(ctx, PutJob(ended), PutAttempt(attempt(1, 1, engine.Releasing)), AddEvent(event(1, "failed"))))
	fmt.Printf("stored an end, the reserve is %d\n", reserveLeft(dir))
	_ = s.Close() // its counter may not be kept
	fillUp(ballast)
	s, err = Open(ctx, filepath.Join(dir, "state"), Options{})
	check(err)
	live, err := s.Load(ctx)
	check(err)
	if len(live.Jobs) != int(kept) || live.Jobs[0].State != engine.Failed {
		fmt.Printf("%d jobs after reopening, want %d; the first is %s\n", len(live.Jobs), kept, live.Jobs[0].State)
		return 1
	}
	check(s.ApplyFact(ctx, PutAttempt(attempt(1, 1, engine.Released))))
	fmt.Printf("begun on a full disk, the reserve is %d\n", reserveLeft(dir))
	check(os.Remove(ballast))
	check(s.Close())
	s, err = Open(ctx, filepath.Join(dir, "state"), Options{})
	check(err)
	check(s.Apply(ctx, PutJob(job(kept+1, engine.Pending))))
	if live, err = s.Load(ctx); err != nil || len(live.Jobs) != int(kept) || reserveLeft(dir) != reserveSize {
		fmt.Printf("%v: %d jobs at the end, want %d; the reserve is %d\n", err, len(live.Jobs), kept, reserveLeft(dir))
		return 1
	}
	check(s.Close())
	return 0
}

func reserveLeft(dir string) int64 {
	fi, err := os.Stat(filepath.Join(dir, "state", reserveName))
	check(err)
	return fi.Size()
}

// fillUp takes the last block.
func fillUp(path string) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	check(err)
	for block := make([]byte, 4096); err == nil; {
		_, err = f.Write(block)
	}
	check(f.Close())
}
