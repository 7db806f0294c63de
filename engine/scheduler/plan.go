package scheduler

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"gputop/engine"
)

// Compute makes the plan: in queue order each job that fits starts; the first one with and the first one without a GPU
// that do not fit get a reservation, and later jobs start only where they keep to it. A job without a GPU waits for
// the host alone: it passes blocked GPU jobs unless it would take host memory or CPU that a reservation needs.
//
// A job of a class that may have others stopped, and that would wait too long, gets the place of victims; they are in
// the plan, and until they are gone their place is kept for it.
func Compute(s Snapshot, p Policy, now time.Time) Plan {
	pl := newPlanner(&s, p, now)
	q := newQueue(&s, p, now, pl.promises)
	plan := &pl.plan
	*plan = Plan{Order: make([]engine.JobID, 0, len(s.Pending)), Reasons: make(map[engine.JobID]engine.Reason, len(s.Pending)),
		Estimates: map[engine.JobID]time.Time{}}
	var waiting []int
	for !q.empty() {
		i := q.pop()
		j := &s.Pending[i]
		plan.Order = append(plan.Order, j.Job)
		if why, wait := pl.notReady(j); wait {
			plan.Reasons[j.Job] = why
			continue
		}
		pl.visit(j)
		cl, why, ok := pl.decide(j)
		if !ok {
			plan.Reasons[j.Job] = why
			if len(waiting) < p.Estimates && why.Code != engine.OverQuota && why.Code != engine.WaitingForPreempted {
				waiting = append(waiting, i)
			}
			continue
		}
		a := pl.box.allocation(cl)
		pl.start(j, cl)
		pl.inherits(j)
		q.charge(j.Owner, amountOf(a).milliGPUs, p)
		plan.Start = append(plan.Start, Start{j.Job, a})
	}
	pl.estimateStarts(waiting)
	plan.Again = pl.next
	return *plan
}

// planner is one run of Compute.
type planner struct {
	s     *Snapshot
	p     Policy
	now   time.Time
	plan  Plan
	bare  *capacity // the box with no job on it
	box   *capacity // and as it is, with what this plan starts
	spans []span    // those of s.Held first
	books *ledger
	// largest is the memory of the largest card, in bytes.
	largest engine.Bytes
	// gpus and plain keep the place of blocked jobs with and without a GPU; kept are all of them.
	gpus  []*reservation
	plain *reservation
	kept  []*reservation
	depth int // GPU jobs tried behind the first of gpus
	// refused remembers who was in the way of which size, shadows when a size could start alone, and spared for whom no
	// victims were found, until something starts: queues are full of the same.
	refused map[size]*reservation
	shadows map[size]time.Time
	spared  map[plea]bool
	// searches counts how often victims were looked for.
	searches int
	// promises are, by preemptor, the indexes in s.Held of victims that are being stopped.
	promises map[engine.JobID][]int
	// heirs are the pending jobs that a place of victims was promised to before this plan.
	heirs []*Pending
	// owed is the first job that a place of victims was promised to.
	owed engine.JobID
	// unowed is the box without such promises, until something changes; nil when it has to be made.
	unowed *capacity
	// preempted counts the preemptions of the last hour, next is Plan.Again.
	preempted int
	next      time.Time
}

// changed forgets what was found out about the box as it was.
func (pl *planner) changed() {
	clear(pl.refused)
	clear(pl.shadows)
	clear(pl.spared)
	pl.unowed = nil
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
		refused: map[size]*reservation{}, shadows: map[size]time.Time{}, spared: map[plea]bool{}, books: newLedger(s), largest: largest(s.Devices),
		promises: promisesOf(s), preempted: recent(s.Preempted, now)}
	for i := range s.Pending {
		if j := &s.Pending[i]; j.Promised || len(pl.promises[j.Job]) > 0 {
			pl.heirs = append(pl.heirs, j)
		}
	}
	slices.SortFunc(pl.heirs, func(a, b *Pending) int { return cmp.Compare(a.Job, b.Job) })
	for i := range s.Held {
		h := &s.Held[i]
		sp := span{end: endOf(h, now), claim: pl.box.claimOf(h.Allocation, h.Actual)}
		pl.box.add(sp.claim)
		if len(pl.promises[h.For]) > 0 && h.Stopping {
			sp.kind = leaves
			pl.box.leave(sp.claim, 1)
		}
		pl.spans = append(pl.spans, sp)
	}
	return pl
}

