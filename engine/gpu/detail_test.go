package gpu

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"gputop/engine"
	"gputop/engine/gpu/simgpu"
	"gputop/engine/gpu/simgpu/simdev/simdevtest"
)

// details is a card's detail as it goes over the wire, without the time of its errors.
func details(t *testing.T, g engine.GPU) string {
	t.Helper()
	d := g.CardDetail
	d.XIDs = nil
	b, err := json.Marshal(d)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestDetail(t *testing.T) {
	for spec, want := range map[string]struct{ idle, busy string }{
		"h100-80gb": {
			`{"clock_sm_mhz":210,"clock_sm_max_mhz":1980,"clock_memory_mhz":2619,"clock_memory_max_mhz":2619,"throttle_reasons":[],` +
				`"pcie":{"generation":5,"generation_max":5,"width":16,"width_max":16,"receive_bytes_per_second":0,"transmit_bytes_per_second":0},` +
				`"nvlink":{"active":18,"total":18,"receive_bytes_per_second":0,"transmit_bytes_per_second":0},` +
				`"ecc":{"enabled":true,"corrected":0,"uncorrected":0},"xids_known":true,"persistence":true,"compute_mode":"default"}`,
			`{"clock_sm_mhz":1980,"clock_sm_max_mhz":1980,"clock_memory_mhz":2619,"clock_memory_max_mhz":2619,"throttle_reasons":["power-cap"],` +
				`"pcie":{"generation":5,"generation_max":5,"width":16,"width_max":16,"receive_bytes_per_second":2147483648,"transmit_bytes_per_second":2147483648},` +
				`"nvlink":{"active":18,"total":18,"receive_bytes_per_second":0,"transmit_bytes_per_second":0},` +
				`"ecc":{"enabled":true,"corrected":0,"uncorrected":0},"xids_known":true,"persistence":true,"compute_mode":"default"}`},
		"gtx1650": {
			`{"clock_sm_mhz":210,"clock_sm_max_mhz":2100,"clock_memory_mhz":4001,"clock_memory_max_mhz":4001,"throttle_reasons":[],"fan_percent":0,` +
				`"pcie":{"generation":3,"generation_max":3,"width":16,"width_max":16,"receive_bytes_per_second":0,"transmit_bytes_per_second":0},` +
				`"xids_known":false,"persistence":true,"compute_mode":"default"}`,
			`{"clock_sm_mhz":2100,"clock_sm_max_mhz":2100,"clock_memory_mhz":4001,"clock_memory_max_mhz":4001,"throttle_reasons":["power-cap"],"fan_percent":80,` +
				`"pcie":{"generation":3,"generation_max":3,"width":16,"width_max":16,"receive_bytes_per_second":2147483000,"transmit_bytes_per_second":2147483000},` +
				`"xids_known":false,"persistence":true,"compute_mode":"default"}`},
	} {
		b := newBench(t, spec)
		b.sample()
		if got := details(t, b.sample().GPUs[0]); got != want.idle {
			t.Errorf("%s, idle:\n got %s\nwant %s", spec, got, want.idle)
		}
		simdevtest.Start(t, b.devices[0].HostPath).SM(1)
		for range 60 {
			b.sample()
		}
		g := b.sample().GPUs[0]
		if got := details(t, g); got != want.busy {
			t.Errorf("%s, busy:\n got %s\nwant %s", spec, got, want.busy)
		}
		if *g.MemoryBandwidth != 0.6 || g.MemoryBandwidthSource != g.SMSource {
			t.Errorf("%s: bandwidth %v by %q", spec, *g.MemoryBandwidth, g.MemoryBandwidthSource)
		}
	}
}

// The driver waits 20 ms for each direction of a card's traffic, so that not all cards are asked in one sample.
func TestPCIeTrafficIsAskedInTurn(t *testing.T) {
	b := newBench(t, "t4:6")
	asked := 0
	b.c.lib = &changed{Interface: b.c.lib, device: func(d nvml.Device) nvml.Device { return countsTraffic{d, &asked} }}
	for i := range 9 {
		asked = 0
		s := b.sample()
		if asked > 2*pcieTurns {
			t.Errorf("sample %d: %d calls", i, asked)
		}
		for _, g := range s.GPUs {
			if i >= 3 && g.PCIe.Receive == nil {
				t.Errorf("sample %d: GPU %d has no traffic", i, g.Index)
			}
		}
	}
}

type countsTraffic struct {
	nvml.Device
	n *int
}

func (d countsTraffic) GetPcieThroughput(c nvml.PcieUtilCounter) (uint32, nvml.Return) {
	*d.n++
	return d.Device.GetPcieThroughput(c)
}

// Errors that a program can bring about say nothing about the card; one of the hardware makes it unfit, also after the
// session was renewed, and is not pushed out of the list.
func TestApplicationXIDsAreNoFault(t *testing.T) {
	b := newBench(t, "t4")
	b.sample()
	app := []int{13, 31, 43, 45, 68, 109}
	b.faults(simgpu.CardFaults{XIDs: app})
	if g := b.sample().GPUs[0]; g.Health != engine.HealthOK || len(g.XIDs) != len(app) || !g.XIDsKnown {
		t.Errorf("errors of programs: %s, %v", g.Health, g.XIDs)
	}
	b.faults(simgpu.CardFaults{XIDs: append(app, 79)})
	g := b.sample().GPUs[0]
	if g.Health != engine.HealthFault || !strings.HasPrefix(g.HealthDetail, "Xid 79 was reported at ") || g.MemoryUsed == nil {
		t.Errorf("Xid 79: %s, %s", g.Health, g.HealthDetail)
	}
	for range 20 {
		app = append(app, 13, 31)
		b.faults(simgpu.CardFaults{XIDs: append([]int{13, 31, 43, 45, 68, 109, 79}, app[6:]...)})
		g = b.sample().GPUs[0]
	}
	if len(g.XIDs) != maxXIDs || g.Health != engine.HealthFault {
		t.Errorf("after many more: %s, %v", g.Health, g.XIDs)
	}
	b.c.Close()
	if g := b.sample().GPUs[0]; g.Health != engine.HealthFault {
		t.Errorf("in a new session: %s", g.Health)
	}
	b.faults(simgpu.CardFaults{XIDs: app, Lost: true})
	if g := b.sample().GPUs[0]; g.Health != engine.HealthLost || !strings.HasSuffix(g.HealthDetail, "(Xid 79)") {
		t.Errorf("lost: %s", g.HealthDetail)
	}
}

func TestComputeModes(t *testing.T) {
	b := scenario(t, "cards: [{model: t4}, {model: t4, compute_mode: exclusive}, {model: t4, compute_mode: prohibited}]\n")
	for i, want := range []engine.ComputeMode{engine.ComputeDefault, engine.ComputeExclusive, engine.ComputeProhibited} {
		if got := b.sample().GPUs[i].ComputeMode; got != want {
			t.Errorf("GPU %d: %q", i, got)
		}
	}
}

// Two compute instances of one GPU instance share its memory and its counters.
func TestSharedInstance(t *testing.T) {
	b := newBench(t, "h100-80gb/mig=1c.3g.40gb+2c.3g.40gb+3g.40gb")
	one, two := simdevtest.Start(t, b.devices[1].HostPath), simdevtest.Start(t, b.devices[2].HostPath)
	one.Hold(engine.GiB)
	two.Hold(2 * engine.GiB)
	one.SM(0.75)
	two.SM(0.375)
	b.sample()
	g := b.sample().GPUs[0]
	var got []string
	for _, m := range g.MIG {
		got = append(got, fmt.Sprintf("%s gi%d ci%d at %d+%d used %s sm %.2f shared %v of %d", m.Profile, m.GPUInstance, m.ComputeInstance,
			m.PlacementStart, m.PlacementSize, *m.MemoryUsed-2*496*engine.MiB*engine.Bytes(min(1, len(m.Processes))), *m.SM, m.InstanceShared, len(m.Processes)))
	}
	want := []string{"1c.3g.40gb gi1 ci0 at 0+4 used 3GiB sm 0.50 shared true of 1", "2c.3g.40gb gi1 ci1 at 0+4 used 3GiB sm 0.50 shared true of 1",
		"3g.40gb gi2 ci0 at 4+4 used 0B sm 0.00 shared false of 0"}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got\n%s", strings.Join(got, "\n"))
	}
	if *g.MemoryUsed != 3*engine.GiB+2*496*engine.MiB {
		t.Errorf("the card's memory counts twice what is on one GPU instance: %s", g.MemoryUsed)
	}
}

