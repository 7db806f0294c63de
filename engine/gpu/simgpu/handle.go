package simgpu

import (
	"math"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"gputop/engine"
	"gputop/engine/gpu/simgpu/simdev"
)

// cardHandle is a card as NVML's interface shows it.
type cardHandle struct {
	noDevice
	c *card
}

func answer[T any](c *card, field string, v T) (T, nvml.Return) {
	_, r := c.enter(field)
	if r != nvml.SUCCESS {
		var none T
		return none, r
	}
	return v, nvml.SUCCESS
}

func (h cardHandle) GetUUID() (string, nvml.Return)     { return answer(h.c, "uuid", string(h.c.uuid)) }
func (h cardHandle) GetName() (string, nvml.Return)     { return answer(h.c, "name", h.c.model.name) }
func (h cardHandle) GetIndex() (int, nvml.Return)       { return answer(h.c, "index", h.c.index) }
func (h cardHandle) GetMinorNumber() (int, nvml.Return) { return answer(h.c, "minor", h.c.index) }

func (h cardHandle) GetArchitecture() (nvml.DeviceArchitecture, nvml.Return) {
	return answer(h.c, "architecture", h.c.model.arch)
}

func (h cardHandle) GetCudaComputeCapability() (int, int, nvml.Return) {
	_, r := h.c.enter("compute_capability")
	return h.c.model.cc[0], h.c.model.cc[1], r
}

func (h cardHandle) GetPciInfo() (nvml.PciInfo, nvml.Return) {
	p := nvml.PciInfo{Bus: h.c.bus()}
	copyText(p.BusId[:], h.c.busID())
	copyText(p.BusIdLegacy[:], h.c.busID()[4:])
	return answer(h.c, "pci", p)
}

func copyText(to []int8, s string) {
	for i := range min(len(s), len(to)-1) {
		to[i] = int8(s[i])
	}
}

func (h cardHandle) GetMemoryInfo_v2() (nvml.Memory_v2, nvml.Return) {
	f, r := h.c.enter("memory_v2")
	if r == nvml.SUCCESS {
		r = f.Fields["memory"]
	}
	if r != nvml.SUCCESS || f.Unified {
		return nvml.Memory_v2{}, r
	}
	total, reserved := uint64(h.c.model.total), uint64(h.c.model.reserved)
	used := min(uint64(h.c.view(nil).used), total-reserved)
	m := nvml.Memory_v2{Total: total, Reserved: reserved, Used: used, Free: total - reserved - used}
	if f.UsedIncludesReserved {
		m.Used += reserved
	}
	return m, nvml.SUCCESS
}

func (h cardHandle) GetMemoryInfo() (nvml.Memory, nvml.Return) {
	f, r := h.c.enter("memory")
	if r != nvml.SUCCESS || f.Unified {
		return nvml.Memory{}, r
	}
	total, reserved := uint64(h.c.model.total), uint64(h.c.model.reserved)
	used := min(uint64(h.c.view(nil).used)+reserved, total)
	return nvml.Memory{Total: total, Used: used, Free: total - used}, nvml.SUCCESS
}

func (h cardHandle) GetTemperature(s nvml.TemperatureSensors) (uint32, nvml.Return) {
	if s != nvml.TEMPERATURE_GPU {
		return 0, nvml.ERROR_INVALID_ARGUMENT
	}
	return answer(h.c, "temperature", uint32(math.Round(h.c.view(nil).heat)))
}

// GetPowerUsage is in milliwatts, as are the limits.
func (h cardHandle) GetPowerUsage() (uint32, nvml.Return) {
	return answer(h.c, "power", uint32(h.c.view(nil).watts*1000))
}

func (h cardHandle) GetEnforcedPowerLimit() (uint32, nvml.Return) {
	return answer(h.c, "power_limit", uint32(h.c.model.limitW*1000))
}

func (h cardHandle) GetPowerManagementLimit() (uint32, nvml.Return) { return h.GetEnforcedPowerLimit() }

// GetUtilizationRates is not supported in MIG mode, as on real cards.
func (h cardHandle) GetUtilizationRates() (nvml.Utilization, nvml.Return) {
	if len(h.c.mig) > 0 {
		return nvml.Utilization{}, nvml.ERROR_NOT_SUPPORTED
	}
	v := h.c.view(nil)
	return answer(h.c, "utilization", nvml.Utilization{Gpu: uint32(math.Round(v.sm * 100)), Memory: uint32(math.Round(v.sm * memoryShare * 100))})
}

