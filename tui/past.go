package tui

import (
	"time"

	"gputop/engine"
	"gputop/engine/api"
)

const (
	// pastCell is how much time one sign of a card's past stands for: ten are a minute.
	pastCell = 6 * time.Second
	// pastMost is how many are kept.
	pastMost = 60
)

// past is how busy each device was, as far as this screen has seen it.
type past map[engine.DeviceID]*track

// track is one device's past, in cells; the last one is still being filled.
type track struct {
	cell   int64 // which one the last is, counted from 1970
	points []int // thousandths, or engine.Unknown
	seen   int   // samples in the last one
}

// add takes in a sample.
func (p past) add(g *api.GPUs) {
	if g.Time.IsZero() || g.Stale {
		return
	}
	cell := g.Time.UnixNano() / int64(pastCell)
	for i := range g.GPUs {
		p.see(g.GPUs[i].UUID, cell, g.GPUs[i].SM)
		for k := range g.GPUs[i].MIG {
			p.see(g.GPUs[i].MIG[k].UUID, cell, g.GPUs[i].MIG[k].SM)
		}
	}
	for id, t := range p {
		if cell-t.cell > pastMost {
			delete(p, id) // it is gone
		}
	}
}

func (p past) see(id engine.DeviceID, cell int64, sm *float64) {
	t := p[id]
	if t == nil || cell < t.cell || cell-t.cell > pastMost {
		t = &track{cell: cell - 1}
		p[id] = t
	}
	for ; t.cell < cell; t.cell++ {
		t.points, t.seen = append(t.points, engine.Unknown), 0
	}
	t.points = t.points[max(0, len(t.points)-pastMost):]
	if sm == nil {
		return
	}
	last := &t.points[len(t.points)-1]
	milli := int(max(0, min(*sm, 1)) * 1000)
	if t.seen == 0 {
		*last = milli
	} else {
		*last = (*last*t.seen + milli) / (t.seen + 1)
	}
	t.seen++
}

// row are the last n cells of a device, the newest at the right end.
func (p past) row(id engine.DeviceID, n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = engine.Unknown
	}
	if t := p[id]; t != nil {
		points := t.points[max(0, len(t.points)-n):]
		copy(out[n-len(points):], points)
	}
	return out
}
