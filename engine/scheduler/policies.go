package scheduler

import (
	"time"

	"gputop/engine"
)

// The named policies.
const (
	Balanced   = "balanced"
	Urgent     = "urgent"
	Throughput = "throughput"
)

// PolicyNames lists them, the default first.
var PolicyNames = []string{Balanced, Urgent, Throughput}

// DefaultPolicy is the policy of a site that chose nothing: balanced.
func DefaultPolicy() Policy {
	p, _ := NamedPolicy(Balanced)
	return p
}

// NamedPolicy is a policy by its name.
func NamedPolicy(name string) (Policy, bool) {
	day := 24 * time.Hour
	p := Policy{
		AgeingStep:       map[engine.Class]time.Duration{engine.Low: 2 * day, engine.Medium: 10 * day, engine.High: day},
		ForeignThreshold: 512 * engine.MiB,
		Reservations:     1,
		BackfillDepth:    5000,
		HalfLife:         7 * day,
		ShareAhead:       time.Hour,
		Estimates:        100,
		Preemption: Preemption{By: engine.High, Of: []engine.Class{engine.Low}, Wait: 5 * time.Minute, WaitFree: 90 * time.Second,
			Loss: 3600, LossPerWait: 1, MinRun: 5 * time.Minute, Most: 6, PerHour: 30, Grace: 30 * time.Second},
	}
	switch name {
	case Balanced:
	case Urgent:
		p.Patience = 4 * time.Minute
		p.Loss = -1
	case Throughput:
		// Age counts for more than class, so that what needs the whole box runs while there is much to run beside it.
		p.AgeingStep = map[engine.Class]time.Duration{engine.Low: day / 4, engine.Medium: day / 2, engine.High: day / 2}
		p.By = 0
	default:
		return Policy{}, false
	}
	return p, true
}
