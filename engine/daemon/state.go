package daemon

import (
	"cmp"
	"slices"
	"time"

	"gputop/engine"
	"gputop/engine/api"
	"gputop/engine/store"
)

// recentEnded is how many ended jobs stay in the live list; older ones are read from the store when asked for.
const recentEnded = 200

// entry is a live job with what is derived of it.
type entry struct {
	job      engine.Job
	reason   *engine.Reason
	position int
	// unmet are the jobs that have to end before its turn.
	unmet []engine.Dependency
	// expected is when it should start, as of the last plan; zero when nobody can tell.
	expected time.Time
	progress string
	// away is why the owner's agent could not prepare it; empty when it answered last.
	away string
	// view is what the owner sees; made anew at each change, never changed in place.
	view *api.Job
	// stop is told when the job's attempt has to stop; nil while none is under way.
	stop chan struct{}
	// unsaved is a stop that is under way and that the disk has not taken yet; nil for none.
	unsaved *unsavedStop
	// waiters are closed when the job is final.
	waiters []chan struct{}
}

// state is everything the loop owns.
type state struct {
	jobs map[engine.JobID]*entry
	// attempts are those that hold an allocation, and the newest one of each live job.
	attempts map[engine.AttemptID]*engine.Attempt
	// ended lists the ended jobs in the live list, oldest first.
	ended   []engine.JobID
	queued  int
	pending map[uint32]int // queued jobs by uid
	// owners are those of jobs that are not over, with how many each has.
	owners map[engine.User]int

	sample     engine.Sample
	samples    int   // how many came
	sampleBoot int64 // when it came, CLOCK_BOOTTIME nanoseconds
	stale      bool
	devices    map[engine.DeviceID]*deviceState
	// unresolvable says of cards why no container can be given them.
	unresolvable map[engine.DeviceID]string
}

// deviceState is what the loop derives of one card from the newest sample.
type deviceState struct {
	foreign engine.Bytes
	// processes counts those outside the queue.
	foreignProcesses int
	// actual is what each attempt's processes hold, in bytes.
	actual map[engine.AttemptID]engine.Bytes
	// sm is the share of SMs that they have at work, where that is known.
	sm     map[engine.AttemptID]float64
	unlock func() // of the machine-wide lock, while an attempt holds the card
	// elsewhere is until when the card counts as given out by another daemon, CLOCK_BOOTTIME nanoseconds.
	elsewhere int64
}

func newState(live store.Live, ended []engine.Job) *state {
	s := &state{jobs: map[engine.JobID]*entry{}, attempts: map[engine.AttemptID]*engine.Attempt{},
		pending: map[uint32]int{}, owners: map[engine.User]int{}, devices: map[engine.DeviceID]*deviceState{}}
	for _, j := range slices.Backward(ended) {
		s.jobs[j.ID] = &entry{job: j}
		s.ended = append(s.ended, j.ID)
	}
	for _, j := range live.Jobs {
		if s.jobs[j.ID] == nil {
			s.jobs[j.ID] = &entry{job: j}
			if j.State.Final() { // ended long ago, and an attempt of it still holds something
				s.ended = append(s.ended, j.ID)
			}
		}
		if j.State.Queued() {
			s.queued++
			s.pending[j.Owner.UID]++
		}
		if !j.State.Final() {
			s.owners[j.Owner]++
		}
	}
	for _, a := range live.Attempts {
		s.attempts[a.ID] = &a
	}
	return s
}

// put makes a persisted change the state.
func (s *state) put(e *entry, c *change) {
	was, is := e.job.State.Queued(), c.job.State.Queued()
	if was != is {
		n := 1
		if was {
			n = -1
		}
		s.queued += n
		s.pending[c.job.Owner.UID] += n
		e.reason, e.position, e.expected = nil, 0, time.Time{}
	}
	if !e.job.State.Final() && c.job.State.Final() {
		s.ended = append(s.ended, c.job.ID)
		if s.owners[c.job.Owner]--; s.owners[c.job.Owner] <= 0 {
			delete(s.owners, c.job.Owner)
		}
		for _, w := range e.waiters {
			close(w)
		}
		e.waiters = nil
	}
	e.job = c.job
	if c.attempt != nil {
		s.attempts[c.attempt.ID] = c.attempt
	}
}

// add takes in a new job.
func (s *state) add(j engine.Job) *entry {
	e := &entry{job: j}
	s.jobs[j.ID] = e
	s.queued++
	s.pending[j.Owner.UID]++
	s.owners[j.Owner]++
	return e
}

// trim drops ended jobs beyond the recent ones, and attempts nobody needs, and returns the jobs dropped.
func (s *state) trim() []engine.JobID {
	var gone []engine.JobID
	for len(s.ended) > recentEnded {
		id := s.ended[0]
		if s.holds(id) {
			break
		}
		s.ended = s.ended[1:]
		s.drop(id)
		gone = append(gone, id)
	}
	return gone
}

// forgetEnded drops an ended job that the store has no more.
func (s *state) forgetEnded(id engine.JobID) {
	s.ended = slices.DeleteFunc(s.ended, func(j engine.JobID) bool { return j == id })
	s.drop(id)
}

func (s *state) drop(id engine.JobID) {
	delete(s.jobs, id)
	for a := range s.attempts {
		if a.Job == id {
			delete(s.attempts, a)
		}
	}
}

// workAhead says whether a user has work before a job (0: a new one) that may still make what that job needs.
func (s *state) workAhead(uid uint32, id engine.JobID) bool {
	for _, e := range s.jobs {
		if e.job.Owner.UID == uid && !e.job.State.Final() && (id == 0 || e.job.ID < id) {
			return true
		}
	}
	return false
}

// holds says whether any attempt of the job still holds devices.
func (s *state) holds(id engine.JobID) bool {
	for aid, a := range s.attempts {
		if aid.Job == id && a.Allocation.State.Holds() {
			return true
		}
	}
	return false
}

// newest is the job's newest attempt, or nil.
func (s *state) newest(j *engine.Job) *engine.Attempt {
	if j.Attempts == 0 {
		return nil
	}
	return s.attempts[engine.AttemptID{Job: j.ID, Number: j.Attempts}]
}

// sortedAttempts lists the attempts in a fixed order.
func (s *state) sortedAttempts() []*engine.Attempt {
	list := make([]*engine.Attempt, 0, len(s.attempts))
	for _, a := range s.attempts {
		list = append(list, a)
	}
	slices.SortFunc(list, func(a, b *engine.Attempt) int {
		return cmp.Or(cmp.Compare(a.ID.Job, b.ID.Job), cmp.Compare(a.ID.Number, b.ID.Number))
	})
	return list
}
