package tui

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"gputop/engine"
	"gputop/engine/api"
)

// gpuPanel shows each card and its MIG devices.
type gpuPanel struct {
	*env
	cursor, top int
}

// gpuRow is one line of the panel: a card, or one or several of its MIG devices.
type gpuRow struct {
	card        int
	first, last int // MIG devices [first, last); equal for the card itself
	packed      bool
}

// sliceWidth is what a MIG device takes where several share a line.
const sliceWidth = 27

// packAbove is the number of lines above which MIG devices share lines.
const packAbove = 18

// rows lists the lines. Many MIG devices are packed side by side, so that the whole box stays in sight.
func (p *gpuPanel) rows(w int) []gpuRow {
	all := len(p.box.gpus.GPUs)
	for i := range p.box.gpus.GPUs {
		all += len(p.box.gpus.GPUs[i].MIG)
	}
	per := 1
	if all > packAbove {
		per = max((w-4)/sliceWidth, 1)
	}
	out := make([]gpuRow, 0, all)
	for i := range p.box.gpus.GPUs {
		out = append(out, gpuRow{card: i})
		n := len(p.box.gpus.GPUs[i].MIG)
		for from := 0; from < n; from += per {
			out = append(out, gpuRow{card: i, first: from, last: min(from+per, n), packed: per > 1})
		}
	}
	return out
}

// wanted is the number of lines it would like, titles and frame not counted.
func (p *gpuPanel) wanted(w int) int { return max(len(p.rows(w)), 1) }

func (p *gpuPanel) move(n int) {
	p.cursor = max(0, min(p.cursor+n, len(p.rows(p.w-2))-1))
}

func (p *gpuPanel) selectedRow() (gpuRow, bool) {
	rows := p.rows(p.w - 2)
	if p.cursor >= len(rows) {
		return gpuRow{}, false
	}
	return rows[p.cursor], true
}

// selectedJobs are the jobs on the selected line's devices.
func (p *gpuPanel) selectedJobs() []*api.Job {
	r, ok := p.selectedRow()
	if !ok {
		return nil
	}
	g := &p.box.gpus.GPUs[r.card]
	if r.first == r.last {
		return p.jobsOn(g)
	}
	var out []*api.Job
	for _, m := range g.MIG[r.first:r.last] {
		out = append(out, p.box.onDevice[m.UUID]...)
	}
	return out
}

// jobsOn are the jobs of a card, those on its MIG devices included.
func (p *gpuPanel) jobsOn(g *api.GPU) []*api.Job {
	out := append([]*api.Job(nil), p.box.onDevice[g.UUID]...)
	for _, m := range g.MIG {
		out = append(out, p.box.onDevice[m.UUID]...)
	}
	return out
}

// upcoming is how far ahead the screen tells of a reservation.
const upcoming = 24 * time.Hour

func (p *gpuPanel) statusText() string {
	r, ok := p.selectedRow()
	if !ok {
		return ""
	}
	g := &p.box.gpus.GPUs[r.card]
	parts := []string{fmt.Sprintf("GPU %d %s", g.Index, p.sty.clean(g.Model)), string(g.UUID)}
	if r.last == r.first+1 {
		parts = []string{fmt.Sprintf("GPU %d %s", g.Index, p.sty.clean(g.MIG[r.first].Profile)), string(g.MIG[r.first].UUID)}
	}
	if g.Health != engine.HealthOK && g.HealthDetail != "" {
		parts = append(parts, p.sty.clean(g.HealthDetail))
	}
	if r := g.HeldBack(p.box.gpus.Time); r != nil {
		text := p.sty.clean(r.Whose)
		if !r.To.IsZero() {
			text += " until " + r.To.Local().Format("Mon 15:04")
		}
		parts = append(parts, text)
	}
	if r := g.Upcoming(p.box.gpus.Time, upcoming); r != nil {
		parts = append(parts, p.sty.clean(r.Whose)+" from "+engine.Soon(r.From, p.now()))
	}
	parts = append(parts, condition(g)...)
	if r.last == r.first+1 && g.MIG[r.first].InstanceShared {
		parts = append(parts, "memory and SM are the whole instance's, which others share")
	}
	for _, pr := range g.Processes {
		if pr.Job == 0 {
			parts = append(parts, fmt.Sprintf("outside the queue: pid %d of %s, %s", pr.PID, p.sty.clean(pr.User), p.sty.clean(pr.Command)))
		}
	}
	if g.SM != nil && g.SMSource == engine.SourceUtilization {
		parts = append(parts, "SM is the share of time any kernel ran")
	}
	return strings.Join(parts, "  ")
}

