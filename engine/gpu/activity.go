package gpu

import (
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"gputop/engine"
)

// loadAge is how long a process's last known load is shown: the driver gives none for many looks in a row.
const loadAge = 5 * time.Second

// activity fills in the share of SMs at work and of the memory's bandwidth, and traffic; where the card does not measure
// that, the shares of time in which any kernel ran and any memory was used.
func (c *Collector) activity(g *engine.GPU, d nvml.Device, now time.Time) {
	var m gpmReading
	if c.gpmSupported(d) {
		m = c.gpmRead(gpmKey{g.UUID, noInstance}, d.GpmSampleGet, now)
	}
	g.SM, g.MemoryBandwidth = m.sm, m.bandwidth
	if m.sm != nil {
		g.SMSource = engine.SourceGPM
	}
	if m.bandwidth != nil {
		g.MemoryBandwidthSource = engine.SourceGPM
	}
	c.traffic(g, d, m)
	if m.sm != nil && m.bandwidth != nil {
		return
	}
	u, r := d.GetUtilizationRates()
	if !c.healthy(g, r) {
		return
	}
	if m.sm == nil && u.Gpu <= 100 {
		g.SM, g.SMSource = ptr(float64(u.Gpu)/100), engine.SourceUtilization
	}
	if m.bandwidth == nil && u.Memory <= 100 {
		g.MemoryBandwidth, g.MemoryBandwidthSource = ptr(float64(u.Memory)/100), engine.SourceUtilization
	}
}

// processLoad is what is known of the loads of a card's processes.
type processLoad struct {
	seen uint64 // the newest time stamp, in microseconds as the driver counts
	load map[engine.ProcessKey]loadAt
}

type loadAt struct {
	stamp uint64
	share float64
	at    time.Time
}

// processActivity fills in the SM share of each process. A process keeps its last value for loadAge, so that it does
// not flicker.
func (c *Collector) processActivity(g *engine.GPU, d nvml.Device, now time.Time) {
	if len(g.Processes) == 0 || !c.has("nvmlDeviceGetProcessUtilization") {
		return
	}
	p := c.load[g.UUID]
	if p == nil {
		p = &processLoad{load: map[engine.ProcessKey]loadAt{}}
		c.load[g.UUID] = p
	}
	samples, r := d.GetProcessUtilization(p.seen)
	if r == nvml.ERROR_NOT_SUPPORTED {
		return
	}
	if r == nvml.SUCCESS {
		keys := map[uint32]engine.ProcessKey{}
		for i := range g.Processes {
			keys[uint32(g.Processes[i].PID)] = g.Processes[i].Key(g.UUID)
		}
		for _, s := range samples {
			p.seen = max(p.seen, s.TimeStamp)
			if k, ok := keys[s.Pid]; ok && s.SmUtil <= 100 && s.TimeStamp >= p.load[k].stamp {
				p.load[k] = loadAt{stamp: s.TimeStamp, share: float64(s.SmUtil) / 100, at: now}
			}
		}
	}
	for k, l := range p.load {
		if now.Sub(l.at) > loadAge {
			delete(p.load, k)
		}
	}
	for i := range g.Processes {
		if l, ok := p.load[g.Processes[i].Key(g.UUID)]; ok {
			g.Processes[i].SM, g.Processes[i].SMAge = ptr(l.share), max(0, now.Sub(l.at).Seconds())
		}
	}
}
