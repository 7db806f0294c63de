package runner

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"gputop/engine"
	"gputop/engine/agentrpc"
)

// A log is kept short by giving its beginning back to the disk where it lies (a hole), so that offsets stay true and
// nobody who reads it notices but by the missing beginning. What conmon itself does at its size limit is to begin a new
// file and drop all of the old one, the newest lines too: that is left to file systems without holes.

// trimEvery is how often a running job's log is cut to its limit.
const trimEvery = 200 * time.Millisecond

// holeBlock is what holes are a multiple of, in bytes: no usual file system has larger blocks.
const holeBlock = 64 << 10

// openLog opens a log; nil when there is none yet.
func openLog(path string) (*os.File, int64, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, 0, nil
	}
	if err != nil {
		return nil, 0, err
	}
	fi, err := f.Stat()
	if err != nil {
		return nil, 0, errors.Join(err, f.Close())
	}
	return f, fi.Size(), nil
}

// fileNumber tells a log from one that took its name later: an inode's number alone is given again soon.
func fileNumber(f *os.File) uint64 {
	var st unix.Statx_t
	if unix.Statx(int(f.Fd()), "", unix.AT_EMPTY_PATH, unix.STATX_INO|unix.STATX_BTIME, &st) != nil {
		return 1
	}
	return max(st.Ino<<32^uint64(st.Btime.Sec)<<30^uint64(st.Btime.Nsec), 1)
}

// holeEnd is up to where the log was given back, in bytes.
func holeEnd(f *os.File, size int64) int64 {
	at, err := unix.Seek(int(f.Fd()), 0, unix.SEEK_DATA)
	if errors.Is(err, unix.ENXIO) {
		return size
	}
	if err != nil {
		return 0
	}
	return at
}

// maxPieces bounds how far a line that conmon wrote in pieces is skipped, in bytes of the file.
const maxPieces = 256 << 10

// logStart is where the first whole line is that the log still has: 0, or behind its hole.
func logStart(f *os.File, size int64) int64 {
	at := holeEnd(f, size)
	if at == 0 {
		return 0
	}
	r := bufio.NewReaderSize(io.NewSectionReader(f, at, size-at), minChunk)
	first := int64(-1) // behind the entry that is torn
	for {
		entry, err := r.ReadSlice('\n')
		at += int64(len(entry))
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case err != nil && first < 0: // a failure is seen again by who reads on
			return size
		case err != nil, first >= 0 && at-first > maxPieces: // one endless line
			return first
		case first < 0:
			first = at
			continue
		}
		if _, whole, _ := cutEntry(entry[:len(entry)-1]); whole {
			return at
		}
	}
}

// piece is a piece of a log, decoded.
type piece struct {
	data []byte
	// next is the offset behind it, file the number of its file.
	next int64
	file uint64
	// dropped says that output between the offset asked for and this is gone.
	dropped bool
}

// readChunk decodes at most limit bytes of the file from offset on. Of another file than the one numbered (0: any) it
// begins at the start.
func readChunk(path string, offset int64, file uint64, limit int, decode func([]byte) ([]byte, int)) (piece, error) {
	f, size, err := openLog(path)
	if f == nil {
		return piece{next: offset, file: file}, err
	}
	defer f.Close()
	p := piece{next: offset, file: fileNumber(f)}
	if offset < 0 || offset > size || file != 0 && file != p.file {
		p.dropped, p.next = offset > 0, 0
	}
	var buf []byte
	for {
		if holeEnd(f, size) > p.next {
			p.dropped, p.next = true, logStart(f, size)
		}
		buf = make([]byte, min(int64(limit), size-p.next))
		n, err := f.ReadAt(buf, p.next)
		if err != nil && !errors.Is(err, io.EOF) {
			return p, err
		}
		// What was cut off while it was read reads as zeros.
		if holeEnd(f, size) <= p.next {
			buf = buf[:n]
			break
		}
	}
	data, used := decode(buf)
	if used == 0 && len(buf) >= limit {
		used = len(buf) // a line longer than any that conmon writes: step over it
	}
	p.data, p.next = data, p.next+int64(used)
	return p, nil
}

// decodeLog turns lines of conmon's k8s-file format ("TIME stdout F TEXT", with P for a piece without its newline)
// into the bytes that the program wrote. used counts the bytes of whole lines; an unfinished last line is left.
func decodeLog(raw []byte) (data []byte, used int) {
	data = make([]byte, 0, len(raw))
	for {
		i := bytes.IndexByte(raw[used:], '\n')
		if i < 0 {
			return data, used
		}
		line := raw[used : used+i]
		used += i + 1
		text, whole, ok := cutEntry(line)
		if !ok {
			continue // torn by a crash
		}
		data = append(data, text...)
		if whole {
			data = append(data, '\n')
		}
	}
}

// decodeJSON turns the same lines into LogLines, one a line.
func decodeJSON(raw []byte, id engine.AttemptID) (data []byte, used int) {
	for {
		i := bytes.IndexByte(raw[used:], '\n')
		if i < 0 {
			return data, used
		}
		entry := raw[used : used+i]
		used += i + 1
		text, whole, ok := cutEntry(entry)
		if !ok {
			continue // torn by a crash
		}
		at, rest, _ := bytes.Cut(entry, []byte(" "))
		stream, _, _ := bytes.Cut(rest, []byte(" "))
		line, err := json.Marshal(agentrpc.LogLine{Time: string(at), Job: id.Job, Attempt: id.Number, Stream: string(stream), Text: string(text), Partial: !whole})
		if err == nil { // strings and numbers always are JSON
			data = append(append(data, line...), '\n')
		}
	}
}

