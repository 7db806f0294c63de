package daemon

import (
	"fmt"
	"slices"
	"time"

	"gputop/engine"
	"gputop/engine/api"
)

// itself stands for the daemon on the audit trail and in reservations.
var itself = api.Caller{User: engine.User{Name: "gputop"}}

// seeFaults drains cards of which the driver reported an error of the hardware: no new job gets one, also when the sampler,
// which forgets such errors, or the daemon is started again. A person gives it back with undrain; an error that was
// reported before that counts no more.
func (d *Daemon) seeFaults(s *engine.Sample) {
	for i := range s.GPUs {
		g := &s.GPUs[i]
		if g.FaultXID == 0 {
			continue
		}
		at := lastFault(g)
		if !at.After(d.forgiven[g.UUID]) {
			g.Health, g.HealthDetail, g.FaultXID = engine.HealthOK, "", 0
			continue
		}
		if at.After(d.drained[g.UUID]) && d.drainFaulty(g) {
			d.drained[g.UUID] = at
		}
	}
}

// lastFault is when the driver last reported an error of the hardware.
func lastFault(g *engine.GPU) (at time.Time) {
	for _, x := range g.XIDs {
		if !x.Application() && x.Time.After(at) {
			at = x.Time
		}
	}
	return at
}

// drainFaulty drains a card, unless it is drained already; false when the disk refused.
func (d *Daemon) drainFaulty(g *engine.GPU) bool {
	now := d.o.System.Now()
	if slices.ContainsFunc(d.reserved, func(r engine.Reservation) bool {
		return r.Drain && r.To.IsZero() && r.Begun(now) && slices.Contains(r.Devices, g.UUID)
	}) {
		return true
	}
	r := engine.Reservation{Drain: true, Devices: []engine.DeviceID{g.UUID}, From: now, Made: now, By: itself.User,
		Reason: fmt.Sprintf("Xid %d, an error of the hardware or the driver", g.FaultXID)}
	r, err := d.store.AddReservation(d.runCtx, r, d.audit(itself, actReserve, &engine.Job{}, r.Reason, d.reservationText(&r)))
	if err != nil {
		d.log.Error("faulty card not drained, trying again", "device", g.UUID, "err", err)
		return false
	}
	d.log.Error("a card is drained", "device", g.UUID, "why", r.Reason)
	d.reserved = append(d.reserved, r)
	return true
}

// forgive has the errors that cards had until now count no more.
func (d *Daemon) forgive(devices []engine.DeviceID) {
	for _, id := range devices {
		d.forgiven[id] = d.o.System.Now()
	}
}

// lostPatience is how long a card is seen lost before its jobs are told to end: a driver that is loaded anew comes back.
const lostPatience = 10 * time.Second

// endOnLostCards ends jobs whose card fell off the bus. Their programs may hang on it for ever; whether they run again is
// judged as for any fault of the machine.
func (d *Daemon) endOnLostCards() {
	lost := map[engine.DeviceID]int{}
	for i := range d.state.sample.GPUs {
		if g := &d.state.sample.GPUs[i]; g.Health == engine.HealthLost {
			lost[g.UUID] = g.Index
		}
	}
	now := d.o.System.Boottime()
	for id := range d.lostSince {
		if _, still := lost[id]; !still {
			delete(d.lostSince, id)
		}
	}
	for id := range lost {
		if _, known := d.lostSince[id]; !known {
			d.lostSince[id] = now
		}
	}
	if len(lost) == 0 {
		return
	}
	for id, a := range d.state.attempts {
		e := d.state.jobs[id.Job]
		if e == nil || e.job.State != engine.Running || id.Number != e.job.Attempts {
			continue
		}
		for _, g := range a.Allocation.Grants {
			index, gone := lost[g.Device]
			if !gone || now-d.lostSince[g.Device] < lostPatience.Nanoseconds() {
				continue
			}
			if err := d.stopActive(e, engine.StopLostCard, fmt.Sprintf("GPU %d (%s) fell off the bus", index, g.Device)); err != nil {
				d.log.Error("job on a lost card not ended, trying again", "job", id.Job, "err", err)
			}
			break
		}
	}
}
