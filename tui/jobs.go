package tui

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"gputop/engine"
	"gputop/engine/api"
)

// jobsTable shows one list of jobs. Only rows in sight are drawn.
type jobsTable struct {
	*env
	list   list
	cursor int
	top    int
	// chosen is the job under the cursor: the cursor goes where it goes while it stays in this list.
	chosen engine.JobID
}

func (t *jobsTable) jobs() []*api.Job { return t.box.lists[t.list] }

func (t *jobsTable) job() *api.Job {
	if t.cursor < 0 || t.cursor >= len(t.jobs()) {
		return nil
	}
	return t.jobs()[t.cursor]
}

func (t *jobsTable) move(n int) {
	t.cursor = max(0, min(t.cursor+n, len(t.jobs())-1))
	t.choose()
}

func (t *jobsTable) choose() {
	if j := t.job(); j != nil {
		t.chosen = j.ID
	}
}

// follow puts the cursor on the chosen job after the list changed.
func (t *jobsTable) follow() {
	if j := t.job(); t.chosen != 0 && (j == nil || j.ID != t.chosen) {
		if i := slices.IndexFunc(t.jobs(), func(j *api.Job) bool { return j.ID == t.chosen }); i >= 0 {
			t.cursor = i
		}
	}
	t.move(0)
}

// column is one column of a job table.
type column struct {
	title string
	w     int
	grow  int  // share of the width that is left over
	right bool // numbers
	from  int  // least table width at which it is shown
	draw  func(t *jobsTable, j *api.Job, now time.Time) (ink, string)
}

var (
	colID = column{title: "JOB", w: 6, draw: func(t *jobsTable, j *api.Job, _ time.Time) (ink, string) {
		return t.sty.dim, "#" + strconv.FormatInt(int64(j.ID), 10)
	}}
	colName = column{title: "NAME", w: 11, grow: 2, draw: func(t *jobsTable, j *api.Job, _ time.Time) (ink, string) {
		return t.sty.strong, t.sty.clean(j.Name)
	}}
	colOwner = column{title: "OWNER", w: 8, draw: func(t *jobsTable, j *api.Job, _ time.Time) (ink, string) {
		if j.Mine {
			return t.sty.accent, t.sty.clean(j.Owner)
		}
		return t.sty.text, t.sty.clean(j.Owner)
	}}
	colClass = column{title: "CLASS", w: 8, draw: func(t *jobsTable, j *api.Job, _ time.Time) (ink, string) {
		if j.Class < 0 || int(j.Class) >= len(t.sty.classes) {
			return t.sty.dim, t.sty.glyph.unknown
		}
		return t.sty.classes[j.Class], j.Class.String()
	}}
	colState = column{title: "STATE", w: 9, draw: func(t *jobsTable, j *api.Job, _ time.Time) (ink, string) {
		return t.sty.stateInk(j.State), stateText(j)
	}}
	colRequest = column{title: "WANTS", w: 7, draw: func(t *jobsTable, j *api.Job, _ time.Time) (ink, string) {
		return t.sty.text, requestText(j.Request)
	}}
	colGPU = column{title: "ON", w: 8, draw: func(t *jobsTable, j *api.Job, _ time.Time) (ink, string) {
		return t.sty.text, gpuText(j)
	}}
	colMemory = column{title: "GPU GiB", w: 9, right: true, from: 100, draw: drawMemory}
	colTime   = column{title: "TIME/LIMIT", w: 11, right: true, draw: func(t *jobsTable, j *api.Job, now time.Time) (ink, string) {
		if j.Started.IsZero() {
			return t.sty.dim, t.sty.glyph.unknown + "/" + limit(j.TimeLimit)
		}
		d := now.Sub(j.Started)
		if j.TimeLimit > 0 && d > j.TimeLimit*9/10 {
			return t.sty.warn, clock(d) + "/" + limit(j.TimeLimit)
		}
		return t.sty.text, clock(d) + "/" + limit(j.TimeLimit)
	}}
	colCommand = column{title: "COMMAND", w: 20, grow: 3, from: 130, draw: func(t *jobsTable, j *api.Job, _ time.Time) (ink, string) {
		if j.Command == "" {
			return t.sty.faint, t.sty.glyph.unknown
		}
		return t.sty.dim, t.sty.clean(j.Command)
	}}
	colWait = column{title: "WAITED", w: 6, right: true, draw: func(t *jobsTable, j *api.Job, now time.Time) (ink, string) {
		return t.sty.text, clock(now.Sub(j.Submitted))
	}}
	colReason = column{title: "WHY IT WAITS", w: 14, grow: 3, draw: func(t *jobsTable, j *api.Job, now time.Time) (ink, string) {
		return t.sty.dim, t.sty.clean(reasonText(j, now))
	}}
	colRan = column{title: "RAN", w: 6, right: true, draw: func(t *jobsTable, j *api.Job, _ time.Time) (ink, string) {
		if j.Started.IsZero() || j.Ended.IsZero() {
			return t.sty.dim, t.sty.glyph.unknown
		}
		return t.sty.text, clock(j.Ended.Sub(j.Started))
	}}
	colAgo = column{title: "AGO", w: 6, right: true, draw: func(t *jobsTable, j *api.Job, now time.Time) (ink, string) {
		if j.Ended.IsZero() {
			return t.sty.dim, t.sty.glyph.unknown
		}
		return t.sty.text, clock(now.Sub(j.Ended))
	}}
	colOutcome = column{title: "OUTCOME", w: 12, grow: 3, draw: func(t *jobsTable, j *api.Job, _ time.Time) (ink, string) {
		return t.sty.dim, t.sty.clean(outcomeText(j))
	}}
)