// A PID that somebody else has got has none of its former owner's load.
func TestReusedPID(t *testing.T) {
	b := newBench(t, "t4")
	p := simdevtest.Start(t, b.devices[0].HostPath)
	p.Hold(engine.GiB)
	p.SM(0.5)
	q := b.sample().GPUs[0].Processes[0]
	load := b.c.load[b.devices[0].UUID].load
	if _, ok := load[q.Key(b.devices[0].UUID)]; !ok || q.Start == 0 {
		t.Fatalf("loads %v", load)
	}
	was := load[q.Key(b.devices[0].UUID)]
	clear(load)
	load[engine.ProcessKey{PID: q.PID, Start: q.Start - 1, Device: b.devices[0].UUID}] = was
	b.faults(refusing(nvml.ERROR_NOT_FOUND, "process_utilization"))
	if q := b.sample().GPUs[0].Processes[0]; q.SM != nil {
		t.Errorf("it has the load %v of another process", *q.SM)
	}
}

// Without any of the newer functions there are fewer values, and nothing is called that is not there.
func TestNoNewFunctions(t *testing.T) {
	b := newBench(t, "h100-80gb")
	lacks := map[string]bool{}
	for _, s := range []string{"nvmlDeviceGetClockInfo", "nvmlDeviceGetMaxClockInfo", "nvmlDeviceGetFanSpeed", "nvmlDeviceGetNvLinkState",
		"nvmlDeviceGetCurrPcieLinkGeneration", "nvmlDeviceGetMaxPcieLinkGeneration", "nvmlDeviceGetCurrPcieLinkWidth", "nvmlDeviceGetMaxPcieLinkWidth",
		"nvmlDeviceGetEccMode", "nvmlDeviceGetPersistenceMode", "nvmlDeviceGetComputeMode", "nvmlEventSetCreate",
		"nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons", "nvmlGpmSampleGet", "nvmlDeviceGetMigMode"} {
		lacks[s] = true
	}
	b.c.lib = &changed{Interface: b.c.lib, lacks: lacks}
	b.sample()
	if g := b.sample().GPUs[0]; details(t, g) != `{"xids_known":false}` || g.SMSource != engine.SourceUtilization {
		t.Errorf("%s, %s", details(t, g), g.SMSource)
	}
}

