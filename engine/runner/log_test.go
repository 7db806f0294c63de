package runner

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"gputop/engine"
	"gputop/engine/agentrpc"
)

const stamp = "2026-01-02T03:04:05.678901234+00:00"

func entry(stream, tag, text string) string {
	return stamp + " " + stream + " " + tag + " " + text + "\n"
}

func TestDecodeLog(t *testing.T) {
	for _, tc := range []struct{ name, raw, want string }{
		{"lines of both streams", entry("stdout", "F", "a") + entry("stderr", "F", "b"), "a\nb\n"},
		{"a piece without newline", entry("stdout", "P", "abc"), "abc"},
		{"pieces of one line", entry("stdout", "P", "abc") + entry("stdout", "F", "def"), "abcdef\n"},
		{"empty line", entry("stdout", "F", ""), "\n"},
		{"spaces kept", entry("stdout", "F", "  a  b "), "  a  b \n"},
		{"no final space", stamp + " stdout F\n", "\n"},
		{"unfinished entry left", entry("stdout", "F", "a") + stamp + " stdout F b", "a\n"},
		{"torn entry skipped", "garbage\n" + entry("stdout", "F", "a"), "a\n"},
		{"nothing", "", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got, _ := decodeLog([]byte(tc.raw)); string(got) != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

// Whatever a program writes, reading in chunks of any size gives it back, and each tail is its last lines.
func TestReadBack(t *testing.T) {
	dir := t.TempDir()
	rapid.Check(t, func(t *rapid.T) {
		text := strings.Join(rapid.SliceOf(rapid.OneOf(rapid.StringMatching(`[a-z ]{0,3}`), rapid.Just(strings.Repeat("long", 20000)))).Draw(t, "lines"), "\n")
		path := filepath.Join(dir, "log")
		if err := os.WriteFile(path, []byte(encode(text, rapid.IntRange(1, 8000).Draw(t, "piece"))), 0o600); err != nil {
			t.Fatal(err)
		}
		limit := rapid.IntRange(minChunk, maxChunk).Draw(t, "limit")
		var got []byte
		for at := (piece{}); ; {
			c, err := readChunk(path, at.next, at.file, limit, decodeLog)
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, c.data...)
			if c.next == at.next {
				break
			}
			at = c
		}
		if string(got) != text {
			t.Fatalf("read back %d bytes, wrote %d", len(got), len(text))
		}
		n := rapid.IntRange(1, 5).Draw(t, "tail")
		off, err := tailOffset(path, n)
		if err != nil {
			t.Fatal(err)
		}
		tail, err := readChunk(path, off, 0, 64<<20, decodeLog)
		if err != nil || string(tail.data) != lastLines(text, n) {
			t.Fatalf("tail %d: got %.40q, want %.40q (%v)", n, tail.data, lastLines(text, n), err)
		}
	})
}

// encode writes text as conmon does: pieces of at most size bytes.
func encode(text string, size int) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		body, full := strings.CutSuffix(line, "\n")
		for len(body) > size {
			b.WriteString(entry("stdout", "P", body[:size]))
			body = body[size:]
		}
		if full {
			b.WriteString(entry("stdout", "F", body))
		} else {
			b.WriteString(entry("stdout", "P", body))
		}
	}
	return b.String()
}

func lastLines(text string, n int) string {
	lines := strings.SplitAfter(text, "\n")
	if lines[len(lines)-1] == "" {
		lines = lines[:len(lines)-1]
	}
	return strings.Join(lines[max(len(lines)-n, 0):], "")
}

func TestOutputCopyGoesOn(t *testing.T) {
	dir := t.TempDir()
	o := outputCopy{Log: filepath.Join(dir, "log"), Output: filepath.Join(dir, "out"), Started: true}
	state := filepath.Join(dir, "state.json")
	write := func(path, text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	expect := func(want string) {
		t.Helper()
		if b, err := os.ReadFile(o.Output); err != nil || string(b) != want {
			t.Fatalf("output %q, want %q (%v)", b, want, err)
		}
	}
	write(o.Log, encode("one\n", 100))
	if _, err := o.step(state); err != nil {
		t.Fatal(err)
	}
	expect("one\n")
	before := o
	write(o.Log, encode("one\ntwo\n", 100))
	if _, err := o.step(state); err != nil {
		t.Fatal(err)
	}
	expect("one\ntwo\n")

	// Killed after the write and before the state was noted: nothing twice.
	o, o.resumed = before, true
	o.resumed = true
	if _, err := o.step(state); err != nil {
		t.Fatal(err)
	}
	expect("one\ntwo\n")

	// What somebody else appended meanwhile stays.
	o = before
	o.resumed = true
	write(o.Output, "one\nfrom elsewhere\n")
	if _, err := o.step(state); err != nil {
		t.Fatal(err)
	}
	expect("one\nfrom elsewhere\ntwo\n")
}

func TestForget(t *testing.T) {
	a, cancel := testAgent(t, "/nonexistent", 0)
	defer cancel()
	for _, f := range []string{"logs/4.1.log", "logs/4.2.log", "logs/42.1.log", "output/4.1.json", "checkpoints/4/x", "checkpoints/42/x"} {
		p := filepath.Join(a.o.StateDir, f)
		if err := os.MkdirAll(filepath.Dir(p), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if k, err := a.kept(); err != nil || fmt.Sprint(k.Jobs) != "[4 42]" {
		t.Errorf("kept %v, %v", k.Jobs, err)
	}
	if err := a.drop(t.Context(), 4); err != nil {
		t.Fatal(err)
	}
	var left []string
	for _, d := range []string{"logs", "output", "checkpoints"} {
		m, _ := filepath.Glob(filepath.Join(a.o.StateDir, d, "*"))
		for _, p := range m {
			left = append(left, filepath.Join(d, filepath.Base(p)))
		}
	}
	if got := fmt.Sprint(left); got != "[logs/42.1.log checkpoints/42]" {
		t.Errorf("left %s", got)
	}
}

func TestDecodeJSON(t *testing.T) {
	raw := entry("stdout", "F", "a \"b\" \xff") + entry("stderr", "P", "half ") + "torn\n" + entry("stderr", "F", "") + "2026-01-02T03:04:05Z stdout F unfin"
	data, used := decodeJSON([]byte(raw), engine.AttemptID{Job: 7, Number: 2})
	if used != len(raw)-len("2026-01-02T03:04:05Z stdout F unfin") {
		t.Errorf("used %d of %d", used, len(raw))
	}
	head := `{"time":"` + stamp + `","job":7,"attempt":2,"stream":`
	want := head + `"stdout","text":"a \"b\" \ufffd"}` + "\n" + head + `"stderr","text":"half ","partial":true}` + "\n" + head + `"stderr","text":""}` + "\n"
	if string(data) != want {
		t.Errorf("got\n%s\nwant\n%s", data, want)
	}
	// The most that a call may read makes a frame that may be sent.
	full := strings.Repeat(entry("stdout", "F", strings.Repeat("\x01", 8000)), maxChunk/4/8060) + strings.Repeat(entry("stdout", "F", ""), 10)
	if data, _ := decodeJSON([]byte(full), engine.AttemptID{Job: 1 << 40, Number: 1}); len(data) >= agentrpc.MaxFrame {
		t.Errorf("%d bytes of %d", len(data), len(full))
	}
}
