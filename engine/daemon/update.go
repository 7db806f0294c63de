package daemon

import (
	"context"
	"fmt"
	"strings"
	"time"

	"gputop/engine"
	"gputop/engine/api"
	"gputop/engine/draft"
	"gputop/engine/scheduler"
)

// Update changes what a job asks for, by the rules of a submit. The change is on disk when it answers.
func (d *Daemon) Update(ctx context.Context, c api.Caller, id engine.JobID, u api.UpdateRequest) (api.Job, error) {
	if (u == api.UpdateRequest{Reason: u.Reason}) {
		return api.Job{}, &api.Error{Code: api.CodeInvalid, Message: "nothing to change was given", Hint: "Say what, for example: --time-limit 2h"}
	}
	if n := given(u.GPUs) + given(u.GPUMemory) + given(u.GPUFraction); n > 1 {
		return api.Job{}, invalid(fmt.Errorf("--gpus, --gpu-mem and --gpu-fraction exclude each other: give one"))
	}
	if u.Class != nil && *u.Class == 0 || u.TimeLimit != nil && *u.TimeLimit <= 0 {
		return api.Job{}, invalid(fmt.Errorf("class and time limit cannot be nothing"))
	}
	if err := d.awaitSeen(ctx); err != nil {
		return api.Job{}, err
	}
	return d.changeJob(ctx, c, id, func(e *entry) error { return d.update(e, c, u) })
}

func given[T any](p *T) int {
	if p == nil {
		return 0
	}
	return 1
}

func set[T any](to *T, p *T) {
	if p != nil {
		*to = *p
	}
}

// updated is the spec with what the request changes.
func updated(s engine.Spec, u api.UpdateRequest) engine.Spec {
	set(&s.Name, u.Name)
	set(&s.Class, u.Class)
	set(&s.TimeLimit, u.TimeLimit)
	r := &s.Request
	if given(u.GPUs)+given(u.GPUMemory)+given(u.GPUFraction) > 0 {
		r.GPUs, r.GPUMemory, r.GPUFraction = 0, 0, 0
	}
	set(&r.GPUs, u.GPUs)
	set(&r.GPUMemory, u.GPUMemory)
	set(&r.GPUFraction, u.GPUFraction)
	set(&r.CPUs, u.CPUs)
	set(&r.Memory, u.Memory)
	return s
}

// differences says what changes from what to what.
func differences(was, is engine.Spec) string {
	var out []string
	add := func(what string, a, b any) {
		if a != b {
			out = append(out, fmt.Sprintf("%s from %v to %v", what, a, b))
		}
	}
	add("name", fmt.Sprintf("%q", was.Name), fmt.Sprintf("%q", is.Name))
	add("class", was.Class, is.Class)
	add("time limit", was.TimeLimit, is.TimeLimit)
	add("GPUs", gpusText(was.Request), gpusText(is.Request))
	add("CPUs", ofShare(was.Request.CPUs), ofShare(is.Request.CPUs))
	add("memory", ofShare(was.Request.Memory), ofShare(is.Request.Memory))
	return strings.Join(out, ", ")
}

func gpusText(r engine.Request) string {
	switch {
	case r.GPUMemory > 0:
		return r.GPUMemory.String() + " of one"
	case r.GPUFraction > 0:
		return fmt.Sprintf("%g of one", float64(r.GPUFraction))
	}
	return fmt.Sprint(r.GPUs)
}

// ofShare is an amount that is the share which goes with the GPUs when nothing was asked for.
func ofShare[T comparable](v T) string {
	var zero T
	if v == zero {
		return "its share"
	}
	return fmt.Sprint(v)
}

func (d *Daemon) update(e *entry, c api.Caller, u api.UpdateRequest) error {
	was, is := e.job.Spec, updated(e.job.Spec, u)
	acts, err := d.mayUpdate(e, c, is, u.Reason)
	if err != nil || len(acts) == 0 {
		return err
	}
	if err := draft.CheckSpec(is); err != nil {
		return invalid(err)
	}
	if err := d.allowed(e, c, was, is); err != nil {
		return err
	}
	text := differences(was, is)
	return d.saved(d.transact(e.job.ID, 0, func(ch *change) error {
		ch.job.Spec = is
		if is.Request != was.Request || is.Class != was.Class {
			ch.job.Promised = false // others were stopped for what it asked for then
		}
		ch.event("updated", byWhom("updated", c, u.Reason)+": "+text)
		for _, a := range acts {
			ch.audit = append(ch.audit, d.audit(c, a, &ch.job, u.Reason, text))
		}
		return nil
	}))
}

