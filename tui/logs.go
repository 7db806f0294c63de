package tui

import (
	"context"
	"errors"
	"fmt"

	tea "charm.land/bubbletea/v2"

	"gputop/engine"
	"gputop/engine/api"
)

// logs follows a job's output.
type logs struct {
	*env
	id      engine.JobID
	name    string
	w       int
	request int
	feed    *feed
	text    logText
	content scroller
	follow  bool
	ended   bool
	err     error
}

// logArrivedMsg is a piece of output; logEndedMsg the end of the stream.
type (
	logArrivedMsg struct {
		request int
		data    []byte
	}
	logEndedMsg struct {
		request int
		err     error
	}
)

func (e *env) openLogs(j *api.Job) tea.Cmd {
	l := &logs{env: e, id: j.ID, name: j.Name, follow: true, request: e.request(), feed: newFeed(e.calls.ctx)}
	e.push(l)
	id, n, f, read := l.id, l.request, l.feed, e.o.Client.Logs
	return tea.Batch(l.listen(), e.calls.do(func(context.Context) tea.Msg {
		err := read(f.ctx, id, api.LogOptions{Follow: true, Tail: firstLines}, f)
		if errors.Is(err, context.Canceled) {
			err = nil
		}
		nudge(f.more)
		return logEndedMsg{request: n, err: err}
	}))
}

// listen waits for the next piece.
func (l *logs) listen() tea.Cmd {
	f, n := l.feed, l.request
	return l.calls.do(func(context.Context) tea.Msg {
		b, ok := f.take()
		if !ok {
			return nil
		}
		return logArrivedMsg{request: n, data: b}
	})
}

// Close stops the reading.
func (l *logs) Close() error { l.feed.cancel(); return nil }

// Update takes pieces of output until the end.
func (l *logs) Update(msg tea.Msg) tea.Cmd {
	switch m := msg.(type) {
	case logArrivedMsg:
		if m.request != l.request {
			return nil
		}
		l.take(m.data)
		return l.listen()
	case logEndedMsg:
		if m.request == l.request {
			l.ended, l.err = true, m.err
		}
	}
	return nil
}

func (l *logs) take(b []byte) {
	cut := l.text.cut
	l.text.s = l.sty
	l.text.write(b)
	l.content.lines = l.text.all()
	l.content.top -= l.text.cut - cut
	if l.follow {
		l.content.top = len(l.content.lines)
	}
	l.content.clamp()
}

func (l *logs) SetSize(w, h int) {
	l.w, l.content.height = w, h-2
	if l.follow {
		l.content.top = len(l.content.lines)
	}
	l.content.clamp()
}

// Keys are the log screen's bindings. Going up stops following, the end takes it up again.
func (l *logs) Keys() []binding {
	toggle := "follow"
	if l.follow {
		toggle = "stop following"
	}
	bs := []binding{{keys: []string{"f"}, label: "f", short: toggle, help: "follow the end, or stop at this place",
		run: func() tea.Cmd {
			l.follow = !l.follow
			if l.follow {
				l.content.move(len(l.content.lines))
			}
			return nil
		}}}
	scroll := l.content.keys()
	for i := range scroll {
		move := scroll[i].run
		scroll[i].run = func() tea.Cmd {
			cmd := move()
			l.follow = l.content.atEnd()
			return cmd
		}
	}
	return append(append(bs, scroll...), l.stopKeys(l.box.jobs[l.id])...)
}

func (l *logs) status() string {
	switch {
	case l.err != nil:
		return "the output broke off: " + firstLine(l.errorText(l.err))
	case l.ended && len(l.content.lines) == 0:
		return "the job wrote nothing"
	case l.ended:
		return "end of the output"
	case l.follow:
		return "following"
	}
	return "stopped here, more may follow; f follows again"
}

func (l *logs) View() []string {
	lines := make([]string, 0, l.content.height)
	for _, t := range l.content.visible() {
		lines = append(lines, l.sty.fit(" "+t, l.w-2))
	}
	if len(lines) == 0 && !l.ended {
		lines = append(lines, l.sty.dim.paint(l.sty.fit(" Nothing written yet.", l.w-2)))
	}
	note := fmt.Sprintf("%d lines", len(l.content.lines)+l.text.cut)
	return l.sty.panel(fmt.Sprintf("Output of #%d  %s", l.id, l.sty.clean(l.name)), note, lines, l.w, l.content.height+2, true)
}
