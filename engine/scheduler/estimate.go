package scheduler

import (
	"slices"
	"time"

	"gputop/engine"
)

// estimate records when a job should start.
func (pl *planner) estimate(job engine.JobID, at time.Time) {
	if pl.p.Estimates > 0 && !at.IsZero() {
		pl.plan.Estimates[job] = at
	}
}

// estimateStarts plays the box forward by the time limits, from what this plan leaves, for the first waiting jobs. It is
// coarser than a plan: a job passes the first that waits only where it ends before that one's turn.
func (pl *planner) estimateStarts(waiting []int) {
	f := forecast{pl: pl, box: pl.box.clone(), spans: slices.Clone(pl.spans), now: pl.now}
	f.order = byEnd(f.spans)
	for first := true; len(waiting) > 0; first = false {
		if !first && !f.advance() {
			return
		}
		waiting = f.turn(waiting)
	}
}

// forecast is the box at a later moment.
type forecast struct {
	pl    *planner
	box   *capacity
	spans []span
	order []int // of spans that have not ended, by their ends
	now   time.Time
}

// advance goes to the next end; false when there is none that is known.
func (f *forecast) advance() bool {
	if len(f.order) == 0 || f.spans[f.order[0]].end.IsZero() {
		return false
	}
	end := f.spans[f.order[0]].end
	for len(f.order) > 0 && f.spans[f.order[0]].end.Equal(end) {
		f.spans[f.order[0]].free(f.box)
		f.order = f.order[1:]
	}
	if end.After(f.now) {
		f.now = end
	}
	return true
}

// turn starts what fits now and gives back who still waits.
func (f *forecast) turn(waiting []int) []int {
	var blocked bool
	var shadow time.Time
	var refused []engine.Request
	left := waiting[:0]
	for _, i := range waiting {
		j := &f.pl.s.Pending[i]
		end := endAfter(f.now, j.TimeLimit)
		f.box.visit = visitOf(j.Owner, j.Request, f.now, end)
		late := blocked && (shadow.IsZero() || end.IsZero() || end.After(shadow))
		if late || slices.Contains(refused, j.Request) || !f.box.room(j.Request) {
			if !late && !f.box.windows {
				refused = append(refused, j.Request)
			}
			if !blocked {
				blocked, shadow = true, f.shadow(j.Request)
			}
			left = append(left, i)
			continue
		}
		cl, _ := f.box.place(j.Request, nil, nil)
		f.box.add(cl)
		f.spans = append(f.spans, span{end: end, claim: cl})
		f.insert(len(f.spans) - 1)
		f.pl.estimate(j.Job, f.now)
	}
	return left
}

func (f *forecast) insert(i int) {
	at, _ := slices.BinarySearchFunc(f.order, i, func(o, _ int) int {
		switch a, b := f.spans[o].end, f.spans[i].end; {
		case b.IsZero():
			return -1
		case a.IsZero():
			return 1
		default:
			return cmpTime(a, b)
		}
	})
	f.order = slices.Insert(f.order, at, i)
}

// cmpTime puts equal times before, so that an insertion goes behind them.
func cmpTime(a, b time.Time) int {
	if a.After(b) {
		return 1
	}
	return -1
}

// shadow is when a request fits by the ends that are known.
func (f *forecast) shadow(r engine.Request) time.Time {
	box := f.box.clone()
	for _, o := range f.order {
		if f.spans[o].end.IsZero() {
			break
		}
		f.spans[o].free(box)
		if box.room(r) {
			return f.spans[o].end
		}
	}
	return time.Time{}
}
