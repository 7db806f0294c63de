package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"gputop/engine"
	"gputop/engine/api"
	"gputop/engine/policyfile"
	"gputop/engine/scheduler"
	"gputop/engine/scheduler/replay"
)

func (c *cli) simCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "sim", Short: "Try scheduling policies on a workload, without a GPU or a daemon", Args: usageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() }}
	cmd.AddCommand(c.simReplayCommand())
	return cmd
}

// simFlags are what a replay is asked for.
type simFlags struct {
	trace, model, policy, limits, checkpoint string
	preemptible                              []string
	gpus, jobs                               int
	load                                     float64
	seed                                     uint64
	compare                                  bool
	// set says which flags were given.
	set func(name string) bool
}

func (c *cli) simReplayCommand() *cobra.Command {
	var f simFlags
	cmd := &cobra.Command{
		Use:   "replay",
		Short: "Play a trace through the scheduler on virtual time",
		Long: "Play a trace through the scheduler on virtual time: the daemon's own planner, with a start that takes 5 s and a stopped job\n" +
			"that takes 30 s to be gone. It says how long the jobs of each class waited, how well the GPUs were used and what was thrown\n" +
			"away. The trace is a file of Alibaba's cluster-trace-gpu-v2023, or what this machine has done (gputop ls --all --json), with\n" +
			"its own classes, owners, time limits and, unless --load is given, times. Without one, a workload is made up.\n" +
			"With --compare, all named policies and no preemption side by side.",
		Example: "  gputop sim replay --trace openb_pod_list_default.csv --compare\n  gputop sim replay --load 1.5 --policy mine.yaml --json\n  gputop ls --all --limit 5000 --json > history.json; gputop sim replay --trace history.json --compare",
		Args:    usageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			f.set = cmd.Flags().Changed
			return c.simReplay(f)
		},
	}
	l := cmd.Flags()
	l.StringVar(&f.trace, "trace", "", "a CSV file of cluster-trace-gpu-v2023, or gputop's own list of jobs in JSON (default a made-up workload)")
	l.IntVar(&f.gpus, "gpus", 8, "how many GPUs the box has")
	l.StringVar(&f.model, "model", "a100-40gb", "what they are; what follows the last dash is their memory")
	l.Float64Var(&f.load, "load", 0.9, "how much work arrives, as a part of what the box can do")
	l.IntVar(&f.jobs, "jobs", 2000, "how many jobs: the last of the trace")
	l.StringVar(&f.policy, "policy", scheduler.Balanced, strings.Join(scheduler.PolicyNames, ", ")+", none (no preemption) or a YAML file")
	l.StringVar(&f.limits, "limits", string(replay.LimitsTrue), "what is known of durations: own (time limits, of gputop's own jobs), true, loose (1-5 times too long) or missing (for 60 %, the rest loose)")
	l.StringVar(&f.checkpoint, "checkpoint", "none", "which jobs go on where they were stopped: all or none")
	l.StringSliceVar(&f.preemptible, "preemptible", []string{"low", "medium"}, "classes that give way; of a policy file, its own where it says so")
	l.Uint64Var(&f.seed, "seed", 1, "for what is drawn by lot")
	l.BoolVar(&f.compare, "compare", false, "beside the policy, all named ones and no preemption")
	c.jsonFlag(cmd)
	return cmd
}

// simResult is one policy's replay.
type simResult struct {
	Policy string `json:"policy"`
	replay.Result
}

func (c *cli) simReplay(f simFlags) error {
	jobs, o, err := f.read()
	if err != nil {
		return err
	}
	names := []string{f.policy}
	if f.compare {
		for _, n := range append([]string{"none"}, scheduler.PolicyNames...) {
			if n != f.policy {
				names = append(names, n)
			}
		}
	}
	var out []simResult
	for _, name := range names {
		if o.Policy, err = f.named(name); err != nil {
			return err
		}
		r, err := replay.Play(jobs, o)
		if err != nil {
			return usagef("%v", err)
		}
		out = append(out, simResult{name, r})
	}
	if c.json {
		return c.printJSON(struct {
			Version int         `json:"version"`
			Results []simResult `json:"results"`
		}{1, out})
	}
	return c.write(simTable(out))
}

