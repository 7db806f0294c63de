package runner

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"time"

	"gputop/engine/agentrpc"
)

const (
	// maxChunk is the most of a log that one call reads, in bytes of the file.
	maxChunk = 256 << 10
	// minChunk makes sure that a line of conmon's (8 KiB at most) fits.
	minChunk = 16 << 10
	// maxLogWait bounds a wait for more.
	maxLogWait = 30 * time.Second
	// logPoll is how often a log's size is looked at while somebody waits.
	logPoll = 100 * time.Millisecond
	// maxTailScan bounds how far back a tail is looked for, in bytes.
	maxTailScan = 64 << 20
)

// decodeLog turns lines of conmon's k8s-file format ("TIME stdout F TEXT", with P for a piece without its newline)
// into the bytes that the program wrote. used counts the bytes of whole lines; an unfinished last line is left.
func decodeLog(raw []byte) (data []byte, used int) {
	for {
		i := bytes.IndexByte(raw[used:], '\n')
		if i < 0 {
			return data, used
		}
		line := raw[used : used+i]
		used += i + 1
		f := bytes.SplitN(line, []byte(" "), 4)
		if len(f) < 3 {
			continue // torn by a crash
		}
		if len(f) == 4 {
			data = append(data, f[3]...)
		}
		if string(f[2]) != "P" {
			data = append(data, '\n')
		}
	}
}

// readChunk decodes at most limit bytes of the file from offset on. A log that was cut or replaced starts anew.
func readChunk(path string, offset int64, limit int) (data []byte, next int64, err error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, 0, nil
	}
	if err != nil {
		return nil, offset, err
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil {
		return nil, offset, err
	}
	if offset < 0 || offset > fi.Size() {
		offset = 0
	}
	buf := make([]byte, min(int64(limit), fi.Size()-offset))
	n, err := f.ReadAt(buf, offset)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, offset, err
	}
	data, used := decodeLog(buf[:n])
	if used == 0 && n == limit {
		used = n // a line longer than any that conmon writes: step over it
	}
	return data, offset + int64(used), nil
}

// tailOffset is where the last n lines begin.
func tailOffset(path string, n int) (int64, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil {
		return 0, err
	}
	const block = 64 << 10
	end := fi.Size()
	floor := max(end-maxTailScan, 0)
	best, seen, unfinished := end, 0, true
	var later []byte // the beginning of the block after, up to its first newline: the end of this block's last line
	for start := end; start > floor; {
		size := min(int64(block), start-floor)
		start -= size
		buf := make([]byte, size, size+int64(len(later)))
		if _, err := f.ReadAt(buf, start); err != nil && !errors.Is(err, io.EOF) {
			return 0, err
		}
		buf = append(buf, later...)
		first := 0
		if start > 0 {
			if first = bytes.IndexByte(buf, '\n') + 1; first == 0 {
				later = buf
				continue
			}
		}
		for to := len(buf); to > first; {
			from := first
			if i := bytes.LastIndexByte(buf[first:to-1], '\n'); i >= 0 {
				from = first + i + 1
			}
			full := fullLine(buf[from:to])
			if full || unfinished {
				if seen++; seen > n {
					return best, nil
				}
			}
			unfinished = false
			best, to = start+int64(from), from
		}
		later = buf[:first]
	}
	return best, nil
}

// fullLine says whether an entry ends a line.
func fullLine(entry []byte) bool {
	f := bytes.SplitN(entry, []byte(" "), 4)
	return len(f) < 3 || string(bytes.TrimSpace(f[2])) != "P"
}

// readLog reads an attempt's output. Offsets are those of the log file, so that reading on costs nothing.
func (a *Agent) readLog(ctx context.Context, p agentrpc.ReadLogArgs) (agentrpc.LogChunk, error) {
	path, err := a.jobFile("logs", p.Attempt, ".log")
	if err != nil {
		return agentrpc.LogChunk{}, err
	}
	offset := p.Offset
	if p.Tail > 0 {
		if offset, err = tailOffset(path, p.Tail); err != nil {
			return agentrpc.LogChunk{}, logFault(err)
		}
	}
	limit := min(max(p.Max, minChunk), maxChunk)
	ended := a.endOf(ctx, p)
	deadline := time.NewTimer(min(max(p.Wait, 0), maxLogWait))
	defer deadline.Stop()
	poll := time.NewTicker(logPoll)
	defer poll.Stop()
	for last := false; ; {
		data, next, err := readChunk(path, offset, limit)
		if err != nil {
			return agentrpc.LogChunk{}, logFault(err)
		}
		if len(data) > 0 || last || ended == nil {
			return agentrpc.LogChunk{Data: data, Next: next}, nil
		}
		offset = next
		select {
		case <-poll.C:
		case <-ended:
			last = true // one more look: the last output comes just before the end
		case <-deadline.C:
			last = true
		case <-ctx.Done():
			return agentrpc.LogChunk{}, ctx.Err()
		}
	}
}

// endOf is closed when the container has ended; nil when there is nothing to wait for.
func (a *Agent) endOf(ctx context.Context, p agentrpc.ReadLogArgs) <-chan struct{} {
	if p.Wait <= 0 {
		return nil
	}
	w := a.watching(p.Container)
	if w == nil {
		// Perhaps this agent is new and was not told of the container yet.
		c, err := a.inspectAndWatch(ctx, agentrpc.Ref{Name: p.Container})
		if err != nil || !c.Running() {
			return nil
		}
		if w = a.watching(p.Container); w == nil {
			return nil
		}
	}
	return w.ended
}

func logFault(err error) error {
	return &agentrpc.Error{Code: agentrpc.CodeFailed, Message: "read log: " + err.Error()}
}
