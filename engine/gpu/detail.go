package gpu

import (
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"gputop/engine"
)

// slowAge is how long settings and counts are kept that seldom change, so that looking costs little.
const slowAge = 5 * time.Second

// slowDetail is the part of a card's detail that is asked for now and then.
type slowDetail struct {
	at     time.Time
	detail engine.CardDetail
}

// detail fills in clocks, fan, link, errors and settings.
func (c *Collector) detail(g *engine.GPU, d nvml.Device, now time.Time) {
	s := c.slow[g.UUID]
	if s == nil || now.Sub(s.at) >= slowAge || now.Before(s.at) {
		s = &slowDetail{at: now, detail: c.slowDetail(g, d)}
		c.slow[g.UUID] = s
	}
	g.CardDetail = s.detail
	if s.detail.PCIe != nil {
		g.PCIe = ptr(*s.detail.PCIe) // the traffic differs from sample to sample
	}
	if s.detail.NVLink != nil {
		g.NVLink = ptr(*s.detail.NVLink)
	}
	g.ClockSM = c.clock(g, "nvmlDeviceGetClockInfo", d.GetClockInfo, nvml.CLOCK_SM)
	g.ClockMemory = c.clock(g, "nvmlDeviceGetClockInfo", d.GetClockInfo, nvml.CLOCK_MEM)
	g.Throttle = c.throttle(g, d)
	// A fan may turn faster than its nominal maximum; what is far beyond is no speed.
	if v := ask(c, g, "nvmlDeviceGetFanSpeed", d.GetFanSpeed); v != nil && *v <= 200 {
		g.Fan = ptr(int(*v))
	}
}

func (c *Collector) slowDetail(g *engine.GPU, d nvml.Device) (out engine.CardDetail) {
	out.ClockSMMax = c.clock(g, "nvmlDeviceGetMaxClockInfo", d.GetMaxClockInfo, nvml.CLOCK_SM)
	out.ClockMemoryMax = c.clock(g, "nvmlDeviceGetMaxClockInfo", d.GetMaxClockInfo, nvml.CLOCK_MEM)
	if !g.MemoryUnified {
		out.PCIe = c.link(g, d)
	}
	out.NVLink = c.nvlink(g, d)
	out.ECC = c.ecc(g, d)
	if v := ask(c, g, "nvmlDeviceGetPersistenceMode", d.GetPersistenceMode); v != nil {
		out.Persistence = ptr(*v == nvml.FEATURE_ENABLED)
	}
	if v := ask(c, g, "nvmlDeviceGetComputeMode", d.GetComputeMode); v != nil {
		switch *v {
		case nvml.COMPUTEMODE_DEFAULT:
			out.ComputeMode = engine.ComputeDefault
		case nvml.COMPUTEMODE_EXCLUSIVE_THREAD, nvml.COMPUTEMODE_EXCLUSIVE_PROCESS:
			out.ComputeMode = engine.ComputeExclusive
		case nvml.COMPUTEMODE_PROHIBITED:
			out.ComputeMode = engine.ComputeProhibited
		}
	}
	return out
}

func (c *Collector) clock(g *engine.GPU, symbol string, get func(nvml.ClockType) (uint32, nvml.Return), kind nvml.ClockType) *int {
	v := ask(c, g, symbol, func() (uint32, nvml.Return) { return get(kind) })
	if v == nil || *v > fastestClock {
		return nil
	}
	return ptr(int(*v))
}

// throttleBits are NVML's reasons; the bit of an idle card is none of them.
var throttleBits = []struct {
	bit    uint64
	reason engine.ThrottleReason
}{
	{nvml.ClocksEventReasonSwPowerCap, engine.ThrottlePowerCap},
	{nvml.ClocksEventReasonSwThermalSlowdown, engine.ThrottleThermal},
	{nvml.ClocksThrottleReasonHwThermalSlowdown, engine.ThrottleHotHardware},
	{nvml.ClocksThrottleReasonHwPowerBrakeSlowdown, engine.ThrottlePowerBrake},
	{nvml.ClocksThrottleReasonHwSlowdown, engine.ThrottleHardware},
	{nvml.ClocksEventReasonApplicationsClocksSetting, engine.ThrottleClockSetting},
	{nvml.ClocksEventReasonSyncBoost, engine.ThrottleSync},
	{nvml.ClocksEventReasonDisplayClockSetting, engine.ThrottleDisplay},
	{nvml.ClocksEventReasonBoardLimit, engine.ThrottleBoardLimit},
	{nvml.ClocksEventReasonReliability, engine.ThrottleReliability},
}

// throttle asks by the function's newer name, or the older.
func (c *Collector) throttle(g *engine.GPU, d nvml.Device) []engine.ThrottleReason {
	v := ask(c, g, "nvmlDeviceGetCurrentClocksEventReasons", d.GetCurrentClocksEventReasons)
	if v == nil {
		v = ask(c, g, "nvmlDeviceGetCurrentClocksThrottleReasons", d.GetCurrentClocksThrottleReasons)
	}
	if v == nil {
		return nil
	}
	out := []engine.ThrottleReason{}
	for _, b := range throttleBits {
		if *v&b.bit != 0 {
			out = append(out, b.reason)
		}
	}
	return out
}

// ecc is nil on a card without error correction.
func (c *Collector) ecc(g *engine.GPU, d nvml.Device) *engine.ECC {
	mode := ask(c, g, "nvmlDeviceGetEccMode", func() (nvml.EnableState, nvml.Return) {
		now, _, r := d.GetEccMode()
		return now, r
	})
	if mode == nil {
		return nil
	}
	out := &engine.ECC{Enabled: *mode == nvml.FEATURE_ENABLED}
	if !out.Enabled {
		return out
	}
	count := func(kind nvml.MemoryErrorType) *uint64 {
		v := ask(c, g, "nvmlDeviceGetTotalEccErrors", func() (uint64, nvml.Return) {
			return d.GetTotalEccErrors(kind, nvml.VOLATILE_ECC)
		})
		if v == nil || *v == 1<<64-1 {
			return nil
		}
		return v
	}
	out.Corrected, out.Uncorrected = count(nvml.MEMORY_ERROR_TYPE_CORRECTED), count(nvml.MEMORY_ERROR_TYPE_UNCORRECTED)
	return out
}
