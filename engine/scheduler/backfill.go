package scheduler

import (
	"slices"
	"time"

	"gputop/engine"
)

// span is something that holds capacity until an end; a zero end is unknown.
type span struct {
	end   time.Time
	claim claim
	kind  spanKind
}

type spanKind uint8

const (
	holds    spanKind = iota
	leaves            // a victim's, as long as it still holds
	promised          // a preemptor's, that will hold it
)

// free takes the span off a box.
func (s *span) free(c *capacity) {
	switch s.kind {
	case promised:
		c.promise(s.claim, -1)
		return
	case leaves:
		c.leave(s.claim, -1)
	}
	c.remove(s.claim)
}

// reservation is what is kept for a blocked job: it will start at shadow, when the allocations that end by then have
// ended, and nothing that starts meanwhile may take its place there (EASY backfill).
type reservation struct {
	job engine.JobID
	req engine.Request
	// shadow is zero when an allocation it needs has no known end. Then a job may pass only on cards that the blocked
	// one cannot use.
	shadow time.Time
	// bare and now are the box without any job and as it is.
	bare, now *capacity
	// later is the box at shadow, with what was let past since.
	later *capacity
	// freed marks the spans that are over by then, as they were counted when the reservation was made.
	freed []bool
	// place marks the cards it would get there.
	place []bool
	// visit is the blocked job's own look at the box, from now.
	visit visit
}

// reserve finds when a blocked job can start. The job must fit once every allocation has ended.
func reserve(job engine.JobID, r engine.Request, bare, now *capacity, spans []span) *reservation {
	rv := &reservation{job: job, req: r, bare: bare, now: now, later: now.clone(), visit: now.visit,
		freed: make([]bool, len(spans))}
	for order := byEnd(spans); len(order) > 0 && !rv.later.room(r); {
		end := spans[order[0]].end
		for ; len(order) > 0 && spans[order[0]].end.Equal(end); order = order[1:] {
			spans[order[0]].free(rv.later)
			rv.freed[order[0]] = true
		}
		rv.shadow = end
		if end.After(rv.visit.now) {
			rv.later.visit = rv.visit.at(end)
		}
	}
	rv.mark()
	return rv
}

// byEnd are the indexes of spans in the order of their ends, unknown ones last.
func byEnd(spans []span) []int {
	order := make([]int, len(spans))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(x, y int) int {
		a, b := &spans[x], &spans[y]
		switch ua, ub := a.end.IsZero(), b.end.IsZero(); {
		case ua && ub:
			return 0
		case ua:
			return 1
		case ub:
			return -1
		}
		return a.end.Compare(b.end)
	})
	return order
}

// until is when the blocked job can start, for people: zero when unknown or any moment.
func (rv *reservation) until(now time.Time) time.Time {
	if rv.shadow.After(now) {
		return rv.shadow
	}
	return time.Time{}
}

func (rv *reservation) mark() {
	rv.place = make([]bool, len(rv.later.cards))
	cl, _ := rv.later.place(rv.req, nil, nil)
	for _, g := range cl.cards {
		rv.place[g.card] = true
	}
}

// allows says whether a claim that starts now and ends at end (zero: unknown) leaves the blocked job its place.
func (rv *reservation) allows(cl claim, end time.Time) bool {
	if rv.shadow.IsZero() {
		return rv.outOfReach(cl)
	}
	if rv.endsInTime(end) {
		return true
	}
	rv.later.add(cl)
	defer rv.later.remove(cl)
	return rv.later.room(rv.req)
}

func (rv *reservation) endsInTime(end time.Time) bool {
	return !end.IsZero() && !end.After(rv.shadow)
}

// outOfReach says whether a claim takes nothing that the blocked job could use once other jobs end.
func (rv *reservation) outOfReach(cl claim) bool {
	bare := *rv.bare // as the blocked job sees it
	bare.visit = rv.visit
	part := bare.wholePart(rv.req.GPUs)
	for i := range bare.cards {
		d := &bare.cards[i]
		need := shareNeed(rv.req, d)
		reach := rv.req.GPUs > 0 && bare.wholeFree(d) || rv.req.IsShare() && bare.shareFits(d, need)
		if reach && cl.on(i) {
			return false
		}
		if reach && rv.req.IsShare() {
			part = max(part, bare.part(need, d))
		}
	}
	_, least := rv.now.hostNeed(rv.req, part)
	free := rv.now.hostFree()
	return least.within(host{free.milli - cl.milli, free.memory - cl.memory})
}

func (cl claim) on(card int) bool {
	return slices.ContainsFunc(cl.cards, func(g cardClaim) bool { return g.card == card })
}

// passed records that a claim the reservation allowed has started.
func (rv *reservation) passed(cl claim, end time.Time) {
	if rv.shadow.IsZero() || !rv.endsInTime(end) {
		rv.later.add(cl)
		rv.mark()
	}
}
