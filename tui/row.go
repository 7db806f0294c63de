package tui

import "strings"

// row builds one painted line cell by cell. Under gives the whole line a background.
type row struct {
	s     *styles
	under ink
	b     strings.Builder
	used  int
}

func (r *row) put(i ink, text string, w int) {
	if w <= 0 {
		return
	}
	r.used += w
	if i == "" && r.under == "" {
		r.b.WriteString(text)
		return
	}
	r.b.WriteString(string(i))
	r.b.WriteString(string(r.under))
	r.b.WriteString(text)
	r.b.WriteString(inkOff)
}

// cell writes text, cut or padded to w cells, and right the same at the right end.
func (r *row) cell(i ink, text string, w int)  { r.put(i, r.s.fit(text, w), w) }
func (r *row) right(i ink, text string, w int) { r.put(i, r.s.fitRight(text, w), w) }

func (r *row) gap(n int) { r.put("", spaces(n), n) }

// fill pads the line to w cells and returns it.
func (r *row) fill(w int) string {
	r.gap(w - r.used)
	return r.b.String()
}

// part is a piece of a bar: how much of the whole, and how it is drawn.
type part struct {
	ink   ink
	glyph string
	share float64
}

// bar draws parts one after the other in w cells; what is left is free. A part above zero gets at least one cell
// while there is room, so that little is never shown as nothing.
func (r *row) bar(w int, free part, parts ...part) {
	left, sum, drawn := w, 0.0, 0
	for _, p := range parts {
		if p.share <= 0 || p.share != p.share {
			continue
		}
		sum += p.share
		n := min(max(int(sum*float64(w)+0.5)-drawn, 1), left)
		r.put(p.ink, strings.Repeat(p.glyph, n), n)
		left -= n
		drawn += n
	}
	r.put(free.ink, strings.Repeat(free.glyph, max(left, 0)), left)
}

// panel draws a frame of w x h cells around lines that are w-2 wide. The focused one is marked by more than colour.
func (s *styles) panel(title, note string, lines []string, w, h int, focused bool) []string {
	if w < 4 || h < 2 {
		return blankLines(w, h)
	}
	g, edge, name := s.glyph, s.faint, s.strong
	mark := " "
	if focused {
		edge, name, mark = s.accent, s.accent, g.marker
	}
	title = mark + s.fit(title, min(width(title), w-6)) + " "
	if n := width(note); n > 0 && n+width(title)+6 <= w {
		note = " " + note + " "
	} else {
		note = ""
	}
	run := w - 3 - width(title) - width(note)
	tail := min(1, max(run, 0))
	top := edge.paint(g.topLeft+g.horizontal) + name.paint(title) + edge.paint(strings.Repeat(g.horizontal, max(run-tail, 0))) +
		s.dim.paint(note) + edge.paint(strings.Repeat(g.horizontal, tail)+g.topRight)
	out := make([]string, 0, h)
	out = append(out, exactly(top, w))
	side := edge.paint(g.vertical)
	for i := range h - 2 {
		line := spaces(w - 2)
		if i < len(lines) {
			line = lines[i]
		}
		out = append(out, side+line+side)
	}
	return append(out, edge.paint(g.bottomLeft+strings.Repeat(g.horizontal, w-2)+g.bottomRight))
}

func blankLines(w, h int) []string {
	out := make([]string, max(h, 0))
	for i := range out {
		out[i] = spaces(w)
	}
	return out
}
