package daemon

import (
	"time"

	"gputop/engine"
	"gputop/engine/scheduler"
)

// Policy is what an admin may set. The zero value is not usable: start from DefaultPolicy.
type Policy struct {
	Profile   string
	Class     engine.Class
	TimeLimit time.Duration
	// StopGrace is how long a program has between the polite signal and the kill.
	StopGrace time.Duration
	// MaxPending is how many jobs one user may have waiting.
	MaxPending int
	// AdminGroup is the Unix group whose members may act on everybody's jobs; root always may.
	AdminGroup string
	Scheduler  scheduler.Policy
}

// DefaultPolicy is what holds without a configuration.
func DefaultPolicy() Policy {
	return Policy{
		Profile: "host-env", Class: engine.Medium, TimeLimit: 24 * time.Hour, StopGrace: 30 * time.Second,
		MaxPending: 20000, AdminGroup: "gputop-admin", Scheduler: scheduler.DefaultPolicy(),
	}
}
