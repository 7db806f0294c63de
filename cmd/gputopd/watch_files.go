package main

import (
	"context"
	"fmt"
	"os"
	"time"
)

// lookEvery is how often the daemon looks whether its files are still its own.
const lookEvery = 2 * time.Second

// watchFiles fails when a file was removed or replaced, or its directory was: what a daemon writes into a removed
// database is lost, and its lock no longer keeps a second daemon away. Jobs that run go on.
func watchFiles(ctx context.Context, every time.Duration, paths ...string) error {
	mine := make([]os.FileInfo, len(paths))
	for i, p := range paths {
		fi, err := os.Stat(p)
		if err != nil {
			return fmt.Errorf("look after the daemon's files: %w", err)
		}
		mine[i] = fi
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		for i, p := range paths {
			now, err := os.Stat(p)
			if err == nil && os.SameFile(now, mine[i]) || err != nil && !os.IsNotExist(err) {
				continue
			}
			return fmt.Errorf("%s was removed or replaced under the running daemon: it ends, because nothing it wrote would be kept", p)
		}
	}
}