// read makes the workload and the box.
func (f simFlags) read() ([]replay.Job, replay.Options, error) {
	o := replay.Options{GPUs: f.gpus, Limits: replay.Limits(f.limits), Seed: f.seed, Checkpoint: f.checkpoint == "all", Start: replay.StartLatency}
	fail := func(format string, args ...any) ([]replay.Job, replay.Options, error) {
		return nil, o, usagef(format, args...)
	}
	var err error
	if o.Memory, err = engine.ParseBytes(f.model[strings.LastIndexByte(f.model, '-')+1:]); err != nil {
		return fail("--model %s: want a name that ends in the memory, for example a100-40gb", f.model)
	}
	switch {
	case f.checkpoint != "all" && f.checkpoint != "none":
		return fail("--checkpoint %s: want all or none", f.checkpoint)
	case !slices.Contains([]replay.Limits{replay.LimitsOwn, replay.LimitsTrue, replay.LimitsLoose, replay.LimitsMissing}, o.Limits):
		return fail("--limits %s: want own, true, loose or missing", f.limits)
	case f.gpus < 1 || f.gpus > 1024:
		return fail("--gpus %d: want 1 to 1024", f.gpus)
	case f.jobs < 2 || f.jobs > 1_000_000:
		return fail("--jobs %d: want 2 to 1000000", f.jobs)
	case !(f.load > 0 && f.load <= 100):
		return fail("--load %g: want more than 0, for example 0.9", f.load)
	}
	if f.trace == "" {
		jobs, err := replay.Standard(replay.Generate(f.jobs, f.seed), f.jobs, f.load, f.gpus)
		if err != nil {
			return fail("%v", err)
		}
		return jobs, o, nil
	}
	file, err := os.Open(f.trace)
	if err != nil {
		return fail("--trace: %v", err)
	}
	defer file.Close()
	in := bufio.NewReader(file)
	if start, _ := in.Peek(1); string(start) == "{" {
		jobs, err := f.history(in, o.Memory)
		if err != nil {
			return fail("--trace %s: %v", f.trace, err)
		}
		if !f.set("limits") {
			o.Limits = replay.LimitsOwn
		}
		return jobs, o, nil
	}
	rows, err := replay.ReadTrace(in)
	if err != nil {
		return fail("--trace %s: %v", f.trace, err)
	}
	jobs, err := replay.Standard(rows, f.jobs, f.load, f.gpus)
	if err != nil {
		return fail("%v", err)
	}
	return jobs, o, nil
}

// history is what this machine has done: its ended jobs with GPUs.
func (f simFlags) history(r io.Reader, memory engine.Bytes) ([]replay.Job, error) {
	var l list
	if err := json.NewDecoder(r).Decode(&l); err != nil {
		return nil, fmt.Errorf("want what gputop ls --all --json prints: %w", err)
	}
	ended := slices.DeleteFunc(l.Jobs, func(j api.Job) bool {
		return !j.Request.WantsGPU() || j.Started.IsZero() || !j.Ended.After(j.Started)
	})
	slices.SortStableFunc(ended, func(a, b api.Job) int { return a.Submitted.Compare(b.Submitted) })
	ended = ended[max(0, len(ended)-f.jobs):]
	if len(ended) < 2 {
		return nil, errors.New("a replay needs two jobs with GPUs that have ended")
	}
	var out []replay.Job
	for _, j := range ended {
		job := replay.Job{Arrival: j.Submitted.Sub(ended[0].Submitted), Duration: j.Ended.Sub(j.Started), GPUs: max(1, j.Request.GPUs), Fraction: 1,
			Class: j.Class, User: j.UID, Limit: j.TimeLimit}
		switch {
		case j.Request.GPUFraction > 0:
			job.Fraction = j.Request.GPUFraction
		case j.Request.GPUMemory > memory:
			return nil, fmt.Errorf("job %s asked for %s of one GPU, and --model has %s", j.ID, j.Request.GPUMemory, memory)
		case j.Request.GPUMemory > 0:
			job.Fraction = engine.Fraction(float64(j.Request.GPUMemory) / float64(memory))
		}
		out = append(out, job)
	}
	if f.set("load") {
		return out, replay.AtLoad(out, f.load, f.gpus)
	}
	return out, nil
}

// named finds a policy by its name, or reads it from a file.
func (f simFlags) named(name string) (scheduler.Policy, error) {
	p, ok := scheduler.NamedPolicy(name)
	switch {
	case ok:
	case name == "none":
		p = scheduler.DefaultPolicy()
		p.By = 0
	default:
		file, err := os.Open(name)
		if err != nil {
			return p, usagef("--policy %s: want %s, none or a file: %v", name, strings.Join(scheduler.PolicyNames, ", "), err)
		}
		defer file.Close()
		p, said, err := policyfile.Read(file)
		if err != nil {
			return p, usagef("--policy %s: %v", name, err)
		}
		if said {
			return p, nil
		}
		return f.giveWay(p)
	}
	return f.giveWay(p)
}

func (f simFlags) giveWay(p scheduler.Policy) (scheduler.Policy, error) {
	p.Of = nil
	for _, word := range f.preemptible {
		c, err := engine.ParseClass(word)
		if err != nil {
			return p, usagef("--preemptible: %v", err)
		}
		p.Of = append(p.Of, c)
	}
	return p, nil
}

func simTable(list []simResult) string {
	t := newTable("POLICY", "CLASS", "JOBS", "MEAN", "P50", "P95", "MAX", "")
	for i := 2; i <= 6; i++ {
		t.right[i] = true
	}
	s := func(v float64) string { return strconv.FormatFloat(v, 'f', 0, 64) + "s" }
	var sums strings.Builder
	for _, r := range list {
		for _, c := range r.Classes {
			t.add(r.Policy, c.Class.String(), strconv.Itoa(c.Jobs), s(c.Mean), s(c.P50), s(c.P95), s(c.Max), "")
		}
		fmt.Fprintf(&sums, "%s: makespan %s, useful utilisation %.3f, wasted %s of GPU time (%.1f %%), %s, Jain %.2f\n", r.Policy,
			s(r.Makespan), r.UsefulUtilisation, s(r.WastedGPUSeconds), 100*r.Waste, engine.Count(r.Preemptions, "preemption"), r.Jain)
	}
	return "Waits (end less arrival less duration):\n" + t.String() + sums.String()
}
