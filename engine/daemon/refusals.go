package daemon

import (
	"sync"
	"time"
)

// How many refusals of one user are written down: so many at once, and so many a minute over time. Each is a write to the
// disk that others wait behind.
const (
	refusalBurst     = 120
	refusalPerMinute = 60
)

// refusals counts what each user was refused. Its zero value is ready.
type refusals struct {
	mu sync.Mutex
	of map[uint32]*refusalCount
}

type refusalCount struct {
	left float64
	at   time.Time
	// unwritten are those since the last that was written down.
	unwritten int
}

// take says whether another refusal of a user is written down, and how many before it were not.
func (r *refusals) take(uid uint32, now time.Time) (write bool, unwritten int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.of == nil {
		r.of = map[uint32]*refusalCount{}
	}
	c := r.of[uid]
	if c == nil {
		c = &refusalCount{left: refusalBurst, at: now}
		r.of[uid] = c
	}
	c.left = min(refusalBurst, c.left+max(0, now.Sub(c.at).Minutes())*refusalPerMinute)
	c.at = now
	if c.left < 1 {
		c.unwritten++
		return false, 0
	}
	c.left--
	unwritten, c.unwritten = c.unwritten, 0
	return true, unwritten
}
