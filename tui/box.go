package tui

import (
	"cmp"
	"slices"
	"time"

	"gputop/engine"
	"gputop/engine/api"
)

// link is how the daemon is reached now.
type link int

const (
	linkConnecting link = iota
	linkLive
	linkLost
)

// silence is how long a live link may bring nothing before its data counts as stale: samples come each second.
const silence = 4 * time.Second

// list names one of the job lists.
type list int

const (
	listRunning list = iota
	listQueue
	listEnded
	lists
)

// listOf is the list a job belongs to.
func listOf(j *api.Job) list {
	switch {
	case j.State.Active():
		return listRunning
	case j.State.Final():
		return listEnded
	}
	return listQueue
}

// box is the live state of the machine as the watch stream tells it. Lists are kept in order, so that drawing and
// keys never sort.
type box struct {
	info     api.Info
	known    bool // a snapshot has come
	gpus     api.GPUs
	past     past
	jobs     map[engine.JobID]*api.Job
	lists    [lists][]*api.Job
	onDevice map[engine.DeviceID][]*api.Job
	inbox    inbox

	link      link
	linkError error
	lastEvent time.Time
}

// apply takes one event of the stream. A job that stays in its place is changed in place.
func (b *box) apply(e api.WatchEvent, now time.Time) {
	b.link, b.linkError, b.lastEvent = linkLive, nil, now
	if e.Snapshot != nil {
		b.known, b.info, b.gpus = true, e.Snapshot.Info, e.Snapshot.GPUs
		b.seePast()
		b.jobs = make(map[engine.JobID]*api.Job, len(e.Snapshot.Jobs))
		b.lists = [lists][]*api.Job{}
		b.changeJobs(e.Snapshot.Jobs, nil)
	}
	if e.Notices != nil {
		b.inbox.apply(*e.Notices, e.Snapshot != nil)
	}
	if e.GPUs != nil {
		b.gpus = *e.GPUs
		b.seePast()
	}
	if len(e.Jobs)+len(e.Removed) > 0 {
		b.changeJobs(e.Jobs, e.Removed)
	}
}

func (b *box) changeJobs(changed []api.Job, removed []engine.JobID) {
	if b.jobs == nil {
		b.jobs = map[engine.JobID]*api.Job{}
	}
	var dirty, grown [lists]bool
	gone := map[*api.Job]bool{}
	for _, id := range removed {
		if j := b.jobs[id]; j != nil {
			gone[j], dirty[listOf(j)] = true, true
			delete(b.jobs, id)
		}
	}
	for i := range changed {
		j := &changed[i]
		old := b.jobs[j.ID]
		if old != nil && listOf(old) == listOf(j) && compareJobs(listOf(j), old, j) == 0 {
			*old = *j
			continue
		}
		if old != nil {
			gone[old], dirty[listOf(old)] = true, true
		}
		b.jobs[j.ID] = j
		b.lists[listOf(j)] = append(b.lists[listOf(j)], j)
		grown[listOf(j)] = true
	}
	for l := range b.lists {
		if dirty[l] {
			b.lists[l] = slices.DeleteFunc(b.lists[l], func(j *api.Job) bool { return gone[j] })
		}
		if grown[l] {
			slices.SortFunc(b.lists[l], func(x, y *api.Job) int { return compareJobs(list(l), x, y) })
		}
	}
	b.onDevice = map[engine.DeviceID][]*api.Job{}
	for _, j := range b.lists[listRunning] {
		for _, g := range j.Grants {
			b.onDevice[g.Device] = append(b.onDevice[g.Device], j)
		}
	}
}

// compareJobs orders a list: running by id, the queue by position, ended jobs newest first. It ends on the id.
func compareJobs(l list, x, y *api.Job) int {
	switch l {
	case listQueue:
		// Position 0 is a job that is not in line yet.
		p := func(j *api.Job) int { return (j.Position - 1) & (1<<31 - 1) }
		return cmp.Or(cmp.Compare(p(x), p(y)), cmp.Compare(x.ID, y.ID))
	case listEnded:
		return cmp.Or(y.Ended.Compare(x.Ended), cmp.Compare(y.ID, x.ID))
	}
	return cmp.Compare(x.ID, y.ID)
}

// stale says whether what is shown is old, and since when.
func (b *box) stale(now time.Time) (age time.Duration, old bool) {
	switch {
	case !b.known:
		return 0, false
	case b.link != linkLive || now.Sub(b.lastEvent) > silence:
		return now.Sub(b.lastEvent), true
	case b.gpus.Stale && !b.gpus.Time.IsZero():
		return now.Sub(b.gpus.Time), true
	}
	return 0, b.gpus.Stale
}

// asOf is the moment the shown state is from: now, or the last word when the link is gone.
func (b *box) asOf(now time.Time) time.Time {
	if b.link == linkLost && !b.lastEvent.IsZero() {
		return b.lastEvent
	}
	return now
}

// counts are the numbers of jobs that run and wait.
func (b *box) counts() (running, queued int) {
	return len(b.lists[listRunning]), len(b.lists[listQueue])
}

// mineGoingOn counts the caller's jobs that run or wait.
func (b *box) mineGoingOn() (n int) {
	for _, l := range []list{listRunning, listQueue} {
		for _, j := range b.lists[l] {
			if j.Mine {
				n++
			}
		}
	}
	return n
}

func (b *box) seePast() {
	if b.past == nil {
		b.past = past{}
	}
	b.past.add(&b.gpus)
}
