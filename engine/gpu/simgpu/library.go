package simgpu

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"gputop/engine"
)

// library is the simulated NVML. What it does not know answers ERROR_NOT_SUPPORTED.
type library struct {
	noLibrary
	dir   string
	cards []*card
	now   func() time.Time
	// timetable is the scenario's, and begun when it began.
	timetable []Event
	begun     time.Time

	mu   sync.Mutex
	refs int
	// session is the cards that were there when the session was opened.
	session []*card
	reports reports
}

// New prepares the devices of c in dir (see Prepare) and returns them as an NVML library. Like the real one it wants
// Init before anything else.
func New(dir string, c Config, instance string) (nvml.Interface, error) {
	return NewWithClock(dir, c, instance, time.Now)
}

// NewWithClock is New with a clock, which temperature, power and SM activity go by.
func NewWithClock(dir string, c Config, instance string, now func() time.Time) (nvml.Interface, error) {
	devices, err := Prepare(dir, c, instance)
	if err != nil {
		return nil, err
	}
	files := map[engine.DeviceID]string{}
	for _, d := range devices {
		files[d.UUID] = d.HostPath
	}
	l := &library{dir: dir, now: now, timetable: c.Events, begun: begun(dir, now())}
	for i, k := range c.Cards {
		id := cardUUID(instance, k.Model, i)
		card := &card{lib: l, index: i, model: models[k.Model], config: k, source: source{uuid: id, path: files[id]}}
		for _, names := range c.layouts(i) {
			slices, err := card.model.place(names)
			if err != nil {
				return nil, err
			}
			lay := layout{names: names}
			for n, s := range slices {
				id := migUUID(id, s.profile, n)
				lay.devices = append(lay.devices, &migDevice{slice: s, source: source{uuid: id, path: files[id]}})
			}
			card.layouts = append(card.layouts, lay)
		}
		l.cards = append(l.cards, card)
	}
	l.reports.begin(l.cards)
	return l, nil
}

func (l *library) sources() []*source {
	var out []*source
	for _, c := range l.cards {
		out = append(out, &c.source)
		for _, y := range c.layouts {
			for _, m := range y.devices {
				out = append(out, &m.source)
			}
		}
	}
	return out
}

func (l *library) known() []*card {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.session
}

// Init opens the devices' files.
func (l *library) Init() nvml.Return { return l.InitWithFlags(0) }

// InitWithFlags opens the devices' files.
func (l *library) InitWithFlags(uint32) nvml.Return {
	if r := l.refusal(); r != nvml.SUCCESS {
		return r
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.refs == 0 {
		for _, s := range l.sources() {
			if err := s.open(); err != nil {
				return nvml.ERROR_OPERATING_SYSTEM
			}
		}
	}
	if l.refs == 0 {
		l.session = nil
		for _, c := range l.cards {
			if !c.now().Removed {
				c.mu.Lock()
				c.mig = c.present()
				c.mu.Unlock()
				l.session = append(l.session, c)
			}
		}
	}
	l.refs++
	return nvml.SUCCESS
}

// Shutdown closes what Init opened.
func (l *library) Shutdown() nvml.Return {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.refs == 0 {
		return nvml.ERROR_UNINITIALIZED
	}
	if l.refs--; l.refs == 0 {
		for _, s := range l.sources() {
			s.close()
		}
	}
	return nvml.SUCCESS
}

// ErrorString is the name of a result.
func (l *library) ErrorString(r nvml.Return) string { return r.Error() }

// Extensions looks symbols up.
func (l *library) Extensions() nvml.ExtendedInterface { return l }

// LookupSymbol finds every function of NVML: calling one that is not simulated is safe here.
func (l *library) LookupSymbol(name string) error {
	if !strings.HasPrefix(name, "nvml") {
		return fmt.Errorf("no symbol %q: %w", name, errors.ErrUnsupported)
	}
	return nil
}

// SystemGetDriverVersion says that there is no driver.
func (l *library) SystemGetDriverVersion() (string, nvml.Return) { return "simulated", nvml.SUCCESS }

// SystemGetNVMLVersion says that there is no library.
func (l *library) SystemGetNVMLVersion() (string, nvml.Return) { return "simulated", nvml.SUCCESS }

// SystemGetProcessName is the name of a process.
func (l *library) SystemGetProcessName(pid int) (string, nvml.Return) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	if err != nil {
		return "", nvml.ERROR_NOT_FOUND
	}
	return strings.TrimSpace(string(b)), nvml.SUCCESS
}

