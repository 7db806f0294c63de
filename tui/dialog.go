package tui

import (
	"fmt"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"gputop/engine"
	"gputop/engine/api"
)

// deafTime is how long a dialog that opened by itself ignores keys: they were meant for what it covers.
const deafTime = 150 * time.Millisecond

// dialog is a question or a notice over the screen. A question starts on No.
type dialog struct {
	title string
	lines []string
	yes   string // the word on the button; empty for a notice
	run   func() tea.Cmd
	onYes bool
	// reason is what was typed where why asks for a sentence: without one there is no yes.
	why    bool
	reason string
	job    engine.JobID // what the question is about
	// deafUntil is when keys begin to count.
	deafUntil time.Time
}

// ask opens a question that the user's own key asked for.
func (e *env) ask(d *dialog) { e.dialog = d }

// notify opens a notice by itself.
func (e *env) notify(title string, lines ...string) {
	e.dialog = &dialog{title: title, lines: lines, deafUntil: e.now().Add(deafTime)}
}

// checkQuestion takes a question back when its job has ended meanwhile.
func (e *env) checkQuestion() {
	if e.dialog == nil || e.dialog.job == 0 {
		return
	}
	j := e.box.jobs[e.dialog.job]
	switch {
	case j == nil:
		e.notify(fmt.Sprintf("Job #%d is gone", e.dialog.job), "It left the list while the question was open. Nothing was done.")
	case j.State.Final():
		e.notify(fmt.Sprintf("Job #%d has ended", j.ID), fmt.Sprintf("It %s while the question was open. Nothing was done.", endedVerb(j.State)))
	}
}

// endedVerb says in a word how a job ended.
func endedVerb(s engine.JobState) string {
	switch s {
	case engine.Succeeded, engine.Failed:
		return string(s)
	case engine.TimedOut:
		return "reached its time limit"
	case engine.Lost:
		return "was lost"
	}
	return "was " + string(s)
}

// askStop asks before a job is cancelled or preempted, and says what it would cost.
func (e *env) askStop(j *api.Job, why engine.StopReason) {
	id, now, clean := j.ID, e.now(), e.sty.clean
	verb, title := "cancel", "Cancel job #%d?"
	if why == engine.StopPreempted {
		verb, title = "preempt", "Preempt job #%d?"
	}
	d := &dialog{title: fmt.Sprintf(title, id), yes: "Yes, " + verb, job: id,
		run: func() tea.Cmd { return e.stop(id, why, stopNote) }}
	d.lines = append(d.lines, fmt.Sprintf("%s of %s, class %s", clean(j.Name), clean(j.Owner), j.Class))
	switch {
	case j.Started.IsZero() || !j.State.Active():
		d.lines = append(d.lines, fmt.Sprintf("It has waited %s and has not run: no work is lost.", clock(now.Sub(j.Submitted))))
	default:
		d.lines = append(d.lines, fmt.Sprintf("It has run for %s on %s.", clock(now.Sub(j.Started)), gpuText(j)),
			"What it has not written to disk is lost.")
	}
	if why == engine.StopPreempted {
		d.lines = append(d.lines, "It goes back to the queue and starts again later.")
		if !j.Mine {
			d.why = true
			d.lines = append(d.lines, "Say why: its owner reads it.")
			d.run = func() tea.Cmd { return e.stop(id, why, d.reason) }
		}
	}
	e.ask(d)
}

func (d *dialog) keys() []binding {
	if d.yes == "" {
		return []binding{{label: "enter", short: "close"}}
	}
	if d.why {
		return []binding{{label: "a-z", short: "the reason"}, {label: "tab", short: "move"}, {label: "enter", short: "choose"}, {label: "esc", short: "back"}}
	}
	return []binding{{label: "y", short: "yes"}, {label: "n", short: "no"}, {label: arrows, short: "move"},
		{label: "enter", short: "choose"}, {label: "esc", short: "back"}}
}

// maxReason is the longest reason that can be typed, in bytes.
const maxReason = 200

