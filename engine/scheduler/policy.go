package scheduler

import (
	"time"

	"gputop/engine"
)

// Policy is what a site may choose.
type Policy struct {
	// AgeingStep is how long a job of a class waits before it counts as one class higher; a class without a step does not
	// age. Critical stays a person's decision: after the step of high a job goes before all others but critical ones, by
	// age, so that the steps from its class on are the longest it waits for its turn.
	AgeingStep map[engine.Class]time.Duration
	// ForeignThreshold is how much memory (bytes) processes outside the queue may hold on a card that is given whole: a
	// display server is no obstacle, a colleague's training is.
	ForeignThreshold engine.Bytes
	// Reservations is for how many blocked GPU jobs a place is kept, which those behind do not take: for the first, and
	// for later ones that are larger than all before. With one only, a job that needs the whole box loses what was cleared
	// for it whenever a smaller one ahead of it has to wait.
	Reservations int
	// BackfillDepth is how many GPU jobs behind the first blocked one are tried.
	BackfillDepth int
	// HalfLife is how long it takes until half of what an owner used is forgiven.
	HalfLife time.Duration
	// ShareAhead is for how long, in the order of owners, what somebody holds counts as used already.
	ShareAhead time.Duration
	// Estimates is for how many pending jobs, from the front, a start is estimated.
	Estimates int
	Preemption
}

// Preemption says when running jobs are stopped for waiting ones without anybody asking for it.
type Preemption struct {
	// By is the lowest class whose waiting jobs have others stopped; 0 is none. Only what the job was submitted with
	// counts: ageing lets nobody stop others.
	By engine.Class
	// Of are the classes whose running jobs give way, to jobs of a higher class.
	Of []engine.Class
	// Wait is what a job of such a class may wait: others are stopped when its start is expected later than this after it
	// was queued, or when nobody can tell.
	Wait time.Duration
	// WaitFree is the same where the others lose nothing.
	WaitFree time.Duration
	// Patience is how long it waits in any case before work is thrown away: much ends by itself.
	Patience time.Duration
	// Loss bounds the work that is thrown away for one job, in GPU-seconds: Loss, and LossPerWait for each second that each
	// of its GPUs would wait else. A negative Loss is no bound.
	Loss, LossPerWait float64
	// MinRun protects what has not run for so long, unless it loses nothing.
	MinRun time.Duration
	// Most is how often a job is stopped before it is left in peace, and PerHour how many are in an hour; 0 is no bound.
	Most, PerHour int
	// Grace is how long a victim takes to be gone.
	Grace time.Duration
}

// EffectiveClass is a job's class after ageing. A job that was queued in the future (the clock was set back) has not
// waited.
func EffectiveClass(j Pending, p Policy, now time.Time) engine.Class {
	c, _ := aged(&j, p, now)
	return c
}

// LongestWait is how long a job of a class waits at most for its turn, that is until only critical jobs, and those that
// waited longer still, go before it; false without a bound. It then starts as soon as what runs has made room, which time
// limits bound.
func (p Policy) LongestWait(c engine.Class) (time.Duration, bool) {
	var sum time.Duration
	for ; c <= engine.High; c++ {
		if p.AgeingStep[c] <= 0 {
			return 0, false
		}
		sum += p.AgeingStep[c]
	}
	return sum, true
}

// aged is a job's class after ageing, and how long it has waited in that class.
func aged(j *Pending, p Policy, now time.Time) (engine.Class, time.Duration) {
	c, waited := j.Class, now.Sub(j.Queued)
	for c < engine.High {
		step := p.AgeingStep[c]
		if step <= 0 || waited < step {
			break
		}
		waited -= step
		c++
	}
	return c, waited
}

// The default host share. A job with GPUs that names no CPU or memory gets the part of the host that its part of all
// GPUs is, out of seven eighths: the rest stays for jobs without a GPU, which must not wait for a full house. A job
// without a GPU gets one core and 2 GiB. On small boxes both are less. A default is a wish: when explicit requests of
// others have used the host up, the job takes what is left, down to a floor, instead of leaving a GPU idle. The floor
// of memory is half the share, since a job short of memory dies, where one short of CPU is only slow.
const (
	gpuHostPart    = 7.0 / 8
	plainMilli     = 1000
	plainMemory    = 2 * engine.GiB
	smallBoxMilli  = 4  // a job without a GPU gets at most this part of the cores,
	smallBoxMemory = 8  // and this part of the memory
	leastPart      = 16 // and every job at least one in so many, or the plain default
)

// host is an amount of the machine: CPU in thousandths of a core, so that sums are exact, and memory.
type host struct {
	milli  int64
	memory engine.Bytes
}

// defaultHost is the share that goes with a part of all GPUs in [0, 1], and the least that will do.
func defaultHost(total host, part float64, gpus int) (want, least host) {
	floorMilli := min(plainMilli, total.milli/leastPart)
	floorMemory := min(plainMemory, total.memory/leastPart)
	if part <= 0 {
		want = host{min(plainMilli, total.milli/smallBoxMilli), min(plainMemory, total.memory/smallBoxMemory)}
	} else {
		want = host{
			max(floorMilli, int64(part*gpuHostPart*float64(total.milli))),
			max(floorMemory, engine.Bytes(part*gpuHostPart*float64(total.memory))),
		}
	}
	want.memory = want.memory / engine.MiB * engine.MiB
	least.milli = min(want.milli, floorMilli*int64(max(1, gpus)))
	least.memory = min(want.memory, max(floorMemory, want.memory/2)) / engine.MiB * engine.MiB
	return want, least
}
