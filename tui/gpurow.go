package tui

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/charmbracelet/x/ansi"

	"gputop/engine"
	"gputop/engine/api"
)

// gpuColumns are the widths of the panel's columns; 0 is a column that is left out.
type gpuColumns struct {
	model, bar, memory, smBar, past, temperature, power, health, who int
	powerLimit                                                       bool
}

func (p *gpuPanel) columns(w int) gpuColumns {
	model := 8
	for i := range p.box.gpus.GPUs {
		g := &p.box.gpus.GPUs[i]
		model = max(model, width(shortModel(g.Model)))
		for _, m := range g.MIG {
			model = max(model, width(m.Profile)+2)
		}
	}
	c := gpuColumns{model: min(model, 14), bar: 10, memory: 9, smBar: 1, temperature: 4, power: 5, health: 6}
	switch {
	case w < 76:
		c.model, c.power, c.bar = min(model, 10), 0, 8
		if w < 70 {
			c.temperature = 0
		}
	case w >= 160:
		c.model, c.bar, c.smBar, c.power, c.powerLimit = min(model, 30), min(w/5, 44), 16, 8, true
	case w >= 110:
		c.model, c.bar, c.smBar, c.power, c.powerLimit = min(model, 20), 20, 8, 8, true
	}
	used := 1 + 2 + 1 + c.model + 1 + c.bar + 1 + c.memory + 2 + c.smBar + 5 + c.mid() + 1
	c.who = max(w-used, 0)
	// Whole minutes of the past, where there is room beside who is on the card.
	if minutes := min((c.who-whoWidth)/10, 4); c.smBar > 1 && minutes > 0 {
		c.past = 10 * minutes
		c.who -= c.past + 1
	}
	return c
}

// whoWidth is how much of the line is left to who is on a card before its past is shown.
const whoWidth = 24

// mid is the width of temperature, power and health with their gaps.
func (c gpuColumns) mid() int {
	n := 1 + c.health + 1
	if c.temperature > 0 {
		n += 1 + c.temperature
	}
	if c.power > 0 {
		n += 1 + c.power
	}
	return n
}

func (p *gpuPanel) titles(c gpuColumns, w int) string {
	r, d := row{s: p.sty}, p.sty.dim
	r.gap(1)
	r.right(d, "#", 2)
	r.gap(1)
	r.cell(d, "MODEL", c.model)
	r.gap(1)
	r.cell(d, "MEMORY", c.bar)
	r.gap(1)
	r.right(d, "GiB", c.memory)
	r.gap(2)
	if c.smBar > 1 {
		r.cell(d, "SM", c.smBar+5)
	} else {
		r.right(d, "SM", c.smBar+5)
	}
	if c.past > 0 {
		r.gap(1)
		r.cell(d, fmt.Sprintf("LAST %d MIN", c.past/10), c.past)
	}
	if c.temperature > 0 {
		r.right(d, "TEMP", c.temperature+1)
	}
	if c.power > 0 {
		r.right(d, "POWER", c.power+1)
	}
	r.gap(1)
	r.cell(d, "HEALTH", c.health)
	r.gap(1)
	who := "WHO IS ON IT"
	if c.who < width(who) {
		who = "WHO"
	}
	r.cell(d, who, c.who)
	return exactly(r.fill(w), w)
}

func (p *gpuPanel) line(r *row, at gpuRow, c gpuColumns) {
	g := &p.box.gpus.GPUs[at.card]
	switch {
	case at.first == at.last:
		p.card(r, g, c)
	case !at.packed:
		p.slice(r, g, &g.MIG[at.first], c)
	default:
		r.gap(3)
		for i := at.first; i < at.last; i++ {
			p.packed(r, g, &g.MIG[i])
		}
	}
}

func (p *gpuPanel) card(r *row, g *api.GPU, c gpuColumns) {
	s := p.sty
	r.right(s.strong, strconv.Itoa(g.Index), 2)
	r.gap(1)
	r.cell(s.text, s.clean(shortModel(g.Model)), c.model)
	r.gap(1)
	p.memory(r, c, g.MemoryUsed, g.MemoryTotal, g.Promised, g.Foreign)
	r.gap(2)
	p.sm(r, g.SM, c.smBar)
	p.before(r, g.UUID, c)
	switch {
	case c.temperature == 0:
	case g.Temperature != nil:
		r.right(s.heat(*g.Temperature), strconv.Itoa(*g.Temperature)+s.glyph.degree+"C", c.temperature+1)
	default:
		r.right(s.dim, s.glyph.unknown, c.temperature+1)
	}
	if c.power > 0 {
		r.right(s.text, p.power(g, c.powerLimit), c.power+1)
	}
	r.gap(1)
	i, word := s.health(g.Health)
	if r := g.HeldBack(p.box.gpus.Time); r != nil && g.Health == engine.HealthOK {
		i, word = s.warn, heldBackWord(r)
	}
	r.cell(i, word, c.health)
	r.gap(1)
	if g.Health != engine.HealthOK && g.HealthDetail != "" {
		r.cell(s.bad, s.clean(g.HealthDetail), c.who)
		return
	}
	if g.MIGMode && len(g.MIG) > 0 && foreignOn(g, g.UUID) == 0 {
		text := engine.Count(len(g.MIG), "MIG device")
		if c.who < width(text) {
			text = fmt.Sprintf("%d MIG", len(g.MIG))
		}
		r.cell(s.dim, text, c.who)
		return
	}
	p.who(r, g, g.UUID, c.who)
}

