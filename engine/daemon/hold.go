package daemon

import (
	"context"
	"errors"
	"fmt"
	"time"

	"gputop/engine"
	"gputop/engine/api"
	"gputop/engine/store"
)

// changeJob finds a live job and lets f change it in the loop; a refusal by the table is recorded outside of it.
func (d *Daemon) changeJob(ctx context.Context, c api.Caller, id engine.JobID, f func(e *entry) error) (api.Job, error) {
	var job api.Job
	var err error
	derr := d.do(ctx, func() {
		e := d.state.jobs[id]
		if e == nil {
			err = d.notLive(ctx, id)
			return
		}
		if err = f(e); err == nil {
			if e.view == nil {
				e.view = d.view(e)
			}
			job = redact(*e.view, c)
		}
	})
	if derr != nil {
		return job, derr
	}
	return job, d.record(ctx, c, err)
}

// Hold keeps a waiting job from its turn, or releases it. Asking for what already is changes nothing.
func (d *Daemon) Hold(ctx context.Context, c api.Caller, id engine.JobID, hold bool, note string) (api.Job, error) {
	return d.changeJob(ctx, c, id, func(e *entry) error {
		if hold {
			return d.hold(e, c, note)
		}
		return d.release(e, c, note)
	})
}

func (d *Daemon) hold(e *entry, c api.Caller, note string) error {
	j := &e.job
	if err := permit(c, actHold, j, note); err != nil {
		return err
	}
	byAdmin := !j.Owner.Is(c.User)
	switch {
	case j.State.Final():
		return endedAgain(j)
	case !j.State.Queued():
		return &api.Error{Code: api.CodeConflict, Message: fmt.Sprintf("job %s is %s; only a waiting job can be held", j.ID, j.State),
			Hint: fmt.Sprintf("Put it back in the queue first, then hold it: gputop preempt %s", j.ID)}
	case j.Held && (j.HeldByAdmin || !byAdmin):
		return nil
	}
	return d.saved(d.transact(j.ID, 0, func(ch *change) error {
		ch.job.Held, ch.job.HeldBy, ch.job.HeldByAdmin = true, c.Name, byAdmin
		ch.job.Promised = false
		ch.event("held", byWhom("held", c, note))
		ch.audit = append(ch.audit, d.audit(c, actHold, &ch.job, note, ""))
		return nil
	}))
}

func (d *Daemon) release(e *entry, c api.Caller, note string) error {
	j, a := &e.job, actRelease
	if j.HeldByAdmin {
		a = actReleaseAdmin
	}
	if err := permit(c, actRelease, j, note); err != nil {
		return err
	}
	if err := permit(c, a, j, note); err != nil {
		return err
	}
	switch {
	case j.State.Final():
		return endedAgain(j)
	case !j.State.Queued():
		return &api.Error{Code: api.CodeConflict, Message: fmt.Sprintf("job %s is %s; it is not held", j.ID, j.State)}
	case !j.Held:
		return nil
	}
	return d.saved(d.transact(j.ID, 0, func(ch *change) error {
		ch.unhold()
		ch.event("released-hold", byWhom("released", c, note))
		ch.audit = append(ch.audit, d.audit(c, a, &ch.job, note, ""))
		return nil
	}))
}

func (c *change) unhold() { c.job.Held, c.job.HeldBy, c.job.HeldByAdmin = false, "", false }

func alreadyEnded(j *engine.Job) error {
	return &api.Error{Code: api.CodeConflict, Message: fmt.Sprintf("job %s has already ended: %s", j.ID, j.State)}
}

// endedAgain is alreadyEnded for who wants the job to run.
func endedAgain(j *engine.Job) error {
	return &api.Error{Code: api.CodeConflict, Message: fmt.Sprintf("job %s has already ended: %s", j.ID, j.State),
		Hint: fmt.Sprintf("Its owner may submit it again with: gputop requeue %s", j.ID)}
}

// Requeue preempts a running job. An ended one is submitted again as it was, as a new job: ids are never used twice, and
// what an ended job was stays as it is.
func (d *Daemon) Requeue(ctx context.Context, c api.Caller, id engine.JobID, note string) (api.SubmitResponse, error) {
	var resp api.SubmitResponse
	old, _, _, err := d.store.Job(ctx, id)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return resp, noSuchJob(id)
	case err != nil:
		return resp, fmt.Errorf("read job %s: %w", id, err)
	}
	if err := permit(c, actRequeue, &old, note); err != nil {
		return resp, d.record(ctx, c, err)
	}
	if old.State.Final() {
		return d.submitAgain(ctx, c, old, note)
	}
	resp.Job, err = d.changeJob(ctx, c, id, func(e *entry) error {
		switch {
		case e.job.State.Queued() && e.job.Held:
			return &api.Error{Code: api.CodeConflict, Message: fmt.Sprintf("job %s is in the queue already, and held", id), Hint: fmt.Sprintf("Let it have its turn with: gputop release %s", id)}
		case e.job.State.Queued():
			return &api.Error{Code: api.CodeConflict, Message: fmt.Sprintf("job %s is in the queue already", id)}
		}
		return d.preempt(e, c, actRequeue, note)
	})
	return resp, err
}

// again is a spec for another run now: what it waited for is past.
func again(s engine.Spec) engine.Spec {
	s.After, s.Begin = nil, time.Time{}
	return s
}

func (d *Daemon) submitAgain(ctx context.Context, c api.Caller, old engine.Job, note string) (api.SubmitResponse, error) {
	return d.submit(ctx, c, api.SubmitRequest{Spec: again(old.Spec), Element: old.Element}, func(j *engine.Job) []store.Change {
		now := j.Submitted
		line := func(id engine.JobID, kind, text string) store.Change {
			return store.AddEvent(engine.Event{Time: now, Job: id, Kind: kind, Text: text})
		}
		return []store.Change{
			line(j.ID, "submitted", byWhom("again", c, note)+", as job "+old.ID.String()+" was"),
			line(old.ID, "requeued", byWhom("submitted again", c, note)+", as job "+j.ID.String()),
			store.AddAudit(d.audit(c, actRequeue, &old, note, "as job "+j.ID.String())),
		}
	})
}
