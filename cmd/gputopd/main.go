// Command gputopd is gputop's daemon binary. It has three roles, each a process of its own: serve is the engine, agent
// runs as a user and talks to that user's Podman, sampler is the only one that loads NVML.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

// version is set by the build.
var version = "dev"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	root := &cobra.Command{
		Use:           "gputopd",
		Short:         "The daemon of gputop",
		Version:       version,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.AddCommand(serveCommand(), agentCommand(), samplerCommand())
	if err := root.ExecuteContext(ctx); err != nil {
		fmt.Fprintf(os.Stderr, "gputopd: %v\n", err)
		stop()
		os.Exit(1)
	}
}
