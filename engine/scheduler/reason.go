package scheduler

import (
	"fmt"
	"math"

	"gputop/engine"
)

// reason says why a request does not fit on the box as it is.
func (c *capacity) reason(r engine.Request) engine.Reason {
	if c.devicesFor(r, host{math.MaxInt64, math.MaxInt64}) {
		return c.hostReason(r)
	}
	if !r.WantsGPU() {
		return c.hostReason(r)
	}
	if r.GPUs > 0 {
		return c.wholeReason(r.GPUs)
	}
	return c.shareReason(r)
}

func (c *capacity) hostReason(r engine.Request) engine.Reason {
	part := c.wholePart(r.GPUs)
	if r.IsShare() {
		part = c.smallestPart(r)
	}
	_, least := c.hostNeed(r, part)
	free, code := c.hostFree(), engine.WaitingForHost
	if all := (&capacity{total: c.total}).hostFree(); !least.within(all) {
		free, code = all, engine.BlockedBySize
	}
	if least.milli > free.milli {
		return engine.Reason{Code: code, Needed: (least.milli + 999) / 1000, Free: free.milli / 1000,
			Unit: engine.UnitCores}
	}
	return engine.Reason{Code: code, Needed: int64(least.memory), Free: int64(free.memory), Unit: engine.UnitBytes}
}

// smallestPart is the least part of the box's GPUs a share is on any card that has room for it.
func (c *capacity) smallestPart(r engine.Request) float64 {
	best := math.Inf(1)
	for i := range c.cards {
		d := &c.cards[i]
		if need := shareNeed(r, d); c.shareFits(d, need) {
			best = min(best, c.part(need, d))
		}
	}
	if math.IsInf(best, 1) {
		return 0
	}
	return best
}

func (c *capacity) wholeReason(n int) engine.Reason {
	out := engine.Reason{Needed: int64(n), Free: int64(c.countWhole()), Unit: engine.UnitDevices}
	var foreign, fits, suitable int
	gone := -1
	for i := range c.cards {
		d := &c.cards[i]
		if !c.visit.wants(d) {
			continue
		}
		if d.Unavailable != engine.BlockedBySize {
			suitable++
		}
		switch {
		case d.Unavailable == "":
			fits++
			if d.grants == 0 && !c.wholeFree(d) && c.shut(d) == nil {
				foreign++
			}
		case d.Unavailable != engine.BlockedBySize && gone < 0:
			gone = i
		}
	}
	switch {
	case suitable < n:
		out.Code = engine.BlockedBySize
		out.Free = int64(suitable)
	case fits < n:
		c.unavailable(&out, gone)
	default:
		out.Code = engine.WaitingForDevice
		foreignDetail(&out, foreign)
	}
	return out
}

func (c *capacity) shareReason(r engine.Request) engine.Reason {
	out := engine.Reason{Code: engine.BlockedBySize, Unit: engine.UnitBytes}
	var foreign, fits int
	var largest engine.Bytes
	gone := -1
	for i := range c.cards {
		d := &c.cards[i]
		need := shareNeed(r, d)
		if d.Unavailable == engine.BlockedBySize || need <= 0 || !c.visit.wants(d) {
			continue
		}
		if out.Needed == 0 || int64(need) < out.Needed {
			out.Needed = int64(need)
		}
		largest = max(largest, d.Usable)
		if need > d.Usable {
			continue
		}
		if d.Unavailable != "" {
			if gone < 0 {
				gone = i
			}
			continue
		}
		fits++
		if d.ForeignBusy || d.wholes == 0 && d.Usable-d.committed+d.Foreign >= need {
			foreign++
		}
		if c.open(d) && d.wholes == 0 {
			out.Free = max(out.Free, int64(d.free()))
		}
	}
	switch {
	case fits > 0:
		out.Code = engine.WaitingForDevice
		foreignDetail(&out, foreign)
	case gone >= 0:
		c.unavailable(&out, gone)
	case largest == 0:
		out.Unit, out.Detail = "", "no GPU here can be shared: its memory is unknown, or its compute mode exclusive"
	default:
		out.Free = int64(largest)
	}
	return out
}

func (c *capacity) unavailable(out *engine.Reason, i int) {
	d := &c.cards[i]
	out.Code = d.Unavailable
	out.Detail = fmt.Sprintf("GPU %d (%s)", d.Index, d.ID)
}

func foreignDetail(out *engine.Reason, n int) {
	switch {
	case n == 1:
		out.Detail = "1 GPU is in use by processes outside the queue"
	case n > 1:
		out.Detail = fmt.Sprintf("%d GPUs are in use by processes outside the queue", n)
	}
}

// promised says that only windows are in a request's way, and which of them ends, or is over, first.
func (c *capacity) promised(r engine.Request) (engine.Reason, bool) {
	if !c.windows || !r.WantsGPU() {
		return engine.Reason{}, false
	}
	open := c.clone()
	for i := range open.cards {
		open.cards[i].Windows = nil
	}
	if !open.room(r) {
		return engine.Reason{}, false
	}
	out := engine.Reason{Code: engine.BlockedByReservation}
	for i := range c.cards {
		w := c.shut(&c.cards[i])
		if w == nil || !c.visit.wants(&c.cards[i]) || out.Detail != "" && !(!w.To.IsZero() && (out.Until.IsZero() || w.To.Before(out.Until))) {
			continue
		}
		out.Until = w.To
		out.Detail = w.Name
		if w.Drain {
			out.Code = engine.DeviceDraining
		} else {
			out.Code = engine.BlockedByReservation
		}
	}
	return out, true
}

func unknownDevices(s Snapshot) engine.Reason {
	if s.DevicesKnown {
		return engine.Reason{Code: engine.DevicesUnknown, Detail: "no GPU was found on this machine"}
	}
	return engine.Reason{Code: engine.DevicesUnknown, Detail: "the GPUs have not been read yet"}
}
