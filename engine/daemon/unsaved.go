package daemon

import (
	"errors"
	"time"

	"gputop/engine"
)

// unsavedStop is a decision to stop a job that is carried out before it is on disk. Until it is, it goes with each step
// of the job, so that the end is judged by it. A daemon that dies before forgets it: the job has then ended by a signal.
type unsavedStop struct {
	why  engine.StopReason
	text string
	by   []engine.AuditEntry
	// gains is the waiting job that gets what the attempt frees; 0 for none. preempted is the daemon's own account of
	// such stops, where it counts as one.
	gains     engine.JobID
	preempted []time.Time
}

// attempt is the number of the attempt that the decision changes; 0 when it changes the job alone.
func (u *unsavedStop) attempt(j *engine.Job) int {
	if u.gains == 0 {
		return 0
	}
	return j.Attempts
}

// apply puts the decision into a change of a job that is under way; nil is none.
func (u *unsavedStop) apply(c *change) error {
	if u == nil || !c.job.State.Active() {
		return nil
	}
	c.job.StopReason, c.job.Message = u.why, u.text
	c.event("stopping", u.text)
	c.audit = append(c.audit, u.by...)
	c.preempted = u.preempted
	if u.gains != 0 {
		c.attempt.StoppedFor = u.gains
	}
	if c.job.State == engine.Stopping {
		return nil
	}
	return c.move(engine.EvStop)
}

// saveStops tries again to save what is carried out already.
func (d *Daemon) saveStops() {
	for id := range d.unsaved {
		if err := d.transact(id, 0, func(c *change) error { c.fact = true; return nil }); errors.Is(err, errUnknownJob) {
			delete(d.unsaved, id)
		}
	}
}
