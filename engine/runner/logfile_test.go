package runner

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"gputop/engine"
	"gputop/engine/agentrpc"
)

// numbered are log entries of the numbers from..to-1, one a line.
func numbered(from, to int) string {
	var b strings.Builder
	for i := from; i < to; i++ {
		b.WriteString(entry("stdout", "F", fmt.Sprintf("line %d", i)))
	}
	return b.String()
}

func appendTo(t *testing.T, path, text string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString(text); err != nil {
		t.Fatal(err)
	}
}

// readOn reads to the end and says what came and how often something was dropped.
func readOn(t *testing.T, path string, at *piece) (text string, dropped int) {
	t.Helper()
	var b strings.Builder
	for {
		c, err := readChunk(path, at.next, at.file, minChunk, decodeLog)
		if err != nil {
			t.Fatal(err)
		}
		b.Write(c.data)
		if c.dropped {
			dropped++
		}
		done := c.next == at.next && c.file == at.file
		*at = c
		if done {
			return b.String(), dropped
		}
	}
}

func plain(from, to int) string {
	var b strings.Builder
	for i := from; i < to; i++ {
		fmt.Fprintf(&b, "line %d\n", i)
	}
	return b.String()
}

// A log keeps its newest lines, in whole lines; who has read so far reads on, and who was behind is told once.
func TestTrimKeepsTheNewest(t *testing.T) {
	path := filepath.Join(t.TempDir(), "7.1.log")
	appendTo(t, path, numbered(0, 10000))
	var reader, late piece
	if text, dropped := readOn(t, path, &reader); text != plain(0, 10000) || dropped != 0 {
		t.Fatalf("read %d bytes, dropped %d", len(text), dropped)
	}
	const limit = 200 << 10
	hole, err := trimLog(path, limit, 0, allCopied)
	if err != nil {
		t.Fatal(err)
	}
	fi, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if left := fi.Size() - hole; left < limit || left > limit+holeBlock {
		t.Errorf("%d bytes are left of %d", left, fi.Size())
	}
	if used := fi.Sys().(*syscall.Stat_t).Blocks * 512; used > limit+2*holeBlock {
		t.Errorf("it takes %d bytes of the disk", used)
	}
	appendTo(t, path, numbered(10000, 10010))
	if text, dropped := readOn(t, path, &reader); text != plain(10000, 10010) || dropped != 0 {
		t.Errorf("the reader who was there: dropped %d, %.60q", dropped, text)
	}
	text, dropped := readOn(t, path, &late)
	if !strings.HasSuffix(plain(0, 10010), "\n"+text) || dropped != 1 || len(text) < 40000 {
		t.Errorf("the reader who comes now: dropped %d, %d bytes, %.60q", dropped, len(text), text)
	}
	for n, want := range map[int]string{3: plain(10007, 10010), 1 << 20: text} {
		off, err := tailOffset(path, n)
		if err != nil {
			t.Fatal(err)
		}
		c, err := readChunk(path, off, 0, 64<<20, decodeLog)
		if err != nil || string(c.data) != want || c.dropped {
			t.Errorf("tail %d: %d bytes, want %d, dropped %t, %v", n, len(c.data), len(want), c.dropped, err)
		}
	}
}

// TestRotated: Podman itself may begin a log anew, also under a name and with a size that fit the old offset.
func TestRotated(t *testing.T) {
	path := filepath.Join(t.TempDir(), "7.1.log")
	var at piece
	for round := range 4 {
		appendTo(t, path+".tmp", numbered(1000*round, 1000*(round+1)))
		if err := os.Rename(path+".tmp", path); err != nil {
			t.Fatal(err)
		}
		text, dropped := readOn(t, path, &at)
		if text != plain(1000*round, 1000*(round+1)) || dropped != min(round, 1) {
			t.Errorf("round %d: dropped %d, %.60q", round, dropped, text)
		}
	}
}

// TestCopyOfATrimmedLog: the copy goes on behind what was dropped, says so once, and ends.
func TestCopyOfATrimmedLog(t *testing.T) {
	dir := t.TempDir()
	log, out := filepath.Join(dir, "7.1.log"), filepath.Join(dir, "out")
	o := outputCopy{Container: "c", Log: log, Output: out, Started: true, Limit: engine.MiB}
	steps := func() {
		t.Helper()
		for range 100 {
			more, err := o.step(filepath.Join(dir, "state"))
			if err != nil {
				t.Fatal(err)
			}
			if !more {
				return
			}
		}
		t.Fatal("the copy never ends")
	}
	appendTo(t, log, numbered(0, 100))
	steps()
	appendTo(t, log, numbered(100, 10000))
	if _, err := trimLog(log, 100<<10, 0, allCopied); err != nil {
		t.Fatal(err)
	}
	steps()
	b, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	first, rest, ok := strings.Cut(string(b), agentrpc.DroppedLine(engine.MiB))
	if !ok || first != plain(0, 100) || !strings.HasSuffix(plain(0, 10000), "\n"+rest) || len(rest) < 10000 {
		t.Errorf("first %d bytes, notice %t, rest %d bytes", len(first), ok, len(rest))
	}
}

