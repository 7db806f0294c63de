package engine

import (
	"fmt"
	"time"
)

// Ending is what is known about how an attempt ended.
type Ending struct {
	// Started says whether the program ever ran.
	Started bool
	// Fault is why no exit code can be believed: the infrastructure failed, not the program. Empty when the exit code
	// is good.
	Fault string
	// Invalid is why the job can never run as asked; its owner must change it.
	Invalid   string
	ExitCode  int
	OOMKilled bool
	// Memory is the host memory the attempt was granted, in bytes.
	Memory Bytes
}

// Verdict is what follows from an ending.
type Verdict struct {
	Event   JobEvent
	Message string
	// NotBefore keeps a requeued job out of the queue for a while.
	NotBefore time.Time
	// Failed, Faulted and Preempted say which counter of the job grows.
	Failed, Faulted, Preempted bool
}

// Judge decides what becomes of a job whose attempt ended. A stop that was asked for explains any ending; a fault
// before the program ran is tried again up to MaxFaults times; one after that only if the job allows retries, since
// nothing may run twice unasked; a program's own failure is tried again as often as the job says.
func Judge(j Job, e Ending, now time.Time) Verdict {
	switch j.StopReason {
	case StopCancelled:
		return Verdict{Event: EvCancel, Message: j.Message}
	case StopTimeLimit:
		return Verdict{Event: EvTimeOut, Message: fmt.Sprintf("stopped at its time limit of %s", j.Spec.TimeLimit)}
	case StopPreempted:
		return Verdict{Event: EvRequeue, Preempted: true, Message: j.Message}
	}
	if e.Invalid != "" {
		return Verdict{Event: EvFail, Message: e.Invalid}
	}
	if e.Fault != "" {
		return judgeFault(j, e, now)
	}
	if e.ExitCode == 0 {
		return Verdict{Event: EvSucceed}
	}
	msg := fmt.Sprintf("the program exited with code %d", e.ExitCode)
	if e.OOMKilled {
		msg = fmt.Sprintf("out of memory: the program needed more host memory than its %s (exit code %d)", e.Memory, e.ExitCode)
	}
	if j.Failures < j.Spec.Retries {
		return Verdict{Event: EvRequeue, Failed: true, NotBefore: now.Add(backoff(j.Failures)),
			Message: fmt.Sprintf("%s; retry %d of %d", msg, j.Failures+1, j.Spec.Retries)}
	}
	return Verdict{Event: EvFail, Failed: true, Message: msg}
}

func judgeFault(j Job, e Ending, now time.Time) Verdict {
	again := Verdict{Event: EvRequeue, Faulted: true, NotBefore: now.Add(backoff(j.Faults)), Message: e.Fault}
	if e.Started {
		if j.Faults+j.Failures < j.Spec.Retries {
			return again
		}
		return Verdict{Event: EvLose, Faulted: true, Message: e.Fault + "; it may have done part of its work, and is not run again unasked (submit with --retries to allow that)"}
	}
	if j.Faults < MaxFaults {
		return again
	}
	return Verdict{Event: EvFail, Faulted: true, Message: fmt.Sprintf("%s (tried %d times)", e.Fault, j.Faults+1)}
}

// backoff is how long the next try waits after n earlier ones: 2 s, 4 s, … up to 5 minutes.
func backoff(n int) time.Duration {
	return min(2*time.Second<<min(n, 10), 5*time.Minute)
}
