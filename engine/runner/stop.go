package runner

import (
	"context"
	"fmt"
	"time"

	"github.com/containers/podman/v5/pkg/bindings/containers"
	"golang.org/x/sys/unix"

	"gputop/engine/agentrpc"
)

const (
	// rescan is how often a container that is stopping is looked at for processes that have not been told.
	rescan = 100 * time.Millisecond
	// killRetry is how often KILL is repeated while Podman does not answer.
	killRetry = time.Second
)

// stop is a container on its way out. A later call can only bring the KILL nearer.
type stop struct {
	deadline time.Time
	changed  chan struct{}
}

// stop signals every process of the container and answers; after the grace time it kills what is left.
func (a *Agent) stop(ctx context.Context, p agentrpc.StopArgs) (none, error) {
	sig := unix.SIGTERM
	if p.Signal != "" {
		if sig = unix.SignalNum(p.Signal); sig == 0 {
			return nil, invalid("signal %q does not exist", p.Signal)
		}
	}
	c, err := a.inspect(ctx, p.Ref)
	if err != nil {
		return nil, err
	}
	if !c.Running() || c.PID <= 0 {
		return nil, nil // nothing to tell; one that was never started is removed
	}
	if c.State == "paused" {
		if err := a.podman.call(ctx, "unpause container "+c.Name, func(ctx context.Context) error {
			return containers.Unpause(ctx, c.ID, nil)
		}); err != nil {
			return nil, err
		}
	}
	deadline := time.Now().Add(max(p.Grace, 0))
	a.mu.Lock()
	if s, ok := a.stopping[c.ID]; ok {
		if deadline.Before(s.deadline) {
			s.deadline = deadline
			select {
			case s.changed <- struct{}{}:
			default:
			}
		}
		a.mu.Unlock()
		return nil, nil
	}
	s := &stop{deadline: deadline, changed: make(chan struct{}, 1)}
	if p.Grace <= 0 {
		s.changed <- struct{}{}
	}
	a.stopping[c.ID] = s
	a.mu.Unlock()

	var round *signalRound
	if p.Grace > 0 {
		round, err = newRound(procfs("/proc"), c.PID, sig)
		if err == nil {
			round.step()
			err = round.nobody()
		}
		if err != nil {
			// Better PID 1 alone than nobody.
			a.log.Warn("signal each process", "container", c.Name, "error", err)
			err = a.podman.call(ctx, "signal container "+c.Name, func(ctx context.Context) error {
				return containers.Kill(ctx, c.ID, new(containers.KillOptions).WithSignal(unix.SignalName(sig)))
			})
			round = nil
		}
	}
	a.work.Go(func() { a.finishStop(c, s, round) })
	return nil, err
}

// warn signals the processes of a running container that catch the signal.
func (a *Agent) warn(ctx context.Context, p agentrpc.WarnArgs) (none, error) {
	sig := unix.SignalNum(p.Signal)
	if sig == 0 {
		return nil, invalid("signal %q does not exist", p.Signal)
	}
	c, err := a.inspect(ctx, p.Ref)
	if err != nil || !c.Running() || c.PID <= 0 {
		return nil, err
	}
	round, err := newRound(procfs("/proc"), c.PID, sig)
	if err != nil {
		return nil, &agentrpc.Error{Code: agentrpc.CodeFailed, Message: err.Error()}
	}
	round.warn()
	return nil, nil
}

// finishStop tells late processes, and kills after the grace time, until the container is gone.
func (a *Agent) finishStop(c agentrpc.Container, s *stop, round *signalRound) {
	defer func() {
		a.mu.Lock()
		delete(a.stopping, c.ID)
		a.mu.Unlock()
	}()
	tick := time.NewTicker(rescan)
	defer tick.Stop()
	var lastKill time.Time
	for {
		select {
		case <-a.ctx.Done():
			return
		case <-s.changed:
		case <-tick.C:
		}
		if unix.Kill(c.PID, 0) == unix.ESRCH || namespaceOf(procfs("/proc"), c.PID) != round.namespace(c.PID) {
			return
		}
		a.mu.Lock()
		due := !time.Now().Before(s.deadline)
		a.mu.Unlock()
		if !due {
			if round != nil {
				round.step()
			}
			continue
		}
		if time.Since(lastKill) < killRetry {
			continue
		}
		lastKill = time.Now()
		if now, err := a.inspect(a.ctx, agentrpc.Ref{ID: c.ID}); err == nil && !now.Running() || agentrpc.CodeOf(err) == agentrpc.CodeNotFound && err != nil {
			return
		}
		err := a.podman.call(a.ctx, "kill container "+c.Name, func(ctx context.Context) error {
			return containers.Kill(ctx, c.ID, new(containers.KillOptions).WithSignal("SIGKILL"))
		})
		if err != nil {
			a.log.Warn("kill container", "name", c.Name, "error", err)
		}
	}
}

// nobody is an error when there are processes and not one could be told.
func (r *signalRound) nobody() error {
	if len(r.told) == 0 && len(r.first) > 0 && !r.waiting {
		return fmt.Errorf("no process of PID namespace %s could be signalled", r.ns)
	}
	return nil
}
