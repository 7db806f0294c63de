package main

import (
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"gputop/engine"
	"gputop/engine/api"
)

func (c *cli) auditCommand() *cobra.Command {
	var since, user string
	var limit int
	cmd := &cobra.Command{
		Use:   "audit",
		Short: "Who did, or was refused, what to which job",
		Long: "The audit trail: who did, or was refused, what to which job, when and why. Admins read all of it; everybody else what they\n" +
			"did and what was done to their jobs. It is kept for a year, as far as it has room.",
		Example: "  gputop audit\n  gputop audit --since 7d --user alice\n  gputop audit --since 30d --json | jq '.entries[] | select(.allowed | not)'",
		Args:    usageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			q := api.AuditQuery{User: user, Limit: limit}
			back, err := engine.ParseDuration(since)
			if err != nil {
				return usagef("--since: %v", err)
			}
			if limit < 1 || limit > api.MaxAudit {
				return usagef("--limit %d: want a number from 1 to %d", limit, api.MaxAudit)
			}
			q.Since = c.now().Add(-back)
			return c.ask(cmd.Context(), func(ctx context.Context, client *api.Client) error {
				a, err := client.Audit(ctx, q)
				if err != nil {
					return err
				}
				return c.printAudit(a)
			})
		},
	}
	cmd.Flags().StringVar(&since, "since", "24h", "how far back: 30m, 24h, 7d")
	cmd.Flags().StringVar(&user, "user", "", "only what this user did")
	cmd.Flags().IntVar(&limit, "limit", api.DefaultAudit, "at most so many lines, the newest ones")
	c.jsonFlag(cmd)
	return cmd
}

// printAudit prints the oldest first, as things happened.
func (c *cli) printAudit(a api.Audit) error {
	slices.Reverse(a.Entries)
	if c.json {
		return c.printJSON(struct {
			Version int `json:"version"`
			api.Audit
		}{1, a})
	}
	if len(a.Entries) == 0 {
		return c.write("Nothing on the audit trail in this time.\n")
	}
	t := newTable("TIME", "USER", "UID", "PID", "ACTION", "JOB", "OWNER", "RESULT", "DETAIL")
	t.right[2], t.right[3], t.right[5] = true, true, true
	t.most[1], t.most[6] = 16, 16
	for _, e := range a.Entries {
		result, job := "refused", "-"
		if e.Allowed {
			result = "done"
		}
		if e.Job > 0 {
			job = e.Job.String()
		}
		t.add(e.Time.Local().Format(time.DateTime), e.User.Name, strconv.Itoa(int(e.User.UID)), strconv.Itoa(e.PID), e.Action, job, dash(e.Owner.Name), result, auditDetail(e))
	}
	more := ""
	if a.More {
		more = "There are older lines; see more with --limit.\n"
	}
	return c.write(more + t.String())
}

func auditDetail(e engine.AuditEntry) string {
	switch {
	case e.Reason == "":
		return e.Text
	case e.Text == "":
		return "reason: " + e.Reason
	}
	return e.Text + "; reason: " + e.Reason
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
