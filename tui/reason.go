package tui

import (
	"fmt"
	"strings"
	"time"

	"gputop/engine"
	"gputop/engine/api"
)

// reasonText says in a sentence why a queued job is not running, and first when it should, where that can be told.
func reasonText(j *api.Job, now time.Time) string {
	if t := j.ExpectedStart; t.After(now) {
		return "about " + engine.Soon(t, now) + ": " + causeText(j, now)
	}
	return causeText(j, now)
}

func causeText(j *api.Job, now time.Time) string {
	if j.Held && (j.Reason == nil || j.Reason.Code != engine.ReasonHeld) {
		return "held"
	}
	if j.Reason == nil {
		if j.State == engine.Preparing {
			return preparingText(j, "")
		}
		return "next look at the queue decides"
	}
	r := j.Reason
	switch r.Code {
	case engine.WaitingForDevice:
		return waitingText(r)
	case engine.WaitingForHost:
		return withDetail("a GPU fits, but host memory or CPU does not", r.Detail)
	case engine.BlockedByPriority:
		if r.Job != 0 {
			return fmt.Sprintf("job #%d is ahead in line for it", r.Job)
		}
		return "a job ahead of it waits for the device"
	case engine.BlockedBySize:
		return withDetail("needs more than this machine has now", r.Detail)
	case engine.ReasonPreparing:
		return preparingText(j, r.Detail)
	case engine.ReasonHeld:
		if r.Detail == "" {
			return "held"
		}
		return "held " + r.Detail // by whom
	case engine.ReasonNotBefore:
		if r.Until.After(now) {
			return withDetail("starts in "+clock(r.Until.Sub(now))+" at the earliest", r.Detail)
		}
		return withDetail("its time has come", r.Detail)
	case engine.DependencyPending:
		return "waits for " + r.Detail
	case engine.DeviceNotAnswering:
		return withDetail("the GPUs that would do do not answer", r.Detail)
	case engine.DeviceUnresolvable:
		return withDetail("no container can be given the GPU", r.Detail)
	case engine.DevicesUnknown:
		return withDetail("no GPU has been seen yet", r.Detail)
	case engine.OverQuota:
		return quotaText(r)
	case engine.BlockedByReservation:
		s := withDetail("promised to others", r.Detail)
		if r.Until.After(now) {
			s += ", for another " + clock(r.Until.Sub(now))
		}
		return s
	case engine.DeviceDraining:
		return withDetail("the GPUs that would do take no new jobs", r.Detail)
	case engine.WaitingForPreempted:
		return "jobs are being stopped for it; it starts when they are gone"
	case engine.AgentUnavailable:
		return withDetail("the owner's agent or Podman does not answer", r.Detail)
	}
	return withDetail(string(r.Code), r.Detail)
}

func quotaText(r *engine.Reason) string {
	if strings.HasPrefix(r.Detail, engine.ArrayAccount) {
		return r.Detail + " is full: as many of it run as may"
	}
	if r.Needed == 0 {
		return withDetail("over quota", r.Detail)
	}
	return fmt.Sprintf("needs %s, %s left of the quota of %s", engine.Amount(r.Needed, r.Unit), engine.Amount(r.Free, r.Unit), r.Detail)
}

func waitingText(r *engine.Reason) string {
	s := "waits for a GPU"
	switch {
	case r.Unit == "bytes" && r.Needed > 0:
		free := "none"
		if r.Free > 0 {
			free = engine.Bytes(r.Free).String()
		}
		s = fmt.Sprintf("needs %s on one GPU, %s free", engine.Bytes(r.Needed), free)
	case r.Needed > 0:
		s = fmt.Sprintf("needs %s, %d free", engine.Count(r.Needed, "GPU"), r.Free)
	}
	if r.Job != 0 {
		s += fmt.Sprintf("; job #%d holds it", r.Job)
	}
	return withDetail(s, r.Detail)
}

func preparingText(j *api.Job, detail string) string {
	switch {
	case j.Progress != "":
		return "preparing: " + j.Progress
	case detail != "":
		return "preparing: " + detail
	}
	return "preparing: looking at image and mounts"
}

func withDetail(s, detail string) string {
	if detail == "" {
		return s
	}
	return s + ": " + detail
}

// outcomeText says how an ended job ended, beyond its state.
func outcomeText(j *api.Job) string {
	switch {
	case j.Message != "":
		return firstLine(j.Message)
	case j.ExitCode != nil && *j.ExitCode > 128:
		return fmt.Sprintf("killed by signal %d", *j.ExitCode-128)
	case j.ExitCode != nil && *j.ExitCode != 0:
		return fmt.Sprintf("exit code %d", *j.ExitCode)
	}
	return ""
}
