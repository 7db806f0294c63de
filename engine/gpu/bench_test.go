package gpu

import (
	"encoding/json"
	"io"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"gputop/engine/gpu/simgpu"
)

// fullBox is 8 cards of 7 MIG devices each. The simulated library's own work counts as well: it reads the kernel's
// table of locks for each device, which a real one does not.
func fullBox(tb testing.TB) (*Collector, func() time.Time) {
	tb.Helper()
	cfg, err := simgpu.Parse("h100-80gb:8/mig=" + strings.TrimSuffix(strings.Repeat("1g.10gb+", 7), "+"))
	if err != nil {
		tb.Fatal(err)
	}
	now := time.Now()
	step := func() time.Time { now = now.Add(time.Second); return now }
	lib, err := simgpu.NewWithClock(tb.TempDir(), cfg, "bench", func() time.Time { return now })
	if err != nil {
		tb.Fatal(err)
	}
	c := New(&crowded{Interface: lib}, Options{Simulated: true})
	tb.Cleanup(c.Close)
	return c, step
}

// crowded puts 64 processes on the first cards: real ones, as far as the machine has them.
type crowded struct{ nvml.Interface }

func (l *crowded) DeviceGetHandleByIndex(i int) (nvml.Device, nvml.Return) {
	d, r := l.Interface.DeviceGetHandleByIndex(i)
	return crowdedCard{d}, r
}

type crowdedCard struct{ nvml.Device }

func (c crowdedCard) GetMigDeviceHandleByIndex(i int) (nvml.Device, nvml.Return) {
	d, r := c.Device.GetMigDeviceHandleByIndex(i)
	return crowdedSlice{d}, r
}

type crowdedSlice struct{ nvml.Device }

func (c crowdedSlice) GetComputeRunningProcesses() ([]nvml.ProcessInfo, nvml.Return) {
	return []nvml.ProcessInfo{{Pid: 1, UsedGpuMemory: 1 << 30}}, nvml.SUCCESS
}

// BenchmarkSample is one sample of the full box, written as a line. At one a second, 10 ms is 1 % of a core.
func BenchmarkSample(b *testing.B) {
	c, step := fullBox(b)
	out := json.NewEncoder(io.Discard)
	for b.Loop() {
		if err := out.Encode(c.Sample(step())); err != nil {
			b.Fatal(err)
		}
	}
}

// What is kept does not grow with the number of samples.
func TestNoGrowth(t *testing.T) {
	c, step := fullBox(t)
	heap := func(samples int) uint64 {
		for range samples {
			c.Sample(step())
		}
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap(50)
	if after := heap(300); after > before+1<<20 {
		t.Errorf("%d bytes after 50 samples, %d after 350", before, after)
	}
}