func (h cardHandle) GetComputeRunningProcesses() ([]nvml.ProcessInfo, nvml.Return) {
	f, r := h.c.enter("processes")
	if r != nvml.SUCCESS {
		return nil, r
	}
	const none = math.MaxUint32
	if len(h.c.mig) == 0 {
		return processes(f, h.c.view(nil).holders, none, none), nvml.SUCCESS
	}
	var out []nvml.ProcessInfo
	for _, m := range h.c.mig {
		out = append(out, processes(f, h.c.view(m).holders, uint32(m.instance), uint32(m.ci))...)
	}
	return out, nvml.SUCCESS
}

func (h cardHandle) GetGraphicsRunningProcesses() ([]nvml.ProcessInfo, nvml.Return) {
	return answer(h.c, "processes", []nvml.ProcessInfo{})
}

func processes(f CardFaults, holders []simdev.Holder, gi, ci uint32) []nvml.ProcessInfo {
	out := []nvml.ProcessInfo{}
	for _, p := range holders {
		if p.PID == 0 || p.Memory == 0 {
			continue
		}
		info := nvml.ProcessInfo{Pid: uint32(p.PID), UsedGpuMemory: uint64(p.Memory), GpuInstanceId: gi, ComputeInstanceId: ci}
		if f.ProcessMemoryUnknown {
			info.UsedGpuMemory = math.MaxUint64
		}
		out = append(out, info)
	}
	return out
}

// GetProcessUtilization is not supported in MIG mode, as on real cards. Time stamps are microseconds.
func (h cardHandle) GetProcessUtilization(after uint64) ([]nvml.ProcessUtilizationSample, nvml.Return) {
	if len(h.c.mig) > 0 {
		return nil, nvml.ERROR_NOT_SUPPORTED
	}
	_, r := h.c.enter("process_utilization")
	if r != nvml.SUCCESS {
		return nil, r
	}
	v := h.c.view(nil)
	at := uint64(v.at.UnixMicro())
	var out []nvml.ProcessUtilizationSample
	for _, p := range v.holders {
		if p.PID != 0 && at > after {
			out = append(out, nvml.ProcessUtilizationSample{Pid: uint32(p.PID), TimeStamp: at, SmUtil: uint32(math.Round(p.SM * 100))})
		}
	}
	if len(out) == 0 {
		return nil, nvml.ERROR_NOT_FOUND
	}
	return out, nvml.SUCCESS
}

func (h cardHandle) GpmQueryDeviceSupport() (nvml.GpmSupport, nvml.Return) {
	s := nvml.GpmSupport{Version: nvml.GPM_SUPPORT_VERSION}
	if h.c.model.gpm {
		s.IsSupportedDevice = 1
	}
	return answer(h.c, "gpm", s)
}

func (h cardHandle) GpmSampleGet(s nvml.GpmSample) nvml.Return {
	if len(h.c.mig) > 0 {
		return nvml.ERROR_NOT_SUPPORTED
	}
	return h.gpm(s, nil)
}

func (h cardHandle) GpmMigSampleGet(gi int, s nvml.GpmSample) nvml.Return {
	for _, m := range h.c.mates(gi) {
		if h.c.isThere(m) {
			return h.gpm(s, m)
		}
	}
	return nvml.ERROR_NOT_FOUND
}

func (h cardHandle) gpm(s nvml.GpmSample, m *migDevice) nvml.Return {
	_, r := h.c.enter("gpm")
	if r != nvml.SUCCESS {
		return r
	}
	to, ok := s.(*gpmSample)
	if !ok {
		return nvml.ERROR_INVALID_ARGUMENT
	}
	if !h.c.model.gpm {
		return nvml.ERROR_NOT_SUPPORTED
	}
	v := h.c.view(nil)
	if m != nil {
		v = h.c.instance(m.instance)
	}
	to.at, to.sm, to.instance = v.at, v.sm, m != nil
	return nvml.SUCCESS
}

// gpmSample is what SM activity is measured between.
type gpmSample struct {
	at time.Time
	sm float64
	// instance: of a GPU instance, which has no links of its own.
	instance bool
}

func (s *gpmSample) Free() nvml.Return             { return nvml.SUCCESS }
func (s *gpmSample) Get(d nvml.Device) nvml.Return { return device(d).GpmSampleGet(s) }
func (s *gpmSample) MigGet(d nvml.Device, gi int) nvml.Return {
	return device(d).GpmMigSampleGet(gi, s)
}

// inMB is an amount in NVML's megabytes, which are MiB.
func inMB(b engine.Bytes) uint64 { return uint64(b / engine.MiB) }
