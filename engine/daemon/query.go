package daemon

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"

	"gputop/engine"
	"gputop/engine/api"
	"gputop/engine/store"
	"gputop/profiles"
)

// Info says who answers, and what a submit form starts with.
func (d *Daemon) Info(c api.Caller) api.Info {
	p := d.policy()
	class, limit := d.callerTerms(c).Default()
	i := api.Info{API: api.Version, Version: d.o.Version, Mode: string(d.o.Mode), Host: d.o.Host, PID: os.Getpid(),
		Caller: c.User, Admin: c.Admin, Defaults: api.Defaults{Profile: p.Profile, Class: class, GPUs: 1, TimeLimit: limit}}
	list, err := profiles.Builtin()
	if err != nil {
		d.log.Error("profiles not readable", "err", err)
	}
	for _, pr := range list {
		i.Profiles = append(i.Profiles, api.Profile{Name: pr.Name, Description: pr.Description, Image: pr.Image, NeedsImage: pr.NeedsImage, GPUs: pr.GPUs, HasCommand: len(pr.Command) > 0})
	}
	return i
}

// GPUs returns the newest sample.
func (d *Daemon) GPUs(api.Caller) api.GPUs {
	v := &api.GPUs{Error: errStopped.Message}
	_ = d.do(d.runCtx, func() { v = d.gpusView() })
	return *v
}

// List returns the live jobs; with ended also older ones from the store.
func (d *Daemon) List(ctx context.Context, c api.Caller, ended bool, limit int) ([]api.Job, error) {
	var views []*api.Job
	if err := d.do(ctx, func() { views = d.liveViews() }); err != nil {
		return nil, err
	}
	list := make([]api.Job, 0, len(views))
	live := make(map[engine.JobID]bool, len(views))
	for _, v := range views {
		live[v.ID] = true
		list = append(list, redact(*v, c))
	}
	if !ended {
		return list, nil
	}
	if limit <= 0 {
		limit = 1000
	}
	old, err := d.store.Ended(ctx, 0, limit)
	if err != nil {
		return nil, fmt.Errorf("read ended jobs: %w", err)
	}
	for _, j := range old {
		if !live[j.ID] {
			list = append(list, redact(*jobView(&j), c))
		}
	}
	return list, nil
}

// Show returns everything the caller may see of a job.
func (d *Daemon) Show(ctx context.Context, c api.Caller, id engine.JobID) (api.JobDetail, error) {
	var det api.JobDetail
	j, attempts, events, err := d.store.Job(ctx, id)
	if errors.Is(err, store.ErrNotFound) {
		return det, noSuchJob(id)
	}
	if err != nil {
		return det, fmt.Errorf("read job %s: %w", id, err)
	}
	if err := permit(c, actSee, &j, ""); err != nil {
		return det, d.record(ctx, c, err)
	}
	err = d.do(ctx, func() {
		if e := d.state.jobs[id]; e != nil {
			if e.view == nil {
				e.view = d.view(e)
			}
			det.Job = *e.view
		} else {
			det.Job = *jobView(&j)
		}
		for _, a := range attempts {
			if held := d.state.attempts[a.ID]; held != nil {
				a = *held
			}
			det.Attempts = append(det.Attempts, d.attemptView(a))
		}
	})
	if err != nil {
		return det, err
	}
	det.Job = redact(det.Job, c)
	if may(c, actLook, subjectOf(&j)) != yes {
		for i := range det.Attempts {
			a := &det.Attempts[i]
			*a = api.Attempt{Number: a.Number, Allocation: a.Allocation, Grants: a.Grants, Granted: a.Granted, Started: a.Started, Ended: a.Ended}
		}
		return det, nil
	}
	spec := withoutSecrets(j.Spec)
	det.Spec, det.ImageName, det.ImageDigest, det.Events = &spec, j.ImageName, j.ImageDigest, events
	return det, nil
}

// withoutSecrets is a spec in which what came from an env file has no value.
func withoutSecrets(s engine.Spec) engine.Spec {
	s.Env = maps.Clone(s.Env)
	for _, name := range s.SecretEnv {
		if _, ok := s.Env[name]; ok {
			s.Env[name] = hidden
		}
	}
	return s
}

// hidden stands for a value that is shown to nobody.
const hidden = "(hidden)"

// Wait returns when the job is final.
func (d *Daemon) Wait(ctx context.Context, c api.Caller, id engine.JobID) (api.Job, error) {
	var ch chan struct{}
	err := d.do(ctx, func() {
		if e := d.state.jobs[id]; e != nil && !e.job.State.Final() {
			ch = make(chan struct{})
			e.waiters = append(e.waiters, ch)
		}
	})
	if err != nil {
		return api.Job{}, err
	}
	if ch != nil {
		select {
		case <-ch:
		case <-d.stop:
			return api.Job{}, errStopped
		case <-ctx.Done():
			_ = d.do(d.runCtx, func() { d.forgetWaiter(id, ch) })
			return api.Job{}, ctx.Err()
		}
	}
	det, err := d.Show(ctx, c, id)
	return det.Job, err
}

func (d *Daemon) forgetWaiter(id engine.JobID, ch chan struct{}) {
	e := d.state.jobs[id]
	if e == nil {
		return
	}
	for i, w := range e.waiters {
		if w == ch {
			e.waiters = append(e.waiters[:i], e.waiters[i+1:]...)
			return
		}
	}
}

// Exec names the container that the owner's own Podman may enter. Nobody enters for somebody else, admins neither.
func (d *Daemon) Exec(ctx context.Context, c api.Caller, id engine.JobID) (api.ExecTarget, error) {
	var t api.ExecTarget
	var err error
	derr := d.do(ctx, func() {
		e := d.state.jobs[id]
		switch {
		case e == nil:
			err = d.notLive(ctx, id)
		case permit(c, actExec, &e.job, "") != nil:
			err = permit(c, actExec, &e.job, "")
		case e.job.State != engine.Running:
			err = &api.Error{Code: api.CodeConflict, Message: fmt.Sprintf("job %s does not run: it is %s", id, e.job.State)}
		default:
			t = api.ExecTarget{ContainerID: d.state.newest(&e.job).ContainerID, Workdir: e.job.Spec.Workdir}
		}
	})
	if derr != nil {
		return t, derr
	}
	return t, d.record(ctx, c, err)
}
