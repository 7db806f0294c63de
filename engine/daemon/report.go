package daemon

import (
	"cmp"
	"context"
	"slices"
	"time"

	"gputop/engine/api"
)

// Report says who used how much of the machine. That is no secret: the list of jobs shows who holds what.
func (d *Daemon) Report(ctx context.Context, _ api.Caller, q api.ReportQuery) (api.Report, error) {
	first, last := dayOf(q.Since), dayOf(q.Until)
	// What is held is read last: an attempt that ends in between is missed for a moment, not counted twice.
	list, err := d.store.Used(ctx, first, last)
	if err != nil {
		return api.Report{}, err
	}
	err = d.do(ctx, func() {
		for _, a := range d.state.sortedAttempts() {
			if e := d.state.jobs[a.ID.Job]; e != nil && a.Allocation.State.Holds() {
				list = append(list, d.usedBy(&e.job, a)...)
			}
		}
	})
	if err != nil {
		return api.Report{}, err
	}
	type key struct {
		day   int
		user  account
		class int
	}
	sums := map[key]*api.ReportRow{}
	for _, u := range list {
		if u.Day < first || u.Day > last {
			continue
		}
		k := key{u.Day, accountOf(u.Owner), int(u.Class)}
		r := sums[k]
		if r == nil {
			r = &api.ReportRow{Day: time.Unix(int64(u.Day)*int64(day/time.Second), 0).UTC().Format(time.DateOnly), User: u.Owner.Name, Class: u.Class}
			sums[k] = r
		}
		r.GPUSeconds += u.GPUSeconds
		r.GPUMemory += u.GPUMemory
		r.CPUSeconds += u.CPUSeconds
		r.Attempts += u.Attempts
	}
	out := api.Report{Rows: make([]api.ReportRow, 0, len(sums))}
	for _, r := range sums {
		out.Rows = append(out.Rows, *r)
	}
	slices.SortFunc(out.Rows, func(a, b api.ReportRow) int {
		return cmp.Or(cmp.Compare(a.Day, b.Day), cmp.Compare(a.User, b.User), cmp.Compare(a.Class, b.Class), cmp.Compare(a.GPUSeconds, b.GPUSeconds))
	})
	return out, nil
}
