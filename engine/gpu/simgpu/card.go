package simgpu

import (
	"cmp"
	"fmt"
	"math"
	"os"
	"slices"
	"sync"
	"time"

	"gputop/engine"
	"gputop/engine/gpu/simgpu/simdev"
)

// fresh is how old a look at the locks may be when somebody asks again through an old handle.
const fresh = 100 * time.Millisecond

// The time constants with which power and temperature follow the load.
const (
	powerLag = 2 * time.Second
	heatLag  = 10 * time.Second
)

// source is a device's file and what processes held of it when it was last looked at.
type source struct {
	uuid    engine.DeviceID
	path    string
	file    *os.File
	holders []simdev.Holder
}

func (s *source) open() (err error) {
	if s.file == nil {
		s.file, err = os.Open(s.path)
	}
	return err
}

func (s *source) close() {
	if s.file != nil {
		_ = s.file.Close() // opened for reading
		s.file = nil
	}
}

// look reads the locks; a file that cannot be read has no holders.
func (s *source) look() {
	s.holders = nil
	if s.file == nil {
		return
	}
	if h, err := simdev.Holders(s.file); err == nil {
		slices.SortFunc(h, func(a, b simdev.Holder) int { return cmp.Compare(a.PID, b.PID) })
		s.holders = h
	}
}

func (s *source) used() (n engine.Bytes) {
	for _, h := range s.holders {
		n += h.Memory
	}
	return n
}

func (s *source) sm() (n float64) {
	for _, h := range s.holders {
		n += h.SM
	}
	return min(1, n)
}

// card is a simulated card.
type card struct {
	source
	lib   *library
	index int
	model *model
	// mig is the layout that the session was opened with, layouts all there may be: the card's own first.
	mig     []*migDevice
	layouts []layout
	config  Card

	mu     sync.Mutex
	looked time.Time
	watts  float64
	heat   float64 // degrees Celsius
}

// layout is the MIG devices a card has at a time, by the names of their profiles.
type layout struct {
	names   []string
	devices []*migDevice
}

// present is the layout in force, whatever a session knows of it.
func (c *card) present() []*migDevice {
	names := c.config.MIG
	if f := c.now(); f.MIG != nil {
		names = f.MIG
	}
	for _, l := range c.layouts {
		if slices.Equal(l.names, names) {
			return l.devices
		}
	}
	return c.layouts[0].devices
}

// isThere says whether a device that a session knows is still on the card.
func (c *card) isThere(m *migDevice) bool {
	return slices.ContainsFunc(c.present(), func(p *migDevice) bool { return p.uuid == m.uuid && p.instance == m.instance })
}

// mates are the MIG devices of the session that share a GPU instance.
func (c *card) mates(instance int) (out []*migDevice) {
	for _, m := range c.mig {
		if m.instance == instance {
			out = append(out, m)
		}
	}
	return out
}

// migDevice is a simulated MIG device.
type migDevice struct {
	source
	slice
}

func (c *card) busID() string { return fmt.Sprintf("00000000:%02X:00.0", c.bus()) }
func (c *card) bus() uint32   { return uint32(0x10 * (c.index + 1)) }

// look takes a new look at the card when forced to or when the last is old.
func (c *card) look(force bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.lib.now()
	since := now.Sub(c.looked)
	if !force && since >= 0 && since < fresh {
		return
	}
	first := c.looked.IsZero()
	c.looked = now
	c.source.look()
	load := c.source.sm()
	for _, m := range c.mig {
		m.source.look()
		load += m.source.sm() * float64(m.ciSlices) / 7
	}
	load = min(1, load)
	watts := c.model.idleW + (c.model.limitW-c.model.idleW)*0.96*load
	heat := c.model.idleC + (c.model.busyC-c.model.idleC)*load
	if first || since < 0 {
		c.watts, c.heat = watts, heat
		return
	}
	c.watts = follow(c.watts, watts, since, powerLag)
	c.heat = follow(c.heat, heat, since, heatLag)
}

// follow moves a value towards its target as a first-order lag does.
func follow(from, to float64, since, lag time.Duration) float64 {
	return to + (from-to)*math.Exp(-since.Seconds()/lag.Seconds())
}

// instance is a look at all of a GPU instance, the shares of its SMs weighted by the compute instances' sizes.
func (c *card) instance(id int) view {
	var out view
	for _, m := range c.mates(id) {
		v := c.view(m)
		out.at = v.at
		out.used += v.used
		out.sm = min(1, out.sm+v.sm*float64(m.ciSlices)/float64(m.compute))
	}
	return out
}

// view is one consistent look at a card or a MIG device.
type view struct {
	used    engine.Bytes
	sm      float64
	watts   float64
	heat    float64
	holders []simdev.Holder
	at      time.Time
}

// view looks at the card, or at its MIG device m. In MIG mode the card's holders are those of its MIG devices.
func (c *card) view(m *migDevice) view {
	c.look(false)
	c.mu.Lock()
	defer c.mu.Unlock()
	v := view{watts: c.watts, heat: c.heat, at: c.looked}
	add := func(s *source) {
		v.used += s.used()
		v.sm = min(1, v.sm+s.sm())
		v.holders = append(v.holders, s.holders...)
	}
	if m != nil {
		add(&m.source)
		return v
	}
	add(&c.source)
	for _, m := range c.mig {
		add(&m.source)
	}
	return v
}
