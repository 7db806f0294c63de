package tui

import (
	"context"
	"fmt"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"

	"gputop/engine"
	"gputop/engine/api"
)

// detail shows one job in full: what it asked for, where it is, its attempts and its story.
type detail struct {
	*env
	id      engine.JobID
	w       int
	content scroller

	got     *api.JobDetail
	err     error
	request int  // of the answer that is waited for
	waiting bool // one call at a time
	again   bool // the job changed meanwhile
}

// jobShownMsg is the answer to Show.
type jobShownMsg struct {
	request int
	detail  api.JobDetail
	err     error
}

func (e *env) openDetail(id engine.JobID) tea.Cmd {
	d := &detail{env: e, id: id}
	e.push(d)
	return d.load()
}

func (d *detail) load() tea.Cmd {
	if d.waiting {
		d.again = true
		return nil
	}
	d.waiting, d.again, d.request = true, false, d.env.request()
	id, n, show := d.id, d.request, d.o.Client.Show
	return d.calls.do(func(ctx context.Context) tea.Msg {
		got, err := show(ctx, id)
		return jobShownMsg{request: n, detail: got, err: err}
	})
}

// Update loads again whenever the stream says that the job changed.
func (d *detail) Update(msg tea.Msg) tea.Cmd {
	switch m := msg.(type) {
	case jobShownMsg:
		if m.request != d.request {
			return nil
		}
		d.waiting, d.err = false, m.err
		if m.err == nil {
			d.got = &m.detail
		}
		d.write()
		if d.again {
			return d.load()
		}
	case eventArrivedMsg:
		if m.event.Snapshot != nil {
			return d.load()
		}
		for i := range m.event.Jobs {
			if m.event.Jobs[i].ID == d.id {
				return d.load()
			}
		}
	case tickedMsg:
		d.write()
	}
	return nil
}

// job is the newest word on the job: the stream's, then what Show said.
func (d *detail) job() *api.Job {
	if j := d.box.jobs[d.id]; j != nil {
		return j
	}
	if d.got != nil {
		return &d.got.Job
	}
	return nil
}

// SetSize writes the lines anew.
func (d *detail) SetSize(w, h int) {
	d.w, d.content.height = w, h-2
	d.write()
}

// Keys are the detail screen's bindings.
func (d *detail) Keys() []binding {
	bs := append([]binding{d.logsKey(d.job())}, append(d.stopKeys(d.job()), d.changeKeys(d.job())...)...)
	return append(bs, d.content.keys()...)
}

func (d *detail) status() string {
	if d.err != nil {
		return fmt.Sprintf("could not load job #%d: %s", d.id, firstLine(d.errorText(d.err)))
	}
	return ""
}

func (d *detail) View() []string {
	title := fmt.Sprintf("Job #%d", d.id)
	if j := d.job(); j != nil {
		title += "  " + d.sty.clean(j.Name)
	}
	note := ""
	if !d.content.atEnd() || d.content.top > 0 {
		note = fmt.Sprintf("%d-%d of %d", d.content.top+1, min(d.content.top+d.content.height, len(d.content.lines)), len(d.content.lines))
	}
	return d.sty.panel(title, note, d.content.visible(), d.w, d.content.height+2, true)
}

// page collects lines: headings, and names with values that wrap under themselves.
type page struct {
	s     *styles
	w     int
	lines []string
}

const pageLabel = 15

func (p *page) heading(t string) {
	p.lines = append(p.lines, spaces(p.w), p.s.accent.paint(p.s.fit("  "+t, p.w)))
}

func (p *page) field(name string, i ink, value string) {
	for _, l := range wrap(value, p.w-pageLabel-4) {
		r := row{s: p.s}
		r.gap(2)
		r.cell(p.s.dim, name, pageLabel)
		r.cell(i, l, p.w-pageLabel-3)
		p.lines = append(p.lines, exactly(r.fill(p.w), p.w))
		name = ""
	}
}

func (d *detail) write() {
	p := &page{s: d.sty, w: d.w - 2}
	j := d.job()
	switch {
	case j == nil && d.err != nil:
		p.field("", d.sty.bad, d.errorText(d.err))
	case j == nil:
		p.field("", d.sty.dim, "Loading.")
	default:
		d.about(p, j)
		if d.got != nil {
			d.specOf(p)
			d.attemptsOf(p)
			d.eventsOf(p)
		}
	}
	d.content.lines = p.lines
	d.content.clamp()
}

