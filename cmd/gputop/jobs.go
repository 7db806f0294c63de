package main

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"gputop/engine"
	"gputop/engine/api"
	"gputop/engine/termsafe"
)

// list is the form of every list of jobs in JSON.
type list struct {
	Version int       `json:"version"`
	Jobs    []api.Job `json:"jobs"`
}

func (c *cli) printJSON(v any) error {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("print JSON: %w", err)
	}
	return c.write(string(b) + "\n")
}

// jobTable is the jobs as a table, in the order given.
func jobTable(jobs []api.Job, now time.Time) *table {
	t := newTable("ID", "NAME", "OWNER", "CLASS", "STATE", "GPU", "TIME", "DETAIL")
	t.right[0], t.right[6] = true, true
	t.most[1], t.most[2] = 32, 16
	t.rows = make([][]string, 0, len(jobs))
	// In a long queue thousands wait for the same thing.
	var last engine.Reason
	var lastText string
	for i := range jobs {
		j := &jobs[i]
		var why string
		switch {
		case j.Reason == nil || !waits(j):
			why = jobDetail(j)
		case lastText != "" && *j.Reason == last:
			why = lastText
		default:
			why = jobDetail(j)
			last, lastText = *j.Reason, why
		}
		if j.State.Queued() && j.ExpectedStart.After(now) {
			why = "about " + engine.Soon(j.ExpectedStart, now) + ": " + why
		}
		t.add(j.ID.String(), j.Name, j.Owner, j.Class.String(), stateWord(j), requestWord(j.Request), jobTime(j, now), why)
	}
	return t
}

// waits says whether the reason is what there is to say about a job.
func waits(j *api.Job) bool {
	return j.State == engine.Pending && len(j.Grants) == 0 && j.Progress == ""
}

func stateWord(j *api.Job) string {
	if j.Held && j.State.Queued() {
		return "held"
	}
	return string(j.State)
}

// requestWord is what a job asks of the GPUs: "2", "12GiB", "25%", or "-" for none.
func requestWord(r engine.Request) string {
	switch {
	case r.GPUs > 0:
		return strconv.Itoa(r.GPUs)
	case r.GPUMemory > 0:
		return r.GPUMemory.String()
	case r.GPUFraction > 0:
		return percent(float64(r.GPUFraction))
	}
	return "-"
}

func percent(f float64) string { return fmt.Sprintf("%.4g%%", f*100) }

// jobTime is how long a job has waited, runs, or ran.
func jobTime(j *api.Job, now time.Time) string {
	switch {
	case j.State.Final() && !j.Started.IsZero():
		return span(j.Ended.Sub(j.Started))
	case j.State.Final():
		return "-"
	case j.State.Active() && !j.Started.IsZero():
		return span(now.Sub(j.Started))
	}
	return span(now.Sub(j.Submitted))
}

// span is a length of time in at most two units: "5s", "3m20s", "2h05m", "3d04h".
func span(d time.Duration) string {
	if d < 0 {
		d = 0
	}
	s := int64(d / time.Second)
	two := func(big int64, unit string, small int64, smallUnit string) string {
		b := append(strconv.AppendInt(make([]byte, 0, 16), big, 10), unit...)
		return string(append(append(b, byte('0'+small/10), byte('0'+small%10)), smallUnit...))
	}
	switch {
	case s < 60:
		return strconv.FormatInt(s, 10) + "s"
	case s < 3600:
		return two(s/60, "m", s%60, "s")
	case s < 86400:
		return two(s/3600, "h", s/60%60, "m")
	}
	return two(s/86400, "d", s/3600%24, "h")
}

// jobDetail is where a job runs, why it waits, or how it ended.
func jobDetail(j *api.Job) string {
	switch {
	case j.State.Final():
		if j.Message != "" {
			return j.Message
		}
		if j.ExitCode != nil && *j.ExitCode != 0 {
			return fmt.Sprintf("exit code %d", *j.ExitCode)
		}
		return ""
	case j.State == engine.Stopping && j.StopReason != "":
		return "being stopped: " + string(j.StopReason)
	case len(j.Grants) > 0:
		return grantsWord(j.Grants)
	case j.Progress != "":
		return j.Progress
	case j.Reason != nil:
		return reasonWord(*j.Reason)
	}
	return ""
}

// grantsWord names the devices by their number, for display only.
func grantsWord(grants []api.Grant) string {
	var out []string
	for _, g := range grants {
		name := fmt.Sprintf("GPU %d", g.Index)
		if g.Index < 0 {
			name = string(g.Device)
		}
		if !g.Whole {
			name += fmt.Sprintf(" (%s of it)", g.Memory)
		}
		out = append(out, name)
	}
	return strings.Join(out, ", ")
}

var reasonTexts = map[engine.ReasonCode]string{
	engine.WaitingForDevice:     "waits for a GPU",
	engine.WaitingForHost:       "waits for CPU or memory",
	engine.BlockedByPriority:    "waits for its turn",
	engine.BlockedBySize:        "asks for more than this machine has",
	engine.ReasonPreparing:      "is being prepared",
	engine.ReasonHeld:           "is held",
	engine.ReasonNotBefore:      "waits for its time",
	engine.DependencyPending:    "waits for",
	engine.DeviceNotAnswering:   "GPUs that would do do not answer",
	engine.DeviceUnresolvable:   "no container can be given the GPU",
	engine.DevicesUnknown:       "the GPUs are not known yet",
	engine.OverQuota:            "waits for room in its quota",
	engine.BlockedByReservation: "waits for GPUs that are promised to others",
	engine.DeviceDraining:       "waits for GPUs that take no new jobs",
	engine.WaitingForPreempted:  "starts when jobs stopped for it are gone",
	engine.AgentUnavailable:     "Podman does not answer",
}

// reasonWord says why a job waits.
func reasonWord(r engine.Reason) string {
	amount := func(n int64) string {
		switch r.Unit {
		case engine.UnitBytes, engine.UnitMilliGPUs, engine.UnitJobs, engine.UnitCores:
			return engine.Amount(n, r.Unit)
		}
		return fmt.Sprint(n)
	}
	text := reasonTexts[r.Code]
	if text == "" {
		text = string(r.Code)
	}
	if r.Needed > 0 {
		text += fmt.Sprintf(": needs %s, %s free", amount(r.Needed), amount(r.Free))
	}
	if r.Job > 0 {
		text += " behind job " + r.Job.String()
	}
	switch {
	case r.Detail == "":
	case r.Code == engine.DependencyPending:
		return text + " " + r.Detail
	case r.Code == engine.OverQuota && strings.HasPrefix(r.Detail, engine.ArrayAccount):
		return r.Detail + " is full: as many of it run as may"
	default:
		text += " (" + r.Detail + ")"
	}
	if r.Code == engine.ReasonNotBefore && !r.Until.IsZero() {
		text += ", " + clock(r.Until)
	}
	return text
}

// ended is a sentence on how a job ended.
func ended(j api.Job) string {
	text := map[engine.JobState]string{engine.Succeeded: "succeeded", engine.Failed: "failed", engine.Cancelled: "was cancelled",
		engine.TimedOut: "reached its time limit", engine.Lost: "was lost"}[j.State]
	if text == "" {
		text = "is " + string(j.State)
	}
	if j.State == engine.Failed && j.ExitCode != nil {
		text += fmt.Sprintf(" with exit code %d", *j.ExitCode)
	}
	if j.Message != "" {
		text += ": " + termsafe.Line(strings.TrimSuffix(j.Message, "."))
	}
	return fmt.Sprintf("Job %s %s.", j.ID, text)
}
