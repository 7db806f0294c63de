package daemon

import (
	"context"
	"fmt"
	"time"

	"gputop/engine"
	"gputop/engine/store"
)

// daily is what people have used by days of UTC, in GPU-seconds, as far back as a budget may reach; without what they hold.
type daily map[account]map[int]float64

const day = 24 * time.Hour

func dayOf(t time.Time) int { return int(t.Unix() / int64(day/time.Second)) }

func loadDaily(ctx context.Context, s *store.Store, now time.Time) (daily, error) {
	list, err := s.Used(ctx, dayOf(now)-engine.MaxBudgetDays, dayOf(now)+1)
	if err != nil {
		return nil, err
	}
	out := daily{}
	out.add(list...)
	return out, nil
}

func (da daily) add(list ...store.Used) {
	for _, u := range list {
		a := accountOf(u.Owner)
		if da[a] == nil {
			da[a] = map[int]float64{}
		}
		da[a][u.Day] += u.GPUSeconds
		for old := range da[a] {
			if old < u.Day-engine.MaxBudgetDays {
				delete(da[a], old)
			}
		}
	}
}

// usedBy is what an attempt held until now, by days.
func (d *Daemon) usedBy(j *engine.Job, a *engine.Attempt) (list []store.Used) {
	var memory engine.Bytes
	for _, g := range a.Allocation.Grants {
		memory += g.Memory
	}
	from, to := a.Granted, d.heldUntil(j, a)
	for from.Before(to) {
		end := time.Unix(int64(dayOf(from)+1)*int64(day/time.Second), 0)
		if end.After(to) {
			end = to
		}
		held := end.Sub(from).Seconds()
		list = append(list, store.Used{Day: dayOf(from), Owner: j.Owner, Class: j.Spec.Class, GPUSeconds: gpusOf(a.Allocation) * held,
			GPUMemory: float64(memory) * held, CPUSeconds: float64(a.Allocation.CPUs) * held})
		from = end
	}
	if len(list) > 0 {
		list[len(list)-1].Attempts = 1
	}
	return list
}

// usedIn is what somebody has used in the last days, this one included, in GPU-seconds, with what they hold.
func (d *Daemon) usedIn(u engine.User, days int) (sum float64) {
	first := dayOf(d.o.System.Now()) - days + 1
	for on, used := range d.daily[accountOf(u)] {
		if on >= first {
			sum += used
		}
	}
	for _, a := range d.state.sortedAttempts() {
		if e := d.state.jobs[a.ID.Job]; e != nil && e.job.Owner.Is(u) && a.Allocation.State.Holds() {
			for _, part := range d.usedBy(&e.job, a) {
				if part.Day >= first {
					sum += part.GPUSeconds
				}
			}
		}
	}
	return sum
}

// overBudget says why nobody of a budget gets another GPU now; empty when they do. It is found out once for a snapshot.
func (d *Daemon) overBudget(b *books, u engine.User) string {
	if why, done := b.budgets[u.UID]; done {
		return why
	}
	why := ""
	if t, _ := d.termsOf(u); t.GPUHours != nil {
		if used := d.usedIn(u, t.GPUHours.Days) / 3600; used >= t.GPUHours.Hours {
			why = fmt.Sprintf("%s has used %.1f of %s", u.Name, used, t.GPUHours)
		}
	}
	if b.budgets == nil {
		b.budgets = map[uint32]string{}
	}
	b.budgets[u.UID] = why
	return why
}
