package tui

import (
	"fmt"

	tea "charm.land/bubbletea/v2"

	"gputop/engine"
	"gputop/engine/api"
)

// pane is one panel of the overview: the cards, or one of the lists.
type pane int

const (
	paneGPUs pane = iota
	paneRunning
	paneQueue
	paneEnded
	panes
)

// overview is the first screen: cards on top, running jobs below, then the queue or the ended jobs in one frame.
type overview struct {
	*env
	w, h   int
	focus  pane
	bottom list // what the lowest frame shows
	gpus   gpuPanel
	tables [lists]jobsTable
}

func newOverview(e *env) *overview {
	o := &overview{env: e, focus: paneQueue, bottom: listQueue, gpus: gpuPanel{env: e}}
	for l := range o.tables {
		o.tables[l] = jobsTable{env: e, list: list(l)}
	}
	return o
}

func (o *overview) SetSize(w, h int) { o.w, o.h = w, h }

// Update takes data; keys come through Keys.
func (o *overview) Update(msg tea.Msg) tea.Cmd {
	if m, ok := msg.(eventArrivedMsg); ok && (m.event.Snapshot != nil || len(m.event.Jobs)+len(m.event.Removed) > 0) {
		for l := range o.tables {
			o.tables[l].follow()
		}
		o.chase()
	}
	return nil
}

// chase goes after a job just submitted, into whatever list it is, until the user moves.
func (o *overview) chase() {
	j := o.box.jobs[o.fresh]
	if j == nil {
		return
	}
	o.focusOn(paneRunning + pane(listOf(j)))
	t := o.table()
	t.chosen = j.ID
	t.follow()
}

// focusOn moves the focus; the lowest frame shows what is focused.
func (o *overview) focusOn(p pane) {
	o.focus = (p + panes) % panes
	switch o.focus {
	case paneQueue:
		o.bottom = listQueue
	case paneEnded:
		o.bottom = listEnded
	}
}

func (o *overview) table() *jobsTable {
	if o.focus == paneGPUs {
		return nil
	}
	return &o.tables[o.focus-paneRunning]
}

// selected is the job that keys act on; on the cards it is the one job of the selected device.
func (o *overview) selected() *api.Job {
	if t := o.table(); t != nil {
		return t.job()
	}
	if jobs := o.gpus.selectedJobs(); len(jobs) == 1 {
		return jobs[0]
	}
	return nil
}

func (o *overview) move(n int) tea.Cmd {
	o.fresh = 0
	if t := o.table(); t != nil {
		t.move(n)
	} else {
		o.gpus.move(n)
	}
	return nil
}

// able gives bindings that act on a job the reason why there is none to act on.
func (o *overview) able(bs []binding, noJob string) []binding {
	for i := range bs {
		if noJob != "" && o.unable() == "" {
			bs[i].disabled = noJob
		}
	}
	return bs
}

// monitorKeys are the bindings where there are no jobs.
func (o *overview) monitorKeys() []binding {
	step := func(n int) func() tea.Cmd { return func() tea.Cmd { o.gpus.move(n); return nil } }
	all := o.processesKey()
	all.short = "processes"
	return []binding{all,
		{keys: []string{"down", "j"}, label: "j/k", short: "move", help: "one card down or up (also the arrows)", run: step(1)},
		{keys: []string{"up", "k"}, run: step(-1)},
	}
}

// Keys are the overview's bindings.
func (o *overview) Keys() []binding {
	if o.box.info.Mode == "monitor" {
		return o.monitorKeys()
	}
	j := o.selected()
	noJob := ""
	switch {
	case j != nil:
	case o.focus == paneGPUs && len(o.gpus.selectedJobs()) > 1:
		noJob = "several jobs are on this device, select one in the running list"
	default:
		noJob = "no job is selected"
	}
	acts := o.able(append(o.stopKeys(j), o.logsKey(j)), noJob)
	const page = 1 << 30
	step := func(n int) func() tea.Cmd { return func() tea.Cmd { return o.move(n) } }
	focus := func(n pane) func() tea.Cmd { return func() tea.Cmd { o.fresh = 0; o.focusOn(o.focus + n); return nil } }
	bs := []binding{
		{keys: []string{"s"}, label: "s", short: "submit", help: "submit a job", disabled: o.unable(),
			run: func() tea.Cmd { o.push(newSubmitForm(o.env)); return nil }},
		{keys: []string{"enter"}, label: "enter", short: "detail", help: "everything about the selected job", disabled: noJob,
			run: func() tea.Cmd { return o.openDetail(j.ID) }},
	}
	bs = append(bs, acts...)
	bs = append(bs, binding{keys: []string{"tab"}, label: "tab", short: "next panel", help: "next panel: GPUs, running, queue, ended", run: focus(1)})
	bs = append(bs, o.processesKey(), o.noticesKey())
	return append(append(bs, o.able(o.changeKeys(j), noJob)...),
		binding{keys: []string{"shift+tab"}, label: "shift+tab", help: "panel before", run: focus(panes - 1)},
		binding{keys: []string{"down", "j"}, label: "j/k", short: "move", help: "one row down or up (also the arrows)", run: step(1)},
		binding{keys: []string{"up", "k"}, run: step(-1)},
		binding{keys: []string{"pgdown", "ctrl+d", "ctrl+f"}, label: "pgdn", help: "ten rows down", run: step(10)},
		binding{keys: []string{"pgup", "ctrl+u", "ctrl+b"}, label: "pgup", help: "ten rows up", run: step(-10)},
		binding{keys: []string{"home", "g"}, label: "g", help: "first row", run: step(-page)},
		binding{keys: []string{"end", "G"}, label: "G", help: "last row", run: step(page)},
	)
}

