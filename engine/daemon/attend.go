package daemon

import (
	"context"
	"fmt"
	"time"

	"gputop/engine"
	"gputop/engine/api"
)

// attendPatience is how long an attended job goes on with nobody there: long enough to log in again after the network
// broke, short enough that a forgotten shell does not hold a GPU overnight.
const attendPatience = 10 * time.Minute

// attendance is who is there for a job.
type attendance struct {
	here int
	// since is from when nobody is, on CLOCK_BOOTTIME in nanoseconds.
	since int64
}

// Attend says that the caller is there for a job of theirs, and returns when it is final.
func (d *Daemon) Attend(ctx context.Context, c api.Caller, id engine.JobID) (api.Job, error) {
	var err error
	derr := d.do(ctx, func() {
		e := d.state.jobs[id]
		if e == nil {
			return // Wait says what became of it
		}
		if err = permit(c, actExec, &e.job, ""); err == nil {
			d.attendanceOf(id).here++
		}
	})
	if derr != nil || err != nil {
		if derr != nil {
			return api.Job{}, derr
		}
		return api.Job{}, d.record(ctx, c, err)
	}
	defer func() {
		_ = d.do(d.runCtx, func() {
			if a := d.attended[id]; a != nil {
				a.here = max(0, a.here-1)
				a.since = d.o.System.Boottime()
			}
		})
	}()
	return d.Wait(ctx, c, id)
}

func (d *Daemon) attendanceOf(id engine.JobID) *attendance {
	a := d.attended[id]
	if a == nil {
		a = &attendance{since: d.o.System.Boottime()}
		d.attended[id] = a
	}
	return a
}

// Detach lets an attended job go on with nobody there.
func (d *Daemon) Detach(ctx context.Context, c api.Caller, id engine.JobID) (api.Job, error) {
	return d.changeJob(ctx, c, id, func(e *entry) error {
		if err := permit(c, actExec, &e.job, ""); err != nil {
			return err
		}
		switch {
		case e.job.State.Final():
			return alreadyEnded(&e.job)
		case !e.job.Spec.Attended:
			return nil
		}
		return d.saved(d.transact(id, 0, func(ch *change) error {
			ch.job.Spec.Attended = false
			ch.event("detached", "it goes on with nobody there")
			return nil
		}))
	})
}

// endUnattended cancels attended jobs at which nobody has been for a while. A restart of the daemon begins the time anew.
func (d *Daemon) endUnattended() {
	now := d.o.System.Boottime()
	for id, a := range d.attended {
		e := d.state.jobs[id]
		if e == nil || e.job.State.Final() || !e.job.Spec.Attended {
			delete(d.attended, id)
			continue
		}
		if a.here > 0 || now-a.since < attendPatience.Nanoseconds() || e.job.State == engine.Stopping {
			continue
		}
		text := fmt.Sprintf("cancelled: nobody has been attached for %d minutes", int(attendPatience.Minutes()))
		if err := d.endJob(e, text); err != nil {
			d.log.Error("job without anybody attached not ended, trying again", "job", id, "err", err)
		}
	}
}
