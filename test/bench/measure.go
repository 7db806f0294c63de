package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// demoImage is what scripts/demo-image makes, and what the profile demo runs.
const demoImage = "localhost/gputop-demo:latest"

type bench struct {
	flags
	place  *place
	gputop *gputop
	slurm  *slurm // nil where there is none
	table  table
}

// queue times the commands with n jobs pending, in turns.
func (b *bench) queue(ctx context.Context, n int) error {
	if b.gputop.spec.Command == nil {
		if err := b.gputop.block(ctx); err != nil {
			return err
		}
	}
	begin := time.Now()
	if err := b.gputop.fill(ctx, n); err != nil {
		return err
	}
	if b.slurm != nil {
		if err := b.slurm.fill(ctx, n); err != nil {
			return err
		}
	}
	fmt.Printf("%d jobs pending (filled in %s)\n", n, time.Since(begin).Round(time.Millisecond))
	at := fmt.Sprintf(", %d pending", n)
	for range b.rounds {
		if err := b.round(ctx, n, at); err != nil {
			return err
		}
	}
	aim := 0.0 // a short list costs what a process costs
	if n >= 10_000 {
		aim = 0.5
	}
	b.table.compare("gputop submit"+at, "sbatch"+at, 1)
	b.table.compare("gputop ls"+at, "squeue"+at, aim)
	b.table.compare("gputop submit"+at, "4 KiB write + fsync"+at, 0)
	return nil
}

func (b *bench) round(ctx context.Context, n int, at string) error {
	took, err := b.place.fsync()
	if err != nil {
		return err
	}
	b.table.add("4 KiB write + fsync"+at, took)
	if took, _, err = b.place.timed(ctx, nil, "true"); err != nil {
		return err
	}
	b.table.add("a program that does nothing"+at, took)

	took, id, err := b.gputop.submit(ctx, "true")
	if err != nil {
		return err
	}
	b.table.add("gputop submit"+at, took)
	if err := b.gputop.cancel(ctx, id); err != nil {
		return err
	}
	if b.slurm != nil {
		took, id, err := b.slurm.submit(ctx)
		if err != nil {
			return err
		}
		b.table.add("sbatch"+at, took)
		if err := b.slurm.cancel(ctx, id); err != nil {
			return err
		}
	}
	took, out, err := b.place.timed(ctx, nil, b.place.gputop, "ls")
	if err := errors.Join(err, wantLines("gputop ls", out, n)); err != nil {
		return err
	}
	b.table.add("gputop ls"+at, took)
	if b.slurm != nil {
		if took, err = b.slurm.list(ctx, n); err != nil {
			return err
		}
		b.table.add("squeue"+at, took)
	}
	return nil
}

// starting times from before the command until the container's process has made a file: gputop on an idle box, and a
// bare podman run of the same image by the same account.
func (b *bench) starting(ctx context.Context) error {
	if b.starts == 0 {
		return nil
	}
	for round := range b.starts + 1 {
		warm := round > 0 // the first start brings up the agent and Podman's own files, once
		took, err := b.untilMarked(ctx, []string{"podman", "run", "--rm", "--network", "none", "--volume",
			b.place.work + ":" + b.place.work, "--workdir", b.place.work, demoImage, "touch", "marker"})
		if err != nil {
			return err
		}
		if warm {
			b.table.add("podman run, to the process running", took)
		}
		took, err = b.untilMarked(ctx, b.gputop.submitArgv("touch", "marker"))
		if err != nil {
			return err
		}
		if warm {
			b.table.add("gputop submit, to the process running", took)
		}
		id, err := b.gputop.newest(ctx)
		if err != nil {
			return err
		}
		b.gputop.ran = append(b.gputop.ran, id)
		if err := b.gputop.until(ctx, id, "released", released); err != nil {
			return err
		}
	}
	b.table.compare("gputop submit, to the process running", "podman run, to the process running", 0)
	return nil
}

// untilMarked runs a command that leads to the file work/marker and says how long that took. The kernel tells of the
// file, so that no polling blurs the time.
func (b *bench) untilMarked(ctx context.Context, argv []string) (time.Duration, error) {
	marker := filepath.Join(b.place.work, "marker")
	if err := os.Remove(marker); err != nil && !errors.Is(err, os.ErrNotExist) {
		return 0, err
	}
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC)
	if err != nil {
		return 0, err
	}
	defer unix.Close(fd)
	if _, err := unix.InotifyAddWatch(fd, b.place.work, unix.IN_CREATE); err != nil {
		return 0, err
	}
	start := time.Now()
	ended := make(chan error, 1)
	go func() {
		_, _, err := b.place.timed(ctx, nil, argv...)
		ended <- err
	}()
	took, err := waitFor(fd, marker, start)
	return took, errors.Join(<-ended, err)
}

// waitFor reads the watch until the file is there, for at most a minute.
func waitFor(fd int, marker string, start time.Time) (time.Duration, error) {
	events := make([]byte, 4096)
	for {
		left := time.Minute - time.Since(start)
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(max(left, 0).Milliseconds()))
		took := time.Since(start)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return 0, err
		case n == 0:
			return 0, errors.New("no process in a container came up within a minute")
		}
		if _, err := unix.Read(fd, events); err != nil {
			return 0, err
		}
		if _, err := os.Stat(marker); err == nil {
			return took, nil
		}
	}
}
