// Package replay plays a workload through the scheduler on virtual time, and says how long jobs waited and how well the
// GPUs were used: the same scheduler.Compute as the daemon's, so that a policy can be tried on a year in a second. It
// is for planning and proof; it must not read clocks, and what it plays has no side effects.
package replay

import (
	"fmt"
	"time"

	"gputop/engine"
	"gputop/engine/scheduler"
)

// Job is one job of a workload.
type Job struct {
	Arrival  time.Duration // since the beginning
	Duration time.Duration // how long its program really runs
	// GPUs are whole devices; with one, Fraction says how much of it, in (0, 1].
	GPUs     int
	Fraction engine.Fraction
	Class    engine.Class
	User     uint32
	// Limit is its time limit; 0 when it is not known.
	Limit time.Duration
}

// work is in seconds of a whole GPU.
func (j *Job) work() float64 { return j.Duration.Seconds() * j.size() }

func (j *Job) size() float64 { return float64(j.GPUs) * float64(j.Fraction) }

// request is what the job asks the scheduler for.
func (j *Job) request() engine.Request {
	if j.GPUs == 1 && j.Fraction < 1 {
		return engine.Request{GPUFraction: j.Fraction}
	}
	return engine.Request{GPUs: j.GPUs}
}

// Options are how a workload is played.
type Options struct {
	GPUs   int
	Memory engine.Bytes // of each GPU
	Policy scheduler.Policy
	Limits Limits
	// Seed is for what Limits draws.
	Seed uint64
	// Checkpoint has every job go on, after a preemption, where it was stopped.
	Checkpoint bool
	// Start is how long a start takes after the decision; the time a victim takes is the policy's Grace.
	Start time.Duration
}

// StartLatency is how long a start takes in the standard replay.
const StartLatency = 5 * time.Second

// epoch is when a replay begins; any time would do.
var epoch = time.Unix(0, 0).UTC()

// run is a replay under way.
type run struct {
	o    Options
	jobs []Job
	now  time.Time
	snap scheduler.Snapshot
	held []running // beside snap.Held
	left []time.Duration
	next int // the next arrival
	// usage is by user; gpus is what each holds.
	usage map[uint32]scheduler.Usage
	gpus  map[uint32]float64
	// stops is how often each job was preempted.
	stops    []int
	limits   []time.Duration
	again    time.Time
	finished int
	out      Result
	ended    []time.Time
	promised map[engine.JobID]bool
	recent   []time.Time
}

// running is a job on the box.
type running struct {
	index  int
	runs   time.Time // when its program begins
	ends   time.Time // when its devices are free
	victim bool
}

// Play plays a workload to its end.
func Play(jobs []Job, o Options) (Result, error) {
	r, err := newRun(jobs, o)
	if err != nil {
		return Result{}, err
	}
	for r.finished < len(jobs) {
		if !r.step() {
			return Result{}, fmt.Errorf("at %s %d jobs wait and nothing runs: they ask for more than the box has", r.now.Sub(epoch), len(r.snap.Pending))
		}
	}
	return r.result(), nil
}

func newRun(jobs []Job, o Options) (*run, error) {
	r := &run{o: o, jobs: jobs, now: epoch, usage: map[uint32]scheduler.Usage{}, gpus: map[uint32]float64{},
		stops: make([]int, len(jobs)), left: make([]time.Duration, len(jobs)), ended: make([]time.Time, len(jobs)),
		promised: map[engine.JobID]bool{}}
	r.o.Policy.Estimates = 0
	r.snap = scheduler.Snapshot{DevicesKnown: true}
	for i := range o.GPUs {
		r.snap.Devices = append(r.snap.Devices, scheduler.Device{ID: engine.DeviceID(fmt.Sprintf("GPU-%d", i)), Index: i, Usable: o.Memory})
	}
	for i := range jobs {
		r.left[i] = jobs[i].Duration
		if err := scheduler.Possible(r.snap, jobs[i].request()); err != nil {
			return nil, fmt.Errorf("job %d of the workload %w", i+1, err)
		}
	}
	r.limits = o.Limits.of(jobs, o.Seed)
	return r, nil
}

// step goes to the next moment at which something happens, and plans there; false when there is none.
func (r *run) step() bool {
	var next time.Time
	sooner := func(t time.Time) {
		if next.IsZero() || t.Before(next) {
			next = t
		}
	}
	if r.next < len(r.jobs) {
		sooner(epoch.Add(r.jobs[r.next].Arrival))
	}
	for i := range r.held {
		sooner(r.held[i].ends)
	}
	if !r.again.IsZero() && len(r.snap.Pending) > 0 {
		sooner(r.again)
	}
	if next.IsZero() {
		return false
	}
	r.advance(next)
	r.end()
	r.arrive()
	r.plan()
	return true
}