func wide(c column, from int) column { c.from = from; return c }

var columns = [lists][]column{
	listRunning: {colID, colName, colOwner, colClass, colState, colRequest, colGPU, colMemory, colTime, colCommand},
	listQueue:   {colID, colName, colOwner, colClass, wide(colState, 100), colRequest, colWait, colReason, wide(colCommand, 170)},
	listEnded:   {colID, colName, colOwner, wide(colClass, 100), colState, wide(colRequest, 100), colRan, colAgo, colOutcome},
}

var listTitles = [lists]string{"Running", "Queue", "Ended"}

var listEmpty = [lists]string{"No job is running.", "The queue is empty: press s to submit a job.", "No job has ended lately."}

// layout picks the columns that fit and shares out what is left; w is without the frame.
func layout(cols []column, w int) []column {
	out := make([]column, 0, len(cols))
	left, grow := w-2, 0 // marker and the last cell
	for _, c := range cols {
		if c.from <= w+2 {
			out = append(out, c)
			left -= c.w + 1
			grow += c.grow
		}
	}
	left++
	for i := range out {
		if left > 0 && out[i].grow > 0 {
			n := left * out[i].grow / grow
			grow -= out[i].grow
			out[i].w += n
			left -= n
		}
	}
	for i := len(out) - 1; left < 0 && i > 0; i-- { // narrower than the least widths: the last columns go
		left += out[i].w + 1
		out = out[:i]
	}
	return out
}

func (t *jobsTable) draw(note string, w, h int, focused bool) []string {
	jobs, now, inner := t.jobs(), t.box.asOf(t.now()), w-2
	room := max(h-3, 0)
	t.cursor = max(0, min(t.cursor, len(jobs)-1))
	t.top = max(0, min(t.top, len(jobs)-room))
	if t.cursor < t.top {
		t.top = t.cursor
	} else if t.cursor >= t.top+room {
		t.top = max(t.cursor-room+1, 0)
	}
	cols := layout(columns[t.list], inner)
	lines := make([]string, 0, room+1)
	r := row{s: t.sty}
	r.gap(1)
	for _, c := range cols {
		if c.right {
			r.right(t.sty.dim, c.title, c.w)
		} else {
			r.cell(t.sty.dim, c.title, c.w)
		}
		r.gap(1)
	}
	lines = append(lines, exactly(r.fill(inner), inner))
	if len(jobs) == 0 && room > 0 {
		text := listEmpty[t.list]
		if t.o.ReadOnly {
			text, _, _ = strings.Cut(text, ": press")
			text = strings.TrimSuffix(text, ".") + "."
		}
		if !t.box.known {
			text = "Waiting for the daemon."
		}
		lines = append(lines, t.sty.dim.paint(t.sty.fit(" "+text, inner)))
	}
	for i := t.top; i < min(t.top+room, len(jobs)); i++ {
		line := t.line(jobs[i], cols, inner, now, focused && i == t.cursor)
		if t.box.link == linkLost {
			line = t.sty.dim.paint(strip(line))
		}
		lines = append(lines, line)
	}
	title := fmt.Sprintf("%s %d", listTitles[t.list], len(jobs))
	if len(jobs) > room && room > 0 {
		title += fmt.Sprintf(" (%d-%d)", t.top+1, min(t.top+room, len(jobs)))
	}
	return t.sty.panel(title, note, lines, w, h, focused)
}

func (t *jobsTable) line(j *api.Job, cols []column, w int, now time.Time, selected bool) string {
	r := row{s: t.sty}
	if selected {
		r.under = t.sty.selected
		r.put(t.sty.accent, t.sty.glyph.marker, 1)
	} else {
		r.gap(1)
	}
	for _, c := range cols {
		i, text := c.draw(t, j, now)
		if c.right {
			r.right(i, text, c.w)
		} else {
			r.cell(i, text, c.w)
		}
		r.gap(1)
	}
	return r.fill(w)
}

func drawMemory(t *jobsTable, j *api.Job, _ time.Time) (ink, string) {
	var promised engine.Bytes
	for _, g := range j.Grants {
		promised += g.Memory
	}
	if promised == 0 {
		return t.sty.dim, t.sty.glyph.unknown
	}
	if j.GPUMemoryUsed != nil && *j.GPUMemoryUsed > promised {
		return t.sty.bad, t.sty.memoryPair(j.GPUMemoryUsed, &promised) // over its promise
	}
	return t.sty.text, t.sty.memoryPair(j.GPUMemoryUsed, &promised)
}

// stateText is a job's state for a cell; a held job says so.
func stateText(j *api.Job) string {
	if j.Held && j.State.Queued() {
		return "held"
	}
	return string(j.State)
}

func (s *styles) stateInk(st engine.JobState) ink {
	switch st {
	case engine.Running, engine.Succeeded:
		return s.good
	case engine.Failed, engine.Lost, engine.TimedOut:
		return s.bad
	case engine.Stopping, engine.Cancelled:
		return s.warn
	case engine.Starting, engine.Preparing:
		return s.promised
	}
	return s.dim
}

// gpuText names the cards a job is on: "GPU 0,3", or "no GPU".
func gpuText(j *api.Job) string {
	if len(j.Grants) == 0 {
		return "no GPU"
	}
	names := make([]string, 0, len(j.Grants))
	for _, g := range j.Grants {
		name := "?"
		if g.Index >= 0 {
			name = strconv.Itoa(g.Index)
		}
		names = append(names, name)
	}
	kind := "GPU "
	if strings.HasPrefix(string(j.Grants[0].Device), "MIG-") {
		kind = "MIG " // on this card
	}
	return kind + strings.Join(names, ",")
}
