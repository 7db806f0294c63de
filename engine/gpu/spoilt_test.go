package gpu

import (
	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// spoilt is a library whose answers are spoilt: every call that the reader makes.
type spoilt struct {
	nvml.Interface
	s *spoiler
}

func (l *spoilt) DeviceGetCount() (int, nvml.Return) {
	n, r := l.Interface.DeviceGetCount()
	return spoil(l.s, n, r)
}

func (l *spoilt) DeviceGetHandleByIndex(i int) (nvml.Device, nvml.Return) {
	d, r := l.Interface.DeviceGetHandleByIndex(i)
	return l.device(d, r)
}

// device spoils a handle's result, and what the handle answers; a handle that is nil is never a success.
func (l *spoilt) device(d nvml.Device, r nvml.Return) (nvml.Device, nvml.Return) {
	if r == nvml.SUCCESS && l.s.r.IntN(256) < l.s.often {
		r = returns[l.s.r.IntN(len(returns))]
	}
	if r != nvml.SUCCESS {
		return nil, r
	}
	return &spoiltDevice{Device: d, l: l}, r
}

func (l *spoilt) SystemGetCudaDriverVersion() (int, nvml.Return) {
	return spoil(l.s, 12080, nvml.SUCCESS)
}

func (l *spoilt) GpmMetricsGet(m *nvml.GpmMetricsGetType) nvml.Return {
	r := l.Interface.GpmMetricsGet(m)
	for i := range m.Metrics[:m.NumMetrics] {
		m.Metrics[i].Value, _ = spoil(l.s, m.Metrics[i].Value, nvml.SUCCESS)
	}
	_, r = spoil(l.s, 0, r)
	return r
}

func (l *spoilt) EventSetCreate() (nvml.EventSet, nvml.Return) {
	set, r := l.Interface.EventSetCreate()
	if r != nvml.SUCCESS {
		return nil, r
	}
	return &spoiltEvents{set, l}, r
}

type spoiltEvents struct {
	nvml.EventSet
	l *spoilt
}

func (e *spoiltEvents) Wait(uint32) (nvml.EventData, nvml.Return) {
	v, r := spoil(e.l.s, nvml.EventData{}, nvml.ERROR_TIMEOUT)
	if v.Device, _ = e.l.DeviceGetHandleByIndex(0); v.Device == nil {
		return v, nvml.ERROR_TIMEOUT
	}
	return v, r
}

type spoiltDevice struct {
	nvml.Device
	l *spoilt
}

func one[T any](d *spoiltDevice, call func() (T, nvml.Return)) (T, nvml.Return) {
	v, r := call()
	return spoil(d.l.s, v, r)
}

func (d *spoiltDevice) GetUUID() (string, nvml.Return)          { return one(d, d.Device.GetUUID) }
func (d *spoiltDevice) GetName() (string, nvml.Return)          { return one(d, d.Device.GetName) }
func (d *spoiltDevice) GetMinorNumber() (int, nvml.Return)      { return one(d, d.Device.GetMinorNumber) }
func (d *spoiltDevice) GetPciInfo() (nvml.PciInfo, nvml.Return) { return one(d, d.Device.GetPciInfo) }
func (d *spoiltDevice) GetMemoryInfo() (nvml.Memory, nvml.Return) {
	return one(d, d.Device.GetMemoryInfo)
}
func (d *spoiltDevice) GetPowerUsage() (uint32, nvml.Return) { return one(d, d.Device.GetPowerUsage) }
func (d *spoiltDevice) GetEnforcedPowerLimit() (uint32, nvml.Return) {
	return one(d, d.Device.GetEnforcedPowerLimit)
}
func (d *spoiltDevice) GetFanSpeed() (uint32, nvml.Return) { return one(d, d.Device.GetFanSpeed) }
func (d *spoiltDevice) GetGpuInstanceId() (int, nvml.Return) {
	return one(d, d.Device.GetGpuInstanceId)
}
func (d *spoiltDevice) GetComputeInstanceId() (int, nvml.Return) {
	return one(d, d.Device.GetComputeInstanceId)
}
func (d *spoiltDevice) GetMaxMigDeviceCount() (int, nvml.Return) {
	return one(d, d.Device.GetMaxMigDeviceCount)
}
func (d *spoiltDevice) GetComputeMode() (nvml.ComputeMode, nvml.Return) {
	return one(d, d.Device.GetComputeMode)
}
func (d *spoiltDevice) GetPersistenceMode() (nvml.EnableState, nvml.Return) {
	return one(d, d.Device.GetPersistenceMode)
}
func (d *spoiltDevice) GetMemoryInfo_v2() (nvml.Memory_v2, nvml.Return) {
	return one(d, d.Device.GetMemoryInfo_v2)
}
func (d *spoiltDevice) GetUtilizationRates() (nvml.Utilization, nvml.Return) {
	return one(d, d.Device.GetUtilizationRates)
}
func (d *spoiltDevice) GetCurrPcieLinkWidth() (int, nvml.Return) {
	return one(d, d.Device.GetCurrPcieLinkWidth)
}
func (d *spoiltDevice) GetCurrentClocksEventReasons() (uint64, nvml.Return) {
	return one(d, d.Device.GetCurrentClocksEventReasons)
}
func (d *spoiltDevice) GetSupportedEventTypes() (uint64, nvml.Return) {
	return one(d, d.Device.GetSupportedEventTypes)
}
func (d *spoiltDevice) GetAttributes() (nvml.DeviceAttributes, nvml.Return) {
	return one(d, d.Device.GetAttributes)
}
func (d *spoiltDevice) GetComputeRunningProcesses() ([]nvml.ProcessInfo, nvml.Return) {
	return one(d, d.Device.GetComputeRunningProcesses)
}
func (d *spoiltDevice) GetGraphicsRunningProcesses() ([]nvml.ProcessInfo, nvml.Return) {
	return one(d, d.Device.GetGraphicsRunningProcesses)
}
func (d *spoiltDevice) GpmQueryDeviceSupport() (nvml.GpmSupport, nvml.Return) {
	return one(d, d.Device.GpmQueryDeviceSupport)
}
func (d *spoiltDevice) GetTemperature(s nvml.TemperatureSensors) (uint32, nvml.Return) {
	v, r := d.Device.GetTemperature(s)
	return spoil(d.l.s, v, r)
}
func (d *spoiltDevice) GetClockInfo(k nvml.ClockType) (uint32, nvml.Return) {
	v, r := d.Device.GetClockInfo(k)
	return spoil(d.l.s, v, r)
}
func (d *spoiltDevice) GetMaxClockInfo(k nvml.ClockType) (uint32, nvml.Return) {
	v, r := d.Device.GetMaxClockInfo(k)
	return spoil(d.l.s, v, r)
}
func (d *spoiltDevice) GetTotalEccErrors(k nvml.MemoryErrorType, c nvml.EccCounterType) (uint64, nvml.Return) {
	v, r := d.Device.GetTotalEccErrors(k, c)
	return spoil(d.l.s, v, r)
}
func (d *spoiltDevice) GetPcieThroughput(c nvml.PcieUtilCounter) (uint32, nvml.Return) {
	v, r := d.Device.GetPcieThroughput(c)
	return spoil(d.l.s, v, r)
}
func (d *spoiltDevice) GetProcessUtilization(after uint64) ([]nvml.ProcessUtilizationSample, nvml.Return) {
	v, r := d.Device.GetProcessUtilization(after)
	return spoil(d.l.s, v, r)
}
func (d *spoiltDevice) GetMigMode() (int, int, nvml.Return) {
	v, _, r := d.Device.GetMigMode()
	v, r = spoil(d.l.s, v, r)
	return v, v, r
}
func (d *spoiltDevice) GetMigDeviceHandleByIndex(i int) (nvml.Device, nvml.Return) {
	m, r := d.Device.GetMigDeviceHandleByIndex(i)
	return d.l.device(m, r)
}
func (d *spoiltDevice) GetGpuInstanceById(id int) (nvml.GpuInstance, nvml.Return) {
	gi, r := d.Device.GetGpuInstanceById(id)
	return &spoiltInstance{gi, d.l}, r
}
func (d *spoiltDevice) RegisterEvents(uint64, nvml.EventSet) nvml.Return { return nvml.SUCCESS }

type spoiltInstance struct {
	nvml.GpuInstance
	l *spoilt
}

func (g *spoiltInstance) GetInfo() (nvml.GpuInstanceInfo, nvml.Return) {
	info, r := g.GpuInstance.GetInfo()
	p, r := spoil(g.l.s, info.Placement, r)
	info.Placement = p
	return info, r
}
