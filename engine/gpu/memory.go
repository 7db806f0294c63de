package gpu

import (
	"bufio"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"gputop/engine"
)

// amounts of memory in bytes.
type amounts struct{ total, used, reserved *engine.Bytes }

// memory fills in a card's memory. A card without memory of its own (it answers NOT_SUPPORTED, or a total of 0) shows
// the host's.
func (c *Collector) memory(g *engine.GPU, d nvml.Device) {
	a, r := c.deviceMemory(d)
	switch {
	case r == nvml.ERROR_NOT_SUPPORTED, r == nvml.SUCCESS && *a.total == 0:
		g.MemoryTotal, g.MemoryUsed = hostMemory(c.o.Proc)
		g.MemoryUnified = g.MemoryTotal != nil
	case c.healthy(g, r):
		g.MemoryTotal, g.MemoryUsed, g.MemoryReserved = a.total, a.used, a.reserved
	}
}

// mostMemory is more than any device has, in bytes; NVML gives 2^64-1 for what it does not know.
const mostMemory = 1 << 50

// deviceMemory asks a card or a MIG device. On success total is set.
func (c *Collector) deviceMemory(d nvml.Device) (amounts, nvml.Return) {
	if c.has("nvmlDeviceGetMemoryInfo_v2") {
		m, r := d.GetMemoryInfo_v2()
		if r == nvml.SUCCESS {
			used := m.Used
			// The header says both that used includes what is reserved and that it does not; the sum tells.
			if m.Used+m.Free == m.Total && m.Reserved <= m.Used {
				used -= m.Reserved
			}
			return sensible(m.Total, used, &m.Reserved)
		}
		if r == nvml.ERROR_GPU_IS_LOST {
			return amounts{}, r
		}
	}
	m, r := d.GetMemoryInfo()
	if r != nvml.SUCCESS {
		return amounts{}, r
	}
	return sensible(m.Total, m.Used, nil)
}

// sensible leaves out what cannot be.
func sensible(total, used uint64, reserved *uint64) (amounts, nvml.Return) {
	if total > mostMemory {
		return amounts{}, nvml.ERROR_NO_DATA
	}
	a := amounts{total: ptr(engine.Bytes(total))}
	if used <= total {
		a.used = ptr(engine.Bytes(used))
	}
	if reserved != nil && *reserved <= total {
		a.reserved = ptr(engine.Bytes(*reserved))
	}
	return a, nvml.SUCCESS
}

// hostMemory is MemTotal, and MemTotal less MemAvailable.
func hostMemory(proc string) (total, used *engine.Bytes) {
	f, err := os.Open(filepath.Join(proc, "meminfo"))
	if err != nil {
		return nil, nil
	}
	defer f.Close()
	values := map[string]engine.Bytes{}
	for s := bufio.NewScanner(f); s.Scan(); {
		name, rest, _ := strings.Cut(s.Text(), ":")
		fields := strings.Fields(rest)
		if len(fields) != 2 || fields[1] != "kB" {
			continue
		}
		if n, err := strconv.ParseInt(fields[0], 10, 53); err == nil {
			values[name] = engine.Bytes(n) * engine.KiB
		}
	}
	t, ok := values["MemTotal"]
	if !ok {
		return nil, nil
	}
	if a, ok := values["MemAvailable"]; ok {
		used = ptr(max(t-a, 0))
	}
	return &t, used
}
