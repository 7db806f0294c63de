package tui

import (
	"strings"

	tea "charm.land/bubbletea/v2"
)

const formLabel = 12

// inputWidth is the room for typing: hints stand to the right of short fields.
func (f *submitForm) inputWidth(i int) int {
	room := max(f.w-2-formLabel-5, 10)
	switch i {
	case fieldCommand:
		return room
	case fieldImage, fieldName:
		return max(min(room-26, 60), 10)
	}
	return min(room, 14)
}

// rowsOf are the lines of a field: itself, and its error below.
func (f *submitForm) rowsOf(i int) []string {
	s, w, fd, on := f.sty, f.w-2, &f.fields[i], i == f.focus
	r := row{s: s}
	r.gap(1)
	if on {
		r.put(s.accent, s.glyph.marker, 1)
		r.cell(s.fieldOn, " "+fd.label, formLabel)
	} else {
		r.gap(1)
		r.cell(s.fieldOff, " "+fd.label, formLabel)
	}
	r.gap(1)
	hint := fd.hint
	switch {
	case len(fd.words) > 0:
		f.choice(&r, fd, on)
		r.gap(2)
		for _, p := range f.box.info.Profiles {
			if i == fieldProfile && p.Name == fd.value() {
				hint = p.Description
			}
		}
	case fd.input.Value() == "": // the hint stands where the text will be
	case i == fieldCommand:
		r.cell(s.text, f.typed(i), f.inputWidth(i))
		hint = ""
	default:
		r.cell(s.text, f.typed(i), f.inputWidth(i))
		r.gap(2)
	}
	r.cell(s.dim, s.clean(hint), w-r.used-1)
	lines := []string{exactly(r.fill(w), w)}
	if fd.err != "" {
		for _, l := range wrap("! "+fd.err, w-formLabel-5) {
			lines = append(lines, s.bad.paint(s.fit(spaces(formLabel+3)+l, w)))
		}
	}
	return lines
}

// typed is the visible part of a text field, without the field's own styling.
func (f *submitForm) typed(i int) string {
	in := f.fields[i].input
	return f.sty.clean(strings.TrimRight(strip(in.View()), " "))
}

func (f *submitForm) choice(r *row, fd *formField, on bool) {
	s := f.sty
	for i, w := range fd.words {
		w = s.clean(w)
		if i == fd.pick {
			w = "[" + w + "]"
			if on {
				r.put(s.accent, w, width(w))
			} else {
				r.put(s.text, w, width(w))
			}
		} else {
			r.put(s.dim, " "+w+" ", width(w)+2)
		}
	}
}

func (f *submitForm) View() []string {
	s, w := f.sty, f.w-2
	lines := []string{spaces(w)}
	for i := range f.fields {
		lines = append(lines, f.rowsOf(i)...)
		if i == fieldCommand {
			lines = append(lines, spaces(w))
		}
	}
	if f.err != "" {
		lines = append(lines, spaces(w))
		for _, l := range wrap("! "+f.err, w-4) {
			lines = append(lines, s.bad.paint(s.fit("  "+l, w)))
		}
	}
	where := ""
	if f.o.Dir != "" {
		where = "runs in " + s.clean(f.o.Dir)
	}
	return s.panel("Submit a job", where, lines, f.w, min(len(lines)+3, f.h), true)
}

// cursor is where the next letter goes, on the form's own lines.
func (f *submitForm) cursor() *tea.Cursor {
	fd := &f.fields[f.focus]
	c := fd.input.Cursor()
	if c == nil || len(fd.words) > 0 {
		return nil
	}
	c.X += 1 + 2 + formLabel + 1
	c.Y = 2
	for i := range f.focus {
		c.Y += len(f.rowsOf(i))
	}
	if f.focus > fieldCommand {
		c.Y++
	}
	return c
}
