package simgpu

import (
	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// maxMIG is how many MIG devices such a card can have.
const maxMIG = 7

func (h cardHandle) IsMigDeviceHandle() (bool, nvml.Return) { return false, nvml.SUCCESS }

func (h cardHandle) GetMigMode() (int, int, nvml.Return) {
	_, r := h.c.enter("mig")
	if r == nvml.SUCCESS && h.c.model.migGB == nil {
		r = nvml.ERROR_NOT_SUPPORTED
	}
	mode := nvml.DEVICE_MIG_DISABLE
	if len(h.c.mig) > 0 {
		mode = nvml.DEVICE_MIG_ENABLE
	}
	return mode, mode, r
}

func (h cardHandle) GetMaxMigDeviceCount() (int, nvml.Return) {
	n := 0
	if h.c.model.migGB != nil {
		n = maxMIG
	}
	return answer(h.c, "mig", n)
}

func (h cardHandle) GetMigDeviceHandleByIndex(i int) (nvml.Device, nvml.Return) {
	f, r := h.c.enter("mig")
	if r != nvml.SUCCESS {
		return nil, r
	}
	if i < 0 || i >= maxMIG {
		return nil, nvml.ERROR_INVALID_ARGUMENT
	}
	// The places of holes are empty; what would be there comes after them.
	at := i
	for k := range i {
		if f.hole(k) {
			at--
		}
	}
	if f.hole(i) || at >= len(h.c.mig) {
		return nil, nvml.ERROR_NOT_FOUND
	}
	return migHandle{c: h.c, m: h.c.mig[at]}, nvml.SUCCESS
}

func (h cardHandle) GetGpuInstanceById(id int) (nvml.GpuInstance, nvml.Return) {
	_, r := h.c.enter("mig")
	if r != nvml.SUCCESS {
		return nil, r
	}
	for _, m := range h.c.mates(id) {
		if h.c.isThere(m) {
			return gpuInstance{h: h, m: m}, nvml.SUCCESS
		}
	}
	return nil, nvml.ERROR_NOT_FOUND
}

// gpuInstance is a GPU instance.
type gpuInstance struct {
	noGpuInstance
	h cardHandle
	m *migDevice
}

func (g gpuInstance) GetInfo() (nvml.GpuInstanceInfo, nvml.Return) {
	return nvml.GpuInstanceInfo{Device: g.h, Id: uint32(g.m.instance),
		Placement: nvml.GpuInstancePlacement{Start: uint32(g.m.start), Size: uint32(g.m.size)}}, nvml.SUCCESS
}

// migHandle is a MIG device as NVML's interface shows it.
type migHandle struct {
	noDevice
	c *card
	m *migDevice
}

func (h migHandle) IsMigDeviceHandle() (bool, nvml.Return)   { return true, nvml.SUCCESS }
func (h migHandle) GetUUID() (string, nvml.Return)           { return answer(h.c, "uuid", string(h.m.uuid)) }
func (h migHandle) GetGpuInstanceId() (int, nvml.Return)     { return answer(h.c, "mig", h.m.instance) }
func (h migHandle) GetComputeInstanceId() (int, nvml.Return) { return answer(h.c, "mig", h.m.ci) }
func (h migHandle) GetUtilizationRates() (nvml.Utilization, nvml.Return) {
	return nvml.Utilization{}, nvml.ERROR_NOT_SUPPORTED
}

func (h migHandle) GetDeviceHandleFromMigDeviceHandle() (nvml.Device, nvml.Return) {
	return answer(h.c, "mig", nvml.Device(cardHandle{c: h.c}))
}

func (h migHandle) GetName() (string, nvml.Return) {
	return answer(h.c, "name", h.c.model.name+" MIG "+h.m.profile)
}

func (h migHandle) GetAttributes() (nvml.DeviceAttributes, nvml.Return) {
	return answer(h.c, "mig", nvml.DeviceAttributes{GpuInstanceSliceCount: uint32(h.m.compute),
		ComputeInstanceSliceCount: uint32(h.m.ciSlices), MemorySizeMB: inMB(h.m.memory)})
}

func (h migHandle) GetMemoryInfo_v2() (nvml.Memory_v2, nvml.Return) {
	m, r := h.GetMemoryInfo()
	if f, rv2 := h.c.enter("memory_v2"); rv2 != nvml.SUCCESS || f.Unified {
		return nvml.Memory_v2{}, rv2
	}
	return nvml.Memory_v2{Total: m.Total, Used: m.Used, Free: m.Free}, r
}

func (h migHandle) GetMemoryInfo() (nvml.Memory, nvml.Return) {
	f, r := h.c.enter("memory")
	if r != nvml.SUCCESS || f.Unified {
		return nvml.Memory{}, r
	}
	total := uint64(h.m.memory)
	used := min(uint64(h.c.instance(h.m.instance).used), total)
	return nvml.Memory{Total: total, Used: used, Free: total - used}, nvml.SUCCESS
}

func (h migHandle) GetComputeRunningProcesses() ([]nvml.ProcessInfo, nvml.Return) {
	f, r := h.c.enter("processes")
	if r != nvml.SUCCESS {
		return nil, r
	}
	return processes(f, h.c.view(h.m).holders, uint32(h.m.instance), uint32(h.m.ci)), nvml.SUCCESS
}

func (h migHandle) GetGraphicsRunningProcesses() ([]nvml.ProcessInfo, nvml.Return) {
	return answer(h.c, "processes", []nvml.ProcessInfo{})
}
