package daemon

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"gputop/engine"
	"gputop/engine/agentrpc"
	"gputop/engine/host"
)

// attempt carries one try of a job from its allocation to the release. It runs in a goroutine of its own; everything
// it learns goes through the loop to the disk before it counts.
type attempt struct {
	d    *Daemon
	id   engine.AttemptID
	user engine.User
	spec engine.Spec
	rec  engine.Attempt // as of the last persisted step
	img  string
	// element is the job's place in an array; nil for none.
	element *engine.Element
	// token opens the job's server.
	token string
	// stop is told when the attempt has to end; why is read from the job.
	stop     chan struct{}
	stopping bool
	// asked says that a container may exist under the attempt's name.
	asked bool
	// startSent says that the program may have been started: from then on only the container tells what ran.
	startSent bool
	// goneSince is since when its process has been seen gone although its agent says that it runs, on CLOCK_BOOTTIME.
	goneSince int64
	// stopSent is when the signal was delivered, CLOCK_BOOTTIME nanoseconds; 0 before.
	stopSent int64
}

// inspectEvery is how often a running container is looked at although nothing was heard of it.
const inspectEvery = 10 * time.Second

const (
	// killAfter is how long after the grace the engine ends a container by itself.
	killAfter = 30 * time.Second
	// doubtAfter is how long an agent may call a container running whose process is gone.
	doubtAfter = 30 * time.Second
)

// begin starts the goroutine of an attempt. found says that the attempt was already under way when the daemon started.
func (d *Daemon) begin(id engine.AttemptID, found bool) {
	e := d.state.jobs[id.Job]
	e.stop = make(chan struct{}, 1)
	a := &attempt{d: d, id: id, user: e.job.Owner, spec: e.job.Spec, rec: *d.state.attempts[id], img: e.job.ImageID, token: e.job.Token, element: e.job.Element, stop: e.stop}
	if e.job.State == engine.Stopping {
		a.stop <- struct{}{}
	}
	d.goWork(func(ctx context.Context) { a.run(ctx, found) })
}

func (a *attempt) run(ctx context.Context, found bool) {
	if a.rec.Allocation.State == engine.Releasing {
		a.release(ctx)
		return
	}
	var c agentrpc.Container
	var end *engine.Ending
	if found {
		a.asked = true
		c, end = a.find(ctx)
	} else {
		c, end = a.start(ctx)
	}
	if end == nil && ctx.Err() == nil {
		end = a.watch(ctx, c)
	}
	if end == nil || ctx.Err() != nil {
		return // the daemon stops; the container goes on
	}
	if !end.Started && a.asked && !a.cleared(ctx) {
		return
	}
	if err := a.finish(ctx, *end); err != nil {
		if ctx.Err() == nil {
			a.d.log.Error("end of attempt not saved", "attempt", a.id, "err", err)
		}
		return
	}
	a.release(ctx)
}

// save persists a step and keeps the attempt's record current.
func (a *attempt) save(ctx context.Context, f func(c *change) error) error {
	return a.d.persist(ctx, a.id, func(c *change) error {
		if err := f(c); err != nil {
			return err
		}
		a.rec = *c.attempt
		return nil
	})
}

func (a *attempt) ref() agentrpc.Ref {
	return agentrpc.Ref{ID: a.rec.ContainerID, Name: a.rec.Container}
}

func (a *attempt) stopped() bool {
	if !a.stopping {
		select {
		case <-a.stop:
			a.stopping = true
		default:
		}
	}
	return a.stopping
}

// start takes the attempt from its allocation to a running program. When an answer is missing it does not guess: it
// looks for the container by its stored name.
func (a *attempt) start(ctx context.Context) (agentrpc.Container, *engine.Ending) {
	lctx, cancel := context.WithTimeout(ctx, 2*callTimeout)
	defer cancel()
	l, err := a.d.agents.get(lctx, a.user)
	if err != nil {
		return agentrpc.Container{}, &engine.Ending{Fault: err.Error()}
	}
	spec, err := a.containerSpec(l)
	if err != nil {
		return agentrpc.Container{}, &engine.Ending{Fault: err.Error()}
	}
	if err := a.openGate(ctx); err != nil {
		if ctx.Err() != nil {
			return agentrpc.Container{}, nil
		}
		return agentrpc.Container{}, &engine.Ending{Fault: err.Error()}
	}
	var c agentrpc.Container
	steps := []func() error{
		func() error { a.asked = true; return l.call(ctx, agentrpc.MethodCreate, spec, &c) },
		func() error { return a.created(ctx, c) },
		func() error { return l.call(ctx, agentrpc.MethodInit, a.ref(), &c) },
		func() error { return a.initialized(ctx, c) },
		func() error { a.startSent = true; return l.call(ctx, agentrpc.MethodStart, a.ref(), &c) },
	}
	for _, step := range steps {
		if a.stopped() {
			return c, &engine.Ending{Fault: "stopped before it started"}
		}
		if err := step(); err != nil {
			return a.startFailed(ctx, c, err)
		}
	}
	if err := a.started(ctx, c); err != nil {
		return c, &engine.Ending{Started: true, Fault: err.Error()}
	}
	return c, nil
}

