package gpu

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"gputop/engine"
)

// Answers of real cards, as people reported them in public. What a report does not tell is NOT_SUPPORTED here.

// recorded is one card's answers; nil is NOT_SUPPORTED.
type recorded struct {
	nvml.Device // a simulated card that supports nothing
	name, bus   string
	memory      *nvml.Memory
	utilization *nvml.Utilization
	temperature *uint32
	milliwatts  *uint32
	pcie        [2]int // generation and lanes
	mode        *nvml.ComputeMode
	persistence *nvml.EnableState
	graphics    []nvml.ProcessInfo
	mig         []nvml.Device
}

func told[T any](v *T) (T, nvml.Return) {
	if v == nil {
		var none T
		return none, nvml.ERROR_NOT_SUPPORTED
	}
	return *v, nvml.SUCCESS
}

func (r *recorded) GetUUID() (string, nvml.Return)                       { return "GPU-recorded", nvml.SUCCESS }
func (r *recorded) GetName() (string, nvml.Return)                       { return r.name, nvml.SUCCESS }
func (r *recorded) GetMemoryInfo() (nvml.Memory, nvml.Return)            { return told(r.memory) }
func (r *recorded) GetUtilizationRates() (nvml.Utilization, nvml.Return) { return told(r.utilization) }
func (r *recorded) GetPowerUsage() (uint32, nvml.Return)                 { return told(r.milliwatts) }
func (r *recorded) GetComputeMode() (nvml.ComputeMode, nvml.Return)      { return told(r.mode) }
func (r *recorded) GetPersistenceMode() (nvml.EnableState, nvml.Return)  { return told(r.persistence) }
func (r *recorded) GetTemperature(nvml.TemperatureSensors) (uint32, nvml.Return) {
	return told(r.temperature)
}
func (r *recorded) GetCurrPcieLinkGeneration() (int, nvml.Return) { return r.pcie[0], nvml.SUCCESS }
func (r *recorded) GetCurrPcieLinkWidth() (int, nvml.Return)      { return r.pcie[1], nvml.SUCCESS }
func (r *recorded) GetComputeRunningProcesses() ([]nvml.ProcessInfo, nvml.Return) {
	return nil, nvml.SUCCESS
}
func (r *recorded) GetGraphicsRunningProcesses() ([]nvml.ProcessInfo, nvml.Return) {
	return r.graphics, nvml.SUCCESS
}
func (r *recorded) GetPciInfo() (nvml.PciInfo, nvml.Return) {
	var p nvml.PciInfo
	for i := range r.bus {
		p.BusId[i] = int8(r.bus[i])
	}
	return p, nvml.SUCCESS
}
func (r *recorded) GetMigMode() (int, int, nvml.Return) {
	if r.mig == nil {
		return 0, 0, nvml.ERROR_NOT_SUPPORTED
	}
	return nvml.DEVICE_MIG_ENABLE, nvml.DEVICE_MIG_ENABLE, nvml.SUCCESS
}
func (r *recorded) GetMaxMigDeviceCount() (int, nvml.Return) { return 7, nvml.SUCCESS }
func (r *recorded) GetMigDeviceHandleByIndex(i int) (nvml.Device, nvml.Return) {
	if i >= len(r.mig) {
		return nil, nvml.ERROR_NOT_FOUND
	}
	return r.mig[i], nvml.SUCCESS
}
func (r *recorded) GetGpuInstanceById(int) (nvml.GpuInstance, nvml.Return) {
	return nil, nvml.ERROR_NO_PERMISSION
}

// recordedMIG is a MIG device's answers.
type recordedMIG struct {
	recorded
	instance int
}

func (m *recordedMIG) GetUUID() (string, nvml.Return) {
	return fmt.Sprintf("MIG-recorded-%d", m.instance), nvml.SUCCESS
}
func (m *recordedMIG) GetGpuInstanceId() (int, nvml.Return)     { return m.instance, nvml.SUCCESS }
func (m *recordedMIG) GetComputeInstanceId() (int, nvml.Return) { return 0, nvml.SUCCESS }
func (m *recordedMIG) GetAttributes() (nvml.DeviceAttributes, nvml.Return) {
	return nvml.DeviceAttributes{GpuInstanceSliceCount: 2, ComputeInstanceSliceCount: 2, MemorySizeMB: m.memory.Total >> 20}, nvml.SUCCESS
}

