package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"gputop/engine"
	"gputop/engine/api"
	"gputop/engine/draft"
)

func (c *cli) holdCommand() *cobra.Command {
	return c.stopCommand(&cobra.Command{
		Use:     "hold JOB...",
		Short:   "Keep waiting jobs from their turn",
		Long:    "Keep waiting jobs from their turn, until they are released. Your own jobs only, unless you are an admin.",
		Example: "  gputop hold 42\n  gputop hold 42 43 --reason 'the data set is not ready'",
	}, "held", (*api.Client).Hold)
}

func (c *cli) releaseCommand() *cobra.Command {
	return c.stopCommand(&cobra.Command{
		Use:   "release JOB...",
		Short: "Let held jobs have their turn, at their old place",
		Long: "Let held jobs have their turn, at the place in the queue that they had. Your own jobs only, unless you are an admin; what an\n" +
			"admin held, an admin releases.",
		Example: "  gputop release 42",
	}, "released", (*api.Client).Release)
}

func (c *cli) requeueCommand() *cobra.Command {
	var note string
	cmd := &cobra.Command{
		Use:   "requeue JOB...",
		Short: "Run jobs of yours again: stop a running one, submit an ended one anew",
		Long: "Run jobs of yours again. A running job is preempted: it is told to stop and goes back to its old place in the queue. A job\n" +
			"that has ended is submitted again as it was, as a new job with an id and a checkpoint directory of its own.",
		Example:           "  gputop requeue 42\n  gputop requeue 42 --reason 'the disk was full'",
		Args:              usageArgs(cobra.MinimumNArgs(1)),
		ValidArgsFunction: c.completeJobs,
	}
	cmd.Flags().StringVar(&note, "reason", "", "a sentence for the job's story")
	c.jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return c.askJobs(cmd.Context(), args, func(ctx context.Context, client *api.Client, ids []engine.JobID) error {
			return c.each(ids, func(id engine.JobID) (api.Job, string, error) {
				r, err := client.Requeue(ctx, id, note)
				c.note(r.Warnings...)
				if r.Job.ID != id {
					return r.Job, fmt.Sprintf("Job %s queued: job %s again.\n", r.Job.ID, id), err
				}
				return r.Job, fmt.Sprintf("Job %s is being preempted and goes back to the queue.\n", id), err
			})
		})
	}
	return cmd
}

func (c *cli) updateCommand() *cobra.Command {
	var f draft.Fields
	var note string
	cmd := &cobra.Command{
		Use:   "update JOB",
		Short: "Change a job: its time limit, class, name, what it asks for",
		Long: "Change a job. While it waits, anything that is a flag here. While it runs, its name, and its time limit: downwards, and for\n" +
			"an admin upwards.",
		Example:           "  gputop update 42 --time-limit 2h\n  gputop update 42 --class high --gpu-mem 12GiB",
		Args:              usageArgs(cobra.ExactArgs(1)),
		ValidArgsFunction: c.completeJobs,
		RunE: func(cmd *cobra.Command, args []string) error {
			u, err := updateOf(f)
			if err != nil {
				return err
			}
			u.Reason = note
			return c.askJobs(cmd.Context(), args, func(ctx context.Context, client *api.Client, ids []engine.JobID) error {
				return c.each(ids, func(id engine.JobID) (api.Job, string, error) {
					j, err := client.Update(ctx, id, u)
					return j, fmt.Sprintf("Job %s updated.\n", id), err
				})
			})
		},
	}
	addFlags(cmd, &f, "name", "class", "time-limit", "gpus", "gpu-mem", "gpu-fraction", "cpus", "memory")
	cmd.Flags().StringVar(&note, "reason", "", "a sentence for the job's story")
	c.jsonFlag(cmd)
	must(cmd.RegisterFlagCompletionFunc("class", cobra.FixedCompletions(classWords(), cobra.ShellCompDirectiveNoFileComp)))
	return cmd
}

// updateOf reads what was typed; the daemon checks what it amounts to.
func updateOf(f draft.Fields) (api.UpdateRequest, error) {
	var u api.UpdateRequest
	var errs []error
	if f.Name != "" {
		u.Name = &f.Name
	}
	u.Class = typedField(&errs, "class", strings.ToLower(f.Class), engine.ParseClass)
	u.TimeLimit = typedField(&errs, "time-limit", f.TimeLimit, engine.ParseDuration)
	u.GPUs = typedField(&errs, "gpus", f.GPUs, strconv.Atoi)
	u.GPUMemory = typedField(&errs, "gpu-mem", f.GPUMemory, engine.ParseBytes)
	u.GPUFraction = typedField(&errs, "gpu-fraction", f.GPUFraction, engine.ParseFraction)
	u.CPUs = typedField(&errs, "cpus", f.CPUs, func(s string) (engine.CPUs, error) {
		n, err := strconv.ParseFloat(s, 64)
		if err != nil || math.IsNaN(n) || math.IsInf(n, 0) || n <= 0 {
			return 0, fmt.Errorf("%q: want a number of cores such as 4 or 0.5", s)
		}
		return engine.CPUs(n), nil
	})
	u.Memory = typedField(&errs, "memory", f.Memory, engine.ParseBytes)
	if len(errs) > 0 {
		return u, usagef("nothing was changed: %v", errors.Join(errs...))
	}
	if u == (api.UpdateRequest{}) {
		return u, usagef("say what to change, for example: gputop update 42 --time-limit 2h\nSee gputop update --help")
	}
	return u, nil
}

// typedField reads one flag; nil when it was not given.
func typedField[T any](errs *[]error, name, text string, read func(string) (T, error)) *T {
	if text = strings.TrimSpace(text); text == "" {
		return nil
	}
	v, err := read(text)
	if err != nil {
		if errors.Is(err, strconv.ErrSyntax) || errors.Is(err, strconv.ErrRange) {
			err = fmt.Errorf("%q: want a whole number such as 1", text)
		}
		*errs = append(*errs, fmt.Errorf("--%s: %w", name, err))
		return nil
	}
	return &v
}
