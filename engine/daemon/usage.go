package daemon

import (
	"context"
	"time"

	"gputop/engine"
	"gputop/engine/scheduler"
	"gputop/engine/store"
)

// usage is what people have used of the GPUs. What an attempt uses is added when its allocation is released, in the
// same step on disk: nothing is counted twice, or forgotten.
type usage map[account]scheduler.Usage

// account is a person whose use is counted; a uid that has another name is another one's.
type account struct {
	uid  uint32
	name string
}

func accountOf(u engine.User) account { return account{u.UID, u.Name} }

func loadUsage(ctx context.Context, s *store.Store) (usage, error) {
	list, err := s.Usages(ctx)
	if err != nil {
		return nil, err
	}
	out := usage{}
	for _, u := range list {
		out.put(u)
	}
	return out, nil
}

func (us usage) put(u store.Usage) {
	us[accountOf(u.Owner)] = scheduler.Usage{GPUSeconds: u.GPUSeconds, At: u.At}
}

// charge is what the owner has used when an attempt's allocation is released.
func (d *Daemon) charge(j *engine.Job, a *engine.Attempt) *store.Usage {
	u := d.charged(d.usage[accountOf(j.Owner)], j, a)
	if u.At.IsZero() {
		return nil
	}
	return &store.Usage{Owner: j.Owner, GPUSeconds: u.GPUSeconds, At: u.At}
}

// charged adds to a sum what an attempt holds, or held, until now.
func (d *Daemon) charged(u scheduler.Usage, j *engine.Job, a *engine.Attempt) scheduler.Usage {
	return u.Charge(gpusOf(a.Allocation), a.Granted, d.heldUntil(j, a), d.policy().Scheduler.HalfLife)
}

// heldUntil is now, for what an attempt holds. One of another boot ended with that, nobody knows when: at its time limit
// at the latest.
func (d *Daemon) heldUntil(j *engine.Job, a *engine.Attempt) time.Time {
	now := d.o.System.Now()
	if end := a.Granted.Add(j.Spec.TimeLimit); a.BootID != d.o.System.BootID && j.Spec.TimeLimit > 0 && end.Before(now) {
		return end
	}
	return now
}

// gpusOf is how many GPUs an allocation is, shares as fractions.
func gpusOf(a engine.Allocation) (n float64) {
	for _, g := range a.Grants {
		n += float64(g.Fraction)
	}
	return n
}

// used is what somebody has used as of now, in GPU-seconds, without what they hold.
func (d *Daemon) used(u engine.User, now time.Time) float64 {
	return d.usage[accountOf(u)].AsOf(now, d.policy().Scheduler.HalfLife)
}

// shares are those of everybody with a job that waits or holds something: by use until now, and weight.
func (d *Daemon) shares() map[uint32]scheduler.Share {
	now := d.o.System.Now()
	out := map[uint32]scheduler.Share{}
	of := func(u engine.User) scheduler.Share {
		s, ok := out[u.UID]
		if !ok {
			s = scheduler.Share{Usage: d.used(u, now), Weight: d.weight(u)}
			out[u.UID] = s
		}
		return s
	}
	for _, e := range d.state.jobs {
		if e.job.State.Queued() {
			of(e.job.Owner)
		}
	}
	for _, a := range d.state.sortedAttempts() {
		if e := d.state.jobs[a.ID.Job]; e != nil && a.Allocation.State.Holds() {
			s := of(e.job.Owner)
			s.Usage += d.charged(scheduler.Usage{}, &e.job, a).AsOf(now, d.policy().Scheduler.HalfLife)
			out[e.job.Owner.UID] = s
		}
	}
	return out
}

// weight is how much more than others somebody may have before they go after them; 1 where no rule says.
func (d *Daemon) weight(u engine.User) float64 {
	if t, _ := d.termsOf(u); t.Weight != nil {
		return *t.Weight
	}
	return 1
}
