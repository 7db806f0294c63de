package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"syscall"
)

// newLog writes to stderr. The journal keeps time and unit by itself, and reads the priority from the <N> in front of a
// line (sd-daemon(3)).
func newLog() *slog.Logger {
	if toJournal(os.Stderr) {
		return slog.New(newJournalHandler(os.Stderr))
	}
	return slog.New(slog.NewTextHandler(os.Stderr, nil))
}

// toJournal says whether f goes to the journal: JOURNAL_STREAM names the stream, and a redirected one is another.
func toJournal(f *os.File) bool {
	want := os.Getenv("JOURNAL_STREAM")
	var st syscall.Stat_t
	return want != "" && syscall.Fstat(int(f.Fd()), &st) == nil && want == fmt.Sprintf("%d:%d", st.Dev, st.Ino)
}

// The syslog priorities of our levels.
const (
	prioError = iota
	prioWarn
	prioInfo
	prioDebug
	priorities
)

var prefixes = [priorities]string{"<3>", "<4>", "<6>", "<7>"}

func priority(l slog.Level) int {
	switch {
	case l >= slog.LevelError:
		return prioError
	case l >= slog.LevelWarn:
		return prioWarn
	case l >= slog.LevelInfo:
		return prioInfo
	}
	return prioDebug
}

// journalHandler is a text handler per priority, each with its prefix.
type journalHandler struct{ by [priorities]slog.Handler }

func newJournalHandler(w io.Writer) *journalHandler {
	var h journalHandler
	for i, prefix := range prefixes {
		h.by[i] = slog.NewTextHandler(prefixed{w, prefix}, &slog.HandlerOptions{ReplaceAttr: withoutTimeAndLevel})
	}
	return &h
}

// withoutTimeAndLevel drops what the journal has already, and not a caller's attribute of the same name.
func withoutTimeAndLevel(groups []string, a slog.Attr) slog.Attr {
	_, isLevel := a.Value.Any().(slog.Level)
	if len(groups) == 0 && (a.Key == slog.TimeKey && a.Value.Kind() == slog.KindTime || a.Key == slog.LevelKey && isLevel) {
		return slog.Attr{}
	}
	return a
}

func (h *journalHandler) Enabled(ctx context.Context, l slog.Level) bool {
	return h.by[priority(l)].Enabled(ctx, l)
}

func (h *journalHandler) Handle(ctx context.Context, r slog.Record) error {
	return h.by[priority(r.Level)].Handle(ctx, r)
}

func (h *journalHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return h.each(func(old slog.Handler) slog.Handler { return old.WithAttrs(attrs) })
}

func (h *journalHandler) WithGroup(name string) slog.Handler {
	return h.each(func(old slog.Handler) slog.Handler { return old.WithGroup(name) })
}

func (h *journalHandler) each(f func(slog.Handler) slog.Handler) slog.Handler {
	var out journalHandler
	for i, old := range h.by {
		out.by[i] = f(old)
	}
	return &out
}

// prefixed puts a prefix before each record, in the same write: the journal takes a line apart from others by that.
type prefixed struct {
	w      io.Writer
	prefix string
}

func (p prefixed) Write(b []byte) (int, error) {
	if _, err := p.w.Write(append([]byte(p.prefix), b...)); err != nil {
		return 0, err
	}
	return len(b), nil
}
