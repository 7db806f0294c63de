package daemon

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"gputop/engine"
	"gputop/engine/api"
	"gputop/profiles"
)

// listCommand is the longest command line in a list, in bytes.
const listCommand = 200

// jobView is what the record of a job alone tells.
func jobView(j *engine.Job) *api.Job {
	return &api.Job{
		ID: j.ID, Name: j.Spec.Name, Owner: j.Owner.Name, UID: j.Owner.UID, Class: j.Spec.Class, State: j.State, Held: j.Held,
		Request: j.Spec.Request, TimeLimit: j.Spec.TimeLimit,
		Submitted: j.Submitted, Started: j.Started, Ended: j.Ended, Attempt: j.Attempts, Preemptions: j.Preemptions, StopReason: j.StopReason,
		ExitCode: j.ExitCode, Message: j.Message, Command: commandLine(j.Spec.Command),
		Group: j.Spec.Group, GroupID: j.Spec.GroupID, Stdin: j.Spec.Stdin, Tty: j.Spec.Tty, Element: j.Element,
	}
}

// unsavedText is said of a job whose stop is under way and not on disk.
const unsavedText = "told to stop; the disk with gputop's state is full, and this is recorded when there is room"

// view is a job as its owner sees it.
func (d *Daemon) view(e *entry) *api.Job {
	j := &e.job
	v := jobView(j)
	v.Reason, v.Position, v.ExpectedStart = e.reason, e.position, e.expected
	if j.State == engine.Preparing {
		v.Progress = e.progress
	}
	if u := e.unsaved; u != nil && j.State.Active() {
		v.State, v.StopReason, v.Message, v.Progress = engine.Stopping, u.why, u.text, unsavedText
	}
	if a := d.state.newest(j); a != nil && !j.State.Queued() {
		if a.Allocation.State.Holds() {
			v.Grants = d.grants(a.Allocation.Grants)
			v.GPUMemoryUsed = d.memoryUsed(a.ID)
		}
		if a.Port > 0 && j.State == engine.Running {
			v.URL = serverURL(j, a.Port)
		}
	}
	return v
}

// serverURL opens a job's server.
func serverURL(j *engine.Job, port int) string {
	path := "/"
	if p, err := profiles.Get(j.Spec.Profile); err == nil && p.URL != "" {
		path = strings.NewReplacer("{job}", j.ID.String(), "{token}", j.Token).Replace(p.URL)
	}
	return fmt.Sprintf("http://127.0.0.1:%d%s", port, path)
}

// commandLine joins a command for display, in one line and shortened.
func commandLine(command []string) string {
	s := strings.Join(command, " ")
	if len(s) <= listCommand {
		return s
	}
	s = s[:listCommand]
	for !utf8.ValidString(s) && len(s) > listCommand-utf8.UTFMax {
		s = s[:len(s)-1]
	}
	return s + "…"
}

func (d *Daemon) grants(list []engine.Grant) []api.Grant {
	out := make([]api.Grant, 0, len(list))
	for _, g := range list {
		out = append(out, api.Grant{Device: g.Device, Index: d.indexOf(g.Device), Memory: g.Memory, Fraction: g.Fraction, Whole: g.Whole})
	}
	return out
}

// redact makes a view fit for a caller.
func redact(v api.Job, c api.Caller) api.Job {
	owner := engine.User{UID: v.UID, Name: v.Owner}
	if v.Mine = owner.Is(c.User); !v.Mine {
		v.URL = "" // its token opens the job
	}
	if may(c, actLook, subject{owner, v.GroupID}) != yes {
		v.Command, v.Message, v.Progress = "", "", ""
		if v.Reason != nil && v.Reason.Code == engine.AgentUnavailable {
			r := *v.Reason
			r.Detail = "" // an error of the owner's agent may name the owner's files
			v.Reason = &r
		}
	}
	return v
}

// attemptView is an attempt as its owner sees it.
func (d *Daemon) attemptView(a engine.Attempt) api.Attempt {
	if cv := d.curves[a.ID]; cv != nil {
		a.Curve = cv.Clone()
	}
	return api.Attempt{
		Curve: a.Curve, Number: a.ID.Number, Container: a.Container, ContainerID: a.ContainerID, Allocation: a.Allocation.State,
		Grants: d.grants(a.Allocation.Grants), CDIDevices: a.CDIDevices, DirectEdits: a.DirectEdits, PID: a.PID,
		Granted: a.Granted, Started: a.Started, Ended: a.Ended, ExitCode: a.ExitCode, OOMKilled: a.OOMKilled, Message: a.Message,
	}
}

// gpusView is the newest sample with who is on each card. It names no more of a foreign process than any user of the
// machine can see.
func (d *Daemon) gpusView() *api.GPUs {
	st := d.state
	v := &api.GPUs{Time: st.sample.Time, Simulated: st.sample.Simulated, Driver: st.sample.Driver, CUDA: st.sample.CUDA,
		Stale: st.stale, Error: st.sample.Error, GPUs: make([]api.GPU, 0, len(st.sample.GPUs))}
	if st.samples == 0 {
		v.Error = "the GPUs have not been seen yet"
	}
	jobs := map[engine.DeviceID][]engine.JobID{}
	promised := map[engine.DeviceID]engine.Bytes{}
	owners := map[uint64]engine.AttemptID{}
	for _, a := range st.sortedAttempts() {
		if !a.Allocation.State.Holds() {
			continue
		}
		if a.PIDNamespace != 0 {
			owners[a.PIDNamespace] = a.ID
		}
		for _, g := range a.Allocation.Grants {
			jobs[g.Device] = append(jobs[g.Device], a.ID.Job)
			promised[g.Device] += g.Memory
		}
	}
	for _, g := range st.sample.GPUs {
		out := api.GPU{GPU: g, Promised: promised[g.UUID], Jobs: jobs[g.UUID]}
		for i := range d.reserved {
			if r := &d.reserved[i]; slices.Contains(r.Devices, g.UUID) {
				out.Reservations = append(out.Reservations, d.reservationView(r))
			}
		}
		if ds := st.devices[g.UUID]; ds != nil {
			out.Foreign = ds.foreign
		}
		out.GPU.Processes = nil
		out.GPU.MIG = append([]engine.MIGDevice(nil), g.MIG...)
		out.Processes = d.processViews(g.UUID, g.Processes, owners)
		for i := range out.GPU.MIG {
			m := &out.GPU.MIG[i]
			out.Processes = append(out.Processes, d.processViews(m.UUID, m.Processes, owners)...)
			m.Processes = nil
		}
		v.GPUs = append(v.GPUs, out)
	}
	return v
}

func (d *Daemon) processViews(dev engine.DeviceID, list []engine.GPUProcess, owners map[uint64]engine.AttemptID) []api.Process {
	out := make([]api.Process, 0, len(list))
	for _, p := range list {
		v := api.Process{GPUProcess: p, Device: dev}
		if id, ok := owners[p.PIDNamespace]; ok && p.PIDNamespace != 0 {
			v.Job = id.Job
			v.User = d.state.jobs[id.Job].job.Owner.Name
			v.Command = d.state.jobs[id.Job].job.Spec.Name // a job's command is its owner's business
		} else {
			v.User = d.userName(p.UID)
		}
		out = append(out, v)
	}
	return out
}

func (d *Daemon) userName(uid uint32) string {
	if d.o.UserName == nil {
		return ""
	}
	return d.o.UserName(uid)
}
