package termsafe

import (
	"bytes"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestLine(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{"train.py", "train.py"},
		{"a\nb\tc\r", `a\nb\tc\r`},
		{"\x1b[31mred\x1b]0;title\x07", `\x1b[31mred\x1b]0;title\x07`},
		{"grüße 世界", "grüße 世界"},
		{"left\u202eright", `left\u202eright`},
		{"bad\xff", `bad\xff`},
		{"c1 \u009b31m", `c1 \x9b31m`},
		{"\u200bhidden", `\u200bhidden`},
	} {
		if got := Line(c.in); got != c.want {
			t.Errorf("Line(%q) = %q, want %q", c.in, got, c.want)
		}
	}
	if got, want := Text("a\n\tb\x1b"), "a\n\tb\\x1b"; got != want {
		t.Errorf("Text = %q, want %q", got, want)
	}
}

func TestTruncate(t *testing.T) {
	for _, c := range []struct {
		in    string
		width int
		want  string
	}{
		{"train", 5, "train"}, {"training", 5, "trai…"}, {"世界世界", 5, "世界…"}, {"ab", 4, "ab"}, {"世", 3, "世"}, {"abc", 0, ""},
		{"a\nb", 4, `a\nb`},
	} {
		if got := Truncate(c.in, c.width); got != c.want {
			t.Errorf("Truncate(%q, %d) = %q, want %q", c.in, c.width, got, c.want)
		}
	}
}

// What is shown on one line never takes more cells than asked for, and holds no control character.
func TestTruncateIsNeverLonger(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, w := rapid.String().Draw(t, "s"), rapid.IntRange(0, 40).Draw(t, "w")
		got := Truncate(s, w)
		if Width(got) > w {
			t.Fatalf("Truncate(%q, %d) = %q takes %d cells", s, w, got, Width(got))
		}
		if strings.ContainsFunc(got, func(r rune) bool { return r < ' ' || r == 0x7f }) {
			t.Fatalf("Truncate(%q, %d) = %q holds a control character", s, w, got)
		}
	})
}

func TestWriter(t *testing.T) {
	for _, c := range []struct{ name, in, want string }{
		{"plain", "epoch 1\r\nepoch 2\n", "epoch 1\r\nepoch 2\n"},
		{"colour", "\x1b[1;31mred\x1b[0m", "\x1b[1;31mred\x1b[0m"},
		{"progress", "\x1b[A\r 10%\x1b[K", "\x1b[A\r 10%\x1b[K"},
		{"title", "a\x1b]0;evil\x07b", "ab"},
		{"clipboard", "a\x1b]52;c;ZXZpbA==\x1b\\b", "ab"},
		{"alternate screen", "\x1b[?1049hx", "x"},
		{"report", "\x1b[6n\x1b[cx", "x"},
		{"dcs", "\x1bPq#0\x1b\\x", "x"},
		{"reset", "\x1bcx", "x"},
		{"charset", "\x1b(0x", "x"},
		{"c1", "\u009b6n é \u00a0", "6n é \u00a0"},
		{"bell", "\a\x00x", "x"},
		{"utf-8", "grüße 世界", "grüße 世界"},
	} {
		t.Run(c.name, func(t *testing.T) {
			for size := 1; size <= len(c.in); size++ {
				var b bytes.Buffer
				w := NewWriter(&b)
				for i := 0; i < len(c.in); i += size {
					if _, err := w.Write([]byte(c.in[i:min(i+size, len(c.in))])); err != nil {
						t.Fatal(err)
					}
				}
				if b.String() != c.want {
					t.Fatalf("in pieces of %d: got %q, want %q", size, b.String(), c.want)
				}
			}
		})
	}
}
