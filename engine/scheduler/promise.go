package scheduler

import (
	"slices"

	"gputop/engine"
)

// redeem gives a job the place that victims were stopped for: at once where it is free, else when they are gone.
func (pl *planner) redeem(j *Pending) (engine.Reason, bool) {
	victims := pl.promises[j.Job]
	if len(victims) == 0 || pl.box.room(j.Request) {
		return engine.Reason{}, false
	}
	box := pl.box.clone()
	box.visit = box.visit.at(pl.now.Add(pl.p.Grace))
	for _, i := range victims {
		box.leave(pl.spans[i].claim, -1)
		box.remove(pl.spans[i].claim)
	}
	cl, ok := pl.heirPlace(box, j)
	if !ok {
		return engine.Reason{}, false
	}
	pl.keep(j, cl)
	pl.inherits(j)
	return pl.stopping(victims[0]), true
}

// heirPlace finds a place for a job on a box, within its quota and, where it can be, beside those that were promised a
// place too: whose victims are gone has no claim that could be seen.
func (pl *planner) heirPlace(box *capacity, j *Pending) (claim, bool) {
	quota := func(cl claim) bool { return pl.inQuota(j, cl) }
	if len(pl.heirs) > 1 && slices.Contains(pl.heirs, j) {
		if cl, ok := box.place(j.Request, nil, func(cl claim) bool { return quota(cl) && pl.othersFit(box, j, cl) }); ok {
			return cl, true
		}
	}
	return box.place(j.Request, nil, quota)
}

// othersFit says whether the other heirs have room beside a claim, once all victims are gone.
func (pl *planner) othersFit(box *capacity, j *Pending, cl claim) bool {
	box = box.clone()
	box.add(cl)
	for _, other := range pl.heirs {
		for _, i := range pl.promises[other.Job] {
			if other != j {
				box.leave(pl.spans[i].claim, -1)
				box.remove(pl.spans[i].claim)
			}
		}
	}
	for _, other := range pl.heirs {
		if other == j {
			continue
		}
		box.visit = visitOf(other.Owner, other.Request, pl.now, pl.endOf(other)).at(box.visit.now)
		theirs, ok := box.place(other.Request, nil, nil)
		if !ok {
			return false
		}
		_, theirs.host = box.hostNeed(other.Request, box.partOf(other.Request, theirs))
		box.add(theirs)
	}
	return true
}

// inherits takes a job that has its place, or the promise of it, off the heirs.
func (pl *planner) inherits(j *Pending) {
	pl.heirs = slices.DeleteFunc(pl.heirs, func(h *Pending) bool { return h == j })
}
