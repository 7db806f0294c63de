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
// makes space and applies again. It exits 0 if each step ended as it should.
func fillDisk(dir string) int {
	ctx := context.Background()
	s, err := Open(ctx, filepath.Join(dir, "state"), Options{})
	check(err)
	check(s.Apply(ctx, PutJob(job(1, engine.Pending))))
	ballast := filepath.Join(dir, "ballast")
	f, err := os.Create(ballast)
	check(err)
	for block := make([]byte, 4096); err == nil; {
		_, err = f.Write(block)
	}
	check(f.Close())
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
	check(os.Remove(ballast))
	check(s.Apply(ctx, PutJob(job(kept+1, engine.Pending))))
	check(s.Close())
	s, err = Open(ctx, filepath.Join(dir, "state"), Options{})
	check(err)
	live, err := s.Load(ctx)
	check(err)
	if len(live.Jobs) != int(kept)+1 {
		fmt.Printf("%d jobs after reopening, want %d\n", len(live.Jobs), kept+1)
		return 1
	}
	check(s.Close())
	return 0
}
