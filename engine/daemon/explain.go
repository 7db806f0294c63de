package daemon

import (
	"context"

	"gputop/engine"
	"gputop/engine/api"
	"gputop/engine/scheduler"
)

// Explain says why a job waits. The plan it costs is made outside the loop, on a snapshot: who asks often delays nobody.
func (d *Daemon) Explain(ctx context.Context, c api.Caller, id engine.JobID) (api.Explanation, error) {
	var (
		out    api.Explanation
		s      scheduler.Snapshot
		p      scheduler.Policy
		at     = d.o.System.Now()
		queued bool
		err    error
		held   = map[engine.JobID]api.Candidate{}
	)
	derr := d.do(ctx, func() {
		e := d.state.jobs[id]
		if e == nil {
			err = d.notLive(ctx, id)
			return
		}
		if err = permit(c, actSee, &e.job, ""); err != nil {
			return
		}
		if e.view == nil {
			e.view = d.view(e)
		}
		out.Job, queued, p = redact(*e.view, c), e.job.State.Queued(), d.policy().Scheduler
		if !queued {
			return
		}
		s = d.snapshot()
		share := s.Shares[e.job.Owner.UID]
		out.Usage, out.Weight, out.HalfLife = share.Usage, share.Weight, p.HalfLife
		for i := range s.Held {
			h := &s.Held[i]
			if h.For == id {
				out.Stopped = append(out.Stopped, h.Job)
			}
			held[h.Job] = api.Candidate{Job: h.Job, Owner: d.state.jobs[h.Job].job.Owner.Name, Class: h.Class, Grants: d.grants(h.Allocation.Grants)}
		}
	})
	switch {
	case derr != nil:
		return out, derr
	case err != nil:
		return out, d.record(ctx, c, err)
	case !queued:
		return out, nil
	}
	e, _ := scheduler.Explain(s, p, at, id)
	out.Of, out.Preempts, out.Due = e.Of, e.Preempts, e.Due
	for _, r := range e.Running {
		v := held[r.Job]
		v.Spared, v.Until, v.Loss, v.Allowed = r.Spared, r.Until, r.Loss, r.Allowed
		out.Running = append(out.Running, v)
	}
	return out, nil
}
