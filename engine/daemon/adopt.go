package daemon

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"gputop/cdi"
	"gputop/engine"
	"gputop/engine/agentrpc"
)

// adoptAll takes up what an earlier daemon left: attempts under way are looked for by their stored names, never by
// labels, which anybody can set.
func (d *Daemon) adoptAll() {
	d.sweepLeases()
	for _, a := range d.state.sortedAttempts() {
		e := d.state.jobs[a.ID.Job]
		if e != nil && a.Allocation.State.Holds() {
			d.begin(a.ID, true)
		}
	}
	for id, e := range d.state.jobs {
		if e.job.State == engine.Preparing {
			if err := d.transact(id, 0, func(c *change) error { return c.move(engine.EvPrepared) }); err != nil {
				d.log.Error("job not put back", "job", id, "err", err)
			}
		}
		e.view = d.view(e)
	}
}

// sweepLeases removes leases of ours whose attempt holds nothing any more: a crash between the steps of a release leaves
// them. Leases of other daemons, whose instance is another, are left alone.
func (d *Daemon) sweepLeases() {
	dir := d.o.LeaseDir
	if dir == "" {
		return
	}
	if err := cdi.Sweep(dir); err != nil {
		d.log.Warn("half-written leases not removed", "dir", dir, "err", err)
	}
	names, err := cdi.ListLeases(dir)
	if err != nil {
		d.log.Warn("leases not listed", "dir", dir, "err", err)
		return
	}
	ours := d.store.Instance() + "-"
	held := map[string]bool{}
	for _, a := range d.state.attempts {
		if a.Allocation.State.Holds() {
			held[a.ID.LeaseName(d.store.Instance())] = true
		}
	}
	for _, n := range names {
		if strings.HasPrefix(n, ours) && !held[n] {
			if err := cdi.RemoveLease(dir, n); err != nil {
				d.log.Error("orphaned lease not removed", "lease", n, "err", err)
			}
		}
	}
}

// find looks for the attempt's container and decides what it means. It keeps asking while nobody answers: no answer is
// not lost. A running container is taken over; a created one is never started, it is removed.
func (a *attempt) find(ctx context.Context) (agentrpc.Container, *engine.Ending) {
	if a.rec.BootID != a.d.o.System.BootID {
		// Nothing that ran then runs now. Podman may never be able to say so: a power cut can break its record.
		return agentrpc.Container{}, a.missing()
	}
	for look := 1; ; look++ {
		c, end := a.ask(ctx)
		if end != nil || ctx.Err() != nil {
			return c, end
		}
		if !c.Running() {
			return c, a.ended(c)
		}
		err := a.adopted(ctx, c)
		if err == nil {
			return c, nil
		}
		// It may have ended since it was asked about: then the next answer says how.
		if !errors.Is(err, errProcessGone) || look == goneLooks {
			return c, &engine.Ending{Started: true, Fault: fmt.Sprintf("its container was found running but could not be taken over: %v", err)}
		}
		if !sleep(ctx, goneLookEvery) {
			return c, nil
		}
	}
}

// goneLooks is how often a container is asked about that is called running while its process is gone.
const (
	goneLooks     = 20
	goneLookEvery = 500 * time.Millisecond
)

// ask inspects the container until somebody answers, or there is nobody left to wait for.
func (a *attempt) ask(ctx context.Context) (c agentrpc.Container, end *engine.Ending) {
	for wait := 500 * time.Millisecond; ; wait = min(2*wait, 15*time.Second) {
		actx, cancel := context.WithTimeout(ctx, callTimeout)
		l, err := a.d.agents.get(actx, a.user)
		if err == nil {
			err = l.call(actx, agentrpc.MethodInspect, a.ref(), &c)
		}
		cancel()
		if err == nil || ctx.Err() != nil {
			return c, nil
		}
		if agentrpc.CodeOf(err) == agentrpc.CodeNotFound {
			return c, a.missing()
		}
		if end := a.unheard(); end != nil {
			return c, end
		}
		a.d.log.Warn("container not found yet", "attempt", a.id, "err", err)
		if !sleep(ctx, wait) {
			return c, nil
		}
	}
}

// unheard is the end of an attempt that was told to stop while nobody answers for its container. What never got a
// process, and what is seen gone here, has ended: its device does not wait for an agent that may never come. It is nil
// while the process is there.
func (a *attempt) unheard() *engine.Ending {
	if !a.stopped() && a.stopSent == 0 {
		return nil
	}
	if a.rec.PID != 0 && a.rec.BootID == a.d.o.System.BootID {
		if p, ok := a.d.o.System.Process(a.rec.PID); ok && p.Start == a.rec.PIDStart {
			return nil
		}
	}
	return &engine.Ending{Started: !a.rec.Started.IsZero(), Fault: "it was stopped, and its owner's agent did not answer"}
}

// missing is the end of an attempt whose container is not there.
func (a *attempt) missing() *engine.Ending {
	// With a process it may have been started, though the answer was lost.
	if a.rec.Started.IsZero() && a.rec.PID == 0 {
		return &engine.Ending{Fault: "its container was never started"}
	}
	if a.rec.BootID != a.d.o.System.BootID {
		return &engine.Ending{Started: true, Fault: "the machine was restarted while it ran"}
	}
	return &engine.Ending{Started: true, Fault: "its container was removed outside gputop"}
}

// adopted records a container found running.
func (a *attempt) adopted(ctx context.Context, c agentrpc.Container) error {
	p, err := a.process(c.PID)
	if err != nil {
		return err
	}
	if a.rec.PID != 0 && a.rec.PIDStart != 0 && (a.rec.PID != c.PID || a.rec.PIDStart != p.Start) {
		return fmt.Errorf("its process is %d and not the %d that was started", c.PID, a.rec.PID)
	}
	return a.save(ctx, func(ch *change) error {
		ch.attempt.ContainerID, ch.attempt.PID, ch.attempt.Port = c.ID, c.PID, portOf(c)
		ch.attempt.PIDStart, ch.attempt.PIDNamespace = p.Start, p.PIDNamespace
		if ch.attempt.Started.IsZero() {
			// Its agent's word, which counts only within what is known here: a time limit hangs on it.
			began := c.StartedAt
			if began.Before(ch.attempt.Granted) {
				began = ch.attempt.Granted
			}
			if began.After(ch.now) {
				began = ch.now
			}
			ch.attempt.Started = began
			ch.attempt.StartedBoot = a.d.o.System.Boottime() - ch.now.Sub(began).Nanoseconds()
		}
		ch.attempt.Allocation.State, ch.job.Started = engine.Active, ch.attempt.Started
		ch.event("adopted", "the daemon found it running and took it over")
		if ch.job.State == engine.Starting {
			return ch.move(engine.EvStarted)
		}
		return nil
	})
}
