package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"gputop/engine"
	"gputop/engine/api"
)

// waitPatience is how long wait looks for a daemon that went away, for example to be upgraded.
const waitPatience = time.Minute

func (c *cli) waitCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "wait JOB...",
		Short: "Wait until jobs have ended, and end with their exit code",
		Long: "Wait until jobs have ended, and end with the exit code of the program (see gputop help exit-codes). A restart of the\n" +
			"daemon does not end the waiting.",
		Example:           "  gputop wait 42 && gputop submit -- python evaluate.py\n  gputop wait 42 43 44",
		Args:              usageArgs(cobra.MinimumNArgs(1)),
		ValidArgsFunction: c.completeJobs,
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.withJobs(cmd.Context(), args, c.waitAll)
		},
	}
	c.jsonFlag(cmd)
	return cmd
}

func (c *cli) waitAll(ctx context.Context, client *api.Client, ids []engine.JobID) error {
	code := exitOK
	var jobs []api.Job
	for _, id := range ids {
		j, err := waitFor(ctx, client, id)
		if err != nil {
			if ctx.Err() != nil {
				return &codeError{code: exitCancelled}
			}
			return fmt.Errorf("wait for job %s: %w", id, err)
		}
		jobs = append(jobs, j)
		if code == exitOK {
			code = waitCode(j)
		}
		if !c.json {
			if err := c.write(ended(j) + "\n"); err != nil {
				return err
			}
		}
	}
	if c.json {
		if err := c.printJSON(list{1, jobs}); err != nil {
			return err
		}
	}
	if code != exitOK {
		return &codeError{code: code}
	}
	return nil
}

// waitFor waits for one job, over restarts of the daemon.
func waitFor(ctx context.Context, client *api.Client, id engine.JobID) (api.Job, error) {
	return overRestarts(ctx, func() (api.Job, error) { return client.Wait(ctx, id) })
}

// overRestarts waits by some call, over restarts of the daemon.
func overRestarts(ctx context.Context, wait func() (api.Job, error)) (api.Job, error) {
	var gone time.Time
	for {
		j, err := wait()
		if err == nil || ctx.Err() != nil || !passing(err) {
			return j, err
		}
		switch {
		case gone.IsZero() || !errors.Is(err, api.ErrUnreachable):
			gone = time.Now()
		case time.Since(gone) > waitPatience:
			return j, err
		}
		select {
		case <-time.After(500 * time.Millisecond):
		case <-ctx.Done():
			return j, ctx.Err()
		}
	}
}

// passing says whether an error may be gone at the next try: the daemon stops, or is down.
func passing(err error) bool {
	var e *api.Error
	if errors.As(err, &e) {
		return e.Code == api.CodeUnavailable
	}
	return errors.Is(err, api.ErrUnreachable) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET)
}
