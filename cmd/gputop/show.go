package main

import (
	"context"
	"fmt"
	"os"
	"os/user"
	"sort"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"gputop/engine"
	"gputop/engine/api"
	"gputop/engine/termsafe"
)

func (c *cli) showCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:               "show JOB",
		Short:             "Everything about one job",
		Example:           "  gputop show 42\n  gputop show 42 --json | jq .job.attempts",
		Args:              usageArgs(cobra.ExactArgs(1)),
		ValidArgsFunction: c.completeJobs,
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.askJob(cmd.Context(), args[0], func(ctx context.Context, client *api.Client, id engine.JobID) error {
				d, err := client.Show(ctx, id)
				if err != nil {
					return err
				}
				if c.json {
					return c.printJSON(struct {
						Version int           `json:"version"`
						Job     api.JobDetail `json:"job"`
					}{1, d})
				}
				return c.write(detail(d, c.now()))
			})
		},
	}
	c.jsonFlag(cmd)
	return cmd
}

// lines puts a job's story together, one "key  value" a line.
type lines struct{ b strings.Builder }

func (l *lines) add(key, value string) {
	if value != "" {
		fmt.Fprintf(&l.b, "%-12s %s\n", key, termsafe.Line(value))
	}
}

// tunnel is the command that makes a job's server reachable under the same URL on the caller's own computer.
func tunnel(url string) string {
	port, _, _ := strings.Cut(strings.TrimPrefix(url, "http://127.0.0.1:"), "/")
	host, err := os.Hostname()
	if err != nil {
		host = "HOST"
	}
	name := "USER"
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	return fmt.Sprintf("ssh -N -L %s:127.0.0.1:%s %s@%s, there; then open the URL", port, port, name, host)
}

func clock(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.Local().Format("2006-01-02 15:04:05")
}

func detail(d api.JobDetail, now time.Time) string {
	var l lines
	j := &d.Job
	l.add("Job", j.ID.String())
	l.add("Name", j.Name)
	l.add("Owner", j.Owner)
	if j.State.Final() {
		l.add("State", string(j.State))
	} else {
		l.add("State", stateWord(j)+" for "+jobTime(j, now))
	}
	l.add("Detail", jobDetail(j))
	if j.URL != "" {
		l.add("URL", j.URL)
		l.add("From afar", tunnel(j.URL))
	}
	if j.ExitCode != nil {
		l.add("Exit code", fmt.Sprint(*j.ExitCode))
	}
	if j.Position > 0 {
		l.add("Position", fmt.Sprint(j.Position))
	}
	if !j.ExpectedStart.IsZero() {
		l.add("Expected", expected(j, now))
	}
	l.add("Class", j.Class.String())
	l.add("GPU", requestLong(j.Request))
	if j.Request.CPUs > 0 {
		l.add("CPUs", fmt.Sprintf("%g", float64(j.Request.CPUs)))
	}
	if j.Request.Memory > 0 {
		l.add("Memory", j.Request.Memory.String())
	}
	l.add("Time limit", span(j.TimeLimit))
	if j.GPUMemoryUsed != nil && !j.State.Final() {
		l.add("GPU memory", j.GPUMemoryUsed.String()+" used now")
	}
	l.add("Submitted", clock(j.Submitted))
	l.add("Started", clock(j.Started))
	l.add("Ended", clock(j.Ended))
	switch {
	case j.Preemptions == 1:
		l.add("Preempted", "once")
	case j.Preemptions > 1:
		l.add("Preempted", fmt.Sprintf("%d times", j.Preemptions))
	}
	l.spec(d)
	l.attempts(d.Attempts)
	if len(d.Events) > 0 {
		l.b.WriteString("\nEvents\n")
		for _, e := range d.Events {
			fmt.Fprintf(&l.b, "  %s  %s\n", clock(e.Time), termsafe.Line(strings.TrimSpace(e.Kind+"  "+e.Text)))
		}
	}
	return l.b.String()
}

func requestLong(r engine.Request) string {
	if r.GPUModel != "" {
		model := r.GPUModel
		r.GPUModel = ""
		return requestLong(r) + ", " + model
	}
	switch {
	case r.GPUs == 1:
		return "1 whole GPU"
	case r.GPUs > 1:
		return fmt.Sprintf("%d whole GPUs", r.GPUs)
	case r.GPUMemory > 0:
		return r.GPUMemory.String() + " of one GPU"
	case r.GPUFraction > 0:
		return percent(float64(r.GPUFraction)) + " of one GPU"
	}
	return "none"
}

