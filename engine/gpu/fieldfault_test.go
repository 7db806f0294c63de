package gpu

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"gputop/engine"
	"gputop/engine/gpu/simgpu"
	"gputop/engine/gpu/simgpu/simdev/simdevtest"
)

// The rows of FIELD-FAULTS.md that the reader of the cards answers for, by their numbers.

// scenario is a bench over a scenario's text; its timetable begins now.
func scenario(t *testing.T, text string) *bench {
	t.Helper()
	path := filepath.Join(t.TempDir(), "box.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return newBench(t, path)
}

func refusing(r nvml.Return, names ...string) simgpu.CardFaults {
	f := simgpu.CardFaults{Fields: map[string]nvml.Return{}}
	for _, n := range names {
		f.Fields[n] = r
	}
	return f
}

func profiles(g engine.GPU) string {
	var out []string
	for _, m := range g.MIG {
		out = append(out, m.Profile)
	}
	return strings.Join(out, " ")
}

func TestFieldFault01ProcessOnMIGIsNotZeroPercent(t *testing.T) {
	b := newBench(t, "a100-40gb/mig=3g.20gb,h100-80gb/mig=3g.40gb")
	for _, i := range []int{1, 3} {
		p := simdevtest.Start(t, b.devices[i].HostPath)
		p.Hold(engine.GiB)
		p.SM(0.5)
	}
	b.sample()
	s := b.sample()
	ampere, hopper := s.GPUs[0].MIG[0], s.GPUs[1].MIG[0]
	if ampere.SM != nil || ampere.Processes[0].SM != nil {
		t.Errorf("Ampere: %v, process %v", ampere.SM, ampere.Processes[0].SM)
	}
	if hopper.SM == nil || *hopper.SM != 0.5 || hopper.MemoryBandwidth == nil || hopper.Processes[0].SM != nil {
		t.Errorf("Hopper: %v, bandwidth %v, process %v", hopper.SM, hopper.MemoryBandwidth, hopper.Processes[0].SM)
	}
}

func TestFieldFault03MissingUtilisationKeepsMemory(t *testing.T) {
	b := newBench(t, "t4")
	b.faults(refusing(nvml.ERROR_NOT_SUPPORTED, "utilization"))
	if g := b.sample().GPUs[0]; g.SM != nil || g.SMSource != "" || g.MemoryBandwidth != nil || g.MemoryUsed == nil {
		t.Errorf("%s", show(g))
	}
}

func TestFieldFault05EverySliceIsListed(t *testing.T) {
	b := newBench(t, "a100-40gb/mig=3g.20gb+2g.10gb+1g.5gb")
	g := b.sample().GPUs[0]
	if got := profiles(g); got != "3g.20gb 2g.10gb 1g.5gb" {
		t.Errorf("got %s", got)
	}
	for i, m := range g.MIG {
		if m.UUID != b.devices[i+1].UUID || m.MemoryTotal == nil || m.MemoryUsed == nil || m.PlacementSize == 0 {
			t.Errorf("%+v", m)
		}
	}
}

func TestFieldFault06HolesInTheListOfSlices(t *testing.T) {
	b := newBench(t, "a100-40gb/mig=3g.20gb+2g.10gb+1g.5gb")
	b.faults(simgpu.CardFaults{MIGHoles: []int{0, 2, 3}})
	if s := b.sample(); s.Error != "" || profiles(s.GPUs[0]) != "3g.20gb 2g.10gb 1g.5gb" {
		t.Errorf("%q: %s", s.Error, profiles(s.GPUs[0]))
	}
}

// A session goes on listing what it found; a changed layout is noticed in the same sample, and no row of it stays.
func TestFieldFault07DeletedSliceGoesAway(t *testing.T) {
	b := scenario(t, `
cards:
  - {model: h100-80gb, mig: [3g.40gb, 3g.40gb]}
events:
  - {after: 30s, card: 0, mig: [3g.40gb, 2g.20gb, 1g.10gb]}
`)
	if got := profiles(b.sample().GPUs[0]); got != "3g.40gb 3g.40gb" {
		t.Fatalf("at first: %s", got)
	}
	gone := b.c.known[b.devices[0].UUID].MIG[1].UUID
	b.now = b.now.Add(time.Minute)
	g := b.sample().GPUs[0]
	if got := profiles(g); got != "3g.40gb 2g.20gb 1g.10gb" {
		t.Errorf("after the change: %s", got)
	}
	if slices.ContainsFunc(g.MIG, func(m engine.MIGDevice) bool { return m.UUID == gone }) {
		t.Error("the deleted MIG device is still listed")
	}
	renewed := b.c.layout.renewed
	b.now = b.now.Add(time.Minute)
	if b.sample(); !b.c.layout.renewed.Equal(renewed) {
		t.Error("the session was renewed for nothing")
	}
}

func TestFieldFault13To18UnifiedMemory(t *testing.T) {
	b := newBench(t, "gb10,t4")
	proc := t.TempDir()
	text := "MemTotal:       125829120 kB\nMemAvailable:   104857600 kB\n"
	if err := os.WriteFile(filepath.Join(proc, "meminfo"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	b.c.o.Proc = proc
	p := simdevtest.Start(t, b.devices[0].HostPath)
	p.Hold(8 * engine.GiB)
	for name, f := range map[string]simgpu.CardFaults{"NOT_SUPPORTED": {}, "a total of 0": {Unified: true, Fields: map[string]nvml.Return{"memory": 0, "memory_v2": 0}}} {
		b.faults(f)
		g := b.sample().GPUs[0]
		if !g.MemoryUnified || g.MemoryTotal == nil || *g.MemoryTotal != 120*engine.GiB || *g.MemoryUsed != 20*engine.GiB {
			t.Errorf("%s: %s; what processes hold must not be added to the host's", name, show(g))
		}
		if g.PCIe != nil || g.Health != engine.HealthOK || g.Fan != nil || g.ECC != nil || g.PowerLimit != nil || g.ClockMemory != nil {
			t.Errorf("%s: link %v, fan %v, ECC %v, memory clock %v", name, g.PCIe, g.Fan, g.ECC, g.ClockMemory)
		}
		if len(g.Processes) != 1 || *g.Processes[0].Memory != 8*engine.GiB+300*engine.MiB {
			t.Errorf("%s: processes %v", name, g.Processes)
		}
	}
	// Neither says anything: unknown, not 0, and the card stays.
	b.c.o.Proc = t.TempDir()
	b.faults(simgpu.CardFaults{})
	if g := b.sample().GPUs[0]; g.MemoryTotal != nil || g.MemoryUsed != nil || g.Health != engine.HealthOK || g.Usable() != 0 {
		t.Errorf("%s", show(g))
	}
}

func TestFieldFault21LoadKeepsItsLastValueWithItsAge(t *testing.T) {
	b := newBench(t, "t4")
	p := simdevtest.Start(t, b.devices[0].HostPath)
	p.SM(0.5)
	p.Hold(engine.GiB)
	if g := b.sample().GPUs[0]; g.Processes[0].SM == nil || g.Processes[0].SMAge != 0 {
		t.Fatalf("at first: %+v", g.Processes[0])
	}
	b.faults(refusing(nvml.ERROR_NOT_FOUND, "process_utilization"))
	for age := 1.0; age <= 4; age++ {
		if q := b.sample().GPUs[0].Processes[0]; q.SM == nil || *q.SM != 0.5 || q.SMAge != age {
			t.Errorf("after %v s: %+v", age, q)
		}
	}
}

func TestFieldFault22ReservedIsNotUsed(t *testing.T) {
	b := newBench(t, "h100-80gb")
	simdevtest.Start(t, b.devices[0].HostPath).Hold(engine.GiB)
	for _, f := range []simgpu.CardFaults{{}, {UsedIncludesReserved: true}} {
		b.faults(f)
		g := b.sample().GPUs[0]
		if *g.MemoryUsed != engine.GiB+496*engine.MiB || *g.MemoryReserved != 551*engine.MiB {
			t.Errorf("%+v: %s", f, show(g))
		}
	}
}

// Each optional field, and all of them at once, refused in each way: the rest stays, and so does the card.
func TestFieldFault23OptionalFieldsAreOptional(t *testing.T) {
	optional := []string{"clocks", "throttle", "fan", "pcie_link", "pcie_throughput", "nvlink", "ecc", "persistence", "compute_mode", "events",
		"power", "power_limit", "temperature", "gpm", "process_utilization"}
	lists := [][]string{optional}
	for _, name := range optional {
		lists = append(lists, []string{name})
	}
	for _, r := range []nvml.Return{nvml.ERROR_NOT_SUPPORTED, nvml.ERROR_NO_PERMISSION, nvml.ERROR_UNKNOWN, nvml.ERROR_FUNCTION_NOT_FOUND} {
		for _, names := range lists {
			b := newBench(t, "rtx4090")
			b.faults(refusing(r, names...))
			g := b.sample().GPUs[0]
			if g.Health != engine.HealthOK || g.MemoryUsed == nil || !g.ProcessesKnown || g.Model == "" {
				t.Errorf("%v of %v: %s", r, names, show(g))
			}
			refused := map[string]bool{"clocks": g.ClockSM == nil && g.ClockMemoryMax == nil, "throttle": g.Throttle == nil, "fan": g.Fan == nil,
				"ecc": g.ECC == nil, "persistence": g.Persistence == nil, "compute_mode": g.ComputeMode == "", "events": !g.XIDsKnown,
				"pcie_link": g.PCIe == nil, "power": g.Power == nil, "temperature": g.Temperature == nil}
			for name, missing := range refused {
				if missing != slices.Contains(names, name) {
					t.Errorf("%v of %v: %s missing: %v", r, names, name, missing)
				}
			}
		}
	}
}

func TestFieldFault24And25LostCardIsARow(t *testing.T) {
	b := newBench(t, "t4:3")
	b.sample()
	b.faults(simgpu.CardFaults{Lost: true})
	s := b.sample()
	if len(s.GPUs) != 3 || s.Error != "" || s.GPUs[0].Health != engine.HealthLost || s.GPUs[0].UUID != b.devices[0].UUID {
		t.Fatalf("%q: %+v", s.Error, s.GPUs)
	}
	for _, g := range s.GPUs[1:] {
		if g.Health != engine.HealthOK || g.MemoryUsed == nil {
			t.Errorf("another card: %s", show(g))
		}
	}
	if g := s.GPUs[0]; g.MemoryUsed != nil || g.SM != nil || g.Temperature != nil || g.ClockSM != nil || g.PCIe != nil {
		t.Errorf("the lost card has values: %+v", g)
	}
}

func TestFieldFault28VersionMismatch(t *testing.T) {
	b := scenario(t, "cards: [{model: t4}]\nevents: [{driver: version-mismatch, for: 1m}]\n")
	if s := b.sample(); !strings.Contains(s.Error, "driver/library version mismatch); reboot") || len(s.GPUs) != 0 {
		t.Errorf("%q", s.Error)
	}
	b.now = b.now.Add(time.Minute)
	if s := b.sample(); s.Error != "" || len(s.GPUs) != 1 {
		t.Errorf("afterwards: %q", s.Error)
	}
}

// A zombie's memory is on the card though no process is.
func TestFieldFault35MemoryThatNobodyHolds(t *testing.T) {
	b := newBench(t, "t4")
	simdevtest.Start(t, b.devices[0].HostPath).Hold(4 * engine.GiB)
	lib := &changed{Interface: b.c.lib, device: func(d nvml.Device) nvml.Device { return withoutProcesses{d} }}
	b.c.lib = lib
	if g := b.sample().GPUs[0]; *g.MemoryUsed != 4*engine.GiB+300*engine.MiB || len(g.Processes) != 0 || !g.ProcessesKnown {
		t.Errorf("%s", show(g))
	}
}

func TestFieldFault36IndexIsPCIOrder(t *testing.T) {
	b := newBench(t, "t4,l40s,h100-80gb")
	lib := b.c.lib
	b.c.lib = &changed{Interface: lib, order: []int{2, 0, 1}}
	s := b.sample()
	for i, g := range s.GPUs {
		if g.Index != i || g.UUID != b.devices[i].UUID || g.PCIBusID != fmt.Sprintf("00000000:%02X:00.0", 0x10*(i+1)) {
			t.Errorf("%d: %s at %s", g.Index, g.Model, g.PCIBusID)
		}
	}
}

// NVML finds cards when a session begins; one that is put in, or comes back, is seen without a restart.
func TestFieldFault39AddedCardAppears(t *testing.T) {
	b := scenario(t, `
cards: [{model: t4}, {model: l40s}]
events:
  - {card: 1, removed: true, for: 30s}
  - {card: 0, removed: true, after: 2m}
`)
	if s := b.sample(); len(s.GPUs) != 1 || s.GPUs[0].Model != "Tesla T4" {
		t.Fatalf("at first: %+v", s.GPUs)
	}
	b.now = b.now.Add(time.Minute)
	if s := b.sample(); len(s.GPUs) != 2 || s.GPUs[1].Health != engine.HealthOK {
		t.Errorf("put in: %+v", s.GPUs)
	}
	b.now = b.now.Add(time.Minute)
	if s := b.sample(); len(s.GPUs) != 2 || s.GPUs[0].Health != engine.HealthLost || s.GPUs[1].Health != engine.HealthOK {
		t.Errorf("taken out: %+v", s.GPUs)
	}
}
