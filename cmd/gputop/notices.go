package main

import (
	"context"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"gputop/engine"
	"gputop/engine/api"
)

func (c *cli) noticesCommand() *cobra.Command {
	var limit int
	cmd := &cobra.Command{
		Use:   "notices",
		Short: "What became of your jobs",
		Long: "What you were told of your jobs: started, ended, preempted, waiting for long, memory nearly used up, idle GPUs. What is new\n" +
			"since you last looked has a mark; printing it counts as reading it, with --json it does not.",
		Example: "  gputop notices\n  gputop notices --json | jq '.notices[] | select(.kind == \"ended\")'",
		Args:    usageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if limit < 1 || limit > api.MaxNotices {
				return usagef("--limit %d: want a number from 1 to %d", limit, api.MaxNotices)
			}
			return c.ask(cmd.Context(), func(ctx context.Context, client *api.Client) error {
				n, err := client.Notices(ctx, limit)
				if err != nil {
					return err
				}
				if err := c.printNotices(n); err != nil || c.json || n.Unread() == 0 {
					return err
				}
				return client.ReadNotices(ctx, n.Notices[0].ID)
			})
		},
	}
	cmd.Flags().IntVar(&limit, "limit", api.DefaultNotices, "at most so many, the newest ones")
	c.jsonFlag(cmd)
	return cmd
}

// printNotices prints the oldest first, as things happened.
func (c *cli) printNotices(n api.Notices) error {
	if c.json {
		return c.printJSON(struct {
			Version int `json:"version"`
			Unread  int `json:"unread"`
			api.Notices
		}{1, n.Unread(), n})
	}
	if len(n.Notices) == 0 {
		return c.write("No notices.\n")
	}
	t := newTable("TIME", "NEW", "JOB", "NAME", "KIND", "WHAT")
	t.right[2] = true
	t.most[3] = 24
	for _, x := range slices.Backward(n.Notices) {
		mark := ""
		if x.ID > n.Read {
			mark = "*"
		}
		t.add(x.Time.Local().Format(time.DateTime), mark, aboutJob(x), dash(x.Name), string(x.Kind), x.Sentence())
	}
	return c.write(t.String())
}

// aboutJob is the job that a notice is about, or a dash.
func aboutJob(n engine.Notice) string {
	if n.Job == 0 {
		return "-"
	}
	return n.Job.String()
}