func (d *detail) about(p *page, j *api.Job) {
	s, now, clean := d.sty, d.now(), d.sty.clean
	p.lines = append(p.lines, spaces(p.w))
	state := stateText(j)
	if j.State == engine.Stopping && j.StopReason != "" {
		state += " (" + string(j.StopReason) + ")"
	}
	if j.ExitCode != nil {
		state += fmt.Sprintf(", exit code %d", *j.ExitCode)
	}
	p.field("state", s.stateInk(j.State), state)
	if j.State.Queued() {
		t := reasonText(j, now)
		if j.Position > 0 {
			t = fmt.Sprintf("place %d in the queue; %s", j.Position, t)
		}
		p.field("waits", s.warn, clean(t))
	}
	if t := j.ExpectedStart; t.After(now) {
		p.field("expected", s.text, fmt.Sprintf("%s, in %s", t.In(now.Location()).Format("2006-01-02 15:04"), clock(t.Sub(now))))
	}
	if j.Message != "" {
		p.field("message", s.warn, clean(j.Message))
	}
	p.field("owner", s.text, fmt.Sprintf("%s (uid %d)", clean(j.Owner), j.UID))
	p.field("class", s.classes[max(0, min(int(j.Class), 4))], j.Class.String())
	p.field("request", s.text, requestLong(j.Request))
	p.field("submitted", s.text, stamp(j.Submitted, now))
	if !j.Started.IsZero() {
		end := now
		if !j.Ended.IsZero() {
			end = j.Ended
		}
		p.field("started", s.text, stamp(j.Started, now))
		p.field("ran", s.text, clock(end.Sub(j.Started))+" of "+limit(j.TimeLimit))
	} else {
		p.field("time limit", s.text, limit(j.TimeLimit))
	}
	if !j.Ended.IsZero() {
		p.field("ended", s.text, stamp(j.Ended, now))
	}
	d.grants(p, "devices", j.Grants)
	if j.GPUMemoryUsed != nil {
		p.field("GPU memory", s.text, j.GPUMemoryUsed.String()+" in use")
	}
	if j.URL != "" {
		p.field("server", s.strong, s.clean(j.URL))
		p.field("", s.dim, "From your own computer: gputop show "+j.ID.String()+" has the ssh line.")
	}
	if j.Group != "" {
		p.field("shared with", s.text, "group "+s.clean(j.Group))
	}
	if j.Tty {
		p.field("terminal", s.text, "gputop attach "+j.ID.String())
	}
	if e := j.Element; e != nil {
		t := fmt.Sprintf("index %d of %d, jobs #%d to #%d", e.Index, e.Of, e.Array, e.Array+engine.JobID(e.Of)-1)
		if e.Parallel > 0 {
			t += fmt.Sprintf(", at most %d at once", e.Parallel)
		}
		p.field("array", s.text, t)
	}
	if j.Preemptions > 0 {
		p.field("preempted", s.text, engine.Count(j.Preemptions, "time"))
	}
}

func (d *detail) grants(p *page, name string, grants []api.Grant) {
	for _, g := range grants {
		t := "not seen now"
		if g.Index >= 0 {
			t = fmt.Sprintf("GPU %d", g.Index)
		}
		t += fmt.Sprintf("  %s promised", g.Memory)
		if g.Whole {
			t += ", whole device"
		} else if g.Fraction > 0 {
			t += fmt.Sprintf(", %.0f%%; SM: not isolated", 100*float64(g.Fraction))
		}
		p.field(name, d.sty.text, t+"  "+d.sty.clean(string(g.Device)))
		name = ""
	}
}

func (d *detail) specOf(p *page) {
	s, spec, now := d.sty, d.got.Spec, d.now()
	p.heading("What it runs")
	if spec == nil {
		p.field("", s.dim, "Only its owner, an admin and whom it is shared with may see the command, environment and mounts.")
		return
	}
	p.field("command", s.strong, s.clean(strings.Join(spec.Command, " ")))
	p.field("directory", s.text, s.clean(spec.Workdir))
	p.field("profile", s.text, s.clean(spec.Profile))
	if spec.Image != "" {
		p.field("image", s.text, s.clean(spec.Image))
	}
	if d.got.ImageDigest != "" {
		p.field("digest", s.dim, s.clean(d.got.ImageDigest))
	}
	for i, m := range spec.Mounts {
		t, name := s.clean(m.Source)+" at "+s.clean(m.Target), ""
		if m.ReadOnly {
			t += ", read-only"
		}
		if i == 0 {
			name = "mounts"
		}
		p.field(name, s.text, t)
	}
	for i, dep := range spec.After {
		name := ""
		if i == 0 {
			name = "after"
		}
		p.field(name, s.text, "waits for "+dep.String())
	}
	if !spec.Begin.IsZero() {
		p.field("begin", s.text, "at the earliest "+spec.Begin.In(now.Location()).Format("2006-01-02 15:04"))
	}
	switch {
	case spec.CheckpointEvery > 0:
		p.field("checkpoint", s.text, "saved every "+clock(spec.CheckpointEvery))
	case spec.Checkpoint:
		p.field("checkpoint", s.text, "saved when it is told to stop")
	}
	if spec.StopSignal != "" {
		p.field("stop signal", s.text, s.clean(spec.StopSignal))
	}
	if spec.Restart != "" {
		p.field("restart", s.text, s.clean(string(spec.Restart)))
	}
	if spec.Retries > 0 {
		p.field("retries", s.text, engine.Count(spec.Retries, "time"))
	}
	if spec.Output != "" {
		p.field("output", s.text, s.clean(spec.Output))
	}
}

