package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"gputop/engine/runner"
)

func agentCommand() *cobra.Command {
	o := runner.Options{Version: version, IdleExit: 10 * time.Minute}
	var instance string
	c := &cobra.Command{
		Use:    "agent",
		Short:  "Run this user's containers for the engine (started by serve)",
		Args:   cobra.NoArgs,
		Hidden: true,
		RunE:   func(cmd *cobra.Command, _ []string) error { return runAgent(cmd.Context(), o, instance) },
	}
	c.Flags().StringVar(&o.EngineSocket, "engine-socket", "", "the engine's socket")
	c.Flags().StringVar(&o.StateDir, "state-dir", "", "where this user's logs and checkpoints are kept (default ~/.local/state/gputop/shared-INSTANCE)")
	c.Flags().StringVar(&instance, "instance", "", "which engine it works for, in the default of --state-dir")
	c.Flags().DurationVar(&o.IdleExit, "idle-exit", o.IdleExit, "end after this long without work")
	return c
}

// runAgent runs the agent with its log in its own directory: whoever started it may be gone.
func runAgent(ctx context.Context, o runner.Options, instance string) error {
	if os.Getuid() == 0 {
		return errors.New("an agent never runs as root")
	}
	if o.StateDir == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return fmt.Errorf("no state directory: %w", err)
		}
		// One for each engine: every one counts its jobs from 1, and an agent locks its directory.
		o.StateDir = filepath.Join(home, ".local", "state", "gputop", "shared-"+instance)
	}
	if err := os.MkdirAll(o.StateDir, 0o700); err != nil {
		return err
	}
	f, err := os.OpenFile(filepath.Join(o.StateDir, "agent.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	o.Log = slog.New(slog.NewTextHandler(f, nil))
	err = runner.Run(ctx, o)
	if err != nil {
		o.Log.Error("agent ends", "err", err)
	}
	return err
}
