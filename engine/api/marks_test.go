package api

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"

	"gputop/engine"
)

func TestParseMark(t *testing.T) {
	for s, want := range map[string]LogMark{"": {}, "1.0.0": {Attempt: 1}, "3.4096.18446744073709551615": {3, 4096, 1<<64 - 1}} {
		got, err := parseMark(s)
		if err != nil || got != want {
			t.Errorf("%q: %v, %v", s, got, err)
		}
		if s != "" && got.String() != s {
			t.Errorf("%q is written as %q", s, got)
		}
	}
	for _, s := range []string{"1", "1.2", "0.1.2", "1.-2.3", "1.2.3.4", "1.2.3 ", "01.2.3", "a.b.c", "1.2.-3"} {
		if m, err := parseMark(s); err == nil {
			t.Errorf("%q is taken as %v", s, m)
		}
	}
}

// What is torn is not written, and the mark stays behind the last whole piece.
func TestTornPiece(t *testing.T) {
	whole := "4 1.40.9\none\n4 1.80.9\ntwo\n"
	for n := range len(whole) + 1 {
		var out bytes.Buffer
		var at LogMark
		err := copyMarked(&out, strings.NewReader(whole[:n]), &at)
		var want string
		var mark LogMark
		if n >= 13 {
			want, mark = "one\n", LogMark{1, 40, 9}
		}
		if n == 26 {
			want, mark = "one\ntwo\n", LogMark{1, 80, 9}
		}
		atEnd := n == 0 || n == 13 || n == 26
		if out.String() != want || at != mark || atEnd != (err == nil) || err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%d bytes: %q, %v, %v", n, out.String(), at, err)
		}
	}
	if err := copyMarked(io.Discard, strings.NewReader("999999999 1.2.3\nx"), new(LogMark)); err == nil || errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("a huge piece: %v", err)
	}
}

// A stream that breaks off leaves the client where the next one begins.
func TestLogsGoOn(t *testing.T) {
	f := &fake{pieces: []string{"one\n", "two\n"}, marks: []LogMark{{1, 40, 9}, {2, 10, 7}}, lateEr: &Error{Code: CodeUnavailable, Message: "stopping"}}
	c := start(t, f, ServerOptions{})
	var out bytes.Buffer
	o := LogOptions{Follow: true, Tail: 5}
	var e *Error
	if err := c.LogsFrom(ctx, engine.JobID(5), &o, &out); !errors.As(err, &e) || e.Code != CodeUnavailable || out.String() != "one\ntwo\n" {
		t.Fatalf("%q, %v", out.String(), err)
	}
	f.lateEr = nil
	f.pieces, f.marks = []string{"three\n"}, []LogMark{{2, 20, 7}}
	if err := c.LogsFrom(ctx, engine.JobID(5), &o, &out); err != nil || out.String() != "one\ntwo\nthree\n" {
		t.Fatalf("%q, %v", out.String(), err)
	}
	if want := (LogMark{2, 10, 7}); f.logs.From != want || !f.logs.Follow || o.From != (LogMark{2, 20, 7}) {
		t.Errorf("asked for %+v, now at %v", f.logs, o.From)
	}
}
