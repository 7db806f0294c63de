package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"gputop/engine"
	"gputop/engine/api"
)

func (c *cli) explainCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "explain JOB",
		Short: "Why a job waits, for what, and whom it could have stopped",
		Long: "Why a job waits and when it should start; what its owner has used of the machine of late, which decides the order inside a\n" +
			"class; and of each running job on what it could use why that one is not stopped for it.",
		Example:           "  gputop explain 42",
		Args:              usageArgs(cobra.ExactArgs(1)),
		ValidArgsFunction: c.completeJobs,
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.askJob(cmd.Context(), args[0], func(ctx context.Context, client *api.Client, id engine.JobID) error {
				e, err := client.Explain(ctx, id)
				if err != nil {
					return err
				}
				if c.json {
					return c.printJSON(struct {
						Version int `json:"version"`
						api.Explanation
					}{1, e})
				}
				return c.write(explanation(e, c.now()))
			})
		},
	}
	c.jsonFlag(cmd)
	return cmd
}

func explanation(e api.Explanation, now time.Time) string {
	j := &e.Job
	var l lines
	l.add("Job", fmt.Sprintf("%s, %s, of %s", j.ID, j.Name, j.Owner))
	if !j.State.Queued() {
		l.add("State", fmt.Sprintf("%s; it does not wait", stateWord(j)))
		return l.b.String()
	}
	why := jobDetail(j)
	if why == "" {
		why = "nothing is in its way: it starts with the next look at the queue"
	}
	l.add("Waits", fmt.Sprintf("for %s: %s", jobTime(j, now), why))
	l.add("Asks for", requestLong(j.Request))
	l.add("Place", fmt.Sprintf("%d of %d in the queue, class %s", j.Position, e.Of, j.Class))
	l.add("Expected", expected(j, now))
	l.add("Fair share", fmt.Sprintf("%s has used %s GPU hours of late (halves every %s), with weight %s; who used less goes first inside a class",
		j.Owner, tidy(e.Usage/3600), span(e.HalfLife), tidy(e.Weight)))
	l.add("Preempts", preempts(e, now))
	if len(e.Running) == 0 {
		return l.b.String()
	}
	t := newTable("RUNNING", "OWNER", "CLASS", "ON", "WHY IT STAYS")
	t.most[1] = 20
	for _, r := range e.Running {
		t.add(r.Job.String(), r.Owner, r.Class.String(), grantsWord(r.Grants), spared(r, now))
	}
	return l.b.String() + "\n" + t.String()
}

// expected is when a job should start.
func expected(j *api.Job, now time.Time) string {
	switch {
	case j.ExpectedStart.IsZero():
		return "nobody can tell"
	case !j.ExpectedStart.After(now):
		return "at any moment"
	}
	return fmt.Sprintf("about %s, in %s, by the time limits of what runs and waits before it", clock(j.ExpectedStart), span(j.ExpectedStart.Sub(now)))
}

func preempts(e api.Explanation, now time.Time) string {
	switch e.Preempts {
	case engine.PreemptsNow:
		return "waits until what is stopped for it is gone: " + jobsWord(e.Stopped)
	case engine.PreemptsNever:
		return "nobody: on this machine jobs are stopped for others only when somebody asks for it"
	case engine.PreemptsNotItsClass:
		return fmt.Sprintf("nobody: jobs of class %s have nobody stopped", e.Job.Class)
	case engine.PreemptsNotReady:
		return "nobody: it would not start by that"
	case engine.PreemptsEnough:
		return "nobody now: as many jobs were stopped in the last hour as may be"
	case engine.PreemptsNotDue:
		if e.Due.After(now) {
			return fmt.Sprintf("nobody yet: it has not waited long enough, until %s", clock(e.Due))
		}
		return "nobody: it is expected to start soon enough"
	case engine.PreemptsNobody:
		return "nobody: those who may be stopped would not make room"
	}
	return ""
}

func jobsWord(ids []engine.JobID) string {
	s := ""
	for i, id := range ids {
		if i > 0 {
			s += ", "
		}
		s += "job " + id.String()
	}
	return s
}

// spared says why a running job is not stopped for the waiting one.
func spared(r api.Candidate, now time.Time) string {
	switch r.Spared {
	case engine.SparedStopping:
		return "it is on its way out"
	case engine.SparedStarting:
		return "its program has not begun"
	case engine.SparedClass:
		return "not for this job: its class is not lower"
	case engine.SparedSite:
		return "its class does not give way on this machine"
	case engine.SparedProtected:
		return "it was stopped for others too often already"
	case engine.SparedYoung:
		return fmt.Sprintf("it has just begun; left alone for another %s", span(r.Until.Sub(now)))
	case engine.SparedLoss:
		return fmt.Sprintf("its end would lose %s of GPU time, more than the %s that may be", gpuTime(r.Loss), gpuTime(r.Allowed))
	}
	if r.Loss == 0 {
		return "it may be stopped, and would lose nothing"
	}
	return fmt.Sprintf("it may be stopped, and would lose %s of GPU time", gpuTime(r.Loss))
}

func gpuTime(seconds float64) string { return span(time.Duration(seconds * float64(time.Second))) }
