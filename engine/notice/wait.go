package notice

import (
	"container/heap"
	"time"

	"gputop/engine"
)

// Waits are told in the order in which they fall due, so that a look costs what has fallen due and not what waits.

// Queue knows since when which job waits. The zero value is empty.
type Queue struct{ list dueList }

// Wait is a job with since when it waits.
type Wait struct {
	Job   engine.JobID
	Since time.Time
}

type dueList []Wait

func (l dueList) Len() int           { return len(l) }
func (l dueList) Less(i, j int) bool { return l[i].Since.Before(l[j].Since) }
func (l dueList) Swap(i, j int)      { l[i], l[j] = l[j], l[i] }
func (l *dueList) Push(v any)        { *l = append(*l, v.(Wait)) }
func (l *dueList) Pop() any {
	last := len(*l) - 1
	v := (*l)[last]
	*l = (*l)[:last]
	return v
}

// Add notes since when a job waits. A job that leaves the queue stays noted until it would be due: who takes it looks
// whether it still waits.
func (q *Queue) Add(w Wait) { heap.Push(&q.list, w) }

// Take gives the jobs that wait since then or longer, the longest first, at most n; the rest stay.
func (q *Queue) Take(since time.Time, n int) (out []Wait) {
	for len(out) < n && len(q.list) > 0 && !q.list[0].Since.After(since) {
		out = append(out, heap.Pop(&q.list).(Wait))
	}
	return out
}

// Len is how many jobs are noted.
func (q *Queue) Len() int { return len(q.list) }
