package scheduler

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"gputop/engine"
)

// drawPreempting is a world in which a good deal is preempted, with what a victim may lose unbounded.
func drawPreempting(t *rapid.T) *world {
	w := drawWorld(t)
	w.policy = preempting()
	w.policy.Loss, w.policy.AgeingStep = -1, nil
	for i := range w.Pending {
		w.Pending[i].Class = rapid.SampledFrom([]engine.Class{engine.Critical, engine.High, engine.High, engine.Low}).Draw(t, "class")
	}
	for i := range w.Held {
		w.Held[i].Class = rapid.SampledFrom([]engine.Class{engine.Low, engine.Low, engine.Medium, engine.High}).Draw(t, "held class")
	}
	return w
}

// givesWay is whom the policy lets be stopped, written down again.
func givesWay(h Held, to engine.Class, p Policy) bool {
	ran := epoch.Sub(h.Started)
	return h.Class < to && h.Class <= engine.Medium && !h.Stopping && h.Preemptions < p.Most &&
		(ran >= p.MinRun || h.Checkpoints && h.CheckpointEvery == 0)
}

// after is the box once a plan is carried out, without some of those it holds.
func after(w *world, p Plan, without func(engine.JobID) bool) Snapshot {
	s := clone(w.Snapshot)
	s.Held = slices.DeleteFunc(s.Held, func(h Held) bool { return without(h.Job) })
	for _, st := range p.Start {
		s.Held = append(s.Held, Held{Job: st.Job, Allocation: st.Allocation})
	}
	return s
}

// Victims give way to who gains by them, it fits when they are gone, and would not if any one of them stayed.
func TestVictimsAreMinimal(t *testing.T) {
	seen := 0
	rapid.Check(t, func(t *rapid.T) {
		w := drawPreempting(t)
		p := Compute(w.Snapshot, w.policy, w.now)
		gains := map[engine.JobID][]engine.JobID{}
		for _, v := range p.Preempt {
			gains[v.For] = append(gains[v.For], v.Victim)
		}
		for job, victims := range gains {
			j := w.Pending[slices.IndexFunc(w.Pending, func(j Pending) bool { return j.Job == job })]
			for _, v := range victims {
				h := w.Held[slices.IndexFunc(w.Held, func(h Held) bool { return h.Job == v })]
				if !givesWay(h, j.Class, w.policy) {
					t.Fatalf("job %d, %s, does not give way to %d, %s", v, h.Class, job, j.Class)
				}
			}
			if len(gains) > 1 {
				continue // the others' places count too
			}
			seen++
			if _, why, ok := Fits(after(w, p, func(id engine.JobID) bool { return slices.Contains(victims, id) }), j.Request, w.policy); !ok {
				t.Fatalf("job %d does not fit without %v: %s\n%s", job, victims, showReason(why), show(p))
			}
			for _, stays := range victims {
				if _, _, ok := Fits(after(w, p, func(id engine.JobID) bool { return id != stays && slices.Contains(victims, id) }), j.Request, w.policy); ok {
					t.Fatalf("job %d fits if %d stays\n%s", job, stays, show(p))
				}
			}
		}
	})
	if seen < 30 {
		t.Errorf("only %d plans with victims", seen)
	}
}

// The first that waits, of a class that may have others stopped, does not wait past its due on anybody who gives way.
func TestNoneWaitsOnAVictimThePolicyAllows(t *testing.T) {
	seen := 0
	rapid.Check(t, func(t *rapid.T) {
		w := drawPreempting(t)
		p := Compute(w.Snapshot, w.policy, w.now)
		i := slices.IndexFunc(p.Order, func(id engine.JobID) bool { _, waits := p.Reasons[id]; return waits })
		if i < 0 || p.Reasons[p.Order[i]].Code == engine.WaitingForPreempted {
			return
		}
		j := w.Pending[slices.IndexFunc(w.Pending, func(j Pending) bool { return j.Job == p.Order[i] })]
		soon := j.Queued.Add(w.policy.Wait)
		for _, h := range w.Held { // what ends in time is waited for
			if h.Stopping || !h.End.IsZero() && !h.End.After(soon) {
				return
			}
		}
		if j.Class < engine.High {
			return
		}
		// What started in this plan was ahead of it, and so was the victim of nobody.
		p.Start = slices.DeleteFunc(p.Start, func(s Start) bool { return slices.Index(p.Order, s.Job) > i })
		seen++
		_, _, fits := Fits(after(w, p, func(id engine.JobID) bool {
			k := slices.IndexFunc(w.Held, func(h Held) bool { return h.Job == id })
			return givesWay(w.Held[k], j.Class, w.policy)
		}), j.Request, w.policy)
		if fits {
			t.Fatalf("job %d, %s, waits and could have others stopped: %s\n%s", j.Job, j.Class, showReason(p.Reasons[j.Job]), show(p))
		}
	})
	if seen < 30 {
		t.Errorf("only %d jobs waited", seen)
	}
}

// Whom others were stopped for starts as soon as they are gone, and nothing else takes their place meanwhile.
func TestPreemptorsGetTheirPlace(t *testing.T) {
	seen := 0
	rapid.Check(t, func(t *rapid.T) {
		w := drawPreempting(t)
		w.arrivals, w.Pending = w.Pending, nil
		for i := range w.arrivals {
			w.arrivals[i].Queued = epoch.Add(time.Duration(i) * 20 * time.Second)
		}
		w.check = func(s Snapshot, p Plan, now time.Time) {
			if what := oversubscribed(s, p); what != "" {
				t.Fatalf("%s\n%s", what, show(p))
			}
			for _, j := range s.Pending {
				why, waits := p.Reasons[j.Job]
				gone := !slices.ContainsFunc(s.Held, func(h Held) bool { return h.For == j.Job })
				if !j.Promised || !gone {
					continue
				}
				if seen++; waits {
					t.Fatalf("the victims of %d are gone, and it waits: %s\n%s", j.Job, showReason(why), show(p))
				}
			}
		}
		for w.plan(); w.step(); w.plan() {
		}
		if len(w.Pending) > 0 {
			t.Fatalf("%d jobs never ran", len(w.Pending))
		}
	})
	if seen < 30 {
		t.Errorf("only %d preemptors", seen)
	}
}
