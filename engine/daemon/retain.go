package daemon

import (
	"context"
	"errors"
	"time"

	"gputop/engine"
	"gputop/engine/agentrpc"
)

// retainEvery is how often what is too old goes, and tidyStep how many jobs an agent is asked about at a time.
const (
	retainEvery = time.Hour
	tidyStep    = 100
)

// retain lets go of what is too old, now and every hour.
func (d *Daemon) retain(ctx context.Context) {
	for {
		d.retainOnce(ctx)
		if !sleep(ctx, retainEvery) {
			return
		}
	}
}

// retainOnce marks and deletes in the store, and has the agents that are there do the same with logs and checkpoints.
// No agent is started for that: the store remembers until one comes for a job.
func (d *Daemon) retainOnce(ctx context.Context) {
	if keep := d.policy().KeepLogs; keep > 0 {
		gone, err := d.store.ExpireLogs(ctx, d.o.System.Now().Add(-keep))
		if err != nil && ctx.Err() == nil {
			d.log.Error("old logs not let go", "err", err)
		}
		if len(gone) > 0 {
			d.log.Info("logs and checkpoints of old jobs may go", "jobs", len(gone), "older than", keep)
		}
	}
	if keep := d.policy().KeepEnded; keep > 0 {
		gone, err := d.store.Prune(ctx, keep)
		if err != nil && ctx.Err() == nil {
			d.log.Error("ended jobs not pruned", "err", err)
		}
		if len(gone) > 0 {
			d.log.Info("ended jobs pruned", "jobs", len(gone), "kept", keep)
			_ = d.do(ctx, func() { // it ends only with the daemon
				for _, g := range gone {
					d.pruned(g.Job)
				}
			})
		}
	}
	for _, l := range d.agents.all() {
		d.tidy(ctx, l)
	}
}

// pruned takes a job that the store has no more out of the live list.
func (d *Daemon) pruned(id engine.JobID) {
	if e := d.state.jobs[id]; e != nil && e.job.State.Final() {
		d.state.forgetEnded(id)
		d.hub.removed(id)
	}
}

// tidy has an agent drop what is to be forgotten, and what it has of jobs that are not known here.
func (d *Daemon) tidy(ctx context.Context, l *link) {
	for after := engine.JobID(0); ; {
		ids, err := d.store.ToForget(ctx, l.user, after, tidyStep)
		if err != nil {
			if ctx.Err() == nil {
				d.log.Error("what is to be forgotten is not known", "user", l.user.Name, "err", err)
			}
			return
		}
		for _, id := range ids {
			if !d.forget(ctx, l, id) {
				return
			}
			after = id
		}
		if len(ids) < tidyStep {
			break
		}
	}
	var kept agentrpc.KeptJobs
	if err := l.call(ctx, agentrpc.MethodKept, nil, &kept); err != nil {
		return // an older agent: its successor will say
	}
	strange, err := d.store.Strange(ctx, l.user, kept.Jobs)
	if err != nil {
		return // the store is closed, or says so elsewhere
	}
	for _, id := range strange {
		if !d.forget(ctx, l, id) {
			return
		}
	}
}

// forget has an agent drop one job's logs and checkpoints; false when the link is no good. What the agent refuses, for
// example because a container of that job is still there, is tried again an hour later.
func (d *Daemon) forget(ctx context.Context, l *link, id engine.JobID) bool {
	err := l.call(ctx, agentrpc.MethodForget, agentrpc.ForgetArgs{Job: id}, nil)
	var refused *agentrpc.Error
	switch {
	case err == nil:
	case errors.As(err, &refused):
		d.log.Warn("logs and checkpoints not dropped, trying again later", "user", l.user.Name, "job", id, "err", err)
		return true
	default:
		return false
	}
	if err := d.store.Forgotten(ctx, id); err != nil && ctx.Err() == nil {
		d.log.Error("job forgotten, and that is not noted", "job", id, "err", err)
	}
	return ctx.Err() == nil
}