// cutEntry takes the text out of an entry; whole says that it ends a line.
func cutEntry(entry []byte) (text []byte, whole, ok bool) {
	for range 2 { // the time and the stream
		i := bytes.IndexByte(entry, ' ')
		if i < 0 {
			return nil, true, false
		}
		entry = entry[i+1:]
	}
	tag, text, _ := bytes.Cut(entry, []byte(" "))
	return text, string(tag) != "P", true
}

// tailOffset is where the last n lines begin.
func tailOffset(path string, n int) (int64, error) {
	f, end, err := openLog(path)
	if f == nil {
		return 0, err
	}
	defer f.Close()
	const block = 64 << 10
	clean := logStart(f, end)
	floor := max(end-maxTailScan, clean)
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
		if start > clean {
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
			if _, full, _ := cutEntry(bytes.TrimSuffix(buf[from:to], []byte("\n"))); full || unfinished {
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

// copySlack is how much a log may have beyond its limit for a copy that is behind, in bytes: one that cannot go on at all,
// as on a full disk, does not keep a log for ever.
const copySlack = 64 << 20

// trimLog gives back what a log has beyond its limit, but what is behind copied (where a copy is under way). It says up
// to where the log is a hole now.
func trimLog(path string, limit, hole, copied int64) (int64, error) {
	fi, err := os.Stat(path)
	if err != nil {
		return hole, err
	}
	to := fi.Size() - limit
	to = min(to, max(copied, to-copySlack)) &^ (holeBlock - 1)
	if to <= hole {
		return hole, nil
	}
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return hole, err
	}
	defer f.Close()
	if err := unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, hole, to-hole); err != nil {
		return hole, fmt.Errorf("cut %s to its limit: %w", path, err)
	}
	return to, nil
}

// makesHoles says whether the directory's file system can give back the beginning of a file, and say so.
func makesHoles(dir string) bool {
	f, err := os.CreateTemp(dir, ".hole-")
	if err != nil {
		return false
	}
	defer os.Remove(f.Name())
	defer f.Close()
	if _, err := f.Write(bytes.Repeat([]byte("line\n"), 2*holeBlock/5)); err != nil {
		return false
	}
	to, err := trimLog(f.Name(), holeBlock/2, 0, allCopied)
	if err != nil || to != holeBlock {
		return false
	}
	at, err := unix.Seek(int(f.Fd()), 0, unix.SEEK_DATA)
	return err == nil && at == holeBlock
}

// limitFile is where a log's limit is kept beside it, for an agent that comes later.
func limitFile(log string) string { return strings.TrimSuffix(log, ".log") + ".limit" }

// noLogSize is a size that no log reaches. With none, a size in the user's containers.conf would hold.
const noLogSize = 1 << 60

// limitLog notes a log's limit, and gives the size at which conmon is to drop it: where the agent can't keep it short.
func limitLog(log string, limit engine.Bytes) (int64, error) {
	if limit <= 0 {
		return noLogSize, nil
	}
	if !makesHoles(filepath.Dir(log)) {
		return int64(limit), nil
	}
	if err := os.WriteFile(limitFile(log), fmt.Appendln(nil, int64(limit)), 0o600); err != nil {
		return 0, &agentrpc.Error{Code: agentrpc.CodeFailed, Message: "log limit: " + err.Error()}
	}
	return noLogSize, nil
}

// readLimit is a log's limit in bytes; 0 for none.
func readLimit(log string) int64 {
	b, err := os.ReadFile(limitFile(log))
	if err != nil {
		return 0
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
	if err != nil || n < 0 {
		return 0
	}
	return n
}

// logOf is the log of a container of ours, by its name.
func (a *Agent) logOf(container string) string {
	f := strings.Split(container, "-")
	if len(f) < 3 {
		return ""
	}
	return filepath.Join(a.o.StateDir, "logs", filepath.Base(f[len(f)-2]+"."+f[len(f)-1]+".log"))
}

// keepShort cuts a running container's log to its limit until the container has ended.
func (a *Agent) keepShort(w *watch) {
	log := a.logOf(w.name)
	limit := readLimit(log)
	if limit == 0 {
		return
	}
	tick := time.NewTicker(trimEvery)
	defer tick.Stop()
	var hole int64
	for last, told := false, false; !last; {
		select {
		case <-a.ctx.Done():
			return
		case <-w.ended:
			last = true
		case <-tick.C:
		}
		var err error
		if hole, err = trimLog(log, limit, hole, a.copiedTo(log)); err != nil && !told && !errors.Is(err, fs.ErrNotExist) {
			told = true
			a.log.Warn("log not kept short", "container", w.name, "error", err)
		}
	}
}

// trimAll cuts logs that grew while no agent was there.
func (a *Agent) trimAll() {
	limits, _ := filepath.Glob(filepath.Join(a.o.StateDir, "logs", "*.limit")) // only a bad pattern fails
	for _, l := range limits {
		log := strings.TrimSuffix(l, ".limit") + ".log"
		if limit := readLimit(log); limit > 0 && a.ctx.Err() == nil {
			if _, err := trimLog(log, limit, 0, a.copiedTo(log)); err != nil && !errors.Is(err, fs.ErrNotExist) {
				a.log.Warn("log not kept short", "log", log, "error", err)
			}
		}
	}
}
