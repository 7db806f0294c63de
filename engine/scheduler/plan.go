package scheduler

import (
	"time"

	"gputop/engine"
)

// Compute makes the plan: in queue order each job that fits starts; the first one with and the first one without a GPU
// that do not fit get a reservation, and later jobs start only where they keep to it. A job without a GPU waits for
// the host alone: it passes blocked GPU jobs unless it would take host memory or CPU that a reservation needs.
func Compute(s Snapshot, p Policy, now time.Time) Plan {
	pl := newPlanner(&s, p, now)
	q := newQueue(s.Pending, p, now)
	plan := Plan{Order: make([]engine.JobID, 0, len(q)), Reasons: make(map[engine.JobID]engine.Reason, len(q))}
	for len(q) > 0 {
		j := &s.Pending[q.pop().index]
		plan.Order = append(plan.Order, j.Job)
		if why, wait := pl.notReady(j); wait {
			plan.Reasons[j.Job] = why
			continue
		}
		pl.visit(j)
		cl, why, ok := pl.decide(j)
		if !ok {
			plan.Reasons[j.Job] = why
			continue
		}
		pl.start(j, cl)
		plan.Start = append(plan.Start, Start{j.Job, pl.box.allocation(cl)})
	}
	return plan
}

// planner is one run of Compute.
type planner struct {
	s     *Snapshot
	p     Policy
	now   time.Time
	bare  *capacity // the box with no job on it
	box   *capacity // and as it is, with what this plan starts
	spans []span
	books *ledger
	// largest is the memory of the largest card, in bytes.
	largest engine.Bytes
	// gpu and plain keep the place of the first blocked job with and without a GPU.
	gpu, plain *reservation
	depth      int // GPU jobs tried behind gpu
	// refused remembers who was in the way of which size, until something starts: queues are full of the same.
	refused map[size]*reservation
}

// size is what decides whether a job gets past a reservation.
type size struct {
	request engine.Request
	limit   time.Duration
	// owner counts where cards are promised to people; else it is 0.
	owner uint32
}

func newPlanner(s *Snapshot, p Policy, now time.Time) *planner {
	pl := &planner{s: s, p: p, now: now, bare: newCapacity(*s, p), box: newCapacity(*s, p),
		refused: map[size]*reservation{}, books: newLedger(s), largest: largest(s.Devices)}
	for i := range s.Held {
		h := &s.Held[i]
		cl := pl.box.claimOf(h.Allocation, h.Actual)
		pl.box.add(cl)
		pl.spans = append(pl.spans, span{endOf(h, now), cl})
	}
	return pl
}

// endOf is when a held allocation is expected to end. One that is stopping, releasing or overdue ends at any moment:
// what it frees is for the job it was freed for.
func endOf(h *Held, now time.Time) time.Time {
	over := !h.End.IsZero() && h.End.Before(now)
	if h.Stopping || over || h.Allocation.State == engine.Releasing {
		return now
	}
	return h.End
}

// notReady passes on what keeps a job out of the queue.
func (pl *planner) notReady(j *Pending) (engine.Reason, bool) {
	switch {
	case j.Wait != "":
		return engine.Reason{Code: j.Wait, Detail: j.WaitDetail}, true
	case j.NotBefore.After(pl.now):
		return engine.Reason{Code: engine.ReasonNotBefore, Until: j.NotBefore}, true
	case j.Request.WantsGPU() && (!pl.s.DevicesKnown || len(pl.s.Devices) == 0):
		return unknownDevices(*pl.s), true
	}
	return engine.Reason{}, false
}

// visit has the box looked at for a job.
func (pl *planner) visit(j *Pending) {
	v := visit{who: j.Owner, now: pl.now, end: pl.endOf(j)}
	pl.box.visit, pl.bare.visit = v, v
}

// decide finds a job's place, or says why there is none and keeps one for it if it is the first to wait.
func (pl *planner) decide(j *Pending) (claim, engine.Reason, bool) {
	r, gpu := j.Request, j.Request.WantsGPU()
	// Who has their quota in use waits for their own jobs: nothing is kept for them, and nobody waits behind them.
	if len(j.Accounts) > 0 {
		if why, over := pl.books.over(j.Accounts, leastOf(pl.largest, r)); over {
			return claim{}, why, false
		}
	}
	if !pl.box.room(r) {
		if why, shut := pl.box.promised(r); shut {
			return claim{}, why, false
		}
		why := pl.box.reason(r)
		first := &pl.plain
		if gpu {
			first = &pl.gpu
		}
		// When not even the bare box has room, what is in the way is outside the queue (a stranger's process, a dead card),
		// nobody knows for how long, and keeping cards idle for this job would help no one.
		if *first == nil && pl.bare.room(r) {
			*first = reserve(j.Job, r, pl.bare, pl.box, pl.spans)
			why.Until = (*first).until(pl.now)
		}
		return claim{}, why, false
	}
	if gpu && pl.gpu != nil {
		if pl.depth++; pl.depth > pl.p.BackfillDepth {
			return claim{}, pl.behind(pl.gpu), false
		}
	}
	if pl.gpu == nil && pl.plain == nil {
		cl, ok := pl.box.place(r, nil, func(cl claim) bool { return pl.inQuota(j, cl) })
		if !ok {
			return cl, pl.quotaReason(j), false
		}
		return cl, engine.Reason{}, true
	}
	return pl.backfill(j)
}

// backfill finds a place that keeps to the reservations.
func (pl *planner) backfill(j *Pending) (claim, engine.Reason, bool) {
	if rv := pl.refused[pl.sizeOf(j)]; rv != nil {
		return claim{}, pl.behind(rv), false
	}
	var avoid []bool
	if pl.gpu != nil {
		avoid = pl.gpu.place
	}
	end := pl.endOf(j)
	var blocker *reservation
	cl, ok := pl.box.place(j.Request, avoid, func(cl claim) bool {
		if !pl.inQuota(j, cl) {
			return false
		}
		for _, rv := range []*reservation{pl.gpu, pl.plain} {
			if rv != nil && !rv.allows(cl, end) {
				blocker = rv
				return false
			}
		}
		return true
	})
	if !ok && blocker == nil {
		return claim{}, pl.quotaReason(j), false
	}
	if !ok {
		pl.refused[pl.sizeOf(j)] = blocker
		return claim{}, pl.behind(blocker), false
	}
	return cl, engine.Reason{}, true
}

func (pl *planner) behind(rv *reservation) engine.Reason {
	return engine.Reason{Code: engine.BlockedByPriority, Job: rv.job, Until: rv.until(pl.now)}
}

// endOf is when a job that starts now is over at the latest; zero without a time limit.
func (pl *planner) endOf(j *Pending) time.Time {
	return endAfter(pl.now, j.TimeLimit)
}

func endAfter(now time.Time, limit time.Duration) time.Time {
	if limit <= 0 {
		return time.Time{}
	}
	return now.Add(limit)
}

func (pl *planner) start(j *Pending, cl claim) {
	end := pl.endOf(j)
	pl.box.add(cl)
	pl.books.add(j.Accounts, amountOf(pl.box.allocation(cl)))
	clear(pl.refused)
	pl.spans = append(pl.spans, span{end, cl})
	for _, rv := range []*reservation{pl.gpu, pl.plain} {
		if rv != nil {
			rv.passed(cl, end)
		}
	}
}