func (d *detail) attemptsOf(p *page) {
	s, now := d.sty, d.now()
	for i := len(d.got.Attempts) - 1; i >= 0; i-- {
		a := &d.got.Attempts[i]
		p.heading(fmt.Sprintf("Attempt %d", a.Number))
		p.field("allocation", s.text, string(a.Allocation))
		d.grants(p, "devices", a.Grants)
		if a.Container != "" {
			t := s.clean(a.Container)
			if len(a.ContainerID) >= 12 {
				t += "  " + s.clean(a.ContainerID[:12])
			}
			p.field("container", s.text, t)
		}
		switch {
		case len(a.CDIDevices) > 0:
			p.field("CDI", s.text, s.clean(strings.Join(a.CDIDevices, "  ")))
		case a.DirectEdits && len(a.Grants) > 0:
			p.field("CDI", s.text, "given directly: this Podman does not read CDI specs from a directory that you may write")
		}
		p.field("granted", s.text, stamp(a.Granted, now))
		if !a.Started.IsZero() {
			p.field("started", s.text, stamp(a.Started, now))
		}
		if !a.Ended.IsZero() {
			p.field("ended", s.text, stamp(a.Ended, now))
		}
		if a.ExitCode != nil {
			p.field("exit code", s.text, fmt.Sprint(*a.ExitCode))
		}
		d.curve(p, a)
		if a.OOMKilled {
			p.field("killed", s.bad, "out of host memory")
		}
		if a.Message != "" {
			p.field("message", s.warn, s.clean(a.Message))
		}
	}
}

// curve draws what an attempt used over its time.
func (d *detail) curve(p *page, a *api.Attempt) {
	c := a.Curve
	if c == nil || len(c.Memory) == 0 {
		return
	}
	signs := engine.BarSigns
	if d.sty.ascii {
		signs = engine.ASCIIBarSigns
	}
	var promised engine.Bytes
	for _, g := range a.Grants {
		promised += g.Memory
	}
	room := min(60, p.w-pageLabel-24) // with room for the words behind
	if room < 8 {
		return
	}
	peak, sm := c.Peak()
	if peak != nil {
		p.field("memory", d.sty.accent, engine.Bars(engine.Thin(c.Memory, room), max(promised, *peak), signs)+"  at most "+peak.String())
	}
	if sm != nil {
		p.field("SM", d.sty.accent, engine.Bars(engine.Thin(c.SM, room), 1000, signs)+fmt.Sprintf("  %.0f%% in the mean", 100**sm))
	}
}

func (d *detail) eventsOf(p *page) {
	if len(d.got.Events) == 0 {
		return
	}
	s := d.sty
	p.heading("Events")
	for _, e := range d.got.Events {
		t := s.clean(e.Kind)
		if e.Text != "" {
			t += "  " + s.clean(e.Text)
		}
		p.field(e.Time.Local().Format("01-02 15:04:05"), s.text, t)
	}
}

// requestLong is a request in a sentence.
func requestLong(r engine.Request) string {
	t := requestText(r)
	if r.IsShare() {
		t += " of one GPU"
	}
	if r.CPUs > 0 {
		t += fmt.Sprintf(", %g CPU cores", float64(r.CPUs))
	}
	if r.Memory > 0 {
		t += ", " + r.Memory.String() + " of host memory"
	}
	return t
}

// stamp is a time with its age.
func stamp(t, now time.Time) string {
	if t.IsZero() {
		return "not yet"
	}
	return t.Local().Format("2006-01-02 15:04:05") + ", " + clock(now.Sub(t)) + " ago"
}
