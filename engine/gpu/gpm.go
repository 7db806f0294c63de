package gpu

import (
	"math"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"gputop/engine"
)

// gpmGap is how far apart two GPM samples have to be, by NVIDIA's manual.
const gpmGap = 100 * time.Millisecond

// noInstance stands for a whole card in gpmKey.
const noInstance = -1

type gpmKey struct {
	card     engine.DeviceID
	instance int
}

// gpmReading is what a card's counters say of the time between two samples. Shares are 0 to 1, rates bytes a second;
// nil is not measured.
type gpmReading struct {
	sm, bandwidth             *float64
	pcieReceive, pcieTransmit *float64
	linkReceive, linkTransmit *float64
}

// gpmState is the last GPM sample of a card or GPU instance and what was found from the one before.
type gpmState struct {
	at     time.Time
	sample nvml.GpmSample
	last   gpmReading
}

// The metrics that are asked for, in this order. Rates are in MiB a second, by the header's comments.
var gpmMetrics = []nvml.GpmMetricId{nvml.GPM_METRIC_SM_UTIL, nvml.GPM_METRIC_DRAM_BW_UTIL, nvml.GPM_METRIC_PCIE_RX_PER_SEC,
	nvml.GPM_METRIC_PCIE_TX_PER_SEC, nvml.GPM_METRIC_NVLINK_TOTAL_RX_PER_SEC, nvml.GPM_METRIC_NVLINK_TOTAL_TX_PER_SEC}

var gpmSymbols = []string{"nvmlGpmQueryDeviceSupport", "nvmlGpmSampleAlloc", "nvmlGpmSampleGet", "nvmlGpmMetricsGet", "nvmlGpmSampleFree"}

func (c *Collector) gpmSupported(d nvml.Device) bool {
	if !c.hasAll(gpmSymbols) {
		return false
	}
	s, r := d.GpmQueryDeviceSupport()
	return r == nvml.SUCCESS && s.IsSupportedDevice != 0
}

// gpmRead takes a sample with get and compares it with the last one; empty when there is none yet.
func (c *Collector) gpmRead(k gpmKey, get func(nvml.GpmSample) nvml.Return, now time.Time) gpmReading {
	st := c.gpm[k]
	if st != nil && now.Sub(st.at) < gpmGap && now.Sub(st.at) >= 0 {
		return st.last
	}
	sample, r := c.lib.GpmSampleAlloc()
	if r != nvml.SUCCESS {
		return gpmReading{}
	}
	if r := get(sample); r != nvml.SUCCESS {
		c.lib.GpmSampleFree(sample)
		return gpmReading{}
	}
	if st == nil {
		c.gpm[k] = &gpmState{at: now, sample: sample}
		return gpmReading{}
	}
	st.last = c.gpmCompare(st.sample, sample)
	c.freeGPM(st)
	st.at, st.sample = now, sample
	return st.last
}

func (c *Collector) gpmCompare(from, to nvml.GpmSample) gpmReading {
	m := &nvml.GpmMetricsGetType{NumMetrics: uint32(len(gpmMetrics)), Sample1: from, Sample2: to}
	for i, id := range gpmMetrics {
		m.Metrics[i].MetricId = uint32(id)
	}
	if c.lib.GpmMetricsGet(m) != nvml.SUCCESS {
		return gpmReading{}
	}
	value := func(i int, scale, most float64) *float64 {
		v := m.Metrics[i]
		if nvml.Return(v.NvmlReturn) != nvml.SUCCESS || math.IsNaN(v.Value) || math.IsInf(v.Value, 0) {
			return nil
		}
		return ptr(min(most, max(0, v.Value*scale)))
	}
	const percent, mib, fastest = 0.01, float64(engine.MiB), 1e15
	return gpmReading{sm: value(0, percent, 1), bandwidth: value(1, percent, 1), pcieReceive: value(2, mib, fastest),
		pcieTransmit: value(3, mib, fastest), linkReceive: value(4, mib, fastest), linkTransmit: value(5, mib, fastest)}
}

func (c *Collector) freeGPM(st *gpmState) {
	if st.sample != nil {
		c.lib.GpmSampleFree(st.sample)
		st.sample = nil
	}
}

// forgetGPM drops the samples that nobody has asked for since a time: of MIG devices that are gone.
func (c *Collector) forgetGPM(before time.Time) {
	for k, g := range c.gpm {
		if g.at.Before(before) {
			c.freeGPM(g)
			delete(c.gpm, k)
		}
	}
}
