package tui

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/charmbracelet/x/ansi"

	"gputop/engine"
)

// printableASCII says whether every byte is a plain one-cell character, which is nearly always so.
func printableASCII(s string) bool {
	for i := 0; i < len(s); i++ {
		if s[i] < 0x20 || s[i] > 0x7e {
			return false
		}
	}
	return true
}

// width is the number of cells of s, escape sequences not counted.
func width(s string) int {
	if printableASCII(s) {
		return len(s)
	}
	return ansi.StringWidth(s)
}

// clean makes text of other people's safe to draw: no escape sequences, control or direction characters, and nothing
// that terminals disagree about in width. In ASCII mode other characters become a question mark.
func (s *styles) clean(text string) string {
	if printableASCII(text) {
		return text
	}
	text = strings.Map(func(r rune) rune {
		switch {
		case r == '\t' || r == '\n' || r == '\r':
			return ' '
		case r == unicode.ReplacementChar:
			return '?'
		case unicode.IsControl(r), unicode.In(r, unicode.Cf, unicode.Co, unicode.Cs, unicode.Zl, unicode.Zp):
			return -1
		case unicode.In(r, unicode.Mn, unicode.Me), r >= 0x1f3fb && r <= 0x1f3ff:
			return -1 // joiners, variation selectors, skin tones: one terminal draws two cells, another one
		case s.ascii && r > 0x7e:
			return '?'
		}
		return r
	}, ansi.Strip(text))
	if ansi.StringWidth(text) == ansi.StringWidthWc(text) {
		return text
	}
	return strings.Map(func(r rune) rune {
		if one := string(r); ansi.StringWidth(one) != ansi.StringWidthWc(one) || ansi.StringWidth(one) == 0 {
			return '?'
		}
		return r
	}, text)
}

// fit cuts or pads text without escape sequences to exactly w cells.
func (s *styles) fit(text string, w int) string {
	if w <= 0 {
		return ""
	}
	n := width(text)
	if n > w {
		text = ansi.Truncate(text, w, s.glyph.ellipsis)
		n = width(text)
	}
	return text + spaces(w-n)
}

// fitRight is fit with the text at the right end.
func (s *styles) fitRight(text string, w int) string {
	if n := width(text); n < w {
		return spaces(w-n) + text
	}
	return s.fit(text, w)
}

// exactly cuts or pads painted text to w cells.
func exactly(line string, w int) string {
	n := width(line)
	if n > w {
		line = ansi.Truncate(line, w, "")
		n = width(line)
	}
	return line + spaces(w-n)
}

const blank = "                                                                                                    "

func spaces(n int) string {
	if n <= 0 {
		return ""
	}
	if n <= len(blank) {
		return blank[:n]
	}
	return strings.Repeat(" ", n)
}

// clock is a length of time in at most six cells: "42s", "12m05s", "3h20m", "12d04h".
func clock(d time.Duration) string {
	d = max(d, 0)
	switch s := int64(d / time.Second); {
	case s < 60:
		return fmt.Sprintf("%ds", s)
	case s < 3600:
		return fmt.Sprintf("%dm%02ds", s/60, s%60)
	case s < 86400:
		return fmt.Sprintf("%dh%02dm", s/3600, s/60%60)
	default:
		return fmt.Sprintf("%dd%02dh", s/86400, s/3600%24)
	}
}

// limit is a time limit, shorter where it is round: "24h", "90m", "7d".
func limit(d time.Duration) string {
	switch {
	case d <= 0:
		return "none"
	case d%(24*time.Hour) == 0 && d >= 48*time.Hour:
		return fmt.Sprintf("%dd", d/(24*time.Hour))
	case d%time.Hour == 0:
		return fmt.Sprintf("%dh", d/time.Hour)
	case d%time.Minute == 0 && d < 100*time.Minute:
		return fmt.Sprintf("%dm", d/time.Minute)
	}
	return clock(d)
}

// gib is an amount of memory in GiB without its unit, in at most four cells.
func gib(b engine.Bytes) string {
	v := float64(b) / float64(engine.GiB)
	if v < 99.95 {
		return strconv.FormatFloat(v, 'f', 1, 64)
	}
	return strconv.FormatFloat(v, 'f', 0, 64)
}

// memoryPair is "used/total" in GiB; what is unknown is a dash.
func (s *styles) memoryPair(used, total *engine.Bytes) string {
	one := func(b *engine.Bytes) string {
		if b == nil {
			return s.glyph.unknown
		}
		return gib(*b)
	}
	if used == nil && total == nil {
		return s.glyph.unknown
	}
	return one(used) + "/" + one(total)
}

// shortModel leaves out what all cards' names share.
func shortModel(m string) string {
	for _, p := range []string{"NVIDIA ", "Tesla ", "GeForce "} {
		m = strings.TrimPrefix(m, p)
	}
	return m
}

// requestText is what a job asks for, in a few cells.
func requestText(r engine.Request) string {
	switch {
	case r.GPUFraction > 0:
		return strconv.FormatFloat(100*float64(r.GPUFraction), 'f', -1, 64) + "%"
	case r.GPUMemory > 0:
		return r.GPUMemory.String()
	case r.GPUs > 0:
		return engine.Count(r.GPUs, "GPU")
	}
	return "no GPU"
}

// firstLine is the text up to the first line break.
func firstLine(s string) string {
	s, _, _ = strings.Cut(s, "\n")
	return s
}
