package runner

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"gputop/engine"
	"gputop/engine/agentrpc"
)

// copyPoll is how often a running job's log is copied on.
const copyPoll = 200 * time.Millisecond

// outputCopy is the state of copying a job's output to a file of the user's; kept on disk after each step, so that a
// new agent goes on where the old one stopped.
type outputCopy struct {
	Container string `json:"container"`
	Log       string `json:"log"`
	Output    string `json:"output"`
	// Started says that the output file was emptied for this attempt.
	Started bool `json:"started"`
	// Offset is how far the log was copied, Size what the output file had then, both in bytes.
	Offset int64 `json:"offset"`
	Size   int64 `json:"size"`
	// File is the number of the log file in which Offset counts, and Limit what is kept of it, in bytes.
	File  uint64       `json:"file,omitempty"`
	Limit engine.Bytes `json:"limit,omitempty"`

	// resumed is set until the first step after reading the state from disk.
	resumed bool
}

// planCopy notes at create where the output is to go.
func (a *Agent) planCopy(c agentrpc.ContainerSpec, log string) error {
	if _, err := a.jobFile("output", c.Attempt, ".json"); err != nil {
		return err
	}
	o := outputCopy{Container: c.Name, Log: log, Output: outputPath(c.Workdir, c.Output), Limit: c.LogLimit}
	if err := o.save(a.copyFile(log)); err != nil {
		return &agentrpc.Error{Code: agentrpc.CodeFailed, Message: "output file: " + err.Error()}
	}
	return nil
}

// copyFile is the state file that goes with a log.
func (a *Agent) copyFile(log string) string {
	return filepath.Join(a.o.StateDir, "output", strings.TrimSuffix(filepath.Base(log), ".log")+".json")
}

// allCopied is copiedTo of a log of which nobody makes a copy.
const allCopied = math.MaxInt64

// copiedTo is up to where a log has been copied, in bytes.
func (a *Agent) copiedTo(log string) int64 {
	var o outputCopy
	b, err := os.ReadFile(a.copyFile(log))
	if err != nil || json.Unmarshal(b, &o) != nil {
		return allCopied
	}
	return o.Offset
}

func (o outputCopy) save(path string) error {
	b, err := json.Marshal(o)
	if err != nil {
		return err
	}
	tmp := path + ".tmp"
	if err := os.WriteFile(tmp, b, 0o600); err != nil {
		return err
	}
	return os.Rename(tmp, path)
}

// copies are the copies under way, by container.
func (a *Agent) copies() map[string]outputCopy {
	out := map[string]outputCopy{}
	files, _ := filepath.Glob(filepath.Join(a.o.StateDir, "output", "*.json")) // only a bad pattern fails
	for _, f := range files {
		var o outputCopy
		b, err := os.ReadFile(f)
		if err == nil {
			err = json.Unmarshal(b, &o)
		}
		if err != nil {
			a.log.Warn("state of an output copy", "file", f, "error", err)
			continue
		}
		o.resumed = true
		out[o.Container] = o
	}
	return out
}

// openCopy empties the output file, once per attempt, when the attempt is first started.
func (a *Agent) openCopy(container string) error {
	o, ok := a.copies()[container]
	if !ok || o.Started {
		return nil
	}
	f, err := os.OpenFile(o.Output, os.O_CREATE|os.O_TRUNC|os.O_WRONLY|unix.O_NONBLOCK, 0o644)
	if err != nil {
		return err
	}
	o.Started = true
	return errors.Join(f.Close(), o.save(a.copyFile(o.Log)))
}

// resumeCopies goes on with what an earlier agent of this user left.
func (a *Agent) resumeCopies() {
	for _, o := range a.copies() {
		if o.Started {
			a.work.Go(func() { a.findAgain(o.Container) })
		}
	}
}

// findAgain watches a container again; one that has gone gets the rest of its output copied.
func (a *Agent) findAgain(name string) {
	for a.ctx.Err() == nil {
		_, err := a.inspectAndWatch(a.ctx, agentrpc.Ref{Name: name})
		if err == nil || agentrpc.CodeOf(err) == agentrpc.CodeNotFound {
			break
		}
		if pause(a.ctx, maxBackoff) != nil {
			return
		}
	}
	if a.watching(name) == nil {
		w := &watch{name: name, ended: make(chan struct{})}
		close(w.ended)
		a.copyOutput(w)
	}
}

// copyOutput copies until the container has ended and its log is used up.
func (a *Agent) copyOutput(w *watch) {
	o, ok := a.copies()[w.name]
	if !ok {
		return
	}
	state := a.copyFile(o.Log)
	var lastErr string
	for last := false; ; {
		more, err := o.step(state)
		if err != nil && err.Error() != lastErr {
			lastErr = err.Error()
			a.log.Warn("copy output", "container", w.name, "to", o.Output, "error", err)
		}
		if last && (!more || err != nil) {
			_ = os.Remove(state) // left behind, it is found finished next time
			if limit := readLimit(o.Log); limit > 0 {
				if _, err := trimLog(o.Log, limit, 0, allCopied); err != nil && !errors.Is(err, fs.ErrNotExist) {
					a.log.Warn("log not kept short", "container", w.name, "error", err)
				}
			}
			return
		}
		if more && err == nil {
			continue
		}
		select {
		case <-a.ctx.Done():
			return
		case <-w.ended:
			last = true
		case <-time.After(copyPoll):
		}
	}
}

// step copies one piece. more says whether there may be another right away.
func (o *outputCopy) step(state string) (more bool, err error) {
	c, err := readChunk(o.Log, o.Offset, o.File, maxChunk, decodeLog)
	if err != nil || c.next == o.Offset && !c.dropped {
		return false, err
	}
	data := c.data
	f, err := os.OpenFile(o.Output, os.O_CREATE|os.O_RDWR|os.O_APPEND|unix.O_NONBLOCK, 0o644)
	if err != nil {
		return false, err
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil {
		return false, err
	}
	if !fi.Mode().IsRegular() {
		return false, fmt.Errorf("%s is not a plain file", o.Output)
	}
	if c.dropped {
		data = append([]byte(agentrpc.DroppedLine(o.Limit)), data...)
		if last := make([]byte, 1); fi.Size() > 0 {
			if _, err := f.ReadAt(last, fi.Size()-1); err == nil && last[0] != '\n' {
				data = append([]byte("\n"), data...)
			}
		}
	}
	if o.resumed {
		o.resumed = false
		data = data[alreadyThere(f, fi.Size()-o.Size, o.Size, data):]
	}
	if _, err := f.Write(data); err != nil {
		return false, err
	}
	if fi, err = f.Stat(); err != nil {
		return false, err
	}
	o.Offset, o.File, o.Size = c.next, c.file, fi.Size()
	return true, o.save(state)
}

// alreadyThere is how much of data an agent that was killed before it could note it had appended: what the file has
// beyond the noted size, if it is the beginning of data. Anything else there is somebody else's and stays.
func alreadyThere(f io.ReaderAt, extra, at int64, data []byte) int {
	if extra <= 0 || extra > int64(len(data)) {
		return 0
	}
	have := make([]byte, extra)
	if _, err := f.ReadAt(have, at); err != nil && !errors.Is(err, io.EOF) || !bytes.Equal(have, data[:extra]) {
		return 0
	}
	return int(extra)
}