// DeviceGetCount counts the cards.
func (l *library) DeviceGetCount() (int, nvml.Return) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.refs == 0 {
		return 0, nvml.ERROR_UNINITIALIZED
	}
	return len(l.session), nvml.SUCCESS
}

// DeviceGetHandleByIndex takes a fresh look at the card.
func (l *library) DeviceGetHandleByIndex(i int) (nvml.Device, nvml.Return) {
	n, r := l.DeviceGetCount()
	if r != nvml.SUCCESS {
		return nil, r
	}
	if i < 0 || i >= n {
		return nil, nvml.ERROR_INVALID_ARGUMENT
	}
	l.mu.Lock()
	c := l.session[i]
	l.mu.Unlock()
	c.look(true)
	return cardHandle{c: c}, nvml.SUCCESS
}

// DeviceGetHandleByUUID finds a card or a MIG device.
func (l *library) DeviceGetHandleByUUID(uuid string) (nvml.Device, nvml.Return) {
	for i, c := range l.known() {
		if string(c.uuid) == uuid {
			return l.DeviceGetHandleByIndex(i)
		}
		for _, m := range c.mig {
			if string(m.uuid) == uuid {
				return migHandle{c: c, m: m}, nvml.SUCCESS
			}
		}
	}
	return nil, nvml.ERROR_NOT_FOUND
}

// DeviceGetHandleByPciBusId finds a card.
func (l *library) DeviceGetHandleByPciBusId(id string) (nvml.Device, nvml.Return) {
	for i, c := range l.known() {
		if strings.EqualFold(c.busID(), id) {
			return l.DeviceGetHandleByIndex(i)
		}
	}
	return nil, nvml.ERROR_NOT_FOUND
}

// GpmSampleAlloc makes an empty sample.
func (l *library) GpmSampleAlloc() (nvml.GpmSample, nvml.Return) { return &gpmSample{}, nvml.SUCCESS }

// GpmSampleFree does nothing.
func (l *library) GpmSampleFree(nvml.GpmSample) nvml.Return { return nvml.SUCCESS }

// GpmSampleGet takes a sample of a card.
func (l *library) GpmSampleGet(d nvml.Device, s nvml.GpmSample) nvml.Return {
	return device(d).GpmSampleGet(s)
}

// GpmMigSampleGet takes a sample of a GPU instance.
func (l *library) GpmMigSampleGet(d nvml.Device, gi int, s nvml.GpmSample) nvml.Return {
	return device(d).GpmMigSampleGet(gi, s)
}

// GpmQueryDeviceSupport says whether the card measures SM activity.
func (l *library) GpmQueryDeviceSupport(d nvml.Device) (nvml.GpmSupport, nvml.Return) {
	return device(d).GpmQueryDeviceSupport()
}

// GpmMetricsGet fills in SM activity between two samples, in percent.
func (l *library) GpmMetricsGet(g *nvml.GpmMetricsGetType) nvml.Return {
	a, okA := g.Sample1.(*gpmSample)
	b, okB := g.Sample2.(*gpmSample)
	if !okA || !okB || int(g.NumMetrics) > len(g.Metrics) {
		return nvml.ERROR_INVALID_ARGUMENT
	}
	if b.at.Sub(a.at) < 100*time.Millisecond {
		return nvml.ERROR_NOT_READY
	}
	for i := range g.Metrics[:g.NumMetrics] {
		m := &g.Metrics[i]
		v, ok := (a.sm+b.sm)/2, true
		switch nvml.GpmMetricId(m.MetricId) {
		case nvml.GPM_METRIC_SM_UTIL:
			m.Value = v * 100
		case nvml.GPM_METRIC_DRAM_BW_UTIL:
			m.Value = v * memoryShare * 100
		case nvml.GPM_METRIC_PCIE_RX_PER_SEC, nvml.GPM_METRIC_PCIE_TX_PER_SEC:
			m.Value, ok = v*pcieMiB, !b.instance
		case nvml.GPM_METRIC_NVLINK_TOTAL_RX_PER_SEC, nvml.GPM_METRIC_NVLINK_TOTAL_TX_PER_SEC:
			m.Value, ok = 0, !b.instance
		default:
			ok = false
		}
		m.NvmlReturn = uint32(nvml.SUCCESS)
		if !ok {
			m.NvmlReturn = uint32(nvml.ERROR_NOT_SUPPORTED)
		}
	}
	return nvml.SUCCESS
}

// device is d, or for nil a device that supports nothing.
func device(d nvml.Device) nvml.Device {
	if d == nil {
		return noDevice{}
	}
	return d
}
