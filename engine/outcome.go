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
	// Failed, Faulted, Preempted and Restarted say which counter of the job grows; Short that the run counts as one.
	Failed, Faulted, Preempted, Restarted, Short bool
}

// Judge decides what becomes of a job whose attempt ended. A stop that was asked for explains any ending; a fault
// before the program ran is tried again up to MaxFaults times; one after that only if the job allows retries, since
// nothing may run twice unasked, or saves its work; a program's own failure is tried again as often as the job says.
func Judge(j Job, e Ending, now time.Time) Verdict {
	switch j.StopReason {
	case StopCancelled:
		return Verdict{Event: EvCancel, Message: j.Message}
	case StopTimeLimit:
		if j.Spec.Restart == RestartUnlessStopped {
			return Verdict{Event: EvRequeue, Restarted: true, Message: fmt.Sprintf("reached its time limit of %s, and goes back to the queue", j.Spec.TimeLimit)}
		}
		return Verdict{Event: EvTimeOut, Message: fmt.Sprintf("stopped at its time limit of %s", j.Spec.TimeLimit)}
	case StopLostCard:
		e = Ending{Started: true, Fault: j.Message} // whatever the program says of it
		if j.Spec.Restart == RestartUnlessStopped {
			return judgeService(j, e, now)
		}
		return judgeFault(j, e, now)
	case StopMemory:
		return Verdict{Event: EvFail, Failed: true, Message: j.Message}
	case StopPreempted:
		if j.Spec.Tty {
			return Verdict{Event: EvCancel, Message: j.Message + "; a job with a terminal is not put back: nobody would be there"}
		}
		return Verdict{Event: EvRequeue, Preempted: true, Message: j.Message}
	}
	if e.Invalid != "" {
		return Verdict{Event: EvFail, Message: e.Invalid}
	}
	if j.Spec.Restart == RestartUnlessStopped && (e.Fault == "" || e.Started) {
		return judgeService(j, e, now)
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

const (
	// shortRun is how long a service has to run so that its end is not a failure to start.
	shortRun = 10 * time.Second
	// maxShortRuns is how often in a row it may end before that.
	maxShortRuns = 8
)

// judgeService puts a service back in the queue, but one that never comes up.
func judgeService(j Job, e Ending, now time.Time) Verdict {
	how := fmt.Sprintf("the program ended with code %d", e.ExitCode)
	if e.Fault != "" {
		how = e.Fault
	}
	short := e.Fault == "" && !j.Started.IsZero() && now.Sub(j.Started) < shortRun
	if !short {
		return Verdict{Event: EvRequeue, Restarted: true, NotBefore: now.Add(backoff(0)), Message: how + "; the service is started again"}
	}
	if j.ShortRuns+1 >= maxShortRuns {
		return Verdict{Event: EvFail, Failed: true, Message: fmt.Sprintf("%s, %d times in a row within %s of its start: it is not started again", how, j.ShortRuns+1, shortRun)}
	}
	return Verdict{Event: EvRequeue, Restarted: true, Short: true, NotBefore: now.Add(backoff(j.ShortRuns)), Message: how + "; the service is started again"}
}

func judgeFault(j Job, e Ending, now time.Time) Verdict {
	again := Verdict{Event: EvRequeue, Faulted: true, NotBefore: now.Add(backoff(j.Faults)), Message: e.Fault}
	if e.Started {
		// A program that saves its work goes on where it was, as often as the infrastructure may fail it.
		if j.Faults+j.Failures < j.Spec.Retries || j.Spec.Checkpoint && j.Faults < MaxFaults {
			return again
		}
		if j.Spec.Checkpoint {
			return Verdict{Event: EvLose, Faulted: true, Message: fmt.Sprintf("%s, as %d times before; its checkpoint is kept", e.Fault, j.Faults)}
		}
		return Verdict{Event: EvLose, Faulted: true, Message: e.Fault + "; it may have done part of its work, and is not run again unasked (submit with --retries or --checkpoint to allow that)"}
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
