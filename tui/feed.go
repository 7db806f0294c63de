package tui

import (
	"context"
	"strings"
	"sync"
)

// Bounds of a followed output: what may wait to be drawn, and what is kept.
const (
	feedBytes  = 1 << 20
	keepLines  = 20000
	lineCells  = 4096 // a line longer than this is broken
	firstLines = 2000 // how much of the past is asked for
)

// feed carries a job's output from the call that reads it to the screen. A writer that is too fast waits.
type feed struct {
	ctx    context.Context
	cancel context.CancelFunc

	mu    sync.Mutex
	buf   []byte
	more  chan struct{} // something to take, or the end
	taken chan struct{} // room again
}

func newFeed(ctx context.Context) *feed {
	ctx, cancel := context.WithCancel(ctx)
	return &feed{ctx: ctx, cancel: cancel, more: make(chan struct{}, 1), taken: make(chan struct{}, 1)}
}

// nudge wakes whoever waits on c, once.
func nudge(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Write blocks while the screen is behind; it fails once the screen is closed.
func (f *feed) Write(b []byte) (int, error) {
	for {
		f.mu.Lock()
		if len(f.buf) < feedBytes {
			f.buf = append(f.buf, b...)
			f.mu.Unlock()
			nudge(f.more)
			return len(b), nil
		}
		f.mu.Unlock()
		select {
		case <-f.taken:
		case <-f.ctx.Done():
			return 0, f.ctx.Err()
		}
	}
}

// take waits for output and takes all there is; false when the screen was closed.
func (f *feed) take() ([]byte, bool) {
	select {
	case <-f.more:
	case <-f.ctx.Done():
		return nil, false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	b := f.buf
	f.buf = nil
	nudge(f.taken)
	return b, true
}

// logText turns a stream of bytes into lines: progress bars that go back to the line's start overwrite it.
type logText struct {
	s     *styles
	lines []string
	open  []byte // the line that has no end yet
	cut   int    // lines thrown away at the top
}

func (l *logText) write(b []byte) {
	l.open = append(l.open, b...)
	for {
		i := indexNewline(l.open)
		if i < 0 {
			break
		}
		l.lines = append(l.lines, l.line(l.open[:i]))
		l.open = l.open[min(i+1, len(l.open)):]
	}
	if extra := len(l.lines) - keepLines; extra > keepLines/4 {
		l.lines = append([]string(nil), l.lines[extra:]...)
		l.cut += extra
	}
}

// indexNewline is where the first line ends; an endless line is broken.
func indexNewline(b []byte) int {
	for i, c := range b {
		if c == '\n' {
			return i
		}
		if i > lineCells && c < 0x80 {
			return i
		}
	}
	return -1
}

func (l *logText) line(b []byte) string {
	t := strings.TrimRight(string(b), "\r")
	if i := strings.LastIndexByte(t, '\r'); i >= 0 {
		t = t[i+1:]
	}
	return l.s.clean(strings.ReplaceAll(strings.ToValidUTF8(t, "?"), "\t", "    "))
}

// all are the lines, with the open one last.
func (l *logText) all() []string {
	if len(l.open) == 0 {
		return l.lines
	}
	return append(l.lines[:len(l.lines):len(l.lines)], l.line(l.open))
}
