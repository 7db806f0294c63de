package daemon

import (
	"time"

	"gputop/cdi/gate"
	"gputop/engine"
	"gputop/engine/notice"
	"gputop/engine/quota"
	"gputop/engine/scheduler"
)

// Policy is what an admin may set. The zero value is not usable: start from DefaultPolicy.
type Policy struct {
	Profile   string
	Class     engine.Class
	TimeLimit time.Duration
	// StopGrace is how long a program has between the polite signal and the kill.
	StopGrace time.Duration
	// People are the rules for users and groups; what they do not speak of is as above and below.
	People quota.Policy
	// MaxPending is how many jobs one user may have waiting.
	MaxPending int
	// AdminGroup is the Unix group whose members may act on everybody's jobs; root always may.
	AdminGroup string
	// Scheduler says who starts first, and who gives way: by itself, and when somebody asks for it.
	Scheduler scheduler.Policy
	// Gate is what is done about use of the cards outside the queue; in shared mode alone.
	Gate gate.Mode
	// Guard is what is done about jobs that hold more GPU memory than their share, and GuardGrace how long one may go on.
	Guard      Guard
	GuardGrace time.Duration
	// LogLimit is how much of the end of an attempt's output is kept, in bytes as Podman writes it; 0 keeps all.
	LogLimit engine.Bytes
	// KeepEnded is how many ended jobs the machine remembers; 0 keeps all.
	KeepEnded int
	// KeepLogs is how long after a job's end its output and checkpoints are kept; 0 is for as long as the job is known.
	KeepLogs time.Duration
	// ImageArchives is a directory in which users' agents look for images before they ask a registry; empty for none.
	// ReadyImages are those an admin keeps there for everybody, by their full names.
	ImageArchives string
	ReadyImages   []string
	// Notices says when owners are told what, and when an idle job is stopped.
	Notices notice.Policy
}

// DefaultPolicy is what holds without a configuration.
func DefaultPolicy() Policy {
	return Policy{
		Profile: "host-env", Class: engine.Medium, TimeLimit: 24 * time.Hour, StopGrace: 30 * time.Second,
		MaxPending: 20000, AdminGroup: "gputop-admin", Scheduler: scheduler.DefaultPolicy(),
		Gate: gate.Observe, Guard: GuardWarn, GuardGrace: time.Minute, LogLimit: 1 << 30, KeepEnded: 5000, KeepLogs: 30 * 24 * time.Hour,
		Notices: notice.DefaultPolicy(),
	}
}
