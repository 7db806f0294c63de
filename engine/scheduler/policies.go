package scheduler

import (
	"time"

	"gputop/engine"
)

// The named policies.
const (
	Balanced = "balanced"
	Urgent   = "urgent"
)

// PolicyNames lists them, the default first.
var PolicyNames = []string{Balanced, Urgent}

// DefaultPolicy is the policy of a site that chose nothing: balanced.
func DefaultPolicy() Policy {
	p, _ := NamedPolicy(Balanced)
	return p
}

// NamedPolicy is a policy by its name.
func NamedPolicy(name string) (Policy, bool) {
	p := Policy{
		AgeingStep:       map[engine.Class]time.Duration{engine.Low: 12 * time.Hour, engine.Medium: 24 * time.Hour},
		ForeignThreshold: 512 * engine.MiB,
		BackfillDepth:    5000,
		HalfLife:         7 * 24 * time.Hour,
		ShareAhead:       time.Hour,
		Estimates:        100,
		Preemption: Preemption{By: engine.High, Of: []engine.Class{engine.Low}, Wait: 5 * time.Minute,
			Loss: 3600, MinRun: 5 * time.Minute, Most: 3, PerHour: 30, Grace: 30 * time.Second},
	}
	switch name {
	case Balanced:
	case Urgent:
		p.Loss = -1
	default:
		return Policy{}, false
	}
	return p, true
}
