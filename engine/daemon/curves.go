package daemon

import (
	"time"

	"gputop/engine"
)

const (
	// curveSave is how often the curve of a running attempt is stored, and curvesAtOnce how many are in one tick: what a
	// daemon that dies loses of it is no more.
	curveSave    = 5 * time.Minute
	curvesAtOnce = 4
)

// curve is what a running attempt has used so far.
type curve struct {
	*engine.Curve
	// saved is when it was stored last, on CLOCK_BOOTTIME in nanoseconds.
	saved int64
}

// loadCurves goes on with what an earlier daemon stored.
func (d *Daemon) loadCurves() {
	d.curves = map[engine.AttemptID]*curve{}
	for id, a := range d.state.attempts {
		if a.Allocation.State == engine.Active && a.Curve != nil {
			d.curves[id] = &curve{a.Curve.Clone(), d.o.System.Boottime()}
		}
	}
}

// seeCurves takes the newest sample into the curves of running attempts, and forgets those of others.
func (d *Daemon) seeCurves() {
	gpus := map[engine.DeviceID]*engine.GPU{}
	for i := range d.state.sample.GPUs {
		gpus[d.state.sample.GPUs[i].UUID] = &d.state.sample.GPUs[i]
	}
	for id := range d.curves {
		if a := d.state.attempts[id]; a == nil || !a.Allocation.State.Holds() {
			delete(d.curves, id)
		}
	}
	for id, a := range d.state.attempts {
		if a.Allocation.State != engine.Active || len(a.Allocation.Grants) == 0 {
			continue
		}
		memory, sm, seen := d.useOf(a, gpus)
		if !seen {
			continue
		}
		cv := d.curves[id]
		if cv == nil {
			cv = &curve{&engine.Curve{}, d.o.System.Boottime()}
			d.curves[id] = cv
		}
		cv.Add(d.state.sample.Time, memory, sm)
	}
}

// useOf is what an attempt holds of its cards, and their mean share of SMs that it has at work: nil when that is not known
// of each.
func (d *Daemon) useOf(a *engine.Attempt, gpus map[engine.DeviceID]*engine.GPU) (memory engine.Bytes, sm *float64, seen bool) {
	sum, known := 0.0, true
	for _, g := range a.Allocation.Grants {
		ds, gpu := d.state.devices[g.Device], gpus[g.Device]
		if ds == nil || gpu == nil {
			return 0, nil, false
		}
		memory += ds.actual[a.ID]
		share, ok := ds.sm[a.ID]
		if g.Whole && gpu.SM != nil {
			share, ok = *gpu.SM, true
		}
		sum, known = sum+share, known && ok
	}
	if !known {
		return memory, nil, true
	}
	sum /= float64(len(a.Allocation.Grants))
	return memory, &sum, true
}

// saveCurves stores curves now and then.
func (d *Daemon) saveCurves() {
	now, n := d.o.System.Boottime(), 0
	for id, cv := range d.curves {
		a := d.state.attempts[id]
		if n == curvesAtOnce {
			return
		}
		if a == nil || a.Allocation.State != engine.Active || now-cv.saved < curveSave.Nanoseconds() {
			continue
		}
		n++
		cv.saved = now // also when the disk refuses: the end stores it again
		if err := d.transact(id.Job, id.Number, func(c *change) error { c.attempt.Curve = cv.Clone(); return nil }); err != nil {
			d.log.Warn("curve not saved", "attempt", id, "err", err)
		}
	}
}
