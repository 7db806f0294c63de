package scheduler

import (
	"maps"
	"slices"
	"time"

	"gputop/engine"
)

// world plays time forward: it applies plans and ends jobs.
type world struct {
	Snapshot
	policy Policy
	now    time.Time
	// ends is when each held job really ends, known to nobody but the world; lasts how long each pending one will run.
	ends  map[engine.JobID]time.Time
	lasts map[engine.JobID]time.Duration
	began map[engine.JobID]time.Time
	// arrivals come into the queue at their Queued time; in that order.
	arrivals []Pending
	// requeue are victims on their way out; asked is what started jobs asked for, so that they can be put back.
	requeue map[engine.JobID]Held
	asked   map[engine.JobID]Pending
	stopped map[engine.JobID]int
	again   time.Time
	// check, if set, looks at each plan before it is applied.
	check func(Snapshot, Plan, time.Time)
}

func newWorld(p Policy) *world {
	return &world{policy: p, now: epoch, ends: map[engine.JobID]time.Time{}, lasts: map[engine.JobID]time.Duration{},
		began: map[engine.JobID]time.Time{}, requeue: map[engine.JobID]Held{}, asked: map[engine.JobID]Pending{},
		stopped: map[engine.JobID]int{}}
}

// plan computes and applies one plan.
func (w *world) plan() Plan {
	for len(w.arrivals) > 0 && !w.arrivals[0].Queued.After(w.now) {
		w.Pending = append(w.Pending, w.arrivals[0])
		w.arrivals = w.arrivals[1:]
	}
	p := Compute(w.Snapshot, w.policy, w.now)
	if w.check != nil {
		w.check(w.Snapshot, p, w.now)
	}
	for _, v := range p.Preempt {
		h := &w.Held[slices.IndexFunc(w.Held, func(h Held) bool { return h.Job == v.Victim })]
		h.Stopping, h.For = true, v.For
		if gone := w.now.Add(w.policy.Grace); gone.Before(w.ends[v.Victim]) {
			w.ends[v.Victim] = gone
			w.requeue[v.Victim] = *h
		}
		w.Preempted = append(w.Preempted, w.now)
		w.Pending[slices.IndexFunc(w.Pending, func(j Pending) bool { return j.Job == v.For })].Promised = true
	}
	w.again = p.Again
	for _, st := range p.Start {
		i := slices.IndexFunc(w.Pending, func(j Pending) bool { return j.Job == st.Job })
		j := w.Pending[i]
		w.Pending = slices.Delete(w.Pending, i, i+1)
		h := Held{Job: j.Job, Owner: j.Owner, Class: j.Class, Allocation: st.Allocation, Started: w.now, Preemptions: w.stopped[j.Job]}
		w.asked[j.Job] = j
		if j.TimeLimit > 0 {
			h.End = w.now.Add(j.TimeLimit)
		}
		w.Held = append(w.Held, h)
		w.began[j.Job] = w.now
		w.ends[j.Job] = w.now.Add(w.lasts[j.Job])
	}
	return p
}

// step goes to the next moment at which something ends or comes; false when there is none.
func (w *world) step() bool {
	var next time.Time
	sooner := func(t time.Time) {
		if next.IsZero() || t.Before(next) {
			next = t
		}
	}
	for _, h := range w.Held {
		sooner(w.ends[h.Job])
	}
	if len(w.arrivals) > 0 {
		sooner(w.arrivals[0].Queued)
	}
	if len(w.Pending) > 0 && !w.again.IsZero() && !next.IsZero() {
		sooner(w.again)
	}
	if next.IsZero() {
		return false
	}
	if next.After(w.now) {
		w.now = next
	}
	w.Held = slices.DeleteFunc(w.Held, func(h Held) bool {
		over := !w.ends[h.Job].After(w.now)
		if _, victim := w.requeue[h.Job]; over && victim {
			delete(w.requeue, h.Job)
			w.stopped[h.Job]++
			if j, ok := w.asked[h.Job]; ok {
				j.Promised = false
				w.Pending = append(w.Pending, j)
			}
		}
		return over
	})
	return true
}

// clone copies what Compute must not touch, deeply.
func clone(s Snapshot) Snapshot {
	s.Devices = slices.Clone(s.Devices)
	s.Pending = slices.Clone(s.Pending)
	s.Held = slices.Clone(s.Held)
	s.Preempted, s.Shares = slices.Clone(s.Preempted), maps.Clone(s.Shares)
	for i := range s.Held {
		s.Held[i].Allocation.Grants = slices.Clone(s.Held[i].Allocation.Grants)
		if a := s.Held[i].Actual; a != nil {
			s.Held[i].Actual = map[engine.DeviceID]engine.Bytes{}
			for k, v := range a {
				s.Held[i].Actual[k] = v
			}
		}
	}
	return s
}
