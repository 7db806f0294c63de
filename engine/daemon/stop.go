package daemon

import (
	"context"
	"fmt"
	"time"

	"gputop/engine"
	"gputop/engine/api"
)

// Stop cancels or preempts a job. The decision is on disk when it answers; the program's end follows.
func (d *Daemon) Stop(ctx context.Context, c api.Caller, id engine.JobID, why engine.StopReason, note string) (api.Job, error) {
	var job api.Job
	var err error
	derr := d.do(ctx, func() {
		e := d.state.jobs[id]
		if e == nil {
			err = d.notLive(ctx, id)
			return
		}
		if err = mayStop(c, e); err != nil {
			return
		}
		if why == engine.StopPreempted {
			err = d.preempt(e, c, note)
		} else {
			err = d.cancel(e, c, note)
		}
		if err == nil {
			job = redact(*e.view, c)
		}
	})
	if derr != nil {
		return job, derr
	}
	return job, err
}

// notLive says what became of a job that is not in the live list.
func (d *Daemon) notLive(ctx context.Context, id engine.JobID) error {
	if j, _, _, err := d.store.Job(ctx, id); err == nil {
		return &api.Error{Code: api.CodeConflict, Message: fmt.Sprintf("job %s has already ended: %s", id, j.State)}
	}
	return noSuchJob(id)
}

func noSuchJob(id engine.JobID) error {
	return &api.Error{Code: api.CodeNotFound, Message: fmt.Sprintf("there is no job %s", id), Hint: "See gputop ls --all."}
}

// mayStop lets owners and admins stop a job.
func mayStop(c api.Caller, e *entry) error {
	if c.Admin || e.job.Owner.Is(c.User) {
		return nil
	}
	return &api.Error{Code: api.CodeForbidden, Message: fmt.Sprintf("job %s belongs to %s; only its owner or an admin may stop it", e.job.ID, e.job.Owner.Name)}
}

func byWhom(what string, c api.Caller, note string) string {
	s := fmt.Sprintf("%s by %s", what, c.Name)
	if note != "" {
		s += ": " + note
	}
	return s
}

func (d *Daemon) cancel(e *entry, c api.Caller, note string) error {
	j := &e.job
	text := byWhom("cancelled", c, note)
	switch {
	case j.State.Final():
		return &api.Error{Code: api.CodeConflict, Message: fmt.Sprintf("job %s has already ended: %s", j.ID, j.State)}
	case j.State.Queued():
		return d.saved(d.transact(j.ID, 0, func(ch *change) error {
			ch.job.Ended, ch.job.StopReason, ch.job.Message = ch.now, engine.StopCancelled, text
			ch.event("cancelled", text)
			return ch.move(engine.EvCancel)
		}))
	}
	return d.saved(d.stopActive(e, engine.StopCancelled, text))
}

func (d *Daemon) preempt(e *entry, c api.Caller, note string) error {
	j := &e.job
	switch {
	case j.State.Final():
		return &api.Error{Code: api.CodeConflict, Message: fmt.Sprintf("job %s has already ended: %s", j.ID, j.State)}
	case !j.State.Active():
		return &api.Error{Code: api.CodeConflict, Message: fmt.Sprintf("job %s does not run: it is %s", j.ID, j.State), Hint: "Only a running job can be preempted."}
	case j.StopReason == engine.StopCancelled, j.StopReason == engine.StopTimeLimit:
		return &api.Error{Code: api.CodeConflict, Message: fmt.Sprintf("job %s is being stopped for good: %s", j.ID, j.StopReason)}
	}
	return d.saved(d.stopActive(e, engine.StopPreempted, byWhom("preempted", c, note)))
}

// saved turns a refusal of the disk into an answer for the caller.
func (d *Daemon) saved(err error) error {
	if err == nil {
		return nil
	}
	return &api.Error{Code: api.CodeUnavailable, Message: fmt.Sprintf("nothing was changed: %v", err), Hint: "Try again in a moment."}
}

// stopActive persists that a job with an attempt under way is to stop, then tells the attempt. A cancel overrides an
// earlier preemption or time limit, not the other way round.
func (d *Daemon) stopActive(e *entry, why engine.StopReason, text string) error {
	if e.job.State == engine.Stopping && (e.job.StopReason == why || why != engine.StopCancelled) {
		return nil
	}
	err := d.transact(e.job.ID, 0, func(c *change) error {
		c.job.StopReason, c.job.Message = why, text
		c.event("stopping", text)
		if c.job.State == engine.Stopping {
			return nil
		}
		return c.move(engine.EvStop)
	})
	if err != nil {
		return err
	}
	if e.stop != nil {
		select {
		case e.stop <- struct{}{}:
		default:
		}
	}
	return nil
}

// enforceTimeLimits stops what has run as long as it may. Time is taken on a clock that nobody sets and that counts
// while the machine sleeps.
func (d *Daemon) enforceTimeLimits() {
	now := d.o.System.Boottime()
	for _, a := range d.state.sortedAttempts() {
		e := d.state.jobs[a.ID.Job]
		if e == nil || e.job.State != engine.Running || a.ID.Number != e.job.Attempts || a.StartedBoot == 0 || e.job.Spec.TimeLimit <= 0 {
			continue
		}
		if ran := time.Duration(now - a.StartedBoot); ran >= e.job.Spec.TimeLimit {
			if err := d.stopActive(e, engine.StopTimeLimit, fmt.Sprintf("time limit of %s reached", e.job.Spec.TimeLimit)); err != nil {
				d.log.Error("time limit not enforced, trying again", "job", e.job.ID, "err", err)
			}
		}
	}
}
