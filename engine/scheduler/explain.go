package scheduler

import (
	"time"

	"gputop/engine"
)

// Preempting is what a waiting job does about the running ones.
type Preempting string

// What it does.
const (
	PreemptsNever       Preempting = "never"     // nobody is stopped for another without being asked
	PreemptsNotItsClass Preempting = "class"     // its class has nobody stopped
	PreemptsNotReady    Preempting = "not-ready" // it could not start anyway, for a reason of its own
	PreemptsNotDue      Preempting = "not-due"   // it is expected to start soon enough; see Explanation.Due
	PreemptsEnough      Preempting = "enough"    // as many were stopped in the last hour as may be
	PreemptsNobody      Preempting = "nobody"    // nobody's end, of those who may be stopped, would make room
	PreemptsNow         Preempting = "now"       // jobs are being stopped for it
)

// Spared is why a running job is not stopped for a waiting one; empty when it could be.
type Spared string

// Why it is not.
const (
	SparedStopping  Spared = "stopping"  // it is on its way out
	SparedStarting  Spared = "starting"  // its program has not begun
	SparedClass     Spared = "class"     // its class is not lower
	SparedSite      Spared = "site"      // jobs of its class do not give way on this machine
	SparedProtected Spared = "protected" // it was stopped for others so often already
	SparedYoung     Spared = "young"     // it has just begun; see Candidate.Until
	SparedLoss      Spared = "loss"      // more of its work would be lost than may be
)

// Candidate is a running job as a waiting one sees it.
type Candidate struct {
	Job    engine.JobID
	Spared Spared
	// Until is when SparedYoung ends.
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
	Preempts Preempting
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
	if out.Preempts == PreemptsNotDue {
		out.Due = j.Queued.Add(max(p.Wait, p.Patience))
	}
	if out.Preempts == PreemptsNotDue || out.Preempts == PreemptsNobody {
		out.Running = newPlanner(&s, p, now).seenBy(j, out.Expected)
	}
	return out, true
}

func whatItPreempts(j *Pending, p Policy, plan *Plan, e Explanation, now time.Time, preempted int) Preempting {
	for _, v := range plan.Preempt {
		if v.For == j.Job {
			return PreemptsNow
		}
	}
	late := e.Expected.IsZero() || e.Expected.Sub(j.Queued) > p.Wait
	switch {
	case e.Reason.Code == engine.WaitingForPreempted:
		return PreemptsNow
	case p.By == 0:
		return PreemptsNever
	case j.Class < p.By:
		return PreemptsNotItsClass
	case e.Reason.Code != engine.WaitingForDevice && e.Reason.Code != engine.WaitingForHost && e.Reason.Code != engine.BlockedByPriority:
		return PreemptsNotReady
	case p.PerHour > 0 && preempted >= p.PerHour:
		return PreemptsEnough
	case !late || j.Queued.Add(p.Patience).After(now):
		return PreemptsNotDue
	}
	return PreemptsNobody
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
		case c.Spared == SparedYoung:
			c.Until = h.Started.Add(pl.p.MinRun)
		case c.Spared == "" && bounded && c.Loss > allowed:
			c.Spared = SparedLoss
		}
		out = append(out, c)
	}
	return out
}
