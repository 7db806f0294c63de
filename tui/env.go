package tui

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"

	"gputop/engine"
	"gputop/engine/api"
)

// screen is one full page between header and footer. View gives lines as wide as the screen; SetSize is also called
// when colours change, so that a screen draws anew what it keeps.
type screen interface {
	Update(tea.Msg) tea.Cmd
	View() []string
	SetSize(w, h int)
	Keys() []binding
}

// typing is a screen that takes letters as text, with the cursor on its own lines.
type typing interface {
	cursor() *tea.Cursor
}

// env is what screens share: the live state, how to draw, and where to go.
type env struct {
	o     Options
	box   box
	sty   *styles
	calls *calls

	stack  []screen
	dialog *dialog
	toast  toast
	w, h   int          // of the body
	fresh  engine.JobID // a job just submitted: the selection goes to it
	seq    int          // the last request number given out
}

func (e *env) now() time.Time { return e.o.Now() }

func (e *env) top() screen { return e.stack[len(e.stack)-1] }

func (e *env) push(s screen) {
	s.SetSize(e.w, e.h)
	e.stack = append(e.stack, s)
}

// back closes the top screen; the first one stays.
func (e *env) back() {
	if len(e.stack) == 1 {
		return
	}
	if c, ok := e.top().(io.Closer); ok {
		_ = c.Close() // screens close without error
	}
	e.stack = e.stack[:len(e.stack)-1]
}

// request gives out a number, so that a late answer is known as late.
func (e *env) request() int { e.seq++; return e.seq }

// toast is a sentence shown for a while above the footer.
type toast struct {
	text  string
	bad   bool
	until time.Time
}

// How long a toast stays.
const (
	toastTime  = 6 * time.Second
	toastWorse = 12 * time.Second
)

func (e *env) say(text string) { e.toast = toast{text: text, until: e.now().Add(toastTime)} }

func (e *env) sayBad(text string) {
	e.toast = toast{text: text, bad: true, until: e.now().Add(toastWorse)}
}

// unable says why nothing can be changed now, whatever it is.
func (e *env) unable() string {
	switch {
	case e.o.ReadOnly:
		return "read-only mode"
	case !e.box.known:
		return "not connected to the daemon yet"
	case e.box.link != linkLive:
		return "the link to the daemon is lost, reconnecting"
	}
	return ""
}

// stopUnable says why a job cannot be cancelled or preempted now.
func (e *env) stopUnable(j *api.Job, why engine.StopReason) string {
	if s := e.unable(); s != "" {
		return s
	}
	switch {
	case j == nil:
		return "no job is selected"
	case !j.Mine && !e.box.info.Admin:
		return fmt.Sprintf("job #%d belongs to %s", j.ID, e.sty.clean(j.Owner))
	case j.State.Final():
		return fmt.Sprintf("job #%d has ended already", j.ID)
	case why == engine.StopPreempted && j.State != engine.Running && j.State != engine.Starting:
		return fmt.Sprintf("job #%d is not running", j.ID)
	}
	return ""
}

// stopAnsweredMsg is the daemon's answer to a cancel or a preempt.
type stopAnsweredMsg struct {
	id  engine.JobID
	why engine.StopReason
	err error
}

const stopNote = "from the terminal interface"

func (e *env) stop(id engine.JobID, why engine.StopReason, note string) tea.Cmd {
	call := e.o.Client.Cancel
	if why == engine.StopPreempted {
		call = e.o.Client.Preempt
	}
	return e.calls.do(func(ctx context.Context) tea.Msg {
		_, err := call(ctx, id, note)
		return stopAnsweredMsg{id: id, why: why, err: err}
	})
}

func (e *env) stopAnswered(m stopAnsweredMsg) {
	verb := "cancel"
	if m.why == engine.StopPreempted {
		verb = "preempt"
	}
	switch {
	case m.err != nil:
		e.sayBad(fmt.Sprintf("could not %s job #%d: %s", verb, m.id, e.errorText(m.err)))
	case m.why == engine.StopPreempted:
		e.say(fmt.Sprintf("job #%d is told to stop and goes back to the queue", m.id))
	default:
		e.say(fmt.Sprintf("job #%d is cancelled", m.id))
	}
}

// errorText is an error for one line: what happened, then what to do.
func (e *env) errorText(err error) string {
	text := err.Error()
	if a, ok := errors.AsType[*api.Error](err); ok {
		text = a.Message
		if a.Hint != "" {
			text = strings.TrimSuffix(text, ".") + ". " + a.Hint
		}
	}
	return e.sty.clean(text)
}

// stopKeys are the bindings that end a job or its turn, wherever one is shown.
func (e *env) stopKeys(j *api.Job) []binding {
	return []binding{
		{keys: []string{"c"}, label: "c", short: "cancel", help: "cancel the job, after a question",
			run:      func() tea.Cmd { e.askStop(j, engine.StopCancelled); return nil },
			disabled: e.stopUnable(j, engine.StopCancelled)},
		{keys: []string{"p"}, label: "p", short: "preempt", help: "stop the job and put it back in the queue, after a question",
			run:      func() tea.Cmd { e.askStop(j, engine.StopPreempted); return nil },
			disabled: e.stopUnable(j, engine.StopPreempted)},
	}
}

// logsKey opens a job's output.
func (e *env) logsKey(j *api.Job) binding {
	b := binding{keys: []string{"l"}, label: "l", short: "logs", help: "follow the job's output"}
	switch {
	case j == nil:
		b.disabled = "no job is selected"
	case !j.Mine && !e.box.info.Admin:
		b.disabled = fmt.Sprintf("job #%d belongs to %s", j.ID, e.sty.clean(j.Owner))
	case j.Attempt == 0 && !j.State.Active() && !j.State.Final():
		b.disabled = fmt.Sprintf("job #%d has not started yet", j.ID)
	default:
		b.run = func() tea.Cmd { return e.openLogs(j) }
	}
	return b
}
