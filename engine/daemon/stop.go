package daemon

import (
	"context"
	"errors"
	"fmt"
	"time"

	"gputop/engine"
	"gputop/engine/agentrpc"
	"gputop/engine/api"
	"gputop/engine/store"
)

// Stop cancels or preempts a job. The decision is on disk when it answers; the program's end follows. A running job is
// cancelled also when the disk is full, for it may be the one that fills it: the answer says so.
func (d *Daemon) Stop(ctx context.Context, c api.Caller, id engine.JobID, why engine.StopReason, note string) (api.Job, error) {
	return d.changeJob(ctx, c, id, func(e *entry) error {
		if why == engine.StopPreempted {
			return d.preempt(e, c, actPreempt, note)
		}
		return d.cancel(e, c, note)
	})
}

// notLive says what became of a job that is not in the live list.
func (d *Daemon) notLive(ctx context.Context, id engine.JobID) error {
	if j, _, _, err := d.store.Job(ctx, id); err == nil {
		return alreadyEnded(&j)
	}
	return noSuchJob(id)
}

func noSuchJob(id engine.JobID) error {
	return &api.Error{Code: api.CodeNotFound, Message: fmt.Sprintf("there is no job %s", id), Hint: "See gputop ls --all."}
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
	if err := permit(c, actCancel, j, note); err != nil {
		return err
	}
	if j.State.Final() {
		return alreadyEnded(j)
	}
	return d.saved(d.endJob(e, byWhom("cancelled", c, note), d.audit(c, actCancel, j, note, "")))
}

// endJob cancels a job that is not over: at once while it waits, else by a stop of its attempt.
func (d *Daemon) endJob(e *entry, text string, by ...engine.AuditEntry) error {
	if e.job.State.Queued() {
		return d.cancelQueued(e, text, by...)
	}
	return d.stopActive(e, engine.StopCancelled, text, by...)
}

// cancelQueued ends a job that waits.
func (d *Daemon) cancelQueued(e *entry, text string, by ...engine.AuditEntry) error {
	return d.transact(e.job.ID, 0, func(ch *change) error {
		ch.fact = true
		ch.job.Ended, ch.job.StopReason, ch.job.Message = ch.now, engine.StopCancelled, text
		ch.unhold()
		ch.event("cancelled", text)
		ch.audit = append(ch.audit, by...)
		return ch.move(engine.EvCancel)
	})
}

// preempt stops a job and puts it back in the queue, by the permission that was asked for.
func (d *Daemon) preempt(e *entry, c api.Caller, a action, note string) error {
	j := &e.job
	if err := permit(c, a, j, note); err != nil {
		return err
	}
	return d.stopForPreemption(e, c, a, nil, byWhom("preempted", c, note), note)
}

// stopForPreemption is preempt for who may. gains is the waiting job that gets what the other frees; nil for none.
func (d *Daemon) stopForPreemption(e *entry, c api.Caller, a action, gains *entry, text, note string) error {
	j := &e.job
	switch {
	case j.State.Final():
		return alreadyEnded(j)
	case !j.State.Active():
		return &api.Error{Code: api.CodeConflict, Message: fmt.Sprintf("job %s does not run: it is %s", j.ID, j.State), Hint: "Only a running job can be preempted."}
	case j.StopReason == engine.StopCancelled, j.StopReason == engine.StopTimeLimit, j.StopReason == engine.StopMemory, j.StopReason == engine.StopLostCard:
		return &api.Error{Code: api.CodeConflict, Message: fmt.Sprintf("job %s is being stopped for good: %s", j.ID, j.StopReason)}
	}
	stop := &unsavedStop{why: engine.StopPreempted, text: text, by: []engine.AuditEntry{d.audit(c, a, j, note, "")}}
	if gains != nil {
		if err := d.promise(gains, j.ID); err != nil {
			return d.saved(err)
		}
		stop.gains = gains.job.ID
	}
	return d.saved(d.stopAttempt(e, stop))
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
func (d *Daemon) stopActive(e *entry, why engine.StopReason, text string, by ...engine.AuditEntry) error {
	return d.stopAttempt(e, &unsavedStop{why: why, text: text, by: by})
}

func (d *Daemon) stopAttempt(e *entry, stop *unsavedStop) error {
	why := stop.why
	if e.job.State == engine.Stopping && (e.job.StopReason == why || why != engine.StopCancelled) {
		return nil
	}
	if u := e.unsaved; u != nil && (u.why == why || why != engine.StopCancelled) {
		return nil
	}
	err := d.transact(e.job.ID, stop.attempt(&e.job), func(c *change) error { c.fact = true; return stop.apply(c) })
	var refused *notSavedError
	switch {
	case errors.As(err, &refused) && why != engine.StopPreempted && !errors.Is(err, store.ErrClosed):
		// A job that the daemon forgot to have preempted would not come back to the queue: a preemption can wait.
		d.log.Error("a stop is delivered and not saved yet", "job", e.job.ID, "err", err)
		e.unsaved, d.unsaved[e.job.ID] = stop, true
		d.publish(e)
	case err != nil:
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
		ran := time.Duration(now - a.StartedBoot)
		if s := &e.job.Spec; s.Warn != "" && !a.Warned && ran >= s.TimeLimit-s.WarnBefore && ran < s.TimeLimit {
			d.warn(e, a.ID)
		}
		if ran >= e.job.Spec.TimeLimit {
			if err := d.stopActive(e, engine.StopTimeLimit, fmt.Sprintf("time limit of %s reached", e.job.Spec.TimeLimit)); err != nil {
				d.log.Error("time limit not enforced, trying again", "job", e.job.ID, "err", err)
			}
		}
	}
}

// warn tells a program that its time is nearly over, once: that it is to be told is on disk first.
func (d *Daemon) warn(e *entry, id engine.AttemptID) {
	s := &e.job.Spec
	err := d.transact(id.Job, id.Number, func(c *change) error {
		c.attempt.Warned = true
		c.event("warned", fmt.Sprintf("%s, %s before its time limit", s.Warn, s.WarnBefore))
		return nil
	})
	if err != nil {
		d.log.Error("warning before the time limit not saved, trying again", "job", id.Job, "err", err)
		return
	}
	user, args := e.job.Owner, agentrpc.WarnArgs{Signal: s.Warn}
	args.Ref = agentrpc.Ref{ID: d.state.attempts[id].ContainerID, Name: d.state.attempts[id].Container}
	d.goWork(func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, callTimeout)
		defer cancel()
		l, err := d.agents.get(ctx, user)
		if err == nil {
			err = l.call(ctx, agentrpc.MethodWarn, args, nil)
		}
		if err != nil {
			d.log.Warn("program not warned of its time limit", "attempt", id, "err", err)
		}
	})
}
