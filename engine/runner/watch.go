package runner

import (
	"context"
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"gputop/engine/agentrpc"
)

const (
	// deadGrace is how long Podman may go on saying "running" of a container whose process is gone before the agent
	// says that nobody will learn its exit code.
	deadGrace = 10 * time.Second
	// drainLimit bounds the last copy of the output before the end is told.
	drainLimit = 5 * time.Second
)

var errChanged = errors.New("the container has another first process now")

// watch is one container whose end is waited for.
type watch struct {
	id, name string
	ended    chan struct{} // closed when it no longer runs, before the end is told
	copied   chan struct{} // closed when the output copy is complete
}

// watch waits for the container's end in the background, once.
func (a *Agent) watch(c agentrpc.Container) {
	a.mu.Lock()
	if _, ok := a.watched[c.Name]; ok || a.ctx.Err() != nil {
		a.mu.Unlock()
		return
	}
	w := &watch{id: c.ID, name: c.Name, ended: make(chan struct{}), copied: make(chan struct{})}
	a.watched[c.Name] = w
	a.mu.Unlock()
	a.work.Go(func() {
		defer close(w.copied)
		a.copyOutput(w)
	})
	a.work.Go(func() { a.keepShort(w) })
	a.work.Go(func() { a.waitForEnd(w, c) })
}

// watching says whether that container is known to run.
func (a *Agent) watching(name string) *watch {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.watched[name]
}

func (a *Agent) waitForEnd(w *watch, c agentrpc.Container) {
	end, err := a.untilEnd(a.ctx, c)
	if err != nil { // only the agent's own end
		a.unwatch(w)
		return
	}
	close(w.ended)
	select {
	case <-w.copied:
	case <-a.ctx.Done():
	case <-time.After(drainLimit):
	}
	a.unwatch(w)
	a.active(0)
	a.log.Info("container ended", "name", end.Name, "exit", end.ExitCode, "error", end.Error)
	a.note(agentrpc.NoteExited, end)
}

func (a *Agent) unwatch(w *watch) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.watched[w.name] == w {
		delete(a.watched, w.name)
	}
}

// untilEnd returns the container as it is after its end. The kernel says when the first process is gone; Podman says
// what came of it. Errors leave the matter open.
func (a *Agent) untilEnd(ctx context.Context, c agentrpc.Container) (agentrpc.Container, error) {
	wait := 10 * time.Millisecond
	var gone time.Time
	for {
		if c.Running() && c.PID > 0 && gone.IsZero() {
			err := a.waitProcess(ctx, c)
			if err != nil && ctx.Err() != nil {
				return c, ctx.Err()
			}
			if err == nil {
				gone = time.Now()
			}
		}
		now, err := a.inspect(ctx, agentrpc.Ref{ID: c.ID})
		switch {
		case err == nil && !now.Running():
			return now, nil
		case err != nil && agentrpc.CodeOf(err) == agentrpc.CodeNotFound:
			return a.verdict(c, "its container was removed before its exit code was read"), nil
		case err == nil && now.PID != c.PID:
			c, gone = now, time.Time{}
		case err == nil && !gone.IsZero() && time.Since(gone) > deadGrace:
			return a.verdict(c, "its process is gone, and Podman never learned its exit code (was conmon killed?)"), nil
		}
		if err := pause(ctx, wait); err != nil {
			return c, err
		}
		wait = min(wait*2, 500*time.Millisecond)
	}
}

// verdict is an end without an exit code: never to be taken for a success, as it has no FinishedAt.
func (a *Agent) verdict(c agentrpc.Container, why string) agentrpc.Container {
	c.State, c.PID, c.ExitCode, c.Error, c.FinishedAt = "exited", 0, -1, why, time.Time{}
	a.mu.Lock()
	a.verdicts[c.ID] = c
	a.mu.Unlock()
	return c
}

// waitProcess returns nil when the container's first process is gone. Between the look that gave the PID and the
// opening of the pidfd the number may have passed to another process: the second look settles it.
func (a *Agent) waitProcess(ctx context.Context, c agentrpc.Container) error {
	fd, err := unix.PidfdOpen(c.PID, unix.PIDFD_NONBLOCK)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return err // the caller polls Podman instead
	}
	f := os.NewFile(uintptr(fd), "pidfd")
	defer f.Close()
	now, err := a.inspect(ctx, agentrpc.Ref{ID: c.ID})
	if err != nil {
		return err
	}
	if !now.Running() {
		return nil
	}
	if now.PID != c.PID {
		return errChanged
	}
	return waitReadable(ctx, f)
}

// waitReadable returns when f, which the runtime polls, is readable.
func waitReadable(ctx context.Context, f *os.File) error {
	rc, err := f.SyscallConn()
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = f.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	var perr error
	err = rc.Read(func(fd uintptr) bool {
		fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		var n int
		n, perr = unix.Poll(fds, 0)
		return n > 0 || perr != nil && !errors.Is(perr, unix.EINTR)
	})
	if err != nil {
		return err
	}
	return perr
}
