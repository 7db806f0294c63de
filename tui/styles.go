package tui

import (
	"image/color"

	"charm.land/lipgloss/v2"
	"github.com/charmbracelet/x/ansi"
)

// palette names colours by what they mean. A nil colour is the terminal's own.
type palette struct {
	dim, faint             color.Color // secondary text; lines and empty parts of bars
	accent, title          color.Color
	good, warn, bad        color.Color
	used, promised, strain color.Color // parts of a memory bar; the SM bar
	selection              color.Color // background of the selected row
	badge                  color.Color
}

// makePalette is the one place with colours. The terminal's profile takes them down to 256, 16 or none.
func makePalette(dark bool) palette {
	pick := lipgloss.LightDark(dark)
	c := func(light, dark string) color.Color { return pick(lipgloss.Color(light), lipgloss.Color(dark)) }
	return palette{
		dim: c("#5b6270", "#a0a4ab"), faint: c("#b5b8bd", "#4a5163"),
		accent: c("#0b6e99", "#6cc7ff"), title: c("#3d7a00", "#9bd64a"),
		good: c("#2c7a2c", "#86d97b"), warn: c("#935f00", "#f0b95a"), bad: c("#bf1d2d", "#ff7b86"),
		used: c("#0c7f6c", "#4fd1b5"), promised: c("#6f51c8", "#9d8df1"), strain: c("#1e62b8", "#72adff"),
		selection: c("#dfe3e8", "#3a3f4b"), badge: c("#935f00", "#f0b95a"),
	}
}

// ink paints text: an escape sequence that sets colour and weight. The zero value leaves the text as it is.
type ink string

const inkOff = "\x1b[m"

func (i ink) paint(s string) string {
	if i == "" || s == "" {
		return s
	}
	return string(i) + s + inkOff
}

// styles is what screens draw with: inks by meaning, and the glyphs this terminal can show.
type styles struct {
	ascii bool

	text, strong, dim, faint      ink
	accent, title                 ink
	good, warn, bad               ink
	used, promised, foreign, sm   ink
	selected                      ink // background of the selected row, added to the other inks
	badge, key, fieldOn, fieldOff ink
	classes                       [5]ink // by engine.Class
	glyph                         glyphs
}

type glyphs struct {
	used, promised, foreign, free                                    string // parts of a memory bar
	smOn, smOff                                                      string
	marker, live, lost, stale                                        string
	unknown, ellipsis                                                string
	branch                                                           string // before a MIG slice
	degree                                                           string
	dot                                                              string // between words
	topLeft, topRight, bottomLeft, bottomRight, horizontal, vertical string
	levels                                                           []string // a bar one cell wide, from empty to full
}

var unicodeGlyphs = glyphs{
	used: "■", promised: "□", foreign: "▨", free: "·", smOn: "■", smOff: "·",
	marker: "▸", live: "●", lost: "○", stale: "◌", unknown: "–", ellipsis: "…", branch: "└", degree: "°", dot: "·",
	topLeft: "╭", topRight: "╮", bottomLeft: "╰", bottomRight: "╯", horizontal: "─", vertical: "│",
	levels: []string{" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"},
}

var asciiGlyphs = glyphs{
	used: "#", promised: "+", foreign: "!", free: ".", smOn: "=", smOff: ".",
	marker: ">", live: "*", lost: "o", stale: "?", unknown: "-", ellipsis: "~", branch: "`", degree: "", dot: "-",
	topLeft: "+", topRight: "+", bottomLeft: "+", bottomRight: "+", horizontal: "-", vertical: "|",
	levels: []string{" "},
}

func newStyles(dark, ascii bool) *styles {
	p := makePalette(dark)
	fg := func(c color.Color) ink { return ink(ansi.NewStyle().ForegroundColor(c).String()) }
	bold := func(c color.Color) ink { return ink(ansi.NewStyle().Bold().ForegroundColor(c).String()) }
	s := &styles{
		ascii:  ascii,
		strong: ink(ansi.NewStyle().Bold().String()),
		dim:    fg(p.dim), faint: fg(p.faint),
		accent: bold(p.accent), title: bold(p.title),
		good: fg(p.good), warn: fg(p.warn), bad: bold(p.bad),
		used: fg(p.used), promised: fg(p.promised), foreign: fg(p.warn), sm: fg(p.strain),
		selected: ink(ansi.NewStyle().BackgroundColor(p.selection).String()),
		badge:    ink(ansi.NewStyle().Bold().Reverse(true).ForegroundColor(p.badge).String()),
		key:      bold(p.accent),
		fieldOn:  ink(ansi.NewStyle().Bold().ForegroundColor(p.accent).String()),
		fieldOff: fg(p.dim),
		classes:  [5]ink{"", fg(p.dim), "", bold(p.warn), bold(p.bad)},
		glyph:    unicodeGlyphs,
	}
	if ascii {
		s.glyph = asciiGlyphs
	}
	return s
}
