package main

import (
	"context"
	"io"
	"time"

	"github.com/spf13/cobra"

	"gputop/engine"
	"gputop/engine/api"
	"gputop/engine/termsafe"
)

func (c *cli) logsCommand() *cobra.Command {
	var o api.LogOptions
	cmd := &cobra.Command{
		Use:   "logs JOB",
		Short: "A job's output",
		Long: "Print what a job wrote to standard output and standard error. On a terminal, sequences that would change the\n" +
			"terminal itself are left out; into a file or a pipe the bytes go as they are.",
		Example:           "  gputop logs 42\n  gputop logs -f 42\n  gputop logs --tail 20 42\n  gputop logs --attempt 1 42 > first.log\n  gputop logs -f --json 42 | my-collector",
		Args:              usageArgs(cobra.ExactArgs(1)),
		ValidArgsFunction: c.completeJobs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.Attempt < 0 || o.Tail < 0 {
				return usagef("--attempt and --tail want a number above 0")
			}
			return c.withJob(cmd.Context(), args[0], func(ctx context.Context, client *api.Client, id engine.JobID) error {
				var w io.Writer = c.out
				o.JSON = c.json
				if isTerminal(c.out) && !c.json {
					w = termsafe.NewWriter(c.out)
				}
				err := readLogs(ctx, client, id, o, w)
				if err != nil && ctx.Err() != nil {
					return &codeError{code: exitCancelled} // the user has seen enough
				}
				return err
			})
		},
	}
	cmd.Flags().BoolVarP(&o.Follow, "follow", "f", false, "go on until the job has ended")
	cmd.Flags().IntVar(&o.Attempt, "attempt", 0, "of this attempt, counted from 1 (default the newest)")
	cmd.Flags().IntVar(&o.Tail, "tail", 0, "only the last lines (default all)")
	c.jsonFlag(cmd)
	cmd.Flags().Lookup("json").Usage = "a JSON object a line, with time, job, attempt, stream and text: for a collector"
	return cmd
}

// readLogs reads a job's output, over restarts of the daemon: each time it goes on behind the last byte written.
func readLogs(ctx context.Context, client *api.Client, id engine.JobID, o api.LogOptions, w io.Writer) error {
	var gone time.Time
	for {
		before, began := o.From, time.Now()
		err := client.LogsFrom(ctx, id, &o, w)
		if err == nil || ctx.Err() != nil || !passing(err) || !o.Follow && o.From == (api.LogMark{}) {
			return err
		}
		switch {
		case gone.IsZero(), o.From != before, time.Since(began) > waitPatience/10:
			gone = time.Now()
		case time.Since(gone) > waitPatience:
			return err
		}
		select {
		case <-time.After(500 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
