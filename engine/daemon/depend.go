package daemon

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"gputop/engine"
	"gputop/engine/api"
)

// dependencies are which waiting jobs wait for the end of which others. The loop owns it. What is met is not stored: it
// follows from how the others ended. One that is not in the store any more ended long ago, and what followed from that
// was done then.
type dependencies struct {
	// on are the jobs that wait for one.
	on map[engine.JobID][]engine.JobID
	// ended are jobs with an end that others have not been told of.
	ended []engine.JobID
}

// await notes what a waiting job waits for, as far as it is not met.
func (d *Daemon) await(e *entry, unmet []engine.Dependency) {
	e.unmet = unmet
	for _, dep := range unmet {
		d.depends.on[dep.Job] = append(d.depends.on[dep.Job], e.job.ID)
	}
}

// unmet are the dependencies of a job that are not met, by the states of the others; those in past have ended and are
// not live. never is the first that can never be.
func (d *Daemon) unmet(deps []engine.Dependency, past map[engine.JobID]engine.JobState) (unmet []engine.Dependency, never *engine.Dependency) {
	for i, dep := range deps {
		state, known := past[dep.Job]
		if e := d.state.jobs[dep.Job]; e != nil {
			state, known = e.job.State, true
		}
		switch met, no := dep.Settled(state); {
		case !known, met:
		case no:
			if never == nil {
				never = &deps[i]
			}
			unmet = append(unmet, dep)
		default:
			unmet = append(unmet, dep)
		}
	}
	return unmet, never
}

// awaitNew notes what newly accepted jobs, which wait for the same, wait for.
func (d *Daemon) awaitNew(jobs []*entry) {
	deps := jobs[0].job.Spec.After
	var gone []engine.JobID
	for _, dep := range deps {
		if d.state.jobs[dep.Job] == nil {
			gone = append(gone, dep.Job)
		}
	}
	past, err := d.store.States(d.runCtx, gone)
	if err != nil { // found out in the next look at the queue
		d.log.Error("jobs to wait for not read, trying again", "err", err)
		d.depends.ended = append(d.depends.ended, gone...)
		past = map[engine.JobID]engine.JobState{}
		for _, id := range gone {
			past[id] = engine.Pending
		}
	}
	unmet, never := d.unmet(deps, past)
	for _, e := range jobs {
		d.await(e, unmet)
	}
	if never != nil { // since it was checked
		d.depends.ended = append(d.depends.ended, never.Job)
	}
}

// loadDependencies finds out what the waiting jobs of an earlier daemon wait for.
func (d *Daemon) loadDependencies(ctx context.Context) error {
	var ask []engine.JobID
	for _, e := range d.state.jobs {
		for _, dep := range e.job.Spec.After {
			if e.job.State.Queued() && d.state.jobs[dep.Job] == nil {
				ask = append(ask, dep.Job)
			}
		}
	}
	past, err := d.store.States(ctx, ask)
	if err != nil {
		return err
	}
	for _, e := range d.state.jobs {
		if !e.job.State.Queued() || len(e.job.Spec.After) == 0 {
			continue
		}
		unmet, never := d.unmet(e.job.Spec.After, past)
		d.await(e, unmet)
		if never != nil {
			d.depends.ended = append(d.depends.ended, never.Job)
		}
	}
	return nil
}

// checkAfter refuses jobs that do not exist, and what can never be met.
func (d *Daemon) checkAfter(ctx context.Context, deps []engine.Dependency) error {
	if len(deps) == 0 {
		return nil
	}
	ids := make([]engine.JobID, len(deps))
	for i, dep := range deps {
		ids[i] = dep.Job
	}
	states, err := d.store.States(ctx, ids)
	if err != nil {
		return fmt.Errorf("read the jobs to wait for: %w", err)
	}
	for _, dep := range deps {
		state, known := states[dep.Job]
		if !known {
			return &api.Error{Code: api.CodeInvalid, Message: fmt.Sprintf("--after: there is no job %s", dep.Job), Hint: "See gputop ls --all."}
		}
		if _, never := dep.Settled(state); never {
			return &api.Error{Code: api.CodeInvalid, Message: fmt.Sprintf("--after: it would wait for %s, and that job has ended: %s", dep, state),
				Hint: fmt.Sprintf("After any end: --after any:%s", dep.Job)}
		}
	}
	return nil
}

// settleDependents tells waiting jobs of the ends of others: what is met is crossed off, and who waits for what can never
// be is cancelled, which may be the end that a third one waits for.
func (d *Daemon) settleDependents() {
	for len(d.depends.ended) > 0 {
		id := d.depends.ended[0]
		for _, waiting := range slices.Clone(d.depends.on[id]) {
			if err := d.settle(waiting, id); err != nil {
				d.log.Error("end of a job not told to who waits for it, trying again", "job", id, "waiting", waiting, "err", err)
				return // the next look at the queue goes on here
			}
		}
		delete(d.depends.on, id)
		d.depends.ended = d.depends.ended[1:]
	}
}

// settle tells one waiting job of the end of another.
func (d *Daemon) settle(waiting, ended engine.JobID) error {
	e := d.state.jobs[waiting]
	if e == nil || !e.job.State.Queued() {
		return nil
	}
	i := slices.IndexFunc(e.unmet, func(dep engine.Dependency) bool { return dep.Job == ended })
	if i < 0 {
		return nil
	}
	state, err := d.endOf(ended)
	if err != nil {
		return err
	}
	dep := e.unmet[i]
	if _, never := dep.Settled(state); never {
		return d.cancelQueued(e, fmt.Sprintf("cancelled: it was to wait for %s, and that job has ended: %s", dep, state))
	}
	if len(e.unmet) > 1 {
		e.unmet = slices.Delete(slices.Clone(e.unmet), i, i+1)
		return nil
	}
	// Its turn begins now: others did not wait for what it waited for.
	err = d.transact(waiting, 0, func(c *change) error {
		c.job.Queued = later(c.now, c.job.Spec.Begin)
		c.event("ready", fmt.Sprintf("job %s has ended: %s", ended, state))
		return nil
	})
	if err == nil {
		e.unmet = nil
	}
	return err
}

// endOf is how a job ended that others wait for.
func (d *Daemon) endOf(id engine.JobID) (engine.JobState, error) {
	if e := d.state.jobs[id]; e != nil {
		return e.job.State, nil
	}
	states, err := d.store.States(d.runCtx, []engine.JobID{id})
	return states[id], err
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// awaited is what a job waits for, in words.
func awaited(unmet []engine.Dependency) string {
	const most = 3
	var words []string
	for _, dep := range unmet[:min(len(unmet), most)] {
		words = append(words, dep.String())
	}
	s := strings.Join(words, ", ")
	if more := len(unmet) - most; more > 0 {
		s += fmt.Sprintf(" and %d more", more)
	}
	return s
}
