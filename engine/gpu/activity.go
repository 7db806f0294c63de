package gpu

import (
	"math"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"gputop/engine"
)

// gpmGap is how far apart two GPM samples have to be, by NVIDIA's manual.
const gpmGap = 100 * time.Millisecond

// loadAge is how long a process's last known load is shown: the driver gives none for many looks in a row.
const loadAge = 5 * time.Second

// noInstance stands for a whole card in gpmKey.
const noInstance = -1

type gpmKey struct {
	card     engine.DeviceID
	instance int
}

// gpmState is the last GPM sample of a card or GPU instance and the activity found from the one before.
type gpmState struct {
	at     time.Time
	sample nvml.GpmSample
	last   *float64
}

// activity fills in the share of SMs at work, or where the card does not measure that, the share of time in which any
// kernel ran.
func (c *Collector) activity(g *engine.GPU, d nvml.Device, now time.Time) {
	if c.gpmSupported(d) {
		if v := c.gpmActivity(gpmKey{g.UUID, noInstance}, d.GpmSampleGet, now); v != nil {
			g.SM, g.SMSource = v, "gpm"
			return
		}
	}
	if u, r := d.GetUtilizationRates(); c.healthy(g, r) && u.Gpu <= 100 {
		g.SM, g.SMSource = ptr(float64(u.Gpu)/100), "utilization"
	}
}

func (c *Collector) gpmSupported(d nvml.Device) bool {
	for _, s := range []string{"nvmlGpmQueryDeviceSupport", "nvmlGpmSampleAlloc", "nvmlGpmSampleGet", "nvmlGpmMetricsGet", "nvmlGpmSampleFree"} {
		if !c.has(s) {
			return false
		}
	}
	s, r := d.GpmQueryDeviceSupport()
	return r == nvml.SUCCESS && s.IsSupportedDevice != 0
}

// gpmActivity takes a sample with get and compares it with the last one; nil when there is none yet.
func (c *Collector) gpmActivity(k gpmKey, get func(nvml.GpmSample) nvml.Return, now time.Time) *float64 {
	st := c.gpm[k]
	if st != nil && now.Sub(st.at) < gpmGap && now.Sub(st.at) >= 0 {
		return st.last
	}
	sample, r := c.lib.GpmSampleAlloc()
	if r != nvml.SUCCESS {
		return nil
	}
	if r := get(sample); r != nvml.SUCCESS {
		c.lib.GpmSampleFree(sample)
		return nil
	}
	if st == nil {
		c.gpm[k] = &gpmState{at: now, sample: sample}
		return nil
	}
	m := &nvml.GpmMetricsGetType{NumMetrics: 1, Sample1: st.sample, Sample2: sample}
	m.Metrics[0].MetricId = uint32(nvml.GPM_METRIC_SM_UTIL)
	r = c.lib.GpmMetricsGet(m)
	c.freeGPM(st)
	st.at, st.sample = now, sample
	if v := m.Metrics[0]; r == nvml.SUCCESS && nvml.Return(v.NvmlReturn) == nvml.SUCCESS && !math.IsNaN(v.Value) {
		st.last = ptr(min(1, max(0, v.Value/100)))
	} else {
		st.last = nil
	}
	return st.last
}

func (c *Collector) freeGPM(st *gpmState) {
	if st.sample != nil {
		c.lib.GpmSampleFree(st.sample)
		st.sample = nil
	}
}

// processLoad is what is known of the loads of a card's processes.
type processLoad struct {
	seen uint64 // the newest time stamp, in microseconds as the driver counts
	load map[int]loadAt
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
		p = &processLoad{load: map[int]loadAt{}}
		c.load[g.UUID] = p
	}
	samples, r := d.GetProcessUtilization(p.seen)
	if r == nvml.ERROR_NOT_SUPPORTED {
		return
	}
	if r == nvml.SUCCESS {
		for _, s := range samples {
			p.seen = max(p.seen, s.TimeStamp)
			pid := int(s.Pid)
			if s.SmUtil <= 100 && s.TimeStamp >= p.load[pid].stamp {
				p.load[pid] = loadAt{stamp: s.TimeStamp, share: float64(s.SmUtil) / 100, at: now}
			}
		}
	}
	for pid, l := range p.load {
		if now.Sub(l.at) > loadAge {
			delete(p.load, pid)
		}
	}
	for i := range g.Processes {
		if l, ok := p.load[g.Processes[i].PID]; ok {
			g.Processes[i].SM = ptr(l.share)
		}
	}
}
