package tui

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	tea "charm.land/bubbletea/v2"

	"gputop/engine"
	"gputop/engine/api"
)

// processes lists who is on the cards: every process, with its job where it has one.
type processes struct {
	*env
	w       int
	content scroller
}

// processesKey opens the list.
func (e *env) processesKey() binding {
	return binding{keys: []string{"o"}, label: "o", help: "processes on the GPUs", run: func() tea.Cmd { e.push(&processes{env: e}); return nil }}
}

func (p *processes) Update(msg tea.Msg) tea.Cmd {
	if m, ok := msg.(eventArrivedMsg); ok && (m.event.GPUs != nil || m.event.Snapshot != nil) {
		p.content.lines = p.processLines(p.w - 2)
		p.content.clamp()
	}
	return nil
}

// SetSize writes the lines anew.
func (p *processes) SetSize(w, h int) {
	p.w, p.content.height = w, h-3
	p.content.lines = p.processLines(w - 2)
}

// Keys are the list's bindings.
func (p *processes) Keys() []binding { return p.content.keys() }

func (p *processes) View() []string {
	lines := append([]string{p.processTitles(p.w - 2)}, p.content.visible()...)
	return p.sty.panel(fmt.Sprintf("Processes %d", p.processCount()), "", lines, p.w, p.content.height+3, true)
}

// processCount is how many processes are on the cards.
func (e *env) processCount() (n int) {
	for i := range e.box.gpus.GPUs {
		n += len(e.box.gpus.GPUs[i].Processes)
	}
	return n
}

// The widths of the columns; what is left is the command's.
const (
	processGPU, processPID, processUser, processJob, processType, processMemory, processSM = 12, 8, 12, 7, 5, 9, 5
)

func (e *env) processTitles(w int) string {
	r, d := row{s: e.sty}, e.sty.dim
	r.gap(1)
	r.cell(d, "GPU", processGPU)
	r.right(d, "PID", processPID)
	r.gap(1)
	r.cell(d, "USER", processUser)
	r.gap(1)
	r.cell(d, "JOB", processJob)
	r.cell(d, "TYPE", processType)
	r.right(d, "GPU MEM", processMemory)
	r.right(d, "SM", processSM)
	r.gap(2)
	r.cell(d, "COMMAND", w-r.used)
	return exactly(r.fill(w), w)
}

// processLines are the processes, by card, those that hold most first.
func (e *env) processLines(w int) (lines []string) {
	gpus := &e.box.gpus
	for i := range gpus.GPUs {
		g := &gpus.GPUs[i]
		list := slices.Clone(g.Processes)
		slices.SortFunc(list, func(a, b api.Process) int {
			return cmp.Or(cmp.Compare(bytesOf(b.Memory), bytesOf(a.Memory)), cmp.Compare(a.PID, b.PID))
		})
		for k := range list {
			lines = append(lines, e.processLine(g, &list[k], w))
		}
		if !g.ProcessesKnown && !g.MIGMode && g.Health == engine.HealthOK {
			lines = append(lines, e.sentence(fmt.Sprintf(" %d: the driver does not say which processes use this card", g.Index), w))
		}
	}
	if len(lines) == 0 {
		lines = []string{e.sentence(" No process uses a GPU.", w)}
	}
	return lines
}

func (e *env) sentence(text string, w int) string {
	r := row{s: e.sty}
	r.cell(e.sty.dim, text, w)
	return exactly(r.fill(w), w)
}

func bytesOf(v *engine.Bytes) engine.Bytes {
	if v == nil {
		return -1
	}
	return *v
}

func (e *env) processLine(g *api.GPU, p *api.Process, w int) string {
	s := e.sty
	r, i := row{s: s}, s.text
	if p.Job == 0 && e.box.info.Mode != "monitor" {
		i = s.foreign
	}
	on := strconv.Itoa(g.Index)
	for k := range g.MIG {
		if g.MIG[k].UUID == p.Device {
			on += " " + g.MIG[k].Profile
		}
	}
	r.gap(1)
	r.cell(i, s.clean(on), processGPU)
	r.right(i, strconv.Itoa(p.PID), processPID)
	r.gap(1)
	user := p.User
	if user == "" {
		user = "uid " + strconv.FormatUint(uint64(p.UID), 10)
	}
	r.cell(i, s.clean(user), processUser)
	r.gap(1)
	job := s.glyph.unknown
	if p.Job != 0 {
		job = "#" + p.Job.String()
	}
	r.cell(i, job, processJob)
	kind := map[string]string{"C": "comp", "G": "graph", "CG": "both"}[p.Type]
	r.cell(s.dim, kind, processType)
	memory, sm := s.glyph.unknown, s.glyph.unknown
	if p.Memory != nil {
		memory = p.Memory.String()
	}
	if p.SM != nil {
		sm = fmt.Sprintf("%.0f%%", 100**p.SM)
	}
	r.right(i, memory, processMemory)
	r.right(i, sm, processSM)
	r.gap(2)
	r.cell(i, s.clean(p.Command), w-r.used)
	return exactly(r.fill(w), w)
}