func (a *attempt) startFailed(ctx context.Context, c agentrpc.Container, err error) (agentrpc.Container, *engine.Ending) {
	// The image may be what was wrong: the next try looks for it again.
	if key, _, kerr := keyOf(a.user, &a.spec); kerr == nil {
		a.d.images.drop(key)
	}
	if !a.startSent {
		switch agentrpc.CodeOf(err) {
		case agentrpc.CodeInvalid, agentrpc.CodeConflict:
			return c, &engine.Ending{Invalid: err.Error()}
		case agentrpc.CodeFailed, agentrpc.CodeNotFound:
			return c, &engine.Ending{Fault: notStarted(err)}
		}
	}
	if ctx.Err() != nil {
		return c, nil
	}
	a.d.log.Warn("start not confirmed, looking for the container", "attempt", a.id, "err", err)
	found, end := a.find(ctx)
	if end != nil && end.Fault != "" && !end.Started {
		end.Fault = notStarted(err) // what was said is worth more to its owner than what was found
	}
	return found, end
}

func notStarted(err error) string { return fmt.Sprintf("the container did not start: %v", err) }

func (a *attempt) created(ctx context.Context, c agentrpc.Container) error {
	return a.save(ctx, func(ch *change) error {
		ch.attempt.ContainerID = c.ID
		for _, n := range c.Notes[:min(len(c.Notes), maxNotes)] {
			ch.event("note", said(n))
		}
		return nil
	})
}

// errProcessGone is returned for a process that has ended: ask about its container again.
var errProcessGone = errors.New("gone")

// process reads a process that the agent says is the container's first one, and checks that it can be: the owner's, and
// not in the host's own PID namespace, by which everybody's processes on the cards would count as this job's.
func (a *attempt) process(pid int) (host.Process, error) {
	p, ok := a.d.o.System.Process(pid)
	switch self, _ := a.d.o.System.Process(os.Getpid()); {
	case !ok:
		return p, fmt.Errorf("its process %d is %w", pid, errProcessGone)
	case p.UID != a.user.UID:
		return p, fmt.Errorf("its process %d is not one of %s", pid, a.user.Name)
	case p.PIDNamespace != 0 && p.PIDNamespace == self.PIDNamespace:
		return p, fmt.Errorf("its process %d is in no container", pid)
	}
	return p, nil
}

// initialized takes the process the agent names, if it can be the container's.
func (a *attempt) initialized(ctx context.Context, c agentrpc.Container) error {
	p, err := a.process(c.PID)
	if err != nil {
		return &agentrpc.Error{Code: agentrpc.CodeFailed, Message: err.Error()}
	}
	return a.save(ctx, func(ch *change) error {
		ch.attempt.PID, ch.attempt.PIDStart, ch.attempt.PIDNamespace = c.PID, p.Start, p.PIDNamespace
		return nil
	})
}

func (a *attempt) started(ctx context.Context, c agentrpc.Container) error {
	return a.save(ctx, func(ch *change) error {
		ch.attempt.Port = portOf(c)
		ch.attempt.Started, ch.attempt.StartedBoot = ch.now, a.d.o.System.Boottime()
		ch.attempt.Allocation.State, ch.job.Started = engine.Active, ch.now
		ch.event("started", fmt.Sprintf("attempt %d, process %d", a.id.Number, ch.attempt.PID))
		if ch.job.State == engine.Stopping {
			return nil // told to stop meanwhile: watch sends the signal
		}
		return ch.move(engine.EvStarted)
	})
}

// portOf is the loopback port that an agent says leads to the job's server; what cannot be one is none.
func portOf(c agentrpc.Container) int {
	if c.Port < 1 || c.Port > 65535 {
		return 0
	}
	return c.Port
}

