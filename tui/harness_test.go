package tui

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"gputop/engine"
	"gputop/engine/api"
	"gputop/engine/draft"
	"gputop/tui/internal/tuitest"
)

// rig drives the model as Bubble Tea does, one message after the other, with a clock that stands still.
type rig struct {
	t      testing.TB
	a      *app
	client *tuitest.Client
	now    time.Time
	cancel context.CancelFunc
	quit   bool
}

func specOf(f draft.Fields) (engine.Spec, error) {
	c, err := engine.ParseClass(f.Class)
	if err != nil {
		return engine.Spec{}, &draft.FieldError{Field: "class", Err: err}
	}
	limit, err := engine.ParseDuration(f.TimeLimit)
	if err != nil {
		return engine.Spec{}, errors.Join(&draft.FieldError{Field: "time-limit", Err: err},
			&draft.FieldError{Field: "gpu-mem", Err: errors.New("more than any card has")})
	}
	return engine.Spec{Name: draft.NameFor(f.Command), Profile: f.Profile, Command: f.Command, Class: c, TimeLimit: limit}, nil
}

func newRig(t testing.TB, s api.Snapshot, w, h int, change ...func(*Options)) *rig {
	r := &rig{t: t, now: tuitest.Time, client: tuitest.New(s)}
	r.client.Now = func() time.Time { return r.now }
	o := Options{Client: r.client, Draft: specOf, Version: "0.1.0", Now: func() time.Time { return r.now }}
	for _, f := range change {
		f(&o)
	}
	ctx, cancel := context.WithCancel(t.Context())
	r.cancel = cancel
	t.Cleanup(cancel)
	r.a = newApp(o, &calls{ctx: ctx})
	r.send(tea.WindowSizeMsg{Width: w, Height: h})
	return r
}

func (r *rig) connect() *rig {
	s := r.client.Snapshot()
	r.update(eventArrivedMsg{event: api.WatchEvent{Snapshot: &s}})
	return r
}

// update hands over one message and gives the command back.
func (r *rig) update(m tea.Msg) tea.Cmd {
	r.client.Drawing.Store(true)
	defer r.client.Drawing.Store(false)
	_, cmd := r.a.Update(m)
	return cmd
}

// send hands over a message and runs what follows from it to the end, timers left out.
func (r *rig) send(m tea.Msg) {
	r.run(r.update(m))
}

func (r *rig) run(cmd tea.Cmd) {
	if cmd == nil {
		return
	}
	switch m := cmd().(type) {
	case nil:
	case tea.QuitMsg:
		r.quit = true
	case tea.BatchMsg:
		for _, c := range m {
			r.run(c)
		}
	default:
		r.send(m)
	}
}

// keys types: names of special keys in <>, all else letter by letter.
func (r *rig) keys(s string) {
	for s != "" {
		name := s[:1]
		if i := strings.IndexByte(s, '>'); s[0] == '<' && i > 0 {
			name, s = s[1:i], s[i+1:]
		} else {
			s = s[1:]
		}
		r.send(key(name))
	}
}

func key(name string) tea.KeyPressMsg {
	special := map[string]rune{"enter": tea.KeyEnter, "tab": tea.KeyTab, "esc": tea.KeyEscape, "up": tea.KeyUp, "down": tea.KeyDown,
		"left": tea.KeyLeft, "right": tea.KeyRight, "end": tea.KeyEnd, "home": tea.KeyHome, "backspace": tea.KeyBackspace}
	if name == "space" {
		return tea.KeyPressMsg{Code: tea.KeySpace, Text: " "}
	}
	switch {
	case special[name] != 0:
		return tea.KeyPressMsg{Code: special[name]}
	case name == "shift+tab":
		return tea.KeyPressMsg{Code: tea.KeyTab, Mod: tea.ModShift}
	case strings.HasPrefix(name, "ctrl+"):
		return tea.KeyPressMsg{Code: rune(name[5]), Mod: tea.ModCtrl}
	}
	return tea.KeyPressMsg{Code: rune(name[0]), Text: name}
}

func (r *rig) painted() string {
	r.client.Drawing.Store(true)
	defer r.client.Drawing.Store(false)
	return r.a.View().Content
}

// screen is what is shown, without colours and trailing spaces.
func (r *rig) screen() string {
	lines := strings.Split(ansi.Strip(r.painted()), "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " ")
	}
	return strings.Join(lines, "\n") + "\n"
}

func (r *rig) has(want string) {
	r.t.Helper()
	if !strings.Contains(r.screen(), want) {
		r.t.Errorf("screen does not show %q:\n%s", want, r.screen())
	}
}

func (r *rig) hasNot(want string) {
	r.t.Helper()
	if strings.Contains(r.screen(), want) {
		r.t.Errorf("screen shows %q:\n%s", want, r.screen())
	}
}

// holds checks the frame: no line too wide, no line too many.
func (r *rig) holds(w, h int) {
	r.t.Helper()
	lines := strings.Split(r.painted(), "\n")
	if len(lines) > h {
		r.t.Fatalf("%dx%d: %d lines", w, h, len(lines))
	}
	for i, l := range lines {
		if n := ansi.StringWidth(l); n > w {
			r.t.Fatalf("%dx%d: line %d is %d wide: %q", w, h, i, n, ansi.Strip(l))
		}
		if n := ansi.StringWidthWc(l); n > w {
			r.t.Fatalf("%dx%d: line %d is %d wide by wcwidth: %q", w, h, i, n, ansi.Strip(l))
		}
	}
}
