package tui

import (
	tea "charm.land/bubbletea/v2"
)

// help lists the keys of the screen below it, with the reason where one does nothing now.
type help struct {
	*env
	w       int
	of      []binding
	content scroller
}

func newHelp(e *env, of []binding) *help { return &help{env: e, of: of} }

// SetSize writes the lines anew.
func (h *help) SetSize(w, height int) {
	h.w = w
	h.content.height = height - 2
	s := h.sty
	lines := []string{spaces(w - 2)}
	add := func(build func(r *row)) {
		r := row{s: s}
		r.gap(2)
		build(&r)
		lines = append(lines, exactly(r.fill(w-2), w-2))
	}
	for _, b := range h.of {
		if b.label == "" || b.help == "" {
			continue
		}
		add(func(r *row) {
			on, shade := s.key, s.text
			text := b.help
			if b.disabled != "" {
				on, shade = s.dim, s.dim
			}
			r.cell(on, s.keyLabel(b.label), 11)
			r.cell(shade, text, w-2-13)
		})
		if b.disabled != "" {
			add(func(r *row) {
				r.gap(11)
				r.cell(s.warn, "not now: "+b.disabled, w-2-13)
			})
		}
	}
	lines = append(lines, spaces(w-2))
	legend := func(i ink, glyph, text string) {
		add(func(r *row) {
			r.cell(i, glyph+glyph+glyph, 11)
			r.cell(s.text, text, w-2-13)
		})
	}
	legend(s.used, s.glyph.used, "GPU memory in use by jobs of the queue")
	legend(s.foreign, s.glyph.foreign, "GPU memory in use by processes outside the queue")
	legend(s.promised, s.glyph.promised, "GPU memory promised to jobs, not in use yet")
	legend(s.faint, s.glyph.free, "free GPU memory")
	legend(s.dim, s.glyph.unknown, "not known: the card, its driver or its mode does not say")
	lines = append(lines, spaces(w-2))
	add(func(r *row) { r.cell(s.dim, "Quitting leaves all jobs running. gputop "+h.o.Version, w-4) })
	h.content.lines = lines
}

func (h *help) Update(tea.Msg) tea.Cmd { return nil }

func (h *help) Keys() []binding {
	return append(h.content.keys(), binding{keys: []string{"?", "enter"}, label: "?", short: "close", help: "close the help",
		run: func() tea.Cmd { h.back(); return nil }})
}

func (h *help) View() []string {
	return h.sty.panel("Keys", "", h.content.visible(), h.w, h.content.height+2, true)
}
