package runner

import (
	"context"
	"time"

	"gputop/engine/agentrpc"
)

const (
	// maxChunk is the most of a log that one call reads, in bytes of the file.
	maxChunk = 512 << 10
	// minChunk makes sure that a line of conmon's (8 KiB at most) fits.
	minChunk = 16 << 10
	// maxLogWait bounds a wait for more.
	maxLogWait = 30 * time.Second
	// logPoll is how often a log's size is looked at while somebody waits.
	logPoll = 100 * time.Millisecond
	// maxTailScan bounds how far back a tail is looked for, in bytes.
	maxTailScan = 64 << 20
)

// readLog reads an attempt's output. Offsets are those of the log file, so that reading on costs nothing.
func (a *Agent) readLog(ctx context.Context, p agentrpc.ReadLogArgs) (agentrpc.LogChunk, error) {
	path, err := a.jobFile("logs", p.Attempt, ".log")
	if err != nil {
		return agentrpc.LogChunk{}, err
	}
	offset, file := p.Offset, p.File
	if p.Tail > 0 {
		if offset, err = tailOffset(path, p.Tail); err != nil {
			return agentrpc.LogChunk{}, logFault(err)
		}
		file = 0
	}
	limit := min(max(p.Max, minChunk), maxChunk)
	decode := decodeLog
	if p.JSON {
		limit /= 4 // what is written around each line counts too
		decode = func(raw []byte) ([]byte, int) { return decodeJSON(raw, p.Attempt) }
	}
	ended := a.endOf(ctx, p)
	deadline := time.NewTimer(min(max(p.Wait, 0), maxLogWait))
	defer deadline.Stop()
	poll := time.NewTicker(logPoll)
	defer poll.Stop()
	for last, dropped := false, false; ; {
		c, err := readChunk(path, offset, file, limit, decode)
		if err != nil {
			return agentrpc.LogChunk{}, logFault(err)
		}
		dropped = dropped || c.dropped
		if len(c.data) > 0 || last || ended == nil {
			return agentrpc.LogChunk{Data: c.data, Next: c.next, File: c.file, Dropped: dropped}, nil
		}
		offset, file = c.next, c.file
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
