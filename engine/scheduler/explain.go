package scheduler

import (
	"time"

	"gputop/engine"
)

// Candidate is a running job as a waiting one sees it.
type Candidate struct {
	Job    engine.JobID
	Spared engine.Spared
	// Until is when engine.SparedYoung ends.
	Until time.Time
	// Loss is what a stop would throw away, and Allowed what may be for this waiting job, in GPU-seconds; a negative
	// Allowed is no bound.
	Loss, Allowed float64
}

// Explanation is why a job waits and whom it might have stopped.
type Explanation struct {
	// Reason is the plan's; its Code is empty for a job that the plan starts.
	Reason engine.Reason
	// Position is the job's in the queue of Of jobs, from 1.
	Position, Of int
	// Expected is when it should start; zero when nobody can tell, and for jobs behind the first Policy.Estimates.
	Expected time.Time
	Preempts engine.Preempting
	// Due is when it will have waited so long that others are stopped for it, if nobody leaves before; zero when unknown.
	Due time.Time
	// Running are the running jobs on what it could use; only where its class may have others stopped.
	Running []Candidate
}

// Explain says why a pending job does not run, by a plan; false when the snapshot has no such job. It costs a plan.
func Explain(s Snapshot, p Policy, now time.Time, job engine.JobID) (Explanation, bool) {
	var j *Pending
	for i := range s.Pending {
		if s.Pending[i].Job == job {
			j = &s.Pending[i]
		}
	}
	if j == nil {
		return Explanation{}, false
	}
	plan := Compute(s, p, now)
	out := Explanation{Of: len(plan.Order), Reason: plan.Reasons[job], Expected: plan.Estimates[job]}
	for i, id := range plan.Order {
		if id == job {
			out.Position = i + 1
		}
	}
	out.Preempts = whatItPreempts(j, p, &plan, out, now, recent(s.Preempted, now))
	if out.Preempts == engine.PreemptsNotDue {
		out.Due = j.Queued.Add(max(p.Wait, p.Patience))
	}
	if out.Preempts == engine.PreemptsNotDue || out.Preempts == engine.PreemptsNobody {
		out.Running = newPlanner(&s, p, now).seenBy(j, out.Expected)
	}
	return out, true
}

func whatItPreempts(j *Pending, p Policy, plan *Plan, e Explanation, now time.Time, preempted int) engine.Preempting {
	for _, v := range plan.Preempt {
		if v.For == j.Job {
			return engine.PreemptsNow
		}
	}
	late := e.Expected.IsZero() || e.Expected.Sub(j.Queued) > p.Wait
	switch {
	case e.Reason.Code == engine.WaitingForPreempted:
		return engine.PreemptsNow
	case p.By == 0:
		return engine.PreemptsNever
	case j.Class < p.By:
		return engine.PreemptsNotItsClass
	case e.Reason.Code != engine.WaitingForDevice && e.Reason.Code != engine.WaitingForHost && e.Reason.Code != engine.BlockedByPriority:
		return engine.PreemptsNotReady
	case p.PerHour > 0 && preempted >= p.PerHour:
		return engine.PreemptsEnough
	case !late || j.Queued.Add(p.Patience).After(now):
		return engine.PreemptsNotDue
	}
	return engine.PreemptsNobody
}

// seenBy are the running jobs on what a job could use, in the order of s.Held.
func (pl *planner) seenBy(j *Pending, start time.Time) (out []Candidate) {
	allowed, bounded := pl.allowed(j, start)
	if !bounded {
		allowed = -1
	}
	for i := range pl.s.Held {
		h := &pl.s.Held[i]
		if j.Request.WantsGPU() && len(h.Allocation.Grants) == 0 {
			continue
		}
		c := Candidate{Job: h.Job, Spared: pl.spares(h, j), Loss: lossOf(h, pl.now), Allowed: allowed}
		switch {
		case c.Spared == engine.SparedYoung:
			c.Until = h.Started.Add(pl.p.MinRun)
		case c.Spared == "" && bounded && c.Loss > allowed:
			c.Spared = engine.SparedLoss
		}
		out = append(out, c)
	}
	return out
}
