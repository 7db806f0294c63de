package scheduler

import (
	"time"

	"gputop/engine"
)

// Policy is what a site may choose.
type Policy struct {
	// AgeingStep is how long a job of a class waits before it counts as one class higher. Ageing ends at high, so that
	// critical stays a person's decision; a class without a step does not age.
	AgeingStep map[engine.Class]time.Duration
	// ForeignThreshold is how much memory (bytes) processes outside the queue may hold on a card that is given whole: a
	// display server is no obstacle, a colleague's training is.
	ForeignThreshold engine.Bytes
	// BackfillDepth is how many GPU jobs behind the first blocked one are tried.
	BackfillDepth int
}

// DefaultPolicy is the policy of a site that chose nothing.
func DefaultPolicy() Policy {
	return Policy{
		AgeingStep:       map[engine.Class]time.Duration{engine.Low: 12 * time.Hour, engine.Medium: 24 * time.Hour},
		ForeignThreshold: 512 * engine.MiB,
		BackfillDepth:    5000,
	}
}

// EffectiveClass is a job's class after ageing. A job that was queued in the future (the clock was set back) has not
// waited.
func EffectiveClass(j Pending, p Policy, now time.Time) engine.Class {
	c, waited := j.Class, now.Sub(j.Queued)
	for c < engine.High {
		step := p.AgeingStep[c]
		if step <= 0 || waited < step {
			break
		}
		waited -= step
		c++
	}
	return c
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
