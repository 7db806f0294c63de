package scheduler

import (
	"cmp"
	"slices"
	"time"

	"gputop/engine"
)

// recheck is how soon a preemptor that waits is looked at again: what would be lost, and gained, changes with time.
const recheck = time.Minute

// mostWait is what a wait counts for at most, and one of which nobody knows the end: time limits are guesses.
const mostWait = 24 * time.Hour

// maxSearches bounds how often a plan looks for victims: what it costs, not what it finds, since few are ever found.
const maxSearches = 100

// plea is what decides whom a job may have stopped, but for how long it has waited beyond its due.
type plea struct {
	size
	class engine.Class
	owner uint32
	due   bool
}

func (pl *planner) plea(j *Pending, due bool) plea {
	p := plea{size: pl.sizeOf(j), class: j.Class, due: due}
	if len(j.Accounts) > 0 {
		p.owner = j.Owner
	}
	return p
}

// candidate is a running job that may be stopped.
type candidate struct {
	held int
	loss float64 // GPU-seconds of work thrown away
}

// preempt finds running jobs to stop for a blocked one, and keeps their place for it. start is when the job could
// start else; zero is unknown. Until its wait is due, only those are stopped that lose nothing.
func (pl *planner) preempt(j *Pending, start time.Time) (engine.Reason, bool) {
	late := func(wait time.Duration) bool { return start.IsZero() || start.Sub(j.Queued) > wait }
	if !late(pl.p.WaitFree) {
		pl.again(start)
		return engine.Reason{}, false
	}
	patient := j.Queued.Add(pl.p.Patience)
	due := late(pl.p.Wait) && !patient.After(pl.now)
	if due {
		pl.again(pl.now.Add(recheck))
	} else {
		pl.again(patient)
		pl.again(j.Queued.Add(pl.p.Wait))
	}
	key := pl.plea(j, due)
	if pl.spared[key] || pl.searches >= maxSearches {
		return engine.Reason{}, false
	}
	pl.searches++
	set, cl, ok := pl.victims(j, due, start)
	if !ok {
		pl.spared[key] = true
		return engine.Reason{}, false
	}
	pl.stop(j, set, cl)
	return pl.stopping(set[0].held), true
}

// mayPreempt says whether a job is one that others are stopped for, and whether that may be done at all now.
func (pl *planner) mayPreempt(j *Pending) bool {
	return pl.p.By != 0 && j.Class >= pl.p.By && (pl.p.PerHour <= 0 || pl.preempted < pl.p.PerHour)
}

// recent counts the preemptions of the last hour.
func recent(times []time.Time, now time.Time) (n int) {
	for _, t := range times {
		if now.Sub(t) < time.Hour {
			n++
		}
	}
	return n
}

// again has the next plan made at a time at the latest.
func (pl *planner) again(t time.Time) {
	if t.After(pl.now) && (pl.next.IsZero() || t.Before(pl.next)) {
		pl.next = t
	}
}

func (pl *planner) stopping(held int) engine.Reason {
	return engine.Reason{Code: engine.WaitingForPreempted, Job: pl.s.Held[held].Job, Until: pl.now.Add(pl.p.Grace)}
}

// candidates are the running jobs that may be stopped for a job, the least loss first.
func (pl *planner) candidates(j *Pending) []candidate {
	var out []candidate
	for i := range pl.s.Held {
		h := &pl.s.Held[i]
		if pl.spans[i].kind == holds && pl.spares(h, j) == "" {
			out = append(out, candidate{i, lossOf(h, pl.now)})
		}
	}
	slices.SortFunc(out, func(a, b candidate) int {
		x, y := &pl.s.Held[a.held], &pl.s.Held[b.held]
		return cmp.Or(cmp.Compare(a.loss, b.loss), cmp.Compare(x.Class, y.Class), y.Started.Compare(x.Started), cmp.Compare(x.Job, y.Job))
	})
	return out
}

