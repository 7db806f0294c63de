package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"gputop/engine"
	"gputop/engine/api"
	"gputop/engine/termsafe"
)

// stopCall is a method of a client that takes a reason: Cancel, Preempt, Hold or Release.
type stopCall func(*api.Client, context.Context, engine.JobID, string) (api.Job, error)

func (c *cli) cancelCommand() *cobra.Command {
	return c.stopCommand(&cobra.Command{
		Use:     "cancel JOB...",
		Short:   "End jobs for good",
		Long:    "End jobs for good. A running job is told to stop and gets some time to do so. Your own jobs only, unless you are an admin.",
		Example: "  gputop cancel 42\n  gputop cancel 42 50-149 --reason 'wrong data'",
	}, "cancelled", (*api.Client).Cancel)
}

func (c *cli) preemptCommand() *cobra.Command {
	var gains string
	cmd := c.stopCommand(&cobra.Command{
		Use:   "preempt JOB...",
		Short: "Stop running jobs and put them back in the queue",
		Long: "Stop running jobs and put them back in the queue, at their old place. An admin may preempt anybody's, and has to say why:\n" +
			"the owner reads it. Everybody may preempt their own, and with --for somebody else's for a waiting job of their own: its\n" +
			"class has to be high, the other one lower and one that gives way (the daemon's preemptible classes: low, by default).",
		Example: "  gputop preempt 42 --reason 'a demo until five'\n  gputop preempt 42 --for 57",
	}, "preempted", func(client *api.Client, ctx context.Context, id engine.JobID, note string) (api.Job, error) {
		if gains == "" {
			return client.Preempt(ctx, id, note)
		}
		mine, err := oneJob(gains)
		if err != nil {
			return api.Job{}, err
		}
		return client.PreemptFor(ctx, id, mine, note)
	})
	cmd.Flags().StringVar(&gains, "for", "", "preempt it for this waiting job of yours, of a higher class")
	return cmd
}

func (c *cli) stopCommand(cmd *cobra.Command, done string, call stopCall) *cobra.Command {
	var note string
	cmd.Args = usageArgs(cobra.MinimumNArgs(1))
	cmd.ValidArgsFunction = c.completeJobs
	cmd.Flags().StringVar(&note, "reason", "", "a sentence for the job's story")
	c.jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return c.askJobs(cmd.Context(), args, func(ctx context.Context, client *api.Client, ids []engine.JobID) error {
			return c.stopAll(ctx, client, ids, note, done, call)
		})
	}
	return cmd
}

// ofJob says which job an error is about, where it does not itself.
func ofJob(id engine.JobID, err error) error {
	if strings.Contains(err.Error(), "job "+id.String()) {
		return err
	}
	return fmt.Errorf("job %s: %w", id, err)
}

func (c *cli) stopAll(ctx context.Context, client *api.Client, ids []engine.JobID, note, done string, call stopCall) error {
	return c.each(ids, func(id engine.JobID) (api.Job, string, error) {
		j, err := call(client, ctx, id, note)
		text := fmt.Sprintf("Job %s %s.\n", id, done)
		if j.State == engine.Stopping {
			text = fmt.Sprintf("Job %s is being %s.\n", id, done)
			if j.Progress != "" {
				text = fmt.Sprintf("Job %s is being %s: %s.\n", id, done, termsafe.Text(j.Progress))
			}
		}
		return j, text, err
	})
}

// each does one thing to several jobs and says what was done. It goes on after a job to which it can't be done; the
// first such error decides the exit code.
func (c *cli) each(ids []engine.JobID, do func(engine.JobID) (api.Job, string, error)) error {
	var jobs []api.Job
	var first error
	for _, id := range ids {
		j, text, err := do(id)
		if err != nil {
			if first != nil {
				fmt.Fprintf(c.err, "gputop: %s\n", termsafe.Text(ofJob(id, err).Error()))
				continue
			}
			first = ofJob(id, err)
			continue
		}
		jobs = append(jobs, j)
		if c.json {
			continue
		}
		if err := c.write(text); err != nil {
			return err
		}
	}
	if c.json {
		return errors.Join(first, c.printJSON(list{1, append([]api.Job{}, jobs...)}))
	}
	return first
}