// status says the selected thing in full, where the table had to cut it.
func (o *overview) status() string {
	if o.box.link == linkLost && o.box.linkError != nil {
		return "no answer from the daemon: " + firstLine(o.errorText(o.box.linkError))
	}
	if !o.box.known {
		return ""
	}
	if o.focus == paneGPUs || o.box.info.Mode == "monitor" {
		return o.gpus.statusText()
	}
	if j := o.selected(); j != nil {
		return o.jobText(j)
	}
	return ""
}

// least is the height of a frame with titles and one row.
const least = 4

// heights shares the body among the panels: what each needs, then what is left. Where there is room, the ended jobs
// have a frame of their own under the queue.
func (o *overview) heights() (gpus, running, bottom, ended int) {
	want := func(l list) int { return max(len(o.box.lists[l]), 1) + 3 }
	rest := o.h
	gpus = o.gpus.wanted(o.w-2) + 3
	if gpus > rest-2*least {
		gpus = min(max(rest/2, least), rest-2*least)
	}
	rest -= gpus
	if below := rest - want(listRunning) - want(listQueue); below >= least {
		ended = min(want(listEnded), below)
		return gpus, want(listRunning), rest - want(listRunning) - ended, ended
	}
	running = min(want(listRunning), rest-least)
	// A full box leaves the queue a fair part.
	if wanted := want(o.bottom); running+wanted > rest {
		running = min(running, max(rest/2, rest-wanted))
	}
	return gpus, running, rest - running, 0
}

func (o *overview) View() []string {
	if o.box.info.Mode == "monitor" {
		return o.monitorView()
	}
	g, r, b, e := o.heights()
	out := make([]string, 0, o.h)
	out = append(out, o.gpus.draw(o.w, g, o.focus == paneGPUs)...)
	out = append(out, o.tables[listRunning].draw("", o.w, r, o.focus == paneRunning)...)
	if e > 0 {
		out = append(out, o.tables[listQueue].draw("", o.w, b, o.focus == paneQueue)...)
		return append(out, o.tables[listEnded].draw("", o.w, e, o.focus == paneEnded)...)
	}
	note := "tab: ended"
	if o.bottom == listEnded {
		note = "shift+tab: queue"
	}
	return append(out, o.tables[o.bottom].draw(note, o.w, b, o.focus == paneQueue || o.focus == paneEnded)...)
}

// monitorView is the cards and who is on them, where there is no daemon and so no jobs.
func (o *overview) monitorView() []string {
	g := min(o.gpus.wanted(o.w-2)+3, max(o.h-least, least))
	lines := append([]string{o.processTitles(o.w - 2)}, o.processLines(o.w-2)...)
	room := o.h - g
	note := ""
	if hidden := len(lines) + 2 - room; hidden > 0 {
		lines, note = lines[:max(room-2, 0)], "o: all"
	}
	return append(o.gpus.draw(o.w, g, true), o.sty.panel(fmt.Sprintf("Processes %d", o.processCount()), note, lines, o.w, room, false)...)
}

// jobText is one job in a sentence.
func (e *env) jobText(j *api.Job) string {
	s := "#" + j.ID.String() + " " + e.sty.clean(j.Name) + " of " + e.sty.clean(j.Owner) + ": "
	switch {
	case j.State.Queued():
		return s + e.sty.clean(reasonText(j, e.now()))
	case j.State.Final():
		s += string(j.State)
		if t := outcomeText(j); t != "" {
			s += ", " + e.sty.clean(t)
		}
		return s
	}
	s += string(j.State) + " on " + gpuText(j)
	if j.State == engine.Stopping && j.StopReason != "" {
		s += " (" + string(j.StopReason) + ")"
	}
	if j.Command != "" {
		s += ": " + e.sty.clean(j.Command)
	}
	return s
}