func (p *gpuPanel) draw(w, h int, focused bool) []string {
	gpus, inner := &p.box.gpus, w-2
	rows := p.rows(inner)
	room := max(h-3, 0)
	p.cursor = max(0, min(p.cursor, len(rows)-1))
	p.top = max(0, min(p.top, len(rows)-room))
	if p.cursor < p.top {
		p.top = p.cursor
	} else if p.cursor >= p.top+room {
		p.top = max(p.cursor-room+1, 0)
	}
	l := p.columns(inner)
	var lines []string
	if len(rows) == 0 {
		lines = append(lines, p.nothing(inner)...)
	} else {
		lines = append(lines, p.titles(l, inner))
	}
	age, old := p.box.stale(p.now())
	for i := p.top; i < min(p.top+room, len(rows)); i++ {
		r := row{s: p.sty}
		if focused && i == p.cursor {
			r.under = p.sty.selected
			r.put(p.sty.accent, p.sty.glyph.marker, 1)
		} else {
			r.gap(1)
		}
		p.line(&r, rows[i], l)
		text := exactly(r.fill(inner), inner)
		if old {
			text = p.sty.dim.paint(strip(text))
		}
		lines = append(lines, text)
	}
	title := "GPUs"
	if n := len(gpus.GPUs); n > 0 {
		title += " " + strconv.Itoa(n)
	}
	if len(rows) > room && room > 0 {
		title += fmt.Sprintf(" (lines %d-%d of %d)", p.top+1, min(p.top+room, len(rows)), len(rows))
	}
	if old {
		title += ", as they were " + clock(age) + " ago"
	}
	return p.sty.panel(title, p.versions(), lines, w, h, focused)
}

func (p *gpuPanel) versions() string {
	var out []string
	if d := p.box.gpus.Driver; d != "" {
		out = append(out, "driver "+p.sty.clean(d))
	}
	if c := p.box.gpus.CUDA; c != "" {
		out = append(out, "CUDA "+p.sty.clean(c))
	}
	return strings.Join(out, " "+p.sty.glyph.dot+" ")
}

// nothing is what stands in place of cards.
func (p *gpuPanel) nothing(w int) []string {
	text, shade := "No GPU was found on this machine.", p.sty.dim
	switch {
	case p.box.gpus.Error != "":
		text, shade = p.sty.clean(p.box.gpus.Error), p.sty.warn
	case !p.box.known:
		text = "Waiting for the daemon."
	case p.box.gpus.Time.IsZero():
		text = "Waiting for the first look at the cards."
	}
	var out []string
	for _, l := range wrap(text, w-2) {
		out = append(out, shade.paint(p.sty.fit(" "+l, w)))
	}
	return out
}

// foreign says whether a process is outside the queue and on a device.
func foreign(g *api.GPU, pr *api.Process, device engine.DeviceID) bool {
	return pr.Job == 0 && (pr.Device == device || device == g.UUID && pr.Device == "")
}

// foreignOn counts the processes outside the queue on a device.
func foreignOn(g *api.GPU, device engine.DeviceID) (n int) {
	for i := range g.Processes {
		if foreign(g, &g.Processes[i], device) {
			n++
		}
	}
	return n
}
