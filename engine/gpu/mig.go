package gpu

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"gputop/engine"
)

// migSymbols are what reading MIG devices calls; a driver older than MIG has none of them.
var migSymbols = []string{"nvmlDeviceGetMigMode", "nvmlDeviceGetMaxMigDeviceCount", "nvmlDeviceGetMigDeviceHandleByIndex",
	"nvmlDeviceGetGpuInstanceId", "nvmlDeviceGetComputeInstanceId", "nvmlDeviceGetGpuInstanceById", "nvmlGpuInstanceGetInfo"}

const (
	maxMIG    = 64 // more MIG devices than any card can have
	migSlices = 8  // memory slices of a card
)

func (c *Collector) migOn(g *engine.GPU, d nvml.Device) bool {
	if !c.hasAll(migSymbols) {
		return false
	}
	mode, _, r := d.GetMigMode()
	return c.healthy(g, r) && mode == nvml.DEVICE_MIG_ENABLE
}

// migDevices fills in the MIG devices of a card. The maximum count has holes where no device is. The card's own list
// of processes stays empty: every process is on one of its MIG devices.
func (c *Collector) migDevices(g *engine.GPU, d nvml.Device, now time.Time) {
	n, r := d.GetMaxMigDeviceCount()
	if !c.healthy(g, r) {
		return
	}
	g.ProcessesKnown = true
	gpm := c.gpmSupported(d) && c.has("nvmlGpmMigSampleGet")
	instances := map[int]int{}
	for i := range min(n, maxMIG) {
		m, r := d.GetMigDeviceHandleByIndex(i)
		if r == nvml.ERROR_NOT_FOUND || r == nvml.ERROR_INVALID_ARGUMENT {
			continue
		}
		if !c.healthy(g, r) {
			continue
		}
		id, r := m.GetUUID()
		if r == nvml.ERROR_NOT_FOUND || r == nvml.ERROR_INVALID_ARGUMENT {
			c.layout.outdated = true // the device is gone; the session still has its handle
			continue
		}
		if !c.healthy(g, r) {
			continue
		}
		if dev, ok := c.migDevice(g, d, m, engine.DeviceID(id), gpm, now); ok {
			instances[dev.GPUInstance]++
			g.MIG = append(g.MIG, dev)
		}
	}
	for i := range g.MIG {
		g.MIG[i].InstanceShared = g.MIG[i].GPUInstance >= 0 && instances[g.MIG[i].GPUInstance] > 1
	}
}

// migDevice looks at one MIG device; false when it is no longer there, though the session still lists it.
func (c *Collector) migDevice(g *engine.GPU, card, m nvml.Device, id engine.DeviceID, gpm bool, now time.Time) (engine.MIGDevice, bool) {
	out := engine.MIGDevice{UUID: id, GPUInstance: -1, ComputeInstance: -1}
	if v, r := m.GetGpuInstanceId(); c.healthy(g, r) {
		out.GPUInstance = v
		gi, r := card.GetGpuInstanceById(v)
		if r == nvml.ERROR_NOT_FOUND {
			c.layout.outdated = true
			return out, false
		}
		if c.healthy(g, r) {
			if info, r := gi.GetInfo(); c.healthy(g, r) && uint64(info.Placement.Start)+uint64(info.Placement.Size) <= migSlices {
				out.PlacementStart, out.PlacementSize = int(info.Placement.Start), int(info.Placement.Size)
			}
		}
	}
	if v, r := m.GetComputeInstanceId(); c.healthy(g, r) {
		out.ComputeInstance = v
	}
	out.Profile = c.migProfile(m)
	if a, r := c.deviceMemory(m); r == nvml.SUCCESS && *a.total > 0 {
		out.MemoryTotal, out.MemoryUsed, out.MemoryReserved = a.total, a.used, a.reserved
	}
	if gpm && out.GPUInstance >= 0 {
		v := c.gpmRead(gpmKey{g.UUID, out.GPUInstance}, func(s nvml.GpmSample) nvml.Return {
			return card.GpmMigSampleGet(out.GPUInstance, s)
		}, now)
		out.SM, out.MemoryBandwidth = v.sm, v.bandwidth
	}
	var known bool
	out.Processes, known = c.processes(m, g, now)
	g.ProcessesKnown = g.ProcessesKnown && known
	return out, true
}

// migProfile is the profile as NVIDIA's tools write it. The name ends on it; older drivers' names do not.
func (c *Collector) migProfile(m nvml.Device) string {
	if name, r := m.GetName(); r == nvml.SUCCESS {
		if _, p, ok := strings.Cut(name, " MIG "); ok {
			return p
		}
	}
	if !c.has("nvmlDeviceGetAttributes_v2") {
		return ""
	}
	a, r := m.GetAttributes()
	if r != nvml.SUCCESS {
		return ""
	}
	p := fmt.Sprintf("%dg.%.0fgb", a.GpuInstanceSliceCount, math.Ceil(float64(a.MemorySizeMB)/1024))
	if a.ComputeInstanceSliceCount < a.GpuInstanceSliceCount {
		p = fmt.Sprintf("%dc.%s", a.ComputeInstanceSliceCount, p)
	}
	return p
}
