package daemon

import (
	"context"
	"maps"
	"slices"
	"time"

	"gputop/cdi"
	"gputop/engine"
)

// specsEvery is how often the cards' CDI specs are looked at.
const specsEvery = 5 * time.Second

// checkSpecs looks, outside the loop, whether a container could be given each card. A spec that is missing or has gone
// stale with a driver is no fault of any job: the card is not offered until it is mended.
func (d *Daemon) checkSpecs() {
	now := d.o.System.Boottime()
	names := d.cardNames()
	if len(names) == 0 || d.specsBusy || d.specsAt != 0 && now-d.specsAt < specsEvery.Nanoseconds() {
		return
	}
	d.specsBusy, d.specsAt = true, now
	d.goWork(func(ctx context.Context) {
		found := d.unresolved(names)
		if len(found) > 0 && d.o.LeaseDir != "" && len(d.o.Devices) > 0 {
			// The spec of simulated cards is ours: somebody has removed it.
			if _, err := cdi.WriteSimulated(d.o.LeaseDir, d.store.Instance(), d.o.Devices); err != nil {
				d.log.Error("spec of the simulated cards not written", "err", err)
			}
			found = d.unresolved(names)
		}
		_ = d.do(ctx, func() {
			d.specsBusy = false
			if maps.Equal(found, d.state.unresolvable) {
				return
			}
			for id, why := range found {
				d.log.Error("no container can be given a card", "device", id, "why", why)
			}
			d.state.unresolvable = found
			d.queue.kick()
		})
	})
}

// unresolved says of cards, by their CDI names, why no container can be given them.
func (d *Daemon) unresolved(names map[engine.DeviceID]string) map[engine.DeviceID]string {
	found := map[engine.DeviceID]string{}
	for id, name := range names {
		if _, err := d.finder().Resolve(name); err != nil {
			found[id] = err.Error()
		}
	}
	return found
}

// cardNames are the CDI names of the cards that jobs get by name.
func (d *Daemon) cardNames() map[engine.DeviceID]string {
	names := map[engine.DeviceID]string{}
	for i := range d.state.sample.GPUs {
		id := d.state.sample.GPUs[i].UUID
		simulated := slices.ContainsFunc(d.o.Devices, func(s cdi.SimulatedDevice) bool { return s.Name == string(id) })
		switch {
		case !simulated:
			names[id] = cdi.GPUKind + "=" + string(id)
		case d.o.LeaseDir != "":
			names[id] = cdi.SimulatedKind + "=" + string(id)
		}
	}
	return names
}

// whyUnresolvable is the sentence for a job that waits for such a card.
func (d *Daemon) whyUnresolvable() string {
	for _, id := range slices.Sorted(maps.Keys(d.state.unresolvable)) {
		return d.state.unresolvable[id]
	}
	return ""
}
