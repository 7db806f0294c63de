package gpu

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"gputop/engine"
	"gputop/engine/gpu/simgpu"
	"gputop/engine/gpu/simgpu/simdev/simdevtest"
)

func TestMain(m *testing.M) {
	o := SamplerOptions{Interval: MinInterval, Out: os.Stdout, Parent: os.Stdin, Library: os.Getenv(libraryEnv)}
	if dir := os.Getenv(samplerEnv); dir != "" {
		o.Simulate, o.SimDir, o.Instance = "t4:2", dir, "test"
	}
	if o.Simulate != "" || o.Library != "" {
		if err := RunSampler(context.Background(), o); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	simdevtest.Main(m)
}

// bench is a collector over simulated cards.
type bench struct {
	t       *testing.T
	dir     string
	devices []simgpu.Device
	c       *Collector
	now     time.Time
}

func newBench(t *testing.T, spec string) *bench {
	t.Helper()
	cfg, err := simgpu.Parse(spec)
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{t: t, dir: t.TempDir(), now: time.Now()}
	if b.devices, err = simgpu.Prepare(b.dir, cfg, "test"); err != nil {
		t.Fatal(err)
	}
	lib, err := simgpu.NewWithClock(b.dir, cfg, "test", func() time.Time { return b.now })
	if err != nil {
		t.Fatal(err)
	}
	b.c = New(lib, Options{Simulated: true})
	t.Cleanup(b.c.Close)
	return b
}

func (b *bench) faults(f simgpu.CardFaults) {
	b.t.Helper()
	if err := simgpu.SetFaults(b.dir, simgpu.Faults{Cards: map[int]simgpu.CardFaults{0: f}}); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) sample() engine.Sample {
	b.now = b.now.Add(time.Second)
	return b.c.Sample(b.now)
}

// show is a card's measured fields in one line; "-" is unknown.
func show(g engine.GPU) string {
	opt := func(ok bool, s func() string) string {
		if !ok {
			return "-"
		}
		return s()
	}
	memory := func(b *engine.Bytes) string { return opt(b != nil, func() string { return b.String() }) }
	s := fmt.Sprintf("%s total=%s used=%s reserved=%s", g.Health, memory(g.MemoryTotal), memory(g.MemoryUsed), memory(g.MemoryReserved))
	s += " sm=" + opt(g.SM != nil, func() string { return fmt.Sprintf("%.2f/%s", *g.SM, g.SMSource) })
	s += " temp=" + opt(g.Temperature != nil, func() string { return fmt.Sprint(*g.Temperature) })
	s += " power=" + opt(g.Power != nil && g.PowerLimit != nil, func() string { return fmt.Sprintf("%.0f/%.0f", *g.Power, *g.PowerLimit) })
	return s + " procs=" + opt(g.ProcessesKnown, func() string {
		var out []string
		for _, p := range g.Processes {
			out = append(out, memory(p.Memory))
		}
		return "[" + strings.Join(out, " ") + "]"
	})
}

func TestFieldsFailAlone(t *testing.T) {
	b := newBench(t, "a100-40gb,t4")
	p := simdevtest.Start(t, b.devices[0].HostPath)
	p.Hold(8*engine.GiB - 412*engine.MiB)
	fields := func(r nvml.Return, names ...string) simgpu.CardFaults {
		f := simgpu.CardFaults{Fields: map[string]nvml.Return{}}
		for _, n := range names {
			f.Fields[n] = r
		}
		return f
	}
	const none, unknown = nvml.ERROR_NOT_SUPPORTED, nvml.ERROR_UNKNOWN
	for _, c := range []struct {
		name string
		f    simgpu.CardFaults
		want string
	}{
		{"well", simgpu.CardFaults{}, "ok total=40GiB used=8GiB reserved=571MiB sm=0.00/utilization temp=29 power=52/400 procs=[8GiB]"},
		{"no power", fields(none, "power"), "ok total=40GiB used=8GiB reserved=571MiB sm=0.00/utilization temp=29 power=- procs=[8GiB]"},
		{"no temperature, no utilisation", fields(unknown, "temperature", "utilization"),
			"ok total=40GiB used=8GiB reserved=571MiB sm=- temp=- power=52/400 procs=[8GiB]"},
		{"no processes", fields(unknown, "processes"), "ok total=40GiB used=8GiB reserved=571MiB sm=0.00/utilization temp=29 power=52/400 procs=-"},
		{"process memory unknown", simgpu.CardFaults{ProcessMemoryUnknown: true},
			"ok total=40GiB used=8GiB reserved=571MiB sm=0.00/utilization temp=29 power=52/400 procs=[-]"},
		{"memory unknown", fields(unknown, "memory"), "ok total=- used=- reserved=- sm=0.00/utilization temp=29 power=52/400 procs=[8GiB]"},
		{"old memory call only", fields(none, "memory_v2"),
			"ok total=40GiB used=8.6GiB reserved=- sm=0.00/utilization temp=29 power=52/400 procs=[8GiB]"},
		{"used counts what is reserved", simgpu.CardFaults{UsedIncludesReserved: true},
			"ok total=40GiB used=8GiB reserved=571MiB sm=0.00/utilization temp=29 power=52/400 procs=[8GiB]"},
		{"lost", simgpu.CardFaults{Lost: true}, "lost total=40GiB used=- reserved=571MiB sm=- temp=- power=- procs=-"},
		{"lost half way", fields(nvml.ERROR_GPU_IS_LOST, "processes"), "lost total=40GiB used=- reserved=571MiB sm=- temp=- power=- procs=-"},
		{"wants a reset", fields(nvml.ERROR_RESET_REQUIRED, "temperature"),
			"fault total=40GiB used=8GiB reserved=571MiB sm=0.00/utilization temp=- power=52/400 procs=[8GiB]"},
	} {
		t.Run(c.name, func(t *testing.T) {
			b.faults(c.f)
			s := b.sample()
			if len(s.GPUs) != 2 || s.Error != "" {
				t.Fatalf("%d cards, error %q", len(s.GPUs), s.Error)
			}
			if got := show(s.GPUs[0]); got != c.want {
				t.Errorf("\n got %s\nwant %s", got, c.want)
			}
			if s.GPUs[0].UUID != b.devices[0].UUID || s.GPUs[0].Model != "NVIDIA A100-SXM4-40GB" || s.GPUs[0].Minor != 0 {
				t.Errorf("identity: %+v", s.GPUs[0])
			}
			const neighbour = "ok total=15GiB used=0B reserved=450MiB sm=0.00/utilization temp=36 power=10/70 procs=[]"
			if got := show(s.GPUs[1]); got != neighbour || s.GPUs[1].Index != 1 {
				t.Errorf("the other card: %s", got)
			}
		})
	}
}

func TestUnifiedMemory(t *testing.T) {
	proc := t.TempDir()
	text := "MemTotal:       134217728 kB\nMemFree: 1 kB\nMemAvailable:   100663296 kB\n"
	if err := os.WriteFile(filepath.Join(proc, "meminfo"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, f := range map[string]simgpu.CardFaults{
		"total of 0":    {Unified: true},
		"not supported": {Fields: map[string]nvml.Return{"memory": nvml.ERROR_NOT_SUPPORTED}},
	} {
		b := newBench(t, "t4")
		b.c.o.Proc = proc
		b.faults(f)
		g := b.sample().GPUs[0]
		if !g.MemoryUnified || g.MemoryTotal == nil || *g.MemoryTotal != 128*engine.GiB || g.MemoryUsed == nil || *g.MemoryUsed != 32*engine.GiB ||
			g.MemoryReserved != nil {
			t.Errorf("%s: %s", name, show(g))
		}
	}
}

func TestProcesses(t *testing.T) {
	b := newBench(t, "rtx4090")
	one, two := simdevtest.Start(t, b.devices[0].HostPath), simdevtest.Start(t, b.devices[0].HostPath)
	one.Hold(3*engine.GiB + 1)
	one.SM(0.25)
	two.Hold(engine.GiB)
	g := b.sample().GPUs[0]
	const context = 366 * engine.MiB
	if want := 4*engine.GiB + 1 + 2*context; *g.MemoryUsed != want {
		t.Errorf("used %d, want %d", *g.MemoryUsed, want)
	}
	if len(g.Processes) != 2 || *g.SM != 0.25 || g.SMSource != "utilization" {
		t.Fatalf("%s %v", show(g), g.Processes)
	}
	ns, err := os.Readlink("/proc/self/ns/pid")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range g.Processes {
		want, sm := engine.GiB+context, 0.0
		if p.PID == one.PID() {
			want, sm = 3*engine.GiB+1+context, 0.25
		}
		if *p.Memory != want || p.SM == nil || *p.SM != sm || p.Type != "C" {
			t.Errorf("process %+v: memory %d, sm %v", p, *p.Memory, p.SM)
		}
		if p.Start == 0 || int(p.UID) != os.Getuid() || fmt.Sprintf("pid:[%d]", p.PIDNamespace) != ns || p.Command != "/proc/self/exe" {
			t.Errorf("process %+v", p)
		}
	}
	one.Kill()
	two.Kill()
	if g := b.sample().GPUs[0]; *g.MemoryUsed != 0 || len(g.Processes) != 0 || !g.ProcessesKnown {
		t.Errorf("after both have gone: %s", show(g))
	}
}

// A driver tells a process's load now and then only; the last word stands for a while and then is unknown.
func TestProcessLoadDoesNotFlicker(t *testing.T) {
	b := newBench(t, "t4")
	p := simdevtest.Start(t, b.devices[0].HostPath)
	p.SM(0.5)
	b.sample()
	b.faults(simgpu.CardFaults{Fields: map[string]nvml.Return{"process_utilization": nvml.ERROR_NOT_FOUND}})
	if g := b.sample().GPUs[0]; g.Processes[0].SM == nil || *g.Processes[0].SM != 0.5 {
		t.Errorf("a second later: %v", g.Processes[0].SM)
	}
	b.now = b.now.Add(loadAge)
	if g := b.sample().GPUs[0]; g.Processes[0].SM != nil {
		t.Errorf("long after: %v", *g.Processes[0].SM)
	}
}

func TestMIG(t *testing.T) {
	const spec = "a100-40gb/mig=3g.20gb+2g.10gb+1g.5gb"
	b := newBench(t, spec)
	p := simdevtest.Start(t, b.devices[2].HostPath)
	p.Hold(engine.GiB)
	p.SM(0.5)
	b.faults(simgpu.CardFaults{MIGHoles: []int{0, 2}})
	g := b.sample().GPUs[0]
	var got []string
	for _, m := range g.MIG {
		got = append(got, fmt.Sprintf("%s gi%d ci%d at %d+%d %s/%s %d", m.Profile, m.GPUInstance, m.ComputeInstance, m.PlacementStart, m.PlacementSize,
			m.MemoryUsed, m.MemoryTotal, len(m.Processes)))
		if m.SM != nil {
			t.Errorf("Ampere does not measure a MIG device's activity: %v", *m.SM)
		}
	}
	want := []string{"3g.20gb gi1 ci0 at 0+4 0B/19.7GiB 0", "2g.10gb gi2 ci0 at 4+2 1.4GiB/9.9GiB 1", "1g.5gb gi3 ci0 at 6+1 0B/4.9GiB 0"}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got:\n%s", strings.Join(got, "\n"))
	}
	if !g.MIGMode || g.SM != nil || len(g.Processes) != 0 || !g.ProcessesKnown || *g.MemoryUsed != engine.GiB+412*engine.MiB {
		t.Errorf("the card: %s", show(g))
	}
	if m := g.MIG[1]; m.UUID != b.devices[2].UUID || m.Processes[0].PID != p.PID() || m.Processes[0].SM != nil {
		t.Errorf("the MIG device in use: %+v", m)
	}
}

func TestGPM(t *testing.T) {
	for spec, device := range map[string]int{"h100-80gb": 0, "h200-141gb/mig=3g.71gb": 1} {
		b := newBench(t, spec)
		p := simdevtest.Start(t, b.devices[device].HostPath)
		p.SM(0.375)
		b.sample()
		g := b.sample().GPUs[0]
		sm, source := g.SM, g.SMSource
		if device == 1 {
			if sm != nil {
				t.Errorf("%s: the card in MIG mode has SM activity %v", spec, *sm)
			}
			sm, source = g.MIG[0].SM, "gpm"
		}
		if sm == nil || *sm != 0.375 || source != "gpm" {
			t.Errorf("%s: %v by %q", spec, sm, source)
		}
	}
}
