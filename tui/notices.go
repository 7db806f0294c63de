package tui

import (
	"context"
	"fmt"
	"strings"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"gputop/engine"
	"gputop/engine/api"
)

// keptNotices is how many notices the screen remembers.
const keptNotices = 200

// inbox is what the caller was told, newest first, as the watch stream tells it.
type inbox struct {
	list []engine.Notice
	read int64
}

// apply takes what is new; whole says that it is all there is. The stream may send one twice.
func (b *inbox) apply(n api.Notices, whole bool) {
	if whole {
		b.list, b.read = n.Notices, n.Read
		return
	}
	last := int64(0)
	if len(b.list) > 0 {
		last = b.list[0].ID
	}
	var fresh []engine.Notice
	for _, x := range n.Notices {
		if x.ID > last {
			fresh = append(fresh, x)
		}
	}
	b.list = append(fresh, b.list...)
	b.list = b.list[:min(len(b.list), keptNotices)]
	b.read = max(b.read, n.Read)
}

func (b *inbox) unread() int { return api.Notices{Notices: b.list, Read: b.read}.Unread() }

// unreadText is how many notices are new, for the header; empty for none.
func (e *env) unreadText() string {
	switch n := e.box.inbox.unread(); {
	case n == 0:
		return ""
	case n > 99:
		return "99+ notices"
	default:
		return engine.Count(n, "notice")
	}
}

// noticesKey opens the list; the footer has it while something is new.
func (e *env) noticesKey() binding {
	b := binding{keys: []string{"n"}, label: "n", help: "notices: what became of your jobs",
		run: e.openNotices}
	if e.box.inbox.unread() > 0 {
		b.short = "notices"
	}
	return b
}

// noticesReadMsg is the answer to ReadNotices.
type noticesReadMsg struct{ err error }

// notices lists what the caller was told.
type notices struct {
	*env
	w       int
	content scroller
	// read is up to where the caller had read when the list was opened: what came later has a mark.
	read int64
}

func (e *env) openNotices() tea.Cmd {
	n := &notices{env: e, read: e.box.inbox.read}
	e.push(n)
	return n.markRead()
}

// markRead tells the daemon that all was seen. It is counted as read at once: a count that stays would only confuse.
func (n *notices) markRead() tea.Cmd {
	in := &n.box.inbox
	if in.unread() == 0 || n.o.ReadOnly {
		return nil
	}
	through, read := in.list[0].ID, n.o.Client.ReadNotices
	in.read = through
	return n.calls.do(func(ctx context.Context) tea.Msg { return noticesReadMsg{err: read(ctx, through)} })
}

func (n *notices) Update(msg tea.Msg) tea.Cmd {
	switch m := msg.(type) {
	case eventArrivedMsg:
		if m.event.Notices == nil {
			return nil
		}
		n.lay()
		if n.top() == screen(n) {
			return n.markRead()
		}
	case noticesReadMsg:
		if m.err != nil {
			n.sayBad("notices are not marked as read: " + n.errorText(m.err))
		}
	}
	return nil
}

func (n *notices) SetSize(w, h int) {
	n.w, n.content.height = w, h-2
	n.lay()
}

// lay writes the lines anew.
func (n *notices) lay() {
	s := n.sty
	n.content.lines = nil
	for _, x := range n.box.inbox.list {
		r := row{s: s}
		mark, shade := " ", s.dim
		if x.ID > n.read {
			mark, shade = s.glyph.marker, s.text
		}
		r.cell(s.accent, mark, 1)
		r.cell(s.dim, n.noticeTime(x), 13)
		about := ""
		if x.Job != 0 {
			about = fmt.Sprintf("#%d", x.Job)
		}
		r.cell(shade, about, 8)
		r.cell(shade, s.clean(x.Name), 18)
		r.gap(1)
		r.cell(n.noticeInk(x.Kind), string(x.Kind), 10)
		// What matters may stand at the end: a sentence that is too long goes on below.
		at, room := r.used, n.w-2-r.used
		for i, part := range strings.Split(ansi.Wrap(s.clean(x.Sentence()), room, ""), "\n") {
			if i > 0 {
				r = row{s: s}
				r.gap(at)
			}
			r.cell(shade, part, room)
			n.content.lines = append(n.content.lines, exactly(r.fill(n.w-2), n.w-2))
		}
	}
	if len(n.content.lines) == 0 {
		r := row{s: s}
		r.cell(s.dim, "  Nothing yet. You are told here when a job of yours starts, ends, is preempted or waits for long.", n.w-2)
		n.content.lines = []string{exactly(r.fill(n.w-2), n.w-2)}
	}
}

func (n *notices) noticeTime(x engine.Notice) string {
	t, now := x.Time.In(n.now().Location()), n.now()
	if t.YearDay() == now.YearDay() && t.Year() == now.Year() {
		return t.Format("15:04:05")
	}
	return t.Format("Jan _2 15:04")
}

func (n *notices) noticeInk(k engine.NoticeKind) ink {
	switch k {
	case engine.NoticePreempted, engine.NoticeMemory, engine.NoticeIdle, engine.NoticeReclaimed:
		return n.sty.warn
	}
	return n.sty.dim
}

func (n *notices) Keys() []binding { return n.content.keys() }

func (n *notices) View() []string {
	return n.sty.panel("Notices", "", n.content.visible(), n.w, n.content.height+2, true)
}