func TestSettingsAreAskedNowAndThen(t *testing.T) {
	b := newBench(t, "t4")
	b.sample()
	b.faults(refusing(nvml.ERROR_NOT_SUPPORTED, "persistence"))
	if g := b.sample().GPUs[0]; g.Persistence == nil {
		t.Error("asked again a second later")
	}
	b.now = b.now.Add(slowAge)
	if g := b.sample().GPUs[0]; g.Persistence != nil {
		t.Error("not asked again")
	}
}

// A PID that somebody else has got shows whose it is now.
func TestReusedPIDIsSomebodyElse(t *testing.T) {
	c := New(nil, Options{Proc: t.TempDir()})
	write := func(start, uid int, command string) {
		dir := filepath.Join(c.o.Proc, "42")
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		for name, text := range map[string]string{"stat": fmt.Sprintf("42 (x) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 %d 20", start),
			"status": fmt.Sprintf("Name:\tx\nUid:\t%d\t0\t0\t0\n", uid), "cmdline": command + "\x00"} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	now := time.Unix(1_700_000_000, 0)
	ask := func() string {
		p := engine.GPUProcess{PID: 42}
		c.describe(&p, now)
		return fmt.Sprint(p.Start, " ", p.UID, " ", p.Command)
	}
	write(100, 1000, "train")
	if got := ask(); got != "100 1000 train" {
		t.Errorf("got %s", got)
	}
	write(200, 1001, "other")
	if got := ask(); got != "200 1001 other" {
		t.Errorf("reused: %s", got)
	}
	write(200, 1001, "next")
	now = now.Add(personAge + 1)
	if got := ask(); got != "200 1001 next" {
		t.Errorf("another program in its place: %s", got)
	}
}

// What is no number is no value.
func TestCountersThatAreNoNumbers(t *testing.T) {
	for _, v := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
		b := newBench(t, "h100-80gb")
		b.c.lib = &oddCounters{b.c.lib, v}
		b.sample()
		if g := b.sample().GPUs[0]; g.SMSource != engine.SourceUtilization || g.MemoryBandwidthSource != engine.SourceUtilization {
			t.Errorf("%v: SM %v by %s", v, *g.SM, g.SMSource)
		}
	}
}

type oddCounters struct {
	nvml.Interface
	v float64
}

func (l *oddCounters) GpmMetricsGet(m *nvml.GpmMetricsGetType) nvml.Return {
	for i := range m.Metrics[:m.NumMetrics] {
		m.Metrics[i].Value, m.Metrics[i].NvmlReturn = l.v, uint32(nvml.SUCCESS)
	}
	return nvml.SUCCESS
}