func (p *gpuPanel) slice(r *row, g *api.GPU, m *engine.MIGDevice, c gpuColumns) {
	s := p.sty
	r.gap(3)
	r.cell(s.dim, s.glyph.branch+" "+s.clean(m.Profile), c.model)
	r.gap(1)
	p.memory(r, c, m.MemoryUsed, m.MemoryTotal, p.promisedOn(m.UUID), foreignMemory(g, m.UUID))
	r.gap(2)
	p.sm(r, m.SM, c.smBar)
	p.before(r, m.UUID, c)
	// Temperature, power and health are the card's.
	r.gap(c.mid())
	p.who(r, g, m.UUID, c.who)
}

// packed is a MIG device among others on a line: its profile, how full it is, who is on it.
func (p *gpuPanel) packed(r *row, g *api.GPU, m *engine.MIGDevice) {
	s := p.sty
	r.cell(s.dim, s.clean(m.Profile), 8)
	if m.MemoryUsed == nil {
		r.gap(1)
		r.right(s.dim, s.glyph.unknown, 5)
	} else {
		level := " "
		if m.MemoryTotal != nil && *m.MemoryTotal > 0 {
			level = s.level(float64(*m.MemoryUsed) / float64(*m.MemoryTotal))
		}
		r.put(s.used, level, 1)
		r.right(s.text, gib(*m.MemoryUsed)+"G", 5)
	}
	r.gap(1)
	p.who(r, g, m.UUID, sliceWidth-16)
	r.gap(1)
}

// memory draws the bar and the numbers. Without both numbers there is no bar.
func (p *gpuPanel) memory(r *row, c gpuColumns, used, total *engine.Bytes, promised, foreign engine.Bytes) {
	s := p.sty
	if used == nil || total == nil || *total <= 0 {
		r.gap(c.bar)
	} else {
		whole := float64(*total)
		foreign = min(foreign, *used)
		ours := *used - foreign
		r.bar(c.bar, part{ink: s.faint, glyph: s.glyph.free},
			part{s.used, s.glyph.used, float64(ours) / whole},
			part{s.foreign, s.glyph.foreign, float64(foreign) / whole},
			part{s.promised, s.glyph.promised, float64(min(promised-ours, *total-*used)) / whole})
	}
	r.gap(1)
	r.right(s.text, s.memoryPair(used, total), c.memory)
}

// sm draws how busy the SMs are, in bar+5 cells.
func (p *gpuPanel) sm(r *row, v *float64, bar int) {
	s := p.sty
	if v == nil {
		if bar > 1 {
			r.gap(bar)
		} else {
			r.gap(1)
		}
		r.right(s.dim, s.glyph.unknown, 5)
		return
	}
	share := max(0, min(*v, 1))
	if bar > 1 {
		r.bar(bar, part{ink: s.faint, glyph: s.glyph.smOff}, part{s.sm, s.glyph.smOn, share})
	} else {
		r.put(s.sm, s.level(share), 1)
	}
	r.right(s.text, fmt.Sprintf("%.0f%%", 100*share), 5)
}

// before draws how busy the SMs were of late.
func (p *gpuPanel) before(r *row, id engine.DeviceID, c gpuColumns) {
	if c.past == 0 {
		return
	}
	signs := engine.BarSigns
	if p.sty.ascii {
		signs = engine.ASCIIBarSigns
	}
	r.gap(1)
	r.cell(p.sty.sm, engine.Bars(p.box.past.row(id, c.past), 1000, signs), c.past)
}

func (p *gpuPanel) power(g *api.GPU, withLimit bool) string {
	if g.Power == nil {
		return p.sty.glyph.unknown
	}
	t := fmt.Sprintf("%.0f", *g.Power)
	if withLimit && g.PowerLimit != nil {
		t += fmt.Sprintf("/%.0f", *g.PowerLimit)
	}
	return t + "W"
}

// promisedOn is the memory promised on a device, in bytes.
func (p *gpuPanel) promisedOn(d engine.DeviceID) (sum engine.Bytes) {
	for _, j := range p.box.onDevice[d] {
		for _, g := range j.Grants {
			if g.Device == d {
				sum += g.Memory
			}
		}
	}
	return sum
}

func foreignMemory(g *api.GPU, d engine.DeviceID) (sum engine.Bytes) {
	for i := range g.Processes {
		if pr := &g.Processes[i]; pr.Job == 0 && pr.Device == d && pr.Memory != nil {
			sum += *pr.Memory
		}
	}
	return sum
}

// level is a bar one cell wide; above zero it is never empty.
func (s *styles) level(share float64) string {
	n := len(s.glyph.levels) - 1
	i := int(share*float64(n) + 0.5)
	if share > 0 {
		i = max(i, min(1, n))
	}
	return s.glyph.levels[max(0, min(i, n))]
}

func (s *styles) heat(celsius int) ink {
	switch {
	case celsius >= 90:
		return s.bad
	case celsius >= 80:
		return s.warn
	}
	return s.text
}

func (s *styles) health(h engine.Health) (ink, string) {
	switch h {
	case engine.HealthOK, "":
		return s.good, "ok"
	case engine.HealthLost:
		return s.bad, "LOST"
	case engine.HealthNotAnswering:
		return s.bad, "HANGS"
	case engine.HealthFault:
		return s.bad, "FAULT"
	}
	return s.warn, s.clean(string(h))
}

// heldBackWord is what a card is that takes no new job of everybody's.
func heldBackWord(r *api.Reservation) string {
	if r.Drain {
		return "drain"
	}
	return "booked"
}

func strip(s string) string { return ansi.Strip(s) }

// wrap breaks text without escape sequences into lines of at most w cells. Hyphens stay inside their word: paths and
// times carry them.
func wrap(text string, w int) []string {
	const noBreak = "\u2011"
	text = ansi.Wrap(strings.ReplaceAll(text, "-", noBreak), max(w, 1), "")
	return strings.Split(strings.ReplaceAll(text, noBreak, "-"), "\n")
}
