package tui

import (
	"fmt"
	"strconv"
	"strings"

	tea "charm.land/bubbletea/v2"

	"gputop/engine"
)

// Under this size nothing useful can be drawn.
const (
	floorWidth  = 60
	floorHeight = 15
)

// chrome is the number of lines around the body: header, status and footer.
const chrome = 3

// app is the root model. It only routes: sizes, global keys, dialogs, messages to screens.
type app struct {
	env
	width, height int
	getenv        func(string) string
}

// tickedMsg comes once a second, for clocks and ages.
type tickedMsg struct{}

func newApp(o Options, c *calls) *app {
	a := &app{getenv: func(string) string { return "" }}
	a.env = env{o: o, calls: c, sty: newStyles(true, o.ASCII)}
	a.stack = []screen{newOverview(&a.env)}
	a.resize(80, 24)
	return a
}

// Init asks for the background colour.
func (a *app) Init() tea.Cmd { return tea.RequestBackgroundColor }

// Update takes one message.
func (a *app) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch m := msg.(type) {
	case tea.WindowSizeMsg:
		a.resize(m.Width, m.Height)
		return a, nil
	case tea.EnvMsg:
		a.getenv = m.Getenv
		return a, nil
	case tea.BackgroundColorMsg:
		a.sty = newStyles(m.IsDark(), a.o.ASCII)
		a.resize(a.width, a.height)
		return a, nil
	case eventArrivedMsg:
		a.box.apply(m.event, a.now())
		a.checkQuestion()
		return a, a.forward(msg)
	case linkLostMsg:
		a.box.link, a.box.linkError = linkLost, m.err
		return a, nil
	case stopAnsweredMsg:
		a.stopAnswered(m)
		return a, nil
	case jobChangedMsg:
		a.jobChanged(m)
		return a, nil
	case tea.KeyPressMsg:
		return a, a.press(m)
	case tea.PasteMsg:
		if a.dialog != nil {
			if a.dialog.why {
				a.dialog.write(a.sty, m.Content)
			}
			return a, nil
		}
		return a, a.top().Update(msg)
	}
	return a, a.forward(msg)
}

// forward hands a message to every open screen: an answer may belong to one that is covered now.
func (a *app) forward(msg tea.Msg) tea.Cmd {
	cmds := make([]tea.Cmd, 0, len(a.stack))
	for _, s := range a.stack {
		cmds = append(cmds, s.Update(msg))
	}
	return tea.Batch(cmds...)
}

// resize lays out anew. A terminal that does not know its size is asked through the environment.
func (a *app) resize(w, h int) {
	if w <= 0 || h <= 0 {
		w, h = a.fallback("COLUMNS", 80), a.fallback("LINES", 24)
	}
	a.width, a.height = w, h
	a.w, a.h = max(w, floorWidth), max(h, floorHeight)-chrome
	for _, s := range a.stack {
		s.SetSize(a.w, a.h)
	}
}

func (a *app) fallback(name string, otherwise int) int {
	if n, err := strconv.Atoi(a.getenv(name)); err == nil && n > 0 {
		return n
	}
	return otherwise
}

func (a *app) press(m tea.KeyPressMsg) tea.Cmd {
	key := m.String()
	if a.dialog != nil && key != "ctrl+c" {
		return a.dialog.press(&a.env, m)
	}
	if b, ok := find(a.keys(), key); ok {
		if b.disabled != "" {
			name := b.short
			if name == "" {
				name = b.help
			}
			a.sayBad(name + ": " + b.disabled)
			return nil
		}
		if b.run == nil {
			return nil
		}
		a.toast = toast{}
		return b.run()
	}
	if _, ok := a.top().(typing); ok {
		return a.top().Update(m)
	}
	return nil
}

// keys are the bindings valid now: the top screen's, then the global ones.
func (a *app) keys() []binding {
	if a.dialog != nil {
		return a.dialog.keys()
	}
	own := a.top().Keys()
	quit := func() tea.Cmd { return tea.Quit }
	global := []binding{
		{keys: []string{"ctrl+c"}, label: "ctrl+c", help: "leave gputop", run: quit},
		{keys: []string{"ctrl+z"}, label: "ctrl+z", help: "suspend gputop; fg brings it back", run: func() tea.Cmd { return tea.Suspend }},
	}
	if _, ok := a.top().(typing); ok {
		return append(own, global...)
	}
	if len(a.stack) > 1 {
		own = append(own, binding{keys: []string{"esc"}, label: "esc", short: "back", help: "back to the screen before",
			run: func() tea.Cmd { a.back(); return nil }})
	}
	own = append(own, binding{keys: []string{"q"}, label: "q", short: "quit", help: "leave gputop; jobs go on", run: quit})
	if _, ok := a.top().(*help); !ok {
		own = append(own, binding{keys: []string{"?"}, label: "?", short: "help", help: "all keys of this screen",
			run: func() tea.Cmd { a.push(newHelp(&a.env, a.keys())); return nil }})
	}
	return append(own, global...)
}

// View draws the whole terminal.
func (a *app) View() tea.View {
	v := tea.NewView("")
	v.AltScreen = true
	v.WindowTitle = "gputop"
	if a.width < floorWidth || a.height < floorHeight {
		v.SetContent(strings.Join(a.tooSmall(), "\n"))
		return v
	}
	lines := make([]string, 0, a.height)
	lines = append(lines, a.header())
	body := a.top().View()
	for i := range a.h {
		if i < len(body) {
			lines = append(lines, body[i])
		} else {
			lines = append(lines, "")
		}
	}
	lines = append(lines, a.status(), a.sty.footer(a.keys(), a.width))
	if a.dialog != nil {
		last := len(lines) - 1 // the footer says which keys the dialog takes
		lines = append(a.sty.overlay(lines[:last], a.dialog.draw(a.sty, a.width), a.width), lines[last])
	} else if t, ok := a.top().(typing); ok {
		if v.Cursor = t.cursor(); v.Cursor != nil {
			v.Cursor.Y++ // below the header
		}
	}
	v.SetContent(strings.Join(lines, "\n"))
	return v
}

func (a *app) tooSmall() []string {
	text := []string{"gputop", fmt.Sprintf("terminal too small: %dx%d", a.width, a.height),
		fmt.Sprintf("needs %dx%d", floorWidth, floorHeight), "q quits, jobs go on"}
	lines := blankLines(a.width, a.height)
	first := max(0, (a.height-len(text))/2)
	for i, t := range text {
		if first+i < len(lines) {
			lines[first+i] = a.sty.fit(spaces((a.width-width(t))/2)+t, a.width)
		}
	}
	return lines
}

// status is the line above the footer: a toast, or what the screen has to say.
func (a *app) status() string {
	if a.toast.text != "" && a.now().Before(a.toast.until) {
		i, mark := a.sty.good, a.sty.glyph.live
		if a.toast.bad {
			i, mark = a.sty.bad, "!"
		}
		return i.paint(a.sty.fit(" "+mark+" "+a.toast.text, a.width))
	}
	if s, ok := a.top().(interface{ status() string }); ok {
		return a.sty.dim.paint(a.sty.fit(" "+s.status(), a.width))
	}
	return spaces(a.width)
}

// farewell is the sentence after the screen is gone.
func (a *app) farewell() string {
	n := a.box.mineGoingOn()
	if n == 0 {
		return ""
	}
	verb := "go"
	if n == 1 {
		verb = "goes"
	}
	return fmt.Sprintf("%s of yours %s on without this screen; gputop ls shows them.", engine.Count(n, "job"), verb)
}
