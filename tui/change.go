package tui

import (
	"context"
	"fmt"

	tea "charm.land/bubbletea/v2"

	"gputop/engine"
	"gputop/engine/api"
)

// jobChangedMsg is the daemon's answer to a change that ends nothing.
type jobChangedMsg struct {
	what string // in a sentence after "could not"
	done string
	job  engine.JobID // a new job to go to; 0 for none
	err  error
}

// changeUnable says why a job cannot be changed now, whatever it is.
func (e *env) changeUnable(j *api.Job, admins bool) string {
	if s := e.unable(); s != "" {
		return s
	}
	switch {
	case j == nil:
		return "no job is selected"
	case !j.Mine && !e.box.info.Admin:
		return fmt.Sprintf("job #%d belongs to %s", j.ID, e.sty.clean(j.Owner))
	case !j.Mine && !admins:
		return fmt.Sprintf("job #%d belongs to %s, who alone can run it again", j.ID, e.sty.clean(j.Owner))
	}
	return ""
}

// changeKeys are the bindings that change a job and end nothing for good, wherever one is shown.
func (e *env) changeKeys(j *api.Job) []binding {
	return []binding{e.holdKey(j), e.requeueKey(j), e.classKey(j, 1), e.classKey(j, -1)}
}

func (e *env) holdKey(j *api.Job) binding {
	b := binding{keys: []string{"h"}, label: "h", short: "hold", help: "hold the waiting job, or release it", disabled: e.changeUnable(j, true)}
	if b.disabled != "" {
		return b
	}
	call, verb, done := e.o.Client.Hold, "hold", "is held; h releases it"
	if j.Held {
		b.short, call, verb, done = "release", e.o.Client.Release, "release", "is released and has its old place"
	}
	if !j.State.Queued() {
		b.disabled = fmt.Sprintf("job #%d is %s; only a waiting job can be held", j.ID, j.State)
	}
	id := j.ID
	b.run = func() tea.Cmd {
		return e.calls.do(func(ctx context.Context) tea.Msg {
			_, err := call(ctx, id, stopNote)
			return jobChangedMsg{what: fmt.Sprintf("%s job #%d", verb, id), done: fmt.Sprintf("job #%d %s", id, done), err: err}
		})
	}
	return b
}

func (e *env) requeueKey(j *api.Job) binding {
	b := binding{keys: []string{"r"}, label: "r", short: "requeue", help: "run the job again; a running one only after a question", disabled: e.changeUnable(j, false)}
	if b.disabled != "" {
		return b
	}
	id := j.ID
	switch {
	case j.State.Queued():
		b.disabled = fmt.Sprintf("job #%d is in the queue already", id)
	case !j.State.Final(): // the same as preempting one's own
		b.disabled = e.stopUnable(j, engine.StopPreempted)
		b.run = func() tea.Cmd { e.askStop(j, engine.StopPreempted); return nil }
	default:
		call := e.o.Client.Requeue
		b.run = func() tea.Cmd {
			return e.calls.do(func(ctx context.Context) tea.Msg {
				r, err := call(ctx, id, stopNote)
				return jobChangedMsg{what: fmt.Sprintf("requeue job #%d", id), done: fmt.Sprintf("job #%d is queued again, as job #%d", id, r.Job.ID), job: r.Job.ID, err: err}
			})
		}
	}
	return b
}

// classKey moves a waiting job one class up or down.
func (e *env) classKey(j *api.Job, step engine.Class) binding {
	b := binding{keys: []string{"+", "="}, label: "+", short: "class up", help: "one class up, while the job waits", disabled: e.changeUnable(j, true)}
	if step < 0 {
		b.keys, b.label, b.short, b.help = []string{"-"}, "-", "class down", "one class down, while the job waits"
	}
	if b.disabled != "" {
		return b
	}
	id, to := j.ID, j.Class+step
	switch {
	case !j.State.Queued():
		b.disabled = fmt.Sprintf("job #%d is %s; the class is changed while it waits", id, j.State)
	case to > engine.Critical || to < engine.Low:
		b.disabled = fmt.Sprintf("job #%d is %s already", id, j.Class)
	case to == engine.Critical && !e.box.info.Admin:
		b.disabled = "class critical is for admins"
	}
	b.run = func() tea.Cmd {
		return e.calls.do(func(ctx context.Context) tea.Msg {
			_, err := e.o.Client.Update(ctx, id, api.UpdateRequest{Class: &to, Reason: stopNote})
			return jobChangedMsg{what: fmt.Sprintf("change the class of job #%d", id), done: fmt.Sprintf("job #%d has class %s now", id, to), err: err}
		})
	}
	return b
}

func (e *env) jobChanged(m jobChangedMsg) {
	if m.err != nil {
		e.sayBad("could not " + m.what + ": " + e.errorText(m.err))
		return
	}
	if m.job != 0 {
		e.fresh = m.job
	}
	e.say(m.done)
}
