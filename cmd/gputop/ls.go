package main

import (
	"context"
	"runtime/debug"

	"github.com/spf13/cobra"

	"gputop/engine/api"
)

// everything is how many live jobs ls asks for: all of them.
const everything = 100_000

func (c *cli) lsCommand() *cobra.Command {
	var all, mine bool
	var limit int
	cmd := &cobra.Command{
		Use:     "ls",
		Aliases: []string{"list"},
		Short:   "List jobs: running, queued and recently ended",
		Example: "  gputop ls\n  gputop ls --mine\n  gputop ls --all --limit 500\n  gputop ls --json | jq '.jobs[] | select(.state == \"pending\") | .id'",
		Args:    usageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if limit < 0 || limit > everything {
				return usagef("--limit %d: want a number from 0 to %d", limit, everything)
			}
			if limit == 0 && !all {
				limit = everything
			} else if limit == 0 {
				limit = 200
			}
			// A list is read, printed and forgotten: collecting garbage in between only takes time.
			debug.SetGCPercent(1000)
			return c.ask(cmd.Context(), func(ctx context.Context, client *api.Client) error {
				jobs, err := client.List(ctx, all, limit)
				if err != nil {
					return err
				}
				return c.printJobs(jobs, mine)
			})
		},
	}
	cmd.Flags().BoolVarP(&all, "all", "a", false, "also jobs that ended long ago, newest first")
	cmd.Flags().BoolVarP(&mine, "mine", "m", false, "only yours")
	cmd.Flags().IntVar(&limit, "limit", 0, "at most so many jobs (default all that live; 200 with --all)")
	c.jsonFlag(cmd)
	return cmd
}

func (c *cli) printJobs(jobs []api.Job, mine bool) error {
	if mine {
		kept := jobs[:0]
		for _, j := range jobs {
			if j.Mine {
				kept = append(kept, j)
			}
		}
		jobs = kept
	}
	if c.json {
		return c.printJSON(list{1, jobs})
	}
	if len(jobs) == 0 {
		return c.write("No jobs.\n")
	}
	return c.write(jobTable(jobs, c.now()).String())
}
