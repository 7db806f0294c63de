// Package gpu turns what NVML says of a machine's cards into samples, and is the loop of the sampler process. It is
// the only package besides the simulator that knows NVML, and it only reads: it never changes a card's settings. NVML
// calls can hang for ever, so nothing but the sampler process may run it.
package gpu

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"gputop/engine"
)

// maxCards is more than any machine has; a larger number is nonsense.
const maxCards = 256

// Options of a Collector.
type Options struct {
	// Simulated marks every sample.
	Simulated bool
	// Library is the library's path as the user gave it, for messages; empty for the system's.
	Library string
	// Proc is where the proc file system is; empty for /proc.
	Proc string
}

// Collector takes samples. It holds one NVML session from the first sample on and is for one goroutine.
type Collector struct {
	lib nvml.Interface
	o   Options

	session bool
	// initResult is what the last attempt to open a session answered.
	initResult nvml.Return
	seq        uint64
	driver     string
	cuda       string
	symbols    map[string]bool
	// known has every card seen so far, so that a lost one keeps its name.
	known map[engine.DeviceID]engine.GPU
	gpm   map[gpmKey]*gpmState
	load  map[engine.DeviceID]*processLoad
	slow  map[engine.DeviceID]*slowDetail
	pcie  map[engine.DeviceID]*pcieTraffic
	// pcieTurn says that the card being looked at may be asked for its PCIe traffic.
	pcieTurn bool
	people   map[int]*person
	errors   listener
	layout   layout
	near     neighbourhood
	// handles are those of the cards of this sample.
	handles map[engine.DeviceID]nvml.Device
}

// New makes a collector over a library, which it initialises at the first sample.
func New(lib nvml.Interface, o Options) *Collector {
	if o.Proc == "" {
		o.Proc = "/proc"
	}
	return &Collector{lib: lib, o: o, symbols: map[string]bool{}, known: map[engine.DeviceID]engine.GPU{},
		gpm: map[gpmKey]*gpmState{}, load: map[engine.DeviceID]*processLoad{}, slow: map[engine.DeviceID]*slowDetail{},
		pcie: map[engine.DeviceID]*pcieTraffic{}, people: map[int]*person{}, errors: listener{xids: map[engine.DeviceID][]engine.XID{}}}
}

// Sample looks at all cards. It always returns a sample: with Error set when there is nothing to show. A session that
// cannot be opened is tried again at the next call.
func (c *Collector) Sample(now time.Time) engine.Sample {
	c.seq++
	s := engine.Sample{Seq: c.seq, Time: now, Simulated: c.o.Simulated, GPUs: []engine.GPU{}}
	c.renewIfChanged(now)
	if s.Error = c.open(); s.Error != "" {
		return s
	}
	s.Driver, s.CUDA = c.driver, c.cuda
	gpus, sentence := c.cards(now)
	if c.layout.outdated && c.renew(now) {
		if s.Error = c.open(); s.Error != "" {
			return s
		}
		gpus, sentence = c.cards(now)
	}
	if s.Error = sentence; sentence != "" {
		return s
	}
	s.GPUs = append(s.GPUs, gpus...)
	s.GPUs = c.withLost(s.GPUs)
	slices.SortStableFunc(s.GPUs, func(a, b engine.GPU) int { return cmp.Compare(a.PCIBusID, b.PCIBusID) })
	for i := range s.GPUs {
		s.GPUs[i].Index = i
	}
	c.peers(s.GPUs)
	c.remember(s.GPUs, now)
	if len(s.GPUs) == 0 {
		s.Error = "the NVIDIA driver is running but finds no GPU; see dmesg for what it says of the cards"
	}
	return s
}

// cards looks at every card, or says why there is nothing to show.
func (c *Collector) cards(now time.Time) ([]engine.GPU, string) {
	n, r := c.lib.DeviceGetCount()
	if r != nvml.SUCCESS {
		if r == nvml.ERROR_UNINITIALIZED {
			c.session = false
		}
		return nil, "the NVIDIA driver does not say how many GPUs there are: " + r.Error()
	}
	if n < 0 || n > maxCards {
		return nil, fmt.Sprintf("the NVIDIA driver says that there are %d GPUs, which cannot be; reboot, or install the driver again", n)
	}
	c.hear(now)
	out := make([]engine.GPU, 0, n)
	c.handles = map[engine.DeviceID]nvml.Device{}
	for i := range n {
		c.pcieTurn = c.turn(i, n)
		out = append(out, c.card(i, now))
	}
	return out, ""
}

// open has a session or says why not.
func (c *Collector) open() string {
	if c.session {
		return ""
	}
	if c.initResult = c.lib.Init(); c.initResult != nvml.SUCCESS {
		return initSentence(c.initResult, c.o.Library)
	}
	c.session = true
	c.layout.drivers = c.present()
	c.listen()
	if v, r := c.lib.SystemGetDriverVersion(); r == nvml.SUCCESS {
		c.driver = v
	}
	if v, r := c.lib.SystemGetCudaDriverVersion(); r == nvml.SUCCESS && v > 0 {
		c.cuda = cudaVersion(v)
	}
	return ""
}

// has says whether the library has a function. Calling one that it has not would end the process.
func (c *Collector) has(symbol string) bool {
	ok, asked := c.symbols[symbol]
	if !asked {
		e := c.lib.Extensions()
		ok = e != nil && e.LookupSymbol(symbol) == nil
		c.symbols[symbol] = ok
	}
	return ok
}

func (c *Collector) hasAll(symbols []string) bool {
	for _, s := range symbols {
		if !c.has(s) {
			return false
		}
	}
	return true
}

// withLost gives cards that no longer say who they are the identity of those that were seen before and are missing
// now, and adds a row for those that are not even counted any more.
func (c *Collector) withLost(gpus []engine.GPU) []engine.GPU {
	seen := map[engine.DeviceID]bool{}
	for _, g := range gpus {
		seen[g.UUID] = true
	}
	var missing []engine.GPU
	for id, g := range c.known {
		if !seen[id] {
			missing = append(missing, g)
		}
	}
	slices.SortFunc(missing, func(a, b engine.GPU) int { return cmp.Compare(a.PCIBusID, b.PCIBusID) })
	out := gpus[:0:0]
	nameless := 0
	for _, g := range gpus {
		if g.UUID == "" {
			nameless++
			if nameless <= len(missing) {
				continue // it is one of the missing, added below
			}
		}
		out = append(out, g)
	}
	for _, m := range missing {
		g := engine.GPU{UUID: m.UUID, Minor: m.Minor, Model: m.Model, PCIBusID: m.PCIBusID, MemoryTotal: m.MemoryTotal,
			MemoryReserved: m.MemoryReserved, MIGMode: m.MIGMode, Health: engine.HealthLost, HealthDetail: lostDetail}
		c.reported(&g)
		out = append(out, g)
	}
	return out
}

// remember drops what is kept of MIG devices and processes that are gone, and keeps the cards that are well.
func (c *Collector) remember(gpus []engine.GPU, now time.Time) {
	c.forgetGPM(now.Add(-time.Minute))
	for pid, p := range c.people {
		if !p.seen.Equal(now) {
			delete(c.people, pid)
		}
	}
	for _, g := range gpus {
		if g.Health == engine.HealthOK {
			c.known[g.UUID] = g
		}
	}
}

// Close ends the session.
func (c *Collector) Close() {
	if !c.session {
		return
	}
	for k, g := range c.gpm {
		c.freeGPM(g)
		delete(c.gpm, k)
	}
	c.errors.free()
	c.session = false
	c.lib.Shutdown()
}
