package daemon

import (
	"time"

	"gputop/engine"
	"gputop/engine/scheduler"
)

// queue says when to plan next. Planning is asked for often and done seldom: not more than a fifth of the time.
type queue struct {
	timer *time.Timer
	armed bool
	gap   time.Duration
}

func newQueue() *queue {
	t := time.NewTimer(time.Hour)
	t.Stop()
	return &queue{timer: t, gap: 10 * time.Millisecond}
}

// kick asks for a plan soon. It is called from the loop.
func (q *queue) kick() {
	if !q.armed {
		q.armed = true
		q.timer.Reset(q.gap)
	}
}

func (q *queue) due() <-chan time.Time { return q.timer.C }

// reasonedFirst is how many waiting jobs, from the front, are published whenever anything about their waiting changes;
// for those behind only a change of the kind of reason is.
const reasonedFirst = 100

// plan asks the scheduler, applies what it proposes, and takes over the reasons.
func (d *Daemon) plan() {
	d.queue.armed = false
	if d.state.queued == 0 {
		return
	}
	d.settleDependents()
	began := time.Now()
	now := d.o.System.Now()
	p := scheduler.Compute(d.snapshot(), d.policy().Scheduler, now)
	for _, s := range p.Start {
		d.applyStart(s)
	}
	d.preemptAll(p.Preempt)
	for i, id := range p.Order {
		d.takeReason(id, i+1, &p)
	}
	d.prepareSome()
	d.queue.gap = max(10*time.Millisecond, 4*time.Since(began))
}

// sameStart is how far an expected start may move without being told again.
const sameStart = time.Minute

func (d *Daemon) takeReason(id engine.JobID, position int, p *scheduler.Plan) {
	e := d.state.jobs[id]
	if e == nil || !e.job.State.Queued() {
		return
	}
	r, ok := p.Reasons[id]
	if r.Code == engine.DeviceUnresolvable {
		r.Detail = d.whyUnresolvable()
	}
	expected := p.Estimates[id]
	moved := e.position != position || e.expected.IsZero() != expected.IsZero() || expected.Sub(e.expected).Abs() >= sameStart
	e.position = position
	if moved {
		e.expected = expected
	}
	switch {
	case e.reason == nil && ok, e.reason != nil && ok && e.reason.Code != r.Code:
	case !ok, position > reasonedFirst, !moved && *e.reason == r:
		return
	}
	e.reason = &r
	d.publish(e)
}

// snapshot is the state in the scheduler's words.
func (d *Daemon) snapshot() scheduler.Snapshot {
	var b books
	s := d.heldIn(&b)
	for _, e := range d.state.jobs {
		if e.job.State.Queued() {
			s.Pending = append(s.Pending, d.pendingOf(e, &b))
		}
	}
	s.Accounts = b.list
	s.Shares, s.Preempted = d.shares(), d.preempted
	return s
}

// heldSnapshot is the snapshot without the queue: what there is and who holds it.
func (d *Daemon) heldSnapshot() scheduler.Snapshot {
	var b books
	s := d.heldIn(&b)
	s.Accounts = b.list
	return s
}

func (d *Daemon) heldIn(b *books) scheduler.Snapshot {
	s := scheduler.Snapshot{HostCPUs: d.o.System.CPUs, HostMemory: d.o.System.Memory}
	s.Devices, s.DevicesKnown = d.schedulable()
	for _, a := range d.state.sortedAttempts() {
		if e := d.state.jobs[a.ID.Job]; e != nil && a.Allocation.State.Holds() {
			h := d.heldBy(e, a)
			h.Accounts, _ = d.accountsOfJob(b, &e.job)
			s.Held = append(s.Held, h)
		}
	}
	return s
}

