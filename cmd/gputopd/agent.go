package main

import (
	"log/slog"
	"os"
	"time"

	"github.com/spf13/cobra"

	"gputop/engine/runner"
)

func agentCommand() *cobra.Command {
	o := runner.Options{Version: version, IdleExit: 10 * time.Minute}
	var logFile string
	c := &cobra.Command{
		Use:    "agent",
		Short:  "Run this user's containers for the engine (started by serve)",
		Args:   cobra.NoArgs,
		Hidden: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			out := os.Stderr
			if logFile != "" {
				f, err := os.OpenFile(logFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
				if err != nil {
					return err
				}
				defer f.Close()
				out = f
			}
			o.Log = slog.New(slog.NewTextHandler(out, nil))
			return runner.Run(cmd.Context(), o)
		},
	}
	c.Flags().StringVar(&o.EngineSocket, "engine-socket", "", "the engine's socket")
	c.Flags().StringVar(&o.StateDir, "state-dir", "", "where this user's logs and checkpoints are kept (default ~/.local/state/gputop/agent)")
	c.Flags().DurationVar(&o.IdleExit, "idle-exit", o.IdleExit, "end after this long without work")
	c.Flags().StringVar(&logFile, "log-file", "", "write the log there instead of to standard error")
	return c
}