// advance charges what was held meanwhile.
func (r *run) advance(to time.Time) {
	for user, gpus := range r.gpus {
		r.usage[user] = r.usage[user].Charge(gpus, r.now, to, r.o.Policy.HalfLife)
	}
	r.now = to
}

// end takes off the box what is over, and puts victims back into the queue.
func (r *run) end() {
	kept := 0
	for i, h := range r.held {
		if h.ends.After(r.now) {
			r.held[kept], r.snap.Held[kept] = h, r.snap.Held[i]
			kept++
			continue
		}
		j := &r.jobs[h.index]
		r.gpus[j.User] -= j.size()
		if h.victim {
			r.enqueue(h.index)
		} else {
			r.ended[h.index] = r.now
			r.finished++
		}
	}
	r.held, r.snap.Held = r.held[:kept], r.snap.Held[:kept]
}

func (r *run) arrive() {
	for r.next < len(r.jobs) && !epoch.Add(r.jobs[r.next].Arrival).After(r.now) {
		r.enqueue(r.next)
		r.next++
	}
}

func jobID(index int) engine.JobID { return engine.JobID(index + 1) }

func (r *run) enqueue(i int) {
	j := &r.jobs[i]
	r.snap.Pending = append(r.snap.Pending, scheduler.Pending{Job: jobID(i), Owner: j.User, Class: j.Class,
		Queued: epoch.Add(j.Arrival), Request: j.request(), TimeLimit: r.limits[i]})
}

// plan makes a plan and does what it says.
func (r *run) plan() {
	r.snap.Shares = map[uint32]scheduler.Share{}
	for user, u := range r.usage {
		r.snap.Shares[user] = scheduler.Share{Usage: u.AsOf(r.now, r.o.Policy.HalfLife)}
	}
	for len(r.recent) > 0 && r.now.Sub(r.recent[0]) >= time.Hour {
		r.recent = r.recent[1:]
	}
	r.snap.Preempted = r.recent
	for i := range r.snap.Pending {
		r.snap.Pending[i].Promised = r.promised[r.snap.Pending[i].Job]
	}
	p := scheduler.Compute(r.snap, r.o.Policy, r.now)
	for _, v := range p.Preempt {
		r.stop(v)
	}
	started := map[engine.JobID]bool{}
	for _, s := range p.Start {
		started[s.Job] = true
		r.start(s)
	}
	if len(started) > 0 {
		kept := r.snap.Pending[:0]
		for _, j := range r.snap.Pending {
			if !started[j.Job] {
				kept = append(kept, j)
			}
		}
		r.snap.Pending = kept
	}
	r.again = p.Again
}

func (r *run) start(s scheduler.Start) {
	i := int(s.Job) - 1
	j := &r.jobs[i]
	delete(r.promised, s.Job)
	begins := r.now.Add(r.o.Start)
	h := scheduler.Held{Job: s.Job, Owner: j.User, Class: j.Class, Allocation: s.Allocation, Started: begins,
		Preemptions: r.stops[i], Checkpoints: r.o.Checkpoint}
	h.Allocation.State = engine.Active
	if r.limits[i] > 0 {
		h.End = begins.Add(r.limits[i])
	}
	r.snap.Held = append(r.snap.Held, h)
	r.held = append(r.held, running{index: i, runs: begins, ends: begins.Add(r.left[i])})
	r.gpus[j.User] += j.size()
}

// stop makes a running job a victim: its devices are free after the grace.
func (r *run) stop(p scheduler.Preempt) {
	for k := range r.held {
		h := &r.held[k]
		if jobID(h.index) != p.Victim {
			continue
		}
		ran := max(0, r.now.Sub(h.runs))
		if r.o.Checkpoint {
			r.left[h.index] -= ran
			if r.limits[h.index] > 0 {
				r.limits[h.index] = max(time.Second, r.limits[h.index]-ran)
			}
		} else {
			r.out.WastedGPUSeconds += ran.Seconds() * r.jobs[h.index].size()
		}
		h.victim, h.ends = true, r.now.Add(r.o.Policy.Grace)
		r.snap.Held[k].Stopping, r.snap.Held[k].For = true, p.For
		r.stops[h.index]++
		r.out.Preemptions++
		r.recent = append(r.recent, r.now)
		r.promised[p.For] = true
	}
}