func TestLimitLog(t *testing.T) {
	dir := t.TempDir()
	if !makesHoles(dir) {
		t.Fatal("this file system gives nothing back: the test needs another TMPDIR")
	}
	log := filepath.Join(dir, "7.1.log")
	size, err := limitLog(log, engine.MiB)
	if err != nil || size != noLogSize || readLimit(log) != 1<<20 {
		t.Errorf("size %d, kept limit %d, %v", size, readLimit(log), err)
	}
	if size, err := limitLog(log, 0); err != nil || size != noLogSize {
		t.Errorf("no limit: %d, %v", size, err)
	}
	if size, err := limitLog("/proc/7.1.log", engine.MiB); err != nil || size != 1<<20 {
		t.Errorf("no holes: %d, %v", size, err)
	}
	left, err := filepath.Glob(filepath.Join(dir, ".hole-*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	a := &Agent{o: Options{StateDir: "/s"}}
	for name, want := range map[string]string{"gputop-0a1b-7-2": "/s/logs/7.2.log", "gputop-x-7-..": "/s/logs/7....log", "other": ""} {
		if got := a.logOf(name); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
}

// What is left of a line that was written in pieces is no line.
func TestTrimWithinPieces(t *testing.T) {
	for pad := range 60 {
		path := filepath.Join(t.TempDir(), "7.1.log")
		var b strings.Builder
		b.WriteString(entry("stdout", "F", strings.Repeat("x", pad)))
		for i := range 1500 {
			b.WriteString(entry("stdout", "P", "li") + entry("stdout", "P", "ne ") + entry("stdout", "F", fmt.Sprint(i)))
		}
		appendTo(t, path, b.String())
		if _, err := trimLog(path, 10<<10, 0, allCopied); err != nil {
			t.Fatal(err)
		}
		var at piece
		if text, dropped := readOn(t, path, &at); !strings.HasSuffix(plain(0, 1500), "\n"+text) || !strings.HasPrefix(text, "line ") || dropped != 1 {
			t.Fatalf("pad %d: dropped %d, %.60q", pad, dropped, text)
		}
	}
	path := filepath.Join(t.TempDir(), "7.1.log")
	appendTo(t, path, strings.Repeat(entry("stdout", "P", "|/-"), 20000))
	if _, err := trimLog(path, 600<<10, 0, allCopied); err != nil {
		t.Fatal(err)
	}
	var at piece
	if text, dropped := readOn(t, path, &at); len(text) < 30000 || !strings.HasPrefix(text, "|/-") || dropped != 1 {
		t.Errorf("one endless line: dropped %d, %d bytes, %.20q", dropped, len(text), text)
	}
}

// Wherever the cut falls in an entry, what is left begins with a whole one.
func TestTrimWithinAnEntry(t *testing.T) {
	for pad := range 60 {
		path := filepath.Join(t.TempDir(), "7.1.log")
		appendTo(t, path, entry("stdout", "F", strings.Repeat("x", pad))+numbered(0, 3000))
		hole, err := trimLog(path, 10<<10, 0, allCopied)
		if err != nil {
			t.Fatal(err)
		}
		var at piece
		text, dropped := readOn(t, path, &at)
		if !strings.HasSuffix(plain(0, 3000), "\n"+text) || text == "" || dropped != 1 {
			t.Fatalf("pad %d: dropped %d, %.60q", pad, dropped, text)
		}
		// Who had read up to the entry behind the cut misses nothing.
		size := int64(len(entry("stdout", "F", strings.Repeat("x", pad))))
		for i := 0; ; i++ {
			if at = (piece{next: size}); size >= hole {
				rest, dropped := readOn(t, path, &at)
				if i < 1000 || rest != plain(i, 3000) || dropped != 0 {
					t.Fatalf("pad %d: from line %d: dropped %d, %.60q", pad, i, dropped, rest)
				}
				break
			}
			size += int64(len(numbered(i, i+1)))
		}
	}
}

// What a copy has not taken yet is not given back, unless the copy is far behind.
func TestTrimWaitsForACopy(t *testing.T) {
	path := filepath.Join(t.TempDir(), "1.1.log")
	if err := os.WriteFile(path, bytes.Repeat([]byte("x"), 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ copied, want int64 }{{0, 0}, {100 << 10, 64 << 10}, {300 << 10, 256 << 10}, {allCopied, 1<<20 - 128<<10}} {
		if hole, err := trimLog(path, 128<<10, 0, c.copied); err != nil || hole != c.want {
			t.Errorf("copied to %d: a hole to %d, want %d (%v)", c.copied, hole, c.want, err)
		}
	}
	if err := os.Truncate(path, copySlack+10<<20); err != nil {
		t.Fatal(err)
	}
	if hole, err := trimLog(path, 0, 0, 0); err != nil || hole != 10<<20 {
		t.Errorf("far behind: a hole to %d, %v", hole, err)
	}
}
