package termsafe

import "io"

// maxSequence is the longest escape sequence that is passed on, in bytes.
const maxSequence = 64

// Writer passes a program's output to a terminal and keeps what draws a line: colours, carriage returns, moves inside
// the last lines (progress bars). It drops everything that could change the terminal itself: titles, clipboard, modes,
// device reports. Sequences may be split over writes.
type Writer struct {
	w     io.Writer
	state state
	seq   []byte
}

type state int

const (
	ground  state = iota
	escape        // after ESC
	charset       // after ESC ( and its like: one byte follows
	csi           // inside ESC [
	str           // inside OSC, DCS, APC, PM, SOS, until BEL or ST
	strEsc        // ESC inside a string
	c1            // after 0xc2, which opens a C1 control in UTF-8
)

// NewWriter returns a Writer to w.
func NewWriter(w io.Writer) *Writer { return &Writer{w: w} }

// Write filters p; it reports all of p as written unless the underlying writer fails.
func (f *Writer) Write(p []byte) (int, error) {
	out := make([]byte, 0, len(p))
	for _, b := range p {
		out = f.step(out, b)
	}
	if len(out) > 0 {
		if _, err := f.w.Write(out); err != nil {
			return 0, err
		}
	}
	return len(p), nil
}

func (f *Writer) step(out []byte, b byte) []byte {
	switch f.state {
	case escape:
		return f.afterEscape(out, b)
	case charset:
		f.state = ground
	case csi:
		return f.inCSI(out, b)
	case str:
		switch b {
		case 0x07:
			f.state = ground
		case 0x1b:
			f.state = strEsc
		}
	case strEsc:
		f.state = str
		if b == '\\' {
			f.state = ground
		}
	case c1:
		f.state = ground
		if b < 0xa0 { // U+0080 to U+009F: some terminals obey them like ESC
			if b == 0x90 || b == 0x98 || b >= 0x9d {
				f.state = str
			}
			return out
		}
		return append(out, 0xc2, b)
	default:
		return f.plain(out, b)
	}
	return out
}

func (f *Writer) plain(out []byte, b byte) []byte {
	switch {
	case b == 0x1b:
		f.state, f.seq = escape, f.seq[:0]
	case b == 0xc2:
		f.state = c1
	case b >= ' ' && b != 0x7f, b == '\n', b == '\r', b == '\t', b == '\b':
		return append(out, b)
	}
	return out
}

func (f *Writer) afterEscape(out []byte, b byte) []byte {
	switch b {
	case '[':
		f.state = csi
	case ']', 'P', '_', '^', 'X':
		f.state = str
	case '(', ')', '*', '+', '#', '%', ' ':
		f.state = charset
	case 0x1b:
	default:
		f.state = ground
	}
	return out
}

// inCSI keeps colours (m), erasing in a line (K) and moves to other lines and columns (A to G); the rest goes.
func (f *Writer) inCSI(out []byte, b byte) []byte {
	switch {
	case b >= 0x40 && b <= 0x7e:
		f.state = ground
		keep := b == 'm' || b == 'K' || b >= 'A' && b <= 'G'
		if !keep || len(f.seq) > maxSequence || !numeric(f.seq) {
			return out
		}
		return append(append(append(out, 0x1b, '['), f.seq...), b)
	case b == 0x1b:
		f.state, f.seq = escape, f.seq[:0]
	case b < ' ' || b > '~':
		f.state = ground // malformed
	case len(f.seq) <= maxSequence:
		f.seq = append(f.seq, b)
	}
	return out
}

func numeric(seq []byte) bool {
	for _, b := range seq {
		if (b < '0' || b > '9') && b != ';' && b != ':' {
			return false
		}
	}
	return true
}
