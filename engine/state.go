package engine

import "fmt"

// JobState is where a job stands.
type JobState string

// The states of a job. The last five are final.
const (
	Pending   JobState = "pending"
	Preparing JobState = "preparing"
	Starting  JobState = "starting"
	Running   JobState = "running"
	Stopping  JobState = "stopping"
	Succeeded JobState = "succeeded"
	Failed    JobState = "failed"
	Cancelled JobState = "cancelled"
	TimedOut  JobState = "timed-out"
	Lost      JobState = "lost"
)

// Final says whether nothing more will happen to the job.
func (s JobState) Final() bool {
	switch s {
	case Succeeded, Failed, Cancelled, TimedOut, Lost:
		return true
	}
	return false
}

// Active says whether an attempt of the job is under way and may hold devices.
func (s JobState) Active() bool { return s == Starting || s == Running || s == Stopping }

// Queued says whether the job waits for its turn.
func (s JobState) Queued() bool { return s == Pending || s == Preparing }

// JobEvent is something that moves a job from one state to another.
type JobEvent string

// The events of a job.
const (
	EvPrepare  JobEvent = "prepare"  // its image and mounts are being looked at
	EvPrepared JobEvent = "prepared" // they are good, or the look has to be repeated later
	EvGrant    JobEvent = "grant"    // an allocation was persisted for it
	EvStarted  JobEvent = "started"  // its container runs
	EvStop     JobEvent = "stop"     // it was told to stop
	EvRequeue  JobEvent = "requeue"  // back to the queue: preempted, retried
	EvSucceed  JobEvent = "succeed"
	EvFail     JobEvent = "fail"
	EvCancel   JobEvent = "cancel"
	EvTimeOut  JobEvent = "time-out"
	EvLose     JobEvent = "lose"
)

var transitions = map[JobState]map[JobEvent]JobState{
	Pending:   {EvPrepare: Preparing, EvGrant: Starting, EvCancel: Cancelled, EvFail: Failed},
	Preparing: {EvPrepared: Pending, EvCancel: Cancelled, EvFail: Failed},
	Starting: {EvStarted: Running, EvStop: Stopping, EvRequeue: Pending, EvSucceed: Succeeded, EvFail: Failed,
		EvCancel: Cancelled, EvLose: Lost},
	Running: {EvStop: Stopping, EvRequeue: Pending, EvSucceed: Succeeded, EvFail: Failed, EvLose: Lost},
	Stopping: {EvRequeue: Pending, EvSucceed: Succeeded, EvFail: Failed, EvCancel: Cancelled, EvTimeOut: TimedOut,
		EvLose: Lost},
}

// Next is the state machine of a job: a pure table. An event that a state does not know is an error and changes
// nothing.
func Next(s JobState, e JobEvent) (JobState, error) {
	if to, ok := transitions[s][e]; ok {
		return to, nil
	}
	return s, fmt.Errorf("a %s job cannot %s", s, e)
}

// AllocationState is where an allocation stands.
type AllocationState string

// The states of an allocation. Releasing still holds its devices: their memory has not been seen free yet.
const (
	Granted   AllocationState = "granted"
	Active    AllocationState = "active"
	Releasing AllocationState = "releasing"
	Released  AllocationState = "released"
)

// Holds says whether the allocation still counts against its devices.
func (s AllocationState) Holds() bool { return s == Granted || s == Active || s == Releasing }
