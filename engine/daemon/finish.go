package daemon

import (
	"context"
	"fmt"
	"time"

	"gputop/cdi"
	"gputop/engine"
	"gputop/engine/agentrpc"
)

// finish persists the end of an attempt and what becomes of its job.
func (a *attempt) finish(ctx context.Context, end engine.Ending) error {
	return a.save(ctx, func(c *change) error {
		v := engine.Judge(c.job, end, c.now)
		if err := c.move(v.Event); err != nil {
			return err
		}
		at := c.attempt
		at.Ended, at.OOMKilled = c.now, end.OOMKilled
		at.Allocation.State = engine.Releasing
		if cv := a.d.curves[a.id]; cv != nil {
			at.Curve = cv.Clone()
		}
		if end.Started && end.Fault == "" && end.Invalid == "" {
			code := end.ExitCode
			at.ExitCode, c.job.ExitCode = &code, &code
		}
		at.Message = firstOf(end.Invalid, end.Fault, v.Message)
		count(&c.job, v)
		if v.Preempted && at.StoppedFor != 0 {
			c.job.Displaced++
		}
		c.job.Message = v.Message
		if c.job.State.Final() {
			c.job.Ended = c.now
		} else {
			c.job.NotBefore, c.job.StopReason, c.job.ExitCode, c.job.Started = v.NotBefore, "", nil, time.Time{}
			if v.Restarted {
				c.job.Queued = c.now // behind those who waited
			}
			if !v.Preempted {
				c.job.Prepared = false // the image or a directory may be what was wrong
			}
		}
		c.event(string(v.Event), firstOf(v.Message, at.Message, exitText(at)))
		return nil
	})
}

func count(j *engine.Job, v engine.Verdict) {
	switch {
	case v.Failed:
		j.Failures++
	case v.Faulted:
		j.Faults++
	case v.Preempted:
		j.Preemptions++
	case v.Restarted:
		j.Restarts++
	}
	if j.ShortRuns++; !v.Short {
		j.ShortRuns = 0
	}
}

func exitText(a *engine.Attempt) string {
	if a.ExitCode == nil {
		return ""
	}
	return fmt.Sprintf("exit code %d", *a.ExitCode)
}

func firstOf(list ...string) string {
	for _, s := range list {
		if s != "" {
			return s
		}
	}
	return ""
}

// releaseLook is how often a release looks whether the devices are free; patience is when it says that they are not.
const (
	releaseLook     = 200 * time.Millisecond
	releasePatience = 60 * time.Second
	removePatience  = 2 * time.Minute
)

// release removes the container, waits until the memory is seen free, removes the lease, closes the device nodes and gives
// the devices back. It holds them for as long as it takes: a device is not free because somebody said so.
func (a *attempt) release(ctx context.Context) {
	a.removeContainer(ctx)
	if !a.waitFree(ctx) {
		return
	}
	if a.d.o.LeaseDir != "" {
		if err := cdi.RemoveLease(a.d.o.LeaseDir, a.id.LeaseName(a.d.store.Instance())); err != nil {
			a.d.log.Error("lease not removed", "attempt", a.id, "err", err)
		}
	}
	a.closeGate(ctx)
	err := a.save(ctx, func(c *change) error {
		c.attempt.Allocation.State = engine.Released
		c.usage = a.d.charge(&c.job, c.attempt)
		c.used = a.d.usedBy(&c.job, c.attempt)
		c.event("released", "")
		return nil
	})
	if err != nil {
		if ctx.Err() == nil {
			a.d.log.Error("release not saved", "attempt", a.id, "err", err)
		}
		return
	}
	a.left()
	_ = a.d.do(ctx, func() { a.d.unlockDevices(a.rec.Allocation) })
}

// removeContainer asks the agent to remove the container, for a while: devices don't wait for a tidy store.
func (a *attempt) removeContainer(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, removePatience)
	defer cancel()
	for wait := 500 * time.Millisecond; ; wait = min(2*wait, 10*time.Second) {
		l, err := a.d.agents.get(ctx, a.user)
		if err == nil {
			err = l.call(ctx, agentrpc.MethodRemove, a.ref(), nil)
		}
		if err == nil || agentrpc.CodeOf(err) == agentrpc.CodeNotFound {
			return
		}
		a.d.log.Warn("container not removed, trying again", "attempt", a.id, "err", err)
		if !sleep(ctx, wait) {
			return
		}
	}
}

// cleared removes what a start that went wrong may have left, until that is certain: nothing of this try may come to life
// once the next one has begun. It is false when the daemon stops first; a job that was told to stop does not wait.
func (a *attempt) cleared(ctx context.Context) bool {
	for wait := 500 * time.Millisecond; ; wait = min(2*wait, 10*time.Second) {
		actx, cancel := context.WithTimeout(ctx, callTimeout)
		l, err := a.d.agents.get(actx, a.user)
		if err == nil {
			err = l.call(actx, agentrpc.MethodRemove, a.ref(), nil)
		}
		cancel()
		if err == nil || agentrpc.CodeOf(err) == agentrpc.CodeNotFound {
			return true
		}
		if a.stopped() || a.stopSent != 0 {
			return true // told to end: its release goes on trying
		}
		a.d.log.Warn("container of a failed start not removed, trying again", "attempt", a.id, "err", err)
		if !sleep(ctx, wait) {
			return false
		}
	}
}

// waitFree waits until the attempt's processes are gone and a sample taken later shows none of them on its devices.
func (a *attempt) waitFree(ctx context.Context) bool {
	began := a.d.o.System.Boottime()
	since := moment{wall: a.d.o.System.Now(), samples: -1}
	told := false
	for {
		var free bool
		var why string
		if err := a.d.do(ctx, func() {
			if since.samples < 0 {
				since.samples = a.d.state.samples
			}
			free, why = a.d.seenFree(&a.rec, since)
		}); err != nil {
			return false
		}
		if free {
			return true
		}
		if !told && a.d.o.System.Boottime()-began > releasePatience.Nanoseconds() {
			told = true
			a.d.log.Error("devices not given back yet", "attempt", a.id, "why", why)
			a.kill() // its program has ended: what is left of it has no business there
			if a.save(ctx, func(c *change) error { c.event("releasing", why); return nil }) != nil {
				return false
			}
		}
		if !sleep(ctx, releaseLook) {
			return false
		}
	}
}

// moment is a point in time in the words of samples.
type moment struct {
	wall    time.Time
	samples int
}

// seenFree says whether nothing of the attempt is left on its devices.
func (d *Daemon) seenFree(a *engine.Attempt, since moment) (bool, string) {
	if a.PID != 0 && a.BootID == d.o.System.BootID {
		if p, ok := d.o.System.Process(a.PID); ok && p.Start == a.PIDStart {
			return false, fmt.Sprintf("its process %d is still there", a.PID)
		}
	}
	if len(a.Allocation.Grants) == 0 {
		return true, ""
	}
	// The newest sample was taken after the end, or, should the clock have been set, is not the one under way then.
	later := d.state.sample.Time.After(since.wall) && d.state.samples > since.samples || d.state.samples >= since.samples+2
	if !later || d.state.stale {
		return false, "the GPUs have not been seen since it ended"
	}
	for _, g := range a.Allocation.Grants {
		ds := d.state.devices[g.Device]
		if ds == nil {
			continue // the card is gone: nothing to wait for
		}
		if _, there := ds.actual[a.ID]; there {
			return false, fmt.Sprintf("processes of it still hold memory on %s", g.Device)
		}
	}
	return true, ""
}
