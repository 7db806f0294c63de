package gpu

import (
	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"gputop/engine"
)

// pcieTurns is how many cards are asked for their PCIe traffic in one sample where the counters do not tell it: the
// driver waits 20 ms for each of the two directions (NVML's manual). The others show their last value meanwhile.
const pcieTurns = 2

type pcieTraffic struct{ receive, transmit *float64 }

// turn says whether it is the turn of card i of n.
func (c *Collector) turn(i, n int) bool {
	return (i+int(c.seq%uint64(n))*pcieTurns)%n < pcieTurns
}

// link is the state of the PCIe link; nil when the card says nothing of it.
func (c *Collector) link(g *engine.GPU, d nvml.Device) *engine.PCIe {
	number := func(symbol string, get func() (int, nvml.Return)) *int {
		if v := ask(c, g, symbol, get); v != nil && *v > 0 && *v <= 64 {
			return v
		}
		return nil
	}
	p := engine.PCIe{Generation: number("nvmlDeviceGetCurrPcieLinkGeneration", d.GetCurrPcieLinkGeneration),
		GenerationMax: number("nvmlDeviceGetMaxPcieLinkGeneration", d.GetMaxPcieLinkGeneration),
		Width:         number("nvmlDeviceGetCurrPcieLinkWidth", d.GetCurrPcieLinkWidth),
		WidthMax:      number("nvmlDeviceGetMaxPcieLinkWidth", d.GetMaxPcieLinkWidth)}
	if p == (engine.PCIe{}) {
		return nil
	}
	return &p
}

// nvlink counts the links; nil when the card has none.
func (c *Collector) nvlink(g *engine.GPU, d nvml.Device) *engine.NVLink {
	if !c.has("nvmlDeviceGetNvLinkState") {
		return nil
	}
	var out engine.NVLink
	for i := range nvml.NVLINK_MAX_LINKS {
		state, r := d.GetNvLinkState(i)
		if r == nvml.ERROR_NOT_SUPPORTED || r == nvml.ERROR_INVALID_ARGUMENT {
			break // links are numbered without gaps
		}
		if !c.healthy(g, r) {
			continue
		}
		out.Total++
		if state == nvml.FEATURE_ENABLED {
			out.Active++
		}
	}
	if out.Total == 0 {
		return nil
	}
	return &out
}

// traffic fills in what the links carry: by the card's counters, or of PCIe by the driver's slower way.
func (c *Collector) traffic(g *engine.GPU, d nvml.Device, m gpmReading) {
	if g.NVLink != nil {
		g.NVLink.Receive, g.NVLink.Transmit = m.linkReceive, m.linkTransmit
	}
	if g.PCIe == nil {
		return
	}
	g.PCIe.Receive, g.PCIe.Transmit = m.pcieReceive, m.pcieTransmit
	if m.pcieReceive != nil || m.pcieTransmit != nil || !c.has("nvmlDeviceGetPcieThroughput") {
		return
	}
	t := c.pcie[g.UUID]
	if t == nil || c.pcieTurn {
		t = &pcieTraffic{}
		if c.pcieTurn {
			t.receive, t.transmit = c.throughput(g, d, nvml.PCIE_UTIL_RX_BYTES), c.throughput(g, d, nvml.PCIE_UTIL_TX_BYTES)
		}
		c.pcie[g.UUID] = t
	}
	g.PCIe.Receive, g.PCIe.Transmit = t.receive, t.transmit
}

// throughput is in bytes a second; the driver's is in KB.
func (c *Collector) throughput(g *engine.GPU, d nvml.Device, which nvml.PcieUtilCounter) *float64 {
	v, r := d.GetPcieThroughput(which)
	if !c.healthy(g, r) || v == 1<<32-1 {
		return nil
	}
	return ptr(float64(v) * 1000)
}