// spares says why a running job does not give way to a waiting one; empty when it does.
func (pl *planner) spares(h *Held, j *Pending) engine.Spared {
	p := &pl.p.Preemption
	switch {
	case h.Stopping, h.Allocation.State == engine.Releasing:
		return engine.SparedStopping
	case h.Started.IsZero():
		return engine.SparedStarting
	case h.Class >= j.Class:
		return engine.SparedClass
	case !slices.Contains(p.Of, h.Class):
		return engine.SparedSite
	case p.Most > 0 && h.Preemptions >= p.Most:
		return engine.SparedProtected
	case pl.now.Sub(h.Started) < p.MinRun && !(h.Checkpoints && h.CheckpointEvery <= 0):
		return engine.SparedYoung
	}
	return ""
}

// lossOf is the work that a stop throws away, in GPU-seconds; without a GPU, in seconds of the host.
func lossOf(h *Held, now time.Time) float64 {
	lost := max(0, now.Sub(h.Started))
	if h.Checkpoints {
		lost = min(lost, max(0, h.CheckpointEvery))
	}
	size := float64(amountOf(h.Allocation).milliGPUs) / 1000
	if len(h.Allocation.Grants) == 0 {
		size = 1
	}
	return lost.Seconds() * size
}

// allowed is how much may be thrown away for a job whose wait is due, in GPU-seconds; false without a bound.
func (pl *planner) allowed(j *Pending, start time.Time) (float64, bool) {
	p := &pl.p.Preemption
	if p.Loss < 0 {
		return 0, false
	}
	wait := mostWait
	if !start.IsZero() {
		wait = min(max(0, start.Sub(j.Queued)), mostWait)
	}
	size := float64(leastOf(pl.largest, j.Request).milliGPUs) / 1000
	return p.Loss + p.LossPerWait*size*wait.Seconds(), true
}

// victims chooses whom to stop: of all the sets that are tried the one that loses least, without anybody who need not
// go. It says what the job gets when they are gone.
func (pl *planner) victims(j *Pending, due bool, start time.Time) ([]candidate, claim, bool) {
	bound, bounded := 0.0, true
	if due {
		bound, bounded = pl.allowed(j, start)
	}
	all := pl.candidates(j)
	if bounded {
		all = slices.DeleteFunc(all, func(c candidate) bool { return c.loss > bound })
	}
	if len(all) == 0 {
		return nil, claim{}, false
	}
	var best []candidate
	var get claim
	var least float64
	for _, try := range pl.tries(j.Request, all) {
		set, ok := pl.minimal(j.Request, try)
		if !ok {
			continue
		}
		loss := 0.0
		for _, c := range set {
			loss += c.loss
		}
		if bounded && loss > bound || best != nil && (loss > least || loss == least && len(set) >= len(best)) {
			continue
		}
		if cl, ok := pl.without(j, set); ok {
			best, get, least = set, cl, loss
		}
	}
	return best, get, best != nil
}

// tries are the sets to look for victims in: all candidates, for one card those on each card, for several those on the
// cards that are cheapest to clear.
func (pl *planner) tries(r engine.Request, all []candidate) [][]candidate {
	out := [][]candidate{all}
	if !r.WantsGPU() {
		return out
	}
	type place struct {
		card int
		loss float64
	}
	cards := make([]place, len(pl.box.cards))
	on := make([][]candidate, len(cards))
	for i := range cards {
		cards[i].card = i
		for _, c := range all {
			if pl.spans[c.held].claim.on(i) {
				on[i] = append(on[i], c)
				cards[i].loss += c.loss
			}
		}
	}
	if r.IsShare() || r.GPUs == 1 {
		return append(out, slices.DeleteFunc(on, func(l []candidate) bool { return len(l) == 0 })...)
	}
	slices.SortFunc(cards, func(a, b place) int { return cmp.Or(cmp.Compare(a.loss, b.loss), cmp.Compare(a.card, b.card)) })
	chosen := map[int]bool{}
	for _, p := range cards {
		chosen[p.card] = true
		var try []candidate
		for _, c := range all {
			if slices.ContainsFunc(pl.spans[c.held].claim.cards, func(g cardClaim) bool { return chosen[g.card] }) {
				try = append(try, c)
			}
		}
		if len(try) > 0 {
			out = append(out, try)
		}
	}
	return out
}

