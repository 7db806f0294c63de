package gpu

import (
	"strings"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"gputop/engine"
)

const lostDetail = "the card fell off the bus; see dmesg for the Xid, then reset the card or reboot"

// Larger values are no measurement: drivers give all ones for what they have not.
const (
	hottest        = 200 // degrees Celsius
	mostMilliwatts = 100_000_000
	fastestClock   = 100_000 // MHz
)

// card looks at one card. Each field fails alone; a lost card is a row of its own.
func (c *Collector) card(i int, now time.Time) engine.GPU {
	g := engine.GPU{Health: engine.HealthOK, Minor: -1}
	d, r := c.lib.DeviceGetHandleByIndex(i)
	if !c.healthy(&g, r) {
		return g
	}
	id, r := d.GetUUID()
	if !c.healthy(&g, r) {
		return g
	}
	g.UUID = engine.DeviceID(id)
	c.handles[g.UUID] = d
	if v, r := d.GetName(); c.healthy(&g, r) {
		g.Model = v
	}
	if v, r := d.GetMinorNumber(); c.healthy(&g, r) {
		g.Minor = v
	}
	if v, r := d.GetPciInfo(); c.healthy(&g, r) {
		g.PCIBusID = text(v.BusId[:])
	}
	c.memory(&g, d)
	if v, r := d.GetTemperature(nvml.TEMPERATURE_GPU); c.healthy(&g, r) && v <= hottest {
		g.Temperature = ptr(int(v))
	}
	if v, r := d.GetPowerUsage(); c.healthy(&g, r) && v <= mostMilliwatts {
		g.Power = ptr(float64(v) / 1000)
	}
	if v, r := d.GetEnforcedPowerLimit(); c.healthy(&g, r) && v <= mostMilliwatts {
		g.PowerLimit = ptr(float64(v) / 1000)
	}
	c.listenTo(g.UUID, d)
	c.detail(&g, d, now)
	if c.migOn(&g, d) {
		g.MIGMode = true
		c.migDevices(&g, d, now)
	} else {
		c.activity(&g, d, now)
		g.Processes, g.ProcessesKnown = c.processes(d, &g, now)
		c.processActivity(&g, d, now)
	}
	c.reported(&g)
	if g.Health == engine.HealthLost {
		// What was read before the card went is of no use, its name aside.
		return c.lostRow(g)
	}
	return g
}

// ask calls a function of a card that its library may not have; nil when it gives no value, and health is noted.
func ask[T any](c *Collector, g *engine.GPU, symbol string, call func() (T, nvml.Return)) *T {
	if !c.has(symbol) {
		return nil
	}
	v, r := call()
	if !c.healthy(g, r) {
		return nil
	}
	return &v
}

// healthy says whether an answer can be used, and notes a card that is lost or broken.
func (c *Collector) healthy(g *engine.GPU, r nvml.Return) bool {
	switch r {
	case nvml.SUCCESS:
		return true
	case nvml.ERROR_GPU_IS_LOST, nvml.ERROR_GPU_NOT_FOUND:
		g.Health, g.HealthDetail = engine.HealthLost, lostDetail
	case nvml.ERROR_RESET_REQUIRED:
		g.Health, g.HealthDetail = engine.HealthFault, "the driver asks for a reset of this card"
	case nvml.ERROR_IRQ_ISSUE, nvml.ERROR_INSUFFICIENT_POWER:
		g.Health, g.HealthDetail = engine.HealthFault, "the driver says: "+r.Error()
	default:
		if g.UUID == "" && g.Health == engine.HealthOK {
			// No handle or no name: nothing can be placed on such a card.
			g.Health, g.HealthDetail = engine.HealthFault, "the driver gives no access to this card: "+r.Error()
		}
	}
	return false
}

// lostRow is a lost card's row: its name and nothing measured.
func (c *Collector) lostRow(g engine.GPU) engine.GPU {
	k, ok := c.known[g.UUID]
	if !ok {
		k = g
	}
	return engine.GPU{UUID: k.UUID, Minor: k.Minor, Model: k.Model, PCIBusID: k.PCIBusID, MemoryTotal: k.MemoryTotal,
		MemoryReserved: k.MemoryReserved, MIGMode: k.MIGMode, Health: g.Health, HealthDetail: g.HealthDetail,
		CardDetail: engine.CardDetail{XIDs: g.XIDs, XIDsKnown: g.XIDsKnown}}
}

// text is the string in a C array.
func text(b []int8) string {
	var s strings.Builder
	for _, c := range b {
		if c == 0 {
			break
		}
		s.WriteByte(byte(c))
	}
	return s.String()
}

func ptr[T any](v T) *T { return &v }
