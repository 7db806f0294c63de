package notice

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"gputop/engine"
)

// gap is how far apart two looks may be and still speak of the time between them.
const gap = time.Minute

// Card is what a look shows of a whole GPU that an attempt holds. SM is nil where the card does not say: that is not 0.
type Card struct {
	ID    engine.DeviceID
	Index int
	SM    *float64
}

// Look is what is seen of a running attempt at one moment. A nil amount is not known.
type Look struct {
	Time time.Time
	// GPU and GPULimit are memory in use and granted, over all devices.
	GPU      *engine.Bytes
	GPULimit engine.Bytes
	// Whole are the whole GPUs it holds.
	Whole []Card
}

// Use follows one running attempt over time. The zero value begins.
type Use struct {
	gpu, host spell
	idle      map[engine.DeviceID]*spell
	// told is how much of its GPUs was idle when its owner was told; atKey tells spells apart.
	told    idleness
	atKey   time.Time
	reclaim time.Time
}

type idleness int

const (
	busy idleness = iota
	partly
	wholly
)

// spell is a time over which something held without a break, as far as it was looked at.
type spell struct {
	since, last time.Time
	told        bool
}

// see takes one look and returns for how long it has held.
func (s *spell) see(holds bool, now time.Time) time.Duration {
	if !holds || s.since.IsZero() || now.Sub(s.last) > gap || now.Before(s.last) {
		s.since = time.Time{}
		if holds {
			s.since = now
		}
	}
	s.last = now
	if s.since.IsZero() {
		return 0
	}
	return now.Sub(s.since)
}

// See takes one look at a job's running attempt. reclaim says that it was told that it would be stopped, and its time is
// over.
func (u *Use) See(j *engine.Job, p Policy, l Look) (out []engine.Notice, reclaim bool) {
	if n, ok := nearlyFull(j, p, &u.gpu, "GPU memory", l.GPU, l.GPULimit, l.Time); ok {
		out = append(out, n)
	}
	n, told, reclaim := u.seeIdle(j, p, l)
	if told {
		out = append(out, n)
	}
	return out, reclaim
}

// SeeHost takes one look at the host memory that an attempt uses.
func (u *Use) SeeHost(j *engine.Job, p Policy, used, limit engine.Bytes, now time.Time) (engine.Notice, bool) {
	return nearlyFull(j, p, &u.host, "host memory", &used, limit, now)
}

// OverShare tells that a job holds more GPU memory than its share, and after what time it is stopped for that; 0 is never.
func OverShare(j *engine.Job, now time.Time, used, share engine.Bytes, grace time.Duration) engine.Notice {
	text := fmt.Sprintf("holds %s of GPU memory, more than the %s it asked for: its neighbours may run out", used, share)
	if grace > 0 {
		text += fmt.Sprintf("; it is stopped if it goes on for %s", span(grace))
	}
	n := about(j, now, engine.NoticeMemory, text, "")
	n.Key += " share"
	return n
}

func nearlyFull(j *engine.Job, p Policy, s *spell, what string, used *engine.Bytes, limit engine.Bytes, now time.Time) (engine.Notice, bool) {
	high := used != nil && limit > 0 && float64(*used) > p.MemoryShare*float64(limit)
	if s.see(high, now) < p.MemoryAfter || !high || p.MemoryAfter <= 0 || s.told {
		return engine.Notice{}, false
	}
	s.told = true // once for an attempt
	n := about(j, now, engine.NoticeMemory, fmt.Sprintf("uses %s of its %s of %s, for %s", *used, limit, what, span(p.MemoryAfter)), "")
	n.Key += " " + what
	return n, true
}

func (u *Use) seeIdle(j *engine.Job, p Policy, l Look) (n engine.Notice, told, reclaim bool) {
	if p.IdleAfter <= 0 || len(l.Whole) == 0 {
		return n, false, false
	}
	if u.idle == nil {
		u.idle = map[engine.DeviceID]*spell{}
	}
	var names []string
	for _, c := range l.Whole {
		s := u.idle[c.ID]
		if s == nil {
			s = &spell{}
			u.idle[c.ID] = s
		}
		if s.see(c.SM != nil && *c.SM == 0, l.Time) >= p.IdleAfter {
			names = append(names, strconv.Itoa(c.Index))
		}
	}
	is := busy
	switch len(names) {
	case 0:
	case len(l.Whole):
		is = wholly
	default:
		is = partly
	}
	if is < wholly {
		u.reclaim = time.Time{}
	}
	was := u.told
	if u.told = is; is == busy {
		u.atKey = time.Time{}
	}
	if is <= was {
		return n, false, is == wholly && !u.reclaim.IsZero() && !l.Time.Before(u.reclaim)
	}
	if u.atKey.IsZero() {
		u.atKey = l.Time
	}
	slices.Sort(names)
	n = about(j, l.Time, engine.NoticeIdle, idleText(names, len(l.Whole), p.IdleAfter), "")
	if is == wholly && p.ReclaimAfter > 0 {
		u.reclaim = l.Time.Add(p.ReclaimAfter)
		n.Text += fmt.Sprintf("; unless it works again it is stopped in %s", span(p.ReclaimAfter))
	}
	n.Key += fmt.Sprintf(" %d %d", is, u.atKey.Unix())
	return n, true, false
}

func idleText(names []string, of int, d time.Duration) string {
	s := "GPU " + names[0]
	if len(names) > 1 {
		s = "GPUs " + strings.Join(names, ", ")
	}
	if len(names) < of {
		s += fmt.Sprintf(" of its %d", of)
	}
	if len(names) > 1 {
		return s + " have done nothing for " + span(d)
	}
	return s + " has done nothing for " + span(d)
}
