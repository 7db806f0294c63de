// Package termsafe makes text of unknown origin fit for a terminal: job names, commands, messages and output come from
// other people and may carry escape sequences. It only rewrites text; it must not decide what a caller may see.
package termsafe

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/charmbracelet/x/ansi"
)

// Line is s on one line with everything invisible made visible: a newline becomes \n, an escape \x1b, a direction
// override \u202e, a byte that is not UTF-8 \xff.
func Line(s string) string { return clean(s, false) }

// Text is like Line, but keeps newlines and tabs.
func Text(s string) string { return clean(s, true) }

// Truncate is Line(s), cut to width terminal cells; what is cut ends in "…".
func Truncate(s string, width int) string {
	s = Line(s)
	if width <= 0 {
		return ""
	}
	if len(s) <= width {
		return s // no rune is wider than its bytes
	}
	return ansi.Truncate(s, width, "…")
}

// Width is how many terminal cells s takes.
func Width(s string) int {
	if ascii(s) {
		return len(s)
	}
	return ansi.StringWidth(s)
}

// ascii says whether s holds printable ASCII only.
func ascii(s string) bool {
	for i := 0; i < len(s); i++ {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}

func clean(s string, lines bool) string {
	if ascii(s) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && n == 1:
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case lines && (r == '\n' || r == '\t'), unicode.IsPrint(r):
			b.WriteRune(r)
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\t':
			b.WriteString(`\t`)
		case r == '\r':
			b.WriteString(`\r`)
		case r < 0x100:
			fmt.Fprintf(&b, `\x%02x`, r)
		case r < 0x10000:
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			fmt.Fprintf(&b, `\U%08x`, r)
		}
		i += n
	}
	return b.String()
}
