package daemon

import (
	"fmt"
	"strings"
	"time"

	"gputop/engine"
	"gputop/engine/scheduler"
)

// elsewhereFor is how long a card that another daemon has locked counts as busy before it is tried again.
const elsewhereFor = 5 * time.Second

// staleAfter is the age from which a sample is no longer the truth.
const staleAfter = 5 * time.Second

// unexplainedMemory is how much memory may be used beyond what the processes account for (driver, contexts being made)
// before it counts as somebody's.
const unexplainedMemory = 768 * engine.MiB

// TakeSample takes over a new sample. It is called by the sampler's supervisor.
func (d *Daemon) TakeSample(s engine.Sample) {
	_ = d.do(d.runCtx, func() { d.takeSample(s) })
}

func (d *Daemon) takeSample(s engine.Sample) {
	d.seeFaults(&s)
	st := d.state
	st.sample, st.sampleBoot, st.stale = s, d.o.System.Boottime(), false
	if st.samples++; st.samples == 1 {
		close(d.seen)
		d.checkSpecs()
	}
	byNamespace := map[uint64]engine.AttemptID{}
	byPID := map[int]engine.AttemptID{}
	for id, a := range st.attempts {
		if !a.Allocation.State.Holds() || a.PID == 0 {
			continue
		}
		byPID[a.PID] = id
		if a.PIDNamespace != 0 {
			byNamespace[a.PIDNamespace] = id
		}
	}
	seen := map[engine.DeviceID]*deviceState{}
	var strangers []stranger
	for i := range s.GPUs {
		g := &s.GPUs[i]
		ds := &deviceState{actual: map[engine.AttemptID]engine.Bytes{}, sm: map[engine.AttemptID]float64{}}
		if old := st.devices[g.UUID]; old != nil {
			ds.unlock, ds.elsewhere = old.unlock, old.elsewhere
		}
		var known engine.Bytes
		for _, p := range processesOf(g) {
			mem := bytesOf(p.Memory)
			known += mem
			id, ok := byNamespace[p.PIDNamespace]
			if !ok || p.PIDNamespace == 0 {
				id, ok = byPID[p.PID]
			}
			if ok {
				ds.actual[id] += mem
				if p.SM != nil {
					ds.sm[id] += *p.SM
				}
			} else {
				ds.foreign += mem
				ds.foreignProcesses++
				strangers = append(strangers, stranger{g.UUID, g.Index, p})
			}
		}
		// Memory that no process owns up to is somebody's: a zombie, a process of another namespace.
		if used := bytesOf(g.MemoryUsed); used > known+unexplainedMemory {
			ds.foreign += used - known
		}
		seen[g.UUID] = ds
	}
	for id, old := range st.devices {
		if seen[id] == nil && old.unlock != nil {
			seen[id] = old // the card is not seen now, but an attempt holds its lock
		}
	}
	st.devices = seen
	d.countOutside(strangers)
	d.lockHeld()
	d.hub.gpus(d.gpusView())
	d.publishUse()
	d.seeCurves()
	d.guardShares()
	d.endOnLostCards()
	d.seeUse()
	d.queue.kick()
}

// publishUse publishes running jobs whose memory use has changed.
func (d *Daemon) publishUse() {
	for id := range d.state.attempts {
		e := d.state.jobs[id.Job]
		if e == nil || e.view == nil || e.job.State != engine.Running || id.Number != e.job.Attempts {
			continue
		}
		was, is := e.view.GPUMemoryUsed, d.memoryUsed(id)
		if (was == nil) != (is == nil) || was != nil && *was != *is {
			d.publish(e)
		}
	}
}

// memoryUsed is what an attempt's processes hold on its devices; nil when that is unknown.
func (d *Daemon) memoryUsed(id engine.AttemptID) *engine.Bytes {
	a := d.state.attempts[id]
	if a == nil || len(a.Allocation.Grants) == 0 || d.state.samples == 0 || d.state.stale {
		return nil
	}
	var sum engine.Bytes
	for _, g := range a.Allocation.Grants {
		ds := d.state.devices[g.Device]
		if ds == nil {
			return nil
		}
		sum += ds.actual[id]
	}
	return &sum
}

func processesOf(g *engine.GPU) []engine.GPUProcess {
	list := g.Processes
	for _, m := range g.MIG {
		list = append(list[:len(list):len(list)], m.Processes...)
	}
	return list
}

func bytesOf(b *engine.Bytes) engine.Bytes {
	if b == nil {
		return 0
	}
	return *b
}

// publishStaleness tells the watchers when the sampler has gone quiet.
func (d *Daemon) publishStaleness() {
	st := d.state
	if st.samples > 0 && !st.stale && d.o.System.Boottime()-st.sampleBoot > staleAfter.Nanoseconds() {
		st.stale = true
		d.hub.gpus(d.gpusView())
	}
}

