// Package notice holds the rules by which owners of jobs are told something: a change of a job, a long wait, or what
// samples show, in, and notices out. It has no clock, no I/O and no goroutines, and it stops nothing: that a job is to be
// reclaimed is said, and done elsewhere.
package notice

import (
	"fmt"
	"strconv"
	"time"

	"gputop/engine"
)

// Policy says when something is worth telling.
type Policy struct {
	// WaitAfter is how long a job waits before its owner is told; 0 never tells.
	WaitAfter time.Duration
	// MemoryShare is the share of its memory from which a job is told, when it has used that much for MemoryAfter.
	MemoryShare float64
	MemoryAfter time.Duration
	// IdleAfter is how long a whole GPU does nothing before its job is told; 0 never tells.
	IdleAfter time.Duration
	// ReclaimAfter is how much longer a job may do nothing on all its GPUs after it was told so; 0 lets it.
	ReclaimAfter time.Duration
}

// DefaultPolicy is what holds without a configuration.
func DefaultPolicy() Policy {
	return Policy{WaitAfter: 30 * time.Minute, MemoryShare: 0.9, MemoryAfter: 5 * time.Minute, IdleAfter: time.Hour}
}

func about(j *engine.Job, now time.Time, k engine.NoticeKind, text, detail string) engine.Notice {
	return engine.Notice{Time: now, Kind: k, Job: j.ID, Name: j.Spec.Name, Owner: j.Owner, Attempt: j.Attempts,
		Text: text, Detail: detail, Key: strconv.Itoa(j.Attempts)}
}

// Changed is what a change of a job tells: nothing, or that it started, ended or was preempted. Of an element of an array
// that goes as it should nothing is told, unless its owner asked for it: there are many of them.
func Changed(was, is *engine.Job, now time.Time) (engine.Notice, bool) {
	quiet := is.Element != nil && len(is.Spec.Notify) == 0
	switch {
	case was.State.Final() || was.State == is.State:
	case quiet && (is.State == engine.Running || is.State == engine.Succeeded || is.State == engine.Cancelled):
	case is.State.Final():
		n := about(is, now, engine.NoticeEnded, endText(is), endDetail(is))
		n.Key = "" // once in its life
		return n, true
	case is.State == engine.Running:
		return about(is, now, engine.NoticeStarted, "started", ""), true
	case is.Preemptions > was.Preemptions:
		return about(is, now, engine.NoticePreempted, "stopped and put back in the queue", is.Message), true
	}
	return engine.Notice{}, false
}

// ArrayEnded tells with the end of its last element that an array is done.
func ArrayEnded(last *engine.Job, now time.Time) engine.Notice {
	n := about(last, now, engine.NoticeEnded, fmt.Sprintf("the last of the %d jobs of array %s has ended", last.Element.Of, last.Element.Array), "")
	n.Key = "array"
	return n
}

func endText(j *engine.Job) string {
	switch {
	case j.State == engine.Failed && j.ExitCode != nil:
		return fmt.Sprintf("failed with exit code %d", *j.ExitCode)
	case j.State == engine.TimedOut:
		return fmt.Sprintf("stopped at its time limit of %s", span(j.Spec.TimeLimit))
	}
	return string(j.State)
}

// endDetail leaves out what the text has said.
func endDetail(j *engine.Job) string {
	switch {
	case j.State == engine.TimedOut, j.ExitCode != nil && j.Message == fmt.Sprintf("the program exited with code %d", *j.ExitCode):
		return ""
	}
	return j.Message
}

// Waits is the notice that a job has waited for that long.
func Waits(j *engine.Job, waited time.Duration, why string, now time.Time) engine.Notice {
	return about(j, now, engine.NoticeWaiting, "has waited for "+span(waited.Truncate(time.Minute)), why)
}

// Reclaimed is the notice that a job is stopped because it leaves its GPUs idle.
func Reclaimed(j *engine.Job, p Policy, now time.Time) engine.Notice {
	return about(j, now, engine.NoticeReclaimed, "is being stopped", ReclaimReason(p))
}

// ReclaimReason is why an idle job is stopped, for its story.
func ReclaimReason(p Policy) string {
	return fmt.Sprintf("reclaimed: its GPUs did nothing for %s, and for %s more after its owner was told", span(p.IdleAfter), span(p.ReclaimAfter))
}

// span is a length of time without zero units: 1h, 30m, 1h30m.
func span(d time.Duration) string {
	s := d.Round(time.Second).String()
	for _, zero := range []string{"m0s", "h0m"} {
		if n := len(s) - len(zero); n >= 0 && s[n:] == zero {
			s = s[:n+1]
		}
	}
	return s
}
