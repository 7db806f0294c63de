package daemon

import (
	"context"
	"fmt"
	"time"

	"gputop/engine"
	"gputop/engine/store"
)

// daily is what people have used by days of UTC and classes, in GPU-seconds, as far back as a budget may reach; without
// what they hold.
type daily map[account]map[dayClass]float64

type dayClass struct {
	day   int
	class engine.Class
}

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
			da[a] = map[dayClass]float64{}
		}
		da[a][dayClass{u.Day, u.Class}] += u.GPUSeconds
		for old := range da[a] {
			if old.day < u.Day-engine.MaxBudgetDays {
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

// usedIn is what somebody has used in the last days, this one included, in GPU-seconds, with what they hold; of one class,
// or of all when it is 0.
func (d *Daemon) usedIn(u engine.User, days int, class engine.Class) (sum float64) {
	first := dayOf(d.o.System.Now()) - days + 1
	for on, used := range d.daily[accountOf(u)] {
		if on.day >= first && (class == 0 || class == on.class) {
			sum += used
		}
	}
	for _, a := range d.state.sortedAttempts() {
		e := d.state.jobs[a.ID.Job]
		if e == nil || !e.job.Owner.Is(u) || !a.Allocation.State.Holds() || class != 0 && e.job.Spec.Class != class {
			continue
		}
		for _, part := range d.usedBy(&e.job, a) {
			if part.Day >= first {
				sum += part.GPUSeconds
			}
		}
	}
	return sum
}

// overBudget says why a job that wants a GPU does not get one now; empty when it does. It is found out once for a snapshot.
func (d *Daemon) overBudget(b *books, j *engine.Job) string {
	t, _ := d.termsOf(j.Owner)
	why := d.spent(b, j.Owner, t.GPUHours, 0)
	if why == "" && j.Spec.Class == engine.High {
		why = d.spent(b, j.Owner, t.HighGPUHours, engine.High)
	}
	return why
}

// spentKey is a budget of somebody's: for one class, or for all when that is 0.
type spentKey struct {
	uid   uint32
	class engine.Class
}

func (d *Daemon) spent(b *books, u engine.User, budget *engine.Budget, class engine.Class) string {
	if budget == nil {
		return ""
	}
	key := spentKey{u.UID, class}
	why, done := b.spent[key]
	if done {
		return why
	}
	if used := d.usedIn(u, budget.Days, class) / 3600; used >= budget.Hours {
		why = fmt.Sprintf("%s has used %.1f of %s", u.Name, used, budget)
		if class != 0 {
			why += " for class " + class.String()
		}
	}
	if b.spent == nil {
		b.spent = map[spentKey]string{}
	}
	b.spent[key] = why
	return why
}
