package daemon

import (
	"cmp"
	"context"
	"slices"

	"gputop/engine"
	"gputop/engine/api"
	"gputop/engine/quota"
	"gputop/engine/scheduler"
)

// Users says what each person holds of the machine, and may. Who holds what is no secret: the list of jobs shows it.
func (d *Daemon) Users(ctx context.Context, c api.Caller) (api.Users, error) {
	var out api.Users
	err := d.do(ctx, func() {
		d.meet(c)
		out = d.users(c)
	})
	return out, err
}

func (d *Daemon) users(c api.Caller) api.Users {
	pol, now := d.policy(), d.o.System.Now()
	rows := map[string]*api.UserTerms{}
	groups := make([]api.GroupTerms, 0, len(pol.People.Groups))
	at := map[string]int{}
	for _, g := range pol.People.Groups {
		if !g.Together.IsZero() || !g.Known {
			at[g.Name] = len(groups)
			groups = append(groups, api.GroupTerms{Name: g.Name, Quota: g.Together, Unknown: !g.Known})
		}
	}
	row := func(u engine.User) (*api.UserTerms, quota.Terms) {
		terms, known := d.termsOf(u)
		r := rows[u.Name]
		if r == nil {
			r = userTerms(u.Name, terms, known)
			r.Usage = d.used(u, now)
			if r.Budget = terms.GPUHours; r.Budget != nil {
				r.InBudget = d.usedIn(u, r.Budget.Days, 0)
			}
			rows[u.Name] = r
		}
		return r, terms
	}
	me, _ := row(c.User)
	me.Me = true
	for _, e := range d.state.jobs {
		if e.job.State.Queued() {
			r, _ := row(e.job.Owner)
			r.Pending++
		}
	}
	for _, a := range d.state.sortedAttempts() {
		e := d.state.jobs[a.ID.Job]
		if e == nil || !a.Allocation.State.Holds() {
			continue
		}
		r, terms := row(e.job.Owner)
		hold(&r.Held, a.Allocation)
		r.Usage += d.charged(scheduler.Usage{}, &e.job, a).AsOf(now, pol.Scheduler.HalfLife)
		for _, g := range terms.Groups {
			if i, ok := at[g.Name]; ok {
				hold(&groups[i].Held, a.Allocation)
			}
		}
	}
	for name := range pol.People.Users {
		if rows[name] == nil {
			// Somebody who has done nothing yet: which groups they are in is asked when they do.
			rows[name] = userTerms(name, pol.termsFor(name, nil), len(pol.People.Groups) == 0)
		}
	}
	out := api.Users{Users: make([]api.UserTerms, 0, len(rows)), Groups: groups}
	for _, r := range rows {
		out.Users = append(out.Users, *r)
	}
	slices.SortFunc(out.Users, func(a, b api.UserTerms) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

func userTerms(name string, t quota.Terms, known bool) *api.UserTerms {
	class, limit := t.Default()
	r := &api.UserTerms{Name: name, Quota: t.Quota, Classes: t.Classes, Class: class, TimeLimit: limit, MaxTimeLimit: t.MaxTimeLimit,
		Images: t.Images, From: t.From}
	r.Weight = 1
	if t.Weight != nil {
		r.Weight = *t.Weight
	}
	if known {
		r.MaxPending = t.MaxPending
	}
	for _, g := range t.Groups {
		r.Groups = append(r.Groups, g.Name)
	}
	return r
}

func hold(h *api.Held, a engine.Allocation) {
	h.Jobs++
	h.CPUs += a.CPUs
	h.Memory += a.Memory
	h.GPUs += gpusOf(a)
}
