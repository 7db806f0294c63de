package scheduler

import (
	"time"

	"gputop/engine"
)

// entry is a pending job's place in the order: class after ageing, then age, then id, which makes the order total.
type entry struct {
	class  engine.Class
	queued int64 // Unix nanoseconds
	job    engine.JobID
	index  int // in Snapshot.Pending
}

func (a *entry) before(b *entry) bool {
	if a.class != b.class {
		return a.class > b.class
	}
	if a.queued != b.queued {
		return a.queued < b.queued
	}
	if a.job != b.job {
		return a.job < b.job
	}
	return a.index < b.index
}

// queue is a binary heap: the job to run first is at the root.
type queue []entry

func newQueue(pending []Pending, p Policy, now time.Time) queue {
	q := make(queue, len(pending))
	for i := range pending {
		j := &pending[i]
		q[i] = entry{EffectiveClass(*j, p, now), j.Queued.UnixNano(), j.Job, i}
	}
	for i := len(q)/2 - 1; i >= 0; i-- {
		q.down(i)
	}
	return q
}

func (q *queue) pop() entry {
	h := *q
	top, last := h[0], len(h)-1
	h[0] = h[last]
	*q = h[:last]
	q.down(0)
	return top
}

func (q queue) down(i int) {
	for {
		c := 2*i + 1
		if c >= len(q) {
			return
		}
		if c+1 < len(q) && q[c+1].before(&q[c]) {
			c++
		}
		if !q[c].before(&q[i]) {
			return
		}
		q[i], q[c] = q[c], q[i]
		i = c
	}
}