// seen is what the reader makes of a recorded card.
func seen(t *testing.T, r *recorded) engine.GPU {
	t.Helper()
	b := scenario(t, `cards: [{model: t4, unsupported: [memory, memory_v2, utilization, power, power_limit, temperature, clocks, memory_clock,
  throttle, fan, pcie_link, pcie_throughput, nvlink, ecc, persistence, compute_mode, events, process_utilization, gpm, mig]}]`)
	b.c.o.Proc = t.TempDir()
	// MemTotal of the GB10 in https://github.com/leptonai/gpud/pull/1170: 128501256192 bytes.
	if err := os.WriteFile(filepath.Join(b.c.o.Proc, "meminfo"), []byte("MemTotal: 125489508 kB\nMemAvailable: 118741898 kB\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	b.c.lib = &changed{Interface: b.c.lib, device: func(d nvml.Device) nvml.Device {
		r.Device = d
		for _, m := range r.mig {
			m.(*recordedMIG).Device = d
		}
		return r
	}, lacks: map[string]bool{"nvmlDeviceGetMaxPcieLinkGeneration": true, "nvmlDeviceGetMaxPcieLinkWidth": true}}
	return b.sample().GPUs[0]
}

// https://github.com/snowflakedb/ArcticTraining/pull/345 (driver 580.126.09: memory, fan, power limit and ECC not
// supported), https://github.com/Syllo/nvtop/issues/426 (a PCIe link of generation 1 with one lane).
func TestRecordedGB10(t *testing.T) {
	on := nvml.FEATURE_ENABLED
	mode := nvml.COMPUTEMODE_DEFAULT
	g := seen(t, &recorded{name: "NVIDIA GB10", bus: "0000000F:01:00.0", utilization: &nvml.Utilization{}, temperature: ptr[uint32](36),
		milliwatts: ptr[uint32](3000), pcie: [2]int{1, 1}, mode: &mode, persistence: &on})
	if !g.MemoryUnified || *g.MemoryTotal != 128501256192 || *g.MemoryUsed != 128501256192-118741898*engine.KiB || g.MemoryReserved != nil {
		t.Errorf("memory: %s", show(g))
	}
	if g.PCIe != nil || g.Fan != nil || g.PowerLimit != nil || g.ECC != nil || *g.Power != 3 || *g.Temperature != 36 || *g.SM != 0 ||
		g.SMSource != engine.SourceUtilization || !*g.Persistence || g.ComputeMode != engine.ComputeDefault || g.Health != engine.HealthOK {
		t.Errorf("%s %+v", show(g), g.CardDetail)
	}
}

// https://github.com/mayooot/detect-gpu/issues/3: an A10 with driver 535.129.03 and a display's process, by the old
// memory call, in which used counts what is reserved.
func TestRecordedA10(t *testing.T) {
	const none = 1<<32 - 1
	g := seen(t, &recorded{name: "NVIDIA A10", bus: "00000000:01:00.0", memory: &nvml.Memory{Total: 24146608128, Free: 22889365504, Used: 1257242624},
		utilization: &nvml.Utilization{}, milliwatts: ptr[uint32](64810), pcie: [2]int{4, 16},
		graphics: []nvml.ProcessInfo{{Pid: 1905, UsedGpuMemory: 706740224, GpuInstanceId: none, ComputeInstanceId: none}}})
	if *g.MemoryTotal != 24146608128 || *g.MemoryUsed != 1257242624 || g.MemoryReserved != nil || g.MemoryUnified || *g.Power != 64.81 ||
		*g.PCIe.Generation != 4 || *g.PCIe.Width != 16 || g.Temperature != nil {
		t.Errorf("%s %+v", show(g), g.PCIe)
	}
	if len(g.Processes) != 1 || g.Processes[0].PID != 1905 || g.Processes[0].Type != "G" || *g.Processes[0].Memory != 706740224 {
		t.Errorf("processes %+v", g.Processes)
	}
}

// https://github.com/XuehaiPan/nvitop/pull/8: an A100 80 GB in MIG mode with GPU instances 3, 5 and 6 of 19968 MiB.
func TestRecordedA100WithMIG(t *testing.T) {
	r := &recorded{name: "NVIDIA A100-SXM4-80GB", bus: "00000000:0F:00.0", memory: &nvml.Memory{Total: 81920 << 20, Used: 24205 << 20}}
	for _, m := range []struct{ instance, used int }{{3, 14366}, {5, 9826}, {6, 13}} {
		r.mig = append(r.mig, &recordedMIG{recorded{name: "NVIDIA A100-SXM4-80GB", memory: &nvml.Memory{Total: 19968 << 20, Used: uint64(m.used) << 20}}, m.instance})
	}
	g := seen(t, r)
	var got string
	for _, m := range g.MIG {
		got += fmt.Sprintf("gi%d %s %d/%d %v; ", m.GPUInstance, m.Profile, *m.MemoryUsed/engine.MiB, *m.MemoryTotal/engine.MiB, m.SM)
	}
	if want := "gi3 2g.20gb 14366/19968 <nil>; gi5 2g.20gb 9826/19968 <nil>; gi6 2g.20gb 13/19968 <nil>; "; got != want || !g.MIGMode || g.SM != nil {
		t.Errorf("got %s", got)
	}
}
