package scheduler

import (
	"math"
	"time"
)

// Share is what an owner has had of the machine, and how much of it they may have beside others.
type Share struct {
	// Usage is in GPU-seconds, decayed to the time of the snapshot.
	Usage float64
	// Weight is how much more than others, with 1 each, the owner may have before they go after them; 0 counts as 1.
	Weight float64
}

// after is the owner's place among others, lowest first, when they are about to use so many GPU-seconds more.
func (s Share) after(more float64) float64 { return s.part(s.Usage + more) }

func (s Share) part(gpuSeconds float64) float64 {
	if s.Weight > 0 {
		return gpuSeconds / s.Weight
	}
	return gpuSeconds
}

// Usage is how much somebody has used of late: a sum that halves with every half-life, so that a busy month is
// forgiven in time. It is a number and its date, to be saved as they are; the zero value has used nothing.
type Usage struct {
	// GPUSeconds is the sum as of At.
	GPUSeconds float64   `json:"gpu_seconds"`
	At         time.Time `json:"at,omitzero"`
}

// AsOf is the sum at a later time, in GPU-seconds. A time before At (the clock was set back) and a half-life of 0
// decay nothing.
func (u Usage) AsOf(t time.Time, halfLife time.Duration) float64 {
	past := t.Sub(u.At)
	if past <= 0 || halfLife <= 0 || u.At.IsZero() {
		return u.GPUSeconds
	}
	return u.GPUSeconds * math.Exp2(-float64(past)/float64(halfLife))
}

// Charge adds the use of so many GPUs from one time to another, each moment decayed by its age, and brings the sum to
// the end of that time. It does not matter in how many pieces a use is charged. What ends before it begins adds nothing.
func (u Usage) Charge(gpus float64, from, to time.Time, halfLife time.Duration) Usage {
	used := to.Sub(from)
	if used <= 0 || gpus <= 0 {
		return u
	}
	more := gpus * used.Seconds()
	if halfLife > 0 {
		rate := math.Ln2 / halfLife.Seconds()
		more = gpus / rate * -math.Expm1(-rate*used.Seconds())
	}
	if to.Before(u.At) { // it was used before what is known: as much as is left of it
		return Usage{u.GPUSeconds + Usage{more, to}.AsOf(u.At, halfLife), u.At}
	}
	return Usage{u.AsOf(to, halfLife) + more, to}
}