func (d *Daemon) heldBy(e *entry, a *engine.Attempt) scheduler.Held {
	h := scheduler.Held{Job: a.ID.Job, Owner: e.job.Owner.UID, Class: e.job.Spec.Class, Allocation: a.Allocation,
		Stopping: e.job.State == engine.Stopping || a.Allocation.State == engine.Releasing, For: a.StoppedFor,
		Started: a.Started, Preemptions: e.job.Displaced,
		Checkpoints: e.job.Spec.Checkpoint, CheckpointEvery: e.job.Spec.CheckpointEvery,
		Actual: map[engine.DeviceID]engine.Bytes{}}
	if e.job.Spec.TimeLimit > 0 {
		began := a.Started
		if began.IsZero() {
			began = a.Granted
		}
		h.End = began.Add(e.job.Spec.TimeLimit)
	}
	for _, g := range a.Allocation.Grants {
		if ds := d.state.devices[g.Device]; ds != nil {
			h.Actual[g.Device] = ds.actual[a.ID]
		}
	}
	return h
}

func (d *Daemon) pendingOf(e *entry, b *books) scheduler.Pending {
	j := &e.job
	p := scheduler.Pending{Job: j.ID, Owner: j.Owner.UID, Class: j.Spec.Class, Queued: j.Queued, Request: j.Spec.Request,
		TimeLimit: j.Spec.TimeLimit, NotBefore: j.NotBefore, Promised: j.Promised}
	var known bool
	p.Accounts, known = d.accountsOfJob(b, j)
	switch {
	case j.Held:
		p.Wait = engine.ReasonHeld
		if j.HeldBy != "" {
			p.WaitDetail = "by " + j.HeldBy
		}
	case !j.Prepared && e.away != "":
		p.Wait, p.WaitDetail = engine.AgentUnavailable, e.away
	case len(e.unmet) > 0:
		p.Wait, p.WaitDetail = engine.DependencyPending, awaited(e.unmet)
	case j.NotBefore.After(d.o.System.Now()):
	case !j.Prepared || j.State == engine.Preparing:
		p.Wait = engine.ReasonPreparing
	case !known:
		p.Wait, p.WaitDetail = engine.OverQuota, "the groups of "+j.Owner.Name+" are not known yet"
	case j.Spec.Request.WantsGPU():
		if why := d.overBudget(b, j); why != "" {
			p.Wait, p.WaitDetail = engine.OverQuota, why
		}
	}
	return p
}

// applyStart re-checks one proposal with the scheduler's own rules, persists the allocation, and only then lets
// the attempt begin.
func (d *Daemon) applyStart(s scheduler.Start) {
	e := d.state.jobs[s.Job]
	if e == nil || e.job.State != engine.Pending || e.job.Held {
		return
	}
	alloc := s.Allocation
	var b books
	now := d.heldIn(&b)
	j := d.pendingOf(e, &b)
	now.Accounts = b.list
	if !scheduler.StillFits(now, j, alloc, d.policy().Scheduler, d.o.System.Now()) {
		d.log.Warn("planned start does not fit any more", "job", s.Job)
		return
	}
	unlock, err := d.lockDevices(alloc)
	if err != nil {
		d.log.Debug("device is locked by another daemon", "job", s.Job, "err", err)
		d.queue.kick() // without that card
		return
	}
	number := e.job.Attempts + 1
	id := engine.AttemptID{Job: s.Job, Number: number}
	alloc.State = engine.Granted
	err = d.transact(s.Job, 0, func(c *change) error {
		if err := c.move(engine.EvGrant); err != nil {
			return err
		}
		c.job.Attempts, c.job.Started, c.job.Promised = number, time.Time{}, false
		c.job.StopReason, c.job.Message = "", ""
		c.attempt = &engine.Attempt{ID: id, Container: id.ContainerName(d.store.Instance()),
			BootID: d.o.System.BootID, Allocation: alloc, Granted: c.now}
		c.event("granted", d.describeGrant(alloc))
		return nil
	})
	if err != nil {
		for _, f := range unlock {
			f()
		}
		d.log.Error("allocation not saved", "job", s.Job, "err", err)
		return
	}
	d.keepLocks(unlock)
	d.begin(id, false)
}

// publish makes a job's view anew and tells the watchers.
func (d *Daemon) publish(e *entry) {
	e.view = d.view(e)
	d.hub.job(e.view)
	if e.job.State.Final() {
		for _, id := range d.state.trim() {
			d.hub.removed(id)
		}
	}
}