// promisesOf finds the victims that are being stopped for jobs which still wait.
func promisesOf(s *Snapshot) map[engine.JobID][]int {
	var out map[engine.JobID][]int
	for i := range s.Held {
		if h := &s.Held[i]; h.For != 0 && h.Stopping {
			if out == nil {
				out = map[engine.JobID][]int{}
			}
			out[h.For] = append(out[h.For], i)
		}
	}
	if out == nil {
		return nil
	}
	waits := map[engine.JobID]bool{}
	for i := range s.Pending {
		waits[s.Pending[i].Job] = true
	}
	maps.DeleteFunc(out, func(j engine.JobID, _ []int) bool { return !waits[j] })
	for _, victims := range out {
		slices.SortFunc(victims, func(a, b int) int { return cmp.Compare(s.Held[a].Job, s.Held[b].Job) })
	}
	return out
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
	v := visitOf(j.Owner, j.Request, pl.now, pl.endOf(j))
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
	if why, ok := pl.redeem(j); ok {
		return claim{}, why, false
	}
	if !pl.box.room(r) {
		if why, shut := pl.box.promised(r); shut {
			return claim{}, why, false
		}
		return claim{}, pl.block(j), false
	}
	if gpu && len(pl.gpus) > 0 {
		if pl.depth++; pl.depth > pl.p.BackfillDepth {
			return claim{}, pl.behind(pl.gpus[0]), false
		}
	}
	if len(pl.kept) == 0 {
		cl, ok := pl.heirPlace(pl.box, j)
		if !ok {
			return cl, pl.quotaReason(j), false
		}
		return cl, engine.Reason{}, true
	}
	return pl.backfill(j)
}

// block says why a job does not fit, and has others stopped for it or keeps its next place for it, if it is the first to
// wait or larger than all that a place is kept for. When not even the bare box has room, what is in the way is outside
// the queue (a stranger's process, a dead card), nobody knows for how long, and keeping cards idle for this job would
// help no one.
func (pl *planner) block(j *Pending) engine.Reason {
	why := pl.reason(j.Request)
	may, keep := pl.mayPreempt(j), pl.keeps(j)
	if !keep && !may || !pl.bare.room(j.Request) {
		return why
	}
	var rv *reservation
	shadow, known := pl.shadows[pl.sizeOf(j)]
	if keep || !known {
		rv = reserve(j.Job, j.Request, pl.bare, pl.box, pl.spans)
		shadow = rv.shadow
		pl.shadows[pl.sizeOf(j)] = shadow
	}
	if may {
		if stops, ok := pl.preempt(j, shadow); ok {
			return stops
		}
	}
	if keep {
		pl.kept = append(pl.kept, rv)
		why.Until = rv.until(pl.now)
		if j.Request.WantsGPU() {
			pl.gpus = append(pl.gpus, rv)
		} else {
			pl.plain = rv
		}
	}
	return why
}

// reason says why a request does not fit; where only what is promised to preemptors is in its way, who was the first.
func (pl *planner) reason(r engine.Request) engine.Reason {
	if pl.owed != 0 && pl.unowed == nil {
		pl.unowed = pl.box.unowed()
	}
	if pl.owed != 0 && pl.unowed.seenBy(pl.box.visit).room(r) {
		return engine.Reason{Code: engine.BlockedByPriority, Job: pl.owed}
	}
	return pl.box.reason(r)
}

// keeps says whether a place is kept for a job that does not fit.
func (pl *planner) keeps(j *Pending) bool {
	if !j.Request.WantsGPU() {
		return pl.plain == nil
	}
	n := len(pl.gpus)
	if n == 0 {
		return true
	}
	return n < pl.p.Reservations && leastOf(pl.largest, j.Request).milliGPUs > leastOf(pl.largest, pl.gpus[n-1].req).milliGPUs
}

// backfill finds a place that keeps to the reservations.
func (pl *planner) backfill(j *Pending) (claim, engine.Reason, bool) {
	if rv := pl.refused[pl.sizeOf(j)]; rv != nil {
		return claim{}, pl.behind(rv), false
	}
	var avoid []bool
	if len(pl.gpus) > 0 {
		avoid = pl.gpus[0].place
	}
	end := pl.endOf(j)
	var blocker *reservation
	cl, ok := pl.box.place(j.Request, avoid, func(cl claim) bool {
		if !pl.inQuota(j, cl) {
			return false
		}
		for _, rv := range pl.kept {
			if !rv.allows(cl, end) {
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
	pl.changed()
	pl.spans = append(pl.spans, span{end: end, claim: cl})
	for _, rv := range pl.kept {
		rv.passed(cl, end)
	}
}
