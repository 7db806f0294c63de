package gpu

import (
	"fmt"
	"slices"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"gputop/engine"
)

// maxXIDs is how many of a card's last errors are kept.
const maxXIDs = 8

// maxEvents bounds the events taken in one sample: a card can report faster than anybody reads.
const maxEvents = 256

var eventSymbols = []string{"nvmlEventSetCreate", "nvmlEventSetFree", "nvmlDeviceGetSupportedEventTypes", "nvmlDeviceRegisterEvents"}

// listener hears what the driver reports of the cards. The errors of a card outlive the session.
type listener struct {
	set   nvml.EventSet
	heard map[engine.DeviceID]bool // the cards that are listened to
	xids  map[engine.DeviceID][]engine.XID
}

// listen makes the set of events of a new session; cards are added as they are seen.
func (c *Collector) listen() {
	c.errors.set, c.errors.heard = nil, map[engine.DeviceID]bool{}
	if !c.hasAll(eventSymbols) || !c.has("nvmlEventSetWait_v2") && !c.has("nvmlEventSetWait") {
		return
	}
	if set, r := c.lib.EventSetCreate(); r == nvml.SUCCESS {
		c.errors.set = set
	}
}

// listenTo adds a card, once a session. Registering fails as a whole if the card does not know one of the events.
func (c *Collector) listenTo(id engine.DeviceID, d nvml.Device) {
	l := &c.errors
	if _, asked := l.heard[id]; asked || l.set == nil {
		return
	}
	l.heard[id] = false
	known, r := d.GetSupportedEventTypes()
	if r != nvml.SUCCESS || known&nvml.EventTypeXidCriticalError == 0 {
		return
	}
	want := known & (nvml.EventTypeXidCriticalError | nvml.EventMigConfigChange)
	l.heard[id] = d.RegisterEvents(want, l.set) == nvml.SUCCESS
}

// hear takes the events that have come since the last sample.
func (c *Collector) hear(now time.Time) {
	l := &c.errors
	if l.set == nil || !slices.Contains(values(l.heard), true) {
		return
	}
	for range maxEvents {
		// A wait of 1 ms: 0 is not described. ERROR_TIMEOUT is the usual answer, that there is nothing; a lost card shows
		// in its own row.
		e, r := l.set.Wait(1)
		if r != nvml.SUCCESS {
			return
		}
		if e.EventType&nvml.EventMigConfigChange != 0 {
			c.layout.outdated = true
		}
		if e.EventType&nvml.EventTypeXidCriticalError == 0 || e.Device == nil {
			continue
		}
		if id, r := e.Device.GetUUID(); r == nvml.SUCCESS {
			l.note(engine.DeviceID(id), int(e.EventData), now)
		} else if r == nvml.ERROR_GPU_IS_LOST {
			// It no longer says which card it is. With one card there is no doubt.
			if len(l.heard) == 1 {
				for id := range l.heard {
					l.note(id, int(e.EventData), now)
				}
			}
		}
	}
}

func values(m map[engine.DeviceID]bool) (out []bool) {
	for _, v := range m {
		out = append(out, v)
	}
	return out
}

func (l *listener) note(id engine.DeviceID, code int, now time.Time) {
	if code <= 0 || code > 1<<16 {
		return
	}
	list := l.xids[id]
	if n := len(list); n > 0 && list[n-1].Code == code {
		last := list[n-1]
		last.Count++
		last.Time = now
		l.xids[id] = append(slices.Clone(list[:n-1]), last)
		return
	}
	// A hardware error is never pushed out by those of programs.
	if len(list) >= maxXIDs {
		i := max(slices.IndexFunc(list, engine.XID.Application), 0)
		list = slices.Delete(slices.Clone(list), i, i+1)
	}
	l.xids[id] = append(slices.Clone(list), engine.XID{Code: code, Time: now, Count: 1})
}

// reported puts a card's errors in its row. One of the hardware makes the card unhealthy until the sampler is started
// again; those of programs do not.
func (c *Collector) reported(g *engine.GPU) {
	g.XIDs, g.XIDsKnown = c.errors.xids[g.UUID], c.errors.heard[g.UUID]
	for _, x := range slices.Backward(g.XIDs) {
		if x.Application() {
			continue
		}
		what := fmt.Sprintf("Xid %d was reported at %s: an error of the hardware or the driver; see dmesg", x.Code, x.Time.Format("15:04:05"))
		switch g.Health {
		case engine.HealthOK:
			g.Health, g.HealthDetail, g.FaultXID = engine.HealthFault, what, x.Code
		case engine.HealthLost:
			g.HealthDetail = fmt.Sprintf("%s (Xid %d)", lostDetail, x.Code)
		}
		return
	}
}

func (l *listener) free() {
	if l.set != nil {
		l.set.Free()
		l.set = nil
	}
}
