package simgpu

import (
	"math"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"gputop/engine"
)

// What follows from the load: the share of the memory's bandwidth, and traffic over PCIe in MiB a second, at full load.
const (
	memoryShare = 0.6
	pcieMiB     = 2048
)

// lanes of the PCIe link.
const lanes = 16

func (h cardHandle) GetPersistenceMode() (nvml.EnableState, nvml.Return) {
	return answer(h.c, "persistence", nvml.FEATURE_ENABLED)
}

func (h cardHandle) GetComputeMode() (nvml.ComputeMode, nvml.Return) {
	mode := nvml.COMPUTEMODE_DEFAULT
	switch h.c.config.ComputeMode {
	case engine.ComputeExclusive:
		mode = nvml.COMPUTEMODE_EXCLUSIVE_PROCESS
	case engine.ComputeProhibited:
		mode = nvml.COMPUTEMODE_PROHIBITED
	}
	return answer(h.c, "compute_mode", mode)
}

// GetClockInfo is in MHz: an idle card's clocks rest low.
func (h cardHandle) GetClockInfo(kind nvml.ClockType) (uint32, nvml.Return) {
	most, r := h.GetMaxClockInfo(kind)
	if r != nvml.SUCCESS || kind == nvml.CLOCK_MEM || h.c.view(nil).sm > 0 {
		return most, r
	}
	return min(most, 210), r
}

func (h cardHandle) GetMaxClockInfo(kind nvml.ClockType) (uint32, nvml.Return) {
	switch kind {
	case nvml.CLOCK_SM, nvml.CLOCK_GRAPHICS:
		return answer(h.c, "clocks", uint32(h.c.model.smMHz))
	case nvml.CLOCK_MEM:
		if _, r := h.c.enter("memory_clock"); r != nvml.SUCCESS {
			return 0, r
		}
		return answer(h.c, "clocks", uint32(h.c.model.memMHz))
	}
	return 0, nvml.ERROR_NOT_SUPPORTED
}

func (h cardHandle) GetCurrentClocksEventReasons() (uint64, nvml.Return) {
	v, why := h.c.view(nil), uint64(nvml.ClocksEventReasonNone)
	switch {
	case v.sm == 0:
		why = nvml.ClocksEventReasonGpuIdle
	case v.watts > 0.95*h.c.model.limitW:
		why = nvml.ClocksEventReasonSwPowerCap
	}
	return answer(h.c, "throttle", why)
}

func (h cardHandle) GetCurrentClocksThrottleReasons() (uint64, nvml.Return) {
	return h.GetCurrentClocksEventReasons()
}

// GetFanSpeed is in percent, and follows the heat.
func (h cardHandle) GetFanSpeed() (uint32, nvml.Return) {
	m := h.c.model
	return answer(h.c, "fan", uint32(math.Round(max(0, 80*(h.c.view(nil).heat-m.idleC)/(m.busyC-m.idleC)))))
}

func (h cardHandle) GetCurrPcieLinkGeneration() (int, nvml.Return) {
	return answer(h.c, "pcie_link", h.c.model.pcieGen)
}
func (h cardHandle) GetMaxPcieLinkGeneration() (int, nvml.Return) {
	return h.GetCurrPcieLinkGeneration()
}
func (h cardHandle) GetCurrPcieLinkWidth() (int, nvml.Return) { return answer(h.c, "pcie_link", lanes) }
func (h cardHandle) GetMaxPcieLinkWidth() (int, nvml.Return)  { return h.GetCurrPcieLinkWidth() }

// GetPcieThroughput is in KB a second.
func (h cardHandle) GetPcieThroughput(nvml.PcieUtilCounter) (uint32, nvml.Return) {
	return answer(h.c, "pcie_throughput", uint32(h.c.view(nil).sm*pcieMiB*float64(engine.MiB)/1000))
}

func (h cardHandle) GetNvLinkState(i int) (nvml.EnableState, nvml.Return) {
	if h.c.model.nvlinks == 0 {
		return 0, nvml.ERROR_NOT_SUPPORTED
	}
	if i < 0 || i >= h.c.model.nvlinks {
		return 0, nvml.ERROR_INVALID_ARGUMENT
	}
	return answer(h.c, "nvlink", nvml.FEATURE_ENABLED)
}

// GetNvLinkRemoteDeviceType says that all links lead to a switch, as on the boards that carry these cards.
func (h cardHandle) GetNvLinkRemoteDeviceType(i int) (nvml.IntNvLinkDeviceType, nvml.Return) {
	if _, r := h.GetNvLinkState(i); r != nvml.SUCCESS {
		return 0, r
	}
	return answer(h.c, "nvlink", nvml.IntNvLinkDeviceType(nvml.NVLINK_DEVICE_TYPE_SWITCH))
}

// GetTopologyCommonAncestor has two cards behind each PCIe switch and four at each NUMA node.
func (h cardHandle) GetTopologyCommonAncestor(other nvml.Device) (nvml.GpuTopologyLevel, nvml.Return) {
	o, ok := other.(cardHandle)
	if !ok {
		return 0, nvml.ERROR_INVALID_ARGUMENT
	}
	level := nvml.TOPOLOGY_SYSTEM
	switch a, b := h.c.index, o.c.index; {
	case a/2 == b/2:
		level = nvml.TOPOLOGY_SINGLE
	case a/4 == b/4:
		level = nvml.TOPOLOGY_NODE
	}
	return answer(h.c, "topology", level)
}

func (h cardHandle) GetEccMode() (nvml.EnableState, nvml.EnableState, nvml.Return) {
	mode := nvml.FEATURE_ENABLED
	if h.c.model.migGB == nil && h.c.model.name[:min(14, len(h.c.model.name))] == "NVIDIA GeForce" {
		mode = nvml.FEATURE_DISABLED
	}
	v, r := answer(h.c, "ecc", mode)
	return v, v, r
}

func (h cardHandle) GetTotalEccErrors(nvml.MemoryErrorType, nvml.EccCounterType) (uint64, nvml.Return) {
	return answer(h.c, "ecc", uint64(0))
}
