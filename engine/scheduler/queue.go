package scheduler

import (
	"cmp"
	"container/heap"
	"math"
	"slices"
	"time"

	"gputop/engine"
)

// rank is a job's place before its share and age count: its class after ageing and, above the classes, who goes first
// whatever the class.
type rank int

// The ranks. Who has aged past high goes before every high job, by age alone; and before critical ones, who is promised
// the place of jobs that are being stopped.
const (
	rankHigh     = rank(engine.High)
	rankOverdue  = rankHigh + 1
	rankCritical = rankHigh + 2
	rankPromised = rankHigh + 3
)

func rankOf(j *Pending, p Policy, now time.Time) rank {
	class, waited := aged(j, p, now)
	step := p.AgeingStep[engine.High]
	switch {
	case class == engine.Critical:
		return rankCritical
	case class == engine.High && step > 0 && waited >= step:
		return rankOverdue
	}
	return rank(class)
}

// entry is a pending job's place: its lane, and there age, then id, which makes the order total.
type entry struct {
	// lane is the rank, higher first, and the owner: 0 for everybody where shares do not count.
	lane   uint64
	queued int64 // Unix nanoseconds
	job    engine.JobID
	index  int // in Snapshot.Pending
}

func laneOf(r rank, owner uint32) uint64 { return uint64(rankPromised-r)<<32 | uint64(owner) }

func (a *entry) rank() rank { return rankPromised - rank(a.lane>>32) }

func (a *entry) compare(b *entry) int {
	switch {
	case a.queued != b.queued:
		return cmp.Compare(a.queued, b.queued)
	case a.job != b.job:
		return cmp.Compare(a.job, b.job)
	}
	return cmp.Compare(a.index, b.index)
}

// lane is one owner's jobs of one rank, first to run first.
type lane struct {
	jobs []entry
	// share is what the owner had of the machine by weight: who had less goes first.
	share float64
	at    int // in the heap; -1 when it is empty
}

// shareStep is the difference of use, in GPU-seconds, from which it decides: of who used about as much, who came first is
// first.
const shareStep = 60

// level is the owner's share in steps.
func (a *lane) level() float64 { return math.Floor(a.share / shareStep) }

func (a *lane) before(b *lane) bool {
	x, y := &a.jobs[0], &b.jobs[0]
	switch {
	case x.rank() != y.rank():
		return x.rank() > y.rank()
	case a.level() != b.level():
		return a.level() < b.level()
	}
	return x.compare(y) < 0
}

// lanes is a binary heap: the lane with the job to run first is at the root.
type lanes []*lane

func (l lanes) Len() int           { return len(l) }
func (l lanes) Less(i, k int) bool { return l[i].before(l[k]) }
func (l lanes) Swap(i, k int)      { l[i], l[k] = l[k], l[i]; l[i].at, l[k].at = i, k }
func (l *lanes) Push(x any)        { *l = append(*l, x.(*lane)) }
func (l *lanes) Pop() any {
	last := (*l)[len(*l)-1]
	*l, last.at = (*l)[:len(*l)-1], -1
	return last
}

// queue gives the pending jobs in order: rank, fair share, age, id. The order follows what starts meanwhile: a start
// counts against its owner at once, so that nobody fills an empty box because they are first by a hair.
type queue struct {
	lanes lanes
	// of are the lanes of each owner; nil without fair shares.
	of     map[uint32][]*lane
	shares map[uint32]Share
}

func newQueue(s *Snapshot, p Policy, now time.Time, promised map[engine.JobID][]int) *queue {
	all := make([]entry, len(s.Pending))
	for i := range s.Pending {
		j := &s.Pending[i]
		r, owner := rankOf(j, p, now), uint32(0)
		if j.Promised || len(promised[j.Job]) > 0 {
			r = rankPromised
		}
		if s.Shares != nil && r != rankOverdue {
			owner = j.Owner
		}
		all[i] = entry{laneOf(r, owner), j.Queued.UnixNano(), j.Job, i}
	}
	slices.SortFunc(all, func(a, b entry) int {
		if a.lane != b.lane {
			return cmp.Compare(a.lane, b.lane)
		}
		return a.compare(&b)
	})
	q := &queue{shares: s.Shares}
	var held map[uint32]int64
	if s.Shares != nil {
		q.of, held = map[uint32][]*lane{}, heldMilliGPUs(s.Held)
	}
	for from := 0; from < len(all); {
		first, to := &all[from], from+1
		for to < len(all) && all[to].lane == first.lane {
			to++
		}
		l := &lane{jobs: all[from:to:to], at: len(q.lanes)}
		if q.of != nil && first.rank() != rankOverdue {
			owner := uint32(first.lane)
			l.share = s.Shares[owner].after(ahead(held[owner], p))
			q.of[owner] = append(q.of[owner], l)
		}
		q.lanes = append(q.lanes, l)
		from = to
	}
	heap.Init(&q.lanes)
	return q
}

func (q *queue) empty() bool { return len(q.lanes) == 0 }

// pop takes the next job out: its index in Snapshot.Pending.
func (q *queue) pop() int {
	l := q.lanes[0]
	index := l.jobs[0].index
	if l.jobs = l.jobs[1:]; len(l.jobs) == 0 {
		heap.Pop(&q.lanes)
	} else {
		heap.Fix(&q.lanes, 0)
	}
	return index
}

// charge counts a start against its owner.
func (q *queue) charge(owner uint32, milliGPUs int64, p Policy) {
	for _, l := range q.of[owner] {
		if l.at >= 0 {
			l.share += q.shares[owner].part(ahead(milliGPUs, p))
			heap.Fix(&q.lanes, l.at)
		}
	}
}

// heldMilliGPUs is what each owner holds now.
func heldMilliGPUs(held []Held) map[uint32]int64 {
	out := map[uint32]int64{}
	for i := range held {
		out[held[i].Owner] += amountOf(held[i].Allocation).milliGPUs
	}
	return out
}

// ahead is what holding so much counts for before it is used, in GPU-seconds.
func ahead(milliGPUs int64, p Policy) float64 {
	return float64(milliGPUs) / 1000 * p.ShareAhead.Seconds()
}