// schedulable is the cards in the scheduler's words. Nothing is started on numbers that are old.
func (d *Daemon) schedulable() ([]scheduler.Device, bool) {
	st := d.state
	if st.samples == 0 || st.sample.Error != "" && len(st.sample.GPUs) == 0 {
		return nil, false
	}
	list := make([]scheduler.Device, 0, len(st.sample.GPUs))
	for i := range st.sample.GPUs {
		g := &st.sample.GPUs[i]
		ds := st.devices[g.UUID]
		dev := scheduler.Device{ID: g.UUID, Index: g.Index, Model: g.Model, Usable: g.Usable(), Foreign: ds.foreign,
			Windows:     d.windows(g.UUID),
			ForeignBusy: d.o.Mode == Personal && (ds.foreignProcesses > 0 || ds.elsewhere > d.o.System.Boottime())}
		if g.Temperature != nil {
			dev.Temperature = *g.Temperature
		}
		for _, p := range g.Peers {
			if dev.Near == nil {
				dev.Near = map[engine.DeviceID]int{}
			}
			dev.Near[p.Device] = p.Closeness()
		}
		switch {
		case g.Health != engine.HealthOK, st.stale:
			dev.Unavailable = engine.DeviceNotAnswering
		case st.unresolvable[g.UUID] != "":
			dev.Unavailable = engine.DeviceUnresolvable
		case g.MIGMode, g.ComputeMode == engine.ComputeProhibited:
			dev.Unavailable = engine.BlockedBySize // cut into MIG devices, or closed by its compute mode: not to be had whole or as a share
		}
		if g.ComputeMode == engine.ComputeExclusive {
			dev.WholeOnly = true // one process at a time
		}
		list = append(list, dev)
	}
	return list, true
}

// describeGrant is an allocation in words, for the job's events.
func (d *Daemon) describeGrant(a engine.Allocation) string {
	if len(a.Grants) == 0 {
		return "no GPU"
	}
	parts := make([]string, 0, len(a.Grants))
	for _, g := range a.Grants {
		name := string(g.Device)
		if i := d.indexOf(g.Device); i >= 0 {
			name = fmt.Sprintf("GPU %d (%s)", i, g.Device)
		}
		if !g.Whole {
			name = fmt.Sprintf("%s of %s", g.Memory, name)
		}
		parts = append(parts, name)
	}
	return strings.Join(parts, ", ")
}

func (d *Daemon) indexOf(id engine.DeviceID) int {
	for i := range d.state.sample.GPUs {
		if d.state.sample.GPUs[i].UUID == id {
			return d.state.sample.GPUs[i].Index
		}
	}
	return -1
}

// lockDevices takes the machine-wide locks of the cards that no attempt of ours holds yet. Two personal daemons of two
// people must not give the same card away.
func (d *Daemon) lockDevices(a engine.Allocation) (unlock map[engine.DeviceID]func(), err error) {
	unlock = map[engine.DeviceID]func(){}
	if d.o.System.LockDevice == nil {
		return unlock, nil
	}
	for _, g := range a.Grants {
		if ds := d.state.devices[g.Device]; ds == nil || ds.unlock != nil {
			continue
		}
		f, err := d.o.System.LockDevice(g.Device)
		if err != nil {
			d.state.devices[g.Device].elsewhere = d.o.System.Boottime() + elsewhereFor.Nanoseconds()
			for _, u := range unlock {
				u()
			}
			return nil, err
		}
		unlock[g.Device] = f
	}
	return unlock, nil
}

// lockHeld takes the locks of cards that attempts of an earlier daemon hold: its own ended with it.
func (d *Daemon) lockHeld() {
	if d.o.System.LockDevice == nil {
		return
	}
	for _, a := range d.state.attempts {
		if !a.Allocation.State.Holds() {
			continue
		}
		unlock, err := d.lockDevices(a.Allocation)
		if err != nil && d.state.samples == 1 {
			d.log.Error("a card of a running job has been given out by another daemon", "attempt", a.ID, "err", err)
		}
		d.keepLocks(unlock)
	}
}

func (d *Daemon) keepLocks(unlock map[engine.DeviceID]func()) {
	for id, f := range unlock {
		if ds := d.state.devices[id]; ds != nil {
			ds.unlock = f
		} else {
			f()
		}
	}
}

// unlockDevices drops the locks of cards that no attempt holds any more.
func (d *Daemon) unlockDevices(a engine.Allocation) {
	held := map[engine.DeviceID]bool{}
	for _, o := range d.state.attempts {
		if o.Allocation.State.Holds() {
			for _, g := range o.Allocation.Grants {
				held[g.Device] = true
			}
		}
	}
	for _, g := range a.Grants {
		if ds := d.state.devices[g.Device]; ds != nil && ds.unlock != nil && !held[g.Device] {
			ds.unlock()
			ds.unlock = nil
		}
	}
}