// allowed refuses what the box can never give, or the rules for the job's owner do not.
func (d *Daemon) allowed(e *entry, c api.Caller, was, is engine.Spec) error {
	if e.job.Owner.Is(c.User) {
		d.meet(c)
	}
	terms, _ := d.termsOf(e.job.Owner)
	if is.Request != was.Request {
		if err := d.canServe(is.Request); err != nil {
			return err
		}
		if err := d.withinQuota(e.job.Owner.Name, terms, is.Request); err != nil {
			return err
		}
	}
	switch {
	case c.Admin:
		return nil
	case is.Class != was.Class && !terms.MayUse(is.Class):
		return &refusal{action: actClass, job: e.job.ID, owner: e.job.Owner, err: classRefused(terms, is.Class)}
	case is.TimeLimit > was.TimeLimit:
		return limitRefused(terms, is.TimeLimit)
	}
	return nil
}

// mayUpdate says which permissions the change takes, and refuses what the caller or the job's state does not allow. It
// returns none where nothing would change.
func (d *Daemon) mayUpdate(e *entry, c api.Caller, is engine.Spec, note string) (acts []action, err error) {
	j, was := &e.job, e.job.Spec
	need := func(a action) {
		if err == nil {
			acts, err = append(acts, a), permit(c, a, j, note)
		}
	}
	// Who is asked before what: a stranger learns nothing of the state from the refusal.
	if is.Name != was.Name || is.Request != was.Request {
		need(actUpdate)
	}
	if is.Class != was.Class {
		need(actClass)
		if is.Class == engine.Critical {
			need(actCritical)
		}
	}
	if is.TimeLimit != was.TimeLimit {
		need(actLimit)
		if is.TimeLimit > was.TimeLimit && !j.State.Queued() && !j.State.Final() {
			need(actRaise)
		}
	}
	if len(acts) == 0 && may(c, actUpdate, subjectOf(j)) != yes && may(c, actLimit, subjectOf(j)) != yes {
		need(actUpdate) // that nothing would change is not a stranger's to learn
	}
	switch {
	case err != nil:
		return nil, err
	case j.State.Final():
		return nil, endedAgain(j)
	case j.State.Queued() || len(acts) == 0:
		return acts, nil
	case is.Request != was.Request || is.Class != was.Class:
		return nil, &api.Error{Code: api.CodeConflict, Message: fmt.Sprintf("job %s is %s; class, GPUs, CPUs and memory are changed while it waits", j.ID, j.State),
			Hint: fmt.Sprintf("Put it back in the queue first: gputop preempt %s", j.ID)}
	case is.TimeLimit != was.TimeLimit:
		return acts, d.limitLeft(e, is.TimeLimit)
	}
	return acts, nil
}

// limitLeft refuses a limit that has passed: who wants the job to end should say so.
func (d *Daemon) limitLeft(e *entry, limit time.Duration) error {
	a := d.state.newest(&e.job)
	if a == nil || a.StartedBoot == 0 {
		return nil
	}
	if ran := time.Duration(d.o.System.Boottime() - a.StartedBoot); ran >= limit {
		return &api.Error{Code: api.CodeInvalid, Message: fmt.Sprintf("job %s has run for %s already, longer than %s", e.job.ID, ran.Truncate(time.Second), limit),
			Hint: fmt.Sprintf("End it with: gputop cancel %s", e.job.ID)}
	}
	return nil
}

// canServe refuses what the box can never give. It runs in the loop.
func (d *Daemon) canServe(r engine.Request) error {
	if err := scheduler.Possible(d.heldSnapshot(), r); err != nil {
		return invalid(err)
	}
	if r.WantsGPU() && len(d.state.sample.GPUs) == 0 {
		what := firstOf(d.state.sample.Error, "the GPUs have not been seen yet")
		return &api.Error{Code: api.CodeUnavailable, Message: "no GPU can be used: " + what,
			Hint: "A job without a GPU is submitted with --gpus 0."}
	}
	return nil
}

// awaitSeen waits a moment for the first sample: a daemon that has just started has not seen the cards yet, and a wait
// is kinder than a refusal.
func (d *Daemon) awaitSeen(ctx context.Context) error {
	select {
	case <-d.seen:
	case <-time.After(seenPatience):
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}