// spec is what only those see who may look into the job. Values of variables are not shown: they may be secrets.
func (l *lines) spec(d api.JobDetail) {
	s := d.Spec
	if s == nil {
		return
	}
	l.add("Command", quoted(s.Command))
	l.add("Directory", s.Workdir)
	l.add("Profile", s.Profile)
	l.add("Image", s.Image)
	if s.Image != "" && d.ImageName != s.Image {
		l.add("Full name", d.ImageName)
	}
	l.add("Digest", d.ImageDigest)
	l.add("Output", s.Output)
	l.add("Array", elementWord(d))
	for _, dep := range s.After {
		l.add("After", "waits for "+dep.String())
	}
	l.add("Begin", clock(s.Begin))
	l.add("Checkpoint", checkpointWord(s))
	l.add("Stop signal", s.StopSignal)
	if s.Warn != "" {
		l.add("Warning", s.Warn+", "+span(s.WarnBefore)+" before the time limit")
	}
	l.add("Restart", string(s.Restart))
	l.add("Notify", strings.Join(s.Notify, ", "))
	if s.Retries > 0 {
		l.add("Retries", fmt.Sprint(s.Retries))
	}
	for _, m := range s.Mounts {
		text := m.Source + " on " + m.Target
		if m.ReadOnly {
			text += " (read only)"
		}
		l.add("Mount", text)
	}
	names := make([]string, 0, len(s.Env))
	for n := range s.Env {
		names = append(names, n)
	}
	sort.Strings(names)
	l.add("Variables", strings.Join(names, " "))
}

// elementWord is a job's place in its array.
func elementWord(d api.JobDetail) string {
	e := d.Element
	if e == nil {
		return ""
	}
	s := fmt.Sprintf("index %d of array %s, jobs %s-%s", e.Index, e.Array, e.Array, e.Array+engine.JobID(e.Of)-1)
	if e.Parallel > 0 {
		s += fmt.Sprintf(", at most %d at once", e.Parallel)
	}
	return s
}

func checkpointWord(s *engine.Spec) string {
	switch {
	case s.CheckpointEvery > 0:
		return "saved every " + span(s.CheckpointEvery)
	case s.Checkpoint:
		return "saved when it is told to stop"
	}
	return ""
}

// quoted is a command as a shell would take it, shortened.
func quoted(command []string) string {
	const most = 2000
	var b strings.Builder
	for i, a := range command {
		if i > 0 {
			b.WriteByte(' ')
		}
		if a == "" || strings.ContainsAny(a, " \t\n'\"\\$`*?[]{}()<>|&;#~!") {
			a = "'" + strings.ReplaceAll(a, "'", `'\''`) + "'"
		}
		b.WriteString(a)
		if b.Len() > most {
			return strings.ToValidUTF8(b.String()[:most], "") + "…"
		}
	}
	return b.String()
}

func (l *lines) attempts(attempts []api.Attempt) {
	for _, a := range attempts {
		fmt.Fprintf(&l.b, "\nAttempt %d\n", a.Number)
		l.add("  Devices", grantsWord(a.Grants))
		l.add("  Allocation", string(a.Allocation))
		how := strings.Join(a.CDIDevices, ", ")
		if a.DirectEdits && len(a.Grants) > 0 {
			how = "given directly: this Podman does not read CDI specs from a directory that you may write"
		}
		l.add("  CDI", how)
		l.add("  Container", strings.TrimSpace(a.Container+" "+a.ContainerID))
		if a.PID > 0 {
			l.add("  PID", fmt.Sprint(a.PID))
		}
		l.add("  Started", clock(a.Started))
		l.add("  Ended", clock(a.Ended))
		if a.ExitCode != nil {
			l.add("  Exit code", fmt.Sprint(*a.ExitCode))
		}
		if a.OOMKilled {
			l.add("  Killed", "out of host memory: ask for more with --memory")
		}
		l.add("  Message", a.Message)
		l.curve(a)
	}
}

// curveWidth is how many signs a curve has.
const curveWidth = 60

// curve draws what an attempt used, beside the peak and what it was promised.
func (l *lines) curve(a api.Attempt) {
	c := a.Curve
	if c == nil || len(c.Memory) == 0 {
		return
	}
	var promised engine.Bytes
	for _, g := range a.Grants {
		promised += g.Memory
	}
	peak, sm := c.Peak()
	draw := func(key, bars, text string) {
		fmt.Fprintf(&l.b, "%-12s %s  %s\n", key, bars, text)
	}
	if peak != nil {
		text := fmt.Sprintf("at most %s", *peak)
		if promised > 0 {
			text += fmt.Sprintf(" of %s", promised)
		}
		draw("  Memory", engine.Bars(engine.Thin(c.Memory, curveWidth), max(promised, *peak), engine.BarSigns), text)
	}
	if sm != nil {
		draw("  SM", engine.Bars(engine.Thin(c.SM, curveWidth), 1000, engine.BarSigns), fmt.Sprintf("%.0f%% in the mean", 100**sm))
	}
	draw("  Time", strings.Repeat(" ", min(len(c.Memory), curveWidth)), span(time.Duration(len(c.Memory))*c.Step))
}