// watch waits for the container to end. Only what the owner's agent answers when asked counts; no answer is unknown.
func (a *attempt) watch(ctx context.Context, c agentrpc.Container) *engine.Ending {
	wake, done := a.d.agents.watchExit(a.rec.Container)
	defer done()
	look := time.NewTicker(inspectEvery)
	defer look.Stop()
	// It may have ended before the watch was set up.
	if end := a.look(ctx); end != nil {
		return end
	}
	for {
		if a.stopped() {
			if end := a.sendStop(ctx); end != nil {
				return end
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-a.stop:
			a.stopping = true
			continue
		case <-wake:
		case <-look.C:
			// The agent that was to kill after the grace may have died itself.
			a.stopping = a.overdue(inspectEvery)
			if a.overdue(killAfter) {
				a.kill()
			}
		}
		if end := a.look(ctx); end != nil {
			return end
		}
	}
}

// look inspects the container; nil means that it runs or that nothing is known.
func (a *attempt) look(ctx context.Context) *engine.Ending {
	actx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	l, err := a.d.agents.get(actx, a.user)
	if err != nil {
		return a.unheard()
	}
	var c agentrpc.Container
	err = l.call(actx, agentrpc.MethodInspect, a.ref(), &c)
	switch {
	case err != nil && agentrpc.CodeOf(err) == agentrpc.CodeNotFound:
		return &engine.Ending{Started: true, Fault: "its container was removed outside gputop"}
	case err != nil:
		a.d.log.Warn("container not inspected", "attempt", a.id, "err", err)
		return a.unheard()
	case c.Running(), c.State == "removing":
		return a.doubted()
	}
	return a.ended(c)
}

// doubted is the end of an attempt of which its agent says that it runs while its process is seen gone: a device does
// not stay with it on the agent's word. Podman may take a moment to notice an end; after that it is not believed.
func (a *attempt) doubted() *engine.Ending {
	if a.rec.PID == 0 {
		return nil
	}
	now := a.d.o.System.Boottime()
	switch p, ok := a.d.o.System.Process(a.rec.PID); {
	case ok && p.Start == a.rec.PIDStart:
		a.goneSince = 0
	case a.goneSince == 0:
		a.goneSince = now
	case now-a.goneSince > doubtAfter.Nanoseconds():
		return &engine.Ending{Started: true, Fault: "its process is gone, though Podman says that it runs"}
	}
	return nil
}

// overdue says whether the program should have ended that long ago.
func (a *attempt) overdue(by time.Duration) bool {
	return a.stopSent != 0 && a.d.o.System.Boottime()-a.stopSent > (a.d.policy().StopGrace+by).Nanoseconds()
}

// kill ends the container's first process, and with it all of them, without the agent, which has had its time.
func (a *attempt) kill() {
	if a.rec.PID == 0 || a.rec.BootID != a.d.o.System.BootID || a.d.o.System.Kill == nil {
		return
	}
	a.d.log.Warn("the agent did not end the container, killing it", "attempt", a.id, "pid", a.rec.PID)
	if err := a.d.o.System.Kill(a.rec.PID, a.rec.PIDStart); err != nil {
		a.d.log.Error("container not killed", "attempt", a.id, "err", err)
	}
}

// ended reads the end out of a container that is not running. After another boot nothing is believed; an exit code
// only with both times.
func (a *attempt) ended(c agentrpc.Container) *engine.Ending {
	ran := !a.rec.Started.IsZero()
	if a.rec.BootID != a.d.o.System.BootID {
		return &engine.Ending{Started: ran, Fault: "the machine was restarted while it ran"}
	}
	switch c.State {
	case "exited", "stopped":
		if c.StartedAt.IsZero() || c.FinishedAt.IsZero() {
			return &engine.Ending{Started: ran, Fault: firstOf(said(c.Error), "its container ended without a record of when")}
		}
		return &engine.Ending{Started: true, ExitCode: c.ExitCode, OOMKilled: c.OOMKilled, Memory: a.rec.Allocation.Memory}
	}
	return &engine.Ending{Started: ran, Fault: fmt.Sprintf("its container was found %s and not running", c.State)}
}

// sendStop tells the container to end, until the agent has taken it or the end is seen without it.
func (a *attempt) sendStop(ctx context.Context) *engine.Ending {
	began := a.d.o.System.Boottime()
	for wait := 500 * time.Millisecond; ; wait = min(2*wait, 10*time.Second) {
		if a.d.o.System.Boottime()-began > (a.d.policy().StopGrace + killAfter).Nanoseconds() {
			a.kill() // nobody delivers the signal; what follows sees the end
		}
		actx, cancel := context.WithTimeout(ctx, callTimeout)
		l, err := a.d.agents.get(actx, a.user)
		if err == nil {
			err = l.call(actx, agentrpc.MethodStop, agentrpc.StopArgs{Ref: a.ref(), Signal: firstOf(a.spec.StopSignal, "SIGTERM"), Grace: a.d.policy().StopGrace}, nil)
		}
		cancel()
		if err == nil || agentrpc.CodeOf(err) == agentrpc.CodeNotFound {
			a.stopping, a.stopSent = false, a.d.o.System.Boottime()
			return nil
		}
		if end := a.unheard(); end != nil && ctx.Err() == nil {
			return end
		}
		a.d.log.Warn("stop not delivered, trying again", "attempt", a.id, "err", err)
		if !sleep(ctx, wait) {
			return nil
		}
	}
}
