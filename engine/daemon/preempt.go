package daemon

import (
	"context"
	"fmt"
	"slices"
	"time"

	"gputop/engine"
	"gputop/engine/api"
	"gputop/engine/scheduler"
)

// PreemptFor stops somebody's running job for a waiting job of the caller's own that gains by it.
func (d *Daemon) PreemptFor(ctx context.Context, c api.Caller, id, gains engine.JobID, note string) (api.Job, error) {
	return d.changeJob(ctx, c, id, func(e *entry) error {
		if err := d.mayGain(c, e, gains); err != nil {
			return err
		}
		return d.stopForPreemption(e, c, actPreempt, d.state.jobs[gains], byWhom("preempted for job "+gains.String(), c, note), note)
	})
}

// mayGain refuses a preemption that the rules do not give: the pending job is the caller's and could have the place, its
// class is high and still granted to the caller, and that of the running job is lower and gives way.
func (d *Daemon) mayGain(c api.Caller, e *entry, gains engine.JobID) error {
	if r := may(c, actPreempt, subjectOf(&e.job)); r == yes || r == reason {
		return nil // anyway
	}
	p := d.state.jobs[gains]
	terms := d.callerTerms(c)
	refuse := func(format string, args ...any) error {
		return &refusal{action: actPreempt, job: e.job.ID, owner: e.job.Owner, note: "for job " + gains.String(),
			err: &api.Error{Code: api.CodeForbidden, Message: fmt.Sprintf("job %s belongs to %s, and is not preempted for job %s: ", e.job.ID, e.job.Owner.Name, gains) + fmt.Sprintf(format, args...),
				Hint: "A waiting job of yours with class high may have a job of a lower class that gives way stopped; an admin, any."}}
	}
	class := e.job.Spec.Class
	switch {
	case p == nil || !p.job.Owner.Is(c.User):
		return refuse("that is no waiting job of yours")
	case !p.job.State.Queued() || p.job.Held || !p.job.Prepared:
		return refuse("that job is not ready and waiting")
	case p.job.Spec.Class < engine.High:
		return refuse("its class is %s, which preempts nobody", p.job.Spec.Class)
	case !terms.MayUse(p.job.Spec.Class) && !c.Admin:
		return refuse("class %s is not granted to you any more", p.job.Spec.Class)
	case class >= p.job.Spec.Class:
		return refuse("the running job's class, %s, is not lower", class)
	case !slices.Contains(d.policy().Scheduler.Of, class):
		return refuse("jobs of class %s do not give way here", class)
	case p.reason != nil && p.reason.Code == engine.OverQuota:
		return refuse("your job waits for its quota and would not start")
	case !d.wouldHelp(e, p):
		return refuse("it would not start any sooner")
	}
	return nil
}

// wouldHelp says whether the waiting job would start if what the running one holds were free: by the plan itself, so that
// amounts, cards, reservations, quotas and who is ahead all count.
func (d *Daemon) wouldHelp(running, waiting *entry) bool {
	s := d.snapshot()
	s.Held = slices.DeleteFunc(s.Held, func(h scheduler.Held) bool { return h.Job == running.job.ID })
	p := scheduler.Compute(s, d.policy().Scheduler, d.o.System.Now())
	return slices.ContainsFunc(p.Start, func(st scheduler.Start) bool { return st.Job == waiting.job.ID })
}

// preemptAll stops the victims of a plan. What each frees is promised to the job that it is stopped for before it is
// stopped: a daemon that dies in between finds the promise, and plans anew.
func (d *Daemon) preemptAll(list []scheduler.Preempt) {
	for _, p := range list {
		victim, gains := d.state.jobs[p.Victim], d.state.jobs[p.For]
		if victim == nil || gains == nil || victim.job.State != engine.Running || gains.job.State != engine.Pending || gains.job.Held {
			continue
		}
		if err := d.preemptFor(victim, gains); err != nil {
			d.log.Error("job not preempted", "job", p.Victim, "for", p.For, "err", err)
			return // the next plan sees what was done
		}
	}
}

func (d *Daemon) preemptFor(victim, gains *entry) error {
	if err := d.promise(gains, victim.job.ID); err != nil {
		return err
	}
	now := d.o.System.Now()
	times := slices.DeleteFunc(slices.Clone(d.preempted), func(t time.Time) bool { return now.Sub(t) >= time.Hour })
	g := &gains.job
	return d.stopAttempt(victim, &unsavedStop{why: engine.StopPreempted, gains: g.ID, preempted: append(times, now),
		text: fmt.Sprintf("preempted for job %s of %s, of class %s", g.ID, g.Owner.Name, g.Spec.Class)})
}

// promise notes that a waiting job gets what another one frees.
func (d *Daemon) promise(gains *entry, victim engine.JobID) error {
	return d.transact(gains.job.ID, 0, func(c *change) error {
		c.job.Promised = true
		c.event("preempts", fmt.Sprintf("job %s is stopped for it", victim))
		return nil
	})
}
