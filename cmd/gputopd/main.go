// Command gputopd is gputop's daemon binary. It has three roles, each a process of its own: serve is the engine, agent
// runs as a user and talks to that user's Podman, sampler is the only one that loads NVML. An admin's command opens the
// device gate without them.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"gputop/cmd/internal/manpage"
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
	root.AddCommand(serveCommand(), agentCommand(), samplerCommand(), gateCommand(), manpage.Command(manpage.Page{Section: 8, Version: version,
		Files: [][2]string{
			{"/etc/gputop/config.yaml", "Configuration of the shared daemon; every key is in it, commented."},
			{"/var/lib/gputop", "State of the shared daemon: the queue."},
			{"/run/gputop/gputop.sock", "Socket of the shared daemon."},
			{"/run/cdi/gputop-lease-*.json", "What a running attempt was granted, one file each, readable to its owner."},
			{"~/.local/state/gputop", "State of a personal daemon, and each user's job output and checkpoints."},
		}, SeeAlso: []string{"gputop(1)", "podman(1)", "loginctl(1)"}}))
	if err := root.ExecuteContext(ctx); err != nil {
		if toJournal(os.Stderr) {
			fmt.Fprint(os.Stderr, prefixes[prioError])
		}
		fmt.Fprintf(os.Stderr, "gputopd: %v\n", err)
		stop()
		os.Exit(1)
	}
}
