package tui

import (
	"slices"

	tea "charm.land/bubbletea/v2"
)

// binding is a key as data: help, footer and dispatch come from it.
type binding struct {
	keys  []string // as Bubble Tea names them
	label string   // as shown
	short string   // a word for the footer; none there when empty
	help  string
	run   func() tea.Cmd
	// disabled says why the key does nothing now; empty when it works.
	disabled string
}

const arrows = "←/→"

// find looks a key up; the first binding that has it wins.
func find(bs []binding, key string) (binding, bool) {
	for _, b := range bs {
		if slices.Contains(b.keys, key) {
			return b, true
		}
	}
	return binding{}, false
}

// footer lists the keys that work now, as many as fit, the way out and "? help" always last.
func (s *styles) footer(bs []binding, w int) string {
	r := row{s: s}
	r.gap(1)
	var help, quit *binding
	show := func(b *binding) {
		r.put(s.key, s.keyLabel(b.label), width(b.label))
		r.put(s.dim, " "+b.short, width(b.short)+1)
		r.gap(2)
	}
	size := func(b *binding) int { return width(b.label) + width(b.short) + 3 }
	for i := range bs {
		if bs[i].label == "?" {
			help = &bs[i]
		}
		if bs[i].label == "q" {
			quit = &bs[i]
		}
	}
	keep := 0
	for _, b := range []*binding{quit, help} {
		if b != nil {
			keep += size(b)
		}
	}
	for i := range bs {
		b := &bs[i]
		if b == help || b == quit || b.short == "" || b.disabled != "" {
			continue
		}
		if r.used+size(b)+keep > w {
			break
		}
		show(b)
	}
	for _, b := range []*binding{quit, help} {
		if b != nil && r.used+size(b) <= w+2 {
			show(b)
		}
	}
	return exactly(r.fill(w), w)
}

// keyLabel is a key's label as this terminal can show it, in as many cells.
func (s *styles) keyLabel(label string) string {
	if s.ascii && label == arrows {
		return "</>"
	}
	return label
}

// scroller is a window of lines over more of them.
type scroller struct {
	lines  []string
	top    int
	height int
}

func (s *scroller) clamp() { s.top = max(0, min(s.top, len(s.lines)-s.height)) }

func (s *scroller) move(n int) { s.top += n; s.clamp() }

func (s *scroller) atEnd() bool { return s.top >= len(s.lines)-s.height }

func (s *scroller) visible() []string {
	s.clamp()
	return s.lines[s.top:min(len(s.lines), s.top+max(s.height, 0))]
}

// bindings of anything that scrolls.
func (s *scroller) keys() []binding {
	do := func(n func() int) func() tea.Cmd { return func() tea.Cmd { s.move(n()); return nil } }
	return []binding{
		{keys: []string{"down", "j"}, label: "j/k", short: "scroll", help: "one line down or up", run: do(func() int { return 1 })},
		{keys: []string{"up", "k"}, run: do(func() int { return -1 })},
		{keys: []string{"pgdown", "space", "ctrl+f", "ctrl+d"}, label: "space", help: "one page down", run: do(func() int { return max(s.height-1, 1) })},
		{keys: []string{"pgup", "ctrl+b", "ctrl+u"}, label: "pgup", help: "one page up", run: do(func() int { return -max(s.height-1, 1) })},
		{keys: []string{"home", "g"}, label: "g", help: "to the beginning", run: do(func() int { return -len(s.lines) })},
		{keys: []string{"end", "G"}, label: "G", help: "to the end", run: do(func() int { return len(s.lines) })},
	}
}