// minimal takes candidates away until the request fits, and puts back, in reverse, who need not go.
func (pl *planner) minimal(r engine.Request, from []candidate) ([]candidate, bool) {
	box := pl.box.clone()
	box.visit = box.visit.at(pl.now.Add(pl.p.Grace))
	n := 0
	for ; n < len(from) && !box.room(r); n++ {
		box.remove(pl.spans[from[n].held].claim)
	}
	if n == 0 || !box.room(r) {
		return nil, false
	}
	set := slices.Clone(from[:n])
	for i := len(set) - 1; i >= 0; i-- {
		cl := pl.spans[set[i].held].claim
		if box.add(cl); box.room(r) {
			set = slices.Delete(set, i, i+1)
		} else {
			box.remove(cl)
		}
	}
	return set, len(set) > 0
}

// without is what a job gets once the victims are gone, within its quota and without delaying who is ahead of it.
func (pl *planner) without(j *Pending, set []candidate) (claim, bool) {
	box := pl.box.clone()
	box.visit = box.visit.at(pl.now.Add(pl.p.Grace))
	for _, c := range set {
		box.remove(pl.spans[c.held].claim)
	}
	end := endAfter(pl.now.Add(pl.p.Grace), j.TimeLimit)
	return box.place(j.Request, nil, func(cl claim) bool {
		if !pl.inQuota(j, cl) {
			return false
		}
		full := pl.full(j.Request, cl)
		for _, rv := range pl.kept {
			if !pl.leavesPlace(rv, set, full, end) {
				return false
			}
		}
		return true
	})
}

// full is a claim with all of the host that goes with it by default: by the time the job starts there may be more of it
// than now, and then it takes that.
func (pl *planner) full(r engine.Request, cl claim) claim {
	want, _ := pl.box.hostNeed(r, pl.box.partOf(r, cl))
	cl.host = host{max(cl.milli, want.milli), max(cl.memory, want.memory)}
	return cl
}

// leavesPlace says whether a reservation holds when a claim takes the place of victims.
func (pl *planner) leavesPlace(rv *reservation, set []candidate, cl claim, end time.Time) bool {
	if rv.shadow.IsZero() {
		return rv.outOfReach(cl)
	}
	if rv.endsInTime(end) {
		return true
	}
	later := rv.later.clone()
	for _, c := range set {
		if !rv.isFreed(c.held) {
			later.remove(pl.spans[c.held].claim)
		}
	}
	later.add(cl)
	return later.room(rv.req)
}

func (rv *reservation) isFreed(span int) bool { return span < len(rv.freed) && rv.freed[span] }

// stop plans the end of victims and promises a job its claim.
func (pl *planner) stop(j *Pending, set []candidate, cl claim) {
	for _, c := range set {
		sp := &pl.spans[c.held]
		for _, rv := range pl.kept {
			if !rv.isFreed(c.held) {
				rv.later.remove(sp.claim)
				rv.free(c.held)
			}
		}
		sp.kind, sp.end = leaves, pl.now
		pl.box.leave(sp.claim, 1)
		pl.plan.Preempt = append(pl.plan.Preempt, Preempt{pl.s.Held[c.held].Job, j.Job})
		pl.preempted++
	}
	pl.keep(j, cl)
}

// keep promises a job a claim, as soon as its victims are gone.
func (pl *planner) keep(j *Pending, cl claim) {
	gone := pl.now.Add(pl.p.Grace)
	end := endAfter(gone, j.TimeLimit)
	pl.box.promise(cl, 1)
	if pl.owed == 0 {
		pl.owed = j.Job
	}
	pl.books.add(j.Accounts, amountOf(pl.box.allocation(cl)))
	pl.changed()
	pl.spans = append(pl.spans, span{end, cl, promised})
	for _, rv := range pl.kept {
		rv.passed(pl.full(j.Request, cl), end)
	}
	pl.estimate(j.Job, gone)
}

func (rv *reservation) free(span int) {
	for len(rv.freed) <= span {
		rv.freed = append(rv.freed, false)
	}
	rv.freed[span] = true
}
