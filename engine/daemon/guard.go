package daemon

import (
	"fmt"
	"time"

	"gputop/engine"
	"gputop/engine/notice"
	"gputop/engine/store"
)

// Guard says what is done about a job that takes more GPU memory than the share it was given. It looks after the fact: what
// is taken is taken, until the job is stopped.
type Guard string

// What is done.
const (
	GuardOff  Guard = "off"
	GuardWarn Guard = "warn" // its owner is told
	GuardStop Guard = "stop" // and it is stopped when it goes on for a while
)

// ParseGuard reads a word.
func ParseGuard(s string) (Guard, error) {
	switch g := Guard(s); g {
	case GuardOff, GuardWarn, GuardStop:
		return g, nil
	}
	return "", fmt.Errorf("%q: want %s, %s or %s", s, GuardOff, GuardWarn, GuardStop)
}

// guardSamples is how many samples in a row have to show too much: one may fall between a free and the next look.
const guardSamples = 2

// guardSlack is how much more than its share a job may hold: what the driver rounds up, and small buffers of its own.
func guardSlack(share engine.Bytes) engine.Bytes { return max(64*engine.MiB, share/50) }

// overuse is an attempt that holds more than its share.
type overuse struct {
	samples int
	since   int64 // CLOCK_BOOTTIME nanoseconds
	told    bool
}

// guardShares looks in the newest sample for jobs that hold more than their share.
func (d *Daemon) guardShares() {
	mode, now := d.policy().Guard, d.o.System.Boottime()
	for id := range d.over {
		if a := d.state.attempts[id]; a == nil || a.Allocation.State != engine.Active {
			delete(d.over, id)
		}
	}
	for id, a := range d.state.attempts {
		e := d.state.jobs[id.Job]
		if mode == GuardOff || e == nil || e.job.State != engine.Running || id.Number != e.job.Attempts || a.Allocation.State != engine.Active {
			continue
		}
		grant, used := d.beyondShare(a)
		if grant == nil {
			delete(d.over, id)
			continue
		}
		o := d.over[id]
		if o == nil {
			o = &overuse{since: now}
			d.over[id] = o
		}
		if o.samples++; o.samples >= guardSamples {
			d.guard(e, id, o, grant, used)
		}
	}
}

// beyondShare is the share of an attempt that it holds most beyond, and what it holds there; nil when it keeps to all.
func (d *Daemon) beyondShare(a *engine.Attempt) (worst *engine.Grant, used engine.Bytes) {
	for i := range a.Allocation.Grants {
		g := &a.Allocation.Grants[i]
		ds := d.state.devices[g.Device]
		if ds == nil || g.Whole {
			continue
		}
		if n := ds.actual[a.ID]; n > g.Memory+guardSlack(g.Memory) && (worst == nil || n-g.Memory > used-worst.Memory) {
			worst, used = g, n
		}
	}
	return worst, used
}

// guard tells the owner, and stops the job when it has gone on for long enough.
func (d *Daemon) guard(e *entry, id engine.AttemptID, o *overuse, g *engine.Grant, used engine.Bytes) {
	pol := d.policy()
	grace := pol.GuardGrace
	if pol.Guard != GuardStop {
		grace = 0
	}
	if !o.told {
		n := notice.OverShare(&e.job, d.o.System.Now(), used, g.Memory, grace)
		o.told = d.tellNow([]*store.Notice{d.forStore(&e.job, n)}, store.AddEvent(engine.Event{Time: n.Time, Job: id.Job, Kind: "over-share", Text: n.Text}))
	}
	if pol.Guard != GuardStop || time.Duration(d.o.System.Boottime()-o.since) < pol.GuardGrace {
		return
	}
	text := fmt.Sprintf("stopped: it held %s of GPU memory, more than the %s it asked for; ask for more with --gpu-mem or a larger --gpu-fraction", used, g.Memory)
	if err := d.stopActive(e, engine.StopMemory, text); err != nil {
		d.log.Error("job beyond its share not stopped, trying again", "job", id.Job, "err", err)
	}
}