// write takes typed or pasted text into the reason.
func (d *dialog) write(s *styles, text string) {
	if text = s.clean(text); len(d.reason)+len(text) <= maxReason {
		d.reason += text
	}
}

// press takes a key; what the dialog does not know is ignored. Where a reason is typed, letters are text.
func (d *dialog) press(e *env, m tea.KeyPressMsg) tea.Cmd {
	if e.now().Before(d.deafUntil) {
		return nil
	}
	key := m.String()
	switch {
	case d.why && m.Text != "":
		d.write(e.sty, m.Text)
		return nil
	case d.why && key == "backspace":
		if r := []rune(d.reason); len(r) > 0 {
			d.reason = string(r[:len(r)-1])
		}
		return nil
	}
	switch key {
	case "esc", "n", "N", "q":
		e.dialog = nil
	case "left", "right", "tab", "shift+tab", "h", "l":
		d.onYes = !d.onYes && d.yes != ""
	case "y", "Y":
		if d.yes != "" {
			return d.accept(e)
		}
	case "enter":
		if d.onYes {
			return d.accept(e)
		}
		e.dialog = nil
	}
	return nil
}

func (d *dialog) accept(e *env) tea.Cmd {
	if d.why && strings.TrimSpace(d.reason) == "" {
		e.sayBad(d.yes + ": say why first, its owner reads it")
		return nil
	}
	e.dialog = nil
	if why := e.unable(); why != "" {
		e.sayBad(d.yes + ": " + why)
		return nil
	}
	return d.run()
}

// draw is the dialog as lines of equal width.
func (d *dialog) draw(s *styles, screen int) []string {
	text := []string{}
	for _, l := range d.lines {
		text = append(text, wrap(l, max(min(screen-10, 64), 20))...)
	}
	if d.why {
		text = append(text, s.fit("Reason: "+tail(d.reason, 50)+"_", min(60, max(screen-10, 20))))
	}
	inner := width(d.title) + 6
	for _, l := range text {
		inner = max(inner, width(l)+4)
	}
	no := " No "
	if d.yes == "" {
		no = " OK "
	}
	inner = min(max(inner, width(d.yes)+width(no)+12), screen-4)
	lines := []string{spaces(inner)}
	for i, l := range text {
		shade := s.text
		if i == 0 {
			shade = s.strong
		}
		lines = append(lines, shade.paint(s.fit("  "+l, inner)))
	}
	r := row{s: s}
	r.gap(2)
	button := func(t string, on bool) {
		if on {
			t = s.glyph.marker + t
			r.put(s.badge, t, width(t))
		} else {
			r.put(s.dim, " "+t, width(t)+1)
		}
		r.gap(3)
	}
	button(no, !d.onYes)
	if d.yes != "" {
		button(" "+d.yes+" ", d.onYes)
	}
	lines = append(lines, spaces(inner), exactly(r.fill(inner), inner), spaces(inner))
	return s.panel(d.title, "", lines, inner+2, len(lines)+2, true)
}

// tail is the end of a text that is longer than so many cells: where one types.
func tail(text string, cells int) string {
	if over := width(text) - cells; over > 0 {
		return ansi.TruncateLeft(text, over, "")
	}
	return text
}

// overlay lays a box over the middle of a screen, which steps back into the dark.
func (s *styles) overlay(lines, box []string, w int) []string {
	bw := width(box[0])
	x, y := max((w-bw)/2, 0), max((len(lines)-len(box))/2, 0)
	out := make([]string, len(lines))
	for i, l := range lines {
		plain := s.fit(ansi.Strip(l), w)
		if i < y || i >= y+len(box) {
			out[i] = s.faint.paint(plain)
			continue
		}
		left, right := exactly(ansi.Truncate(plain, x, ""), x), ansi.TruncateLeft(plain, x+bw, "")
		right = spaces(w-x-bw-width(right)) + right // a wide character cut in two
		out[i] = s.faint.paint(left) + box[i-y] + s.faint.paint(right)
	}
	return out
}
